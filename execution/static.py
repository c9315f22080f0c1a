"""Run one iteration in a static order: the host queues work, events hold it in order.

The same program runs on CUDA streams and, to be tested without a GPU, on two threads of the CPU.
Memory follows the host's program: a tensor's memory is given back once compute has been told to
wait for its offload, and taken when its prefetch is issued.
"""

from __future__ import annotations

from typing import Any, Protocol

from slackswap.execution.live import Code
from slackswap.execution.log import IterationLog
from slackswap.execution.static_order import StaticOrder
from slackswap.execution.timetable import Timetable
from slackswap.result import EventKind, Phase, StallCause


class Movable(Protocol):
    """What streams do to the tensors of an iteration."""

    def offload(self, tensor: int, source: Any) -> None:
        """Queue or make the copy to the host."""

    def source(self, tensor: int) -> Any:
        """Return the device memory of a tensor, and so keep it alive."""

    def evict(self, tensor: int) -> None:
        """Give back a tensor's device memory."""

    def allocate(self, tensor: int) -> Any:
        """Take device memory for a tensor."""

    def fill(self, tensor: int, memory: Any) -> None:
        """Queue or make the copy from the host."""

    def restore(self, tensor: int, memory: Any) -> None:
        """Let the values of the iteration lie in `memory` again."""


class Streams(Protocol):
    """Compute, and a stream a direction; handles stand for what is queued on them."""

    def begin(self, tensors: Movable) -> None:
        """Serve a new iteration; nothing of an earlier one is under way."""

    def stamp(self) -> Any:
        """Note the time on the compute stream; `nanoseconds` reads it later."""

    def offload(self, tensor: int, source: Any) -> Any:
        """Queue a copy to the host behind all compute so far; return a handle of its end."""

    def prefetch(self, tensor: int, memory: Any, after: Any) -> Any:
        """Queue a copy from the host behind all compute so far and `after`; return a handle."""

    def wait(self, handle: Any) -> None:
        """Let compute wait for the end of a copy.

        Raises
        ------
        ExecutionFailed
            When the copy failed.
        """

    def finish(self) -> None:
        """Wait until everything queued is through, so that times can be read."""

    def nanoseconds(self, stamp: Any) -> int:
        """Return the time of a stamp."""

    def span(self, handle: Any) -> tuple[int, int]:
        """Return start and end of a copy in nanoseconds."""

    def close(self) -> None:
        """Give threads and streams back."""


class StaticRun:
    """One iteration of a plan in its static order.

    Parameters
    ----------
    timetable : Timetable
        The plan.
    order : StaticOrder
        Its waits.
    streams : Streams
        Where the work is queued.
    code : Code
        The computation.
    tensors : Movable
        What the copies move.
    """

    def __init__(
        self, timetable: Timetable, order: StaticOrder, streams: Streams, code: Code,
        tensors: Movable,
    ) -> None:
        self._table, self._order, self._streams = timetable, order, streams
        self._code, self._tensors = code, tensors
        self._handles: list[Any] = []  # of offloads, in their order
        self._sources: dict[int, Any] = {}
        self._over = 0
        self._prefetches: list[tuple[int, Any, Any]] = []  # tensor, memory, handle
        self._restored = 0
        self._place = {t: place for place, t in enumerate(order.offloads)}
        self._last_use = timetable.problem.profile.graph.last_forward_use
        self._stamps: list[tuple[Any, Any, Any]] = []  # before the waits, start, end
        self._turn: Any = None

    def forward(self) -> None:
        """Queue the forward pass.

        Raises
        ------
        ExecutionFailed
            When a copy failed.
        """
        table, streams, tensors = self._table, self._streams, self._tensors
        streams.begin(tensors)
        for op in range(len(table.forward_needs)):
            before = streams.stamp()
            self._wait_for_offloads(self._order.forward_waits[op], op - 1)
            start = streams.stamp()
            self._code.forward(op)
            self._stamps.append((before, start, streams.stamp()))
            for t in table.evictable[op]:
                if self._place[t] < self._over:
                    tensors.evict(t)
            for t in table.joins.get(op, ()):
                self._sources[t] = tensors.source(t)
                self._handles.append(streams.offload(t, self._sources[t]))
        self._turn = streams.stamp()

    def backward(self) -> None:
        """Queue the backward pass.

        Raises
        ------
        ExecutionFailed
            When a copy failed.
        """
        table, order, streams = self._table, self._order, self._streams
        over = len(table.forward_needs)
        for k in range(len(table.step_needs)):
            before = streams.stamp()
            self._wait_for_offloads(order.step_waits[k], over)
            for t in order.issues[k]:
                memory = self._tensors.allocate(t)
                handle = streams.prefetch(t, memory, self._handles[self._place[t]])
                self._prefetches.append((t, memory, handle))
            while self._restored < order.prefetch_waits[k]:
                t, memory, handle = self._prefetches[self._restored]
                streams.wait(handle)
                self._tensors.restore(t, memory)
                self._prefetches[self._restored] = t, None, handle  # the values hold it now
                self._restored += 1
                del memory
            start = streams.stamp()
            self._code.step(k)
            self._stamps.append((before, start, streams.stamp()))

    def _wait_for_offloads(self, number: int, forward_over: int) -> None:
        """Let compute wait for offloads, and give back the memory of those no longer used."""
        while self._over < number:
            tensor = self._order.offloads[self._over]
            self._streams.wait(self._handles[self._over])
            self._over += 1
            self._sources.pop(tensor)
            if self._last_use[tensor] <= forward_over:
                self._tensors.evict(tensor)

    @property
    def log(self) -> IterationLog:
        """What happened when; waits for the device."""
        table, streams = self._table, self._streams
        streams.finish()
        log = IterationLog(table, peak_bytes=self._order.peak_bytes)
        n_forward = len(table.forward_needs)
        read = streams.nanoseconds
        times = [(read(before), read(start), read(end)) for before, start, end in self._stamps]
        for number, (before, start, end) in enumerate(times):
            k = number - n_forward
            if k < 0:
                log.stall(Phase.FORWARD, number, before, start, StallCause.MEMORY, None)
                log.forward(number, start, end)
            else:
                cause = (
                    StallCause.TENSOR
                    if k and self._order.prefetch_waits[k] > self._order.prefetch_waits[k - 1]
                    else StallCause.MEMORY
                )
                backward = table.schedule.steps[k].backward
                log.stall(Phase.BACKWARD, backward, before, start, cause, None)
                log.step(k, start, end)
        for tensor, handle in zip(self._order.offloads, self._handles, strict=False):
            log.copy(EventKind.OFFLOAD, tensor, *streams.span(handle))
        for tensor, _, handle in self._prefetches:
            log.copy(EventKind.PREFETCH, tensor, *streams.span(handle))
        log.start_ns = times[0][0] if times else 0
        log.turn_ns = 0 if self._turn is None else read(self._turn)
        backward_times = times[n_forward:]
        log.backward_ns = backward_times[0][0] if backward_times else log.turn_ns
        log.end_ns = backward_times[-1][2] if backward_times else log.turn_ns
        return log
