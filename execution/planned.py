"""A plan that is ready to run: compiled, with its budget and its prediction."""

from __future__ import annotations

from dataclasses import dataclass

from slackswap.execution.values import Executable
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.result import Evaluation


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A compiled plan.

    Attributes
    ----------
    problem : Problem
        With the whole budget.
    reserved_bytes : int
        Part of the budget for what the profile does not count: the loss, new buffer values, random
        states. The executable's problem has the rest.
    prediction : Evaluation
        The simulator's, with timeline, for the rest of the budget.
    executable : Executable
        What runs.
    """

    problem: Problem
    reserved_bytes: int
    prediction: Evaluation
    executable: Executable

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.executable.timetable.plan

    @property
    def planner(self) -> str:
        """Who made it."""
        return self.plan.planner.name if self.plan.planner is not None else "given"
