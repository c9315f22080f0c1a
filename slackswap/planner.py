"""What a planner is, and how it talks to the framework while it works."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from slackswap.bound import Bound
from slackswap.errors import InvalidPlanner
from slackswap.plan import Plan
from slackswap.problem import Problem


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a planner promises and uses.

    Attributes
    ----------
    deterministic : bool
        Its plan does not depend on the seed.
    anytime : bool
        It reports plans while it works and can be stopped at any time limit.
    gives_bound : bool
        It reports a proven lower bound.
    uses_swap, uses_recompute : bool
        Actions its plans may contain.
    monotone : bool
        It promises never to be slower at a larger budget, on hardware without contention (with
        it, an earlier prefetch may hold back an offload, and even a fixed plan may get slower).
    uses_budget : bool
        It sizes its actions by the budget. A planner whose rule does the same whatever the budget,
        such as one that swaps everything, says no; whether its plan fits is then for the framework
        to find out.
    """

    deterministic: bool = True
    anytime: bool = False
    gives_bound: bool = False
    uses_swap: bool = True
    uses_recompute: bool = True
    monotone: bool = False
    uses_budget: bool = True


@dataclass(slots=True)
class Report:
    """Receives what a planner finds out while it works.

    Call it with keyword arguments to record statistics. `incumbent` records a plan found so far;
    `bound` records a proven lower bound. The framework scores incumbents itself, afterwards.

    Attributes
    ----------
    statistics : dict
        Latest value of each statistic.
    incumbents : list of (float, Plan)
        Seconds since the start of planning, and the plan.
    bounds : list of Bound
        Lower bounds, in the order reported.
    """

    statistics: dict[str, Any] = field(default_factory=dict)
    incumbents: list[tuple[float, Plan]] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    _started: float = field(default_factory=time.perf_counter)

    def __call__(self, **statistics: Any) -> None:
        """Record statistics; a later value of the same name replaces the earlier."""
        self.statistics.update(statistics)

    def incumbent(self, plan: Plan) -> None:
        """Record the best plan found so far."""
        _check_kind(plan, Plan, "report.incumbent")
        self.incumbents.append((time.perf_counter() - self._started, plan))

    def bound(self, bound: Bound) -> None:
        """Record a proven lower bound."""
        _check_kind(bound, Bound, "report.bound")
        self.bounds.append(bound)


def _check_kind(value: object, kind: type, where: str) -> None:
    if not isinstance(value, kind):
        raise InvalidPlanner(
            f"was given a {type(value).__name__}, not a {kind.__name__}", where=where,
            fix=f"give a slackswap.{kind.__name__}",
        )


@runtime_checkable
class Planner(Protocol):
    """Turns a problem into a plan. The framework scores the plan; a planner never does.

    Planners are frozen dataclasses whose fields are their parameters.

    Attributes
    ----------
    name, version : str
        Identity in results.
    capabilities : Capabilities
        What it promises and uses.
    """

    @property
    def name(self) -> str:
        """Identity in results."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the plans may change."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it promises and uses."""
        ...

    def plan(
        self,
        problem: Problem,
        *,
        rng: random.Random,
        time_limit: float | None,
        report: Report,
    ) -> Plan:
        """Return a plan for `problem`.

        Parameters
        ----------
        problem : Problem
            What to plan for; immutable.
        rng : random.Random
            The only source of randomness.
        time_limit : float or None
            Seconds within which to return.
        report : Report
            Receives statistics, incumbents and bounds.

        Raises
        ------
        Infeasible
            When no plan within the planner's rule fits the budget.
        Skipped
            When the planner does not apply here, with the reason.
        """
        ...
