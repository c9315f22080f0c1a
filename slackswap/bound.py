"""Lower bounds on the simulated time, and the gap that one certifies."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from slackswap.errors import BoundViolated
from slackswap.status import Status


class BoundMethod(StrEnum):
    """Methods of proving a lower bound, by and large the weakest first."""

    COMPUTE = "compute"
    LAGRANGIAN = "lagrangian"
    LP = "lp"
    MILP = "milp"
    ENUMERATION = "enumeration"


@dataclass(frozen=True, slots=True)
class Bound:
    """A proven lower bound on the time of every plan of a problem.

    Attributes
    ----------
    value_ns : int
        The bound in nanoseconds.
    method : BoundMethod
        How it was proven.
    solver : str or None
        Solver that ran, if any.
    status : Status
        `optimal` when the method's own problem was solved to the end, else `timeout` or `feasible`.
    safe : bool
        Whether the value rests on exact arithmetic alone, not on a solver's tolerance.
    tolerance : float
        Relative tolerance to be granted when `safe` is false.
    runtime_s : float
        Time it took to prove.
    gated : bool
        Whether it also holds for plans with gates and barriers (enumeration does not).
    note : str
        What a reader should know, such as a fallback to another solver.
    certificate : object or None
        What anyone can evaluate the bound from again, where the method gives one.
    """

    value_ns: int
    method: BoundMethod
    solver: str | None = None
    status: Status = Status.OPTIMAL
    safe: bool = True
    tolerance: float = 0.0
    runtime_s: float = 0.0
    gated: bool = True
    note: str = ""
    certificate: Any = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON object with keys ``bound_...``."""
        return {
            "bound_ns": self.value_ns,
            "bound_method": str(self.method),
            "bound_solver": self.solver,
            "bound_status": str(self.status),
            "bound_safe": self.safe,
            "bound_tolerance": self.tolerance,
            "bound_s": self.runtime_s,
            "bound_note": self.note,
        }


def certified_gap(iteration_ns: int, bound: Bound) -> float:
    """Relative distance of a simulated time to a lower bound.

    Raises
    ------
    BoundViolated
        When the bound lies above the simulated time by more than its tolerance, or says that no
        plan fits.
    """
    if bound.status is Status.INFEASIBLE:
        what = f"a plan fits that the {bound.method} bound proves cannot"
    elif bound.value_ns > iteration_ns * (1 + bound.tolerance):
        what = (
            f"the {bound.method} bound {bound.value_ns} ns lies above a simulated time of "
            f"{iteration_ns} ns"
        )
    else:
        if bound.value_ns <= 0:
            return 0.0 if iteration_ns == 0 else float("inf")
        return max(0.0, iteration_ns / bound.value_ns - 1)
    raise BoundViolated(
        what, where=f"bound by {bound.solver or 'exact arithmetic'}",
        fix="this is a bug: please report the profile, hardware, budget and plan",
    )


def gap_of_plan(
    iteration_ns: int | None, bound: Bound | None, *, has_order: bool
) -> float | None:
    """Certified gap of a plan; None where there is none to state.

    Parameters
    ----------
    iteration_ns : int or None
        Its simulated time; None if it does not fit.
    bound : Bound or None
        A lower bound.
    has_order : bool
        Whether the plan has gates or barriers, for which not every bound holds.

    Raises
    ------
    BoundViolated
        As `certified_gap`.
    """
    if iteration_ns is None or bound is None or (has_order and not bound.gated):
        return None
    return certified_gap(iteration_ns, bound)


def status_with_gap(status: Status, gap: float | None) -> Status:
    """Return `optimal` for a plan that meets a lower bound, whoever made it; else the status."""
    return Status.OPTIMAL if status is Status.FEASIBLE and gap == 0.0 else status
