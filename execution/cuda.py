"""Streams of a CUDA device: compute is the current stream, and each direction has its own.

Written without a GPU at hand: what it queues, and in which order, is that of
`slackswap.execution.static`, which the tests run on the CPU; the calls below are not exercised by
any test of this repository.

Memory comes from PyTorch's caching allocator and belongs to the compute stream: sources were
allocated there, and so are the destinations of prefetches. A source is given back after compute
has been told to wait for its copy, and a copy starts after an event that compute records when the
destination is taken; so no block changes hands too early, and `record_stream` is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from slackswap.execution.static import Movable


@dataclass(frozen=True, slots=True)
class _Handle:
    """Events before and after one copy."""

    start: Any
    end: Any


class CudaStreams:
    """A stream for each direction beside the stream that computes.

    Parameters
    ----------
    device : torch.device
        A CUDA device.
    timed : bool
        Whether stamps can be read: events then take the time.
    """

    def __init__(self, device: torch.device, *, timed: bool = True) -> None:
        self._device, self._timed = device, timed
        self._out, self._in = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self._base: Any = None

    def begin(self, tensors: Movable) -> None:
        """Serve a new iteration behind whatever is queued."""
        self._tensors = tensors
        self._compute = torch.cuda.current_stream(self._device)
        # The host memory of the last iteration may still be read and written.
        self._out.wait_stream(self._in)
        self._base = self.stamp()

    def stamp(self) -> Any:
        """Record an event on the compute stream."""
        return self._record(torch.cuda.current_stream(self._device))

    def offload(self, tensor: int, source: Any) -> _Handle:
        """Queue a copy to the host."""
        self._out.wait_event(self.stamp())
        with torch.cuda.stream(self._out):
            start = self._record(self._out)
            self._tensors.offload(tensor, source)
            return _Handle(start, self._record(self._out))

    def prefetch(self, tensor: int, memory: Any, after: _Handle) -> _Handle:
        """Queue a copy from the host."""
        self._in.wait_event(self.stamp())
        self._in.wait_event(after.end)
        with torch.cuda.stream(self._in):
            start = self._record(self._in)
            self._tensors.fill(tensor, memory)
            return _Handle(start, self._record(self._in))

    def wait(self, handle: _Handle) -> None:
        """Let compute wait for the end of a copy; the host goes on."""
        torch.cuda.current_stream(self._device).wait_event(handle.end)

    def finish(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self._device)

    def nanoseconds(self, stamp: Any) -> int:
        """Return the time of a stamp since the iteration began."""
        elapsed_ms: float = self._base.elapsed_time(stamp)
        return round(elapsed_ms * 1e6)

    def span(self, handle: _Handle) -> tuple[int, int]:
        """Return start and end of a copy."""
        return self.nanoseconds(handle.start), self.nanoseconds(handle.end)

    def close(self) -> None:
        """Wait for what is queued, so that nothing outlives the step."""
        torch.cuda.synchronize(self._device)

    def _record(self, stream: Any) -> Any:
        event = torch.cuda.Event(enable_timing=self._timed)
        event.record(stream)
        return event
