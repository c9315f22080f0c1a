"""Where the profile and the hardware of a cell come from, written as plain JSON.

Cells cross process boundaries and are stored, so they hold recipes, not profiles. A recipe is
canonical JSON text: hashable, comparable, and the same on every machine.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any

from slackswap import files
from slackswap.errors import SlackSwapError, UnknownName
from slackswap.hardware import Hardware
from slackswap.profile import Profile
from slackswap.profiles.catalogue import DEFAULT_HARDWARE
from slackswap.profiles.generators.prices import Prices
from slackswap.profiles.generators.random_dag import (
    Traits,
    deep_chain_profile,
    layered_profile,
    random_profile,
)
from slackswap.profiles.library import (
    hardware_of,
    library_entry,
    load_hardware,
    profile_hardware,
    profile_names,
    resolve_profile,
    split_variant,
)
from slackswap.profiles.simplified import simplified_profile
from slackswap.quantities import format_bytes, format_ns

#: Profiles kept by a process, so that the many cells of one profile build it once.
_KEPT = 64

_HARDWARE_FIELDS = tuple(spec.name for spec in fields(Hardware) if spec.name != "name")


def _in_words(field: str, value: Any) -> str:
    """Return what a changed field of a hardware adds to its name."""
    if field == "full_duplex":
        return "full duplex" if value else "half duplex"
    label = field.partition("_bytes")[0].removesuffix("_per_s").removesuffix("_ns")
    if field.endswith("_bytes_per_s"):
        return f"{label} {value / 1e9:g} GB/s"
    if field.endswith("_ns"):
        return f"{label} {format_ns(value)}"
    if field.endswith("_bytes"):
        return f"{label} {'unlimited' if value is None else format_bytes(value)}"
    return f"{label} {value:g}"


@dataclass(frozen=True, slots=True)
class HardwareSource:
    """A hardware as a recipe.

    Attributes
    ----------
    recipe : str
        Canonical JSON object: ``name`` (catalogue name or file; absent: the one the profile is
        priced for), ``link`` (factor on both directions), and any field of `Hardware` to replace,
        such as ``full_duplex`` or ``d2h_bytes_per_s``.
    """

    recipe: str = "{}"

    @classmethod
    def of(cls, document: str | Mapping[str, Any] | None) -> HardwareSource:
        """Make one from a name or a recipe; None or ``default`` is the profile's own.

        Raises
        ------
        SlackSwapError
            For a key that no recipe has.
        """
        if document is None or document == "default":
            return cls()
        if isinstance(document, str):
            document = {"name": document}
        _check_keys(document, ("name", "link", *_HARDWARE_FIELDS), "hardware")
        return cls(_canonical(document))

    @property
    def options(self) -> dict[str, Any]:
        """The recipe as an object."""
        return dict(json.loads(self.recipe))

    def base(self, default: Hardware) -> Hardware:
        """Return the named hardware before any change: what profiles are priced for."""
        name = self.options.get("name")
        return default if name is None else load_hardware(name)

    def build(self, default: Hardware) -> Hardware:
        """Return the hardware; `default` is the one the profile is priced for."""
        options = self.options
        hardware = self.base(default)
        if "link" in options:
            hardware = hardware.with_link(float(options["link"]))
        changes = {key: options[key] for key in _HARDWARE_FIELDS if key in options}
        if not changes:
            return hardware
        words = [hardware.name, *(_in_words(key, value) for key, value in changes.items())]
        return replace(hardware, **changes, name=" ".join(words))

    def changed(self, changes: Mapping[str, Any]) -> HardwareSource:
        """Return a copy with some keys of the recipe replaced."""
        return HardwareSource.of({**self.options, **changes})


@dataclass(frozen=True, slots=True)
class ProfileSource:
    """A profile as a recipe.

    Attributes
    ----------
    recipe : str
        Canonical JSON object. ``library`` (a name; with ``batch``, ``sequence``, ``prices`` for
        analytic ones, and ``simplify``: parameters of `simplified_profile`), or ``file``, or
        ``generate`` (``random``, ``layered`` or ``deep-chain``, with the generator's parameters,
        ``seed`` and ``traits``); and ``label``, what reports call it.
    """

    recipe: str

    @classmethod
    def of(cls, document: str | Mapping[str, Any]) -> ProfileSource:
        """Make one from a library name, a file, or a recipe.

        Raises
        ------
        SlackSwapError
            For a key that no recipe has.
        """
        if isinstance(document, str):
            document = _named(document)
        kinds = [kind for kind in _KEYS if kind in document]
        if len(kinds) != 1:
            raise SlackSwapError(
                f"{dict(document)} does not say where the profile comes from", where="profile",
                fix=f"give one of {', '.join(_KEYS)}",
            )
        _check_keys(document, (kinds[0], "label", *_KEYS[kinds[0]]), "profile")
        return cls(_canonical(document))

    @property
    def options(self) -> dict[str, Any]:
        """The recipe as an object."""
        return dict(json.loads(self.recipe))

    @property
    def label(self) -> str:
        """What reports call it."""
        options = self.options
        if "label" in options:
            return str(options["label"])
        if "library" in options:
            return str(options["library"])
        if "file" in options:
            return os.path.basename(str(options["file"])).removesuffix(".gz").removesuffix(".json")
        return f"{options['generate']}-{options.get('seed', options.get('n', 0))}"

    @property
    def priced(self) -> bool:
        """Whether prices and hardware can be chosen: an analytic profile of the library."""
        options = self.options
        return "library" in options and library_entry(options["library"]).source == "analytic"

    def changed(self, changes: Mapping[str, Any]) -> ProfileSource:
        """Return a copy with some keys of the recipe replaced."""
        return ProfileSource.of({**self.options, **changes})


def _named(text: str) -> Mapping[str, Any]:
    """Return the recipe of a library name, of a variant of one, or of a file."""
    if text in profile_names():
        return {"library": text}
    if "@" in text and not os.path.exists(text):
        name, sizes = split_variant(text)
        return {"library": name, "label": text, **sizes}
    return {"file": text}


_KEYS: Mapping[str, tuple[str, ...]] = {
    "library": ("batch", "sequence", "prices", "simplify"),
    "file": (),
    "generate": (
        "seed", "n_forward", "ops_per_layer", "n", "saved_every", "traits",
    ),
}


@lru_cache(maxsize=_KEPT)
def build_profile(profile: ProfileSource, hardware: HardwareSource) -> Profile:
    """Build a profile; an analytic one is priced for the hardware that is named.

    Raises
    ------
    SlackSwapError
        When it cannot be had.
    """
    options = profile.options
    if "generate" in options:
        return _generate(options, profile.label)
    given: dict[str, Any] = {key: options[key] for key in ("batch", "sequence") if key in options}
    if "prices" in options:
        given["prices"] = Prices(**_known(Prices, options["prices"], "prices"))
    named = "name" in hardware.options
    priced_for = hardware.base(DEFAULT_HARDWARE) if named else None
    built = resolve_profile(options.get("library") or options["file"], priced_for, **given)
    simpler = options.get("simplify", {})
    _check_keys(simpler, ("backward", "workspaces"), "simplify")
    return simplified_profile(built, **simpler)


@lru_cache(maxsize=_KEPT)
def build_hardware(profile: ProfileSource, hardware: HardwareSource) -> Hardware:
    """Return the hardware that a profile is planned on."""
    return hardware.build(default_hardware(profile))


def default_hardware(profile: ProfileSource) -> Hardware:
    """Return the hardware a profile is priced or measured for; else the catalogue's default."""
    options = profile.options
    if "library" in options:
        return profile_hardware(options["library"])
    if "file" in options:
        return hardware_of(resolve_profile(options["file"]))
    return DEFAULT_HARDWARE


def _generate(options: Mapping[str, Any], label: str) -> Profile:
    generator = options["generate"]
    rng = random.Random(int(options.get("seed", 0)))
    if generator == "random":
        traits = Traits(**_known(Traits, options.get("traits", {}), "traits"))
        return random_profile(rng, int(options.get("n_forward", 8)), traits=traits, name=label)
    if generator == "layered":
        return layered_profile(
            int(options.get("n_forward", 100)), rng,
            ops_per_layer=int(options.get("ops_per_layer", 10)), name=label,
        )
    if generator == "deep-chain":
        return deep_chain_profile(
            int(options.get("n", 64)), saved_every=options.get("saved_every"), name=label
        )
    raise UnknownName(f"{generator!r} is not a generator", where="profile",
                      fix="use random, layered or deep-chain")


def _known(kind: Any, options: Mapping[str, Any], where: str) -> dict[str, Any]:
    _check_keys(options, tuple(asdict(kind())), where)
    return dict(options)


def _check_keys(document: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = [key for key in document if key not in known]
    if unknown:
        raise SlackSwapError(
            f"has no key {unknown[0]!r}", where=where, fix=f"use {', '.join(known)}"
        )


def _canonical(document: Mapping[str, Any]) -> str:
    return files.canonical_json(dict(document)).decode()
