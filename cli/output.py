"""What commands print: tables and lines for people, one JSON object for programs."""

from __future__ import annotations

import json
import math
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: Width of tables where output is not a terminal, and the most they take on one.
WIDTH = 100

#: Columns that a text which may break is given at least, beside others and beside a name alone.
_READABLE, _BEARABLE = 20, 12

#: Columns that a text needs to stand beside its label, and the least a terminal is taken to have.
_BESIDE_LABEL, _NARROWEST = 30, 20

#: Columns between two columns of a table: a blank each side of the blank that divides them.
_GAP = 3


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output."""
    print(json.dumps(_plain(document), ensure_ascii=not speaks_unicode(sys.stdout),
                     allow_nan=False, indent=1))


def speaks_unicode(stream: TextIO) -> bool:
    """Whether a stream can print every character."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().startswith("utf")


def _plain(value: Any) -> Any:
    """Turn what planners report into JSON: numpy scalars and arrays, paths, infinities."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        # JSON has no infinity; a figure that is not finite is no figure.
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value)


def width() -> int:
    """Return the columns to print within: what ``COLUMNS`` or the terminal says, at most `WIDTH`.

    `WIDTH` where neither says anything, as in a pipe.
    """
    return min(WIDTH, line_length(sys.stdout) or WIDTH)


def line_length(stream: TextIO) -> int | None:
    """Return how wide ``COLUMNS`` or the terminal behind a stream says it is; None for a pipe."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated):
        return max(int(stated), _NARROWEST)
    try:
        found = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # no terminal, or no file at all
        return None
    return max(found, _NARROWEST) if found else None


def console() -> Console:
    """Return the console of standard output, as wide as `width` says."""
    from rich.console import Console

    # Without a height too, Rich takes a dumb terminal to be 80 columns wide.
    return Console(highlight=False, soft_wrap=False, width=width(), height=25)


def emit(renderable: RenderableType) -> None:
    """Print what Rich renders, without the blanks it fills lines up with."""
    out = console()
    with out.capture() as capture:
        out.print(renderable)
    print("\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n")))


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Iterable[str] = (),
    folding: Iterable[str] = (),
) -> None:
    """Print a table that reads without colour, and never cuts a figure.

    Columns that do not fit beside the others continue in a table below, which repeats the first
    column.

    Parameters
    ----------
    columns : sequence of str
        Headings.
    rows : iterable of sequences of str
        Cells.
    left, folding : iterable of str
        Columns of text rather than figures: set left; and those that may break over lines.
    """
    left, folding, rows = set(left), set(folding), list(rows)
    laid_out = [
        _Column.of(heading, [row[c] for row in rows], text=heading in left or heading in folding,
                   folds=heading in folding)
        for c, heading in enumerate(columns)
    ]
    for number, part in enumerate(_parts(laid_out, width())):
        if number:
            print()
        emit(_rendered(part))


@dataclass(frozen=True, slots=True)
class _Column:
    """A column with the widths it needs, alone beside the first and beside others, and wants."""

    heading: str
    cells: Sequence[str]
    text: bool
    alone: int
    least: int
    most: int

    @classmethod
    def of(cls, heading: str, cells: Sequence[str], *, text: bool, folds: bool) -> _Column:
        within = max(map(_widest, cells), default=0)
        most = max(within, _widest(heading))
        # Between words a heading may break, and a text; a figure may not.
        if folds:
            words = [word for cell in (heading, *cells) for word in cell.split()]
            unbroken = min(max(map(_widest, words), default=0), _READABLE)
            alone = min(most, max(_BEARABLE, unbroken))
            return cls(heading, cells, text, alone, min(most, _READABLE), most)
        least = max(within, *map(_widest, heading.split() or ("",)))
        return cls(heading, cells, text, least, least, most)


def _widest(text: str) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))


def _parts(columns: Sequence[_Column], room: int) -> Iterator[list[tuple[_Column, int]]]:
    """Share columns out over as few tables as they need, each with its width."""
    if not columns:
        return
    first, others = columns[0], list(columns[1:])
    beside = max((column.alone for column in others), default=0) + _GAP
    # A name gives way where it would leave no room for what it names; it breaks, it is not cut.
    name = max(min(first.least, room - beside), 1)
    while True:
        part, widths = [first], [name]
        while others and (
            len(part) == 1 or sum(widths) + _GAP * len(part) + others[0].least <= room
        ):
            column = others.pop(0)
            left = room - name - _GAP
            widths.append(min(column.least, left) if len(part) == 1 else column.least)
            part.append(column)
        yield _widened(part, widths, room)
        if not others:
            return


def _widened(
    part: Sequence[_Column], widths: list[int], room: int
) -> list[tuple[_Column, int]]:
    """Share the spare room out, the columns that need least of it first."""
    spare = room - sum(widths) - _GAP * (len(part) - 1)
    by_need = sorted(range(len(part)), key=lambda c: part[c].most - widths[c])
    for place, c in enumerate(by_need):
        more = max(0, min(part[c].most - widths[c], spare // (len(part) - place)))
        widths[c] += more
        spare -= more
    return list(zip(part, widths, strict=True))


def _rendered(part: Sequence[tuple[_Column, int]]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column, wide in part:
        table.add_column(column.heading, justify="left" if column.text else "right", width=wide,
                         overflow="fold")
    for cells in zip(*(column.cells for column, _ in part), strict=True):
        # Text, not str: a name with brackets in it is no markup.
        table.add_row(*(Text(cell) for cell in cells))
    return table


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print labelled lines; a label may be empty to continue the one before.

    Labels stand beside their texts where that leaves the texts room, else above them.
    """
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    pairs = list(pairs)
    beside = max((_widest(label) for label, _ in pairs), default=0)
    if width() - beside - 4 < _BESIDE_LABEL:
        for label, text in pairs:
            if label:
                emit(Text(label))
            emit(Padding(Text(text, overflow="fold"), (0, 0, 0, 2)))
        return
    grid = Table.grid(padding=(0, 2), pad_edge=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in pairs:
        grid.add_row(Text(label), Text(text))
    emit(grid)


def paragraph(text: str, *, style: str = "") -> None:
    """Print a text, broken between words where the line ends."""
    from rich.text import Text

    emit(Text(text, style=style))


def heading(text: str) -> None:
    """Print a line that stands above a block, and wrap it if it must be."""
    paragraph(text, style="bold")


def note(text: str) -> None:
    """Say something on standard error that is not part of the answer.

    On a terminal, lines longer than it is wide are broken between words.
    """
    room = line_length(sys.stderr)
    if room:
        text = "\n".join(
            textwrap.fill(line, room, subsequent_indent="       ", break_on_hyphens=False,
                          break_long_words=False, replace_whitespace=False)
            for line in text.split("\n")
        )
    print(text, file=sys.stderr)


class Progress:
    """A line on standard error that is replaced as work goes on; silent unless on a terminal.

    Parameters
    ----------
    quiet : bool
        Say nothing whatever standard error is.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._speaks = not quiet and sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        """Show `text` in place of what was shown before."""
        if self._speaks:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        self("")
