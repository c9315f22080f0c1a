"""The cost model in plain Python: one simulated iteration, written for reading.

Everything follows the definitions directly, even where that is slow; the kernel must agree with
it to the nanosecond and the byte.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from slackswap.cost_model.schedule import BackwardSchedule, backward_schedule, resolve_actions
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.profile import Action
from slackswap.result import (
    Evaluation,
    Event,
    EventKind,
    Infeasibility,
    Phase,
    StallCause,
    Stream,
)


class _Stuck(Exception):
    def __init__(self, infeasibility: Infeasibility) -> None:
        super().__init__()
        self.infeasibility = infeasibility


def simulate(problem: Problem, plan: Plan) -> Evaluation:
    """Simulate one iteration under a plan.

    Parameters
    ----------
    problem : Problem
        Profile, hardware and budget.
    plan : Plan
        A plan that `Problem.check_plan` accepts.

    Returns
    -------
    Evaluation
        With memory curve and timeline. Infeasible plans have these up to the point where they got
        stuck.

    Raises
    ------
    InvalidPlan
        When an op that cannot run again would have to.
    """
    actions = resolve_actions(problem.profile, plan)
    schedule = backward_schedule(problem.profile, actions)
    run = _Iteration(problem, plan, actions, schedule)
    try:
        run.forward()
        run.backward()
    except _Stuck as stuck:
        return Evaluation(
            feasible=False,
            infeasible=stuck.infeasibility,
            memory_curve=tuple(run.curve),
            timeline=tuple(run.timeline),
        )
    return run.evaluation()


@dataclass(slots=True)
class _Transfer:
    tensor: int
    end_ns: int


@dataclass(slots=True)
class _Iteration:
    """The state of one simulated iteration."""

    problem: Problem
    plan: Plan
    actions: tuple[Action, ...]
    schedule: BackwardSchedule
    now: int = 0
    memory: int = 0
    peak: int = 0
    forward_ns: int = 0
    stall_ns: dict[Phase, int] = field(
        default_factory=lambda: {Phase.FORWARD: 0, Phase.BACKWARD: 0}
    )
    waiting_offloads: deque[int] = field(default_factory=deque)
    offload: _Transfer | None = None
    offloaded: set[int] = field(default_factory=set)
    forward_uses_over: int = -1  # last forward op that has ended
    curve: list[tuple[int, int]] = field(default_factory=list)
    timeline: list[Event] = field(default_factory=list)

    # ------------------------------------------------------------------ forward pass

    def forward(self) -> None:
        """Run the forward ops back to back, copying swapped tensors out behind them."""
        graph = self.problem.profile.graph
        self._allocate(graph.input_bytes)
        if self.memory > self.problem.budget_bytes and not (
            self.problem.profile.forward or self.schedule.steps
        ):
            short = self.memory - self.problem.budget_bytes
            raise _Stuck(Infeasibility(Phase.INPUTS, -1, "", None, None, short, 0))
        joins = self._joins()
        for i, op in enumerate(self.problem.profile.forward):
            needed = int(graph.forward_write_bytes[i]) + op.workspace
            self._finish_offloads(self.now)
            while self.memory + needed > self.problem.budget_bytes:
                if self.offload is None:
                    short = self.memory + needed - self.problem.budget_bytes
                    raise _Stuck(
                        Infeasibility(Phase.FORWARD, i, op.name, None, None, short, self.now)
                    )
                self._wait_for_offload(i, StallCause.MEMORY)
            self._allocate(needed)
            end = self.now + op.duration_ns
            self._record(Stream.COMPUTE, EventKind.FORWARD, op.name, end, i)
            self._finish_offloads(end)
            self.now = end
            self._end_forward_op(i, op.workspace)
            if i in self.plan.offload_barriers:
                while self.offload is not None:
                    self._wait_for_offload(i, StallCause.BARRIER)
            self.waiting_offloads.extend(joins.get(i, ()))
            self._start_offload(self.now)
        self.forward_ns = self.now

    def _joins(self) -> dict[int, list[int]]:
        """Swapped tensors by the forward op after which they join the offload queue."""
        profile = self.problem.profile
        joins: dict[int, list[int]] = {}
        for t, tensor in enumerate(profile.tensors):
            if self._is_swapped(t):
                producer = int(profile.graph.producer[t])
                gate = self.plan.offload_gates.get(tensor.name, producer)
                joins.setdefault(max(producer, gate), []).append(t)
        return joins

    def _is_swapped(self, t: int) -> bool:
        # A stored tensor that no step reads counts as dropped, and is not transferred.
        return self.actions[t] is Action.SWAP and t in self.schedule.first_need

    def _outlives_forward(self, t: int) -> bool:
        return self.actions[t] is not Action.RECOMPUTE and t in self.schedule.first_need

    def _end_forward_op(self, i: int, workspace: int) -> None:
        graph = self.problem.profile.graph
        self.forward_uses_over = i
        dead = sum(
            int(graph.nbytes[t])
            for t in graph.last_uses[i].tolist()
            if not self._outlives_forward(t) or t in self.offloaded
        )
        self._free(workspace + dead)

    # ------------------------------------------------------------------ offloads

    def _start_offload(self, at: int) -> None:
        if self.offload is None and self.waiting_offloads:
            t = self.waiting_offloads.popleft()
            end = at + self.problem.hardware.d2h_ns(self.problem.profile.tensors[t].nbytes)
            self.offload = _Transfer(t, end)
            self._record(
                Stream.D2H, EventKind.OFFLOAD, self.problem.profile.tensors[t].name, end, t, at
            )

    def _finish_offloads(self, until: int) -> None:
        """End, in order, every offload that ends by `until`."""
        while self.offload is not None and self.offload.end_ns <= until:
            done = self.offload
            self.offload = None
            self.offloaded.add(done.tensor)
            if self.problem.profile.graph.last_forward_use[done.tensor] <= self.forward_uses_over:
                self._free(self.problem.profile.tensors[done.tensor].nbytes, done.end_ns)
            self._start_offload(done.end_ns)

    def _wait_for_offload(self, i: int, cause: StallCause) -> None:
        assert self.offload is not None
        waited_for, end = self.offload.tensor, self.offload.end_ns
        self._stall(Phase.FORWARD, i, self.problem.profile.forward[i].name, end, cause, waited_for)
        self._finish_offloads(end)
        self.now = end

    # ------------------------------------------------------------------ backward pass

    def backward(self) -> None:
        """Run the steps, bringing swapped tensors back earliest deadline first."""
        profile, schedule = self.problem.profile, self.schedule
        steps = schedule.steps
        prefetch_queue = deque(
            sorted(
                (t for t in range(len(profile.tensors)) if self._is_swapped(t)),
                key=lambda t: (schedule.first_need[t], t),
            )
        )
        absent = set(prefetch_queue)
        prefetch: _Transfer | None = None
        barrier: _Transfer | None = None  # the prefetch that compute waits for after a barrier
        current = 0
        step_end: int | None = None  # None while the current step is waited for

        while current < len(steps):
            step = steps[current]
            if self.offload is not None and self.offload.end_ns <= self.now:
                self._finish_offloads(self.now)
            elif prefetch is not None and prefetch.end_ns <= self.now:
                absent.discard(prefetch.tensor)
                prefetch = None
            elif step_end is not None and step_end <= self.now:
                step_end = None
                self._free(step.workspace + sum(map(self._nbytes, schedule.frees[current])))
                current += 1
                if step.forward is None and step.backward in self.plan.prefetch_barriers:
                    barrier = prefetch
            elif barrier is not None and barrier is not prefetch:
                barrier = None
            elif (
                prefetch is None
                and prefetch_queue
                and self._may_prefetch(prefetch_queue[0], current, step_end is not None)
            ):
                t = prefetch_queue.popleft()
                self._allocate(self._nbytes(t))
                prefetch = _Transfer(t, self.now + self.problem.hardware.h2d_ns(self._nbytes(t)))
                self._record(
                    Stream.H2D, EventKind.PREFETCH, profile.tensors[t].name, prefetch.end_ns, t
                )
            elif (
                step_end is None
                and barrier is None
                and absent.isdisjoint(step.reads)
                and self.memory + self._needs(current) <= self.problem.budget_bytes
            ):
                self._allocate(self._needs(current))
                step_end = self.now + step.duration_ns
                self._record_step(current, step_end)
            else:
                ends = [
                    transfer.end_ns for transfer in (self.offload, prefetch) if transfer is not None
                ]
                if step_end is None:
                    if not ends:
                        raise _Stuck(self._stuck_at(current, absent))
                    self._stall_backward(current, min(ends), absent, barrier)
                    self.now = min(ends)
                else:
                    self.now = min([*ends, step_end])

    def _may_prefetch(self, t: int, current: int, running: bool) -> bool:
        """Whether the head of the prefetch queue may start now: gate, round trip, safety."""
        name = self.problem.profile.tensors[t].name
        deadline = self.schedule.first_need[t]
        gate = self.plan.prefetch_gates.get(name)
        if gate is not None:
            first_reader = self.schedule.steps[deadline].backward
            if current < self.schedule.first_step[min(gate, first_reader)]:
                return False
        if t not in self.offloaded:
            return False
        if not self.problem.hardware.full_duplex and (self.offload or self.waiting_offloads):
            return False
        in_use = self.memory - (self._needs(current) if running else 0)
        headroom = self._headroom(current, deadline)
        return in_use + self._nbytes(t) + headroom <= self.problem.budget_bytes

    def _headroom(self, current: int, deadline: int) -> int:
        """Largest growth that steps `current` .. `deadline` reach above the state before."""
        level = highest = 0
        for k in range(current, deadline + 1):
            step = self.schedule.steps[k]
            level += sum(map(self._nbytes, step.writes))
            highest = max(highest, level + step.workspace)
            level -= sum(map(self._nbytes, self.schedule.frees[k]))
        return highest

    def _needs(self, k: int) -> int:
        step = self.schedule.steps[k]
        return step.workspace + sum(map(self._nbytes, step.writes))

    def _stuck_at(self, current: int, absent: set[int]) -> Infeasibility:
        profile, step = self.problem.profile, self.schedule.steps[current]
        missing = min((t for t in step.reads if t in absent), default=None)
        needed = (
            self._needs(current)
            if missing is None
            else self._nbytes(missing) + self._headroom(current, current)
        )
        return Infeasibility(
            phase=Phase.BACKWARD,
            op_index=step.backward,
            op=profile.backward[step.backward].name,
            recompute=None if step.forward is None else profile.forward[step.forward].name,
            tensor=None if missing is None else profile.tensors[missing].name,
            shortfall_bytes=self.memory + needed - self.problem.budget_bytes,
            time_ns=self.now,
        )

    # ------------------------------------------------------------------ bookkeeping

    def _nbytes(self, t: int) -> int:
        return self.problem.profile.tensors[t].nbytes

    def _allocate(self, nbytes: int) -> None:
        self.memory += nbytes
        self.peak = max(self.peak, self.memory)
        self.curve.append((self.now, self.memory))

    def _free(self, nbytes: int, at: int | None = None) -> None:
        if nbytes:
            self.memory -= nbytes
            self.curve.append((self.now if at is None else at, self.memory))

    def _record(
        self,
        stream: Stream,
        kind: EventKind,
        name: str,
        end: int,
        index: int,
        start: int | None = None,
    ) -> None:
        begin = self.now if start is None else start
        self.timeline.append(Event(stream, kind, name, begin, end, index))

    def _record_step(self, k: int, end: int) -> None:
        profile, step = self.problem.profile, self.schedule.steps[k]
        if step.forward is None:
            name = profile.backward[step.backward].name
            self._record(Stream.COMPUTE, EventKind.BACKWARD, name, end, step.backward)
        else:
            name = profile.forward[step.forward].name
            self._record(Stream.COMPUTE, EventKind.RECOMPUTE, name, end, step.forward)

    def _stall(
        self, phase: Phase, index: int, op: str, until: int, cause: StallCause, tensor: int | None
    ) -> None:
        if until == self.now:
            return
        self.stall_ns[phase] += until - self.now
        name = None if tensor is None else self.problem.profile.tensors[tensor].name
        last = self.timeline[-1] if self.timeline else None
        stall = Event(
            Stream.COMPUTE, EventKind.STALL, op, self.now, until, index, cause, name
        )
        if last is not None and (last.kind, last.name, last.end_ns, last.cause, last.tensor) == (
            EventKind.STALL, op, self.now, cause, name
        ):
            stall = Event(
                Stream.COMPUTE, EventKind.STALL, op, last.start_ns, until, index, cause, name
            )
            self.timeline.pop()
        self.timeline.append(stall)

    def _stall_backward(
        self, current: int, until: int, absent: set[int], barrier: _Transfer | None
    ) -> None:
        step = self.schedule.steps[current]
        cause, tensor = StallCause.MEMORY, None if self.offload is None else self.offload.tensor
        if barrier is not None:
            cause, tensor = StallCause.BARRIER, barrier.tensor
        elif missing := [t for t in step.reads if t in absent]:
            cause, tensor = StallCause.TENSOR, min(missing)
        op = self.problem.profile.backward[step.backward].name
        self._stall(Phase.BACKWARD, step.backward, op, until, cause, tensor)

    def evaluation(self) -> Evaluation:
        """Return the score of the finished iteration."""
        hardware = self.problem.hardware
        swapped = [t for t in range(len(self.actions)) if self._is_swapped(t)]
        moved = sum(map(self._nbytes, swapped))
        d2h_busy = sum(hardware.d2h_ns(self._nbytes(t)) for t in swapped)
        h2d_busy = sum(hardware.h2d_ns(self._nbytes(t)) for t in swapped)
        duration = self.problem.profile.duration_ns
        return Evaluation(
            feasible=True,
            iteration_ns=self.now,
            forward_ns=self.forward_ns,
            stall_forward_ns=self.stall_ns[Phase.FORWARD],
            stall_backward_ns=self.stall_ns[Phase.BACKWARD],
            recompute_ns=sum(
                step.duration_ns for step in self.schedule.steps if step.forward is not None
            ),
            peak_bytes=self.peak,
            throughput=duration / self.now if self.now else 1.0,
            offloaded_bytes=moved,
            prefetched_bytes=moved,
            d2h_busy_ns=d2h_busy,
            h2d_busy_ns=h2d_busy,
            d2h_utilisation=d2h_busy / self.now if self.now else 0.0,
            h2d_utilisation=h2d_busy / self.now if self.now else 0.0,
            memory_curve=tuple(self.curve),
            timeline=tuple(self.timeline),
        )
