"""The lower bound that a command shows beside a plan, and what became of asking for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackswap.errors import SlackSwapError
from slackswap.naming import did_you_mean

if TYPE_CHECKING:
    from slackswap.bound import Bound
    from slackswap.problem import Problem
    from slackswap.search.feasibility import LeastBudget

#: Seconds that the solver may take for a bound shown beside a plan.
BESIDE_S = 60.0

#: The same for the least budget that works, where none does.
LEAST_S = 10.0

#: Methods as the command line spells them.
METHODS = {
    "compute": "compute",
    "lagrangian": "lagrangian",
    "lp": "lp",
    "milp": "milp",
    "enumerate": "enumeration",
    "enumeration": "enumeration",
}


def method_of(text: str, *, allow_none: bool = False) -> str | None:
    """Return the bound method a command line names; None for ``none``.

    Raises
    ------
    SlackSwapError
        For a word that is no method.
    """
    if allow_none and text == "none":
        return None
    if text not in METHODS:
        known = [name for name in METHODS if name != "enumeration"]
        raise SlackSwapError(
            f"bound method {text!r} is not known{did_you_mean(text, known)}",
            where="--bound" if allow_none else "--method",
            fix=f"use {', '.join(known)}" + (" or none" if allow_none else ""),
        )
    return METHODS[text]


def bound_beside(problem: Problem, method: str | None) -> tuple[Bound | None, str]:
    """Return a bound of the problem, or None and why there is none.

    A plan is worth printing without its bound, so what goes wrong here is told, not raised.
    """
    if method is None:
        return None, ""
    from slackswap.search.bounds import lower_bound

    try:
        return lower_bound(problem, method, time_limit=BESIDE_S), ""
    except SlackSwapError as error:
        return None, str(error)


def classes_beside(problem: Problem) -> dict[str, float | None] | None:
    """Return the highest throughput by class of plans; None inside for a class that cannot fit."""
    from slackswap.search.bounds import class_ceilings

    try:
        return class_ceilings(problem, time_limit=BESIDE_S).throughput(problem.profile.duration_ns)
    except SlackSwapError:
        return None


def least_beside(problem: Problem) -> LeastBudget | None:
    """Return the least budget that works, for an answer that says no; None if it was not found."""
    from slackswap.search.feasibility import least_budget

    try:
        return least_budget(problem, time_limit=LEAST_S)
    except SlackSwapError:
        return None


def least_lines(least: LeastBudget | None) -> list[tuple[str, str]]:
    """Return labelled lines that say which budget works, and where memory binds."""
    if least is None:
        return []
    first, *rest = least.summary().splitlines()
    return [("instead", first), *(("", line.strip()) for line in rest)]


def tighter(first: Bound | None, second: Bound | None) -> Bound | None:
    """Return the stronger of two bounds: one that says nothing fits, or the higher."""
    from slackswap.status import Status

    known = [bound for bound in (first, second) if bound is not None]
    return max(
        known, key=lambda bound: (bound.status is Status.INFEASIBLE, bound.value_ns), default=None
    )


def check_seconds(time_limit: float | None) -> None:
    """Refuse a time limit that is not a positive number of seconds.

    Raises
    ------
    SlackSwapError
        For zero, a negative number or one that is not finite.
    """
    if time_limit is not None and not 0 < time_limit < float("inf"):
        raise SlackSwapError(
            f"{time_limit:g} is not a positive number of seconds", where="--time-limit",
            fix="give for instance 10",
        )
