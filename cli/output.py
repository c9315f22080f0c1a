"""What commands print: tables and lines for people, one JSON object for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: Width of tables where output is not a terminal, and the most they take on one.
WIDTH = 100


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output."""
    print(json.dumps(_plain(document), ensure_ascii=False, allow_nan=False, indent=1))


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


def console() -> Console:
    """Return the console of standard output, never wider than `WIDTH`."""
    from rich.console import Console

    found = Console(highlight=False, soft_wrap=False)
    return Console(
        highlight=False, width=min(WIDTH, found.width) if found.is_terminal else WIDTH
    )


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
    """Print a table that reads without colour.

    Parameters
    ----------
    columns : sequence of str
        Headings.
    rows : iterable of sequences of str
        Cells.
    left, folding : iterable of str
        Columns of text rather than figures: set left; and those that may break over lines.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    left, folding = set(left), set(folding)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column in columns:
        text = column in left or column in folding
        table.add_column(column, justify="left" if text else "right",
                         no_wrap=column not in folding, overflow="fold")
    for row in rows:
        # Text, not str: a name with brackets in it is no markup.
        table.add_row(*(Text(cell) for cell in row))
    emit(table)


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print labelled lines in two columns; a label may be empty to continue the one before."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2), pad_edge=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in pairs:
        grid.add_row(Text(label), Text(text))
    emit(grid)


def heading(text: str) -> None:
    """Print a line that stands above a block, and wrap it if it must be."""
    from rich.text import Text

    emit(Text(text, style="bold"))


def note(text: str) -> None:
    """Say something on standard error that is not part of the answer."""
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
