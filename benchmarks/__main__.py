"""Run benchmarks and print their tables: ``make bench``.

python -m benchmarks                      all of them, some minutes
python -m benchmarks kernel quality       some
python -m benchmarks --quick              shorter curves, fewer repeats
python -m benchmarks --json bench.json    the figures in a file as well
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.scale import FULL, QUICK, Scale
from benchmarks.tables import WIDTH, Row, Table, print_table

#: In the order in which they run; each is a module with ``tables(scale)``.
BENCHMARKS = ("startup", "kernel", "planning", "quality", "bounds", "genetic", "execution")


def run(names: Sequence[str], scale: Scale) -> Iterator[Table]:
    """Run benchmarks one after the other and yield their tables as they are done."""
    for name in names:
        yield from importlib.import_module(f"benchmarks.{name}").tables(scale)


def describe_machine() -> dict[str, Any]:
    """What the figures were taken on: machine, versions, and how busy it was at the start."""
    from slackswap.evaluation.run.environment import machine, versions

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {"machine": machine(), "versions": versions(), "load_at_start": load}


def missed(tables: Sequence[Table]) -> list[tuple[Table, int]]:
    """Return table and row of every target that is not met."""
    return [
        (table, number)
        for table in tables
        for number, row in enumerate(table.rows)
        if False in verdicts(row)
    ]


def verdicts(row: Row) -> list[bool]:
    """Return whether each target of a row is met."""
    return [value for key, value in row.items() if key.endswith("met") and value is not None]


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help=f"any of {', '.join(BENCHMARKS)}; all without one")
    parser.add_argument("--quick", action="store_true", help="measure less")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file as well")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}; use {', '.join(BENCHMARKS)}")

    about = describe_machine()
    _print_machine(about)
    started = time.perf_counter()
    tables = []
    for table in run(options.names or BENCHMARKS, QUICK if options.quick else FULL):
        print_table(table)
        sys.stdout.flush()
        tables.append(table)
    _print_verdict(tables, time.perf_counter() - started)
    if options.json:
        from slackswap.files import write_json

        write_json(options.json, {**about, "quick": options.quick,
                                  "tables": [table.to_dict() for table in tables]})
    return 0


def _print_machine(about: dict[str, Any]) -> None:
    machine = about["machine"]
    memory = machine["memory_bytes"]
    size = "" if memory is None else f", {memory / 2**30:.0f} GiB"
    print(f"{machine['processor']}, {machine['cores']} cores{size}, {machine['system']}")
    line = ""
    for part in (f"{name} {version}" for name, version in about["versions"].items()):
        if line and len(line) + len(part) + 2 > WIDTH:
            print(line)
            line = ""
        line += f", {part}" if line else part
    print(line)
    if about["load_at_start"] is not None:
        busy = about["load_at_start"] / machine["cores"]
        remark = "; other work disturbs the times" if busy > 0.5 else ""
        print(f"load at start {about['load_at_start']:.2f} on {machine['cores']} cores{remark}")


def _print_verdict(tables: Sequence[Table], elapsed: float) -> None:
    judged = sum(bool(verdicts(row)) for table in tables for row in table.rows)
    failures = missed(tables)
    print(f"\n{judged - len(failures)} of {judged} rows with a target meet it, {elapsed:.0f} s")
    for table, number in failures:
        cells = [cell for cell in table.cells()[number] if cell not in ("-", "NO")]
        print(f"  missed in {table.name}: {', '.join(cells)}"[:WIDTH])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
