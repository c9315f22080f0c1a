"""Spending link time: which tensors can be copied out in time, first in, first out."""

from __future__ import annotations

from typing import Any

import numpy as np

from slackswap.compiling import compiled
from slackswap.cost_model.scorer import Scorer
from slackswap.graph import Bools, Graph, Ints

_UNLIMITED = int(np.iinfo(np.int64).max)


def admit_earliest(
    graph: Graph,
    candidates: Bools,
    d2h_ns: Ints,
    until_ns: int,
    host_bytes: int | None,
    priority: Ints | None = None,
) -> Bools:
    """Choose tensors to swap, earliest written first, while their copies end by an instant.

    Parameters
    ----------
    graph : Graph
        The profile.
    candidates : bool[tensors]
        What may be swapped.
    d2h_ns : int64[tensors]
        Time of each copy.
    until_ns : int
        Instant, on the clock of a forward pass without stalls, by which the last copy must end.
    host_bytes : int or None
        Room on the host.
    priority : int64[tensors], optional
        Admit in this order instead of the order of writing (smallest first); a tensor is taken
        when all admitted so far still end in time, copied in the order of writing.

    Returns
    -------
    bool[tensors]
        The chosen tensors.
    """
    room = _UNLIMITED if host_bytes is None else host_bytes
    written_ns = np.cumsum(graph.forward_ns)
    in_order = graph.forward_writes.items
    chosen = in_order[candidates[in_order]]
    joins = written_ns[graph.producer[chosen]]
    taken = np.zeros(graph.n_tensors, dtype=np.bool_)
    if priority is None:
        mask = _fifo(joins, d2h_ns[chosen], graph.nbytes[chosen], until_ns, room)
    else:
        order = np.argsort(priority[chosen], kind="stable")
        mask = _by_priority(order, joins, d2h_ns[chosen], graph.nbytes[chosen], until_ns, room)
    taken[chosen[mask]] = True
    return taken


def admit_per_layer(
    graph: Graph, candidates: Bools, d2h_ns: Ints, layer_of: Ints, host_bytes: int | None
) -> Bools:
    """Choose tensors to swap so that each layer's copies fit into that layer's own forward time.

    The rule of planners with layer windows, as an ablation of the one global budget.
    """
    room = _UNLIMITED if host_bytes is None else host_bytes
    time_of: dict[int, int] = {}
    for layer, duration in zip(layer_of.tolist(), graph.forward_ns.tolist(), strict=True):
        time_of[layer] = time_of.get(layer, 0) + duration
    taken = np.zeros(graph.n_tensors, dtype=np.bool_)
    for t in np.flatnonzero(candidates).tolist():
        layer = int(layer_of[graph.producer[t]])
        if d2h_ns[t] <= time_of[layer] and graph.nbytes[t] <= room:
            time_of[layer] -= int(d2h_ns[t])
            room -= int(graph.nbytes[t])
            taken[t] = True
    return taken


def worth_a_copy(scorer: Scorer) -> Bools:
    """Return which tensors use the link for longer than its latency alone, each way."""
    result: Bools = scorer.d2h_ns > 2 * scorer.problem.hardware.latency_ns
    return result


@compiled
def _fifo(joins: Any, copy_ns: Any, nbytes: Any, until_ns: int, room: int) -> Any:
    taken = np.zeros(len(joins), np.bool_)
    link_free = np.int64(0)
    for a in range(len(joins)):
        end = max(link_free, joins[a]) + copy_ns[a]
        if end <= until_ns and nbytes[a] <= room:
            taken[a] = True
            link_free = end
            room -= nbytes[a]
    return taken


@compiled
def _by_priority(
    order: Any, joins: Any, copy_ns: Any, nbytes: Any, until_ns: int, room: int
) -> Any:
    """Take by priority while every suffix of the queue still fits before `until_ns`.

    Copies run in queue order, so they end in time exactly if, for every taken position a, the
    copies taken at a and after fit between `joins[a]` and `until_ns`. The latest copies are packed
    against `until_ns`; a take pushes those before it earlier until one has slack to spare.
    Quadratic at worst: it serves an ablation.
    """
    n = len(joins)
    taken = np.zeros(n, np.bool_)
    starts = np.empty(n, np.int64)  # latest start of each taken copy
    for a in order:
        if nbytes[a] > room:
            continue
        # Latest end of a copy at position a: the latest start of the next taken one.
        end = until_ns
        for b in range(a + 1, n):
            if taken[b]:
                end = starts[b]
                break
        if end - copy_ns[a] < joins[a]:
            continue
        # Those before move earlier; they may not start before they are written.
        fits = True
        start = end - copy_ns[a]
        for b in range(a - 1, -1, -1):
            if taken[b]:
                start = min(starts[b], start - copy_ns[b])
                if start == starts[b]:
                    break
                if start < joins[b]:
                    fits = False
                    break
        if not fits:
            continue
        start = end - copy_ns[a]
        taken[a] = True
        room -= nbytes[a]
        starts[a] = start
        for b in range(a - 1, -1, -1):
            if taken[b]:
                if starts[b] <= start - copy_ns[b]:
                    break
                start = start - copy_ns[b]
                starts[b] = start
    return taken
