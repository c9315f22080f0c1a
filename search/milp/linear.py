"""A linear model as flat arrays, independent of any solver.

Every coefficient is a double that stands for exactly the number meant: integers, and link rates
rounded to a multiple of 2^-20. Scaling is by powers of two. So the matrix that a solver gets, and
the one that the exact dual evaluation reads, are the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Unit of a column or row: its power-of-two scale is chosen by unit.
PURE, NS, BYTES = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Block:
    """A named range of columns or rows: one kind of variable, or one family of constraints."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class LinearModel:
    """Minimise ``offset + cost @ x`` with ``row_lower <= A @ x <= row_upper`` and column bounds.

    Attributes
    ----------
    rows, columns, values : int64[entries], int64[entries], float64[entries]
        The matrix A, sorted by row, then column, without repetition.
    row_lower, row_upper : float64[rows]
        Row bounds; infinite where there is none.
    lower, upper : float64[columns]
        Column bounds; always finite.
    cost : float64[columns]
        Objective.
    integer : bool[columns]
        Which variables are integers.
    row_unit, column_unit : int64[rows], int64[columns]
        `PURE`, `NS` or `BYTES`.
    offset : float
        Constant of the objective.
    row_blocks, column_blocks : tuple of Block
        What the rows and columns are.
    """

    rows: Ints
    columns: Ints
    values: Floats
    row_lower: Floats
    row_upper: Floats
    lower: Floats
    upper: Floats
    cost: Floats
    integer: Bools
    row_unit: Ints
    column_unit: Ints
    offset: float
    row_blocks: tuple[Block, ...]
    column_blocks: tuple[Block, ...]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.row_lower)

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.lower)

    def relaxed(self) -> LinearModel:
        """Return the model without integrality."""
        return replace(self, integer=np.zeros_like(self.integer))

    def scaled(self, *, ns: float, nbytes: float, objective: float) -> LinearModel:
        """Return the same model in larger units.

        Parameters
        ----------
        ns, nbytes : float
            The new units of time and size, powers of two, so that no coefficient is rounded.
        objective : float
            The new unit of the objective, likewise.
        """
        size = np.array([1.0, ns, nbytes])
        column, row = size[self.column_unit], size[self.row_unit]
        return replace(
            self,
            values=self.values * column[self.columns] / row[self.rows],
            row_lower=self.row_lower / row,
            row_upper=self.row_upper / row,
            lower=self.lower / column,
            upper=self.upper / column,
            cost=self.cost * column / objective,
            offset=self.offset / objective,
        )

    def column_names(self) -> Iterator[str]:
        """Yield a unique name for each column."""
        return _names(self.column_blocks)

    def row_names(self) -> Iterator[str]:
        """Yield a unique name for each row."""
        return _names(self.row_blocks)

    def activity(self, x: Floats) -> Floats:
        """Return ``A @ x``."""
        return np.bincount(
            self.rows, weights=self.values * x[self.columns], minlength=self.n_rows
        ).astype(np.float64)


@dataclass(slots=True)
class ModelBuilder:
    """Collects columns, rows and entries, and sorts them into a `LinearModel`."""

    _columns: list[tuple[Floats, Floats, Floats, Bools, Ints]] = field(default_factory=list)
    _rows: list[tuple[Floats, Floats, Ints]] = field(default_factory=list)
    _entries: list[tuple[Ints, Ints, Floats]] = field(default_factory=list)
    _column_blocks: list[Block] = field(default_factory=list)
    _row_blocks: list[Block] = field(default_factory=list)

    def add_columns(
        self,
        name: str,
        count: int,
        *,
        lower: ArrayLike = 0.0,
        upper: ArrayLike,
        unit: int,
        integer: bool = False,
    ) -> Ints:
        """Add variables of one kind; return their column indices."""
        block = _append(self._column_blocks, name, count)
        self._columns.append(
            (
                _filled(lower, count),
                _filled(upper, count),
                np.zeros(count),
                np.full(count, integer),
                np.full(count, unit, dtype=np.int64),
            )
        )
        return block

    def add_rows(
        self,
        name: str,
        count: int,
        *,
        lower: ArrayLike = -np.inf,
        upper: ArrayLike = np.inf,
        unit: int,
    ) -> Ints:
        """Add constraints of one family; return their row indices."""
        block = _append(self._row_blocks, name, count)
        self._rows.append(
            (_filled(lower, count), _filled(upper, count), np.full(count, unit, dtype=np.int64))
        )
        return block

    def put(self, rows: Ints, columns: Ints, values: ArrayLike) -> None:
        """Enter coefficients; entries of the same place add up."""
        self._entries.append((rows, columns, _filled(values, len(rows))))

    def shift(self, rows: Ints, constant: Ints | Floats) -> None:
        """Add a constant to both bounds of rows of one family."""
        if not len(rows):
            return
        number = next(
            number for number, block in enumerate(self._row_blocks) if rows[0] < block.stop
        )
        lower, upper, _ = self._rows[number]
        place = rows - self._row_blocks[number].start
        lower[place] += constant
        upper[place] += constant

    def add_cost(self, columns: Ints, cost: ArrayLike) -> None:
        """Add to the objective."""
        start = 0
        for block in self._columns:
            inside = (columns >= start) & (columns < start + len(block[0]))
            np.add.at(block[2], columns[inside] - start, _filled(cost, len(columns))[inside])
            start += len(block[0])

    def build(self, offset: float) -> LinearModel:
        """Return the model."""
        columns = tuple(zip(*self._columns, strict=True))
        row_parts = tuple(zip(*self._rows, strict=True))
        entries = tuple(zip(*self._entries, strict=True))
        lower, upper, cost = (_joined(parts) for parts in columns[:3])
        rows, places, values = (
            np.concatenate(entries[0]), np.concatenate(entries[1]), _joined(entries[2])
        )
        rows, places, values = _merged(rows, places, values, n_columns=max(1, len(lower)))
        return LinearModel(
            rows=rows,
            columns=places,
            values=values,
            row_lower=_joined(row_parts[0]),
            row_upper=_joined(row_parts[1]),
            lower=lower,
            upper=upper,
            cost=cost,
            integer=np.concatenate(columns[3]),
            row_unit=np.concatenate(row_parts[2]),
            column_unit=np.concatenate(columns[4]),
            offset=offset,
            row_blocks=tuple(self._row_blocks),
            column_blocks=tuple(self._column_blocks),
        )


def _append(blocks: list[Block], name: str, count: int) -> Ints:
    start = blocks[-1].stop if blocks else 0
    blocks.append(Block(name, start, start + count))
    return np.arange(start, start + count, dtype=np.int64)


def _names(blocks: tuple[Block, ...]) -> Iterator[str]:
    for block in blocks:
        for index in range(block.stop - block.start):
            yield f"{block.name}[{index}]"


def _filled(values: ArrayLike, count: int) -> Floats:
    return np.array(np.broadcast_to(np.asarray(values, dtype=np.float64), (count,)))


def _joined(parts: Sequence[Floats]) -> Floats:
    joined: Floats = np.concatenate(parts)
    return joined


def _merged(
    rows: Ints, columns: Ints, values: Floats, *, n_columns: int
) -> tuple[Ints, Ints, Floats]:
    """Sort by place and add up the entries of each; the sums are exact, being of few numbers."""
    places, owner = np.unique(rows * n_columns + columns, return_inverse=True)
    sums = np.bincount(owner, weights=values, minlength=len(places)).astype(np.float64)
    used = sums != 0
    row, column = np.divmod(places[used], n_columns)
    return row, column, sums[used]
