import itertools

import numpy as np
import pytest
from bounding import small_problem
from handmade import LINK, actions_of, chain
from hypothesis import assume, given, settings, strategies as st

from slackswap import (
    Action,
    BackwardOp,
    ForwardOp,
    Hardware,
    InvalidPlan,
    Plan,
    Problem,
    Profile,
    Skipped,
    Status,
    Tensor,
    simulate,
    solve,
)
from slackswap.cost_model.scorer import Scorer
from slackswap.search import lower_bound
from slackswap.search.enumeration import Decisions, enumerate_plans


def _every_plan(problem):
    """All plans by the plan language alone, without asking what makes a difference."""
    tensors = [t for i, t in enumerate(problem.profile.tensors)
               if not problem.profile.graph.is_input[i]]
    for actions in itertools.product(Action, repeat=len(tensors)):
        yield Plan({t.name: action for t, action in zip(tensors, actions, strict=True)})


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_nothing_is_left_out(seed):
    problem = small_problem(seed, most_plans=800)
    assume(problem is not None)
    assume(sum(~problem.profile.graph.is_input) <= 5)
    best = None
    for plan in _every_plan(problem):
        try:
            evaluation = simulate(problem, plan, "reference")
        except InvalidPlan:
            continue
        if evaluation.feasible and (best is None or evaluation.iteration_ns < best):
            best = evaluation.iteration_ns
    assert enumerate_plans(problem).iteration_ns == best


def test_chunks_hold_each_plan_once():
    problem = Problem(chain([1] * 8), LINK)
    decisions = Decisions.of(Scorer(problem))
    codes = np.concatenate(list(decisions.chunks()))
    assert len(codes) == decisions.count == 3**7
    assert len(np.unique(codes, axis=0)) == len(codes)


def test_what_makes_a_difference():
    # x is an input; u only feeds w, which cannot run again, so storing u changes nothing; v may
    # only be kept; w may be kept or swapped.
    profile = Profile(
        "roles", "random",
        (Tensor("x", 1), Tensor("u", 1), Tensor("v", 1, (Action.KEEP,)),
         Tensor("w", 1, (Action.KEEP, Action.SWAP)), Tensor("y", 1)),
        (ForwardOp("f0", 1, (0,), (1, 2)), ForwardOp("f1", 1, (1,), (3,), recomputable=False),
         ForwardOp("f2", 1, (3,), (4,))),
        (BackwardOp("b0", 1, (4,)), BackwardOp("b1", 1, (2, 3))),
    )
    decisions = Decisions.of(Scorer(Problem(profile, LINK)))
    assert decisions.tensors == (3, 4)
    assert [options.tolist() for options in decisions.options] == [[0, 1], [0, 1, 2]]


def test_an_intermediate_that_a_closure_reads_is_decided():
    # u feeds t only, and t may be recomputed from it.
    profile = Profile(
        "stored", "random", (Tensor("x", 0), Tensor("u", 3), Tensor("t", 3)),
        (ForwardOp("f0", 100, (0,), (1,)), ForwardOp("f1", 1, (1,), (2,))),
        (BackwardOp("b", 1, (2,)),),
    )
    assert Decisions.of(Scorer(Problem(profile, LINK))).count == 9


def test_too_many_are_refused():
    problem = Problem(chain([1] * 14), LINK, 9)
    with pytest.raises(Skipped, match="13 tensors"):
        enumerate_plans(problem)
    assert solve(problem, "enumerate").status is Status.SKIPPED
    assert Decisions.of(Scorer(Problem(chain([1] * 13), LINK))).count == 3**12


def test_planner_and_bound_agree():
    profile = chain([10, 10, 10], forward_ns=[30, 40, 40], backward_ns=[20, 20, 20])
    problem = Problem(profile, LINK.with_link(0.125), 20)
    solution = solve(problem, "enumerate")
    assert actions_of(solution) == {"t0": "recompute"}
    assert solution.status is Status.OPTIMAL
    bound = lower_bound(problem, "enumeration")
    assert bound.value_ns == solution.evaluation.iteration_ns == profile.duration_ns + 30
    assert bound.safe
    assert not bound.gated
    assert "9 plans" in bound.note


def test_threads_change_nothing():
    problem = Problem(chain([3, 1, 4, 1, 5, 9, 2, 6]), LINK, 20)
    alone, together = (enumerate_plans(problem, jobs=jobs) for jobs in (1, 2))
    assert alone.iteration_ns == together.iteration_ns
    assert alone.feasible == together.feasible
    assert (alone.codes == together.codes).all()


def test_none_fits():
    problem = Problem(chain([10, 10, 10]), LINK, 19)
    bound = lower_bound(problem, "enumeration")
    assert bound.status is Status.INFEASIBLE
    assert bound.value_ns == problem.profile.duration_ns
    solution = solve(problem, "enumerate")
    assert solution.status is Status.INFEASIBLE
    assert "none of all 9 plans fits" in solution.reason


def test_restricted():
    problem = Problem(chain([3, 1, 4, 1, 5]), LINK, 12)
    for options, forbidden in (({"allow_swap": False}, 1), ({"allow_recompute": False}, 2)):
        enumerated = enumerate_plans(problem, **options)
        saved = problem.profile.graph.is_saved
        if enumerated.codes is not None:
            assert forbidden not in enumerated.codes[saved]
        assert enumerated.plans == 2**4


def test_storing_what_nobody_reads_can_make_a_plan_fit():
    # f writes a (saved, 10) and u (40), which nothing reads. Budget 60: g needs 50 more while a is
    # dropped. In the backward pass f runs again for a: with u it would write 50 beside the 20 of
    # workspace that its backward op carries; with u stored it writes 10. (That a stored tensor that
    # no step reads counts as dropped frees it; that it is stored keeps f from writing it.)
    profile = Profile(
        "unread", "random", (Tensor("a", 10), Tensor("u", 40), Tensor("b", 50)),
        (ForwardOp("f", 1, (), (0, 1)), ForwardOp("g", 1, (), (2,), workspace=8)),
        (BackwardOp("gb", 1, (2,)), BackwardOp("fb", 1, (0,), workspace=20, carried=20)),
    )
    problem = Problem(profile, Hardware("none", 1, 1, latency_ns=10**6), 59)
    without, stored = Plan({"a": "recompute"}), Plan({"a": "recompute", "u": "keep"})
    assert not simulate(problem, without).feasible
    assert simulate(problem, stored).iteration_ns == 5
    assert enumerate_plans(problem).iteration_ns == 5
