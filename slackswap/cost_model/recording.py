"""What the reference writes down while it simulates: memory, streams, stalls."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slackswap.result import Event, EventKind, Phase, StallCause, Stream


@dataclass(slots=True)
class Recording:
    """Memory in use, its curve, the timeline of all streams and the stalls of one iteration."""

    memory: int = 0
    peak: int = 0
    curve: list[tuple[int, int]] = field(default_factory=list)
    timeline: list[Event] = field(default_factory=list)
    stall_ns: dict[Phase, int] = field(
        default_factory=lambda: {Phase.FORWARD: 0, Phase.BACKWARD: 0}
    )

    def allocate(self, nbytes: int, at: int) -> None:
        """Take memory at an instant."""
        self.memory += nbytes
        self.peak = max(self.peak, self.memory)
        self.curve.append((at, self.memory))

    def free(self, nbytes: int, at: int) -> None:
        """Give memory back at an instant."""
        if nbytes:
            self.memory -= nbytes
            self.curve.append((at, self.memory))

    def event(
        self, stream: Stream, kind: EventKind, name: str, start: int, end: int, index: int
    ) -> int:
        """Record one stretch of a stream and return its place in the timeline."""
        self.timeline.append(Event(stream, kind, name, start, end, index))
        return len(self.timeline) - 1

    def set_end(self, place: int, end: int) -> None:
        """Say when the event at a place of the timeline really ended."""
        if self.timeline[place].end_ns != end:
            self.timeline[place] = replace(self.timeline[place], end_ns=end)

    def stall(
        self, phase: Phase, index: int, op: str, start: int, end: int, cause: StallCause,
        tensor: str | None,
    ) -> None:
        """Record that compute waits; a wait that goes on for the same reason is one event."""
        if start == end:
            return
        self.stall_ns[phase] += end - start
        stall = Event(Stream.COMPUTE, EventKind.STALL, op, start, end, index, cause, tensor)
        last = self.timeline[-1] if self.timeline else None
        if last is not None and (last.kind, last.name, last.end_ns, last.cause, last.tensor) == (
            EventKind.STALL, op, start, cause, tensor
        ):
            stall = replace(stall, start_ns=last.start_ns)
            self.timeline.pop()
        self.timeline.append(stall)

    def busy_ns(self, stream: Stream) -> int:
        """Time that a stream was busy, from each event's start to its actual end."""
        return sum(event.end_ns - event.start_ns for event in self.timeline
                   if event.stream is stream)
