"""Which intermediates are worth keeping so that closures stay short.

A block's residual sum is often an intermediate: backward never reads it, but recomputing anything
behind it may have to walk back through all earlier blocks unless it is kept now and then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slackswap.compiling import compiled
from slackswap.graph import Bools, Graph


def worth_storing(
    graph: Graph, stored: Bools, recomputed: Bools, threshold_ns_per_byte: float
) -> Bools:
    """Intermediates whose closure costs more than the memory they would take.

    Parameters
    ----------
    graph : Graph
        The profile.
    stored : bool[tensors]
        What is taken as available for closures.
    recomputed : bool[tensors]
        Saved tensors that will be recomputed.
    threshold_ns_per_byte : float
        What a byte is worth: the price at which the dearest recomputed tensor frees one.

    Returns
    -------
    bool[tensors]
        Walked in forward order, so that each choice counts on those before it.
    """
    chosen: Bools = _choose(
        graph.producer,
        graph.nbytes,
        graph.forward_ns,
        graph.forward_reads.start,
        graph.forward_reads.items,
        graph.forward_writes.start,
        graph.forward_writes.items,
        stored,
        _rerun_ops(graph, recomputed),
        threshold_ns_per_byte,
    )
    return chosen


def asked_for(graph: Graph, stored: Bools, recomputed: Bools) -> Bools:
    """Tensors that the closures of recomputed ones read.

    Parameters
    ----------
    graph : Graph
        The profile.
    stored : bool[tensors]
        Where closures end.
    recomputed : bool[tensors]
        Saved tensors that will be recomputed.
    """
    asked: Bools = _wanted(
        graph.producer,
        graph.forward_reads.start,
        graph.forward_reads.items,
        stored,
        _rerun_ops(graph, recomputed),
    )
    return asked


def _rerun_ops(graph: Graph, recomputed: Bools) -> Bools:
    reruns = np.zeros(graph.n_forward, dtype=np.bool_)
    reruns[graph.producer[recomputed & graph.is_saved]] = True
    return reruns


@compiled
def _choose(
    producer: Any, nbytes: Any, forward_ns: Any, r_start: Any, r_items: Any, w_start: Any,
    w_items: Any, stored: Any, reruns: Any, price: float,
) -> Any:
    n_forward = len(forward_ns)
    wanted = _wanted(producer, r_start, r_items, stored, reruns)
    kept = np.zeros(len(nbytes), np.bool_)
    chain = np.zeros(n_forward, np.float64)
    for op in range(n_forward):
        total = float(forward_ns[op])
        for at in range(r_start[op], r_start[op + 1]):
            t = r_items[at]
            if not stored[t] and not kept[t]:
                total += chain[producer[t]]
        chain[op] = min(total, 1e18)
        for at in range(w_start[op], w_start[op + 1]):
            t = w_items[at]
            if wanted[t] and not stored[t] and chain[op] > price * nbytes[t]:
                kept[t] = True
    # With those kept, closures no longer reach behind them: drop what nothing asks for.
    either = stored.copy()
    for t in range(len(kept)):
        either[t] = stored[t] or kept[t]
    still = _wanted(producer, r_start, r_items, either, reruns)
    for t in range(len(kept)):
        kept[t] = kept[t] and still[t]
    return kept


@compiled
def _wanted(producer: Any, r_start: Any, r_items: Any, stored: Any, reruns: Any) -> Any:
    """Intermediates that some closure reads, directly or through intermediates not stored."""
    n_forward = len(reruns)
    runs = reruns.copy()
    wanted = np.zeros(len(producer), np.bool_)
    for op in range(n_forward - 1, -1, -1):
        if runs[op]:
            for at in range(r_start[op], r_start[op + 1]):
                t = r_items[at]
                before = producer[t]
                if before >= 0:
                    wanted[t] = True
                    if not stored[t]:
                        runs[before] = True
    return wanted
