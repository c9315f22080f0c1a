"""The cost model in plain Python: one simulated iteration, written for reading.

Everything follows the definitions directly, even where that is slow; the kernel must agree with
it to the nanosecond and the byte.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from slackswap.cost_model.recording import Recording
from slackswap.cost_model.schedule import (
    BackwardSchedule,
    Step,
    backward_schedule,
    resolve_actions,
)
from slackswap.hardware import WHOLE_PPM
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.profile import Action
from slackswap.result import Evaluation, EventKind, Infeasibility, Phase, StallCause, Stream


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
            memory_curve=tuple(run.record.curve),
            timeline=tuple(run.record.timeline),
        )
    return run.evaluation()


@dataclass(slots=True)
class _Transfer:
    """A running transfer: at `since` it had `work` left, and has run at `rate` from then on.

    Work is counted so that a nanosecond at the whole rate does 10^6 of it.
    """

    tensor: int
    since: int
    work: int
    event: int  # place in the timeline
    rate: int = WHOLE_PPM

    @property
    def end_ns(self) -> int:
        """When it ends if its rate stays: the first instant at which no work is left."""
        return self.since - (-self.work // self.rate)

    def change_rate(self, rate: int, now: int) -> None:
        """Go on at another rate."""
        self.work -= self.rate * (now - self.since)
        self.since, self.rate = now, rate


@dataclass(slots=True)
class _Iteration:
    """The state of one simulated iteration."""

    problem: Problem
    plan: Plan
    actions: tuple[Action, ...]
    schedule: BackwardSchedule
    record: Recording = field(default_factory=Recording)
    now: int = 0
    forward_ns: int = 0
    # The link. Both queues are first in, first out.
    waiting_offloads: deque[int] = field(default_factory=deque)
    offload: _Transfer | None = None
    offloaded: set[int] = field(default_factory=set)
    waiting_prefetches: deque[int] = field(default_factory=deque)
    prefetch: _Transfer | None = None
    # The forward pass.
    forward_uses_over: int = -1  # last forward op that has ended
    # The backward pass.
    current: int = 0  # the step that runs or is waited for
    step_end: int | None = None  # None while the current step is waited for
    absent: set[int] = field(default_factory=set)  # swapped tensors that are not resident
    barrier: _Transfer | None = None  # the prefetch that compute waits for after a barrier

    # ------------------------------------------------------------------ forward pass

    def forward(self) -> None:
        """Run the forward ops back to back, copying swapped tensors out behind them."""
        graph, budget = self.problem.profile.graph, self.problem.budget_bytes
        self.record.allocate(graph.input_bytes, 0)
        if graph.input_bytes > budget and not (
            self.problem.profile.forward or self.schedule.steps
        ):
            short = graph.input_bytes - budget
            raise _Stuck(Infeasibility(Phase.INPUTS, -1, "", None, None, short, 0))
        joins = self._joins()
        for i, op in enumerate(self.problem.profile.forward):
            needed = int(graph.forward_write_bytes[i]) + op.workspace
            self._finish_offloads(self.now)
            while self.record.memory + needed > budget:
                if self.offload is None:
                    short = self.record.memory + needed - budget
                    raise _Stuck(
                        Infeasibility(Phase.FORWARD, i, op.name, None, None, short, self.now)
                    )
                self._wait_for_offload(i, StallCause.MEMORY)
            self.record.allocate(needed, self.now)
            end = self.now + op.duration_ns
            self.record.event(Stream.COMPUTE, EventKind.FORWARD, op.name, self.now, end, i)
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
        self.record.free(workspace + dead, self.now)

    def _wait_for_offload(self, i: int, cause: StallCause) -> None:
        assert self.offload is not None
        waited_for, end = self._name(self.offload.tensor), self.offload.end_ns
        name = self.problem.profile.forward[i].name
        self.record.stall(Phase.FORWARD, i, name, self.now, end, cause, waited_for)
        self._finish_offloads(end)
        self.now = end

    # ------------------------------------------------------------------ the link

    def _start_offload(self, at: int) -> None:
        if self.offload is None and self.waiting_offloads:
            t = self.waiting_offloads.popleft()
            self.offload = self._transfer(Stream.D2H, EventKind.OFFLOAD, t, at)

    def _finish_offloads(self, until: int) -> None:
        """End every offload that ends by `until`, each with the start of the next."""
        while self.offload is not None and self.offload.end_ns <= until:
            done, end = self.offload, self.offload.end_ns
            self.offload = None
            self.offloaded.add(done.tensor)
            self.record.set_end(done.event, end)
            if self.problem.profile.graph.last_forward_use[done.tensor] <= self.forward_uses_over:
                self.record.free(self._nbytes(done.tensor), end)
            self._start_offload(end)

    def _transfer(self, stream: Stream, kind: EventKind, t: int, start: int) -> _Transfer:
        hardware, nbytes = self.problem.hardware, self._nbytes(t)
        alone = hardware.d2h_ns(nbytes) if stream is Stream.D2H else hardware.h2d_ns(nbytes)
        # Where contention slows it down, its end is corrected when it comes.
        event = self.record.event(stream, kind, self._name(t), start, start + alone, t)
        return _Transfer(t, start, WHOLE_PPM * alone, event)

    def _share_link(self) -> None:
        """Set the rates of running transfers, once all events of this instant are through."""
        both = self.offload is not None and self.prefetch is not None
        contended = self.problem.hardware.contended_ppm
        for transfer, ppm in zip((self.offload, self.prefetch), contended, strict=True):
            if transfer is not None:
                transfer.change_rate(ppm if both else WHOLE_PPM, self.now)

    # ------------------------------------------------------------------ backward pass

    def backward(self) -> None:
        """Run the steps, bringing swapped tensors back earliest deadline first.

        At each instant the first event that can happen does, and the order is gone through anew;
        when none can, time goes on.
        """
        first_need = self.schedule.first_need
        swapped = [t for t in range(len(self.actions)) if self._is_swapped(t)]
        self.waiting_prefetches.extend(sorted(swapped, key=lambda t: (first_need[t], t)))
        self.absent.update(swapped)
        while self.current < len(self.schedule.steps):
            if not (
                self._ends_offload()
                or self._ends_prefetch()
                or self._ends_step()
                or self._ends_barrier()
                or self._starts_prefetch()
                or self._starts_step()
            ):
                self._share_link()
                self._wait()

    @property
    def _step(self) -> Step:
        return self.schedule.steps[self.current]

    def _ends_offload(self) -> bool:
        if self.offload is None or self.offload.end_ns > self.now:
            return False
        self._finish_offloads(self.now)
        return True

    def _ends_prefetch(self) -> bool:
        if self.prefetch is None or self.prefetch.end_ns > self.now:
            return False
        self.record.set_end(self.prefetch.event, self.now)
        self.absent.discard(self.prefetch.tensor)
        self.prefetch = None
        return True

    def _ends_step(self) -> bool:
        if self.step_end is None or self.step_end > self.now:
            return False
        step = self._step
        freed = sum(map(self._nbytes, self.schedule.frees[self.current]))
        self.record.free(step.workspace + freed, self.now)
        self.step_end = None
        self.current += 1
        if step.forward is None and step.backward in self.plan.prefetch_barriers:
            self.barrier = self.prefetch
        return True

    def _ends_barrier(self) -> bool:
        if self.barrier is None or self.barrier is self.prefetch:
            return False
        self.barrier = None
        return True

    def _starts_prefetch(self) -> bool:
        if self.prefetch is not None or not self.waiting_prefetches:
            return False
        t = self.waiting_prefetches[0]
        if not self._may_prefetch(t):
            return False
        self.waiting_prefetches.popleft()
        self.record.allocate(self._nbytes(t), self.now)
        self.prefetch = self._transfer(Stream.H2D, EventKind.PREFETCH, t, self.now)
        return True

    def _may_prefetch(self, t: int) -> bool:
        """Whether the head of the prefetch queue may start now: gate, round trip, safety."""
        deadline = self.schedule.first_need[t]
        gate = self.plan.prefetch_gates.get(self._name(t))
        if gate is not None:
            first_reader = self.schedule.steps[deadline].backward
            if self.current < self.schedule.first_step[min(gate, first_reader)]:
                return False
        if t not in self.offloaded:
            return False
        if not self.problem.hardware.full_duplex and (self.offload or self.waiting_offloads):
            return False
        in_use = self.record.memory - (0 if self.step_end is None else self._needs(self.current))
        needed = self._nbytes(t) + self._headroom(deadline)
        return in_use + needed <= self.problem.budget_bytes

    def _starts_step(self) -> bool:
        step, needs = self._step, self._needs(self.current)
        if (
            self.step_end is not None
            or self.barrier is not None
            or not self.absent.isdisjoint(step.reads)
            or self.record.memory + needs > self.problem.budget_bytes
        ):
            return False
        self.record.allocate(needs, self.now)
        self.step_end = self.now + step.duration_ns
        profile = self.problem.profile
        if step.forward is None:
            kind, name, index = (
                EventKind.BACKWARD, profile.backward[step.backward].name, step.backward
            )
        else:
            kind, name, index = (
                EventKind.RECOMPUTE, profile.forward[step.forward].name, step.forward
            )
        self.record.event(Stream.COMPUTE, kind, name, self.now, self.step_end, index)
        return True

    def _wait(self) -> None:
        """Go on to the next end of a transfer or of the step; stuck if there is none."""
        ends = [running.end_ns for running in (self.offload, self.prefetch) if running is not None]
        if self.step_end is not None:
            self.now = min([*ends, self.step_end])
            return
        if not ends:
            raise _Stuck(self._infeasibility())
        self._stall_until(min(ends))
        self.now = min(ends)

    def _stall_until(self, end: int) -> None:
        step = self._step
        cause, tensor = StallCause.MEMORY, None if self.offload is None else self.offload.tensor
        if self.barrier is not None:
            cause, tensor = StallCause.BARRIER, self.barrier.tensor
        elif missing := self.absent.intersection(step.reads):
            cause, tensor = StallCause.TENSOR, min(missing)
        self.record.stall(
            Phase.BACKWARD, step.backward, self.problem.profile.backward[step.backward].name,
            self.now, end, cause, None if tensor is None else self._name(tensor),
        )

    def _headroom(self, last: int) -> int:
        """Largest growth that steps `current` .. `last` reach above the state before."""
        level = highest = 0
        for k in range(self.current, last + 1):
            step = self.schedule.steps[k]
            level += sum(map(self._nbytes, step.writes))
            highest = max(highest, level + step.workspace)
            level -= sum(map(self._nbytes, self.schedule.frees[k]))
        return highest

    def _needs(self, k: int) -> int:
        step = self.schedule.steps[k]
        return step.workspace + sum(map(self._nbytes, step.writes))

    def _infeasibility(self) -> Infeasibility:
        profile, step = self.problem.profile, self._step
        missing = min(self.absent.intersection(step.reads), default=None)
        needed = (
            self._needs(self.current)
            if missing is None
            else self._nbytes(missing) + self._headroom(self.current)
        )
        return Infeasibility(
            phase=Phase.BACKWARD,
            op_index=step.backward,
            op=profile.backward[step.backward].name,
            recompute=None if step.forward is None else profile.forward[step.forward].name,
            tensor=None if missing is None else self._name(missing),
            shortfall_bytes=self.record.memory + needed - self.problem.budget_bytes,
            time_ns=self.now,
        )

    # ------------------------------------------------------------------ the result

    def _nbytes(self, t: int) -> int:
        return self.problem.profile.tensors[t].nbytes

    def _name(self, t: int) -> str:
        return self.problem.profile.tensors[t].name

    def evaluation(self) -> Evaluation:
        """Return the score of the finished iteration."""
        moved = sum(self._nbytes(t) for t in range(len(self.actions)) if self._is_swapped(t))
        d2h_busy, h2d_busy = self.record.busy_ns(Stream.D2H), self.record.busy_ns(Stream.H2D)
        duration = self.problem.profile.duration_ns
        return Evaluation(
            feasible=True,
            iteration_ns=self.now,
            forward_ns=self.forward_ns,
            stall_forward_ns=self.record.stall_ns[Phase.FORWARD],
            stall_backward_ns=self.record.stall_ns[Phase.BACKWARD],
            recompute_ns=sum(
                step.duration_ns for step in self.schedule.steps if step.forward is not None
            ),
            peak_bytes=self.record.peak,
            throughput=duration / self.now if self.now else 1.0,
            offloaded_bytes=moved,
            prefetched_bytes=moved,
            d2h_busy_ns=d2h_busy,
            h2d_busy_ns=h2d_busy,
            d2h_utilisation=d2h_busy / self.now if self.now else 0.0,
            h2d_utilisation=h2d_busy / self.now if self.now else 0.0,
            memory_curve=tuple(self.record.curve),
            timeline=tuple(self.record.timeline),
        )
