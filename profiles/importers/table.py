"""Profiles from a plain table: for people with numbers of their own.

One row a forward op, in execution order, in a data frame or a CSV file:

=====================  ===========================================================================
column                 meaning
=====================  ===========================================================================
``name``               of the op
``forward_ns``         its duration; or ``forward_us``, ``forward_ms``
``reads``              tensors it reads, separated by blanks
``writes``             tensors it writes
``saved``              optional: tensors its backward op needs
``backward_ns``        optional: duration of its backward op; or ``backward_us``, ``backward_ms``.
                       An op without one has no backward op
``layer``, ``kind``    optional, as in the profile
``workspace``          optional: scratch bytes of the forward op
``backward_workspace`` optional: activation gradients and scratch of the backward op, in bytes
``carried``            optional: the part of it alive on entry
``recomputable``       optional: whether the op may run again; yes unless ``false``, ``no`` or ``0``
=====================  ===========================================================================

A tensor is written ``name:bytes`` where it first stands, later ``name`` or the same again; sizes
may also be given apart. The backward ops run in reverse. Where that is not so, give them in a table
of their own: ``name``, ``duration_ns`` (or ``_us``, ``_ms``), ``reads``, and optionally ``layer``,
``kind``, ``workspace``, ``carried``; the first table then has no columns for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slackswap.errors import InvalidFile, InvalidProfile
from slackswap.profile import Profile, Source
from slackswap.profiles.importers.builder import ProfileBuilder
from slackswap.profiles.importers.reading import Place, excerpt
from slackswap.profiles.importers.table_rows import (
    UNITS,
    TableRow,
    TableRows,
    rows_of_csv,
    rows_of_frame,
)

if TYPE_CHECKING:
    import pandas as pd

_FORWARD = ("name", "reads", "writes", "layer", "kind", "workspace", "recomputable")
_PAIRED = ("saved", "backward_workspace", "carried")
_BACKWARD = ("name", "reads", "layer", "kind", "workspace", "carried")
_TENSORS = ("name", "nbytes", "allowed")


def from_frame(
    forward: pd.DataFrame,
    backward: pd.DataFrame | None = None,
    tensors: pd.DataFrame | Mapping[str, int] | None = None,
    *,
    name: str = "table",
    source: Source = "imported",
    provenance: Mapping[str, Any] | None = None,
    static_bytes: int = 0,
) -> Profile:
    """Build a profile from data frames.

    Parameters
    ----------
    forward : pandas.DataFrame
        One row a forward op; see the module's documentation for the columns. A missing value is
        an empty cell; lists of tensors may be lists.
    backward : pandas.DataFrame, optional
        One row a backward op, in execution order. Without it the rows of `forward` with a
        duration for it make the backward ops, in reverse.
    tensors : pandas.DataFrame or mapping of str to int, optional
        Sizes of tensors in bytes, by name: columns ``name``, ``nbytes`` and optionally
        ``allowed``, actions separated by blanks. Not needed for tensors written ``name:bytes``.
    name, source, provenance, static_bytes
        As in `slackswap.Profile`.

    Returns
    -------
    Profile
        The profile.

    Raises
    ------
    InvalidProfile
        Naming the row and what would fix it.

    Examples
    --------
    >>> import pandas as pd
    >>> ops = pd.DataFrame({
    ...     "name": ["fc1", "fc2"], "forward_us": [5, 5], "backward_us": [10, 10],
    ...     "reads": ["x:8", "h"], "writes": ["h:16", "y:8"], "saved": ["x", "h"],
    ... })
    >>> [op.name for op in from_frame(ops).backward]
    ['fc2.bwd', 'fc1.bwd']
    """
    table = _Table(
        rows_of_frame(forward, "forward"),
        None if backward is None else rows_of_frame(backward, "backward"),
        _sizes_of(tensors),
    )
    return table.build().profile(
        name,
        source=source,
        provenance={"format": "table"} if provenance is None else provenance,
        static_bytes=static_bytes,
    )


def recognises_table(text: str) -> bool:
    """Whether a text begins as a plain table does."""
    header = {cell.strip() for cell in text.lstrip().partition("\n")[0].split(",")}
    return {"name", "writes"} <= header and any(f"forward_{unit}" in header for unit in UNITS)


def table_profile(
    text: str, *, file: str, name: str, source: Source = "imported", static_bytes: int = 0
) -> Profile:
    """Turn a CSV file of forward ops into a profile; columns as in the module's documentation.

    Raises
    ------
    InvalidFile, InvalidProfile
        Naming the line and what would fix it.
    """
    rows = rows_of_csv(text, file)
    builder = _Table(rows, None, {}).build()
    if not rows.rows:
        Place(file, 1).fail("the table has a header and no ops", "write one line for each op")
    return builder.profile(
        name,
        source=source,
        provenance={
            "format": "table",
            "file": file.replace("\\", "/").rpartition("/")[2],
            "description": f"{len(rows.rows)} ops of a table",
        },
        static_bytes=static_bytes,
    )


@dataclass(frozen=True, slots=True)
class _Size:
    nbytes: int
    allowed: Sequence[str] | None = None


class _Table:
    """Tables on their way to a profile."""

    def __init__(
        self, forward: TableRows, backward: TableRows | None, sizes: Mapping[str, _Size]
    ) -> None:
        self._forward = forward
        self._backward = backward
        self._sizes = sizes
        self._nbytes: dict[str, int] = {}
        self._builder = ProfileBuilder()

    def build(self) -> ProfileBuilder:
        """Append every op and return the builder."""
        rows = self._forward
        error = InvalidFile if isinstance(rows.place, Place) else InvalidProfile
        paired = () if self._backward else (*_PAIRED, *(f"backward_{unit}" for unit in UNITS))
        rows.check((*_FORWARD, *(f"forward_{unit}" for unit in UNITS), *paired), error)
        forward_column = rows.duration_column("forward", error)
        for row in rows.rows:
            self._builder.forward(
                row.op_name(),
                self._needed(row, forward_column),
                reads=self._tensors(row, "reads"),
                writes=self._tensors(row, "writes"),
                workspace=row.count("workspace") or 0,
                layer=row.count("layer"),
                kind=row.text("kind"),
                recomputable=row.flag("recomputable"),
            )
        if self._backward is None:
            self._append_paired(rows, rows.duration_column("backward", error, needed=False))
        else:
            self._append_backward(self._backward)
        unused = next((name for name in self._sizes if name not in self._nbytes), None)
        if unused is not None:
            raise InvalidProfile(
                f"tensor {excerpt(unused)} is in no op", where="tensors",
                fix="remove it, or name it in an op",
            )
        return self._builder

    def _append_paired(self, rows: TableRows, column: str | None) -> None:
        for row in reversed(rows.rows):
            duration = row.duration(column)
            if duration is None:
                for name in _PAIRED:
                    if name in row.cells:
                        row.fail(
                            f"{name} is given, but no backward duration",
                            "give backward_ns, backward_us or backward_ms, 0 if need be",
                        )
                continue
            self._builder.backward(
                f"{row.op_name()}.bwd",
                duration,
                reads=self._tensors(row, "saved"),
                workspace=_workspace(row, "backward_workspace"),
                carried=row.count("carried") or 0,
                layer=row.count("layer"),
                kind=row.text("kind"),
            )

    def _append_backward(self, rows: TableRows) -> None:
        durations = tuple(f"duration_{unit}" for unit in UNITS)
        rows.check((*_BACKWARD, *durations), InvalidProfile)
        column = rows.duration_column("duration", InvalidProfile)
        for row in rows.rows:
            self._builder.backward(
                row.op_name(),
                self._needed(row, column),
                reads=self._tensors(row, "reads"),
                workspace=_workspace(row, "workspace"),
                carried=row.count("carried") or 0,
                layer=row.count("layer"),
                kind=row.text("kind"),
            )

    def _needed(self, row: TableRow, column: str | None) -> int:
        duration = row.duration(column)
        if duration is None:
            row.fail(f"{column} is empty", "write the op's duration")
        return duration

    def _tensors(self, row: TableRow, column: str) -> list[str]:
        """Return the tensors of a cell by name, declaring those that are new."""
        names = []
        for item in row.items(column):
            stem, colon, digits = item.rpartition(":")
            inline = bool(colon and stem) and digits.isascii() and digits.isdigit()
            name = stem if inline else item
            self._declare(row, column, name, digits if inline else None)
            names.append(name)
        return names

    def _declare(self, row: TableRow, column: str, name: str, digits: str | None) -> None:
        known = self._sizes.get(name)
        nbytes = known.nbytes if known else self._nbytes.get(name)
        if digits is not None:
            if len(digits) > 18:
                row.fail(f"{column}: {excerpt(name)} is too large", "write its bytes")
            if nbytes not in (None, int(digits)):
                row.fail(
                    f"{column}: {excerpt(name)} has {digits} bytes here and {nbytes} elsewhere",
                    "write its size once",
                )
            nbytes = int(digits)
        if nbytes is None:
            row.fail(
                f"{column}: {excerpt(name)} has no size",
                "write name:bytes where it first stands, or give its size apart",
            )
        if name not in self._nbytes:
            self._nbytes[name] = nbytes
            if known is None or known.allowed is None:
                self._builder.tensor(name, nbytes)
            else:
                self._builder.tensor(name, nbytes, known.allowed)


def _workspace(row: TableRow, column: str) -> int:
    given = row.count(column)
    return (row.count("carried") or 0) if given is None else given


def _sizes_of(tensors: pd.DataFrame | Mapping[str, int] | None) -> dict[str, _Size]:
    if tensors is None:
        return {}
    if isinstance(tensors, Mapping):
        return {name: _Size(nbytes) for name, nbytes in tensors.items()}
    rows = rows_of_frame(tensors, "tensors")
    rows.check(_TENSORS, InvalidProfile)
    sizes: dict[str, _Size] = {}
    for row in rows.rows:
        name, nbytes = row.text("name"), row.count("nbytes")
        if not name or nbytes is None:
            row.fail("a tensor needs a name and its bytes", "fill in name and nbytes")
        if name in sizes:
            row.fail(f"tensor {excerpt(name)} stands there twice", "keep one of the two")
        allowed = row.items("allowed") if "allowed" in row.cells else None
        sizes[name] = _Size(nbytes, allowed)
    return sizes
