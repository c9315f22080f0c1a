"""Scorers of the same problem with other durations, hardware or budget."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from drawing import random_case, random_plan
from hypothesis import given, settings, strategies as st

from slackswap import InvalidPlan, InvalidProfile, Plan, Problem
from slackswap.cost_model.scorer import Scorer
from slackswap.profiles.generators.random_dag import random_hardware

seeds = st.integers(0, 2**40)


def accepted(problem: Problem, plans: list[Plan]) -> list[Plan]:
    found = []
    for plan in plans:
        try:
            problem.check_plan(plan)
        except InvalidPlan:
            continue
        found.append(plan)
    return found


def same(changed: Scorer, rebuilt: Problem, plans: list[Plan]) -> None:
    """All that a changed scorer says is what one built anew says."""
    fresh = Scorer(rebuilt)
    ours, theirs = changed.score_plans(plans), fresh.score_plans(plans)
    assert np.array_equal(ours.table, theirs.table)
    assert np.array_equal(ours.valid, theirs.valid)
    for number in np.flatnonzero(theirs.valid).tolist():
        assert ours.evaluation(number) == theirs.evaluation(number)
    assert changed.problem == rebuilt
    assert np.array_equal(changed.graph.forward_ns, rebuilt.profile.graph.forward_ns)
    assert np.array_equal(changed.d2h_ns, fresh.d2h_ns)
    assert np.array_equal(changed.allowed, fresh.allowed)


@settings(max_examples=300)
@given(seeds)
def test_changed_scorers_equal_rebuilt_ones(seed):
    rng = random.Random(seed)
    problem = random_case(seed, contended=rng.random() < 0.5).problem
    profile = problem.profile
    scorer = Scorer(problem)
    plans = accepted(problem, [random_plan(rng, problem) for _ in range(6)])
    before = scorer.score_plans(plans).table
    forward = [rng.randint(0, 40) for _ in profile.forward]
    backward = [rng.randint(0, 40) for _ in profile.backward]
    other = replace(
        profile,
        forward=tuple(replace(op, duration_ns=ns)
                      for op, ns in zip(profile.forward, forward, strict=True)),
        backward=tuple(replace(op, duration_ns=ns)
                       for op, ns in zip(profile.backward, backward, strict=True)),
    )
    slower = scorer.with_durations(forward, backward)
    same(slower, replace(problem, profile=other), plans)
    hardware = random_hardware(rng, contended=rng.random() < 0.5)
    same(scorer.with_hardware(hardware), problem.with_hardware(hardware), plans)
    budget = rng.randint(1, 2 * problem.keep_all_peak_bytes + 1)
    same(scorer.with_budget(budget), problem.with_budget(budget), plans)
    # Changes add up, in any order, and leave the first scorer as it was.
    rebuilt = Problem(other, hardware, budget)
    same(slower.with_budget(budget).with_hardware(hardware), rebuilt, plans)
    changed = scorer.with_hardware(hardware).with_budget(budget).with_durations(forward, backward)
    same(changed, rebuilt, plans)
    assert scorer.problem is problem
    assert np.array_equal(scorer.score_plans(plans).table, before)


def test_a_scorer_keeps_its_durations_when_the_callers_array_changes():
    problem = random_case(5).problem
    graph = problem.profile.graph
    forward, backward = graph.forward_ns + 1, graph.backward_ns.copy()
    scorer = Scorer(problem).with_durations(forward, backward)
    first = scorer.score(scorer.default).table
    forward[:] = 10**6
    assert np.array_equal(scorer.score(scorer.default).table, first)


@pytest.mark.parametrize(("forward", "message"), [
    ([1], "forward_ns: has the shape"),
    ([1.5, 1.0], "forward_ns: is of type float64"),
    ([-1, 1], "forward_ns: lies between -1 and 1 ns"),
    ([2**60, 1], "durations: durations add up to"),
])
def test_durations_that_no_profile_could_have_are_named(forward, message):
    from handmade import LINK, chain

    problem = Problem(chain([1, 2]), LINK)
    backward = np.ones(problem.profile.graph.n_backward, dtype=np.int64)
    with pytest.raises(InvalidProfile, match=message):
        Scorer(problem).with_durations(forward, backward)
