"""What the cost model says of a plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from slackswap.display import render
from slackswap.quantities import format_bytes


class Phase(StrEnum):
    """Where an infeasible plan got stuck."""

    FORWARD = "forward"
    BACKWARD = "backward"
    INPUTS = "inputs"


class Stream(StrEnum):
    """A stream of the device that runs one thing at a time."""

    COMPUTE = "compute"
    D2H = "d2h"
    H2D = "h2d"


class EventKind(StrEnum):
    """What a stretch of a stream's time was spent on."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    STALL = "stall"
    OFFLOAD = "offload"
    PREFETCH = "prefetch"


class StallCause(StrEnum):
    """Why compute waited."""

    MEMORY = "memory"
    TENSOR = "tensor"
    BARRIER = "barrier"


@dataclass(frozen=True, slots=True)
class Event:
    """One stretch of one stream.

    Attributes
    ----------
    stream, kind : Stream, EventKind
        Where, and what for.
    name : str
        Op or tensor name.
    start_ns, end_ns : int
        When.
    index : int
        Forward op index (forward, recompute, forward stall), backward op index (backward,
        backward stall), or tensor index (offload, prefetch).
    cause : StallCause or None
        For a stall, what compute waited for.
    tensor : str or None
        For a stall, the tensor whose transfer ended it, if one did.
    """

    stream: Stream
    kind: EventKind
    name: str
    start_ns: int
    end_ns: int
    index: int
    cause: StallCause | None = None
    tensor: str | None = None


@dataclass(frozen=True, slots=True)
class Infeasibility:
    """Where a valid plan ran out of memory, and by how much.

    Attributes
    ----------
    phase : Phase
        Forward pass, backward pass, or already the inputs.
    op_index, op : int, str
        The forward or backward op that could not start.
    recompute : str or None
        In the backward pass, the forward op whose recompute step could not start.
    tensor : str or None
        The swapped tensor that could not come back.
    shortfall_bytes : int
        Bytes missing at that point.
    time_ns : int
        Simulated instant.
    """

    phase: Phase
    op_index: int
    op: str
    recompute: str | None
    tensor: str | None
    shortfall_bytes: int
    time_ns: int

    def __str__(self) -> str:
        few = self.shortfall_bytes < 1000
        missing = f"{self.shortfall_bytes} bytes" if few else format_bytes(self.shortfall_bytes)
        if self.phase is Phase.INPUTS:
            return f"the inputs alone exceed the budget by {missing}"
        what = f"{self.phase} op {self.op_index} ({self.op})"
        if self.recompute is not None:
            what = f"recomputing {self.recompute!r} for {what}"
        if self.tensor is not None:
            what = f"bringing back {self.tensor!r} for {what}"
        return f"{what} is {missing} short"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The score of a plan: one simulated iteration.

    Every figure but `feasible`, `infeasible` is None when the plan does not fit, so that no
    average can take one in by mistake.

    Attributes
    ----------
    feasible : bool
        Whether the plan fits the budget.
    iteration_ns, forward_ns : int
        Time of the iteration and of its forward part.
    stall_forward_ns, stall_backward_ns : int
        Time that compute waited.
    recompute_ns : int
        Time of recompute steps.
    peak_bytes : int
        Most memory in use.
    throughput : float
        Keep-everything time divided by `iteration_ns`.
    offloaded_bytes, prefetched_bytes : int
        Bytes moved each way.
    d2h_busy_ns, h2d_busy_ns : int
        Time that each direction of the link was busy.
    d2h_utilisation, h2d_utilisation : float
        The same as fractions of `iteration_ns`.
    infeasible : Infeasibility or None
        Where and by how much the plan does not fit.
    memory_curve : tuple of (int, int) or None
        On request: (time in ns, bytes in use from then on), in order of events.
    timeline : tuple of Event or None
        On request: what each stream did.
    """

    feasible: bool
    iteration_ns: int | None = None
    forward_ns: int | None = None
    stall_forward_ns: int | None = None
    stall_backward_ns: int | None = None
    recompute_ns: int | None = None
    peak_bytes: int | None = None
    throughput: float | None = None
    offloaded_bytes: int | None = None
    prefetched_bytes: int | None = None
    d2h_busy_ns: int | None = None
    h2d_busy_ns: int | None = None
    d2h_utilisation: float | None = None
    h2d_utilisation: float | None = None
    infeasible: Infeasibility | None = None
    memory_curve: tuple[tuple[int, int], ...] | None = None
    timeline: tuple[Event, ...] | None = None

    @property
    def stall_ns(self) -> int | None:
        """Time that compute waited in both passes."""
        if self.stall_forward_ns is None or self.stall_backward_ns is None:
            return None
        return self.stall_forward_ns + self.stall_backward_ns

    @property
    def both_directions(self) -> tuple[tuple[int, int], ...] | None:
        """When both directions of the link ran at once, as (start, end) in ns.

        Such stretches follow each other in time, those that touch as one; None without a timeline.
        """
        if self.timeline is None:
            return None
        out, back = (
            [(event.start_ns, event.end_ns) for event in self.timeline if event.stream is stream]
            for stream in (Stream.D2H, Stream.H2D)
        )
        found: list[tuple[int, int]] = []
        a = b = 0
        while a < len(out) and b < len(back):
            start, end = max(out[a][0], back[b][0]), min(out[a][1], back[b][1])
            if start < end:
                if found and found[-1][1] == start:
                    start = found.pop()[0]
                found.append((start, end))
            if out[a][1] <= back[b][1]:
                a += 1
            else:
                b += 1
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a JSON object, without memory curve and timeline."""
        document = {
            spec.name: getattr(self, spec.name)
            for spec in fields(self)
            if spec.name not in ("infeasible", "memory_curve", "timeline")
        }
        document["infeasible"] = None if self.infeasible is None else {
            **asdict(self.infeasible),
            "phase": str(self.infeasible.phase),
            "reason": str(self.infeasible),
        }
        return document

    def _repr_html_(self) -> str:
        return render(self)
