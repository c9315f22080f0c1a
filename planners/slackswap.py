"""SlackSwap: link time is a budget, spent where recomputing is dearest.

Feng, Zhou and Wang, "SlackSwap", arXiv 2610.13003, of which the abstract is public. Its rule: the
link's time during the forward pass is one global budget; tensors are ranked by closure cost per
byte; the budget goes to those dearest to recompute; what is still missing is recomputed, cheapest
first; copies go out first in, first out, come back earliest deadline first, and no barrier binds
them to layers.

How the rule is read here. Closure prices order the tensors; a threshold in that order separates
what is recomputed from what is not. Everything above the threshold is worth the link equally: each
byte of it that is away moves the threshold down by one byte. So among those the earliest written go
first: their copies start soonest and are needed back last, which is where the slack is. The
threshold is the lowest at which the referee finds the plan to fit, found by bisection, for each of
a few shares of the link budget around the whole of it.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from slackswap.cost_model.engine import KEEP, RECOMPUTE, SWAP, Codes, Scorer
from slackswap.errors import Infeasible
from slackswap.graph import Bools, Ints
from slackswap.hardware import Hardware
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.closure import ClosureOrder, rank_by_closure
from slackswap.planners.intermediates import worth_storing
from slackswap.planners.link import admit_earliest, admit_per_layer
from slackswap.planners.ordering import (
    layer_of_ops,
    with_layer_barriers,
    with_on_demand_gates,
)
from slackswap.planners.repair import permitted_actions, repair
from slackswap.planners.window import away_at, away_where_short, critical_op
from slackswap.problem import Problem
from slackswap.profile import BackwardOp, ForwardOp, Profile, Tensor

#: Shares of the link budget tried first; the best is then refined by `_STEPS`.
_SHARES = (1.0, 0.9, 0.6)
_STEPS = (0.03, -0.03)
#: Tried only while nothing fits: compute then waits for copies.
_STALLING_SHARES = (1.25, 2.0, 4.0, 1e6)
#: On larger profiles each simulation takes so long that only the whole budget is tried.
_LARGE = 10_000


@dataclass(frozen=True, slots=True)
class SlackSwap:
    """The paper's rule, verified and repaired in the referee. Each parameter is an ablation.

    Parameters
    ----------
    swap, recompute : bool
        Whether it may swap, and recompute.
    closure_prices : bool
        Rank by closure time; else by each op's own time, as additive planners do.
    link_order : {"earliest", "dearest"}
        Which of the tensors above the threshold get the link first: the earliest written, or the
        dearest to recompute.
    link_windows : bool
        Each layer's copies must fit into that layer's own forward time, instead of one budget.
    layer_barriers : bool
        Compute waits for the link at the end of each layer, both ways.
    on_demand : bool
        A tensor comes back only when the backward op that needs it is reached.
    store_intermediates : bool
        May keep intermediates that make closures cheap.
    """

    swap: bool = True
    recompute: bool = True
    closure_prices: bool = True
    link_order: Literal["earliest", "dearest"] = "earliest"
    link_windows: bool = False
    layer_barriers: bool = False
    on_demand: bool = False
    store_intermediates: bool = True

    name: ClassVar[str] = "slackswap"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities()

    def warm_up(self) -> None:
        """Load the compiled parts on a problem of two ops."""
        tensors = (Tensor("a", 8), Tensor("u", 8), Tensor("b", 8))
        forward = (
            ForwardOp("fa", 8, (), (0,)),
            ForwardOp("fu", 1, (0,), (1,)),
            ForwardOp("fb", 8, (1,), (2,)),
        )
        backward = (BackwardOp("bb", 8, (2,)), BackwardOp("ba", 8, (0,)))
        problem = Problem(
            Profile("warm-up", "random", tensors, forward, backward),
            Hardware("warm-up", 10**9, 10**9),
            23,
        )
        _Sweep(self, problem, None).run()

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Sweep the link share, bisect the threshold, keep the fastest plan that fits."""
        deadline = None if time_limit is None else time.perf_counter() + time_limit
        sweep = _Sweep(self, problem, deadline)
        sweep.run()
        report(
            evaluations=sweep.evaluations,
            link_share=sweep.best.share,
            threshold_ns_per_byte=sweep.best.threshold,
        )
        if sweep.best.codes is None:
            raise Infeasible(
                f"no plan of the rule fits {problem.budget_bytes} bytes",
                where="slackswap",
                fix="raise the budget, or see `slackswap bound` for what any plan needs",
            )
        return self.ordered(problem, sweep.scorer.decode(sweep.best.codes))

    def ordered(self, problem: Problem, plan: Plan) -> Plan:
        """Add the barriers and gates of the ablations to a plan."""
        if self.layer_barriers:
            plan = with_layer_barriers(problem.profile, plan)
        return with_on_demand_gates(problem.profile, plan) if self.on_demand else plan


@dataclass(slots=True)
class _Best:
    """The fastest plan found so far, and where in the sweep."""

    codes: Codes | None = None
    iteration_ns: int = np.iinfo(np.int64).max
    share: float = 0.0
    threshold: float = 0.0


@dataclass(slots=True)
class _Sweep:
    """One planning run over link shares and thresholds."""

    rule: SlackSwap
    problem: Problem
    deadline: float | None
    best: _Best = field(default_factory=_Best)
    evaluations: int = 0
    scorer: Scorer = field(init=False)
    available: Bools = field(init=False)
    relieves: Bools = field(init=False)
    until_ns: int = field(init=False)
    base: Codes = field(init=False)

    def __post_init__(self) -> None:
        self.scorer = Scorer(self.problem)
        graph = self.scorer.graph
        critical = critical_op(graph)
        self.until_ns = critical.start_ns
        self.relieves = away_at(graph, critical)
        self.available = graph.is_input | graph.is_saved
        allowed = self.scorer.allowed
        self.base = self.scorer.default.copy()
        must_go = graph.is_saved & ~allowed[:, KEEP]
        self.base[must_go] = np.where(allowed[must_go, SWAP], SWAP, RECOMPUTE)

    def run(self) -> None:
        """Find the fastest plan of the rule; `best` stays empty when none fits."""
        if self._try(self.base, 0.0, 0.0):
            return  # keeping everything fits, and nothing is faster
        self._sweep(self._ranking(self.relieves))
        if self.best.codes is None:
            # Memory is short at several ops that no set of tensors relieves alike: use all that
            # relieve some of them.
            self.relieves = away_where_short(self.scorer.graph, self.problem.budget_bytes)
            self.until_ns = int(self.scorer.graph.forward_ns.sum())
            self._sweep(self._ranking(self.relieves))
        if self.best.codes is None:
            # Beyond the rule: let compute wait for copies.
            order = self._ranking(self.relieves)
            for share in _STALLING_SHARES if self.rule.swap else (0.0,):
                self._bisect(order, share)
        if self.best.codes is None:
            self._repair(self._ranking(self.relieves))
        elif self.rule.recompute and self.rule.store_intermediates:
            kept = worth_storing(
                self.scorer.graph, self.available, self.best.codes == RECOMPUTE, self.best.threshold
            )
            kept &= self.scorer.allowed[:, KEEP]
            if kept.any():
                self.available = self.available | kept
                self.base = np.where(kept, KEEP, self.base)
                self._sweep(self._ranking(self.relieves))

    def _sweep(self, order: ClosureOrder) -> None:
        large = self.scorer.graph.n_forward > _LARGE
        if not self.rule.swap:
            self._bisect(order, 0.0)
            return
        for share in _SHARES[:1] if large else _SHARES:
            self._bisect(order, share)
        if self.best.codes is not None and self.best.share > 0 and not large:
            centre = self.best.share
            for step in _STEPS:
                self._bisect(order, centre + step)

    def _bisect(self, order: ClosureOrder, share: float) -> None:
        """Find the lowest threshold at which the plan fits, for one share of the link budget."""
        top = len(order.ops)
        fitting = self._lowest(order, share, 0, top + 1)
        if fitting <= top:
            return
        # Recomputing much can take more memory than it frees, since what is made again stays. Then
        # the thresholds that fit are few and low, and halving from the middle misses them.
        below, at = -1, 0
        while at <= top and not self._late():
            if self._try_at(order, at, share):
                self._lowest(order, share, below + 1, at)
                return
            below, at = at, 2 * at + 1

    def _lowest(self, order: ClosureOrder, share: float, low: int, high: int) -> int:
        """Halve the interval of thresholds; `high` counts as fitting."""
        while low < high and not self._late():
            middle = (low + high) // 2
            if middle > len(order.ops):
                break
            if self._try_at(order, middle, share):
                high = middle
            else:
                low = middle + 1
        return high

    def _late(self) -> bool:
        return self.deadline is not None and time.perf_counter() > self.deadline

    def _try_at(self, order: ClosureOrder, count: int, share: float) -> bool:
        threshold = float(order.ns_per_byte[count - 1]) if count else 0.0
        return self._try(self._candidate(order, count, share), share, threshold)

    def _try(self, codes: Codes, share: float, threshold: float) -> bool:
        self.evaluations += 1
        if self.rule.layer_barriers or self.rule.on_demand:
            plan = self.rule.ordered(self.problem, self.scorer.decode(codes))
            scores = self.scorer.score_plans([plan])
        else:
            scores = self.scorer.score(codes)
        fits = bool(scores.feasible[0])
        if fits and scores.iteration_ns[0] < self.best.iteration_ns:
            self.best = _Best(codes, int(scores.iteration_ns[0]), share, threshold)
        return fits

    def _candidate(self, order: ClosureOrder, count: int, share: float) -> Codes:
        """Recompute the `count` cheapest, and give a share of the link to the rest."""
        graph, codes = self.scorer.graph, self.base.copy()
        reruns = np.zeros(graph.n_forward, dtype=np.bool_)
        reruns[order.ops[:count]] = True
        again = graph.is_saved & reruns[graph.producer] & self.scorer.allowed[:, RECOMPUTE]
        codes[again] = RECOMPUTE
        if share <= 0:
            return codes
        worth_a_copy = self.scorer.d2h_ns > 2 * self.problem.hardware.latency_ns
        candidates = (codes == KEEP) & self.scorer.allowed[:, SWAP] & worth_a_copy
        candidates &= self.relieves
        codes[self._admitted(candidates, order, share)] = SWAP
        return codes

    def _admitted(self, candidates: Bools, order: ClosureOrder, share: float) -> Bools:
        graph, host = self.scorer.graph, self.problem.hardware.host_bytes
        if self.rule.link_windows:
            layers = layer_of_ops(self.problem.profile.forward)
            return admit_per_layer(graph, candidates, self.scorer.d2h_ns, layers, host)
        until = min(int(share * self.until_ns), 2**60)
        priority: Ints | None = None
        if self.rule.link_order == "dearest":
            place = np.full(graph.n_forward, len(order.ops), dtype=np.int64)
            place[order.ops] = np.arange(len(order.ops))
            priority = -place[graph.producer]
        return admit_earliest(graph, candidates, self.scorer.d2h_ns, until, host, priority)

    def _ranking(self, useful: Bools) -> ClosureOrder:
        """Ops whose useful outputs may be recomputed, cheapest first."""
        graph = self.scorer.graph
        may = graph.is_saved & self.scorer.allowed[:, RECOMPUTE] & useful & self.rule.recompute
        freed = np.zeros(graph.n_forward, dtype=np.int64)
        np.add.at(freed, graph.producer[may], graph.nbytes[may])
        return rank_by_closure(
            graph, self.available, freed, own_time_only=not self.rule.closure_prices
        )

    def _repair(self, order: ClosureOrder) -> None:
        """Change single tensors of the extreme plans of the rule until one fits."""
        if self.rule.layer_barriers or self.rule.on_demand:
            return  # barriers and gates only wait longer; changes would be tried without them
        actions = permitted_actions(swap=self.rule.swap, recompute=self.rule.recompute)
        for share in (1.0, _STALLING_SHARES[-1]):
            start = self._candidate(order, len(order.ops), share if self.rule.swap else 0.0)
            fitting = repair(self.scorer, start, actions=actions)
            if fitting is not None:
                self._try(fitting, share, float("inf"))
