"""What happened when in one iteration: the measured counterpart of a simulated timeline."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slackswap.execution.timetable import Timetable
from slackswap.result import Event, EventKind, Phase, StallCause, Stream


@dataclass(slots=True)
class IterationLog:
    """Events of one iteration, on the clock of the link that ran it.

    Attributes
    ----------
    timetable : Timetable
        What was run.
    events : list of Event
        In the order in which they ended.
    curve : list of (int, int)
        Time, and the bytes that the ledger counts from then on.
    start_ns, turn_ns, end_ns : int
        Start of the forward pass, its end, and the end of the backward pass.
    backward_ns : int
        Start of the backward pass: what the caller does between the passes is not counted.
    peak_bytes : int
        Most that the ledger counted.
    """

    timetable: Timetable
    events: list[Event] = field(default_factory=list)
    curve: list[tuple[int, int]] = field(default_factory=list)
    start_ns: int = 0
    turn_ns: int = 0
    backward_ns: int = 0
    end_ns: int = 0
    peak_bytes: int = 0

    def forward(self, op: int, start: int, end: int) -> None:
        """Note a forward op."""
        name = self.timetable.problem.profile.forward[op].name
        self.events.append(Event(Stream.COMPUTE, EventKind.FORWARD, name, start, end, op))

    def step(self, number: int, start: int, end: int) -> None:
        """Note a backward step."""
        profile = self.timetable.problem.profile
        step = self.timetable.schedule.steps[number]
        if step.forward is None:
            name, kind, index = profile.backward[step.backward].name, "backward", step.backward
        else:
            name, kind, index = profile.forward[step.forward].name, "recompute", step.forward
        self.events.append(Event(Stream.COMPUTE, EventKind(kind), name, start, end, index))

    def copy(self, kind: EventKind, tensor: int, start: int, end: int) -> None:
        """Note a copy."""
        stream = Stream.D2H if kind is EventKind.OFFLOAD else Stream.H2D
        name = self.timetable.problem.profile.tensors[tensor].name
        self.events.append(Event(stream, kind, name, start, end, tensor))

    def stall(
        self, phase: Phase, index: int, start: int, end: int, cause: StallCause, tensor: int | None
    ) -> None:
        """Note that compute waited; nothing when it did not."""
        if start == end:
            return
        profile = self.timetable.problem.profile
        ops = profile.forward if phase is Phase.FORWARD else profile.backward
        waited_for = None if tensor is None else profile.tensors[tensor].name
        self.events.append(
            Event(Stream.COMPUTE, EventKind.STALL, ops[index].name, start, end, index, cause,
                  waited_for)
        )

    @property
    def iteration_ns(self) -> int:
        """Time of both passes."""
        return (self.turn_ns - self.start_ns) + (self.end_ns - self.backward_ns)

    def total_ns(self, kind: EventKind) -> int:
        """Time spent on one kind of event."""
        return sum(event.end_ns - event.start_ns for event in self.events if event.kind is kind)

    def bytes_moved(self, kind: EventKind) -> int:
        """Bytes copied by one kind of event."""
        return sum(
            self.timetable.nbytes(event.index) for event in self.events if event.kind is kind
        )

    def on_one_clock(self) -> list[Event]:
        """Return the events from time 0 on; what the caller did between the passes is cut out."""
        return [
            replace(event, start_ns=self._shifted(event.start_ns),
                    end_ns=self._shifted(event.end_ns))
            for event in sorted(self.events, key=lambda event: (event.start_ns, event.end_ns))
        ]

    def curve_on_one_clock(self) -> list[tuple[int, int]]:
        """Return the memory curve from time 0 on, likewise."""
        return [(self._shifted(instant), level) for instant, level in self.curve]

    def _shifted(self, instant: int) -> int:
        return min(instant, self.turn_ns) - self.start_ns + max(0, instant - self.backward_ns)
