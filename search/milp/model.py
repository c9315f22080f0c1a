"""The whole model of a problem, in units that suit a solver."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import frexp

from slackswap.problem import Problem
from slackswap.search.milp.constraints import Constraints
from slackswap.search.milp.data import EVERY_PLAN, ModelData, Restriction
from slackswap.search.milp.linear import LinearModel, ModelBuilder
from slackswap.search.milp.milestones import Milestone, MilestoneConstraints
from slackswap.search.milp.objective import add_iteration_time
from slackswap.search.milp.variables import Variables


@dataclass(frozen=True, slots=True, eq=False)
class PlanModel:
    """The mixed-integer model of a problem.

    Attributes
    ----------
    data : ModelData
        The problem as the model sees it.
    variables : Variables
        Where each variable is.
    linear : LinearModel
        The model, scaled: the objective is near 10^3 and tensors near 1, since the tolerances of
        solvers are absolute.
    ns : float
        Nanoseconds in one unit of the objective.
    nbytes : float
        Bytes in one unit of memory.
    """

    data: ModelData
    variables: Variables
    milestones: tuple[Milestone, ...]
    linear: LinearModel
    ns: float
    nbytes: float

    @property
    def compute_ns(self) -> int:
        """Sum of all durations."""
        return self.data.problem.profile.duration_ns

    @property
    def longest_ns(self) -> int:
        """Time up to which the boxes of the variables lose no plan."""
        return self.compute_ns + self.data.longest_wait_ns

    @property
    def has_room(self) -> bool:
        """Whether the tensors in use at each op fit the budget by themselves."""
        data = self.data
        return min(data.forward_room.min(initial=0), data.backward_room.min(initial=0)) >= 0


def build_model(
    problem: Problem, restriction: Restriction = EVERY_PLAN, milestones: Collection[int] = ()
) -> PlanModel:
    """State the model of a problem.

    Parameters
    ----------
    problem : Problem
        Profile, hardware and budget.
    restriction : Restriction
        Which plans it is about.
    milestones : collection of int
        Backward ops at which it tracks what has run again.
    """
    data = ModelData.of(problem, restriction)
    builder = ModelBuilder()
    variables = Variables.add(builder, data)
    Constraints(builder, data, variables).add_all()
    tracked = tuple(
        Milestone.add(builder, data, variables, op) for op in sorted(set(milestones))
    )
    MilestoneConstraints(builder, data, variables, tracked).add_all()
    add_iteration_time(builder, data, variables)
    ns = _power_of_two(problem.profile.duration_ns / 1000)
    sizes = data.graph.nbytes[~data.graph.is_input]
    nbytes = _power_of_two(float(sizes.max(initial=1)))
    linear = builder.build(float(problem.profile.duration_ns)).scaled(ns=ns, nbytes=nbytes)
    return PlanModel(data, variables, tracked, linear, ns, nbytes)


def _power_of_two(value: float) -> float:
    """Largest power of two that is at most `value`; 1 for smaller values."""
    return 2.0 ** (frexp(value)[1] - 1) if value > 1 else 1.0
