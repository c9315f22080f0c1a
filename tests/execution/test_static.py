"""The static order: derived without torch, run on two threads, never above the budget."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drawing import random_case

from slackswap import InvalidPlan, Plan, Problem, simulate
from slackswap.execution.static import StaticRun
from slackswap.execution.static_order import StaticOrder
from slackswap.execution.timetable import Timetable


class HeldMemory:
    """Counts what a host program holds: what the allocator of a stream would see."""

    def __init__(self, table: Timetable) -> None:
        self.table = table
        profile = table.problem.profile
        self.level = self.peak = profile.graph.input_bytes
        self.copied, self.evicted, self.present = set(), set(), set()

    def take(self, nbytes):
        self.level += nbytes
        self.peak = max(self.peak, self.level)

    # the computation
    def forward(self, op):
        self.take(self.table.forward_needs[op])
        self.level -= self.table.forward_frees[op]

    def step(self, k):
        reads = self.table.schedule.steps[k].reads
        swapped = set(self.table.swapped)
        assert all(t in self.present for t in reads if t in swapped)
        self.take(self.table.step_needs[k])
        self.level -= self.table.step_frees[k]

    # the copies
    def source(self, t):
        return t

    def offload(self, t, source):
        self.copied.add(t)

    def evict(self, t):
        assert t in self.copied
        assert t not in self.evicted
        self.evicted.add(t)
        self.level -= self.table.nbytes(t)

    def allocate(self, t):
        assert t in self.evicted
        self.take(self.table.nbytes(t))
        return t

    def fill(self, t, memory):
        assert t in self.copied

    def restore(self, t, memory):
        self.present.add(t)


class Immediate:
    """Streams whose copies are over at once."""

    def begin(self, tensors):
        self.tensors = tensors

    def stamp(self):
        return 0

    def offload(self, t, source):
        self.tensors.offload(t, source)
        return t

    def prefetch(self, t, memory, after):
        assert after == t
        self.tensors.fill(t, memory)
        return t

    def wait(self, handle):
        pass


@pytest.mark.parametrize("block", range(10))
def test_the_order_keeps_the_budget_whatever_the_times(block):
    ran = moved = 0
    for seed in range(940_000 + 100 * block, 940_000 + 100 * (block + 1)):
        case = random_case(seed, contended=seed % 3 == 0)
        try:
            expected = simulate(case.problem, case.plan)
        except InvalidPlan:
            continue
        if not expected.feasible:
            continue
        table = Timetable.of(case.problem, case.plan)
        order = StaticOrder.of(table)
        held = HeldMemory(table)
        run = StaticRun(table, order, Immediate(), held, held)
        run.forward()
        run.backward()
        assert held.peak <= order.peak_bytes <= case.problem.budget_bytes, seed
        assert held.present == set(table.swapped)
        ran, moved = ran + 1, moved + bool(table.swapped)
    assert moved > 10


def test_waits_by_hand():
    """Two equal tensors, a budget for one and a half.

    a (8 bytes) is written by op 0 and b (8 bytes) by op 1; the input takes 4. With 16 bytes, op 1
    needs 4 + 8 + 8 = 20, so compute waits for the offload of a before op 1: 12 bytes. Backward op 0
    reads b, op 1 reads a: b is offloaded as well and comes back first (4 + 8), and a can only
    follow when b is gone: before step 1.
    """
    from slackswap import BackwardOp, ForwardOp, Hardware, Profile, Tensor

    profile = Profile(
        name="two", source="random",
        tensors=(Tensor("x", 4), Tensor("a", 8), Tensor("b", 8)),
        forward=(
            ForwardOp("f0", 10, reads=(0,), writes=(1,)),
            ForwardOp("f1", 10, reads=(0,), writes=(2,)),
        ),
        backward=(BackwardOp("b0", 10, reads=(2,)), BackwardOp("b1", 10, reads=(1,))),
    )
    plan = Plan({"a": "swap", "b": "swap"})
    link = Hardware("one byte a nanosecond", 10**9, 10**9, 0)
    order = StaticOrder.of(Timetable.of(Problem(profile, link, 16), plan))
    assert order.offloads == (1, 2)
    assert order.forward_waits == (0, 1)
    assert order.step_waits == (2, 2)
    assert order.issues == ((2,), (1,))
    assert order.prefetch_waits == (1, 2)
    assert order.peak_bytes == 12
    # In half duplex a prefetch waits for every offload; here the last one is b's own anyway.
    half = Problem(profile, replace(link, full_duplex=False), 16)
    assert StaticOrder.of(Timetable.of(half, plan)).step_waits == (2, 2)


def test_bits_and_budget_on_two_threads():
    torch = pytest.importorskip("torch", reason="running a plan needs the torch extra")
    import random

    from drawing import random_plan
    from execution_runs import LINK, call_like, captured_net, metered, one_step, planned_step

    from slackswap import Infeasible
    from slackswap.execution.thread_streams import ThreadStreams

    torch.set_num_threads(1)
    for name in ("convnet", "unet", "lora", "twice"):
        captured = captured_net(name)
        profile = captured.profile
        plain = one_step(captured.subject.step, captured)
        unlimited = Problem(profile, LINK, None)
        rng, ran = random.Random(name), 0
        for _ in range(5):
            plan = random_plan(rng, unlimited)
            problem = unlimited.with_budget(rng.choice((None, 0.95)))
            try:
                step = planned_step(captured, problem, plan,
                                    ThreadStreams(lambda t, p=profile: p.tensors[t].nbytes))
            except (InvalidPlan, Infeasible):
                continue
            outcome, peak, log = metered(call_like(captured, step), captured, step)
            assert outcome.same_as(plain)
            allowed = step.last.peak_bytes + step.planned.reserved_bytes
            assert peak <= allowed, log.at_peak(without=outcome.gradients)
            assert allowed <= problem.budget_bytes
            ran += 1
        assert ran
