"""The recompute set chosen anew as a knapsack: least time that frees what is missing.

The rule takes whole tensors in the order of price, so its last step frees more than it needs. Here
all ops are weighed at once, for a share of the link; the cost model says how many bytes the choice
really lacks or spares, and the demand is corrected by that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slackswap.analysis.closure import IMPOSSIBLE, closure_ns
from slackswap.analysis.memory import critical_op, not_resident_at
from slackswap.compiling import compiled
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Codes
from slackswap.graph import Bools, Ints
from slackswap.planners.common.link import admit_earliest, worth_a_copy
from slackswap.search.local_search import Incumbent

#: Factors of the rule's share of the link.
_SHARES = (1.0, 1.02, 0.98, 1.04, 0.96, 1.06, 0.93, 0.9)
#: Corrections of the demand for each share.
_CORRECTIONS = 5
#: Nodes of one branch and bound; a count, so that the plan does not depend on the clock.
_NODES = 20_000


def knapsacks(best: Incumbent, share: float) -> None:
    """Improve a plan by knapsacks for shares of the link around one.

    Parameters
    ----------
    best : Incumbent
        The plan to improve. What it stores and what it cannot keep stays as it is.
    share : float
        Of the link's time until the critical op.
    """
    chooser = _Chooser(best)
    for factor in _SHARES:
        chooser.run(factor * max(share, 0.5))


class _Chooser:
    """What is weighed, and what of it is missing."""

    def __init__(self, best: Incumbent) -> None:
        self.best, scorer = best, best.scorer
        graph = scorer.graph
        self.critical = critical_op(graph)
        self.relieving = not_resident_at(graph, self.critical)
        self.base: Codes = np.where(best.plan == RECOMPUTE, scorer.default, best.plan)
        self.base[(self.base == SWAP) & scorer.allowed[:, KEEP]] = KEEP
        may = self.relieving & scorer.allowed[:, RECOMPUTE]
        self.droppable = graph.is_saved & scorer.allowed[:, RECOMPUTE]
        freed = graph.bytes_by_op(may)
        cost = closure_ns(graph, graph.is_input | (self.base != RECOMPUTE))
        self.ops = np.flatnonzero((freed > 0) & (cost < IMPOSSIBLE))
        self.freed, self.cost = freed[self.ops], cost[self.ops]
        stored = graph.is_intermediate & (self.base == KEEP)
        self.demand = (
            self.critical.level_bytes + int(graph.nbytes[stored].sum())
            - scorer.problem.budget_bytes
        )
        dropped = graph.is_saved & (best.plan == RECOMPUTE)
        self.start = np.zeros(graph.n_forward, dtype=np.bool_)
        self.start[graph.producer[dropped]] = True
        self.seen: set[bytes] = set()

    def run(self, share: float) -> None:
        """Choose, ask the cost model, and correct the demand by what it says is missing."""
        best, scorer = self.best, self.best.scorer
        again, correction = self.start, 0
        for _ in range(_CORRECTIONS):
            if best.stopped:
                return
            # What is swapped relieves the critical op too; what runs again cannot be swapped, so
            # a few rounds settle which is which.
            swapped = self._admitted(self.base, again, share)
            away = int(scorer.graph.nbytes[swapped & self.relieving].sum())
            chosen = least_time(self.cost, self.freed, self.demand - away + correction)
            if chosen is None:
                return
            again = np.zeros(scorer.graph.n_forward, dtype=np.bool_)
            again[self.ops[chosen]] = True
            codes = self.base.copy()
            codes[self.droppable & again[scorer.graph.producer]] = RECOMPUTE
            codes[self._admitted(codes, again, share)] = SWAP
            if codes.tobytes() in self.seen:
                return
            self.seen.add(codes.tobytes())
            scores = best.offer(codes)
            if scores.feasible[0]:
                peak = scores.evaluation(0).peak_bytes
                assert peak is not None
                correction -= scorer.problem.budget_bytes - peak
            else:
                correction += int(scores.shortfall_bytes[0])

    def _admitted(self, codes: Codes, again: Bools, share: float) -> Bools:
        scorer, graph = self.best.scorer, self.best.scorer.graph
        candidates = (codes == KEEP) & self.relieving & scorer.allowed[:, SWAP]
        candidates &= ~again[graph.producer] & worth_a_copy(scorer)
        return admit_earliest(
            graph, candidates, scorer.d2h_ns, int(share * self.critical.start_ns),
            scorer.problem.hardware.host_bytes,
        )


def least_time(cost: Ints, freed: Ints, demand: int, nodes: int = _NODES) -> Ints | None:
    """Choose items of least total time that free at least `demand` bytes.

    By branch and bound on what is *not* chosen, a knapsack with the spare bytes as its capacity:
    depth first, most time per byte first, with the fractional bound. Equal items are one kind with
    a count; of a kind the first ones are chosen.

    Parameters
    ----------
    cost, freed : int64[items]
        Time and bytes of each item; bytes are positive.
    demand : int
        Bytes.
    nodes : int
        Nodes searched at most; the best choice until then is returned.

    Returns
    -------
    int64[chosen] or None
        Places of the chosen items, or None when all together do not free enough.
    """
    if demand <= 0:
        return np.empty(0, dtype=np.int64)
    spare = int(freed.sum()) - demand
    if spare < 0:
        return None
    kinds, kind_of, count = np.unique(
        np.stack([cost, freed], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    order = np.argsort(-kinds[:, 0] / kinds[:, 1], kind="stable")
    left = np.empty(len(kinds), dtype=np.int64)
    left[order] = _knapsack(kinds[order, 0], kinds[order, 1], count[order], spare, nodes)
    kind_of = kind_of.ravel()
    by_kind = np.argsort(kind_of, kind="stable")
    place = np.empty(len(cost), dtype=np.int64)
    place[by_kind] = np.arange(len(cost)) - np.repeat(np.cumsum(count) - count, count)
    chosen: Ints = np.flatnonzero(place < (count - left)[kind_of])
    return chosen


@compiled
def _knapsack(value: Any, weight: Any, count: Any, capacity: int, nodes: int) -> Any:
    """Bounded knapsack, items by falling value per weight; counts taken of each kind."""
    n = len(value)
    taken = np.zeros(n, np.int64)
    best = np.zeros(n, np.int64)
    best_value, total, room, at = np.int64(-1), np.int64(0), np.int64(capacity), 0
    for _ in range(nodes):
        # The rest, the last item of it divided, bounds what this branch can reach.
        bound, free = float(total), room
        for kind in range(at, n):
            fits = min(count[kind], free // weight[kind])
            bound += float(fits * value[kind])
            free -= fits * weight[kind]
            if fits < count[kind]:
                bound += value[kind] * (free / weight[kind])
                break
        if bound > best_value:
            for kind in range(at, n):
                fits = min(count[kind], room // weight[kind])
                taken[kind] = fits
                total += fits * value[kind]
                room -= fits * weight[kind]
            if total > best_value:
                best_value = total
                best[:] = taken
            at = n
        # Back to the last kind that was taken, one less of it.
        kind = at - 1
        if at == n and n > 0:
            # Less of the last kind leads nowhere: nothing comes after it.
            total -= taken[n - 1] * value[n - 1]
            room += taken[n - 1] * weight[n - 1]
            taken[n - 1] = 0
            kind = n - 2
        while kind >= 0 and taken[kind] == 0:
            kind -= 1
        if kind < 0:
            break
        taken[kind] -= 1
        total -= value[kind]
        room += weight[kind]
        at = kind + 1
    return best
