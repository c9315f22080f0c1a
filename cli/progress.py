"""How a running suite is shown: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from slackswap.evaluation.run.runner import RunProgress

if TYPE_CHECKING:
    from slackswap.evaluation.run.cell import Cell
    from slackswap.evaluation.run.record import Record

#: Cells named at once, and the width of their names.
_NAMED, _WIDTH = 3, 60
#: Lines that a run prints where nothing can be redrawn.
_LINES = 10


class Live(RunProgress):
    """A bar on standard error, with the cells that are running."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress as Bar,
            TextColumn,
            TimeElapsedColumn,
        )

        self._bar = Bar(
            MofNCompleteColumn(), BarColumn(20), TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True), transient=True,
        )
        self._task = self._bar.add_task("", total=None)
        self._running: dict[str, None] = {}

    def __enter__(self) -> Live:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def started(self, cell: Cell) -> None:
        """Name a cell that began."""
        self._running[cell.label] = None
        self._name()

    def finished(self, record: Record, done: int, total: int) -> None:
        """Move the bar."""
        self._running.pop(record.cell.label, None)
        self._bar.update(self._task, completed=done, total=total)
        self._name()

    def _name(self) -> None:
        names = "; ".join(list(self._running)[:_NAMED])
        self._bar.update(self._task, description=names[:_WIDTH])


class Lines(RunProgress):
    """A line on standard error for every tenth of the cells."""

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def finished(self, record: Record, done: int, total: int) -> None:
        """Print a line when another tenth is done."""
        if done == total or done * _LINES // total > (done - 1) * _LINES // total:
            print(f"{done}/{total} cells, last: {record.cell.label} ({record.status})",
                  file=sys.stderr, flush=True)
