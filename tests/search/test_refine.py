"""SlackSwap+: never worse than the rule, and its knapsack against enumeration."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from drawing import random_case
from hypothesis import given, settings, strategies as st

from slackswap import Problem, load_hardware, load_profile, solve
from slackswap.search.slackswap_plus import _least_time


@settings(max_examples=150)
@given(st.integers(0, 2**40))
def test_never_worse_than_the_rule(seed):
    problem = random_case(seed).problem
    rule, plus = solve(problem, "slackswap"), solve(problem, "slackswap+")
    assert (rule.plan is None) == (plus.plan is None)
    if rule.plan is not None:
        assert plus.evaluation.iteration_ns <= rule.evaluation.iteration_ns


@settings(max_examples=100)
@given(st.integers(0, 2**40), st.integers(1, 19), st.integers(0, 2**40))
def test_a_larger_budget_is_never_slower(seed, rung, more):
    problem = random_case(seed).problem
    peak = problem.keep_all_peak_bytes
    if peak * rung // 20 == 0:
        return
    smaller = solve(problem.with_budget(peak * rung // 20), "slackswap+").evaluation
    if smaller is not None:
        budget = peak * rung // 20 + more % (peak + 1)
        larger = solve(problem.with_budget(budget), "slackswap+").evaluation
        assert larger is not None
        assert larger.iteration_ns <= smaller.iteration_ns


@settings(max_examples=200)
@given(st.integers(0, 2**40))
def test_the_knapsack_is_the_cheapest_of_all_subsets(seed):
    rng = random.Random(seed)
    count = rng.randint(1, 9)
    cost = np.array([rng.randint(1, 6) for _ in range(count)])
    freed = np.array([rng.randint(1, 6) for _ in range(count)])
    demand = rng.randint(0, int(freed.sum()) + 3)
    chosen = _least_time(cost, freed, demand)
    subsets = [
        np.array(subset, dtype=np.int64)
        for size in range(count + 1)
        for subset in itertools.combinations(range(count), size)
    ]
    enough = [subset for subset in subsets if freed[subset].sum() >= demand]
    if not enough:
        assert chosen is None
        return
    assert freed[chosen].sum() >= demand
    assert cost[chosen].sum() == min(cost[subset].sum() for subset in enough)


@pytest.mark.parametrize("name", ["opt-350m-a100", "bert-large"])
def test_better_than_the_rule_on_real_profiles_and_monotone(name):
    profile, hardware = load_profile(name), load_hardware("a100-80gb")
    times, gains = [], []
    for percent in range(40, 101, 10):
        problem = Problem(profile, hardware, f"{percent}%")
        plus = solve(problem, "slackswap+").evaluation.iteration_ns
        times.append(plus)
        gains.append(solve(problem, "slackswap").evaluation.iteration_ns - plus)
    assert times == sorted(times, reverse=True)
    assert min(gains) >= 0
    assert max(gains) > 0


def test_it_reports_each_better_plan():
    problem = Problem(load_profile("opt-350m-a100"), load_hardware("a100-80gb"), 0.8)
    solution = solve(problem, "slackswap+")
    times = [evaluation.iteration_ns for _, evaluation in solution.incumbent_evaluations()]
    assert times == sorted(times, reverse=True)
    assert times[-1] == solution.evaluation.iteration_ns
    assert len(times) > 1
