"""Binding transfers to layers: barriers and gates, as ablations and as rivals use them."""

from __future__ import annotations

from dataclasses import replace

from slackswap.analysis.layers import last_of_layers
from slackswap.plan import Plan
from slackswap.profile import Action, Profile


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
