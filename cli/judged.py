"""The lower bound that a command shows beside a plan, and what became of asking for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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


def classes_beside(problem: Problem) -> tuple[dict[str, float | None] | None, str]:
    """Return the highest throughput by class of plans, or None and why it is not known.

    None inside is for a class of which no plan fits.
    """
    from slackswap.search.bounds import class_ceilings

    try:
        ceilings = class_ceilings(problem, time_limit=BESIDE_S)
    except SlackSwapError as error:
        return None, str(error)
    return ceilings.throughput(problem.profile.duration_ns), ""


@dataclass(frozen=True, slots=True)
class Least:
    """The least budget that works, or why it was not found.

    Attributes
    ----------
    budget : LeastBudget or None
        What was found.
    why_not : str
        Why nothing was; empty if something was.
    """

    budget: LeastBudget | None
    why_not: str = ""

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Labelled lines that say which budget works, and where memory binds."""
        if self.budget is None:
            return [("instead", f"the least budget that works was not found: {self.why_not}")]
        first, *rest = self.budget.summary().splitlines()
        return [("instead", first), *(("", line.strip()) for line in rest)]

    def to_dict(self) -> dict[str, Any]:
        """Return what the JSON object of an answer without a plan holds besides."""
        if self.budget is None:
            return {"least_budget": None, "least_budget_note": self.why_not}
        return {"least_budget": self.budget.to_dict()}


def least_beside(problem: Problem) -> Least:
    """Look for the least budget that works, for an answer that says no."""
    from slackswap.search.feasibility import least_budget

    try:
        return Least(least_budget(problem, time_limit=LEAST_S))
    except SlackSwapError as error:
        return Least(None, str(error))


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
