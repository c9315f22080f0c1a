"""Fix the order of copies before a step runs, for devices whose host runs ahead of them.

Where the host only queues work, "memory in use now" is unknown to it, so the cost model's rules
cannot be asked as events happen. They are asked beforehand. The simulated timeline says at which
step each prefetch starts; for each op the fewest offloads are counted that must be over so that it
fits. The waits are then part of the program, the peak no longer depends on times, and it is never
above the budget.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackswap.execution.errors import ExecutionFailed
from slackswap.execution.ledger import Admission
from slackswap.execution.link import NoTensors, VirtualLink
from slackswap.execution.live import LiveRun, NoCode
from slackswap.execution.timetable import Timetable


@dataclass(frozen=True, slots=True)
class StaticOrder:
    """When compute waits for copies, and when prefetches are issued.

    Attributes
    ----------
    offloads : tuple of int
        Swapped tensors in the order in which they are copied out.
    forward_waits : tuple of int
        For each forward op, how many offloads must be over when it starts.
    step_waits : tuple of int
        Likewise for each backward step, and for the prefetches issued before it.
    issues : tuple of tuple of int
        Tensors whose prefetch is issued right before each step.
    prefetch_waits : tuple of int
        How many prefetches must be over when each step starts: barriers, and the tensors it reads.
    peak_bytes : int
        Most memory in use, whatever the copies' times.
    """

    offloads: tuple[int, ...]
    forward_waits: tuple[int, ...]
    step_waits: tuple[int, ...]
    issues: tuple[tuple[int, ...], ...]
    prefetch_waits: tuple[int, ...]
    peak_bytes: int

    @classmethod
    def of(cls, timetable: Timetable) -> StaticOrder:
        """Derive the order from the simulated timeline of a plan that fits.

        Raises
        ------
        ExecutionFailed
            When the plan does not fit.
        """
        simulated = LiveRun(
            timetable, VirtualLink(timetable.problem.hardware), NoCode(), NoTensors()
        )
        simulated.forward()
        simulated.backward()
        return _Deriving(
            timetable, simulated.ledger.admissions, simulated.ledger.offloaded_at_start
        ).order()


class _Deriving:
    """Walks through the program with the memory that it takes in the worst case."""

    def __init__(
        self, table: Timetable, admissions: list[Admission], offloaded_at_start: list[int]
    ) -> None:
        self._table, self._admissions = table, admissions
        self._offloaded_at_start = offloaded_at_start
        graph = table.problem.profile.graph
        self._offloads = tuple(t for op in sorted(table.joins) for t in table.joins[op])
        self._place = {t: place for place, t in enumerate(self._offloads)}
        self._last_use = graph.last_forward_use
        self._level = self._peak = graph.input_bytes
        self._over = 0  # offloads that compute has waited for
        self._queued = 0

    def order(self) -> StaticOrder:
        table = self._table
        forward_waits, least = [], 0
        for op, needs in enumerate(table.forward_needs):
            self._wait_until(needs, least, op - 1)
            forward_waits.append(self._over)
            self._run(needs, table.forward_frees[op])
            self._level -= sum(
                table.nbytes(t) for t in table.evictable[op] if self._place[t] < self._over
            )
            least = self._queued if op in table.plan.offload_barriers else 0
            self._queued += len(table.joins.get(op, ()))
        turn = len(table.forward_needs)
        issues = self._issues()
        step_waits, prefetch_waits, issued = [], [], 0
        number = {t: place + 1 for place, t in enumerate(table.swapped)}
        started = [0] * (len(table.step_needs) + 1)  # prefetches that had started by a step's end
        for admission in self._admissions:
            started[admission.step] += 1
        barrier = 0
        for k, step in enumerate(table.schedule.steps):
            for t in issues[k]:
                deadline = table.schedule.first_need[t]
                headroom = table.headroom(k, deadline)
                self._wait_until(table.nbytes(t) + headroom, self._least_for(t), turn)
                self._level += table.nbytes(t)
                issued += 1
            self._wait_until(table.step_needs[k], least, turn)
            least = 0
            step_waits.append(self._over)
            reads = max((number[t] for t in step.reads if t in number), default=0)
            prefetch_waits.append(max(reads, min(barrier, issued)))
            self._run(table.step_needs[k], table.step_frees[k])
            started[k] += started[k - 1] if k else 0
            barrier = started[k] if k in table.barriers else 0
        return StaticOrder(
            self._offloads, tuple(forward_waits), tuple(step_waits), issues,
            tuple(prefetch_waits), self._peak,
        )

    def _issues(self) -> tuple[tuple[int, ...], ...]:
        """Tensors by the step before which their prefetch is issued, in prefetch order.

        A prefetch that started while a step ran is issued before that step, unless it rests on an
        offload that was not over when the step started: then compute would wait for it too early,
        and the next step is soon enough.
        """
        by_step: list[list[int]] = [[] for _ in self._table.step_needs]
        before = 0
        for admission in self._admissions:
            step = admission.step
            late = self._least_for(admission.tensor) > self._offloaded_at_start[step]
            if admission.running and late:
                step += 1
            before = max(before, step)
            by_step[before].append(admission.tensor)
        return tuple(map(tuple, by_step))

    def _least_for(self, tensor: int) -> int:
        """Offloads that must be over before a prefetch: its own, or all in half duplex."""
        if self._table.problem.hardware.full_duplex:
            return self._place[tensor] + 1
        return len(self._offloads)

    def _wait_until(self, needs: int, least: int, forward_over: int) -> None:
        """Wait for the fewest further offloads, at least `least`, with which `needs` fits."""
        budget = self._table.problem.budget_bytes
        while self._over < least or self._level + needs > budget:
            if self._over == self._queued:
                raise ExecutionFailed(
                    f"{self._level + needs - budget:,} bytes are missing, whatever is waited for",
                    where="static order", fix="plan for a larger budget",
                )
            tensor = self._offloads[self._over]
            self._over += 1
            if self._last_use[tensor] <= forward_over:
                self._level -= self._table.nbytes(tensor)
        self._peak = max(self._peak, self._level + needs)

    def _run(self, needs: int, frees: int) -> None:
        self._level += needs
        self._peak = max(self._peak, self._level)
        self._level -= frees
