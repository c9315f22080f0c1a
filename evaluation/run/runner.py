"""Running cells: one executor, results stored as they finish, the next run resumes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from slackswap.evaluation.run.cell import Cell, CellKind, Identity, identify
from slackswap.evaluation.run.environment import versions
from slackswap.evaluation.run.executor import CellTimedOut, Executor, WorkerDied
from slackswap.evaluation.run.measure import measure, stamped
from slackswap.evaluation.run.process import STARTUP_S
from slackswap.evaluation.run.record import Record
from slackswap.evaluation.run.store import Store
from slackswap.registry import is_built_in
from slackswap.status import Status


class Rerun(StrEnum):
    """Which stored results not to trust."""

    NOTHING = "nothing"
    FAILED = "failed"
    ALL = "all"


#: Statuses that ``--rerun failed`` measures again.
FAILED = (Status.ERROR, Status.TIMEOUT, Status.SKIPPED)


@dataclass(frozen=True, slots=True)
class PendingCell:
    """A cell to measure, with its identity."""

    cell: Cell
    identity: Identity


@dataclass(frozen=True, slots=True)
class Outline:
    """What a run will do.

    Attributes
    ----------
    to_run : tuple of PendingCell
        Cells to measure.
    stored : tuple of Record
        Results that stand already.
    """

    to_run: tuple[PendingCell, ...]
    stored: tuple[Record, ...]

    def estimated_s(self, expected: dict[str, float]) -> float:
        """Rough seconds of work: stored times of the same planner where there are any."""
        known: dict[str, list[float]] = {}
        for record in self.stored:
            known.setdefault(record.cell.subject, []).append(record.circumstances.elapsed_s)
        return sum(
            sum(known[subject]) / len(known[subject])
            if (subject := task.cell.subject) in known
            else min(expected.get(subject, 0.1), task.cell.timeout_s)
            for task in self.to_run
        )

    def limit_s(self) -> float:
        """Seconds after which every cell would have been killed, one at a time."""
        return sum(task.cell.timeout_s for task in self.to_run)


class RunProgress:
    """Told of what happens; does nothing. Subclasses show it."""

    def started(self, cell: Cell) -> None:
        """Hear that a cell was handed to the executor."""

    def finished(self, record: Record, done: int, total: int) -> None:
        """Hear that a result was stored; `done` of `total` are."""


@dataclass(slots=True)
class _InFlight:
    futures: dict[Future[Any], PendingCell] = field(default_factory=dict)

    def room(self, cell: Cell, workers: int) -> bool:
        """Whether a cell may start now: one that must run alone waits, and lets none beside it."""
        if cell.alone:
            return not self.futures
        return len(self.futures) < workers and not any(
            task.cell.alone for task in self.futures.values()
        )


def outline(cells: Iterable[Cell], store: Store, rerun: Rerun = Rerun.NOTHING) -> Outline:
    """Tell what has to be measured, and what is stored already."""
    to_run: list[PendingCell] = []
    stored: list[Record] = []
    seen: set[str] = set()
    for cell in cells:
        identity = identify(cell)
        if identity.key in seen:
            continue
        seen.add(identity.key)
        record = None if rerun is Rerun.ALL else store.read(identity.key)
        if record is None or _may_differ_now(record) or (
            rerun is Rerun.FAILED and record.status in FAILED
        ):
            to_run.append(PendingCell(cell, identity))
        else:
            stored.append(record)
    return Outline(tuple(to_run), tuple(stored))


def _may_differ_now(record: Record) -> bool:
    """Whether a planner declined with other packages than there are now, such as without torch."""
    return record.status is Status.SKIPPED and record.circumstances.versions != versions()


def run(
    tasks: Sequence[PendingCell],
    store: Store,
    executor: Executor,
    progress: RunProgress | None = None,
    *,
    all_contended: bool = False,
) -> list[Record]:
    """Measure cells and store each result as it comes.

    Parameters
    ----------
    tasks : sequence of PendingCell
        From `outline`.
    store : Store
        Where results go; held for the time of the run.
    executor : Executor
        Where cells run. It is stopped at the end, also when interrupted.
    progress : RunProgress, optional
        Told of each cell.
    all_contended : bool
        Let cells that should run alone run side by side as well; their rows are stamped so.

    Raises
    ------
    InvalidFile
        When a result cannot be stored; what was stored before is kept.
    """
    progress = progress or RunProgress()
    waiting = deque(
        replace(task, cell=replace(task.cell, alone=False)) if all_contended else task
        for task in tasks
    )
    flight, done = _InFlight(), []
    try:
        with store.writing():
            while waiting or flight.futures:
                while waiting and flight.room(waiting[0].cell, executor.workers):
                    task = waiting.popleft()
                    progress.started(task.cell)
                    flight.futures[_submit(executor, task)] = task
                ended, _ = wait(flight.futures, return_when=FIRST_COMPLETED)
                for future in ended:
                    record = _outcome(future, flight.futures.pop(future))
                    store.write(record)
                    done.append(record)
                    progress.finished(record, len(done), len(tasks))
    finally:
        executor.stop()
    return done


def _submit(executor: Executor, task: PendingCell) -> Future[Any]:
    contended = executor.workers > 1 and not task.cell.alone
    timeout_s = task.cell.timeout_s
    if task.cell.kind is CellKind.PLAN and not is_built_in(task.cell.subject):
        # Its own process is killed at the limit; starting that and scoring take time as well.
        timeout_s += STARTUP_S + timeout_s
    return executor.submit(
        measure, task.cell, task.identity, timeout_s=timeout_s, contended=contended
    )


def _outcome(future: Future[Any], task: PendingCell) -> Record:
    """Return a cell's record, whatever became of its call."""
    try:
        record: Record = future.result()
        return record
    except CellTimedOut as error:
        status, reason = Status.TIMEOUT, str(error)
        elapsed_s = task.cell.timeout_s
    except WorkerDied as error:
        status, reason, elapsed_s = Status.ERROR, str(error), 0.0
    except Exception as error:
        # A planner that cannot be sent to a worker, or an answer that cannot come back.
        status, reason = Status.ERROR, f"{type(error).__name__}: {error}"
        elapsed_s = 0.0
    return stamped(
        Record.failed(task.cell, task.identity, status, reason), elapsed_s=elapsed_s
    )

