"""Where memory is short, and which tensors can relieve it there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slackswap.graph import Bools, Graph, Ints


@dataclass(frozen=True, slots=True)
class CriticalOp:
    """The op at which keeping everything takes most memory.

    Attributes
    ----------
    index : int
        Place among forward ops followed by backward ops.
    start_ns : int
        When it starts if nothing stalls or runs again.
    level_bytes : int
        Memory in use while it runs.
    """

    index: int
    start_ns: int
    level_bytes: int


def critical_op(graph: Graph) -> CriticalOp:
    """Return the op at which keeping everything takes most memory; the first of equals."""
    levels = np.concatenate(graph.keep_all_levels)
    durations = np.concatenate([graph.forward_ns, graph.backward_ns])
    index = int(np.argmax(levels)) if len(levels) else 0
    return CriticalOp(index, int(durations[:index].sum()), int(levels.max(initial=0)))


def not_resident_above(graph: Graph, level_bytes: int) -> Bools:
    """Saved tensors that may be elsewhere during some op at which keeping all exceeds a level."""
    above = np.concatenate(graph.keep_all_levels) > level_bytes
    before = np.concatenate([[0], np.cumsum(above)])
    first_need = graph.n_forward + np.maximum(graph.first_backward_read, 0)
    above_while_absent: Bools = before[first_need] > before[graph.last_forward_use + 1]
    return graph.is_saved & above_while_absent


def not_resident_at(graph: Graph, op: CriticalOp) -> Bools:
    """Saved tensors whose forward uses are over before an op and whose first need comes after it.

    Swapping or dropping these relieves the op; swapping or dropping others does not.
    """
    first_need = graph.n_forward + graph.first_backward_read
    return graph.is_saved & (graph.last_forward_use < op.index) & (first_need > op.index)


def least_levels(graph: Graph, movable: Bools) -> Ints:
    """Memory during each op, forward then backward, while nothing is resident that need not be.

    Returns
    -------
    int64[forward and backward ops]
        Bytes; no plan takes less there.
    """
    levels = np.concatenate(graph.keep_all_levels)
    moved = np.flatnonzero(graph.is_saved & movable)
    change = np.zeros(len(levels) + 1, dtype=np.int64)
    np.add.at(change, graph.last_forward_use[moved] + 1, -graph.nbytes[moved])
    np.add.at(change, graph.n_forward + graph.first_backward_read[moved], graph.nbytes[moved])
    least: Ints = levels + np.cumsum(change[:-1])
    return least
