"""The price orders that the rule tries: what to store, what never to drop, what counts as relief.

None of them depends on the budget or on the link.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slackswap.analysis.checkpoints import checkpoints
from slackswap.analysis.hull import hull_vertices
from slackswap.analysis.memory import not_resident_above
from slackswap.cost_model.scorer import KEEP
from slackswap.planners.common.candidates import Candidates, Task

#: Minimum cuts over the price of memory.
_CUTS = 16
#: Checkpoints: parts of all saved bytes that one closure may bring back.
_LIMITS = (2.0**-7, 2.0**-4)
#: By how much of the bytes that backward has freed by then a closure may exceed that.
_FREED = 0.5
#: Levels of memory, as parts of the highest, above which ops may have to be relieved.
_LEVELS = (0.75, 0.5, 0.25)


def price_orders(task: Task) -> Iterator[Candidates]:
    """Yield the price orders of the rule, each different one once."""
    nothing = np.zeros(task.scorer.graph.n_tensors, dtype=np.bool_)
    plain = Candidates(task, nothing, nothing, task.relieving, task.critical.start_ns)
    if task.rule.literal:
        yield plain
        return
    if task.rule.recompute:
        yield from _of_the_hull(plain)
    apart = Candidates(task, nothing, nothing, task.relieving, task.critical.start_ns, apart=True)
    if not np.array_equal(apart.order.ops, plain.order.ops):
        yield apart
    yield plain
    # Where memory is short at several ops, no set of tensors relieves them all alike.
    graph = task.scorer.graph
    seen = {task.relieving.tobytes()}
    for part in _LEVELS:
        useful = not_resident_above(graph, int(part * task.critical.level_bytes))
        if useful.tobytes() in seen:
            continue
        seen.add(useful.tobytes())
        until_ns = int(graph.forward_ns.sum())
        yield Candidates(task, nothing, nothing, useful, until_ns, apart=True)
        yield Candidates(task, nothing, nothing, useful, until_ns)


def _of_the_hull(plain: Candidates) -> Iterator[Candidates]:
    """Yield orders with the stores of the best trades of time for memory, and with checkpoints.

    Each vertex of the hull says which intermediates are worth their memory once some tensors are
    dropped: an op is so priced together with the store that makes its closure cheap, which prices
    one by one cannot see.
    """
    task, graph, rule = plain.task, plain.task.scorer.graph, plain.task.rule
    storable = graph.is_intermediate & task.scorer.allowed[:, KEEP] & rule.store_intermediates
    total = float(graph.nbytes[graph.is_saved].sum())
    seen = {(plain.stored.tobytes(), plain.pinned.tobytes())}
    for vertex in hull_vertices(graph, plain.droppable & plain.useful, storable, _CUTS):
        kept = graph.bytes_by_op(graph.is_saved & ~vertex.dropped)
        # Backward has freed what was written after an op when it needs that op's outputs.
        freed = _FREED * (kept.sum() - np.cumsum(kept))
        pins = [
            checkpoints(graph, graph.is_input | vertex.stored, vertex.dropped,
                        part * total + freed)
            for part in _LIMITS
            if rule.checkpoints
        ]
        pins.append(plain.pinned)
        for pinned in pins:
            key = (vertex.stored.tobytes(), pinned.tobytes())
            if key not in seen:
                seen.add(key)
                yield Candidates(task, vertex.stored, pinned, plain.useful, plain.until_ns)
