"""What recomputing costs: closures over the op graph, and the order in which they are cheapest.

Dropping a tensor reruns not only the op that wrote it, but also every op back to tensors that are
still there: its closure. Outputs of one op share a rerun; outputs needed by the same backward op
share the intermediates on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from slackswap.compiling import compiled, compiled_part
from slackswap.graph import Bools, Graph, Ints, Rows

#: Longest closure that is walked op by op. Beyond it the walk is cut and the rest is priced by
#: `_chain_ns`, which counts an op once for each path to it: too dear rather than too cheap.
WALK_LIMIT = 256

#: Price of a closure that would need an op that cannot run again.
IMPOSSIBLE = 2**60
#: Most that a closure is said to cost.
_DEAREST = 2**59


@dataclass(frozen=True, slots=True, eq=False)
class ClosureOrder:
    """Forward ops in the order in which rerunning them frees memory most cheaply.

    Attributes
    ----------
    ops : int64[candidates]
        Forward ops, cheapest first.
    ns_per_byte : float64[candidates]
        Marginal closure time over bytes freed, given that all before are rerun too.
    """

    ops: Ints
    ns_per_byte: Any


def closure_ns(graph: Graph, stored: Bools) -> Ints:
    """Time to rerun each forward op from stored tensors, intermediates on the way included.

    Parameters
    ----------
    graph : Graph
        The profile.
    stored : bool[tensors]
        What is taken as available: inputs, saved tensors, stored intermediates.

    Returns
    -------
    int64[forward ops]
        Nanoseconds; `IMPOSSIBLE` where an op on the way cannot run again.
    """
    return _closures(graph, stored)[1]


def rank_by_closure(
    graph: Graph, stored: Bools, freed_bytes: Ints, *, own_time_only: bool = False
) -> ClosureOrder:
    """Order forward ops by marginal closure time per byte freed.

    Prices are updated as closures interact: once an op is chosen, the intermediates it makes again
    are free for the other outputs that the same backward op needs.

    Parameters
    ----------
    graph : Graph
        The profile.
    stored : bool[tensors]
        As for `closure_ns`.
    freed_bytes : int64[forward ops]
        Bytes that rerunning the op frees; ops with none are not candidates.
    own_time_only : bool
        Price an op by its own time instead, as additive planners do.
    """
    consumer = np.full(graph.n_forward, graph.n_backward, dtype=np.int64)
    saved = np.flatnonzero(graph.is_saved)
    np.minimum.at(consumer, graph.producer[saved], graph.first_backward_read[saved])
    chain, walked = _closures(graph, stored)
    possible = (freed_bytes > 0) & (walked < IMPOSSIBLE)
    if own_time_only:
        ops = np.flatnonzero(possible)
        price = graph.forward_ns[ops] / freed_bytes[ops]
        order = np.argsort(price, kind="stable")
        return ClosureOrder(ops[order], price[order])
    candidates = np.flatnonzero(possible)
    prices = np.zeros(graph.n_forward)
    prices[candidates] = walked[candidates] / freed_bytes[candidates]
    # Sorted by price, then by op, they are a heap already.
    heap = candidates[np.argsort(prices[candidates], kind="stable")]
    place = np.full(graph.n_forward, -1)
    place[heap] = np.arange(len(heap))
    rivals = Rows.grouped(np.where(possible, consumer, -1), graph.n_backward + 1)
    order, order_prices = np.empty_like(heap), np.empty(len(heap))
    _rank(
        *_arrays(graph), stored, *_scratch(graph), chain, np.where(possible, freed_bytes, 0),
        consumer, rivals.start, rivals.items, prices, heap, place, order, order_prices,
    )
    return ClosureOrder(order, order_prices)


def spread(order: ClosureOrder, ratio: float) -> ClosureOrder:
    """Take ops of about the same price far apart first, instead of the cheapest to the last digit.

    What lies close together runs again together, and comes back all at once. A price below one
    before it, which sharing a closure can make, counts as that one.

    Parameters
    ----------
    order : ClosureOrder
        Ops, cheapest first.
    ratio : float
        Prices whose ratio to the cheapest of a group is less belong to the group.

    Returns
    -------
    ClosureOrder
        Groups in the given order; within each, ops halve the gaps between those before them, in
        the order of execution.
    """
    ops, prices = order.ops.copy(), order.ns_per_byte.copy()
    level = np.maximum.accumulate(order.ns_per_byte)
    start = 0
    while start < len(ops):
        end = int(max(np.searchsorted(level, level[start] * ratio),
                      np.searchsorted(level, level[start], "right")))
        by_time = start + np.argsort(ops[start:end], kind="stable")
        taken = by_time[_halving(end - start)]
        ops[start:end], prices[start:end] = order.ops[taken], order.ns_per_byte[taken]
        start = end
    return ClosureOrder(ops, prices)


def _halving(count: int) -> Ints:
    """Return 0 .. `count` - 1 in the order of their binary digits read backwards."""
    digits = max(1, (count - 1).bit_length())
    places = np.arange(2**digits)
    backwards = np.zeros_like(places)
    for digit in range(digits):
        backwards |= (places >> digit & 1) << (digits - 1 - digit)
    return backwards[backwards < count]


def least_rerun_ns(graph: Graph, stored: Bools, ops: Ints) -> Ints:
    """Time that rerunning the first k of some ops takes at least, for every k.

    Each op of their closures counts once, though it may have to run again for each backward op.

    Parameters
    ----------
    graph : Graph
        The profile.
    stored : bool[tensors]
        As for `closure_ns`; more than is stored makes the result smaller, never too large.
    ops : int64[candidates]
        Forward ops.

    Returns
    -------
    int64[candidates + 1]
        Nanoseconds; the first entry is 0.
    """
    result = np.zeros(len(ops) + 1, np.int64)
    _least_rerun_ns(
        *_arrays(graph), stored, np.zeros(graph.n_forward, np.bool_),
        np.empty(graph.n_forward, np.int64), ops, result,
    )
    return result


def _arrays(graph: Graph) -> tuple[Any, ...]:
    return (
        graph.producer,
        graph.forward_ns,
        graph.forward_reads.start,
        graph.forward_reads.items,
    )


def _scratch(graph: Graph) -> tuple[Ints, Ints, Ints]:
    """Stamps of the ops seen, the consumer that each op served last, and room for one walk."""
    return (
        np.full(graph.n_forward, -1), np.full(graph.n_forward, -1),
        np.empty(WALK_LIMIT, np.int64),
    )


def _closures(graph: Graph, stored: Bools) -> tuple[Ints, Ints]:
    chain, walked = np.empty((2, graph.n_forward), np.int64)
    _closure_ns(*_arrays(graph), stored, *_scratch(graph), graph.recomputable, chain, walked)
    return chain, walked


# The compiled functions below allocate nothing, which halves the compiler's work.


@compiled_part
def _walk(
    root: int, producer: Any, forward_ns: Any, start: Any, items: Any, stored: Any, seen: Any,
    served: Any, path: Any, chain: Any, stamp: int, consumer: int,
) -> Any:
    """Time of the closure of `root`, ops already served to `consumer` being free.

    Returns the time and the number of ops in `path`.
    """
    count = 1
    path[0] = root
    seen[root] = stamp
    total = forward_ns[root] if served[root] != consumer else 0
    at_op = 0
    while at_op < count:
        op = path[at_op]
        at_op += 1
        for at in range(start[op], start[op + 1]):
            t = items[at]
            before = producer[t]
            if stored[t] or seen[before] == stamp:
                continue
            seen[before] = stamp
            if served[before] == consumer:
                continue
            if count < len(path):
                path[count] = before
                count += 1
                total += forward_ns[before]
            else:
                total = min(total + chain[before], _DEAREST)
    return total, count


@compiled
def _closure_ns(
    producer: Any, forward_ns: Any, start: Any, items: Any, stored: Any, seen: Any, served: Any,
    path: Any, again_ok: Any, chain: Any, walked: Any,
) -> None:
    """Write the time of each op's closure to `walked`.

    `chain` receives the time of each op and of the ops behind it, those reached by several paths
    several times.
    """
    for op in range(len(forward_ns)):
        total = forward_ns[op] if again_ok[op] else IMPOSSIBLE
        for at in range(start[op], start[op + 1]):
            t = items[at]
            if not stored[t]:
                before = chain[producer[t]]
                if before == IMPOSSIBLE or total == IMPOSSIBLE:
                    total = IMPOSSIBLE
                else:
                    total = min(total + before, _DEAREST)
        chain[op] = total
        walked[op] = total
        if total != IMPOSSIBLE:
            walked[op], _ = _walk(
                op, producer, forward_ns, start, items, stored, seen, served, path, chain, op,
                np.int64(-2),  # served to none
            )


@compiled
def _least_rerun_ns(
    producer: Any, forward_ns: Any, start: Any, items: Any, stored: Any, seen: Any, pending: Any,
    ops: Any, result: Any,
) -> None:
    total = 0
    for place in range(len(ops)):
        count = 0
        if not seen[ops[place]]:
            seen[ops[place]] = True
            pending[0] = ops[place]
            count = 1
        while count > 0:
            count -= 1
            op = pending[count]
            total += forward_ns[op]
            for at in range(start[op], start[op + 1]):
                before = producer[items[at]]
                if not stored[items[at]] and not seen[before]:
                    seen[before] = True
                    pending[count] = before
                    count += 1
        result[place + 1] = total


@compiled_part
def _settle(heap: Any, place: Any, prices: Any, size: int, at: int) -> None:
    """Move the op at a place of the heap up or down until those above it are no dearer."""
    op = heap[at]
    price = prices[op]
    while at > 0:
        above = heap[(at - 1) // 2]
        if prices[above] < price or (prices[above] == price and above < op):
            break
        heap[at] = above
        place[above] = at
        at = (at - 1) // 2
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size:
            a, b = heap[child], heap[child + 1]
            if prices[b] < prices[a] or (prices[b] == prices[a] and b < a):
                child += 1
        below = heap[child]
        if prices[below] > price or (prices[below] == price and below > op):
            break
        heap[at] = below
        place[below] = at
        at = child
    heap[at] = op
    place[op] = at


@compiled
def _rank(
    producer: Any, forward_ns: Any, start: Any, items: Any, stored: Any, seen: Any, served: Any,
    path: Any, chain: Any, freed: Any, consumer: Any, rivals_start: Any, rivals: Any, prices: Any,
    heap: Any, place: Any, order: Any, order_prices: Any,
) -> None:
    """Take the cheapest, reprice those that the same backward op needs, and so on.

    `heap` holds the candidates, ties by index; `place` each op's place in it, -1 once taken.
    """
    stamp = 0
    size = len(heap)
    for chosen in range(len(order)):
        op = heap[0]
        size -= 1
        heap[0] = heap[size]
        place[heap[0]] = 0
        place[op] = -1
        if size > 0:
            _settle(heap, place, prices, size, np.int64(0))
        order[chosen] = op
        order_prices[chosen] = prices[op]
        _, count = _walk(
            op, producer, forward_ns, start, items, stored, seen, served, path, chain, stamp,
            consumer[op],
        )
        stamp += 1
        for a in range(count):
            served[path[a]] = consumer[op]
        if count == 1:
            continue  # no intermediate to share
        for at in range(rivals_start[consumer[op]], rivals_start[consumer[op] + 1]):
            other = rivals[at]
            if place[other] < 0:
                continue
            total, _ = _walk(
                other, producer, forward_ns, start, items, stored, seen, served, path, chain,
                stamp, consumer[op],
            )
            stamp += 1
            prices[other] = total / freed[other]
            _settle(heap, place, prices, size, place[other])
