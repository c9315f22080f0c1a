"""The Lagrangian bound against the best schedule of a richer language than that of plans.

Bytes are kept, copied out, copied back, dropped and made again one by one, any number of times, and
forward ops run again anywhere. The best schedule is found by breadth-first search over instants.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from slackswap import BackwardOp, ForwardOp, Hardware, Problem, Profile, Tensor
from slackswap.search.enumeration import enumerate_plans
from slackswap.search.lagrangian.bound import lagrangian_bound
from slackswap.status import Status

#: Nanoseconds that a byte takes on the link.
BYTE_NS = 2


class State(NamedTuple):
    """Where a schedule stands. Bytes are bits of a mask."""

    done: int  # ops of the profile that are over, forward then backward
    op: int  # the op that runs, by the same numbers; -1 for none
    again: bool  # whether it runs again
    left: int  # ns until it ends
    memory: int  # bytes that are allocated
    host: int
    out: tuple[int, int]  # byte being copied out and ns left; (-1, 0) for none
    back: tuple[int, int]


class Machine:
    """A problem whose schedules are enumerated."""

    def __init__(self, problem: Problem) -> None:
        profile = problem.profile
        self.budget, self.latency = problem.budget_bytes, problem.hardware.latency_ns
        start, bits = 0, []
        for tensor in profile.tensors:
            bits.append(((1 << tensor.nbytes) - 1) << start)
            start += tensor.nbytes
        self.n_bytes, self.n_forward = start, len(profile.forward)
        ops = (*profile.forward, *profile.backward)
        self.duration = [op.duration_ns for op in ops]
        self.workspace = [op.workspace for op in ops]
        self.reads = [sum(bits[t] for t in op.reads) for op in ops]
        self.writes = [sum(bits[t] for t in getattr(op, "writes", ())) for op in ops]
        self.again = [op.recomputable for op in profile.forward]

    def best_ns(self) -> int | None:
        """Time of the fastest schedule; None when none exists."""
        first = State(0, -1, False, 0, 0, 0, (-1, 0), (-1, 0))
        best, waiting = {first: 0}, deque([first])
        while waiting:
            state = waiting.popleft()
            now = best[state]
            if state.done == len(self.duration):
                return now
            for cost, following in self.steps(state):
                if now + cost < best.get(following, 1 << 60):
                    best[following] = now + cost
                    (waiting.append if cost else waiting.appendleft)(following)
        return None

    def steps(self, state: State) -> Iterator[tuple[int, State]]:
        """Yield what may happen next, and how long it takes."""
        memory, arriving = state.memory, 1 << state.back[0] if state.back[0] >= 0 else 0
        ready = memory & ~arriving
        running = state.op >= 0
        pinned = arriving | (1 << state.out[0] if state.out[0] >= 0 else 0)
        if running:
            pinned |= self.reads[state.op] | self.writes[state.op]
        for op in range(state.done, self.n_forward):
            pinned |= self.reads[op]
        for bit in range(self.n_bytes):
            mask = 1 << bit
            if memory & mask and not pinned & mask:
                yield 0, state._replace(memory=memory & ~mask)
            made = not (running and self.writes[state.op] & mask)
            if ready & mask and made and not state.host & mask and state.out[0] < 0:
                yield 0, state._replace(out=(bit, self.latency + BYTE_NS))
            if (
                state.host & mask and not memory & mask and state.back[0] < 0
                and state.done >= self.n_forward and self.room(state, mask)
            ):
                yield 0, state._replace(memory=memory | mask, back=(bit, self.latency + BYTE_NS))
        if not running:
            candidates = [(state.done, False)]
            candidates += [(op, True) for op in range(min(state.done, self.n_forward))
                           if self.again[op]]
            for op, again in candidates:
                if op < len(self.duration) and self.reads[op] & ~ready == 0:
                    started = state._replace(
                        op=op, again=again, left=self.duration[op], memory=memory | self.writes[op]
                    )
                    if self.fits(started):
                        yield 0, started
        if running or state.out[0] >= 0 or state.back[0] >= 0:
            yield 1, self.tick(state)

    def room(self, state: State, mask: int) -> bool:
        return self.fits(state._replace(memory=state.memory | mask))

    def fits(self, state: State) -> bool:
        scratch = self.workspace[state.op] if state.op >= 0 else 0
        return state.memory.bit_count() + scratch <= self.budget

    def tick(self, state: State) -> State:
        """Let a nanosecond pass."""
        done, op, left = state.done, state.op, state.left
        if op >= 0:
            left -= 1
            if left == 0:
                done, op = done + (not state.again), -1
        out, back, host = state.out, state.back, state.host
        if out[0] >= 0:
            out = (out[0], out[1] - 1)
            if out[1] == 0:
                host, out = host | 1 << out[0], (-1, 0)
        if back[0] >= 0:
            back = (back[0], back[1] - 1)
            if back[1] == 0:
                back = (-1, 0)
        return State(done, op, state.again and op >= 0, left, state.memory, host, out, back)


def draw(rng: random.Random) -> Problem:
    """A small chain with skips, sized so that its schedules can be enumerated."""
    count = rng.randint(2, 3)
    large = rng.randrange(count)  # one tensor of two bytes, so that tensors are split
    tensors = tuple(Tensor(f"t{i}", 1 + (i == large)) for i in range(count))
    forward = tuple(
        ForwardOp(f"f{i}", rng.randint(1, 3), tuple(sorted({rng.randrange(i)})) if i else (), (i,))
        for i in range(count)
    )
    backward = [
        BackwardOp(f"b{i}", rng.randint(1, 3), (i,), workspace=rng.randint(0, 1))
        for i in reversed(range(count))
    ]
    if rng.random() < 0.6:  # a tensor that is read, left alone, and read again
        backward.insert(
            rng.randint(0, len(backward)),
            BackwardOp("x", rng.randint(1, 3), (rng.randrange(count),)),
        )
    hardware = Hardware("toy", 10**9 // BYTE_NS, 10**9 // BYTE_NS, latency_ns=rng.randint(0, 1))
    profile = Profile("toy", "random", tensors, forward, tuple(backward))
    peak = profile.keep_all_peak_bytes
    return Problem(profile, hardware, rng.randint(max(1, peak // 2), peak))


@pytest.mark.parametrize("seed", range(40))
def test_no_schedule_of_the_richer_language_is_faster(seed):
    problem = draw(random.Random(seed))
    best_ns = Machine(problem).best_ns()
    bound = lagrangian_bound(problem)
    plan_ns = enumerate_plans(problem).iteration_ns
    if bound.status is Status.INFEASIBLE:  # said of plans alone
        assert plan_ns is None
        return
    assert best_ns is None or bound.value_ns <= best_ns
    # The language is richer: no plan is faster than its best schedule.
    assert plan_ns is None or best_ns <= plan_ns


def test_a_schedule_that_no_plan_can_express():
    # Two tensors of a byte. t1 is read by the first and the last backward op, so a plan has it in
    # memory all the while; b0 between them needs t0 and a byte of workspace: three bytes of a
    # budget of two. A schedule drops t1 before b0 and makes it again after it.
    profile = Profile(
        "twice", "random", tuple(Tensor(f"t{i}", 1) for i in range(2)),
        (ForwardOp("f0", 1, (), (0,)), ForwardOp("f1", 1, (), (1,))),
        (BackwardOp("b1", 1, (1,)), BackwardOp("b0", 1, (0,), workspace=1),
         BackwardOp("x", 1, (1,))),
    )
    problem = Problem(profile, Hardware("toy", 10**9 // BYTE_NS, 10**9 // BYTE_NS), 2)
    assert enumerate_plans(problem).iteration_ns is None
    best_ns = Machine(problem).best_ns()
    assert best_ns is not None
    assert lagrangian_bound(problem).status is Status.INFEASIBLE
