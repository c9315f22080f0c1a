"""Reference and kernel agree on every field, to the nanosecond and the byte."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from drawing import random_case
from hypothesis import given, settings, strategies as st

from slackswap import Evaluation, InvalidPlan, Plan, Problem, simulate, simulate_many
from slackswap.cost_model import reference
from slackswap.cost_model.scorer import Scorer

seeds = st.integers(0, 2**40)


def outcome(problem: Problem, plan: Plan, engine: str) -> Evaluation | str:
    try:
        result = simulate(problem, plan, engine)
    except InvalidPlan as error:
        return str(error)
    return replace(result, memory_curve=None, timeline=None)


@settings(max_examples=10_000)
@given(seeds)
def test_engines_agree(seed):
    case = random_case(seed)
    kernel = outcome(case.problem, case.plan, "kernel")
    assert kernel == outcome(case.problem, case.plan, "reference")


def test_the_cases_cover_what_can_happen():
    """The draw above would prove little if most plans were infeasible or trivial."""
    seen = Counter()
    for seed in range(600):
        case = random_case(seed)
        hardware, plan = case.problem.hardware, case.plan
        result = outcome(case.problem, plan, "kernel")
        if isinstance(result, str):
            seen["invalid"] += 1
            continue
        seen["feasible" if result.feasible else f"stuck {result.infeasible.phase}"] += 1
        if result.feasible:
            seen["stalls forward"] += result.stall_forward_ns > 0
            seen["stalls backward"] += result.stall_backward_ns > 0
            seen["recomputes"] += result.recompute_ns > 0
            seen["swaps"] += result.offloaded_bytes > 0
            seen["half duplex swaps"] += result.offloaded_bytes > 0 and not hardware.full_duplex
            seen["gated swaps"] += result.offloaded_bytes > 0 and bool(plan.offload_gates)
            seen["barrier swaps"] += result.offloaded_bytes > 0 and bool(plan.prefetch_barriers)
        elif result.infeasible.tensor:
            seen["stuck on a tensor"] += 1
        elif result.infeasible.recompute:
            seen["stuck on a recompute"] += 1
    assert len(seen) == 13
    assert min(seen.values()) >= 5, seen
    assert seen["feasible"] >= 200


@settings(max_examples=300)
@given(seeds)
def test_a_batch_gives_what_single_calls_give(seed):
    cases = [random_case(seed + offset) for offset in range(4)]
    problem = cases[0].problem
    plans = [random_plan_of(problem, seed + offset) for offset in range(4)]
    expected = [outcome(problem, plan, "reference") for plan in plans]
    if any(isinstance(result, str) for result in expected):
        with pytest.raises(InvalidPlan, match=r"plans\[\d\]|cannot"):
            simulate_many(problem, plans)
        return
    for jobs in (1, 2, 3):
        assert simulate_many(problem, plans, jobs=jobs) == expected
    assert simulate_many(problem, plans, "reference") == expected


def random_plan_of(problem: Problem, seed: int) -> Plan:
    import random

    from drawing import random_plan

    rng = random.Random(seed)
    while True:
        plan = random_plan(rng, problem)
        try:
            problem.check_plan(plan)
        except InvalidPlan:
            continue
        return plan


@settings(max_examples=500)
@given(seeds)
def test_codes_round_trip_through_plans(seed):
    case = random_case(seed, ordered=False)
    scorer = Scorer(case.problem)
    codes = scorer.encode(case.plan)
    assert np.array_equal(scorer.encode(scorer.decode(codes)), codes)
    scores = scorer.score(codes)
    result = outcome(case.problem, case.plan, "reference")
    assert bool(scores.valid[0]) is not isinstance(result, str)
    if not isinstance(result, str):
        assert bool(scores.feasible[0]) is result.feasible


def test_codes_that_break_rules_are_marked_not_scored():
    case = random_case(3)
    scorer = Scorer(case.problem)
    codes = np.full_like(scorer.default, 2)  # also recomputes the inputs
    assert scorer.graph.is_input.any()
    scores = scorer.score(codes)
    assert not scores.valid[0]
    assert not scores.feasible[0]


def test_an_empty_batch_is_an_empty_answer():
    problem = random_case(1).problem
    assert simulate_many(problem, []) == []


def test_the_environment_selects_the_reference(monkeypatch):
    case = random_case(2)
    monkeypatch.setenv("SLACKSWAP_ENGINE", "python")
    result = simulate(case.problem, case.plan)
    assert result.timeline is not None
    monkeypatch.setenv("SLACKSWAP_ENGINE", "fortran")
    with pytest.raises(Exception, match="SLACKSWAP_ENGINE: engine 'fortran' is not known"):
        simulate(case.problem, case.plan)


@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_a_timeline_is_simulated_once(engine, monkeypatch):
    case, calls = random_case(2), []
    once = reference.simulate

    def counted(problem, plan):
        calls.append(plan)
        return once(problem, plan)

    monkeypatch.setattr(reference, "simulate", counted)
    assert simulate(case.problem, case.plan, engine, timeline=True).timeline is not None
    assert len(calls) == 1
