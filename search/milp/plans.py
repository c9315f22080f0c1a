"""Plans as solutions of the model, and solutions as plans."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slackswap.cost_model.schedule import backward_schedule, resolve_actions
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Codes, Scorer
from slackswap.search.milp.model import PlanModel

Floats = NDArray[np.float64]


def codes_of(model: PlanModel, x: Floats) -> Codes:
    """Return the action codes of an integer solution."""
    swapped = x[model.variables.swap] > 0.5
    dropped = x[model.variables.drop] > 0.5
    return np.where(swapped, SWAP, np.where(dropped, RECOMPUTE, KEEP)).astype(np.int8)


def hint_of(model: PlanModel, codes: Codes) -> Floats:
    """Return a plan's decisions as the model's variables; NaN for those that follow from them.

    A stored tensor that no step reads counts as dropped, as in the cost model.
    """
    problem, graph = model.data.problem, model.data.graph
    plan = Scorer(problem).decode(codes)
    schedule = backward_schedule(problem.profile, resolve_actions(problem.profile, plan))
    needed = np.zeros(graph.n_tensors, dtype=np.bool_)
    needed[list(schedule.first_need)] = True
    again = np.zeros(graph.n_forward)
    again[[step.forward for step in schedule.steps if step.forward is not None]] = 1.0
    hint = np.full(model.linear.n_columns, np.nan)
    hint[model.variables.swap] = (codes == SWAP) & needed
    hint[model.variables.drop] = ~graph.is_input & ((codes == RECOMPUTE) | ~needed)
    hint[model.variables.again] = again
    return hint
