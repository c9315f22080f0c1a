"""A cell of a suite: one thing to measure, described so that it can be hashed and shipped."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from math import floor
from typing import Any

from slackswap import files
from slackswap.bound import BoundMethod
from slackswap.cost_model import COST_MODEL_VERSION
from slackswap.errors import SlackSwapError, UnknownName
from slackswap.evaluation.run.code_identity import code_digest
from slackswap.evaluation.run.isolated import Description, describe
from slackswap.evaluation.run.sources import (
    HardwareSource,
    ProfileSource,
    build_hardware,
    build_profile,
)
from slackswap.problem import Problem
from slackswap.quantities import parse_budget

#: Share of a cell's limit that its planner is told, so that one which can stop has time to answer.
PLANNER_SHARE = 0.8

_OWN_HARDWARE = HardwareSource()


class CellKind(StrEnum):
    """What a cell measures."""

    PLAN = "plan"
    BOUND = "bound"
    FACTS = "facts"


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: a planner, a lower bound, or facts of a profile, on one problem.

    Attributes
    ----------
    kind : CellKind
        What is measured.
    subject : str
        Planner (a name, ``module:Name`` or ``file.py:Name``), bound method, or ``facts``.
    profile, hardware : ProfileSource, HardwareSource
        Recipes.
    budget : str
        As `slackswap.quantities.parse_budget` reads it; ``unlimited`` is no limit.
    parameters : str
        Canonical JSON of the planner's or the bound's parameters.
    seed, repeat : int
        Seed of the planner's randomness; number of the repetition.
    timeout_s : float
        The cell is killed after this time.
    budget_factor : str
        Factor on the budget, as a decimal: a variant's allocator slack.
    variant : str
        What differs from the plain case, for people; empty for the plain case.
    alone : bool
        Whether its planning time counts, so that nothing else may run beside it.
    """

    kind: CellKind
    subject: str
    profile: ProfileSource
    hardware: HardwareSource = _OWN_HARDWARE
    budget: str = "unlimited"
    parameters: str = "{}"
    seed: int = 0
    repeat: int = 0
    timeout_s: float = 60.0
    budget_factor: str = "1"
    variant: str = ""
    alone: bool = True

    @property
    def options(self) -> dict[str, Any]:
        """Parameters as an object."""
        return dict(json.loads(self.parameters))

    @property
    def subject_label(self) -> str:
        """The planner or bound for people: of a file only its name, not its folder."""
        return os.path.basename(self.subject) if ".py:" in self.subject else self.subject

    @property
    def label(self) -> str:
        """One line for progress and error messages."""
        parts = [self.subject_label, "on", self.profile.label, "at", self.budget]
        if self.kind is CellKind.BOUND:
            parts.insert(1, "bound")
        if self.kind is CellKind.FACTS:
            parts = ["facts of", self.profile.label]
        if self.variant:
            parts.append(f"({self.variant})")
        if self.seed:
            parts.append(f"seed {self.seed}")
        if self.repeat:
            parts.append(f"repeat {self.repeat}")
        return " ".join(parts)

    @property
    def time_limit_s(self) -> float:
        """What the planner or the bound is told of its limit."""
        return PLANNER_SHARE * self.timeout_s

    def problem(self) -> Problem:
        """Build the problem.

        Raises
        ------
        SlackSwapError
            When profile, hardware or budget cannot be had.
        """
        profile = build_profile(self.profile, self.hardware)
        hardware = build_hardware(self.profile, self.hardware)
        unlimited = Problem(profile, hardware)
        if self.budget == "unlimited":
            return unlimited
        amount = parse_budget(self.budget)
        if isinstance(amount, Fraction):
            amount *= unlimited.keep_all_peak_bytes
        return unlimited.with_budget(max(1, floor(amount * Fraction(self.budget_factor))))

    def to_dict(self) -> dict[str, Any]:
        """Return the cell as a JSON object."""
        return {
            "kind": str(self.kind),
            "subject": self.subject,
            "profile": self.profile.options,
            "profile_label": self.profile.label,
            "hardware": self.hardware.options,
            "budget": self.budget,
            "budget_factor": self.budget_factor,
            "parameters": self.options,
            "seed": self.seed,
            "repeat": self.repeat,
            "timeout_s": self.timeout_s,
            "variant": self.variant,
            "alone": self.alone,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Cell:
        """Return the cell of a JSON object written by `to_dict`."""
        return cls(
            kind=CellKind(document["kind"]),
            subject=document["subject"],
            profile=ProfileSource.of(document["profile"]),
            hardware=HardwareSource.of(document["hardware"]),
            budget=document["budget"],
            budget_factor=document["budget_factor"],
            parameters=canonical_parameters(document["parameters"]),
            seed=document["seed"],
            repeat=document["repeat"],
            timeout_s=document["timeout_s"],
            variant=document["variant"],
            alone=document["alone"],
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """What the name of a cell's result is made of: everything that may change the result.

    Attributes
    ----------
    key : str
        Hexadecimal digits; the file name of the result.
    document : mapping
        What was hashed.
    problem_key : str
        The same for the problem alone; empty when it cannot be built.
    """

    key: str
    document: Mapping[str, Any]
    problem_key: str


def identify(cell: Cell) -> Identity:
    """Return a cell's identity.

    A problem or planner that cannot be had gives an identity too, made of its description: the
    cell then runs, and its result says why.
    """
    problem = _problem_identity(cell.profile, cell.hardware, cell.budget, cell.budget_factor)
    document = {
        "cost_model": COST_MODEL_VERSION,
        "kind": str(cell.kind),
        "subject": cell.subject,
        "problem": problem,
        "parameters": cell.options,
        "seed": cell.seed,
        "repeat": cell.repeat,
        **_subject_identity(cell.kind, cell.subject, cell.parameters),
    }
    if cell.kind is not CellKind.FACTS:
        document["time_limit_s"] = cell.time_limit_s
    return Identity(
        key=_digest(document),
        document=document,
        problem_key=_digest(problem) if "profile_sha256" in problem else "",
    )


def check_names(cell: Cell) -> None:
    """Check that all that a cell names can be had, before anything runs.

    Raises
    ------
    SlackSwapError
        Naming what cannot, with what may have been meant.
    """
    cell.problem()
    if cell.kind is CellKind.PLAN:
        _described(cell.subject, cell.parameters)
    if cell.kind is CellKind.BOUND and cell.subject not in tuple(BoundMethod):
        raise UnknownName(
            f"no bound is called {cell.subject!r}", where="bounds",
            fix=f"use {', '.join(BoundMethod)}",
        )


def canonical_parameters(parameters: Mapping[str, Any]) -> str:
    """Return parameters as canonical JSON text."""
    return files.canonical_json(dict(parameters)).decode()


@lru_cache(maxsize=4096)
def _problem_identity(
    profile: ProfileSource, hardware: HardwareSource, budget: str, factor: str
) -> dict[str, Any]:
    cell = Cell(CellKind.FACTS, "facts", profile, hardware, budget, budget_factor=factor)
    try:
        problem = cell.problem()
    except SlackSwapError:
        return {"profile": profile.options, "hardware": hardware.options, "budget": budget}
    device = problem.hardware.to_dict()
    del device["name"], device["schema"]
    return {
        "profile_sha256": problem.profile.sha256,
        "hardware": device,
        "budget_bytes": problem.budget_bytes,
    }


@lru_cache(maxsize=4096)
def _subject_identity(kind: CellKind, subject: str, parameters: str) -> dict[str, Any]:
    """Version, all parameters and source of what is measured."""
    if kind is CellKind.FACTS:
        return {"version": "1"}
    if kind is CellKind.BOUND:
        return {"version": code_digest("slackswap.search.bounds")}
    try:
        found = _described(subject, parameters)
    except SlackSwapError as error:
        return {"version": f"unavailable: {error.what}"}
    return {
        "version": found.version,
        "all_parameters": found.parameters,
        # An edit without a new version must not be answered by an old result.
        "source": found.source,
    }


@lru_cache(maxsize=4096)
def _described(subject: str, parameters: str) -> Description:
    return describe(subject, **json.loads(parameters))


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(files.canonical_json(document)).hexdigest()[:32]
