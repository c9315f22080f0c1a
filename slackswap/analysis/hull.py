"""The trade of time for memory, without link and budget: what is best to drop at each price.

At a price of lambda ns a byte, running an op again costs its duration, and every tensor in memory
at the critical op costs lambda times its size. What is best to drop, and which intermediates are
best stored, is then one minimum cut (`slackswap.analysis.min_cut`): run op o again at its duration
less the price of what that frees; if an op that reads an unsaved tensor u runs again, then either
the producer of u does too, or u is stored at its price.

The best choices over all prices are the vertices of the lower convex hull of (time, memory). They
are found by the rule of Eisner and Severance: the price at which two vertices tie either yields a
vertex between them or proves that there is none.

M. J. Eisner and D. G. Severance, "Mathematical techniques for efficient record segmentation in
large shared databases", Journal of the ACM 23 (4), 1976.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from slackswap.analysis.min_cut import lightest_closure
from slackswap.graph import Bools, Graph, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Vertex:
    """One best choice.

    Attributes
    ----------
    time_ns, memory_bytes : int
        What runs again, each op once; what is in memory.
    dropped : bool[tensors]
        Saved tensors that run again.
    stored : bool[tensors]
        Intermediates that are kept.
    """

    time_ns: int
    memory_bytes: int
    dropped: Bools
    stored: Bools


def hull_vertices(
    graph: Graph, droppable: Bools, storable: Bools, most: int
) -> Iterator[Vertex]:
    """Find vertices of the hull of (time, memory): the one of least memory, then those between.

    Parameters
    ----------
    graph : Graph
        The profile.
    droppable : bool[tensors]
        Saved tensors whose absence relieves memory.
    storable : bool[tensors]
        Intermediates that may be kept.
    most : int
        Minimum cuts computed at most.

    Yields
    ------
    Vertex
        Each cut is computed when asked for. To drop nothing is a vertex too, and left out.
    """
    cuts = _Cuts(graph, droppable, storable)
    nothing = np.zeros(graph.n_tensors, dtype=np.bool_)
    keep_all = Vertex(0, int(graph.nbytes[droppable].sum()), nothing, nothing)
    # So dear that any op runs again to free one byte.
    least = cuts.at(float(graph.forward_ns.sum()) + 1.0)
    if not least.dropped.any():
        return
    yield least
    pairs = deque([(keep_all, least)])
    for _ in range(most - 1):
        if not pairs:
            break
        more, less = pairs.popleft()
        if less.time_ns <= more.time_ns or less.memory_bytes >= more.memory_bytes:
            continue
        price = (less.time_ns - more.time_ns) / (more.memory_bytes - less.memory_bytes)
        between = cuts.at(price)
        if more.memory_bytes > between.memory_bytes > less.memory_bytes:
            yield between
            pairs += [(more, between), (between, less)]


class _Cuts:
    """The choices as a closure problem: nodes are forward ops, then intermediates to store."""

    def __init__(self, graph: Graph, droppable: Bools, storable: Bools) -> None:
        self.graph = graph
        self.freed = graph.bytes_by_op(droppable)
        self.droppable = droppable
        reads = graph.forward_reads
        through = graph.is_intermediate[reads.items]
        reader, read = reads.owners()[through], reads.items[through]
        remade = ~storable[read]
        self.nodes = np.unique(read[~remade])
        node = np.full(graph.n_tensors, -1, dtype=np.int64)
        node[self.nodes] = graph.n_forward + np.arange(len(self.nodes))
        # Whoever reads u, or makes u again, needs the node of u: u is there, made again or stored.
        # What may not be stored is made again for whoever reads it.
        node_or_op = np.where(node >= 0, node, graph.producer)
        self.tails = np.concatenate([reader, graph.producer[self.nodes]])
        self.heads = node_or_op[np.concatenate([read, self.nodes])]

    def at(self, price: float) -> Vertex:
        """Return the best choice when a byte in memory costs `price` ns."""
        graph, n = self.graph, self.graph.n_forward
        producer = graph.producer[self.nodes]
        worth = price * graph.nbytes[self.nodes]
        weight = np.zeros(n + len(self.nodes))
        weight[:n] = graph.forward_ns - price * self.freed
        np.subtract.at(weight, producer, worth)
        weight[n:] = worth
        blocked = np.zeros(len(weight), dtype=np.bool_)
        blocked[:n] = ~graph.recomputable
        chosen, _ = lightest_closure(_in_units(weight, blocked), self.tails, self.heads)
        again, has = chosen[:n], chosen[n:]
        dropped = self.droppable.copy()
        dropped[dropped] = again[graph.producer[dropped]]
        stored = np.zeros(graph.n_tensors, dtype=np.bool_)
        stored[self.nodes[has & ~again[producer]]] = True
        return Vertex(
            int(graph.forward_ns[again].sum()),
            int(graph.nbytes[self.droppable & ~dropped].sum() + graph.nbytes[stored].sum()),
            dropped, stored,
        )


def _in_units(weight: Any, blocked: Bools) -> Ints:
    """Return weights as integers, in 2^-50 of their total; what is blocked is out of reach."""
    scale = 2.0**50 / max(1.0, float(np.abs(weight).sum()))
    units: Ints = np.floor(weight * scale).astype(np.int64)
    units[blocked] = 2**51
    return units
