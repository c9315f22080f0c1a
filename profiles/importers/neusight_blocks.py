"""The repeated block of a NeuSight table: where it lies, and how its copies are chained."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from slackswap.profiles.importers.neusight_rows import Row


@dataclass(frozen=True, slots=True)
class RepeatedRows:
    """A stretch of rows, how often it occurs, and the names through which copies are chained."""

    start: int
    stop: int
    times: int
    prefix: str
    entry: str | None = None
    result: str | None = None


def repeated_rows(rows: Mapping[str, Row], layers: int) -> list[RepeatedRows]:
    """Return the blocks of a table: rows of a module whose path ends in a number.

    Raises
    ------
    InvalidFile
        When there is no block to repeat, or more than one of the same list of modules.
    """
    ordered = list(rows.values())
    stretches: dict[str, tuple[int, int]] = {}
    for index, row in enumerate(ordered):
        path = _block_of(row)
        if path is not None:
            stretches[path] = (stretches.get(path, (index, 0))[0], index + 1)
    lists: dict[str, list[str]] = {}
    for path in stretches:
        lists.setdefault(path.rpartition(".")[0], []).append(path)
    times = layers or 1
    for family in lists.values():
        if len(family) > 1 and layers > 1:
            if len(family) != layers:
                ordered[stretches[family[1]][0]].fail(
                    "meta", f"is of {family[1]}, after {family[0]}: {len(family)} blocks of one "
                    f"list, for {layers} layers",
                    "keep one block, or give the option layers=0 for a table of the whole model",
                )
            times = 1
    if not stretches and layers > 1:
        ordered[0].fail("meta", f"no row is of a numbered module, so no block can occur {layers} "
                        "times", "write nn_module_stack, or give the option layers=1")
    blocks: list[RepeatedRows] = []
    for path, (start, stop) in sorted(stretches.items(), key=lambda item: item[1]):
        if blocks and start < blocks[-1].stop:
            ordered[start].fail("meta", f"is of {path}, within another block",
                                "keep the rows of a block together")
        entry, result = _ends(rows, ordered, start, stop) if times > 1 else (None, None)
        blocks.append(RepeatedRows(start, stop, times, path.replace(".", "_") + "_", entry, result))
    return blocks


def _block_of(row: Row) -> str | None:
    return next((path for path in row.modules if re.search(r"\.[0-9]+$", path)), None)


def _ends(
    rows: Mapping[str, Row], ordered: list[Row], start: int, stop: int
) -> tuple[str | None, str]:
    """Return the names that lead into a block and out of it."""
    inside = {row.name for row in ordered[start:stop]}
    later = [row for row in ordered[stop:] if row.node != "output"] or ordered[stop:]
    results = [
        name for row in later for name in row.inputs if name in inside and rows[name].is_float
    ]
    if not results:
        ordered[start].fail("users", "the block has no result that is used behind it",
                            "keep the rows behind the block")
    result = max(dict.fromkeys(results), key=lambda name: rows[name].elements)
    learning = _learning(ordered)
    entries = [
        name for row in ordered[start:stop] for name in row.inputs
        if name not in inside and name in learning and rows[name].nbytes == rows[result].nbytes
    ]
    if not entries:
        ordered[start].fail(
            "_input_nodes", f"nothing before the block has a gradient and the "
            f"{rows[result].nbytes} bytes of its result {result}, so copies cannot be chained",
            "keep the rows before the block, with their backward times",
        )
    return entries[0], result


def _learning(ordered: list[Row]) -> set[str]:
    """Return the names through which a gradient flows."""
    found: set[str] = set()
    for row in ordered:
        if row.is_float and (row.backward_ns or not found.isdisjoint(row.inputs)):
            found.add(row.name)
    return found
