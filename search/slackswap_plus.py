"""SlackSwap+: the paper's rule, then a deterministic search around it in the referee.

The rule takes whole tensors in price order, so its last step frees more than it needs. Here the
recompute set is chosen anew as a knapsack (least closure time that frees the bytes missing at the
critical op), for link shares around the rule's own; the referee says how many bytes that really
takes. Single changes and exchanges then polish the best plan found.

What is found depends on the budget, so that a larger one could be slower. Therefore the rungs below
the budget are planned for too, as far as they may be faster.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from slackswap.analysis.closure import IMPOSSIBLE, closure_ns
from slackswap.analysis.memory import CriticalOp, away_at, critical_op
from slackswap.analysis.quick_bounds import least_ns
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.errors import Infeasible
from slackswap.graph import Bools, Ints
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.budget_grid import lower_rungs
from slackswap.planners.common.link import admit_earliest, worth_a_copy
from slackswap.planners.slackswap import SlackSwap
from slackswap.problem import Problem

#: Shares of the link budget tried, the whole of it first.
_SHARES = (1.0, 1.02, 0.98, 1.04, 0.96, 1.06, 0.93, 0.9)
#: Corrections of the knapsack's demand for each share.
_CORRECTIONS = 5
#: Plans scored at most while polishing.
_POLISH = 1000
_BATCH = 96
#: Cheaper ops tried in exchange for each rerun op, those first that free most.
_PARTNERS = 6
#: Branch-and-bound nodes of one knapsack; a count, so that the plan does not depend on the clock.
_NODES = 2000


@dataclass(frozen=True, slots=True)
class SlackSwapPlus:
    """The paper's rule followed by knapsack and local search, anytime.

    Parameters
    ----------
    polish : int
        Most plans scored by the local search.
    """

    polish: int = _POLISH

    name: ClassVar[str] = "slackswap+"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = Capabilities(anytime=True, monotone=True)

    def warm_up(self) -> None:
        """Load the compiled parts and the knapsack solver."""
        SlackSwap().warm_up()
        _least_time(np.array([1, 2]), np.array([1, 2]), 2)

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Plan by the rule, then improve until nothing more is found or time is up.

        Lower budgets are planned for too, as far as a plan for one may be faster.
        """
        deadline = Deadline.after(time_limit)
        search = _Search(problem, deadline, report)
        failure: Infeasible | None = None
        try:
            self._improve(search)
        except Infeasible as error:
            failure = error
        for rung in lower_rungs(problem):
            least = least_ns(Scorer(rung))
            if least is None or least >= search.best_ns or search.late:
                break
            lower = _Search(rung, deadline, Report())
            with suppress(Infeasible):
                self._improve(lower)
            if lower.has_plan:
                search.offer(lower.best[np.newaxis])
            search.evaluations += lower.evaluations
        report(evaluations=search.evaluations)
        if failure is not None and not search.has_plan:
            raise failure
        return search.scorer.decode(search.best)

    def _improve(self, search: _Search) -> None:
        """Take the rule's plan for the budget of a search, and search on from it."""
        rule = SlackSwap().plan(
            search.problem, rng=random.Random(0), time_limit=search.left_s, report=search.report
        )
        search.evaluations += search.report.statistics["evaluations"]
        search.offer(search.scorer.encode(rule)[np.newaxis])
        if search.best_ns > search.problem.profile.duration_ns:
            search.knapsacks(search.report.statistics["link_share"])
            search.polish(self.polish)


@dataclass(slots=True)
class _Search:
    """The best plan so far, and the ways to better it."""

    problem: Problem
    deadline: Deadline
    report: Report
    scorer: Scorer = field(init=False)
    best: Codes = field(init=False)
    best_ns: int = np.iinfo(np.int64).max
    evaluations: int = 0
    critical: CriticalOp = field(init=False)
    relieves: Bools = field(init=False)

    def __post_init__(self) -> None:
        self.scorer = Scorer(self.problem)
        self.critical = critical_op(self.scorer.graph)
        self.relieves = away_at(self.scorer.graph, self.critical)

    @property
    def has_plan(self) -> bool:
        """Whether a plan that fits has been found."""
        return self.best_ns < np.iinfo(np.int64).max

    @property
    def left_s(self) -> float | None:
        """Seconds left; None when there is no limit."""
        return self.deadline.time_limit

    @property
    def late(self) -> bool:
        """Whether the time limit has passed."""
        return self.deadline.passed

    def offer(self, codes: Codes) -> bool:
        """Score a batch and keep its best plan if it beats the best so far."""
        scores = self.scorer.score(codes)
        self.evaluations += len(codes)
        row = scores.best()
        if row is None or scores.iteration_ns[row] >= self.best_ns:
            return False
        self.best, self.best_ns = codes[row].copy(), int(scores.iteration_ns[row])
        self.report.incumbent(self.scorer.decode(self.best))
        return True

    # ------------------------------------------------------------------ knapsack

    def knapsacks(self, share: float) -> None:
        """Choose the recompute set as a knapsack, for link shares around the rule's."""
        scale = max(share, 0.5)
        for factor in _SHARES:
            if self.late:
                return
            self._knapsack_at(factor * scale)

    def _knapsack_at(self, share: float) -> None:
        """Solve, ask the referee, and correct the demand by what it says is missing."""
        graph, scorer = self.scorer.graph, self.scorer
        base = np.where(self.best == RECOMPUTE, scorer.default, self.best)
        base[(base == SWAP) & scorer.allowed[:, KEEP]] = KEEP
        stored = graph.is_input | (base != RECOMPUTE)
        freed, cost, ops = self._units(stored)
        demand = self.critical.level_bytes + self._kept_intermediates(base) - (
            self.problem.budget_bytes
        )
        reruns: Bools = np.zeros(graph.n_forward, dtype=np.bool_)
        reruns[ops] = (self.best[self._first_output(ops)] == RECOMPUTE)
        seen: set[bytes] = set()
        correction = 0
        for _ in range(_CORRECTIONS):
            swapped = self._admit(base, reruns, share)
            # What is swapped relieves the critical op too; what is rerun cannot be swapped, so
            # two rounds settle which is which.
            away = int(graph.nbytes[swapped & self.relieves].sum())
            chosen = _least_time(cost, freed, demand - away + correction, self.left_s)
            if chosen is None:
                return
            reruns = np.zeros(graph.n_forward, dtype=np.bool_)
            reruns[ops[chosen]] = True
            codes = base.copy()
            again = graph.is_saved & reruns[graph.producer] & scorer.allowed[:, RECOMPUTE]
            codes[again] = RECOMPUTE
            codes[self._admit(codes, reruns, share)] = SWAP
            if codes.tobytes() in seen:
                return
            seen.add(codes.tobytes())
            scores = scorer.score(codes)
            self.evaluations += 1
            if scores.feasible[0]:
                self.offer(codes[np.newaxis])
                spare = self.problem.budget_bytes - scores.evaluation(0).peak_bytes  # type: ignore[operator]
                correction -= spare
            else:
                correction += int(scores.shortfall_bytes[0])

    def _units(self, stored: Bools) -> tuple[Ints, Ints, Ints]:
        """Bytes freed, closure time and op of everything that may be rerun usefully."""
        graph = self.scorer.graph
        may = self.relieves & self.scorer.allowed[:, RECOMPUTE]
        freed = graph.bytes_by_op(may)
        cost = closure_ns(graph, stored)
        ops = np.flatnonzero((freed > 0) & (cost < IMPOSSIBLE))
        return freed[ops], cost[ops], ops

    def _first_output(self, ops: Ints) -> Ints:
        graph = self.scorer.graph
        saved = np.flatnonzero(graph.is_saved)[::-1]
        first = np.zeros(graph.n_forward, dtype=np.int64)
        first[graph.producer[saved]] = saved
        return first[ops]

    def _kept_intermediates(self, base: Codes) -> int:
        graph = self.scorer.graph
        return int(graph.nbytes[graph.is_intermediate & (base == KEEP)].sum())

    def _admit(self, codes: Codes, reruns: Bools, share: float) -> Bools:
        graph, scorer = self.scorer.graph, self.scorer
        candidates = (codes == KEEP) & self.relieves & scorer.allowed[:, SWAP]
        candidates &= ~reruns[graph.producer]
        candidates &= worth_a_copy(scorer)
        until = int(share * self.critical.start_ns)
        return admit_earliest(
            graph, candidates, scorer.d2h_ns, until, self.problem.hardware.host_bytes
        )

    # ------------------------------------------------------------------ local search

    def polish(self, limit: int) -> None:
        """Try single changes and exchanges until none helps or the limit is reached."""
        stop = self.evaluations + limit
        improved = True
        while improved and self.evaluations < stop and not self.late:
            improved = False
            for neighbours in (self._single_changes(), self._exchanges()):
                for batch in _batches(neighbours, _BATCH):
                    improved |= self.offer(batch)
                    if self.evaluations >= stop or self.late:
                        return
                if improved:
                    break

    def _single_changes(self) -> Codes:
        """Give up one recomputation or one transfer at a time, the dearest first."""
        graph = self.scorer.graph
        changes = []
        recomputed = graph.is_saved & (self.best == RECOMPUTE)
        ops = np.unique(graph.producer[recomputed])
        for op in ops[np.argsort(-graph.forward_ns[ops], kind="stable")]:
            for other in (KEEP, SWAP):
                codes = self.best.copy()
                outputs = recomputed & (graph.producer == op)
                codes[outputs & self.scorer.allowed[:, other]] = other
                changes.append(codes)
        return _stacked(changes, graph.n_tensors)

    def _exchanges(self) -> Codes:
        """Exchange a rerun op for cheaper ones that free about as much, and swaps for keeps."""
        graph = self.scorer.graph
        stored = graph.is_input | (self.best != RECOMPUTE) | graph.is_saved
        freed, cost, ops = self._units(stored)
        rerun = self.best[self._first_output(ops)] == RECOMPUTE
        gains: list[tuple[int, int, int]] = []
        for a in np.flatnonzero(rerun).tolist():
            cheaper = np.flatnonzero(~rerun & (cost < cost[a]))
            largest = cheaper[np.argsort(-freed[cheaper], kind="stable")][:_PARTNERS]
            gains += [(int(cost[b] - cost[a]), a, b) for b in largest.tolist()]
        changes = []
        for _, a, b in sorted(gains)[: 4 * _BATCH]:
            codes = self.best.copy()
            codes[graph.is_saved & (graph.producer == ops[a]) & self.scorer.allowed[:, KEEP]] = KEEP
            codes[
                graph.is_saved & (graph.producer == ops[b]) & self.scorer.allowed[:, RECOMPUTE]
            ] = RECOMPUTE
            changes.append(codes)
        return _stacked(changes, graph.n_tensors)


def _least_time(
    cost: Ints, freed: Ints, demand: int, time_limit: float | None = None
) -> Ints | None:
    """Choose items of least total time that free at least `demand` bytes.

    Equal items form one class with a count; of a class the first ones are taken.

    Returns
    -------
    int64[chosen] or None
        Places of the chosen items, or None when all together do not free enough.
    """
    if demand <= 0:
        return np.empty(0, dtype=np.int64)
    if demand > freed.sum():
        return None
    pairs, class_of, count = np.unique(
        np.stack([cost, freed], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    unit = max(1, int(freed.max()))
    solution = milp(
        pairs[:, 0] / max(1, int(cost.max())),
        constraints=LinearConstraint(pairs[:, 1] / unit, lb=demand / unit),
        bounds=Bounds(0, count),
        integrality=np.ones(len(pairs), dtype=np.int64),
        options={"node_limit": _NODES, "mip_rel_gap": 0.0,
                 "time_limit": float("inf") if time_limit is None else time_limit},
    )
    if solution.x is None:
        return None
    wanted = np.rint(solution.x).astype(np.int64)
    place_in_class = np.zeros(len(cost), dtype=np.int64)
    order = np.argsort(class_of.ravel(), kind="stable")
    starts = np.concatenate([[0], np.cumsum(count)[:-1]])
    place_in_class[order] = np.arange(len(cost)) - np.repeat(starts, count)
    return np.flatnonzero(place_in_class < wanted[class_of.ravel()])


def _batches(codes: Codes, size: int) -> Iterator[Codes]:
    for start in range(0, len(codes), size):
        yield codes[start : start + size]


def _stacked(changes: list[Codes], width: int) -> Codes:
    return np.array(changes, dtype=np.int8).reshape(-1, width)
