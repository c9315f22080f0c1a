"""Rows of a plain table, from a CSV file or a data frame, and their cells as numbers and names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NoReturn

from slackswap.errors import InvalidFile, InvalidProfile, SlackSwapError
from slackswap.profiles.importers.reading import Place, csv_lines, excerpt, parse_decimal

if TYPE_CHECKING:
    import pandas as pd

#: Nanoseconds in the unit that ends a column's name.
UNITS = {"ns": 1, "us": 10**3, "ms": 10**6}
_LARGEST = 2**60
_NO = ("false", "no", "0", "0.0")


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of either kind of table: its cells by column, empty ones left out."""

    where: str
    cells: Mapping[str, Any]
    error: type[SlackSwapError]

    def fail(self, what: str, fix: str) -> NoReturn:
        """Raise the table's kind of error at this row."""
        raise self.error(what, where=self.where, fix=fix)

    def text(self, column: str) -> str | None:
        """Return a cell as text, None when it is empty."""
        value = self.cells.get(column)
        return None if value is None else str(value)

    def op_name(self) -> str:
        """Return the cell that names the row."""
        return self.text("name") or self.fail("the op has no name", "write one in column name")

    def duration(self, column: str | None) -> int | None:
        """Return the cell of a column such as ``forward_us`` in nanoseconds."""
        if column is None or column not in self.cells:
            return None
        return round(self._number(column) * UNITS[column.rpartition("_")[2]])

    def count(self, column: str) -> int | None:
        """Return a cell as a whole number, None when it is empty."""
        if column not in self.cells:
            return None
        value = self._number(column)
        if value.denominator != 1:
            self.fail(f"{column} is {excerpt(self.cells[column])}, not whole", "round it")
        return int(value)

    def flag(self, column: str) -> bool:
        """Whether a cell is anything but a no; empty is yes."""
        return str(self.cells.get(column, True)).strip().lower() not in _NO

    def items(self, column: str) -> list[str]:
        """Return the words of a cell: a text, or a sequence of texts."""
        value = self.cells.get(column, "")
        items = value.split() if isinstance(value, str) else value
        found = list(items) if isinstance(items, Iterable) else [items]
        words = [word for word in found if isinstance(word, str)]
        if len(words) < len(found):
            self.fail(
                f"{column} is {excerpt(value)}, not a list of names", "separate names by blanks"
            )
        return words

    def _number(self, column: str) -> Fraction:
        value = self.cells[column]
        try:
            if isinstance(value, str):
                number = parse_decimal(value)
            elif isinstance(value, bool) or not isinstance(value, Real):
                raise ValueError(f"{excerpt(value)}, not a number")
            else:
                number = (
                    Fraction(int(value)) if isinstance(value, Integral)
                    else Fraction(repr(float(value)))
                )
        except (ValueError, OverflowError) as error:
            reason = str(error) if "," in str(error) else f"{excerpt(value)}, not finite"
            self.fail(f"{column} is {reason}", "write a finite number, not below zero")
        if not 0 <= number <= _LARGEST:
            self.fail(f"{column} is {excerpt(value)}, outside 0 to 2^60", "check the unit")
        return number


@dataclass(frozen=True, slots=True)
class TableRows:
    """A table: its columns, in the order given, and its rows."""

    place: Place | str
    columns: list[str]
    rows: Sequence[TableRow]

    def check(self, known: Sequence[str], error: type[SlackSwapError]) -> None:
        """Check that all columns are known, stand there once, and that one names the rows."""
        unknown = [column for column in self.columns if column not in known]
        if unknown:
            raise error(
                f"column {excerpt(unknown[0])} is not known", where=str(self.place),
                fix=f"use {', '.join(known)}",
            )
        for name in known:
            if self.columns.count(name) > 1:
                raise error(
                    f"column {name!r} stands there twice", where=str(self.place),
                    fix="remove one of the two",
                )
        if "name" not in self.columns:
            raise error("column 'name' is absent", where=str(self.place), fix="name each row")

    def duration_column(
        self, kind: str, error: type[SlackSwapError], *, needed: bool = True
    ) -> str | None:
        """Return the column of durations, of which there may be one."""
        names = [f"{kind}_{unit}" for unit in UNITS]
        found = [name for name in names if name in self.columns]
        if len(found) > 1 or (needed and not found):
            raise error(
                f"there are {len(found)} columns of {kind} durations", where=str(self.place),
                fix=f"give one of {', '.join(names)}",
            )
        return found[0] if found else None


def rows_of_csv(text: str, file: str) -> TableRows:
    """Return the rows of a CSV file.

    Raises
    ------
    InvalidFile
        When a line has too few or too many cells, or quotes are left open.
    """
    lines = csv_lines(text, file)
    place, header = next(lines, (Place(file, 1), []))
    rows = []
    for place, cells in lines:
        if len(cells) != len(header):
            place.fail(
                f"has {len(cells)} cells, but the header has {len(header)}",
                "write one cell for each column; put a cell with commas in quotes",
            )
        filled = {column: cell for column, cell in zip(header, cells, strict=True) if cell}
        rows.append(TableRow(str(place), filled, InvalidFile))
    return TableRows(Place(file, 1), header, rows)


def rows_of_frame(frame: pd.DataFrame, what: str) -> TableRows:
    """Return the rows of a data frame; `what` names it in errors."""
    columns = [str(column) for column in frame.columns]
    rows = [
        TableRow(
            f"{what} row {index}",
            {
                column: value
                for column, value, given in zip(columns, values, present, strict=True)
                if given and not (isinstance(value, str) and not value.strip())
            },
            InvalidProfile,
        )
        for index, values, present in zip(
            frame.index,
            frame.itertuples(index=False, name=None),
            frame.notna().itertuples(index=False, name=None),
            strict=True,
        )
    ]
    return TableRows(f"{what} table", columns, rows)
