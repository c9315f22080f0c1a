"""The plans of one price order: the cheapest run again, and the link takes from the rest.

A candidate is given by three things that do not depend on the budget: a price order (with what is
stored and what is never dropped), how many ops of it run again, and how much of the link's time the
rest may take. The budget only decides which candidates fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from slackswap.analysis.closure import ClosureOrder, least_rerun_ns, rank_by_closure, spread
from slackswap.analysis.layers import layer_of_ops
from slackswap.analysis.memory import CriticalOp, critical_op, not_resident_at
from slackswap.compiling import compiled, compiled_part
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Codes, Scorer
from slackswap.graph import Bools, Ints
from slackswap.planners.common.fitting import permitted
from slackswap.planners.common.link import admit_earliest, admit_per_layer, worth_a_copy
from slackswap.problem import Problem

if TYPE_CHECKING:
    from slackswap.planners.slackswap import SlackSwap

#: Ratio of prices that count as the same when ops are taken far apart.
_SAME_PRICE = 1.25
_UNLIMITED = int(np.iinfo(np.int64).max)


class Task:
    """A problem as the rule sees it.

    Attributes
    ----------
    rule : SlackSwap
        The rule, or an ablation of it.
    problem : Problem
        What to plan for.
    scorer : Scorer
        The problem in the cost model.
    critical : CriticalOp
        Where keeping everything takes most memory.
    relieving : bool[tensors]
        Saved tensors whose absence relieves the critical op.
    base : int8[tensors]
        The actions closest to keeping everything: what may not be kept is swapped, if it may be.
    """

    def __init__(self, rule: SlackSwap, problem: Problem) -> None:
        self.rule, self.problem = rule, problem
        self.scorer = Scorer(problem)
        graph = self.scorer.graph
        self.critical: CriticalOp = critical_op(graph)
        self.relieving: Bools = not_resident_at(graph, self.critical)
        self.base: Codes = self.scorer.default.copy()
        must_go = graph.is_saved & ~self.scorer.allowed[:, KEEP]
        if must_go.any():
            self.base[must_go] = SWAP if rule.swap else RECOMPUTE
            self.base = permitted(self.scorer, self.base)

    @cached_property
    def waiting_ns_per_byte(self) -> float:
        """Price at which compute had better wait for the link than run anything again."""
        if not self.rule.swap:
            return float("inf")
        return 1e9 / self.problem.hardware.d2h_bytes_per_s

    @cached_property
    def worth_a_copy(self) -> Bools:
        """Tensors that use the link for longer than its latency alone."""
        return worth_a_copy(self.scorer) & self.scorer.allowed[:, SWAP] & self.rule.swap

    @cached_property
    def written_ns(self) -> Ints:
        """When each forward op ends if nothing stalls."""
        ends: Ints = np.cumsum(self.scorer.graph.forward_ns)
        return ends


@dataclass(eq=False)
class Candidates:
    """The plans of one price order.

    Attributes
    ----------
    task : Task
        What to plan.
    stored : bool[tensors]
        Intermediates kept where a closure reads them.
    pinned : bool[tensors]
        Saved tensors that are never dropped.
    useful : bool[tensors]
        Saved tensors whose absence counts as relief.
    until_ns : int
        The link's time, on the clock of a forward pass without stalls.
    apart : bool
        Whether ops of about the same price are taken far apart.
    """

    task: Task
    stored: Bools
    pinned: Bools
    useful: Bools
    until_ns: int
    apart: bool = False
    base: Codes = field(init=False)
    droppable: Bools = field(init=False)
    swappable: Bools = field(init=False)
    available: Bools = field(init=False)
    order: ClosureOrder = field(init=False)

    def __post_init__(self) -> None:
        task, graph = self.task, self.task.scorer.graph
        self.base = np.where(self.stored, KEEP, task.base).astype(np.int8)
        free = graph.is_saved & (self.base == KEEP)
        self.droppable = (
            free & task.scorer.allowed[:, RECOMPUTE] & ~self.pinned & task.rule.recompute
        )
        self.swappable = free & self.useful & task.worth_a_copy
        self.available = graph.is_input | graph.is_saved | self.stored
        self.order = rank_by_closure(
            graph, self.available, graph.bytes_by_op(self.droppable & self.useful),
            own_time_only=not task.rule.closure_prices,
        )
        if self.apart:
            self.order = spread(self.order, _SAME_PRICE)

    # ------------------------------------------------------------------ the plans

    def plans(self, counts: Ints, shares: Any) -> Codes:
        """Return the plans in which the cheapest ops run again and the link takes the rest.

        Parameters
        ----------
        counts : int64[plans]
            How many ops of the order run again.
        shares : float64[plans]
            How much of the link's time may be used.

        Returns
        -------
        int8[plans, tensors]
        """
        task, graph, rule = self.task, self.task.scorer.graph, self.task.rule
        host = task.problem.hardware.host_bytes
        room = _UNLIMITED
        if host is not None:
            room = max(0, host - int(graph.nbytes[self.base == SWAP].sum()))
        by_rule = not (rule.dearest_first or rule.link_windows)
        until = np.minimum(np.asarray(shares) * self.until_ns, 2.0**60).astype(np.int64)
        codes = np.empty((len(counts), graph.n_tensors), dtype=np.int8)
        _build(
            graph.producer, graph.nbytes, graph.is_saved, graph.forward_reads.start,
            graph.forward_reads.items, graph.forward_writes.items, task.written_ns,
            task.scorer.d2h_ns, task.scorer.default, self.base, self.droppable, self.swappable,
            self.stored, bool(self.stored.any()), self.available, self._place,
            np.empty(graph.n_forward, dtype=np.bool_), np.empty(graph.n_tensors, dtype=np.bool_),
            np.asarray(counts, dtype=np.int64), until if by_rule else np.zeros_like(until), room,
            codes,
        )
        if not by_rule:
            for row, until_ns in zip(codes, until.tolist(), strict=True):
                if until_ns > 0:
                    row[self._admitted(self.swappable & (row == KEEP), until_ns, room)] = SWAP
        return codes

    def _admitted(self, candidates: Bools, until_ns: int, room: int) -> Bools:
        """Choose what to swap as the ablations do."""
        task, graph = self.task, self.task.scorer.graph
        if task.rule.link_windows:
            layers = layer_of_ops(task.problem.profile.forward)
            return admit_per_layer(graph, candidates, task.scorer.d2h_ns, layers, room)
        dearest_first = -self._place[graph.producer]
        return admit_earliest(
            graph, candidates, task.scorer.d2h_ns, until_ns, room, dearest_first
        )

    @cached_property
    def _place(self) -> Ints:
        """Place of each forward op in the order; beyond the last where it has none."""
        place = np.full(self.task.scorer.graph.n_forward, len(self.order.ops), dtype=np.int64)
        place[self.order.ops] = np.arange(len(self.order.ops))
        return place

    def dropped(self, count: int) -> Bools:
        """Tensors dropped when the first `count` ops of the order run again."""
        return self.droppable & (self._place[self.task.scorer.graph.producer] < count)

    # ------------------------------------------------- what is known without the cost model

    @cached_property
    def missing_bytes(self) -> Ints:
        """What copies must have carried out by the critical op, for each count of ops."""
        task, graph = self.task, self.task.scorer.graph
        away = task.relieving
        per_op = graph.bytes_by_op(self.droppable & away)
        freed = np.concatenate([[0], np.cumsum(per_op[self.order.ops])])
        freed += int(graph.nbytes[away & (self.base == RECOMPUTE)].sum())
        missing: Ints = np.maximum(
            task.critical.level_bytes - task.problem.budget_bytes - freed, 0
        )
        return missing

    @cached_property
    def at_least_ns(self) -> Ints:
        """Time of the plans at least, for each count of ops.

        Memory at the critical op is at least that of keeping everything, less what is dropped and
        less what has been copied out by then. Copies must carry the rest; where they cannot before
        compute reaches the op, it waits.
        """
        task, graph = self.task, self.task.scorer.graph
        reruns = least_rerun_ns(graph, self.available, self.order.ops)
        # Rounded down, so that it stays a bound.
        carried_ns = 0.999999 * 1e9 * self.missing_bytes / task.problem.hardware.d2h_bytes_per_s
        waits = np.clip(carried_ns - task.critical.start_ns, 0, 2.0**60).astype(np.int64)
        together = np.maximum(reruns, waits) if self._reruns_early else reruns + waits
        least: Ints = task.problem.profile.duration_ns + together
        return least

    @property
    def _reruns_early(self) -> bool:
        """Whether something may run again before the critical op, which then comes later."""
        graph = self.task.scorer.graph
        may = (self.base == RECOMPUTE) & graph.is_saved
        may |= self.dropped(len(self.order.ops))
        first_need = graph.n_forward + graph.first_backward_read
        return bool((may & (first_need <= self.task.critical.index)).any())

    def first_possible(self, share: float) -> int:
        """Lowest count at which the share can carry what is missing; beyond the last if none.

        A copy takes at least its bytes' time, so bytes are bounded by the share's time.
        """
        task, graph = self.task, self.task.scorer.graph
        carried = int(graph.nbytes[self.swappable & task.relieving].sum()) if share > 0 else 0
        if not task.rule.link_windows:
            link_ns = min(int(share * self.until_ns), 2**60)
            carried = min(carried, link_ns * task.problem.hardware.d2h_bytes_per_s // 10**9)
        always = int(graph.nbytes[task.relieving & (self.base == SWAP)].sum())
        # `missing_bytes` only falls.
        return int(np.searchsorted(-self.missing_bytes, -carried - always))


@compiled_part
def _ask(
    producer: Any, is_saved: Any, r_start: Any, r_items: Any, available: Any, code: Any, runs: Any,
    asked: Any,
) -> None:
    """Mark what the closures of recomputed tensors read, directly or through what is not there."""
    runs[:] = False
    asked[:] = False
    for t in range(len(code)):
        if is_saved[t] and code[t] == RECOMPUTE:
            runs[producer[t]] = True
    for op in range(len(runs) - 1, -1, -1):
        if runs[op]:
            for at in range(r_start[op], r_start[op + 1]):
                t = r_items[at]
                asked[t] = True
                if producer[t] >= 0 and not available[t]:
                    runs[producer[t]] = True


@compiled
def _build(
    producer: Any, nbytes: Any, is_saved: Any, r_start: Any, r_items: Any, written: Any,
    written_ns: Any, copy_ns: Any, default: Any, base: Any, droppable: Any, swappable: Any,
    stored: Any, any_stored: bool, available: Any, place: Any, runs: Any, asked: Any, counts: Any,
    until: Any, room: int, codes: Any,
) -> None:
    """Fill each row: drop by place in the order, forget idle stores, copy first in, first out."""
    for row in range(len(counts)):
        code = codes[row]
        for t in range(len(base)):
            code[t] = base[t]
            if droppable[t] and place[producer[t]] < counts[row]:
                code[t] = RECOMPUTE
        if any_stored:
            # What no closure reads need not be stored.
            _ask(producer, is_saved, r_start, r_items, available, code, runs, asked)
            for t in range(len(base)):
                if stored[t] and not asked[t]:
                    code[t] = default[t]
        if until[row] > 0:
            left = room
            link_free = np.int64(0)
            for at in range(len(written)):
                t = written[at]
                if swappable[t] and code[t] == KEEP:
                    end = max(link_free, written_ns[producer[t]]) + copy_ns[t]
                    if end <= until[row] and nbytes[t] <= left:
                        code[t] = SWAP
                        link_free = end
                        left -= nbytes[t]
