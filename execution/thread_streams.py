"""Streams on the CPU: the caller computes, and a thread a direction works through its queue."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slackswap.execution.errors import ExecutionFailed
from slackswap.execution.static import Movable
from slackswap.hardware import Hardware


@dataclass(slots=True)
class _Handle:
    """The end of one copy."""

    done: threading.Event = field(default_factory=threading.Event)
    start: int = 0
    end: int = 0
    failure: BaseException | None = None


class ThreadStreams:
    """Two queues of copies, each with its thread.

    Parameters
    ----------
    sizes : callable
        Bytes of a tensor.
    emulated : Hardware, optional
        Rates and latency that copies are held to.
    patience_s : float
        Seconds that compute waits for one copy before it counts as stuck.
    """

    def __init__(
        self, sizes: Callable[[int], int], emulated: Hardware | None = None, *,
        patience_s: float = 10.0,
    ) -> None:
        self._sizes, self._emulated, self._patience_s = sizes, emulated, patience_s
        self._queues: list[queue.SimpleQueue[Any]] = []
        self._pending: list[_Handle] = []

    def begin(self, tensors: Movable) -> None:
        """Serve a new iteration, once the copies of one that was given up are through."""
        for handle in self._pending:
            handle.done.wait(self._patience_s)
        self._pending = []
        self._tensors = tensors
        if not self._queues:
            for name in ("offload", "prefetch"):
                jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
                threading.Thread(
                    target=_work, args=(jobs,), name=f"slackswap-{name}", daemon=True
                ).start()
                self._queues.append(jobs)

    def stamp(self) -> int:
        """Note the time."""
        return time.perf_counter_ns()

    def nanoseconds(self, stamp: int) -> int:
        """Return the time of a stamp."""
        return stamp

    def offload(self, tensor: int, source: Any) -> _Handle:
        """Queue a copy to the host."""
        tensors, held = self._tensors, self._held(tensor, out=True)
        return self._queue(0, lambda: tensors.offload(tensor, source), held)

    def prefetch(self, tensor: int, memory: Any, after: _Handle) -> _Handle:
        """Queue a copy from the host."""
        tensors, held = self._tensors, self._held(tensor, out=False)

        def copy() -> None:
            after.done.wait()
            if after.failure is not None:
                raise after.failure
            tensors.fill(tensor, memory)

        return self._queue(1, copy, held)

    def wait(self, handle: _Handle) -> None:
        """Wait for the end of a copy."""
        if not handle.done.wait(self._patience_s):
            raise ExecutionFailed(
                f"a copy has not ended for {self._patience_s:.0f} s", where="execution",
                fix="run the step again, or raise patience_s",
            )
        if handle.failure is not None:
            raise ExecutionFailed(
                f"a copy failed: {handle.failure!r}", where="execution", fix="run the step again",
            ) from handle.failure

    def finish(self) -> None:
        """Wait for everything that is queued."""
        for handle in self._pending:
            self.wait(handle)

    def span(self, handle: _Handle) -> tuple[int, int]:
        """Return start and end of a copy."""
        return handle.start, handle.end

    def close(self) -> None:
        """Let the threads end."""
        for jobs in self._queues:
            jobs.put(None)
        self._queues = []

    def _held(self, tensor: int, *, out: bool) -> int:
        if self._emulated is None:
            return 0
        nbytes = self._sizes(tensor)
        return self._emulated.d2h_ns(nbytes) if out else self._emulated.h2d_ns(nbytes)

    def _queue(self, direction: int, copy: Callable[[], None], held: int) -> _Handle:
        handle = _Handle()
        self._pending.append(handle)
        self._queues[direction].put((copy, held, handle))
        return handle


def _work(jobs: queue.SimpleQueue[Any]) -> None:
    while (job := jobs.get()) is not None:
        copy, held, handle = job
        handle.start = time.perf_counter_ns()
        try:
            copy()
            left = handle.start + held - time.perf_counter_ns()
            if left > 0:
                time.sleep(left / 1e9)
        except BaseException as error:  # told to whoever waits
            handle.failure = error
        handle.end = time.perf_counter_ns()
        # Before its end is told: compute takes the memory for free from then on.
        del job, copy
        handle.done.set()
        del handle
