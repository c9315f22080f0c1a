"""The least memory that any plan needs, as far as the model can tell."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil

import numpy as np

from slackswap.analysis.memory import least_levels
from slackswap.problem import Problem
from slackswap.result import Phase
from slackswap.search.milp.data import EVERY_PLAN, ModelData, Restriction
from slackswap.search.milp.exact import dual_bound
from slackswap.search.milp.model import build_model
from slackswap.search.milp.solve import SolverName, solve_with_fallback


@dataclass(frozen=True, slots=True)
class OpNeed:
    """What one op needs by itself, whatever the plan.

    Attributes
    ----------
    nbytes : int
        Inputs, workspace, tensors in use, and tensors that can neither be swapped nor dropped.
    phase : Phase
        Forward pass, backward pass, or the inputs alone when there is no op.
    op : int
        The op; -1 for the inputs.
    """

    nbytes: int
    phase: Phase
    op: int


def op_need(data: ModelData) -> OpNeed:
    """Return the op that needs most by itself: a lower bound on every budget that works."""
    graph = data.graph
    levels = least_levels(graph, data.may_swap | data.may_drop)
    forward, backward = np.split(levels, [graph.n_forward])
    needs = [OpNeed(graph.input_bytes, Phase.INPUTS, -1)]
    if len(forward):
        needs.append(OpNeed(int(forward.max()), Phase.FORWARD, int(forward.argmax())))
    if len(backward):
        needs.append(OpNeed(int(backward.max()), Phase.BACKWARD, int(backward.argmax())))
    return max(needs, key=lambda need: need.nbytes)


def necessary_budget(
    problem: Problem,
    restriction: Restriction = EVERY_PLAN,
    milestones: Collection[int] = (),
    *,
    solver: SolverName = SolverName.HIGHS,
    time_limit: float | None = None,
) -> int:
    """Prove that no plan fits less memory, at or above the problem's own budget.

    The model is asked by how much the budget must be exceeded, at any time. Like the LP bound the
    answer is evaluated from dual values in exact arithmetic.

    Returns
    -------
    int
        Bytes; the problem's budget when nothing more is proven.
    """
    model = build_model(problem, restriction, milestones, elastic=True)
    answer = solve_with_fallback(
        model.linear.relaxed(),
        tuple(dict.fromkeys((solver, SolverName.HIGHS, SolverName.GLOP))),
        time_limit=time_limit,
    )
    if answer.duals is None:
        return problem.budget_bytes
    extra = ceil(dual_bound(model.linear.relaxed(), answer.duals) * int(model.nbytes))
    return problem.budget_bytes + max(0, extra)
