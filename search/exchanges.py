"""Exchanges of actions between two ops, ordered by what they are expected to gain.

Where no change of one op helps any more, what stands in the way is memory at some op, or the link's
time. So two changes are made together: one that would gain time but lacks something, and one that
frees it. All changes of one op are scored first. That tells how many bytes the gains lack, and what
time the others really cost; what is lacking beyond what is freed is counted at the prices of a
Lagrangian: of memory, and of the link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from slackswap.analysis.closure import IMPOSSIBLE, closure_ns
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP
from slackswap.graph import Ints
from slackswap.search.local_search import BATCH, NEVER, Change, Incumbent, changed

#: Changes considered for pairs: of each side the best, few of those with the same effect.
_SIDE = 96
_ALIKE = 4
#: Ops simulated for the pairs of one plan, and the fewest and most pairs.
_PAIR_WORK = 200_000
_PAIRS = (192, 2000)


@dataclass(frozen=True, slots=True, eq=False)
class OpChanges:
    """Every other action for the saved outputs of each op, which share a rerun.

    Attributes
    ----------
    changes : list of Change
        What is changed.
    op : int64[changes]
        Whose outputs.
    gain_ns : int64[changes]
        Time expected to be saved by not running it again.
    frees, frees_link_ns : int64[changes]
        Bytes that no longer stay, and link time no longer used; negative where more are taken.
    """

    changes: list[Change]
    op: Ints
    gain_ns: Ints
    frees: Ints
    frees_link_ns: Ints

    @classmethod
    def of(cls, best: Incumbent) -> OpChanges:
        """Find the changes of a plan."""
        scorer, graph, codes = best.scorer, best.scorer.graph, best.plan
        again = closure_ns(graph, graph.is_input | graph.is_saved | (codes == KEEP))
        changes: list[Change] = []
        rows: list[tuple[int, int, int, int]] = []
        for op in np.unique(graph.producer[graph.is_saved]).tolist():
            outputs = graph.forward_writes[op]
            outputs = outputs[graph.is_saved[outputs]]
            size, copy = int(graph.nbytes[outputs].sum()), int(scorer.d2h_ns[outputs].sum())
            now = codes[outputs]
            for code in np.flatnonzero(scorer.allowed[outputs].all(axis=0)).tolist():
                if (now == code).all() or (code == RECOMPUTE and again[op] >= IMPOSSIBLE):
                    continue
                changes.append(tuple((t, code) for t in outputs.tolist()))
                saves = int(again[op]) * (int((now == RECOMPUTE).any()) - int(code == RECOMPUTE))
                kept = int(graph.nbytes[outputs[now == KEEP]].sum())
                copied = int(scorer.d2h_ns[outputs[now == SWAP]].sum())
                rows.append((op, saves, kept - size * (code == KEEP),
                             copied - copy * (code == SWAP)))
        table = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        return cls(changes, *table)


def exchange(best: Incumbent, price: float, rounds: int) -> set[Change]:
    """Change one op's action, or two ops' together, as long as that helps.

    Parameters
    ----------
    best : Incumbent
        The plan to improve.
    price : float
        Of memory, in nanoseconds a byte.
    rounds : int
        Times that all changes of one op are scored, at most.

    Returns
    -------
    set of Change
        Changes of one op known not to help the final plan.
    """
    for _ in range(rounds):
        before = best.iteration_ns
        found = OpChanges.of(best)
        times, lacking = _scored(best, found)
        if best.stopped:
            break
        if best.iteration_ns == before:
            pairs = _pairs(best, found, times, lacking, price)
            for start in range(0, len(pairs), BATCH):
                if best.stopped or best.try_changes(pairs[start : start + BATCH]):
                    break
            if best.iteration_ns == before:
                return set(found.changes)
    return set()


def _scored(best: Incumbent, found: OpChanges) -> tuple[Ints, Ints]:
    """Try all changes of one op; return their times, and the bytes that they lack."""
    times = np.full(len(found.changes), NEVER)
    lacking = np.zeros(len(found.changes), dtype=np.int64)
    start_codes = best.plan
    for start in range(0, len(found.changes), BATCH):
        if best.stopped:
            break
        before = best.iteration_ns
        part = slice(start, start + BATCH)
        scores = best.offer(changed(start_codes, found.changes[part]))
        times[part] = np.where(scores.feasible, scores.iteration_ns, NEVER)
        lacking[part] = scores.shortfall_bytes
        if best.iteration_ns < before:
            best.join(start_codes, found.changes[part], scores, before)
            break
    return times, lacking


def _pairs(
    best: Incumbent, found: OpChanges, times: Ints, lacking: Ints, price: float
) -> list[Change]:
    """Return pairs of a gain and of what frees what it lacks, most expected gain first."""
    link_price = price * best.scorer.problem.hardware.d2h_bytes_per_s / 1e9
    fits = times < NEVER
    gains = np.flatnonzero(found.gain_ns > 0)
    gains = _few_alike(found, gains, -found.gain_ns[gains])
    frees = np.flatnonzero(fits & ((found.frees > 0) | (found.frees_link_ns > 0)))
    cost = times - best.iteration_ns
    worth = price * np.maximum(found.frees, 0) + link_price * np.maximum(found.frees_link_ns, 0)
    frees = _few_alike(found, frees, cost[frees] - worth[frees])
    a, b = (side.ravel() for side in np.meshgrid(gains, frees, indexing="ij"))
    short = np.maximum(np.where(fits[a], 0, lacking[a]) - np.maximum(found.frees[b], 0), 0)
    link_short = np.maximum(-found.frees_link_ns[a] - found.frees_link_ns[b], 0)
    expected = cost[b] - found.gain_ns[a] + price * short + link_price * link_short
    useful = np.flatnonzero((found.op[a] != found.op[b]) & (cost[b] < found.gain_ns[a]))
    most = int(np.clip(_PAIR_WORK // best.scorer.graph.n_forward, *_PAIRS))
    useful = useful[np.argsort(expected[useful], kind="stable")[:most]]
    return [
        found.changes[one] + found.changes[other]
        for one, other in zip(a[useful].tolist(), b[useful].tolist(), strict=True)
    ]


def _few_alike(found: OpChanges, side: Ints, key: Any) -> Ints:
    """Order changes by a key and take the first, few of those with the same effect."""
    side = side[np.argsort(key, kind="stable")]
    effects = np.stack([found.gain_ns[side], found.frees[side], found.frees_link_ns[side]])
    _, kind, count = np.unique(effects, axis=1, return_inverse=True, return_counts=True)
    kind = kind.ravel()
    order = np.argsort(kind, kind="stable")
    place = np.empty(len(kind), dtype=np.int64)
    place[order] = np.arange(len(kind)) - np.repeat(np.cumsum(count) - count, count)
    step = np.maximum(1, -(-count // _ALIKE))[kind]  # evenly over those alike
    chosen: Ints = side[place % step == 0][:_SIDE]
    return chosen
