"""Closure problems by minimum cut: choose nodes of least total weight, arcs permitting.

What to run again, and what to store so that it need not run again, is such a problem: running an op
again needs its inputs, which are stored or run again themselves.

J. C. Picard, "Maximal closure of a graph and applications to combinatorial problems", Management
Science 22 (11), 1976.
"""

from __future__ import annotations

import numpy as np

from slackswap.graph import Bools, Ints


def lightest_closure(weights: Ints, tails: Ints, heads: Ints) -> tuple[Bools, int]:
    """Choose nodes of least total weight such that with the tail of an arc its head is chosen too.

    To choose nothing is allowed, so the least weight is never positive.

    Parameters
    ----------
    weights : int64[nodes]
        Their negative ones must sum to more than -2^62.
    tails, heads : int64[arcs]
        Nodes.

    Returns
    -------
    chosen : bool[nodes]
        One such choice.
    weight : int
        Its total weight, exactly.

    Notes
    -----
    A node is on the source's side of the cut if it is chosen. The cut pays minus the weight of each
    node of negative weight that is left out, and the weight of each other node that is chosen.
    """
    from ortools.graph.python import max_flow

    chosen = np.zeros(len(weights), dtype=np.bool_)
    gains, losses = np.flatnonzero(weights < 0), np.flatnonzero(weights > 0)
    total = -int(weights[gains].sum())
    if not total:
        return chosen, 0
    # An arc that must not be cut; also the most that a node can weigh and still be chosen.
    unlimited = total + 1
    source, sink = len(weights), len(weights) + 1
    flow = max_flow.SimpleMaxFlow()
    flow.add_arcs_with_capacity(np.full(len(gains), source), gains, -weights[gains])
    flow.add_arcs_with_capacity(
        losses, np.full(len(losses), sink), np.minimum(weights[losses], unlimited)
    )
    flow.add_arcs_with_capacity(tails, heads, np.full(len(tails), unlimited))
    if not len(losses):
        chosen[gains] = True  # nothing is lost; what the gains need costs nothing either
        _close(chosen, tails, heads)
        return chosen, -total
    status = flow.solve(source, sink)
    if status != flow.OPTIMAL:
        raise RuntimeError(f"maximum flow ended with status {status}")
    side = np.array(flow.get_source_side_min_cut(), dtype=np.int64)
    chosen[side[side < len(weights)]] = True
    return chosen, int(flow.optimal_flow()) - total


def _close(chosen: Bools, tails: Ints, heads: Ints) -> None:
    """Add, in place, all that the chosen nodes need."""
    while True:
        missing = heads[chosen[tails] & ~chosen[heads]]
        if not len(missing):
            return
        chosen[missing] = True
