"""What every importer needs: text with a size limit, exact numbers, and places in a file."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

from slackswap import files
from slackswap.errors import InvalidFile

#: Largest measurement file read, after decompression. The known ones have a few hundred lines.
MAX_BYTES = 64 * 2**20

MIB = 2**20

# Bounded, so that no number takes long to read.
_NUMBER = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,2})?")
#: No duration in nanoseconds and no size in bytes of one op is larger.
_LARGEST = 2**60


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, perhaps a column of it, for error messages."""

    file: str
    line: int
    column: str = ""

    def __str__(self) -> str:
        column = f", column {self.column}" if self.column else ""
        return f"{self.file}, line {self.line}{column}"

    def fail(self, what: str, fix: str) -> NoReturn:
        """Raise an `InvalidFile` at this place."""
        raise InvalidFile(what, where=str(self), fix=fix)


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One data line of a CSV file: its cells by column, stripped of blanks."""

    place: Place
    cells: dict[str, str]

    def number(self, column: str, *, scale: int = 1) -> int:
        """Return a cell times `scale`, rounded to an integer; see `scaled`."""
        return scaled(self.cells[column], scale, self.place, column)


def read_measurements(path: str | os.PathLike[str]) -> str:
    """Read a text file of measurements, plain or gzip-compressed.

    Raises
    ------
    InvalidFile
        When it cannot be read, is not UTF-8, or is larger than `MAX_BYTES`.
    """
    return files.read_text(path, max_bytes=MAX_BYTES)


def parse_decimal(text: str) -> Fraction:
    """Return a finite, non-negative decimal number exactly.

    Raises
    ------
    ValueError
        Saying what it is instead, as the end of a sentence.
    """
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{excerpt(text)}, not a decimal number")
    value = Fraction(text)
    if value < 0:
        raise ValueError(f"{text}, below zero")
    if value > _LARGEST:
        raise ValueError(f"{text}, beyond any device")
    return value


def scaled(text: str, scale: int, place: Place, name: str) -> int:
    """Return a non-negative decimal number times `scale` as the nearest integer.

    Raises
    ------
    InvalidFile
        Naming the place and the field.
    """
    try:
        value = round(parse_decimal(text) * scale)
    except ValueError as error:
        place.fail(f"{name} is {error}", "write a finite decimal number in the field's unit")
    if value > _LARGEST:
        place.fail(f"{name} is {excerpt(text)}, beyond any device", "check the unit")
    return value


def csv_rows(text: str, file: str, columns: Sequence[str]) -> Iterator[CsvRow]:
    """Yield the data lines of a CSV file that has at least these columns; blank lines are skipped.

    Raises
    ------
    InvalidFile
        When a column is absent or named twice, or a line has too few or too many cells.
    """
    lines = csv_lines(text, file)
    place, header = next(lines, (Place(file, 1), []))
    for name in columns:
        if header.count(name) != 1:
            place.fail(
                f"column {name!r} is {'absent' if name not in header else 'named twice'}",
                f"begin the file with {','.join(columns)}",
            )
    for place, cells in lines:
        if len(cells) != len(header):
            place.fail(
                f"has {len(cells)} cells, but the header has {len(header)}",
                "write one cell for each column",
            )
        yield CsvRow(place, dict(zip(header, cells, strict=True)))


def csv_lines(text: str, file: str) -> Iterator[tuple[Place, list[str]]]:
    """Yield the lines of a CSV file as stripped cells, with their places; blank lines are skipped.

    Raises
    ------
    InvalidFile
        When quotes are left open or a cell is too long.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        # A quoted cell may span lines: the first is the place.
        place = Place(file, reader.line_num + 1)
        try:
            cells = next(reader, None)
        except csv.Error as error:
            place.fail(f"is not CSV ({error})", "correct its quotes")
        if cells is None:
            return
        stripped = [cell.strip() for cell in cells]
        if any(stripped):
            yield place, stripped


def excerpt(value: object) -> str:
    """Show a value found in a file, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
