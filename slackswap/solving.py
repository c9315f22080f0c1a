"""Asking a planner for a plan, and the referee for its score."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slackswap.bound import Bound, certified_gap
from slackswap.cost_model.engine import simulate, simulate_many, warm_up
from slackswap.display import render
from slackswap.errors import Infeasible, InvalidPlanner, Skipped
from slackswap.plan import Plan, PlannerInfo
from slackswap.planner import Planner, Report
from slackswap.problem import Problem
from slackswap.registry import PlannerLike, parameters_of, resolve_planner
from slackswap.result import Evaluation
from slackswap.status import Status

#: A planner may overrun its time limit by this factor before its answer counts as late.
TIME_LIMIT_TOLERANCE = 1.2


@dataclass(frozen=True, slots=True)
class Solution:
    """What came of asking a planner.

    Attributes
    ----------
    problem : Problem
        What was asked.
    planner : PlannerInfo
        Who was asked, with parameters and seed.
    status : Status
        `optimal` (the plan's gap to a proven bound is zero), `feasible`, `timeout` (the plan came
        too late), `infeasible` or `skipped`.
    plan : Plan or None
        The plan, with provenance.
    evaluation : Evaluation or None
        The referee's score of it.
    planning_s : float
        Time the planner searched.
    warm_up_s : float
        Time spent before: imports, compilation, laying out the profile's arrays.
    bound : Bound or None
        Strongest lower bound the planner reported.
    statistics : mapping
        What the planner reported of its work.
    incumbents : tuple of (float, Plan)
        Seconds since the start of planning, and the plan then found.
    reason : str
        Why there is no plan.
    """

    problem: Problem
    planner: PlannerInfo
    status: Status
    plan: Plan | None
    evaluation: Evaluation | None
    planning_s: float
    warm_up_s: float
    bound: Bound | None = None
    statistics: Mapping[str, Any] = field(default_factory=dict)
    incumbents: tuple[tuple[float, Plan], ...] = ()
    reason: str = ""

    @property
    def gap(self) -> float | None:
        """Certified gap to the planner's own bound, if it gave one."""
        return self.gap_to(self.bound)

    def gap_to(self, bound: Bound | None) -> float | None:
        """Certified gap to a bound; None without a bound or a plan that fits."""
        if bound is None or self.evaluation is None or self.evaluation.iteration_ns is None:
            return None
        return certified_gap(self.evaluation.iteration_ns, bound)

    def incumbent_evaluations(self) -> list[tuple[float, Evaluation]]:
        """Score the plans found on the way: seconds since the start, and the evaluation."""
        scores = simulate_many(self.problem, [plan for _, plan in self.incumbents])
        return [(when, score) for (when, _), score in zip(self.incumbents, scores, strict=True)]

    def to_dict(self, *, with_plan: bool = False) -> dict[str, Any]:
        """Return a JSON object: the evaluation's fields and how they came about."""
        evaluation = self.evaluation or Evaluation(feasible=False)
        document = {
            "profile": self.problem.profile.name,
            "hardware": self.problem.hardware.name,
            "planner": self.planner.name,
            "planner_version": self.planner.version,
            "parameters": dict(self.planner.parameters),
            "seed": self.planner.seed,
            "status": str(self.status),
            "reason": self.reason,
            "budget_bytes": self.problem.budget_bytes if self.problem.is_limited else None,
            **evaluation.to_dict(),
            "planning_s": self.planning_s,
            "warm_up_s": self.warm_up_s,
            "statistics": dict(self.statistics),
            **(self.bound.to_dict() if self.bound else {"bound_ns": None}),
            "gap": self.gap,
        }
        if with_plan:
            document["plan"] = None if self.plan is None else self.plan.to_dict()
        return document

    def _repr_html_(self) -> str:
        return render(self)


def solve(
    problem: Problem,
    planner: PlannerLike,
    *,
    seed: int = 0,
    time_limit: float | None = None,
    **parameters: Any,
) -> Solution:
    """Ask a planner for a plan and score it.

    Parameters
    ----------
    problem : Problem
        What to plan for.
    planner : str, Planner, type or callable
        As `resolve_planner` takes it.
    seed : int
        Seeds the only source of randomness a planner is given.
    time_limit : float, optional
        Seconds the planner may take. It is passed on, and an answer that comes much later counts
        as `timeout`; to stop a planner that does not return, run it through the evaluation suite.
    **parameters
        Replace the planner's own parameters.

    Returns
    -------
    Solution
        With status `infeasible` or `skipped` and the reason when there is no plan.

    Raises
    ------
    InvalidPlan
        When the planner returns a plan that cannot be carried out.
    InvalidPlanner
        When the planner cannot be loaded, or returns something that is not a plan.
    BoundViolated
        When the planner reports a bound above its own plan's simulated time.
    """
    if time_limit is not None and not time_limit > 0:
        raise InvalidPlanner(
            f"time limit {time_limit} is not positive", where="time_limit", fix="give seconds > 0"
        )
    started = time.perf_counter()
    chosen = resolve_planner(planner, **parameters)
    _prepare(problem, chosen)
    info = PlannerInfo(chosen.name, chosen.version, parameters_of(chosen), seed)
    ready = time.perf_counter()
    warm_up_s = ready - started

    report = Report()
    plan: Plan | None = None
    status, reason = Status.FEASIBLE, ""
    try:
        plan = chosen.plan(
            problem, rng=random.Random(seed), time_limit=time_limit, report=report
        )
    except Infeasible as error:
        status, reason = Status.INFEASIBLE, str(error)
    except Skipped as error:
        status, reason = Status.SKIPPED, str(error)
    planning_s = time.perf_counter() - ready

    evaluation: Evaluation | None = None
    if plan is not None:
        if not isinstance(plan, Plan):
            raise InvalidPlanner(
                f"{chosen.name} returned a {type(plan).__name__}, not a Plan",
                where="planner", fix="return slackswap.Plan(actions={...})",
            )
        plan = plan.with_planner(info)
        evaluation = simulate(problem, plan)
        if not evaluation.feasible:
            status, reason = Status.INFEASIBLE, f"its plan does not fit: {evaluation.infeasible}"
        elif time_limit is not None and planning_s > TIME_LIMIT_TOLERANCE * time_limit:
            status, reason = Status.TIMEOUT, f"answered after {planning_s:.3g} s"
    bound = max(report.bounds, key=lambda bound: bound.value_ns, default=None)
    solution = Solution(
        problem=problem,
        planner=info,
        status=status,
        plan=plan,
        evaluation=evaluation,
        planning_s=planning_s,
        warm_up_s=warm_up_s,
        bound=bound,
        statistics=dict(report.statistics),
        incumbents=tuple((when, found.with_planner(info)) for when, found in report.incumbents),
        reason=reason,
    )
    return _judged(solution)


def _prepare(problem: Problem, planner: Planner) -> None:
    """Do what is done once, whoever plans: compile, lay out arrays, import a planner's tools."""
    warm_up()
    _ = problem.profile.graph
    own_warm_up = getattr(planner, "warm_up", None)
    if own_warm_up is not None:
        own_warm_up()


def _judged(solution: Solution) -> Solution:
    proven = solution.status is Status.FEASIBLE and solution.gap == 0.0
    return replace(solution, status=Status.OPTIMAL) if proven else solution
