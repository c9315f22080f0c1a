"""Asking a planner for a plan, and scoring what it answers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slackswap.bound import Bound, gap_of_plan, status_with_gap
from slackswap.cost_model.engine import simulate, simulate_many, warm_up
from slackswap.display import render
from slackswap.errors import Infeasible, InvalidPlanner, Skipped
from slackswap.plan import Plan, PlannerInfo
from slackswap.planner import Capabilities, Planner, Report
from slackswap.problem import Problem, checked_problem
from slackswap.quantities import as_integer, as_number
from slackswap.registry import PlannerLike, parameters_of, resolve_planner
from slackswap.result import Evaluation
from slackswap.status import Status

#: A planner may overrun its time limit by this factor before its answer counts as late.
TIME_LIMIT_TOLERANCE = 1.2


@dataclass(frozen=True, slots=True)
class Reply:
    """What a planner answered, before anything of it is scored.

    Attributes
    ----------
    planner : PlannerInfo
        Who answered, with parameters and seed.
    capabilities : Capabilities
        What it promises.
    status : Status
        `feasible` with a plan; else `infeasible`, `skipped`, or `timeout` when it was stopped.
    plan : Plan or None
        The plan.
    planning_s, warm_up_s : float
        Time it searched, and time spent before.
    bounds : tuple of Bound
        Lower bounds it reported.
    statistics : mapping
        What it reported of its work.
    incumbents : tuple of (float, Plan)
        Seconds since the start of planning, and the plan then found.
    reason : str
        Why there is no plan.
    printed : str
        What it printed, shortened, where its output was captured.
    """

    planner: PlannerInfo
    capabilities: Capabilities
    status: Status
    plan: Plan | None
    planning_s: float
    warm_up_s: float
    bounds: tuple[Bound, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)
    incumbents: tuple[tuple[float, Plan], ...] = ()
    reason: str = ""
    printed: str = ""


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
        Its score.
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
    printed : str
        What the planner printed, shortened, where its output was captured.
    deterministic : bool
        Whether the planner says that its plan does not depend on the seed.
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
    printed: str = ""
    deterministic: bool = True

    @property
    def gap(self) -> float | None:
        """Certified gap to the planner's own bound, if it gave one."""
        return self.gap_to(self.bound)

    def gap_to(self, bound: Bound | None) -> float | None:
        """Certified gap to a bound; None without a plan that fits or a bound that holds for it."""
        return gap_of_plan(
            None if self.evaluation is None else self.evaluation.iteration_ns, bound,
            has_order=self.plan is not None and self.plan.has_order,
        )

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
            "warning": self.problem.warning,
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
    """Ask a planner for a plan and score it, in this process.

    The planner runs where the caller does: it can print, change what it is given by tricks that no
    read-only array stops, or never return. ``slackswap plan``, ``slackswap compare`` and suites ask
    planners that are not built in through `slackswap.evaluation.run.isolated.solve_isolated`
    instead, in a process that ends with the answer.

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
        as `timeout`; a planner that does not return is not stopped.
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
    reply = ask(problem, planner, seed=seed, time_limit=time_limit, parameters=parameters)
    return judge(problem, reply, time_limit=time_limit)


def ask(
    problem: Problem,
    planner: PlannerLike,
    *,
    seed: int = 0,
    time_limit: float | None = None,
    parameters: Mapping[str, Any] | None = None,
    told: Callable[[str], None] = lambda moment: None,
) -> Reply:
    """Ask a planner for a plan, and score nothing; arguments and errors as for `solve`.

    `told` hears ``ready`` when all is prepared and ``done`` when the planner has returned.
    """
    checked_problem(problem)
    seed = as_integer(seed, "seed", InvalidPlanner, fix="give a whole number")
    time_limit = checked_time_limit(time_limit)
    started = time.perf_counter()
    chosen = resolve_planner(planner, **(parameters or {}))
    _prepare(problem, chosen)
    info = PlannerInfo(str(chosen.name), str(chosen.version), parameters_of(chosen), seed)
    told("ready")
    ready = time.perf_counter()

    report = Report()
    plan: Plan | None = None
    status, reason = Status.FEASIBLE, ""
    try:
        plan = chosen.plan(
            problem, rng=random.Random(seed), time_limit=time_limit, report=report
        )
        if not isinstance(plan, Plan):
            raise InvalidPlanner(
                f"{chosen.name} returned a {type(plan).__name__}, not a Plan",
                where="planner", fix="return slackswap.Plan(actions={...})",
            )
    except Infeasible as error:
        status, reason = Status.INFEASIBLE, str(error)
    except Skipped as error:
        status, reason = Status.SKIPPED, str(error)
    finally:
        planning_s = time.perf_counter() - ready
        told("done")
    return Reply(
        planner=info,
        capabilities=chosen.capabilities,
        status=status,
        plan=None if plan is None else plan.with_planner(info),
        planning_s=planning_s,
        warm_up_s=ready - started,
        bounds=tuple(report.bounds),
        statistics=dict(report.statistics),
        incumbents=tuple((when, found.with_planner(info)) for when, found in report.incumbents),
        reason=reason,
    )


def judge(problem: Problem, reply: Reply, *, time_limit: float | None = None) -> Solution:
    """Score a reply; errors as for `solve`."""
    status, reason = reply.status, reply.reason
    evaluation: Evaluation | None = None
    if reply.plan is not None:
        evaluation = simulate(problem, reply.plan)
        if not evaluation.feasible:
            status, reason = Status.INFEASIBLE, f"its plan does not fit: {evaluation.infeasible}"
        elif time_limit is not None and reply.planning_s > TIME_LIMIT_TOLERANCE * time_limit:
            status, reason = Status.TIMEOUT, f"answered after {reply.planning_s:.3g} s"
    solution = Solution(
        problem=problem,
        planner=reply.planner,
        status=status,
        plan=reply.plan,
        evaluation=evaluation,
        planning_s=reply.planning_s,
        warm_up_s=reply.warm_up_s,
        bound=max(reply.bounds, key=lambda bound: bound.value_ns, default=None),
        statistics=reply.statistics,
        incumbents=reply.incumbents,
        reason=reason,
        printed=reply.printed,
        deterministic=reply.capabilities.deterministic,
    )
    return replace(solution, status=status_with_gap(solution.status, solution.gap))


def checked_time_limit(time_limit: object) -> float | None:
    """Return a time limit in seconds; infinity is none.

    Raises
    ------
    InvalidPlanner
        When it is not a positive number.
    """
    if time_limit is None:
        return None
    seconds = as_number(time_limit, "time_limit", InvalidPlanner, fix="give seconds > 0")
    if not seconds > 0:
        raise InvalidPlanner(
            f"time limit {seconds:g} is not positive", where="time_limit", fix="give seconds > 0"
        )
    return None if seconds == float("inf") else seconds


def _prepare(problem: Problem, planner: Planner) -> None:
    """Do what is done once, whoever plans: compile, lay out arrays, import a planner's tools."""
    warm_up()
    _ = problem.profile.graph
    own_warm_up = getattr(planner, "warm_up", None)
    if own_warm_up is not None:
        own_warm_up()
