from random import Random

import pytest
from handmade import LINK, actions_of, chain, plan_of

from slackswap import InvalidPlanner, Problem, Skipped, Status, load_profile, solve
from slackswap.profiles.generators.random_dag import Traits, random_problem
from slackswap.profiles.library import profile_hardware
from slackswap.search.bounds import lower_bound
from slackswap.search.enumeration import enumerate_plans
from slackswap.search.recompute_milp import RecomputeMilp


def test_the_cheapest_that_makes_room():
    # t0, t1 and t2 have 10, 10 and 14 bytes and take 30, 25 and 20 ns; t3 has no size. While f4
    # writes t4, of 10 bytes, 44 are in use. With 36, 8 must go: t0 costs 30, t1 25 (from t0), t2 20
    # (from t1). How fast the link is does not matter.
    profile = chain([10, 10, 14, 0, 10, 0], forward_ns=[30, 25, 20, 10, 10, 10])
    solution = plan_of(profile, 36, RecomputeMilp(), LINK.with_link(1000))
    assert actions_of(solution) == {"t2": "recompute"}
    assert solution.evaluation.recompute_ns == 20
    assert solution.statistics["recompute_bound_ns"] <= solution.evaluation.iteration_ns
    assert solution.bound is None  # it would not hold for plans that swap


def test_bound_enumeration_and_replay_are_in_order():
    # bound <= best of all plans without swapping <= replayed plan, on problems small enough to
    # enumerate; and where no plan fits, none is found.
    optimal = solved = 0
    traits = Traits(restricted=0.1, not_recomputable=0.1)
    for seed in range(60):
        problem = random_problem(Random(seed), 7, traits=traits)
        problem = problem.with_budget(int(problem.keep_all_peak_bytes * 0.85) or 1)
        try:
            best = enumerate_plans(problem, allow_swap=False)
        except Skipped:  # too many tensors to enumerate
            continue
        solution = solve(problem, RecomputeMilp(relative_gap=0))
        if best.iteration_ns is None:
            assert solution.status is Status.INFEASIBLE
            continue
        bound = lower_bound(problem, "milp", allow_swap=False, relative_gap=0)
        assert bound.value_ns <= best.iteration_ns
        if solution.status.has_plan:
            solved += 1
            assert best.iteration_ns <= solution.evaluation.iteration_ns
            assert solution.statistics["recompute_bound_ns"] <= best.iteration_ns
            optimal += best.iteration_ns == solution.evaluation.iteration_ns
    assert solved >= 10
    assert optimal >= 0.7 * solved


def test_it_never_swaps_and_beats_checkpointing_of_blocks():
    problem = Problem(load_profile("bert-large"), profile_hardware("bert-large"), 0.6)
    solution = solve(problem, RecomputeMilp(relative_gap=0.01))
    assert "swap" not in actions_of(solution).values()
    blocks = solve(problem, "block-checkpointing")
    assert solution.evaluation.iteration_ns < blocks.evaluation.iteration_ns
    assert solution.evaluation.iteration_ns <= 1.01 * solution.statistics["recompute_bound_ns"]


def test_parameters_are_checked():
    with pytest.raises(InvalidPlanner, match="relative_gap"):
        RecomputeMilp(relative_gap=1)
