"""The plans that SlackSwap's rule spans on a profile, and the fastest of them that fits.

A plan of the span is given by a price order of what may be recomputed, by how many ops of that
order run again, and by the share of the link's time that the rest may take. None of these depends
on the budget, which only says what fits. A plan without barriers is never slower at a larger
budget, so the fastest plan of a fixed span is not either. That is kept although most of the span is
never scored:

* A plan is skipped only if it cannot fit or cannot beat the best so far, by the two inequalities
  of `_Family`.
* For each share, thresholds below the lowest fitting one that the walk finds are left out. The
  walk is a fixed tree of yes-no questions, all answered no before it goes up; a larger budget turns
  answers only from no to yes, so it ends no higher. All thresholds above are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from slackswap.analysis.closure import ClosureOrder, least_rerun_ns, rank_by_closure, spread
from slackswap.analysis.intermediates import asked_for, worth_storing
from slackswap.analysis.layers import layer_of_ops
from slackswap.analysis.memory import CriticalOp, away_above, away_at, critical_op
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.graph import Bools, Ints
from slackswap.planners.common.fitting import permitted
from slackswap.planners.common.link import admit_earliest, admit_per_layer, worth_a_copy
from slackswap.problem import Problem

if TYPE_CHECKING:
    from slackswap.planners.slackswap import SlackSwap

#: Shares of the link's time, the whole of it first, the more different ones before the others.
#: Beyond the whole, compute waits for copies.
_SHARES = (1.0, 0.6, 1.03, 0.9, 1.25, 0.97, 0.94, 0.8, 2.0, 4.0, 1e6)
#: Shares of what the link can bring back during the backward pass, where that is less.
_SHARES_BACK = (1.0, 1.1, 0.9, 1.2, 0.8)
#: Levels of memory, as parts of the highest, above which ops may have to be relieved.
_LEVELS = (0.75, 0.5, 0.25)
#: Places in the price order, as parts of it, whose prices intermediates are stored at.
_STORING = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
#: Ratio of prices that count as the same when ops are taken far apart.
_SAME_PRICE = 1.25
#: Thresholds are walked on a grid of this many cells, and halved within a cell.
_CELLS = 32
#: Thresholds scored in one call once the lowest fitting one is known.
_BATCH = 16
#: Ops simulated, over all plans, after which a search that has found a plan stops.
_WORK = 2_000_000

_NEVER = int(np.iinfo(np.int64).max)


@dataclass(slots=True)
class Best:
    """The fastest plan found so far, and where in the span."""

    codes: Codes | None = None
    iteration_ns: int = _NEVER
    share: float = 0.0
    ns_per_byte: float = 0.0


@dataclass(slots=True)
class Sweep:
    """One planning run.

    Attributes
    ----------
    rule : SlackSwap
        The rule, or an ablation of it.
    problem : Problem
        What to plan for.
    deadline : Deadline
        When to stop.
    """

    rule: SlackSwap
    problem: Problem
    deadline: Deadline
    best: Best = field(default_factory=Best)
    evaluations: int = 0
    scorer: Scorer = field(init=False)
    critical: CriticalOp = field(init=False)
    away: Bools = field(init=False)
    base: Codes = field(init=False)

    def __post_init__(self) -> None:
        self.scorer = Scorer(self.problem)
        self.critical = critical_op(self.scorer.graph)
        self.away = away_at(self.scorer.graph, self.critical)
        allowed = self.scorer.allowed
        self.base = self.scorer.default.copy()
        must_go = self.scorer.graph.is_saved & ~allowed[:, KEEP]
        if must_go.any():
            self.base[must_go] = SWAP if self.rule.swap else RECOMPUTE
            self.base = permitted(self.scorer, self.base)

    def run(self) -> None:
        """Find the fastest plan of the span; `best` stays empty when none fits."""
        self._score([self.base], share=0.0, prices=[0.0])
        if self.best.iteration_ns <= self.problem.profile.duration_ns:
            return
        lowest = []
        for family, share in self._pairs():
            if self.stopped:
                return
            if self._promising(family, family.first_possible(share)).size:
                lowest.append((family, share, self._lowest(family, share)))
        if self.rule.ordered:
            return  # with barriers or gates nothing is promised, and most plans are slow
        for family, share, count in lowest:
            if count is not None:
                self._score_above(family, share, count)

    def any_fits(self) -> bool:
        """Whether some plan of the span fits; stops at the first."""
        if self._score([self.base], share=0.0, prices=[0.0])[0]:
            return True
        return any(
            self._fitting_cell(family, share) is not None for family, share in self._pairs()
        )

    def extremes(self) -> Iterator[Codes]:
        """Plans of the span that recompute all they may, and swap what is in time or all."""
        family = next(self._families())
        for share in (_SHARES[0], _SHARES[-1]):
            yield self._plan(family, len(family.order.ops), share if self.rule.swap else 0.0)

    def faster(self, plans: list[Codes]) -> Codes | None:
        """Return the fastest of some plans if it beats the best of the span, else None."""
        if not plans:
            return None
        scores = self.scorer.score(np.array(plans))
        self.evaluations += len(plans)
        row = scores.best()
        if row is None or scores.iteration_ns[row] >= self.best.iteration_ns:
            return None
        return plans[row]

    @property
    def stopped(self) -> bool:
        """Whether time is up, or a plan is found and enough work spent on better ones."""
        work = self.evaluations * self.scorer.graph.n_forward
        return self.late or (self.best.codes is not None and work > _WORK)

    @property
    def late(self) -> bool:
        """Whether the time limit has passed."""
        return self.deadline.passed

    def _pairs(self) -> Iterator[tuple[_Family, float]]:
        """Families and shares; the first share with all families first."""
        first, *others = self._shares()
        families = []
        for family in self._families():
            families.append(family)
            yield family, first
        for share in others:
            for family in families:
                yield family, share

    def _shares(self) -> tuple[float, ...]:
        if not self.rule.swap:
            return (0.0,)
        if self.rule.link_windows:
            return _SHARES[:1]  # a layer's window takes the place of the share
        hardware, graph = self.problem.hardware, self.scorer.graph
        out = hardware.d2h_bytes_per_s * int(graph.forward_ns.sum())
        back = hardware.h2d_bytes_per_s * int(graph.backward_ns.sum())
        if back >= out:
            return _SHARES
        return (*_SHARES, *(back / out * share for share in _SHARES_BACK))

    # ------------------------------------------------------------------ the span

    def _families(self) -> Iterator[_Family]:
        """Price orders over what relieves the critical op, and over what relieves others too."""
        graph = self.scorer.graph
        yield from self._with_stores(self.away, self.critical.start_ns)
        # Where memory is short at several ops, no set of tensors relieves them all alike.
        seen = {self.away.tobytes()}
        for part in _LEVELS:
            useful = away_above(graph, int(part * self.critical.level_bytes))
            if useful.tobytes() not in seen:
                seen.add(useful.tobytes())
                yield from self._with_stores(useful, int(graph.forward_ns.sum()))

    def _with_stores(self, useful: Bools, until_ns: int) -> Iterator[_Family]:
        """Yield a price order, then those in which intermediates worth their memory are stored."""
        graph = self.scorer.graph
        plain = self._family(useful, until_ns, np.zeros(graph.n_tensors, dtype=np.bool_))
        spread_out = spread(plain.order, _SAME_PRICE)
        if not np.array_equal(spread_out.ops, plain.order.ops):
            yield replace(plain, order=spread_out)
        yield plain
        order = plain.order
        if not (self.rule.recompute and self.rule.store_intermediates) or not len(order.ops):
            return
        available = graph.is_input | graph.is_saved
        level = np.maximum.accumulate(order.ns_per_byte)
        seen = set()
        for part in _STORING:
            price = level[int(np.ceil(part * len(order.ops))) - 1]
            dropped = self._dropped(plain, int(np.sum(level <= price)))
            stored = worth_storing(graph, available, dropped, float(price))
            stored &= self.scorer.allowed[:, KEEP]
            if stored.any() and stored.tobytes() not in seen:
                seen.add(stored.tobytes())
                yield self._family(useful, until_ns, stored)

    def _family(self, useful: Bools, until_ns: int, stored: Bools) -> _Family:
        graph, allowed = self.scorer.graph, self.scorer.allowed
        base = np.where(stored, KEEP, self.base)
        available = graph.is_input | graph.is_saved | stored
        free = graph.is_saved & (base == KEEP)
        droppable = free & allowed[:, RECOMPUTE] & self.rule.recompute
        order = rank_by_closure(
            graph, available, graph.bytes_by_op(droppable & useful),
            own_time_only=not self.rule.closure_prices,
        )
        swappable = free & useful & allowed[:, SWAP] & worth_a_copy(self.scorer) & self.rule.swap
        return _Family(self, base, stored, available, order, droppable, swappable, until_ns)

    def _dropped(self, family: _Family, count: int) -> Bools:
        reruns = np.zeros(self.scorer.graph.n_forward, dtype=np.bool_)
        reruns[family.order.ops[:count]] = True
        return family.droppable & reruns[self.scorer.graph.producer]

    def _plan(self, family: _Family, count: int, share: float) -> Codes:
        """Recompute the `count` cheapest, and give a share of the link to the rest."""
        graph, codes = self.scorer.graph, family.base.copy()
        dropped = self._dropped(family, count)
        codes[dropped] = RECOMPUTE
        if family.stored.any():
            idle = family.stored & ~asked_for(graph, family.available, codes == RECOMPUTE)
            codes[idle] = self.scorer.default[idle]
        if share > 0:
            codes[self._admitted(family, family.swappable & ~dropped, share)] = SWAP
        return codes

    def _admitted(self, family: _Family, candidates: Bools, share: float) -> Bools:
        graph, host = self.scorer.graph, self.problem.hardware.host_bytes
        if host is not None:
            host = max(0, host - int(graph.nbytes[family.base == SWAP].sum()))
        if self.rule.link_windows:
            layers = layer_of_ops(self.problem.profile.forward)
            return admit_per_layer(graph, candidates, self.scorer.d2h_ns, layers, host)
        priority: Ints | None = None
        if self.rule.link_order == "dearest":
            ops = family.order.ops
            place = np.full(graph.n_forward, len(ops), dtype=np.int64)
            place[ops] = np.arange(len(ops))
            priority = -place[graph.producer]
        until = family.link_ns(share)
        return admit_earliest(graph, candidates, self.scorer.d2h_ns, until, host, priority)

    # ------------------------------------------------------------------ the search

    def _score_above(self, family: _Family, share: float, count: int) -> None:
        """Score all thresholds above one that may beat the best plan so far."""
        counts = self._promising(family, count + 1)
        while counts.size and not self.stopped:
            self._score_at(family, share, counts[:_BATCH])
            counts = self._promising(family, int(counts[:_BATCH][-1]) + 1)

    def _promising(self, family: _Family, start: int) -> Ints:
        """Thresholds from `start` on that may beat the best plan so far."""
        return start + np.flatnonzero(family.at_least_ns[start:] < self.best.iteration_ns)

    def _lowest(self, family: _Family, share: float) -> int | None:
        """Find the lowest threshold that fits, as far as one can tell by halving a cell."""
        cell = self._fitting_cell(family, share)
        if cell is None:
            return None
        low, high = cell
        possible = family.first_possible(share)
        while low < high:
            # The middle does not depend on what is possible, lest a larger budget walk elsewhere.
            middle = (low + high) // 2
            if middle >= possible and self._fits(family, share, middle):
                high = middle
            else:
                low = middle + 1
        return high

    def _fitting_cell(self, family: _Family, share: float) -> tuple[int, int] | None:
        """Walk up a grid of thresholds to the first cell whose last threshold fits."""
        top = len(family.order.ops)
        step = max(1, -(-top // _CELLS))
        possible = family.first_possible(share)
        below = -1
        for at in (*range(0, top, step), top):
            if self.late:
                return None
            if at >= possible and self._fits(family, share, at):
                return below + 1, at
            below = at
        return None

    def _fits(self, family: _Family, share: float, count: int) -> bool:
        return bool(self._score_at(family, share, np.array([count]))[0])

    def _score_at(self, family: _Family, share: float, counts: Ints) -> Bools:
        prices = [float(family.order.ns_per_byte[at - 1]) if at else 0.0 for at in counts.tolist()]
        plans = [self._plan(family, count, share) for count in counts.tolist()]
        return self._score(plans, share=share, prices=prices)

    def _score(self, plans: list[Codes], *, share: float, prices: list[float]) -> Bools:
        """Score plans, keep the best, and tell which fit."""
        self.evaluations += len(plans)
        if self.rule.ordered:
            ordered = [
                self.rule.with_order(self.problem, self.scorer.decode(codes)) for codes in plans
            ]
            scores = self.scorer.score_plans(ordered)
        else:
            scores = self.scorer.score(np.array(plans))
        fits = scores.feasible
        if fits.any():
            times = np.where(fits, scores.iteration_ns, _NEVER)
            row = int(times.argmin())
            if times[row] < self.best.iteration_ns:
                self.best = Best(plans[row], int(times[row]), share, prices[row])
        return fits


@dataclass(slots=True, eq=False)
class _Family:
    """One price order, and what holds for all its plans without asking the referee.

    Memory at the critical op is at least that of keeping everything, less what is dropped and less
    what has been copied out by then. So copies must carry the rest, which takes link time: where
    they can only be given less, no plan fits (`first_possible`), and where compute reaches the op
    sooner, it waits (`at_least_ns`).

    Attributes
    ----------
    base : int8[tensors]
        Actions of what is neither dropped nor swapped.
    stored : bool[tensors]
        Intermediates kept where a closure reads them.
    available : bool[tensors]
        Where closures end.
    order : ClosureOrder
        Ops, cheapest to run again first.
    droppable, swappable : bool[tensors]
        What may be recomputed, and swapped.
    until_ns : int
        The link's time, on the clock of a forward pass without stalls.
    """

    sweep: Sweep
    base: Codes
    stored: Bools
    available: Bools
    order: ClosureOrder
    droppable: Bools
    swappable: Bools
    until_ns: int
    missing_bytes: Ints = field(init=False)
    at_least_ns: Ints = field(init=False)
    swappable_bytes: int = field(init=False)
    always_swapped_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        problem, graph = self.sweep.problem, self.sweep.scorer.graph
        critical, away = self.sweep.critical, self.sweep.away
        per_op = graph.bytes_by_op(self.droppable & away)
        freed = np.concatenate([[0], np.cumsum(per_op[self.order.ops])])
        freed += int(graph.nbytes[away & (self.base == RECOMPUTE)].sum())
        self.missing_bytes = np.maximum(critical.level_bytes - problem.budget_bytes - freed, 0)
        self.swappable_bytes = int(graph.nbytes[self.swappable & away].sum())
        self.always_swapped_bytes = int(graph.nbytes[away & (self.base == SWAP)].sum())

        reruns = least_rerun_ns(graph, self.available, self.order.ops)
        # Rounded down, so that it stays a bound.
        carried_ns = 0.999999 * 1e9 * self.missing_bytes / problem.hardware.d2h_bytes_per_s
        waits = np.clip(carried_ns - critical.start_ns, 0, 2.0**60).astype(np.int64)
        early = self._reruns_before(critical)
        self.at_least_ns = problem.profile.duration_ns + (
            np.maximum(reruns, waits) if early else reruns + waits
        )

    def _reruns_before(self, critical: CriticalOp) -> bool:
        """Whether something may run again before the critical op, which then comes later."""
        graph = self.sweep.scorer.graph
        may = (self.base == RECOMPUTE) & graph.is_saved
        makes = np.zeros(graph.n_forward, dtype=np.bool_)
        makes[self.order.ops] = True
        may |= self.droppable & makes[graph.producer]
        first_need = graph.n_forward + graph.first_backward_read
        return bool((may & (first_need <= critical.index)).any())

    def link_ns(self, share: float) -> int:
        """Time of a share of the link."""
        return min(int(share * self.until_ns), 2**60)

    def first_possible(self, share: float) -> int:
        """Lowest threshold at which the share can carry what is missing; beyond the last if none.

        A copy takes at least its bytes' time, so bytes are bounded by the share's time.
        """
        carried = self.swappable_bytes if share > 0 else 0
        if not self.sweep.rule.link_windows:
            bytes_per_s = self.sweep.problem.hardware.d2h_bytes_per_s
            carried = min(carried, self.link_ns(share) * bytes_per_s // 10**9)
        # `missing_bytes` only falls.
        return int(np.searchsorted(-self.missing_bytes, -carried - self.always_swapped_bytes))
