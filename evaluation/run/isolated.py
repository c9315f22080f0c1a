"""Planners that are not built in run in a process of their own, which ends with their answer.

What such a planner writes to, patches, prints or ends is then its own: neither other planners nor
bounds nor stored results can be touched. It answers in JSON; the plan is scored by the process that
asked, in which no such planner has run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from slackswap.errors import InvalidPlanner, PlannerFailed
from slackswap.evaluation.run import child
from slackswap.evaluation.run.child import Order
from slackswap.evaluation.run.process import Late, running
from slackswap.plan import PlannerInfo
from slackswap.planner import Capabilities
from slackswap.problem import Problem
from slackswap.quantities import as_integer
from slackswap.registry import (
    PlannerLike,
    is_built_in,
    is_registered,
    may_be_loaded,
    resolve_planner,
)
from slackswap.solving import (
    TIME_LIMIT_TOLERANCE,
    Reply,
    Solution,
    checked_time_limit,
    judge,
    solve,
)
from slackswap.status import Status

#: Seconds beyond its limit that a planner is given before it is stopped.
_GRACE_S = 0.5
#: Seconds by which its clock may fall short of ours.
_CLOCKS_S = 0.01


@dataclass(frozen=True, slots=True)
class Description:
    """What is known of a planner without asking it for a plan.

    Attributes
    ----------
    name, version : str
        Its identity.
    parameters : mapping
        All its parameters.
    capabilities : Capabilities
        What it promises.
    source : str
        Digest of its code.
    """

    name: str
    version: str
    parameters: Mapping[str, Any]
    capabilities: Capabilities
    source: str


def solve_isolated(
    problem: Problem,
    planner: PlannerLike,
    *,
    seed: int = 0,
    time_limit: float | None = None,
    patience_s: float | None = None,
    threads: int | None = None,
    **parameters: Any,
) -> Solution:
    """Ask a planner for a plan and score it; one that is not built in runs in its own process.

    A planner that can be loaded by its name (``module:Name``, ``file.py:Name``, an entry point)
    gets a fresh interpreter. One that only this process knows (registered here, or an object, as
    in a notebook) gets a fork of this process; where processes cannot fork it runs in this one.

    Parameters
    ----------
    problem, planner, seed, time_limit, parameters
        As for `slackswap.solve`.
    patience_s : float, optional
        Seconds of planning after which the process is killed; by default somewhat more than the
        time limit, and no end without one.
    threads : int, optional
        Threads that linear algebra may use in the planner's process.

    Returns
    -------
    Solution
        With status `timeout` and no plan when it had to be killed. A bound that such a planner
        reports is checked against its plan, but proves nothing: it stands among the statistics as
        ``claimed_bound_ns``.

    Raises
    ------
    PlannerFailed
        When the planner raises an error or its process ends without an answer.
    SlackSwapError
        As `slackswap.solve`.
    """
    if not _is_foreign(planner) or (is_registered(planner) and not hasattr(os, "fork")):
        return solve(problem, planner, seed=seed, time_limit=time_limit, **parameters)
    limit = checked_time_limit(time_limit)
    if patience_s is None and limit is not None:
        patience_s = TIME_LIMIT_TOLERANCE * limit + _GRACE_S
    seed = as_integer(seed, "seed", InvalidPlanner, fix="give a whole number")
    reply = _reply(Order(planner, parameters, problem, seed, limit, threads), patience_s)
    return _without_claims(judge(problem, reply, time_limit=limit))


def describe(planner: PlannerLike, **parameters: Any) -> Description:
    """Describe a planner; the code of one that is loaded by its name does not run here.

    Raises
    ------
    UnknownName, InvalidPlanner
        As `slackswap.resolve_planner`.
    """
    if is_registered(planner) or not _is_foreign(planner):
        document = child.description(resolve_planner(planner, **parameters))
        document["capabilities"] = Capabilities(**document["capabilities"])
        return Description(**document)
    with running(Order(planner, parameters)) as process:
        answer = process.answer(None)
    if not isinstance(answer, dict):
        raise PlannerFailed("does not describe itself", where=str(planner))
    return Description(**answer)


def _reply(order: Order, patience_s: float | None) -> Reply:
    answer: Reply | dict[str, Any] | None = None
    with running(order) as process, contextlib.suppress(Late):
        answer = process.answer(patience_s)
    # The process has ended, so all that it printed has arrived.
    printed = process.printed()
    if answer is None:
        return Reply(
            planner=PlannerInfo(_name(order.planner), "", order.parameters, order.seed),
            capabilities=Capabilities(),
            status=Status.TIMEOUT,
            plan=None,
            planning_s=patience_s or 0.0,
            warm_up_s=process.warm_up_s,
            reason=f"killed after {patience_s:.3g} s",
            printed=printed,
        )
    if not isinstance(answer, Reply):
        raise PlannerFailed("answered without a plan")
    measured_s = process.planning_s
    # Its own clock is the finer one, but only ours cannot be tampered with.
    own = answer.planning_s if 0 <= measured_s - answer.planning_s < _CLOCKS_S else measured_s
    return replace(answer, planning_s=own, warm_up_s=process.warm_up_s, printed=printed)


def _without_claims(solution: Solution) -> Solution:
    """Return a solution without the bound that its planner claims, which nobody has proven."""
    if solution.bound is None:
        return solution
    status = Status.FEASIBLE if solution.status is Status.OPTIMAL else solution.status
    claims = {"claimed_bound_ns": solution.bound.value_ns}
    return replace(
        solution, status=status, bound=None, statistics={**solution.statistics, **claims}
    )


def _name(planner: PlannerLike) -> str:
    if isinstance(planner, str):
        return os.path.basename(planner)
    return str(getattr(planner, "name", getattr(planner, "__name__", "planner")))


def _is_foreign(planner: PlannerLike) -> bool:
    """Whether a planner is not ours; a name that nobody provides is for the registry to refuse."""
    return not is_built_in(planner) and (is_registered(planner) or may_be_loaded(planner))
