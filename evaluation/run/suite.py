"""Suites: small declarative files that say which cells to measure."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from slackswap import files
from slackswap.errors import InvalidFile, SlackSwapError, UnknownName
from slackswap.evaluation.run.cell import Cell, CellKind, canonical_parameters, check_names
from slackswap.evaluation.run.sources import HardwareSource, ProfileSource
from slackswap.naming import did_you_mean
from slackswap.quantities import parse_budget

T = TypeVar("T")

_SUFFIX = ".toml"
_SUITE_KEYS = ("title", "description", "include", "defaults", "group", "variants")
_GROUP_KEYS = (
    "name", "profiles", "hardware", "budgets", "planners", "bounds", "seeds", "repeats", "variants",
    "timeout", "alone", "expect",
)
_ENTRY_KEYS = ("name", "parameters", "timeout", "expect", "seeds")
_VARIANT_KEYS = ("label", "prices", "simplify", "hardware", "budget")


@dataclass(frozen=True, slots=True)
class Entrant:
    """A planner or a bound as a suite lists it.

    Attributes
    ----------
    name : str
        Planner or bound method.
    parameters : str
        Canonical JSON.
    timeout_s : float or None
        Its own limit, in place of the group's.
    expect_s : float
        Roughly how long it takes, for estimates.
    seeds : tuple of int or None
        Its own seeds, in place of the group's.
    """

    name: str
    parameters: str = "{}"
    timeout_s: float | None = None
    expect_s: float = 0.5
    seeds: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """A change of circumstances under which the claims are looked at again.

    Attributes
    ----------
    label : str
        For people; empty is the plain case.
    prices, simplify, hardware : mapping
        What to replace in the price table, in what is simplified, and in the hardware's recipe.
    budget : str
        Factor on the budget.
    """

    label: str = ""
    prices: Mapping[str, Any] = field(default_factory=dict)
    simplify: Mapping[str, Any] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=dict)
    budget: str = "1"


@dataclass(frozen=True, slots=True)
class Group:
    """A block of cells: every profile with every hardware, budget, planner and seed."""

    name: str
    profiles: tuple[ProfileSource, ...]
    hardware: tuple[HardwareSource, ...] = (HardwareSource(),)
    budgets: tuple[str, ...] = ("0.5",)
    planners: tuple[Entrant, ...] = ()
    bounds: tuple[Entrant, ...] = ()
    seeds: tuple[int, ...] = (0,)
    repeats: int = 1
    variants: tuple[Variant, ...] = (Variant(),)
    timeout_s: float = 60.0
    alone: bool = True

    def cells(self) -> list[Cell]:
        """Return the cells: facts, then bounds, then planners, problem by problem."""
        found: list[Cell] = []
        for variant in self.variants:
            for profile in self.profiles:
                if (variant.prices or variant.simplify) and not profile.priced:
                    continue
                for hardware in self.hardware:
                    found += self._cells_of(profile, hardware, variant)
        return found

    def _cells_of(
        self, profile: ProfileSource, hardware: HardwareSource, variant: Variant
    ) -> list[Cell]:
        for key, changes in (("prices", variant.prices), ("simplify", variant.simplify)):
            if changes:
                changed = {**profile.options.get(key, {}), **changes}
                profile = profile.changed({"label": profile.label, key: changed})
        if "link" in variant.hardware and "link" in hardware.options:
            link = variant.hardware["link"] * hardware.options["link"]
            hardware = hardware.changed({**variant.hardware, "link": link})
        elif variant.hardware:
            hardware = hardware.changed(variant.hardware)
        plain = Cell(
            CellKind.FACTS, "facts", profile, hardware, timeout_s=self.timeout_s,
            variant=variant.label, alone=False,
        )
        found = [plain] if variant.budget == "1" else []
        for budget in self.budgets:
            at = replace(plain, budget=budget, budget_factor=variant.budget)
            found += [
                replace(
                    at, kind=CellKind.BOUND, subject=bound.name, parameters=bound.parameters,
                    timeout_s=bound.timeout_s or self.timeout_s,
                )
                for bound in self.bounds
            ]
            found += [
                replace(
                    at, kind=CellKind.PLAN, subject=planner.name, parameters=planner.parameters,
                    timeout_s=planner.timeout_s or self.timeout_s, alone=self.alone, seed=seed,
                    repeat=repeat,
                )
                for planner in self.planners
                for seed in planner.seeds or self.seeds
                for repeat in range(self.repeats)
            ]
        return found


@dataclass(frozen=True, slots=True)
class Suite:
    """A named list of groups.

    Attributes
    ----------
    name, title, description : str
        For people.
    groups : tuple of Group
        What to measure.
    """

    name: str
    title: str
    description: str
    groups: tuple[Group, ...]

    def cells(self) -> list[Cell]:
        """Return all cells, each once, those that must run alone first."""
        cells = dict.fromkeys(cell for group in self.groups for cell in group.cells())
        return sorted(cells, key=lambda cell: not cell.alone)

    def check(self) -> None:
        """Check all that the suite names, so that a slip ends a run before it begins.

        Raises
        ------
        SlackSwapError
            Naming what cannot be had, with what may have been meant.
        """
        first: dict[tuple[Any, ...], Cell] = {}
        for cell in self.cells():
            # One cell a problem and one a subject is enough.
            problem = (cell.profile, cell.hardware, cell.budget, cell.budget_factor)
            for key in (problem, (cell.kind, cell.subject, cell.parameters)):
                first.setdefault(key, cell)
        for cell in dict.fromkeys(first.values()):
            try:
                check_names(cell)
            except SlackSwapError as error:
                raise type(error)(
                    error.what, where=f"suite {self.name!r}: {error.where}", fix=error.fix
                ) from error

    def expected_s(self) -> Mapping[str, float]:
        """Rough seconds by planner or bound, for estimates."""
        return {
            subject.name: subject.expect_s
            for group in self.groups
            for subject in (*group.planners, *group.bounds)
        }

    def selected(
        self,
        *,
        profiles: Sequence[str] = (),
        budgets: Sequence[str] = (),
        planners: Sequence[str] = (),
        seeds: Sequence[int] = (),
        repeats: int | None = None,
        timeout_s: float | None = None,
    ) -> Suite:
        """Return the part of the suite that is asked for.

        On each axis only the given values stay. One that no group has is added to the first group,
        so that a new planner or a profile of one's own can join a suite.

        Raises
        ------
        SlackSwapError
            When nothing is left.
        """
        for budget in budgets:
            if budget != "unlimited":
                parse_budget(budget)
        groups = list(self.groups)
        groups = _narrow(groups, "profiles", profiles, lambda p: p.label, ProfileSource.of)
        groups = _narrow(groups, "budgets", budgets, str, str)
        groups = _narrow(groups, "planners", planners, lambda p: p.name, Entrant)
        if seeds:
            groups = [
                replace(
                    group,
                    seeds=tuple(seeds),
                    planners=tuple(replace(planner, seeds=None) for planner in group.planners),
                )
                for group in groups
            ]
        if repeats is not None:
            groups = [replace(group, repeats=repeats) for group in groups]
        if timeout_s is not None:
            groups = [_limited(group, timeout_s) for group in groups]
        chosen = replace(self, groups=tuple(groups))
        if not any(cell.kind is CellKind.PLAN for cell in chosen.cells()):
            raise SlackSwapError(
                "nothing of it is selected", where=f"suite {self.name!r}",
                fix="see `slackswap evaluate --dry-run` for what it has",
            )
        return chosen


def suite_names() -> tuple[str, ...]:
    """Return the names of the suites that come with the package."""
    folder = resources.files("slackswap.evaluation.suites")
    return tuple(
        sorted(
            item.name.removesuffix(_SUFFIX)
            for item in folder.iterdir()
            if item.name.endswith(_SUFFIX)
        )
    )


def load_suite(name_or_path: str) -> Suite:
    """Load a suite by name or from a TOML file.

    Raises
    ------
    UnknownName
        When there is neither.
    InvalidFile
        When the file is not a suite.
    """
    if name_or_path in suite_names():
        source = resources.files("slackswap.evaluation.suites") / f"{name_or_path}{_SUFFIX}"
        return parse_suite(source.read_text(encoding="utf-8"), name_or_path)
    path = Path(name_or_path)
    if path.suffix != _SUFFIX or not path.is_file():
        raise UnknownName(
            f"there is no suite {name_or_path!r}{did_you_mean(str(name_or_path), suite_names())}",
            where="suite",
            fix=f"use one of {', '.join(suite_names())}, or the path of a .toml file",
        )
    return parse_suite(files.read_text(path), path.stem, where=str(path))


def parse_suite(text: str, name: str, *, where: str = "") -> Suite:
    """Read a suite from TOML text.

    Raises
    ------
    InvalidFile
        Naming the place and what would fix it.
    """
    place = where or f"suite {name!r}"
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidFile(f"is not TOML: {error}", where=place, fix="correct that line") from error
    _check(document, _SUITE_KEYS, place)
    defaults = document.get("defaults", {})
    variants = {
        entry.get("label", ""): _variant(entry, place) for entry in document.get("variants", [])
    }
    groups: list[Group] = []
    for included in document.get("include", []):
        groups += load_suite(included).groups
    for number, entry in enumerate(document.get("group", [])):
        at = f"{place}: group {entry.get('name', number)!r}"
        _check({**defaults, **entry}, _GROUP_KEYS, at)
        try:
            groups.append(_group({**defaults, **entry}, variants, number))
        except (TypeError, ValueError, KeyError, SlackSwapError) as error:
            raise InvalidFile(f"cannot be read ({error})", where=at,
                              fix="see the suites of slackswap.evaluation.suites") from error
    if not groups:
        raise InvalidFile("has no group", where=place, fix="add a [[group]]")
    return Suite(name, document.get("title", name), document.get("description", ""), tuple(groups))


def _group(entry: Mapping[str, Any], variants: Mapping[str, Variant], number: int) -> Group:
    chosen = entry.get("variants", [""])
    if chosen == "all":
        chosen = list(variants)
    unknown = [label for label in chosen if label and label not in variants]
    if unknown:
        raise SlackSwapError(f"variant {unknown[0]!r} is not defined", where="variants")
    for budget in entry.get("budgets", ()):
        if budget != "unlimited":
            parse_budget(str(budget))
    return Group(
        name=entry.get("name", f"group {number}"),
        profiles=tuple(ProfileSource.of(item) for item in entry["profiles"]),
        hardware=tuple(HardwareSource.of(item) for item in entry.get("hardware", [None])),
        budgets=tuple(map(str, entry.get("budgets", ["0.5"]))),
        planners=tuple(map(_subject, entry.get("planners", ()))),
        bounds=tuple(map(_subject, entry.get("bounds", ()))),
        seeds=tuple(map(int, entry.get("seeds", [0]))),
        repeats=int(entry.get("repeats", 1)),
        variants=tuple(variants.get(label, Variant()) for label in chosen),
        timeout_s=float(entry.get("timeout", 60)),
        alone=bool(entry.get("alone", True)),
    )


def _subject(entry: str | Mapping[str, Any]) -> Entrant:
    if isinstance(entry, str):
        return Entrant(entry)
    _check(entry, _ENTRY_KEYS, "planner")
    return Entrant(
        name=entry["name"],
        parameters=canonical_parameters(entry.get("parameters", {})),
        timeout_s=float(entry["timeout"]) if "timeout" in entry else None,
        expect_s=float(entry.get("expect", 0.5)),
        seeds=tuple(map(int, entry["seeds"])) if "seeds" in entry else None,
    )


def _variant(entry: Mapping[str, Any], place: str) -> Variant:
    _check(entry, _VARIANT_KEYS, f"{place}: variant")
    return Variant(
        entry.get("label", ""), entry.get("prices", {}), entry.get("simplify", {}),
        entry.get("hardware", {}), str(entry.get("budget", "1")),
    )


def _limited(group: Group, timeout_s: float) -> Group:
    def limit(subjects: Iterable[Entrant]) -> tuple[Entrant, ...]:
        return tuple(
            replace(s, timeout_s=None if s.timeout_s is None else min(s.timeout_s, timeout_s))
            for s in subjects
        )

    return replace(
        group, timeout_s=min(group.timeout_s, timeout_s), planners=limit(group.planners),
        bounds=limit(group.bounds),
    )


def _narrow(
    groups: list[Group],
    axis: str,
    wanted: Sequence[str],
    label: Callable[[Any], str],
    make: Callable[[str], Any],
) -> list[Group]:
    if not wanted:
        return groups
    present = {label(value) for group in groups for value in getattr(group, axis)}
    added = tuple(make(value) for value in wanted if value not in present)
    narrowed = []
    for number, group in enumerate(groups):
        kept = tuple(value for value in getattr(group, axis) if label(value) in wanted)
        axes: dict[str, Any] = {axis: kept + (added if number == 0 else ())}
        narrowed.append(replace(group, **axes))
    return narrowed


def _check(document: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    unknown = [key for key in document if key not in known]
    if unknown:
        raise InvalidFile(f"has no key {unknown[0]!r}", where=place,
                          fix=f"use {', '.join(known)}")
