"""What a benchmark yields: a table of computed figures, printed for people or written as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Most characters a printed line takes.
WIDTH = 100

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes
    ----------
    key : str
        Key of the rows.
    heading : str
        What stands above it.
    show : callable
        Turns a value into text; a value that is None shows as a dash.
    left : bool
        Text, set left; else a figure.
    breaks : bool
        Text that may go on over the next line.
    """

    key: str
    heading: str
    show: Callable[[Any], str] = str
    left: bool = False
    breaks: bool = False


@dataclass(frozen=True, slots=True)
class Goal:
    """A target of the project.

    Attributes
    ----------
    limit : float
        In the unit of the figure it judges.
    at_least : bool
        Whether the figure must reach the limit, rather than stay within it.
    show : callable
        Turns the limit into text.
    """

    limit: float
    at_least: bool = False
    show: Callable[[Any], str] = str

    def judged(self, value: float | None) -> dict[str, Any]:
        """Return the cells ``target`` and ``met`` of a row; a figure that is missing fails."""
        met = value is not None and (value >= self.limit if self.at_least else value <= self.limit)
        sign = ">=" if self.at_least else "<="
        return {"target": f"{sign} {self.show(self.limit)}", "met": met}


def yes_or_no(met: bool) -> str:
    """Whether a target is met; what is not stands out."""
    return "yes" if met else "NO"


#: The columns that show what `Goal.judged` returns.
VERDICT = (
    Column("target", "target"),
    Column("met", "met", yes_or_no),
)


@dataclass(frozen=True, slots=True)
class Table:
    """One table of one benchmark.

    Attributes
    ----------
    name : str
        Identity in JSON.
    title : str
        One line for people.
    columns : sequence of Column
        What is printed, in order; rows may hold more.
    rows : sequence of mappings
        Figures in plain units: seconds, nanoseconds, bytes, fractions.
    note : str
        What a reader should know of how they were measured.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    note: str = field(default="")

    def cells(self) -> list[list[str]]:
        """Return the text of every row."""
        return [
            [_text(column, row.get(column.key)) for column in self.columns] for row in self.rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the table as a JSON object."""
        return {"name": self.name, "title": self.title, "note": self.note,
                "rows": [dict(row) for row in self.rows]}


def print_table(table: Table) -> None:
    """Print a table at most `WIDTH` characters wide."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    # A fixed width, so that a run in a log and one on a terminal look the same.
    console = Console(width=WIDTH, highlight=False)
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1),
                collapse_padding=True)
    for column in table.columns:
        grid.add_column(column.heading, justify="left" if column.left else "right",
                        no_wrap=not column.breaks, overflow="fold")
    for cells in table.cells():
        grid.add_row(*(Text(cell) for cell in cells))
    console.print(Text(f"\n{table.title}", style="bold"))
    console.print(grid)
    if table.note:
        console.print(Text(table.note, style="dim"))


def _text(column: Column, value: Any) -> str:
    return "-" if value is None else column.show(value)


def percent(value: float) -> str:
    """``0.1234`` as ``12.3%``."""
    return f"{value:.1%}"


def fine_percent(value: float) -> str:
    """``0.001234`` as ``0.123%``: gaps."""
    return f"{value:.3%}"


def signed_percent(value: float) -> str:
    """``-0.0012`` as ``-0.12%``: differences."""
    return f"{value:+.2%}"


def seconds(value: float) -> str:
    """Seconds in the unit that suits them, three digits: ``8.31 ms``."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def count(value: float) -> str:
    """A number with thousands separated."""
    return f"{value:,.0f}"


def times(value: float) -> str:
    """A ratio: ``123x``, ``1.07x``."""
    return f"{value:.0f}x" if value >= 20 else f"{value:.3f}x"
