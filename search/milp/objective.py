"""The objective of the model: the time of the iteration."""

from __future__ import annotations

from slackswap.search.milp.data import ModelData
from slackswap.search.milp.linear import ModelBuilder
from slackswap.search.milp.variables import Variables


def add_iteration_time(builder: ModelBuilder, data: ModelData, variables: Variables) -> None:
    """Count each op that runs again once, and every stall; plain durations are the offset."""
    builder.add_cost(variables.again, data.graph.forward_ns)
    builder.add_cost(variables.forward_stall, 1.0)
    builder.add_cost(variables.backward_stall, 1.0)
