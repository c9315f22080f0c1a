"""What others measured, and plain tables: files of other formats turned into profiles.

`import_profile` finds the format by itself. What a format does not hold is filled in by a stated
assumption, which stands in the profile's provenance. Nothing is unpickled or run.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from slackswap import files
from slackswap.errors import InvalidFile, SlackSwapError, UnknownName
from slackswap.profile import Profile
from slackswap.profiles.importers.aceso import aceso_profile, recognises_aceso
from slackswap.profiles.importers.neusight import neusight_profile, recognises_neusight
from slackswap.profiles.importers.pipedream import pipedream_profile, recognises_pipedream
from slackswap.profiles.importers.reading import read_measurements
from slackswap.profiles.importers.table import recognises_table, table_profile

__all__ = ["FORMATS", "Format", "detect_format", "import_profile"]


@dataclass(frozen=True, slots=True)
class Format:
    """A file format that can be imported.

    Attributes
    ----------
    name : str
        As in ``--format``.
    description : str
        One line for people.
    recognises : callable
        Whether a text is of this format.
    convert : callable
        Turns a text into a profile; takes ``file``, ``name`` and the format's options by name.
    """

    name: str
    description: str
    recognises: Callable[[str], bool]
    convert: Callable[..., Profile]

    @property
    def options(self) -> Mapping[str, Any]:
        """Names of the options with their default values."""
        parameters = inspect.signature(self.convert).parameters.values()
        return {
            parameter.name: parameter.default
            for parameter in parameters
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in ("file", "name")
        }


def _own_profile(text: str, *, file: str, name: str) -> Profile:
    document = files.parse_json(text, where=file)
    try:
        return Profile.from_dict(document)
    except SlackSwapError as error:
        raise type(error)(error.what, where=f"{file}: {error.where}", fix=error.fix) from error


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        format_.name: format_
        for format_ in (
            Format("aceso", "operator table of the Aceso profiler (CSV)", recognises_aceso,
                   aceso_profile),
            Format("neusight", "operator table of NeuSight (CSV), with its measured step (JSON)",
                   recognises_neusight, neusight_profile),
            Format("pipedream", "layer graph of the PipeDream profiler (graph.txt)",
                   recognises_pipedream, pipedream_profile),
            Format("table", "plain table of ops (CSV)", recognises_table, table_profile),
            Format("profile", "this project's own profile (JSON)",
                   lambda text: '"slackswap.profile/' in text[:1000], _own_profile),
        )
    }
)


def import_profile(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # the word users know; the builtin is not needed here
    name: str | None = None,
    **options: Any,
) -> Profile:
    """Read a file of measurements, plain or gzip-compressed, as a profile.

    Parameters
    ----------
    path : path-like
        The file.
    format : str, optional
        One of `FORMATS`; without it the content tells.
    name : str, optional
        Name of the profile; by default that of the file.
    **options
        Options of the format, such as ``layers`` of ``aceso``.

    Returns
    -------
    Profile
        Its provenance names the format, the file and every assumption.

    Raises
    ------
    InvalidFile
        When the file cannot be read, is too large, is of no known format or is malformed: naming
        the line and the reason.
    InvalidProfile
        When what the file describes is not a possible profile.
    UnknownName
        When the format is not known.
    SlackSwapError
        When the format has no such option, or an option has an impossible value.
    """
    file = os.fspath(path)
    if format is not None and format not in FORMATS:
        raise UnknownName(
            f"format {format!r} is not known", where="format", fix=f"use {', '.join(FORMATS)}"
        )
    text = read_measurements(path)
    chosen = FORMATS[format] if format is not None else detect_format(text, file=file)
    unknown = [option for option in options if option not in chosen.options]
    if unknown:
        raise SlackSwapError(
            f"format {chosen.name} has no option {unknown[0]!r}", where=file,
            fix=f"use {', '.join(chosen.options)}" if chosen.options else "leave it out",
        )
    profile = chosen.convert(text, file=file, name=name or _stem(file), **options)
    # A file of our own has a name already.
    return profile.with_name(name) if name and profile.name != name else profile


def detect_format(text: str, *, file: str = "text") -> Format:
    """Return the format of a text.

    Raises
    ------
    InvalidFile
        When it is of no known format.
    """
    for candidate in FORMATS.values():
        if candidate.recognises(text):
            return candidate
    raise InvalidFile(
        "is of no known format", where=file,
        fix="name it with format, or import one of: "
        + "; ".join(f"{known.name}, {known.description}" for known in FORMATS.values()),
    )


def _stem(file: str) -> str:
    base = PurePath(file.replace("\\", "/")).name
    for suffix in (".gz", ".csv", ".txt", ".graph", ".json"):
        base = base.removesuffix(suffix)
    return base or "imported"
