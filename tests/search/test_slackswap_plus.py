"""SlackSwap+: what it promises, and against enumeration."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from drawing import random_case
from hypothesis import given, settings, strategies as st

from slackswap import Problem, load_hardware, load_profile, solve
from slackswap.cost_model.scorer import Scorer
from slackswap.planner import Report
from slackswap.profiles.generators.random_dag import UNRESTRICTED, random_problem
from slackswap.search.enumeration import Decisions, enumerate_plans
from slackswap.search.knapsack import least_time
from slackswap.search.local_search import changed, joint_changes, polish, single_changes
from slackswap.search.slackswap_plus import SlackSwapPlus


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


@settings(max_examples=150)
@given(st.integers(0, 2**40))
def test_no_change_of_one_tensor_makes_it_faster(seed):
    problem = random_case(seed).problem
    solution = solve(problem, "slackswap+")
    if solution.plan is None:
        return
    assert solution.statistics["locally_optimal"]
    scorer = Scorer(problem)
    changes = single_changes(Decisions.of(scorer))
    if changes:
        scores = scorer.score(changed(scorer.encode(solution.plan), changes))
        best = scores.best()
        assert best is None or scores.iteration_ns[best] >= solution.evaluation.iteration_ns


@pytest.mark.parametrize("name", ["opt-350m-a100", "resnet50-hf"])
def test_no_change_of_one_tensor_makes_it_faster_on_models(name):
    problem = Problem(load_profile(name), load_hardware("a100-80gb"), 0.45)
    solution = solve(problem, "slackswap+")
    assert solution.statistics["locally_optimal"]
    scorer = Scorer(problem)
    scores = scorer.score(
        changed(scorer.encode(solution.plan), single_changes(Decisions.of(scorer)))
    )
    assert scores.iteration_ns[scores.best()] >= solution.evaluation.iteration_ns


def test_it_says_when_it_was_stopped_before_that():
    problem = Problem(load_profile("opt-350m-a100"), load_hardware("a100-80gb"), 0.5)
    assert not solve(problem, "slackswap+", polish=10).statistics["locally_optimal"]


def test_small_problems_against_enumeration():
    """The fastest plan of all on nearly every random problem; the rule is near it on average."""
    gaps: dict[str, list[float]] = {"slackswap": [], "slackswap+": []}
    for seed in range(320):
        rng = random.Random(seed + 10_000)
        problem = random_problem(rng, rng.randint(4, 8), traits=UNRESTRICTED)
        if Decisions.of(Scorer(problem)).count > 3**8:
            continue
        fastest = enumerate_plans(problem).iteration_ns
        for name, found in gaps.items():
            evaluation = solve(problem, name).evaluation
            assert (evaluation is None) == (fastest is None)
            if evaluation is not None:
                found.append(evaluation.iteration_ns / fastest - 1)
    assert len(gaps["slackswap+"]) > 40
    assert max(gaps["slackswap+"]) < 0.02
    assert np.mean(gaps["slackswap"]) < 0.01


def test_each_plan_is_counted_once(monkeypatch):
    scored = 0
    original = Scorer.score

    def counting(self, codes, **keywords):
        nonlocal scored
        scored += len(np.atleast_2d(codes))
        return original(self, codes, **keywords)

    monkeypatch.setattr(Scorer, "score", counting)
    report = Report()
    problem = Problem(load_profile("opt-350m-a100"), load_hardware("a100-80gb"), 0.5)
    SlackSwapPlus().plan(problem, rng=random.Random(0), time_limit=None, report=report)
    assert report.statistics["evaluations"] == scored


@settings(max_examples=100)
@given(st.integers(0, 2**40))
def test_polishing_ends_where_no_joint_change_helps(seed):
    case = random_case(seed)
    scorer, decisions = Scorer(case.problem), Decisions.of(Scorer(case.problem))
    start = scorer.encode(case.plan)
    scores = scorer.score(start)
    if not scores.feasible[0] or not decisions.tensors:
        return
    codes, _ = polish(scorer, start, decisions, evaluations=10**9)
    time = scorer.score(codes).iteration_ns[0]
    assert time <= scores.iteration_ns[0]
    changes = [*single_changes(decisions), *joint_changes(decisions)]
    around = scorer.score(changed(codes, changes))
    best = around.best()
    assert best is None or around.iteration_ns[best] >= time


@settings(max_examples=200)
@given(st.integers(0, 2**40))
def test_the_knapsack_is_the_cheapest_of_all_subsets(seed):
    rng = random.Random(seed)
    count = rng.randint(1, 9)
    cost = np.array([rng.randint(1, 6) for _ in range(count)])
    freed = np.array([rng.randint(1, 6) for _ in range(count)])
    demand = rng.randint(0, int(freed.sum()) + 3)
    chosen = least_time(cost, freed, demand)
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
