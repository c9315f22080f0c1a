"""Who carries the copies out: the protocol, and a link in virtual time.

A link has a clock, runs the copies that the ledger lets start, and tells the ledger when they
end. `slackswap.execution.threads` has the link of two real threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from slackswap.execution.errors import ExecutionFailed
from slackswap.execution.ledger import Ledger
from slackswap.execution.log import IterationLog
from slackswap.hardware import WHOLE_PPM, Hardware
from slackswap.result import EventKind


class Tensors(Protocol):
    """What a link does to the tensors of an iteration."""

    def offload(self, tensor: int, source: Any) -> None:
        """Copy a tensor to the host."""

    def source(self, tensor: int) -> Any:
        """Return the device memory of a tensor, and so keep it alive."""

    def evict(self, tensor: int) -> None:
        """Give back a tensor's device memory."""

    def prefetch(self, tensor: int) -> Any:
        """Take device memory for a tensor, copy it from the host, and return it."""

    def restore(self, tensor: int, memory: Any) -> None:
        """Let the values of the iteration lie in `memory` again."""


class NoTensors:
    """Stands for tensors where only the order of events matters."""

    def offload(self, tensor: int, source: Any) -> None:
        """Do nothing."""

    def source(self, tensor: int) -> Any:
        """Return nothing."""

    def evict(self, tensor: int) -> None:
        """Do nothing."""

    def prefetch(self, tensor: int) -> Any:
        """Return nothing."""

    def restore(self, tensor: int, memory: Any) -> None:
        """Do nothing."""


class Link(Protocol):
    """Runs copies beside the computation."""

    @property
    def lock(self) -> contextlib.AbstractContextManager[Any]:
        """Held by whoever asks or tells the ledger."""

    def begin(self, ledger: Ledger, tensors: Tensors, log: IterationLog) -> None:
        """Serve a new iteration; what is left of the last one is given up."""

    def now(self) -> int:
        """Nanoseconds on the link's clock."""

    def compute(self, work: Callable[[], None], duration_ns: int) -> None:
        """Run an op that is said to take `duration_ns`; not under the lock."""

    def arrive(self) -> None:
        """Take in the copies that have ended by now, and start no prefetch."""

    def pump(self) -> None:
        """Start the copies that may start."""

    def wait(self) -> None:
        """Wait until a copy ends, and pump."""

    def close(self) -> None:
        """Give threads and host memory back."""


@dataclass(slots=True)
class _Copy:
    """A running copy: at `since` it had `work` left, and has run at `rate` from then on.

    A nanosecond at the whole rate does 10^6 of the work.
    """

    tensor: int
    start: int
    since: int
    work: int
    memory: Any
    rate: int = WHOLE_PPM

    @property
    def end(self) -> int:
        """First instant at which no work is left, if the rate stays."""
        return self.since - (-self.work // self.rate)

    def go_on(self, rate: int, now: int) -> None:
        """Change the rate."""
        self.work -= self.rate * (now - self.since)
        self.since, self.rate = now, rate


class VirtualLink:
    """A link in virtual time: ops take what the profile says, copies what the hardware says.

    Real tensors are really copied, at the instant at which the virtual copy ends. So bits, bytes
    and the order of events of a plan can be tested, whatever the machine is doing.

    Parameters
    ----------
    hardware : Hardware
        Rates and latency; may be replaced between iterations.
    """

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self._now = 0

    def begin(self, ledger: Ledger, tensors: Tensors, log: IterationLog) -> None:
        """Serve a new iteration."""
        self._ledger, self._tensors, self._log = ledger, tensors, log
        self._offload: _Copy | None = None
        self._prefetch: _Copy | None = None

    def now(self) -> int:
        """Nanoseconds on the virtual clock."""
        return self._now

    def compute(self, work: Callable[[], None], duration_ns: int) -> None:
        """Run an op at once, and let its time pass; its end itself is not taken in yet."""
        work()
        end = self._now + duration_ns
        while (instant := self._next_end()) is not None and instant < end:
            self._now = instant
            self.pump()
        self._now = end

    def arrive(self) -> None:
        """End, in order, every copy whose time has come."""
        while self._end_one():
            pass

    def pump(self) -> None:
        """Go through ends and starts until nothing more can happen at this instant."""
        while self._end_one() or self._start_offload(self._now) or self._start_prefetch():
            pass

    def wait(self) -> None:
        """Let time pass to the next end of a copy."""
        instant = self._next_end()
        if instant is None:
            raise ExecutionFailed("waits for a copy, but none runs", where="virtual link")
        self._now = instant
        self.pump()

    def close(self) -> None:
        """Nothing is held."""

    def _next_end(self) -> int | None:
        """Return the next end of a copy. All events of the present instant are through."""
        running = [self._offload, self._prefetch]
        both = None not in running
        for copy, ppm in zip(running, self.hardware.contended_ppm, strict=True):
            if copy is not None:
                copy.go_on(ppm if both else WHOLE_PPM, self._now)
        return min((copy.end for copy in running if copy is not None), default=None)

    def _end_one(self) -> bool:
        ledger, tensors = self._ledger, self._tensors
        if (copy := self._offload) is not None and copy.end <= self._now:
            self._offload, end = None, copy.end
            tensors.offload(copy.tensor, copy.memory)
            self._log.copy(EventKind.OFFLOAD, copy.tensor, copy.start, end)
            copy.memory = None
            if ledger.end_offload():
                tensors.evict(copy.tensor)
                self._log.curve.append((end, ledger.memory))
            self._start_offload(end)
            return True
        if (copy := self._prefetch) is not None and copy.end <= self._now:
            self._prefetch = None
            tensors.restore(copy.tensor, copy.memory)
            self._log.copy(EventKind.PREFETCH, copy.tensor, copy.start, copy.end)
            ledger.end_prefetch()
            return True
        return False

    def _start_offload(self, at: int) -> bool:
        tensor = self._ledger.take_offload()
        if tensor is None:
            return False
        alone = self.hardware.d2h_ns(self._ledger.nbytes(tensor))
        self._offload = _Copy(tensor, at, at, WHOLE_PPM * alone, self._tensors.source(tensor))
        return True

    def _start_prefetch(self) -> bool:
        tensor = self._ledger.take_prefetch()
        if tensor is None:
            return False
        self._log.curve.append((self._now, self._ledger.memory))
        alone = self.hardware.h2d_ns(self._ledger.nbytes(tensor))
        self._prefetch = _Copy(
            tensor, self._now, self._now, WHOLE_PPM * alone, self._tensors.prefetch(tensor)
        )
        return True
