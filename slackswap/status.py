"""How an attempt to answer ended."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """How a planner, a solver or a cell of a suite ended."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    TIMEOUT = "timeout"
    INFEASIBLE = "infeasible"
    ERROR = "error"
    SKIPPED = "skipped"

    @property
    def has_plan(self) -> bool:
        """Whether a plan that fits came out."""
        return self in (Status.OPTIMAL, Status.FEASIBLE)
