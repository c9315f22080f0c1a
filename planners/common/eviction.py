"""Swapping out at allocation failure: a walk over bytes in the order of ops, blind to time.

What memory-driven systems do: nothing moves until an allocation fails; then tensors leave, in an
order that the system's cache or rule gives, until it succeeds. Bandwidth and durations play no
part, neither here nor there.

Beyond the plan language: a tensor that leaves while a later forward op still reads it, to come
back within the forward pass, and one that leaves during the backward pass. Here a victim's forward
uses are over, and what the backward pass lacks leaves at the end of the forward pass.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from slackswap.cost_model.schedule import BackwardSchedule, backward_schedule
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Codes, Scorer
from slackswap.graph import Bools, Ints
from slackswap.profile import ALL_ACTIONS


@dataclass(frozen=True, slots=True, eq=False)
class Evictions:
    """Who left, and when.

    Attributes
    ----------
    codes : int8[tensors]
        The actions given, with victims swapped.
    failed_at : dict of int to int
        For each victim the forward op whose allocation failed; the number of forward ops when it
        was the backward pass that lacked memory.
    needed_by : dict of int to int
        For each victim the first backward op that needs it, or a tensor remade from it.
    fits : bool
        Whether every allocation succeeds in the end.
    """

    codes: Codes
    failed_at: dict[int, int]
    needed_by: dict[int, int]
    fits: bool


def evict(scorer: Scorer, codes: Codes, order: Ints) -> Evictions:
    """Swap tensors out whenever an allocation fails.

    Parameters
    ----------
    scorer : Scorer
        The problem; of its hardware only `host_bytes` matters.
    codes : int8[tensors]
        Actions before any eviction, as `fitting.permitted` returns them.
    order : int64[candidates]
        Tensors that may leave, the first victim first. Only stored ones whose forward uses are
        over are taken.
    """
    # Swapping a kept tensor changes nothing in what must run again: one schedule serves all.
    schedule = backward_schedule(
        scorer.problem.profile, [ALL_ACTIONS[code] for code in codes.tolist()]
    )
    cache = _Cache(scorer, codes.copy(), order, schedule)
    fits = cache.run_forward() and cache.run_backward()
    needed_by = {
        t: schedule.steps[schedule.first_need[t]].backward for t in cache.failed_at
    }
    return Evictions(cache.codes, cache.failed_at, needed_by, fits)


class _Cache:
    """Stored tensors on the device; the idle ones wait in the order in which they may leave."""

    def __init__(
        self, scorer: Scorer, codes: Codes, order: Ints, schedule: BackwardSchedule
    ) -> None:
        graph = scorer.graph
        self.scorer, self.codes, self.schedule = scorer, codes, schedule
        self.failed_at: dict[int, int] = {}
        self.first_need = np.full(graph.n_tensors, -1, dtype=np.int64)
        for t, step in schedule.first_need.items():
            self.first_need[t] = step
        host_bytes = scorer.problem.hardware.host_bytes
        self.room = (
            2**62 if host_bytes is None else host_bytes - int(graph.nbytes[codes == SWAP].sum())
        )
        may_leave: Bools = (
            scorer.allowed[:, SWAP]
            & (codes == KEEP)
            & ~graph.is_input
            & (graph.nbytes > 0)
            & (self.first_need >= 0)
        )
        candidates = order[may_leave[order]]
        self.rank = np.full(graph.n_tensors, -1, dtype=np.int64)
        self.rank[candidates] = np.arange(len(candidates))
        self.idle: list[tuple[int, int]] = []

    def evict_one(self, failed_at: int, step: int) -> int | None:
        """Swap the next idle tensor that the host has room for and that comes back after a step."""
        while self.idle:
            t = heapq.heappop(self.idle)[1]
            size = int(self.scorer.graph.nbytes[t])
            if size <= self.room and self.first_need[t] > step:
                self.codes[t] = SWAP
                self.failed_at[t] = failed_at
                self.room -= size
                return t
        return None

    def run_forward(self) -> bool:
        """Run the forward ops; tell whether every allocation succeeds."""
        graph, budget = self.scorer.graph, self.scorer.problem.budget_bytes
        stays = (self.codes == KEEP) & (self.first_need >= 0)
        in_use = graph.input_bytes
        for i in range(graph.n_forward):
            writes = int(graph.forward_write_bytes[i])
            while in_use + writes + int(graph.forward_workspace[i]) > budget:
                t = self.evict_one(i, -1)
                if t is None:
                    return False
                in_use -= int(graph.nbytes[t])
            in_use += writes
            for t in graph.last_uses[i].tolist():
                if not stays[t]:
                    in_use -= int(graph.nbytes[t])
                elif self.rank[t] >= 0:
                    heapq.heappush(self.idle, (int(self.rank[t]), t))
        return True

    def run_backward(self) -> bool:
        """Run the backward steps, swapped tensors coming back just in time for each."""
        graph, budget = self.scorer.graph, self.scorer.problem.budget_bytes
        levels = backward_levels(self.scorer, self.codes, self.schedule)
        relief = 0
        returning: list[tuple[int, int]] = []  # (first need, bytes) of victims of this pass
        for k in np.flatnonzero(levels > budget).tolist():
            while returning and returning[0][0] <= k:
                relief -= heapq.heappop(returning)[1]
            while levels[k] - relief > budget:
                t = self.evict_one(graph.n_forward, k)
                if t is None:
                    return False
                size = int(graph.nbytes[t])
                relief += size
                heapq.heappush(returning, (int(self.first_need[t]), size))
        return True


def backward_levels(scorer: Scorer, codes: Codes, schedule: BackwardSchedule) -> Ints:
    """Memory that each backward step takes when swapped tensors come back just in time.

    A plan whose forward pass gets through fits exactly if no level exceeds the budget: prefetches
    run in the order of deadlines, and none starts that would stand in the way of a step up to its
    own deadline.

    Parameters
    ----------
    scorer : Scorer
        The problem.
    codes : int8[tensors]
        Actions.
    schedule : BackwardSchedule
        Of these actions.

    Returns
    -------
    int64[steps]
    """
    graph = scorer.graph
    change = np.zeros(len(schedule.steps) + 1, dtype=np.int64)
    for t in np.flatnonzero((codes != RECOMPUTE) & ~graph.is_input).tolist():
        if t in schedule.first_need:
            change[schedule.first_need[t] if codes[t] == SWAP else 0] += graph.nbytes[t]
    workspace = np.zeros(len(schedule.steps), dtype=np.int64)
    for k, step in enumerate(schedule.steps):
        change[k] += int(graph.nbytes[list(step.writes)].sum())
        change[k + 1] -= int(graph.nbytes[list(schedule.frees[k])].sum())
        workspace[k] = step.workspace
    levels: Ints = graph.input_bytes + np.cumsum(change[:-1]) + workspace
    return levels
