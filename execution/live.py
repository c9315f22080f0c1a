"""Run one iteration of a plan with live admission: the cost model's rules, asked at every event."""

from __future__ import annotations

from typing import Protocol

from slackswap.execution.errors import ExecutionFailed
from slackswap.execution.ledger import Ledger
from slackswap.execution.link import Link, Tensors
from slackswap.execution.log import IterationLog
from slackswap.execution.timetable import Timetable
from slackswap.result import Phase, StallCause


class Code(Protocol):
    """The computation of an iteration, op by op."""

    def forward(self, op: int) -> None:
        """Run a forward op."""

    def step(self, step: int) -> None:
        """Run a backward step."""


class NoCode:
    """Stands for a computation where only the order of events matters."""

    def forward(self, op: int) -> None:
        """Do nothing."""

    def step(self, step: int) -> None:
        """Do nothing."""


class LiveRun:
    """One iteration under the rules of the cost model.

    Parameters
    ----------
    timetable : Timetable
        The plan.
    link : Link
        Carries the copies out, and has the clock.
    code : Code
        The computation.
    tensors : Tensors
        What the copies move.
    """

    def __init__(self, timetable: Timetable, link: Link, code: Code, tensors: Tensors) -> None:
        self._table, self._link, self._code, self._tensors = timetable, link, code, tensors
        self.ledger = Ledger(timetable)
        self.log = IterationLog(timetable)

    def forward(self) -> None:
        """Run the forward ops back to back, while copies to the host follow them.

        Raises
        ------
        ExecutionFailed
            When an op does not fit and no copy is under way that could make room.
        """
        link, ledger, log = self._link, self.ledger, self.log
        profile = self._table.problem.profile
        with link.lock:
            link.begin(ledger, self._tensors, log)
            log.start_ns = link.now()
        for op in range(len(profile.forward)):
            with link.lock:
                link.arrive()
                while not ledger.forward_fits(op):
                    self._wait(Phase.FORWARD, op, StallCause.MEMORY, ledger.offloading)
                ledger.start_forward(op)
                started = self._mark()
            self._run(self._code.forward, op, profile.forward[op].duration_ns)
            with link.lock:
                log.forward(op, started, link.now())
                link.arrive()
                for tensor in ledger.end_forward(op):
                    self._tensors.evict(tensor)
                self._mark()
                if op in self._table.plan.offload_barriers:
                    while ledger.offloads_pending:
                        self._wait(Phase.FORWARD, op, StallCause.BARRIER, ledger.offloading)
                ledger.queue_offloads(op)
                link.pump()
        log.turn_ns = link.now()
        log.peak_bytes = ledger.peak

    def backward(self) -> None:
        """Run the backward steps, while swapped tensors come back earliest deadline first.

        Raises
        ------
        ExecutionFailed
            When a step cannot start and no copy is under way.
        """
        link, ledger, log = self._link, self.ledger, self.log
        log.backward_ns = link.now()
        with link.lock:
            ledger.start_backward()
            link.pump()
        for number, step in enumerate(self._table.schedule.steps):
            with link.lock:
                while (reason := ledger.step_waits_for(number)) is not None:
                    self._wait(Phase.BACKWARD, step.backward, *reason)
                ledger.start_step(number)
                started = self._mark()
            self._run(self._code.step, number, step.duration_ns)
            with link.lock:
                log.step(number, started, link.now())
                link.arrive()
                ledger.end_step(number)
                self._mark()
                link.pump()
        log.end_ns = link.now()
        log.peak_bytes = ledger.peak

    def _mark(self) -> int:
        now = self._link.now()
        self.log.curve.append((now, self.ledger.memory))
        return now

    def _run(self, run: object, number: int, duration_ns: int) -> None:
        self._link.compute(lambda: run(number), duration_ns)  # type: ignore[operator]

    def _wait(self, phase: Phase, op: int, cause: StallCause, tensor: int | None) -> None:
        link = self._link
        if not self.ledger.copies_pending:
            profile = self._table.problem.profile
            ops = profile.forward if phase is Phase.FORWARD else profile.backward
            raise ExecutionFailed(
                f"{phase} op {op} ({ops[op].name}) cannot start, and no copy is under way that "
                f"could help: {self.ledger.memory:,} bytes are in use",
                where="execution", fix="plan for a larger budget",
            )
        started = link.now()
        link.wait()
        self.log.stall(phase, op, started, link.now(), cause, tensor)
