"""Copies in both directions slow each other: worked by hand, both engines, bounds, defaults."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from bounding import small_problem
from drawing import random_case, random_plan
from handmade import LINK
from hypothesis import assume, given, settings, strategies as st

from slackswap import (
    Action,
    BackwardOp,
    ForwardOp,
    Hardware,
    InvalidHardware,
    InvalidPlan,
    Plan,
    Problem,
    Profile,
    Tensor,
    simulate,
)
from slackswap.cost_model import kernel, reference
from slackswap.cost_model.scorer import Scorer
from slackswap.files import canonical_json
from slackswap.profiles.generators.random_dag import Traits, random_hardware, random_profile
from slackswap.result import EventKind, Stream
from slackswap.search import lower_bound
from slackswap.search.enumeration import enumerate_plans

ENGINES = pytest.mark.parametrize("engine", ["kernel", "reference"])
seeds = st.integers(0, 2**40)

#: Every third tensor without bytes, much saved, late and long copies.
_BUSY = Traits(zero_bytes=0.2, saves_input=0.9, saves_output=0.5, restricted=0.05, max_ns=30)


def three(h: int, z: int, *, b2: int = 20) -> Profile:
    """h is written at 10, z at 20; backward: b2 reads nothing, b1 reads h, b0 reads z."""
    return Profile(
        "three", "random", (Tensor("x", 8), Tensor("h", h), Tensor("z", z)),
        (ForwardOp("f1", 10, (0,), (1,)), ForwardOp("f2", 10, (1,), (2,))),
        (BackwardOp("b2", b2, ()), BackwardOp("b1", 20, (1,)), BackwardOp("b0", 9, (2,))),
    )


def contended(d2h_ppm: int, h2d_ppm: int) -> Hardware:
    """One byte a nanosecond each way alone."""
    return replace(LINK, d2h_contended_ppm=d2h_ppm, h2d_contended_ppm=h2d_ppm)


def without_contention(problem: Problem) -> Problem:
    hardware = replace(
        problem.hardware, d2h_contended_ppm=1_000_000, h2d_contended_ppm=1_000_000
    )
    return replace(problem, hardware=hardware)


def swapped(profile: Profile, hardware: Hardware, engine: str):
    return simulate(Problem(profile, hardware), Plan({"h": "swap", "z": "swap"}), engine)


# ---------------------------------------------------------------------- worked by hand


@ENGINES
def test_both_directions_slow_each_other_while_both_run(engine):
    # h: out 10..14. z: out from 20. Backward begins at 20, and h returns from 20. h at a quarter:
    # 4 B take 16 ns, until 36. z at a half until then: 8 of 40 B in 16 ns; the other 32 B alone,
    # 36..68. b2 20..40, b1 40..60. z back 68..108, b0 108..117.
    # Busy: out 4 + 48, back 16 + 40. Without contention b0 ends at 109.
    result = swapped(three(4, 40), contended(500_000, 250_000), engine)
    assert (result.iteration_ns, result.stall_backward_ns) == (117, 48)
    assert (result.d2h_busy_ns, result.h2d_busy_ns) == (52, 56)
    assert result.d2h_utilisation == 52 / 117
    assert swapped(three(4, 40), LINK, engine).iteration_ns == 109


@ENGINES
def test_what_is_left_goes_on_at_the_whole_rate_and_ends_are_rounded_up(engine):
    # h: out 10..26; z (8 B): 26..34. h returns from 26, at 0.3 until z is out at 34: 2.4 of 16 B.
    # 13.6 B are left: 14 ns, until 48. b2 20..40, b1 48..68. z back 48..56, b0 68..77.
    result = swapped(three(16, 8), contended(1_000_000, 300_000), engine)
    assert (result.iteration_ns, result.stall_backward_ns) == (77, 8)
    assert (result.d2h_busy_ns, result.h2d_busy_ns) == (24, 22 + 8)


@ENGINES
def test_the_next_offload_follows_at_the_same_instant_without_a_gap(engine):
    # Three offloads of 5 B: h 10..15, then y and z join at 20: 20..25 and 25..30 alone. h returns
    # from 20 at a tenth as long as any offload runs: 1 of 5 B by 30, the rest by 34. A gap at 25
    # would let it do more. Offloads keep their rate. b2 20..21, b1 34..54.
    profile = Profile(
        "follow", "random", (Tensor("h", 5), Tensor("y", 5), Tensor("z", 5)),
        (ForwardOp("f1", 10, (), (0,)), ForwardOp("f2", 10, (0,), (1, 2))),
        (BackwardOp("b2", 1, ()), BackwardOp("b1", 20, (0,)), BackwardOp("b0", 9, (1, 2))),
    )
    plan = Plan({"h": "swap", "y": "swap", "z": "swap"})
    result = simulate(Problem(profile, contended(1_000_000, 100_000)), plan, engine)
    # y back 34..39 and z 39..44, alone: b0 54..63.
    assert (result.iteration_ns, result.h2d_busy_ns, result.d2h_busy_ns) == (63, 14 + 10, 15)


@ENGINES
def test_what_takes_no_time_slows_nothing(engine):
    # h has no bytes: out and back in no time, at 10 and at 20. z: out 20..60 as if alone.
    result = swapped(three(0, 40), contended(10_000, 10_000), engine)
    assert result.iteration_ns == 109
    assert (result.d2h_busy_ns, result.h2d_busy_ns) == (40, 40)
    # With a latency it does take time, and its latency is slowed too: h: out 10..12, back from 20.
    # 2 ns at a half: 4 ns, until 24; z (latency 2) is slowed to a half meanwhile: 20..64.
    late = replace(contended(500_000, 500_000), latency_ns=2)
    result = swapped(three(0, 40), late, engine)
    assert (result.d2h_busy_ns, result.h2d_busy_ns) == (2 + 44, 4 + 42)


@ENGINES
def test_with_contention_a_larger_budget_can_make_a_plan_slower(engine):
    # Both rates fall to a tenth, so one after the other is better than both at once. b2 takes
    # 100 B: with h resident and z still there, x + h + z + 100 = 122.
    profile = replace(three(4, 10), backward=(
        BackwardOp("b2", 20, (), 100), BackwardOp("b1", 20, (1,)), BackwardOp("b0", 9, (2,))))
    plan, link = Plan({"h": "swap", "z": "swap"}), contended(100_000, 100_000)
    # 122 B: h returns from 20, beside z's offload: 4 B take 40 ns, until 60. z did 4 of 10 B by
    # then and is out at 66. b2 20..40, b1 60..80, z back 66..76, b0 80..89.
    assert simulate(Problem(profile, link, 122), plan, engine).iteration_ns == 89
    # 121 B: h must wait until z is out at 30, and returns 30..34. b2 20..40, b1 40..60. z needs
    # 122 B beside b2 as well, so it returns 40..50. b0 60..69.
    assert simulate(Problem(profile, link, 121), plan, engine).iteration_ns == 69


@ENGINES
def test_half_duplex_ignores_the_shares(engine):
    for seed in range(40):
        case = random_case(seed, contended=True)
        half = replace(case.problem.hardware, full_duplex=False)
        whole = replace(half, d2h_contended_ppm=1_000_000, h2d_contended_ppm=1_000_000)
        results = []
        for hardware in (half, whole):
            problem = replace(case.problem, hardware=hardware)
            try:
                results.append(simulate(problem, case.plan, engine))
            except InvalidPlan:
                results.append(None)
        assert results[0] == results[1]


# ---------------------------------------------------------------------- engines


def _batch(seed: int, plans: int) -> tuple[Problem, list[Plan]]:
    rng = random.Random(seed)
    profile = random_profile(rng, rng.randint(2, 12), traits=_BUSY)
    # Slow enough that copies out go on far into the backward pass.
    hardware = random_hardware(rng, contended=True, max_bytes_per_s=10**9 + 10**8)
    hardware = replace(hardware, d2h_bytes_per_s=rng.randint(10**8, 2 * 10**9))
    problem = Problem(profile, hardware, rng.choice((None, 0.6, 0.8, 0.9, 1.0, "130%")))
    if problem.keep_all_peak_bytes == 0:
        problem = problem.with_budget(None)
    found: list[Plan] = []
    while len(found) < plans:
        plan = random_plan(rng, problem, swap_bias=2.0)
        if scorer_accepts(problem, plan):
            found.append(plan)
    return problem, found


def scorer_accepts(problem: Problem, plan: Plan) -> bool:
    try:
        problem.check_plan(plan)
    except InvalidPlan:
        return False
    return True


def test_engines_agree_on_ten_thousand_contended_cases():
    """Kernel by batches, reference one by one; and contention really changes many of them."""
    cases = changed = slowed_out = slowed_back = 0
    for seed in range(500):
        problem, plans = _batch(seed, 20)
        scores = Scorer(problem).score_plans(plans)
        alone = Scorer(without_contention(problem)).score_plans(plans)
        for number, plan in enumerate(plans):
            cases += 1
            if not scores.valid[number]:
                with pytest.raises(InvalidPlan):
                    reference.simulate(problem, plan)
                continue
            expected = replace(reference.simulate(problem, plan), memory_curve=None, timeline=None)
            found = scores.evaluation(number)
            assert found == expected, (seed, number)
            changed += found != alone.evaluation(number)
            slowed_out += _more_busy(scores, alone, number, kernel.D2H_BUSY_NS)
            slowed_back += _more_busy(scores, alone, number, kernel.H2D_BUSY_NS)
    assert cases == 10_000
    assert changed >= 1_500
    assert slowed_out >= 500
    assert slowed_back >= 500


def _more_busy(scores, alone, number: int, column: int) -> bool:
    both = bool(scores.feasible[number] and alone.feasible[number])
    return both and scores.table[number, column] > alone.table[number, column]


@settings(max_examples=300)
@given(seeds)
def test_timeline_and_busy_time_follow_the_actual_ends(seed):
    problem, (plan,) = _batch(seed, 1)
    try:
        result = simulate(problem, plan, timeline=True)
    except InvalidPlan:
        return
    assume(result.feasible)
    hardware = problem.hardware
    moves = {EventKind.OFFLOAD: [], EventKind.PREFETCH: []}
    for event in result.timeline:
        if event.kind in moves:
            moves[event.kind].append(event)
    alone = {EventKind.OFFLOAD: hardware.d2h_ns, EventKind.PREFETCH: hardware.h2d_ns}
    rate = dict(zip(moves, hardware.contended_ppm, strict=True))
    other = {EventKind.OFFLOAD: EventKind.PREFETCH, EventKind.PREFETCH: EventKind.OFFLOAD}
    for kind, events in moves.items():
        stream = Stream.D2H if kind is EventKind.OFFLOAD else Stream.H2D
        busy = sum(event.end_ns - event.start_ns for event in events)
        assert busy == (result.d2h_busy_ns if stream is Stream.D2H else result.h2d_busy_ns)
        for event in events:
            # Work is rate x time; the time shared with the other direction counts by its share.
            shared = sum(
                max(0, min(event.end_ns, rival.end_ns) - max(event.start_ns, rival.start_ns))
                for rival in moves[other[kind]]
            )
            lasted = event.end_ns - event.start_ns
            work = rate[kind] * shared + 1_000_000 * (lasted - shared)
            needed = 1_000_000 * alone[kind](problem.profile.tensors[event.index].nbytes)
            assert needed <= work < needed + 1_000_000


# ---------------------------------------------------------------------- bounds


def test_bounds_hold_on_contended_problems():
    checked = slower = 0
    for seed in range(700):
        if seed % 4 == 0:
            problem = small_problem(seed, most_plans=400)
            if problem is None:
                continue
            hardware = random_hardware(random.Random(seed), contended=True)
            problem = replace(problem, hardware=hardware)
        else:
            problem = _swaps_only(seed)
        best = enumerate_plans(problem).iteration_ns
        if best is None:
            continue
        checked += 1
        for method in ("compute", "lagrangian", "lp"):
            assert lower_bound(problem, method).value_ns <= best, (seed, method)
        if checked % 20 == 0:
            bound = lower_bound(problem, "milp")
            assert bound.value_ns <= best * (1 + bound.tolerance), seed
        slower += enumerate_plans(without_contention(problem)).iteration_ns < best
    assert checked >= 200
    assert slower >= 50


def _swaps_only(seed: int) -> Problem:
    """Draw a problem in which most tensors must be swapped, so that contention slows the optimum.

    Backward begins with the early tensors, while the late ones are still copied out.
    """
    rng = random.Random(seed)
    count = rng.randint(3, 7)
    tensors = tuple(
        Tensor(f"t{i}", rng.randint(1, 30),
               (Action.SWAP,) if rng.random() < 0.7 else (Action.KEEP, Action.SWAP))
        for i in range(count)
    )
    forward = tuple(
        ForwardOp(f"f{i}", rng.randint(1, 20), (i - 1,) if i else (), (i,)) for i in range(count)
    )
    readers = rng.sample(range(count), count)
    backward = tuple(
        BackwardOp(f"b{i}", rng.randint(1, 20), (i,), rng.randint(0, 20)) for i in readers
    )
    hardware = random_hardware(rng, contended=True, max_bytes_per_s=2 * 10**9)
    profile = Profile("swaps", "random", tensors, forward, backward)
    return Problem(profile, hardware, rng.choice((None, 0.7, 0.9)))


# ---------------------------------------------------------------------- hardware


def test_the_default_leaves_hashes_as_they_were():
    # Written down before the fields were introduced.
    assert canonical_json(LINK.to_dict()) == (
        b'{"d2h_bytes_per_s":1000000000,"device_bytes":null,"flops_per_s":null,"full_duplex":true,'
        b'"h2d_bytes_per_s":1000000000,"host_bytes":null,"latency_ns":0,'
        b'"memory_bytes_per_s":null,"name":"toy","schema":"slackswap.hardware/1"}'
    )
    slow = contended(960_000, 480_000)
    assert slow.to_dict()["d2h_contended_ppm"] == 960_000
    assert "h2d_contended_ppm" not in contended(960_000, 1_000_000).to_dict()
    for hardware in (LINK, slow):
        assert Hardware.from_dict(hardware.to_dict()) == hardware
    document = {**LINK.to_dict(), "d2h_contended_ppm": 1_000_000}
    assert Hardware.from_dict(document).to_dict() == LINK.to_dict()


@pytest.mark.parametrize("ppm", [9_999, 1_000_001, 0, 0.5, True, "480000"])
def test_shares_out_of_range_are_named(ppm):
    with pytest.raises(InvalidHardware, match="h2d_contended_ppm"):
        Hardware("toy", 1, 1, h2d_contended_ppm=ppm)
    with pytest.raises(InvalidHardware, match="h2d_contended_ppm"):
        Hardware.from_dict({**LINK.to_dict(), "h2d_contended_ppm": ppm})


@ENGINES
def test_a_transfer_too_long_to_count_is_named(engine):
    # 10^6 x 2^42.06 ns reaches 2^62: from 4,611,686,018,428 ns on. At one byte a second that is
    # beyond 4,611 B.
    def swaps(nbytes: int, hardware: Hardware):
        return simulate(Problem(three(4, nbytes), hardware), Plan({"z": "swap"}), engine)

    slow = Hardware("slow", 1, 10**9)
    assert swaps(4_612, slow).feasible
    limited = replace(slow, h2d_contended_ppm=500_000)
    assert swaps(4_611, limited).feasible
    with pytest.raises(InvalidPlan, match="swaps 'z', whose transfer of 4612 bytes"):
        swaps(4_612, limited)
    scorer = Scorer(Problem(three(4, 4_612), limited))
    assert scorer.score(np.array([[0, 1, 0], [0, 0, 1]])).valid.tolist() == [True, False]
    # Without contention the limit is that of 64-bit arithmetic.
    with pytest.raises(InvalidPlan, match="swaps 'z'"):
        swaps(2**50, slow)
