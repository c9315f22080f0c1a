"""What the cost model promises of every plan."""

from __future__ import annotations

import numpy as np
from drawing import random_case
from hypothesis import assume, given, settings, strategies as st

from slackswap import Evaluation, InvalidPlan, Plan, Problem, simulate
from slackswap.result import EventKind, Stream

seeds = st.integers(0, 2**40)


def traced(seed: int) -> tuple[Problem, Plan, Evaluation]:
    case = random_case(seed)
    try:
        return case.problem, case.plan, simulate(case.problem, case.plan, timeline=True)
    except InvalidPlan:
        assume(False)
        raise


@settings(max_examples=800)
@given(seeds)
def test_memory_ends_at_the_inputs_and_never_exceeds_the_budget(seed):
    problem, _, result = traced(seed)
    if result.feasible:
        assert result.memory_curve[-1][1] == problem.profile.graph.input_bytes
        assert result.peak_bytes == max(level for _, level in result.memory_curve)
        assert result.peak_bytes <= problem.budget_bytes
    else:
        assert all(level <= problem.budget_bytes for _, level in result.memory_curve[1:])
        assert result.infeasible.shortfall_bytes > 0


@settings(max_examples=800)
@given(seeds)
def test_a_larger_budget_never_slows_a_plan_without_prefetch_barriers(seed):
    problem, plan, result = traced(seed)
    assume(result.feasible and not plan.prefetch_barriers and problem.is_limited)
    times = [
        simulate(problem.with_budget(problem.budget_bytes + extra), plan).iteration_ns
        for extra in (1, 10, 100, 2**30)
    ]
    assert [result.iteration_ns, *times] == sorted([result.iteration_ns, *times], reverse=True)


@settings(max_examples=300)
@given(seeds)
def test_keeping_everything_without_a_limit_takes_the_sum_of_durations(seed):
    problem = random_case(seed).problem.with_budget(None)
    result = simulate(problem, Plan())
    assert result.iteration_ns == problem.profile.duration_ns
    assert result.peak_bytes == problem.keep_all_peak_bytes
    assert result.throughput == 1.0


@settings(max_examples=300)
@given(seeds)
def test_keeping_everything_fits_exactly_from_its_peak_on(seed):
    problem = random_case(seed).problem
    peak = problem.keep_all_peak_bytes
    assume(peak > 1)
    assert simulate(problem.with_budget(peak), Plan()).feasible
    short = simulate(problem.with_budget(peak - 1), Plan())
    assert short.infeasible.shortfall_bytes == 1


@settings(max_examples=800)
@given(seeds)
def test_the_shortfall_is_enough_to_get_further(seed):
    problem, plan, result = traced(seed)
    assume(not result.feasible)
    more = problem.with_budget(problem.budget_bytes + result.infeasible.shortfall_bytes)
    again = simulate(more, plan)
    assert again.infeasible != result.infeasible


@settings(max_examples=800)
@given(seeds)
def test_the_timeline_accounts_for_every_nanosecond(seed):
    problem, _, result = traced(seed)
    assume(result.feasible)
    for stream in Stream:
        events = [event for event in result.timeline if event.stream is stream]
        ends = [event.end_ns for event in events]
        starts = [event.start_ns for event in events]
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    spent = dict.fromkeys(EventKind, 0)
    for event in result.timeline:
        spent[event.kind] += event.end_ns - event.start_ns
    assert spent[EventKind.STALL] == result.stall_forward_ns + result.stall_backward_ns
    assert spent[EventKind.RECOMPUTE] == result.recompute_ns
    assert spent[EventKind.OFFLOAD] == result.d2h_busy_ns
    assert spent[EventKind.PREFETCH] == result.h2d_busy_ns
    compute = (EventKind.STALL, EventKind.RECOMPUTE, EventKind.FORWARD, EventKind.BACKWARD)
    assert sum(spent[kind] for kind in compute) == result.iteration_ns
    assert result.iteration_ns == (
        problem.profile.duration_ns + result.recompute_ns + result.stall_ns
    )
    assert np.isclose(result.throughput * result.iteration_ns, problem.profile.duration_ns)
