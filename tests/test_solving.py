"""`solve`: the framework scores, planners only answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import pytest
from samples import profile_document

import slackswap.solving as solving
from slackswap import (
    Bound,
    BoundMethod,
    BoundViolated,
    Capabilities,
    Hardware,
    Infeasible,
    InvalidPlan,
    InvalidPlanner,
    Plan,
    Problem,
    Profile,
    Skipped,
    Status,
    simulate,
    solve,
)
from slackswap.bound import status_with_gap

LINK = Hardware("toy", 10**9, 10**9)


def a_problem(budget=None) -> Problem:
    return Problem(Profile.from_dict(profile_document()), LINK, budget)


@dataclass(frozen=True, slots=True)
class Scripted:
    """Does what its parameters say."""

    name: ClassVar[str] = "scripted"
    version: ClassVar[str] = "9"
    capabilities: ClassVar[Capabilities] = Capabilities()

    actions: str = "{}"
    bound_ns: int = 0

    def plan(self, problem, *, rng, time_limit, report):
        report(rounds=1)
        report(rounds=2, draw=rng.random())
        report.incumbent(Plan())
        if self.bound_ns:
            report.bound(Bound(1, BoundMethod.COMPUTE))
            report.bound(Bound(self.bound_ns, BoundMethod.LP, solver="mine"))
        return Plan(json.loads(self.actions))


def test_the_answer_holds_plan_score_statistics_and_provenance():
    problem = a_problem()
    solution = solve(problem, Scripted, seed=5, actions='{"h": "swap"}')
    assert solution.status is Status.FEASIBLE
    assert solution.plan.actions == {"h": "swap"}
    assert solution.evaluation == simulate(problem, solution.plan)
    made_by = solution.plan.planner
    assert (made_by.name, made_by.version, made_by.seed) == ("scripted", "9", 5)
    assert made_by.parameters == {"actions": '{"h": "swap"}', "bound_ns": 0}
    assert solution.planner == made_by
    assert solution.statistics["rounds"] == 2
    assert solution.planning_s >= 0
    assert solution.warm_up_s >= 0
    ((when, score),) = solution.incumbent_evaluations()
    assert score == simulate(problem, Plan())
    assert when >= 0
    assert solution.incumbents[0][1].planner == made_by


def test_the_seed_is_the_only_randomness():
    draws = [solve(a_problem(), Scripted, seed=seed).statistics["draw"] for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_a_proven_best_plan_is_optimal():
    solution = solve(a_problem(), Scripted, bound_ns=30)
    assert solution.evaluation.iteration_ns == 30
    assert solution.bound.value_ns == 30  # the strongest of those reported
    assert solution.gap == 0
    assert solution.status is Status.OPTIMAL


def test_a_gap_is_relative_to_the_bound():
    solution = solve(a_problem(), Scripted, bound_ns=24)
    assert solution.status is Status.FEASIBLE
    assert solution.gap == pytest.approx(0.25)
    assert solution.gap_to(None) is None


def test_a_bound_that_excludes_gated_plans_says_nothing_of_them():
    solution = solve(a_problem(), Scripted, bound_ns=30)
    gated = replace(solution, plan=replace(solution.plan, offload_barriers=(0,)))
    plain = replace(solution.bound, gated=False)
    assert solution.gap_to(plain) == 0
    assert gated.gap_to(plain) is None
    assert gated.gap_to(solution.bound) == 0


def test_only_a_feasible_plan_that_meets_its_bound_becomes_optimal():
    assert status_with_gap(Status.FEASIBLE, 0.0) is Status.OPTIMAL
    assert status_with_gap(Status.FEASIBLE, 1e-9) is Status.FEASIBLE
    assert status_with_gap(Status.FEASIBLE, None) is Status.FEASIBLE
    assert status_with_gap(Status.TIMEOUT, 0.0) is Status.TIMEOUT


def test_a_bound_above_the_plans_own_time_is_refused():
    with pytest.raises(BoundViolated, match="31 ns lies above"):
        solve(a_problem(), Scripted, bound_ns=31)


def test_a_plan_that_does_not_fit_is_infeasible_with_the_place():
    solution = solve(a_problem(20), Scripted)
    assert solution.status is Status.INFEASIBLE
    assert not solution.evaluation.feasible
    assert solution.evaluation.iteration_ns is None
    assert "bytes short" in solution.reason
    assert solution.gap is None


@pytest.mark.parametrize(
    ("error", "status"),
    [(Infeasible("no way", where="budget"), Status.INFEASIBLE),
     (Skipped("needs a solver"), Status.SKIPPED)],
)
def test_planners_may_decline_with_a_reason(error, status):
    def declining(problem, *, rng, time_limit, report):
        report.bound(Bound(30, BoundMethod.COMPUTE))
        raise error

    solution = solve(a_problem(), declining)
    assert (solution.status, solution.plan, solution.evaluation) == (status, None, None)
    assert solution.reason == str(error)
    assert solution.bound.value_ns == 30  # kept without a plan


class Clock:
    """Stands still unless told to go on."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(solving, "time", SimpleNamespace(perf_counter=found))
    return found


@pytest.mark.parametrize(
    ("took", "status"), [(1.0, Status.FEASIBLE), (1.19, Status.FEASIBLE), (1.21, Status.TIMEOUT)]
)
def test_an_answer_long_after_the_time_limit_is_late(clock, took, status):
    def slow(problem, *, rng, time_limit, report):
        clock.now += took
        return Plan()

    solution = solve(a_problem(), slow, time_limit=1.0)
    assert solution.status is status
    assert solution.evaluation.feasible
    assert solution.planning_s == pytest.approx(took)


def test_the_time_limit_is_passed_on():
    def remembering(problem, *, rng, time_limit, report):
        report(limit=time_limit)
        return Plan()

    assert solve(a_problem(), remembering, time_limit=60).statistics["limit"] == 60
    assert solve(a_problem(), remembering).statistics["limit"] is None


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_time_limit_must_be_positive(limit):
    with pytest.raises(InvalidPlanner, match="not positive"):
        solve(a_problem(), Scripted, time_limit=limit)


def test_warm_up_is_not_planning(clock):
    @dataclass(frozen=True, slots=True)
    class Heavy:
        name: ClassVar[str] = "heavy"
        version: ClassVar[str] = "1"
        capabilities: ClassVar[Capabilities] = Capabilities()

        def warm_up(self):
            clock.now += 7

        def plan(self, problem, *, rng, time_limit, report):
            clock.now += 3
            return Plan()

    solution = solve(a_problem(), Heavy)
    assert (solution.warm_up_s, solution.planning_s) == (7, 3)


def test_what_is_not_a_plan_is_refused():
    with pytest.raises(InvalidPlanner, match="returned a dict"):
        solve(a_problem(), lambda problem, *, rng, time_limit, report: {"h": "keep"})
    with pytest.raises(InvalidPlan, match="'z'"):
        solve(a_problem(), Scripted, actions='{"z": "keep"}')


def test_a_fault_of_the_planner_is_not_hidden():
    def faulty(problem, *, rng, time_limit, report):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        solve(a_problem(), faulty)


def test_the_json_object_has_the_promised_keys():
    document = solve(a_problem(0.9), Scripted, actions='{"h": "swap"}').to_dict(with_plan=True)
    assert {
        "feasible", "iteration_ns", "forward_ns", "stall_forward_ns", "stall_backward_ns",
        "recompute_ns", "peak_bytes", "throughput", "offloaded_bytes", "prefetched_bytes",
        "d2h_utilisation", "h2d_utilisation", "infeasible", "profile", "planner", "status",
        "budget_bytes", "planning_s", "bound_ns", "gap",
    } <= set(document)
    assert Plan.from_dict(document["plan"]).actions == {"h": "swap"}
    json.dumps(document)
