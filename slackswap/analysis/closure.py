"""What recomputing costs: closures over the op graph, and the order in which they are cheapest.

Dropping a tensor reruns not only the op that wrote it, but also every op back to tensors that are
still there: its closure. Outputs of one op share a rerun; outputs needed by the same backward op
share the intermediates on the way.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from slackswap.graph import Bools, Graph, Ints

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
    arrays = _arrays(graph)
    result: Ints = _closure_ns(*arrays, stored, _chain_ns(*arrays, stored))
    return result


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
    arrays = _arrays(graph)
    chain = _chain_ns(*arrays, stored)
    walked = _closure_ns(*arrays, stored, chain)
    possible = (freed_bytes > 0) & (walked < IMPOSSIBLE)
    if own_time_only:
        ops = np.flatnonzero(possible)
        price = graph.forward_ns[ops] / freed_bytes[ops]
        order = np.argsort(price, kind="stable")
        return ClosureOrder(ops[order], price[order])
    return ClosureOrder(
        *_rank(*arrays, stored, chain, walked, np.where(possible, freed_bytes, 0), consumer,
               graph.n_backward)
    )


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
    result: Ints = _least_rerun_ns(*_arrays(graph), stored, ops)
    return result


def _arrays(graph: Graph) -> tuple[Any, ...]:
    return (
        graph.producer,
        graph.forward_ns,
        graph.recomputable,
        graph.forward_reads.start,
        graph.forward_reads.items,
    )


@njit(cache=True, nogil=True)
def _chain_ns(
    producer: Any, forward_ns: Any, again_ok: Any, start: Any, items: Any, stored: Any
) -> Any:
    """Time of each op and of the ops behind it, those reached by several paths several times."""
    chain = np.empty(len(forward_ns), np.int64)
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
    return chain


@njit(cache=True, nogil=True)
def _walk(
    root: int, producer: Any, forward_ns: Any, start: Any, items: Any, stored: Any, chain: Any,
    seen: Any, stamp: int, served: Any, consumer: int, path: Any,
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


@njit(cache=True, nogil=True)
def _closure_ns(
    producer: Any, forward_ns: Any, again_ok: Any, start: Any, items: Any, stored: Any, chain: Any
) -> Any:
    n_forward = len(forward_ns)
    result = np.empty(n_forward, np.int64)
    seen = np.full(n_forward, -1, np.int64)
    served = np.full(n_forward, -1, np.int64)
    path = np.empty(WALK_LIMIT, np.int64)
    for op in range(n_forward):
        if chain[op] == IMPOSSIBLE:
            result[op] = IMPOSSIBLE
        else:
            result[op], _ = _walk(
                op, producer, forward_ns, start, items, stored, chain, seen, op, served, -2, path
            )
    return result


@njit(cache=True, nogil=True)
def _least_rerun_ns(
    producer: Any, forward_ns: Any, again_ok: Any, start: Any, items: Any, stored: Any, ops: Any
) -> Any:
    seen = np.zeros(len(forward_ns), np.bool_)
    pending = np.empty(len(forward_ns), np.int64)
    result = np.zeros(len(ops) + 1, np.int64)
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
    return result


@njit(cache=True, nogil=True)
def asked_by_closures(
    producer: Any, r_start: Any, r_items: Any, stored: Any, reruns: Any
) -> Any:
    """Tensors that the closures of some ops read, directly or through tensors not stored.

    Compiled, to be called from compiled code: takes a graph's arrays instead of the graph.
    """
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


@njit(cache=True, nogil=True)
def _rank(
    producer: Any, forward_ns: Any, again_ok: Any, start: Any, items: Any, stored: Any, chain: Any,
    walked: Any, freed: Any, consumer: Any, n_backward: int,
) -> Any:
    """Lazy greedy: take the cheapest, then reprice those that the same backward op needs."""
    n_forward = len(forward_ns)
    # Candidates by consumer, as linked lists.
    head = np.full(n_backward + 1, -1, np.int64)
    following = np.full(n_forward, -1, np.int64)
    price = np.zeros(n_forward, np.float64)
    heap = [(0.0, np.int64(0)) for _ in range(0)]
    for op in range(n_forward - 1, -1, -1):
        if freed[op] > 0:
            following[op] = head[consumer[op]]
            head[consumer[op]] = op
            price[op] = walked[op] / freed[op]
            heap.append((price[op], np.int64(op)))
    heapq.heapify(heap)
    seen = np.full(n_forward, -1, np.int64)
    served = np.full(n_forward, -1, np.int64)
    path = np.empty(WALK_LIMIT, np.int64)
    taken = np.zeros(n_forward, np.bool_)
    order = np.empty(len(heap), np.int64)
    prices = np.empty(len(heap), np.float64)
    stamp = 0
    chosen = 0
    while len(heap) > 0:
        cost, nxt = heapq.heappop(heap)
        op = int(nxt)
        if taken[op] or cost != price[op]:
            continue
        taken[op] = True
        order[chosen] = op
        prices[chosen] = cost
        chosen += 1
        _, count = _walk(
            op, producer, forward_ns, start, items, stored, chain, seen, stamp, served,
            consumer[op], path,
        )
        stamp += 1
        for a in range(count):
            served[path[a]] = consumer[op]
        if count == 1:
            continue  # no intermediate to share
        other = head[consumer[op]]
        while other >= 0:
            if not taken[other]:
                total, _ = _walk(
                    other, producer, forward_ns, start, items, stored, chain, seen, stamp, served,
                    consumer[op], path,
                )
                stamp += 1
                if total / freed[other] != price[other]:
                    price[other] = total / freed[other]
                    heapq.heappush(heap, (price[other], other))
            other = following[other]
    return order[:chosen], prices[:chosen]
