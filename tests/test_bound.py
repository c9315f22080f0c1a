"""The gap and the word "optimal": one definition each."""

from __future__ import annotations

import pytest

from slackswap import Bound, BoundMethod, Hardware, Plan, Problem, certified_gap, solve
from slackswap.bound import gap_of_plan, status_with_gap
from slackswap.errors import BoundViolated
from slackswap.profiles import random_problem
from slackswap.status import Status

BOUND = Bound(100, BoundMethod.LAGRANGIAN)
PLAIN = Bound(100, BoundMethod.ENUMERATION, gated=False)


def test_the_gap_of_a_time():
    assert certified_gap(110, BOUND) == pytest.approx(0.1)
    assert certified_gap(100, BOUND) == 0.0
    with pytest.raises(BoundViolated, match="above a simulated time"):
        certified_gap(99, BOUND)
    assert certified_gap(99, Bound(100, BoundMethod.MILP, tolerance=0.02)) == 0.0


def test_a_plan_that_fits_contradicts_a_proof_that_none_does():
    with pytest.raises(BoundViolated, match="proves cannot"):
        certified_gap(110, Bound(100, BoundMethod.LP, status=Status.INFEASIBLE))


def test_a_bound_on_plans_without_gates_says_nothing_of_one_with():
    assert gap_of_plan(110, PLAIN, has_order=True) is None
    assert gap_of_plan(90, PLAIN, has_order=True) is None  # it may even be faster
    assert gap_of_plan(110, PLAIN, has_order=False) == pytest.approx(0.1)
    assert gap_of_plan(None, BOUND, has_order=False) is None
    assert gap_of_plan(110, None, has_order=False) is None


def test_a_solution_states_no_gap_to_a_bound_that_does_not_hold_for_it():
    import random

    problem = random_problem(random.Random(3), 6)
    swappable = [t.name for t in problem.profile.tensors if "swap" in t.allowed]

    def gated(problem: Problem, *, rng: object, time_limit: object, report: object) -> Plan:
        return Plan({}, offload_barriers=(0,))

    assert swappable
    solution = solve(Problem(problem.profile, Hardware("link", 1, 1)), gated)
    assert solution.gap_to(Bound(1, BoundMethod.ENUMERATION, gated=False)) is None
    assert solution.gap_to(Bound(1, BoundMethod.LP)) is not None


@pytest.mark.parametrize("status", Status)
def test_only_a_plan_in_time_becomes_optimal(status):
    expected = Status.OPTIMAL if status is Status.FEASIBLE else status
    assert status_with_gap(status, 0.0) is expected
    assert status_with_gap(status, 0.1) is status
    assert status_with_gap(status, None) is status
