"""The cost model's rules as a state machine: who may start now, and what is in use.

It knows no clock, no thread and no tensor. Whoever runs a plan - on two copy threads, or in
virtual time - tells it what has started and ended, and asks it what may start next.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from slackswap.execution.timetable import Timetable
from slackswap.result import StallCause


@dataclass(frozen=True, slots=True)
class Admission:
    """When a prefetch was let start.

    Attributes
    ----------
    tensor : int
        What comes back.
    step : int
        Current step.
    running : bool
        Whether that step ran, rather than being waited for.
    """

    tensor: int
    step: int
    running: bool


class Ledger:
    """Memory in use and the copy queues of one running iteration.

    Parameters
    ----------
    timetable : Timetable
        The plan, and the budget it must keep.

    Attributes
    ----------
    memory, peak : int
        Bytes in use, and most so far.
    offloading, prefetching : int or None
        Tensor that is being copied out, and back.
    absent : set of int
        Swapped tensors that are not back yet.
    admissions : list of Admission
        Prefetches in the order in which they started.
    offloaded_at_start : list of int
        Offloads over at the start of each step.
    """

    def __init__(self, timetable: Timetable) -> None:
        self._table = timetable
        self._budget = timetable.problem.budget_bytes
        self._last_forward_use = timetable.problem.profile.graph.last_forward_use
        self.memory = timetable.problem.profile.graph.input_bytes
        self.peak = self.memory
        self.offloading: int | None = None
        self.prefetching: int | None = None
        self.absent = set(timetable.swapped)
        self._to_offload: deque[int] = deque()
        self._to_prefetch = deque(timetable.swapped)
        self._offloaded: set[int] = set()
        self._forward_over = -1
        self._in_backward = False
        self._step = 0
        self._running = False
        self._barrier: int | None = None
        self.admissions: list[Admission] = []
        self.offloaded_at_start: list[int] = []

    def nbytes(self, tensor: int) -> int:
        """Size of a tensor."""
        return self._table.nbytes(tensor)

    # ---------------------------------------------------------------- forward pass

    def forward_fits(self, op: int) -> bool:
        """Whether a forward op may take its memory."""
        return self.memory + self._table.forward_needs[op] <= self._budget

    def start_forward(self, op: int) -> None:
        """Take a forward op's memory."""
        self._take(self._table.forward_needs[op])

    def end_forward(self, op: int) -> list[int]:
        """Give back what dies with a forward op; return the swapped tensors to evict now."""
        self._forward_over = op
        gone = [t for t in self._table.evictable[op] if t in self._offloaded]
        self.memory -= self._table.forward_frees[op] + sum(map(self._table.nbytes, gone))
        return gone

    @property
    def offloads_pending(self) -> bool:
        """Whether a copy to the host runs or waits."""
        return self.offloading is not None or bool(self._to_offload)

    def queue_offloads(self, op: int) -> None:
        """Let the tensors that wait for the end of a forward op join the offload queue."""
        self._to_offload.extend(self._table.joins.get(op, ()))

    # ---------------------------------------------------------------- copies

    def take_offload(self) -> int | None:
        """Start the next copy to the host, if the link is free and one waits."""
        if self.offloading is None and self._to_offload:
            self.offloading = self._to_offload.popleft()
            return self.offloading
        return None

    def end_offload(self) -> bool:
        """Note that the running copy to the host ended; return whether to evict its tensor now."""
        tensor = self.offloading
        assert tensor is not None
        self.offloading = None
        self._offloaded.add(tensor)
        if self._last_forward_use[tensor] > self._forward_over:
            return False
        self.memory -= self._table.nbytes(tensor)
        return True

    def take_prefetch(self) -> int | None:
        """Start the next copy to the device and take its memory, if the rules let it start."""
        if not self._in_backward or self.prefetching is not None or not self._to_prefetch:
            return None
        tensor = self._to_prefetch[0]
        if not self._may_prefetch(tensor):
            return None
        self._to_prefetch.popleft()
        self.admissions.append(Admission(tensor, self._step, self._running))
        self._take(self._table.nbytes(tensor))
        self.prefetching = tensor
        return tensor

    def _may_prefetch(self, tensor: int) -> bool:
        table, step = self._table, self._step
        if step == len(table.step_needs) or step < table.gate_step.get(tensor, 0):
            return False
        if tensor not in self._offloaded:
            return False
        if not table.problem.hardware.full_duplex and self.offloads_pending:
            return False
        in_use = self.memory - (table.step_needs[step] if self._running else 0)
        headroom = table.headroom(step, table.schedule.first_need[tensor])
        return in_use + table.nbytes(tensor) + headroom <= self._budget

    def end_prefetch(self) -> None:
        """Note that the running copy to the device ended."""
        assert self.prefetching is not None
        self.absent.discard(self.prefetching)
        self.prefetching = None

    # ---------------------------------------------------------------- backward pass

    def start_backward(self) -> None:
        """Let prefetches start from now on."""
        self._in_backward = True

    def step_waits_for(self, step: int) -> tuple[StallCause, int | None] | None:
        """What keeps a backward step from starting: the cause and the tensor; None if nothing."""
        if self._barrier is not None and self._barrier == self.prefetching:
            return StallCause.BARRIER, self._barrier
        if self.absent:
            missing = [t for t in self._table.schedule.steps[step].reads if t in self.absent]
            if missing:
                return StallCause.TENSOR, min(missing)
        if self.memory + self._table.step_needs[step] > self._budget:
            return StallCause.MEMORY, self.offloading
        return None

    def start_step(self, step: int) -> None:
        """Take a step's memory."""
        self.offloaded_at_start.append(len(self._offloaded))
        self._take(self._table.step_needs[step])
        self._running = True

    def end_step(self, step: int) -> None:
        """Give back what dies with a step; the next one becomes current."""
        self.memory -= self._table.step_frees[step]
        self._step, self._running = step + 1, False
        self._barrier = self.prefetching if step in self._table.barriers else None

    @property
    def copies_pending(self) -> bool:
        """Whether a copy runs, so that waiting can change something."""
        return self.offloads_pending or self.prefetching is not None

    def _take(self, nbytes: int) -> None:
        self.memory += nbytes
        self.peak = max(self.peak, self.memory)
