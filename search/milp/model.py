"""The whole model of a problem, in units that suit a solver."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import frexp

from slackswap.errors import Skipped
from slackswap.problem import Problem
from slackswap.search.milp.constraints import Constraints
from slackswap.search.milp.data import EVERY_PLAN, ModelData, Restriction
from slackswap.search.milp.linear import LinearModel, ModelBuilder
from slackswap.search.milp.milestones import Milestone, MilestoneConstraints
from slackswap.search.milp.objective import add_iteration_time
from slackswap.search.milp.variables import Variables

#: Sums of a few such numbers are still exact in double precision.
_MOST = 2**48


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


def build_model(
    problem: Problem,
    restriction: Restriction = EVERY_PLAN,
    milestones: Collection[int] = (),
    *,
    elastic: bool = False,
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
    elastic : bool
        Minimise the bytes by which the budget must be exceeded, instead of the time. The objective
        is then those bytes, in units of `PlanModel.nbytes`.

    Raises
    ------
    Skipped
        When sizes or times are so large that their sums are not exact in double precision.
    """
    graph, duration = problem.profile.graph, problem.profile.duration_ns
    written = ~graph.is_input
    total = int(graph.nbytes[written].sum())
    if max(total, duration) > _MOST:
        raise Skipped(
            f"tensors of {total} bytes and durations of {duration} ns exceed what the model "
            "states exactly",
            where=f"profile {problem.profile.name!r}", fix="use the compute bound",
        )
    data = ModelData.of(problem, restriction)
    builder = ModelBuilder()
    variables = Variables.add(builder, data, elastic=elastic)
    Constraints(builder, data, variables).add_all()
    tracked = tuple(
        Milestone.add(builder, data, variables, op) for op in sorted(set(milestones))
    )
    MilestoneConstraints(builder, data, variables, tracked).add_all()
    ns = _power_of_two(duration / 1000)
    nbytes = _power_of_two(float(graph.nbytes[written].max(initial=1)))
    if elastic:
        builder.add_cost(variables.extra, 1.0)
        linear = builder.build(0.0).scaled(ns=ns, nbytes=nbytes, objective=nbytes)
    else:
        add_iteration_time(builder, data, variables)
        linear = builder.build(float(duration)).scaled(ns=ns, nbytes=nbytes, objective=ns)
    return PlanModel(data, variables, tracked, linear, ns, nbytes)


def _power_of_two(value: float) -> float:
    """Largest power of two that is at most `value`; 1 for smaller values."""
    return 2.0 ** (frexp(value)[1] - 1) if value > 1 else 1.0
