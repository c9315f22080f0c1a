"""Binding transfers to layers: barriers and gates, as ablations and as rivals use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slackswap.graph import Ints
from slackswap.plan import Plan
from slackswap.profile import Action, BackwardOp, ForwardOp, Profile


def layer_of_ops(ops: Sequence[ForwardOp] | Sequence[BackwardOp]) -> Ints:
    """Return the layer of each op; one without a layer belongs to that of the op before it."""
    layers, current = [], -1
    for op in ops:
        current = current if op.layer is None else op.layer
        layers.append(current)
    return np.array(layers, dtype=np.int64)


def last_of_layers(ops: Sequence[ForwardOp] | Sequence[BackwardOp]) -> tuple[int, ...]:
    """Return the ops after which the layer changes, and the last op."""
    layers = layer_of_ops(ops)
    changes = np.flatnonzero(np.diff(layers)).tolist()
    return (*changes, len(ops) - 1) if len(ops) else ()


def with_layer_barriers(profile: Profile, plan: Plan) -> Plan:
    """Make compute wait for the link at the end of each layer, both ways."""
    return replace(
        plan,
        offload_barriers=last_of_layers(profile.forward),
        prefetch_barriers=last_of_layers(profile.backward),
    )


def with_on_demand_gates(profile: Profile, plan: Plan) -> Plan:
    """Let each swapped tensor come back only when the op that needs it is reached."""
    graph = profile.graph
    gates = {
        name: int(graph.first_backward_read[profile.index_of[name]])
        for name, action in plan.actions.items()
        if action is Action.SWAP and graph.first_backward_read[profile.index_of[name]] >= 0
    }
    return replace(plan, prefetch_gates=gates)
