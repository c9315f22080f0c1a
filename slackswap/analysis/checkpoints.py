"""Where to stop a chain of dropped tensors, so that a closure does not bring all of it back.

Dropped tensors that follow from one another run again together: the first backward op that needs
one of them remakes and retains every one up to it. Dropping a whole chain therefore relieves
memory only until backward begins. Keeping one of them now and then ends the closures there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slackswap.compiling import compiled
from slackswap.graph import Bools, Graph


def checkpoints(graph: Graph, stored: Bools, dropped: Bools, limit_bytes: Any) -> Bools:
    """Choose dropped tensors to keep so that no closure brings back much more than a limit.

    Walks forward. What the closure of an op brings back is counted along the heaviest chain of
    dropped tensors that leads to it, which takes linear time; side branches are left out.

    Parameters
    ----------
    graph : Graph
        The profile.
    stored : bool[tensors]
        Where closures end besides: inputs and stored intermediates.
    dropped : bool[tensors]
        Saved tensors that would run again.
    limit_bytes : float64[forward ops]
        Most that the closure of each op may bring back.

    Returns
    -------
    bool[tensors]
        The tensors to keep, some of those dropped. A chain that is cut starts again from nothing.
    """
    chosen: Bools = _checkpoints(
        graph.producer,
        graph.nbytes,
        graph.forward_reads.start,
        graph.forward_reads.items,
        graph.forward_writes.start,
        graph.forward_writes.items,
        stored | (graph.is_saved & ~dropped),
        dropped,
        limit_bytes,
    )
    return chosen


@compiled
def _checkpoints(
    producer: Any, nbytes: Any, r_start: Any, r_items: Any, w_start: Any, w_items: Any,
    available: Any, dropped: Any, limit: Any,
) -> Any:
    n_forward = len(limit)
    chosen = np.zeros(len(nbytes), np.bool_)
    brought = np.zeros(n_forward, np.float64)
    for op in range(n_forward):
        before = 0.0
        for at in range(r_start[op], r_start[op + 1]):
            t = r_items[at]
            if not available[t] and not chosen[t]:
                before = max(before, brought[producer[t]])
        own = 0.0
        for at in range(w_start[op], w_start[op + 1]):
            if dropped[w_items[at]]:
                own += nbytes[w_items[at]]
        brought[op] = before + own
        if own > 0 and before + own > limit[op]:
            for at in range(w_start[op], w_start[op + 1]):
                if dropped[w_items[at]]:
                    chosen[w_items[at]] = True
    return chosen
