"""Profiles and hardware by name or file: the one place that resolves them.

Analytic profiles are built when asked for; others are shipped as files.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module, resources
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any, cast

from slackswap.errors import InvalidFile, InvalidHardware, SlackSwapError, UnknownName
from slackswap.files import path_text
from slackswap.hardware import Hardware
from slackswap.naming import did_you_mean
from slackswap.profile import SOURCES, Profile, Source
from slackswap.profiles.catalogue import DEFAULT_HARDWARE, find_hardware, hardware_names
from slackswap.profiles.generators.prices import DEFAULT_PRICES, Prices

_SUFFIX = ".json.gz"
#: What a variant of a profile may set.
_SIZES = ("batch", "sequence")
#: Enough of a file, decompressed, to hold its name, source and provenance.
_HEAD_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """What ``slackswap profiles list`` tells of a profile, found without building it.

    Attributes
    ----------
    name : str
        Library name.
    source : str
        ``measured``, ``traced``, ``analytic``, ``imported`` or ``random``.
    hardware : Hardware
        What its times are for, and what it is planned on by default.
    description : str
        One line.
    """

    name: str
    source: Source
    hardware: Hardware
    description: str


@dataclass(frozen=True, slots=True)
class _Recipe:
    """A builder by import string, and what it is called with.

    Calling by string keeps the list cheap: nothing is imported before a profile is asked for.
    """

    builder: str
    model: str
    batch: int
    sequence: int | None
    hardware: str
    description: str
    options: Mapping[str, Any]

    def build(
        self,
        name: str,
        *,
        batch: int | None,
        sequence: int | None,
        hardware: Hardware | None,
        prices: Prices | None,
    ) -> Profile:
        module_name, _, function = self.builder.partition(":")
        module = import_module(module_name)
        sizes: dict[str, int] = {"batch": self.batch if batch is None else batch}
        if self.sequence is not None:
            sizes["sequence"] = self.sequence if sequence is None else sequence
        elif sequence is not None:
            raise SlackSwapError(
                f"{name!r} has no sequence", where="sequence", fix="leave sequence out"
            )
        return cast(
            "Profile",
            getattr(module, function)(
                getattr(module, self.model),
                **sizes,
                **self.options,
                hardware=hardware or _hardware(self.hardware),
                prices=prices or DEFAULT_PRICES,
                name=name,
            ),
        )


def _transformer(
    model: str, batch: int, sequence: int, description: str, **options: Any
) -> _Recipe:
    return _Recipe(
        "slackswap.profiles.generators.transformer:transformer_profile", model, batch, sequence,
        DEFAULT_HARDWARE.name, f"{description}, batch {batch}, sequence {sequence}, bf16",
        MappingProxyType(options),
    )


def _convnet(model: str, batch: int, description: str, **options: Any) -> _Recipe:
    return _Recipe(
        "slackswap.profiles.generators.convnet:convnet_profile", model, batch, None, "titan-x",
        f"{description}, batch {batch}, fp32", MappingProxyType(options),
    )


_RECIPES: Mapping[str, _Recipe] = MappingProxyType(
    {
        "bert-large": _transformer("BERT_LARGE", 32, 512, "BERT-Large with its MLM head"),
        "bert-large-eager": _transformer(
            "BERT_LARGE", 32, 512, "BERT-Large, eager attention", attention="eager"
        ),
        "gpt2-xl": _transformer("GPT2_XL", 8, 1024, "GPT-2 XL"),
        "gpt2-xl-eager": _transformer(
            "GPT2_XL", 8, 1024, "GPT-2 XL, eager attention", attention="eager"
        ),
        "gpt2-xl-as-written": _transformer(
            "GPT2_XL", 8, 1024, "GPT-2 XL, GELU as Hugging Face writes it", fused=False
        ),
        "llama-7b": _transformer("LLAMA_7B", 4, 2048, "Llama-7B"),
        "llama-7b-eager": _transformer(
            "LLAMA_7B", 4, 2048, "Llama-7B, eager attention", attention="eager"
        ),
        "llama-7b-as-written": _transformer(
            "LLAMA_7B", 4, 2048, "Llama-7B, norms as Hugging Face writes them", fused=False
        ),
        "llama3-8b": _transformer("LLAMA3_8B", 2, 4096, "Llama-3-8B, grouped-query attention"),
        "llama3-8b-as-written": _transformer(
            "LLAMA3_8B", 2, 4096, "Llama-3-8B, norms and repeated keys as Hugging Face writes them",
            fused=False,
        ),
        # As vDNN's experiments: cuDNN pooling, without indices. ResNet-50 as PyTorch runs it.
        "vgg16": _convnet("VGG16", 64, "VGG-16"),
        "resnet50": _convnet("RESNET50", 64, "ResNet-50", pool_indices=True),
    }
)


def load_profile(name_or_path: str | os.PathLike[str]) -> Profile:
    """Load a profile from the library or from a JSON file.

    Parameters
    ----------
    name_or_path : str or path-like
        A name of ``slackswap profiles list``, such as ``bert-large``, or a file. A name of the
        library wins over a file of the same name; write ``./name`` for the file.

    Raises
    ------
    UnknownName
        When it is neither a library name nor a file.
    InvalidFile, InvalidProfile
        When the file is not a valid profile.
    """
    return resolve_profile(name_or_path)


def load_hardware(name_or_path: str | os.PathLike[str]) -> Hardware:
    """Load a hardware from the catalogue or from a JSON file; errors as in `load_profile`."""
    name = path_text(name_or_path)
    hardware = find_hardware(name)
    if hardware is None and not os.path.exists(name):
        raise _unknown("hardware", name, hardware_names())
    return Hardware.load(name_or_path) if hardware is None else hardware


def resolve_profile(
    name_or_path: str | os.PathLike[str],
    hardware: Hardware | None = None,
    *,
    batch: int | None = None,
    sequence: int | None = None,
    prices: Prices | None = None,
) -> Profile:
    """Return a profile of the library, or of a file, as it is planned on a hardware.

    The command line and the suites both resolve here, so that they mean the same problem.

    Parameters
    ----------
    name_or_path : str or path-like
        As `load_profile` takes it.
    hardware : Hardware, optional
        An analytic profile is priced for it, if it states its rates; other profiles are not
        changed by it.
    batch, sequence, prices : optional
        Replace those of an analytic profile.

    Raises
    ------
    UnknownName
        When it is neither a library name nor a file.
    SlackSwapError
        When a file, or a shipped profile, is asked for other sizes or prices than it has.
    """
    name = path_text(name_or_path)
    if "@" in name and not os.path.exists(name):
        name, sizes = split_variant(name)
        for key, value in {"batch": batch, "sequence": sequence}.items():
            if value is not None and sizes.setdefault(key, value) != value:
                raise SlackSwapError(
                    f"{key} is {sizes[key]} in the name and {value} beside it",
                    where=path_text(name_or_path), fix="say it once",
                )
        return resolve_profile(name, hardware, prices=prices, **sizes)
    if name in _RECIPES:
        has_rates = hardware is not None and None not in (
            hardware.flops_per_s, hardware.memory_bytes_per_s
        )
        priced_for = hardware if has_rates else None
        found = find_profile(
            name, batch=batch, sequence=sequence, hardware=priced_for, prices=prices
        )
    else:
        found = find_profile(name, batch=batch, sequence=sequence, prices=prices)
    if found is not None:
        return found
    if not os.path.exists(name_or_path):
        raise _unknown("profile", name, profile_names())
    given = {"batch": batch, "sequence": sequence, "prices": prices}
    changed = [key for key, value in given.items() if value is not None]
    if changed:
        raise SlackSwapError(
            f"{changed[0]} cannot be changed in a file", where=name,
            fix="leave it out, or name an analytic profile of the library",
        )
    return Profile.load(name_or_path)


def split_variant(name: str) -> tuple[str, dict[str, int]]:
    """Read a profile's name with sizes, such as ``llama-7b@batch=4,sequence=8192``.

    Parameters
    ----------
    name : str
        A name, and after an ``@`` what is otherwise than by default. Without one, a name only.

    Returns
    -------
    tuple of (str, dict of str to int)
        The name, and the sizes.

    Raises
    ------
    SlackSwapError
        For a size that profiles do not have, one given twice, and one that is no positive integer.
    """
    base, at, variant = name.partition("@")
    sizes: dict[str, int] = {}
    for part in variant.split(",") if at else ():
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in _SIZES:
            raise SlackSwapError(
                f"{key!r} is not a size of a profile{did_you_mean(key, _SIZES)}", where=name,
                fix=f"write for instance {base}@batch=4,sequence=8192",
            )
        if key in sizes:
            raise SlackSwapError(f"{key} is given twice", where=name, fix="say it once")
        if not (value.isascii() and value.isdecimal() and int(value)):
            raise SlackSwapError(
                f"{key}={value} is not a positive integer", where=name,
                fix=f"write for instance {base}@{key}=4",
            )
        sizes[key] = int(value)
    return base, sizes


def hardware_of(profile: Profile) -> Hardware:
    """Return the hardware that a profile's times are for, and that it is planned on by default.

    A capture on a GPU notes the link it measured; otherwise the catalogue may know the name in
    the provenance. Without either it is the catalogue's default. (Provenance is free-form, so a
    ``link`` of another shape is not ours to refuse.)
    """
    link = profile.provenance.get("link")
    if isinstance(link, Mapping) and isinstance(link.get("hardware"), Mapping):
        with contextlib.suppress(InvalidHardware):
            return Hardware.from_dict(link["hardware"])
    named = profile.provenance.get("hardware")
    return _hardware(named) if isinstance(named, str) else DEFAULT_HARDWARE


def find_profile(
    name: str,
    *,
    batch: int | None = None,
    sequence: int | None = None,
    hardware: Hardware | None = None,
    prices: Prices | None = None,
) -> Profile | None:
    """Return the library profile of this name, or None.

    Parameters
    ----------
    name : str
        One of `profile_names`.
    batch, sequence : int, optional
        Replace the sizes of an analytic profile.
    hardware : Hardware, optional
        Price an analytic profile for this device.
    prices : Prices, optional
        Price an analytic profile with these rates.

    Raises
    ------
    SlackSwapError
        When a shipped file is asked for other sizes, hardware or prices than it has, or a size is
        not possible.
    """
    recipe = _RECIPES.get(name)
    if recipe is not None:
        return recipe.build(
            name, batch=batch, sequence=sequence, hardware=hardware, prices=prices
        )
    shipped = _shipped().get(name)
    if shipped is None:
        return None
    given = {"batch": batch, "sequence": sequence, "hardware": hardware, "prices": prices}
    changed = [key for key, value in given.items() if value is not None]
    if changed:
        raise SlackSwapError(
            f"{name!r} is a file whose {changed[0]} cannot be changed", where=changed[0],
            fix=f"leave it out, or use an analytic profile: {', '.join(_RECIPES)}",
        )
    with resources.as_file(shipped) as path:
        return Profile.load(path)


def profile_names() -> tuple[str, ...]:
    """Return the names of the library, analytic ones first."""
    return (*_RECIPES, *(name for name in _shipped() if name not in _RECIPES))


def profile_hardware(name: str) -> Hardware:
    """Return the hardware a library profile is priced or measured for.

    For a shipped file it is the one its provenance names under ``hardware``, when the catalogue
    knows it, else the default.

    Raises
    ------
    UnknownName
        When the library has no such profile.
    """
    return library_entry(name).hardware


def library_entry(name: str) -> LibraryEntry:
    """Return what the list tells of one profile.

    Raises
    ------
    UnknownName
        When the library has no such profile.
    """
    recipe = _RECIPES.get(name)
    if recipe is not None:
        return LibraryEntry(name, "analytic", _hardware(recipe.hardware), recipe.description)
    shipped = _shipped().get(name)
    if shipped is None:
        raise UnknownName(
            f"{name!r} is not in the library{did_you_mean(name, profile_names())}",
            where="profile",
            fix=f"use one of {', '.join(profile_names())}",
        )
    return _entry_of_file(name, shipped)


def library_entries() -> tuple[LibraryEntry, ...]:
    """Return what the list tells of every profile, in the order of `profile_names`."""
    return tuple(library_entry(name) for name in profile_names())


def _hardware(name: str) -> Hardware:
    return find_hardware(name) or DEFAULT_HARDWARE


def _unknown(kind: str, name: str, known: tuple[str, ...]) -> UnknownName:
    return UnknownName(
        f"{name!r} is neither a library name nor a file{did_you_mean(name, known)}",
        where=kind,
        fix=f"use one of {', '.join(known)}, or the path of a file",
    )


def _shipped() -> dict[str, Traversable]:
    folder = resources.files("slackswap.profiles.data")
    files = {
        item.name.removesuffix(_SUFFIX): item
        for item in folder.iterdir()
        if item.name.endswith(_SUFFIX)
    }
    return dict(sorted(files.items()))


def _entry_of_file(name: str, file: Traversable) -> LibraryEntry:
    """Read the head of a file: `Profile.save` puts source and provenance before the data."""
    with file.open("rb") as stream, gzip.GzipFile(fileobj=stream) as text:
        head = text.read(_HEAD_BYTES).decode("utf-8", errors="replace")
    source = re.search(r'"source"\s*:\s*"(\w+)"', head)
    start = re.search(r'"provenance"\s*:\s*', head)
    if source is None or start is None or source[1] not in SOURCES:
        raise InvalidFile(
            "does not begin as a saved profile does", where=name + _SUFFIX,
            fix="write it with Profile.save",
        )
    provenance, _ = json.JSONDecoder().raw_decode(head, start.end())
    hardware = provenance.get("hardware")
    return LibraryEntry(
        name,
        cast("Source", source[1]),
        _hardware(hardware if isinstance(hardware, str) else DEFAULT_HARDWARE.name),
        _description(provenance),
    )


def _description(provenance: Mapping[str, Any]) -> str:
    text = provenance.get("description")
    if isinstance(text, str):
        return text
    parts = [str(provenance["model"])] if "model" in provenance else []
    parts += [
        f"{key} {provenance[key]}"
        for key in ("batch", "sequence")
        if isinstance(provenance.get(key), int)
    ]
    parts += [str(provenance["dtype"])] if "dtype" in provenance else []
    return ", ".join(parts)
