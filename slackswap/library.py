"""Profiles and hardware by library name or by file."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from slackswap.errors import UnknownName
from slackswap.hardware import Hardware
from slackswap.profile import Profile


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
    profile = _room("library").find_profile(os.fspath(name_or_path))
    if profile is None and not os.path.exists(name_or_path):
        raise _unknown("profile", os.fspath(name_or_path), _room("library").profile_names())
    return Profile.load(name_or_path) if profile is None else profile


def load_hardware(name_or_path: str | os.PathLike[str]) -> Hardware:
    """Load a hardware from the catalogue or from a JSON file; errors as in `load_profile`."""
    hardware = _room("catalogue").find_hardware(os.fspath(name_or_path))
    if hardware is None and not os.path.exists(name_or_path):
        raise _unknown("hardware", os.fspath(name_or_path), _room("catalogue").hardware_names())
    return Hardware.load(name_or_path) if hardware is None else hardware


def _room(module: str) -> Any:
    # By name and late: this floor stands below `slackswap.profiles`.
    return import_module(f"slackswap.profiles.{module}")


def _unknown(kind: str, name: str, known: tuple[str, ...]) -> UnknownName:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return UnknownName(
        f"{name!r} is neither a library name nor a file"
        + (f" (did you mean {near[0]!r}?)" if near else ""),
        where=kind,
        fix=f"use one of {', '.join(known)}, or the path of a file",
    )
