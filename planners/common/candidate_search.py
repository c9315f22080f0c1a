"""Finding the fastest candidate that fits, without scoring most of them.

The candidates do not depend on the budget, which only says which of them fit, and a plan without
barriers is never slower at a larger budget. So the fastest of them is not slower either. That is
kept although most are never scored:

* A candidate is left out if it cannot fit or cannot beat the best so far, by two inequalities that
  need no simulation (`Candidates.first_possible`, `Candidates.at_least_ns`).
* Candidates are scored line by line. On a line each relieves memory more than the one before it:
  more ops run again, or more of the link is used. Those below the lowest fitting one that the walk
  finds are left out. The walk is a fixed tree of yes-no questions, all answered no before it goes
  up; a larger budget turns answers only from no to yes, so it ends no higher. All above are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from slackswap.cost_model.scorer import Codes
from slackswap.deadline import Deadline
from slackswap.graph import Bools, Ints
from slackswap.planners.common.candidates import Candidates, Task
from slackswap.planners.common.price_orders import price_orders

#: Shares of the link's time, the whole of it first, the more different ones before the others.
_SHARES = (1.0, 0.6, 1.03, 0.9, 0.97, 0.8)
#: Further ones where a single copy takes more than this part of the link's time.
_COARSE, _SHARES_COARSE = 0.25, (1.25, 2.0, 4.0, 1e6)
#: Shares of what the link can bring back during the backward pass, where that is less.
_SHARES_BACK = (1.0, 1.1, 0.9, 1.2, 0.8)
#: Ratio of neighbouring shares where waiting for the link is the cheapest relief that is left.
_FINE = 1.01
#: A line is walked on a grid of this many cells, then halved within a cell.
_CELLS = 32
#: Candidates scored in one call once the lowest fitting one is known.
_BATCH = 16
#: Ops simulated for about the time that a call takes besides.
_ONE_CALL = 3_000
#: Ops simulated, over all plans, after which a search that has found a plan stops.
_WORK = 2_000_000

#: A share that lets the link take all.
_EVERYTHING = 1e6
_NEVER = int(np.iinfo(np.int64).max)


@dataclass(slots=True)
class Best:
    """The fastest plan found so far, and where among the candidates."""

    codes: Codes | None = None
    iteration_ns: int = _NEVER
    share: float = 0.0
    ns_per_byte: float = 0.0


@dataclass(eq=False)
class Line:
    """Candidates of one price order, each relieving memory more than the one before it.

    Attributes
    ----------
    candidates : Candidates
        The price order.
    counts : int64[candidates]
        How many ops run again.
    shares : float64[candidates]
        How much of the link's time is used.
    possible : int
        The first that can fit.
    """

    candidates: Candidates
    counts: Ints
    shares: Any
    possible: int

    @classmethod
    def over_counts(cls, candidates: Candidates, share: float) -> Line:
        """One share of the link, and ever more ops that run again."""
        counts = np.arange(len(candidates.order.ops) + 1)
        return cls(candidates, counts, np.full(len(counts), share),
                   candidates.first_possible(share))

    @classmethod
    def over_shares(cls, candidates: Candidates, count: int) -> Line | None:
        """One number of ops that run again, and ever more of the link; None if it has no use."""
        task = candidates.task
        waiting = candidates.swappable & ~candidates.dropped(count)
        copies_ns = int(task.scorer.d2h_ns[waiting].sum())
        if candidates.until_ns == 0 or copies_ns <= candidates.until_ns:
            return None
        # Copies may also have to wait until their tensors are written.
        largest = 1 + copies_ns / candidates.until_ns
        shares = _FINE ** np.arange(1, 2 + int(np.log(largest) / np.log(_FINE)))
        return cls(candidates, np.full(len(shares), count), shares, 0)

    @cached_property
    def at_least_ns(self) -> Ints:
        """Time of each candidate at least."""
        return self.candidates.at_least_ns[self.counts]

    @cached_property
    def from_here_ns(self) -> list[int]:
        """Time that each candidate and all after it take at least."""
        least: list[int] = np.minimum.accumulate(self.at_least_ns[::-1])[::-1].tolist()
        return [*least, _NEVER]


class CandidateSearch:
    """One planning run.

    Attributes
    ----------
    task : Task
        What to plan.
    deadline : Deadline
        When to stop.
    best : Best
        The fastest candidate so far.
    evaluations : int
        Plans scored.
    """

    def __init__(self, task: Task, deadline: Deadline) -> None:
        self.task, self.deadline = task, deadline
        self.best, self.evaluations = Best(), 0

    def run(self) -> None:
        """Find the fastest candidate; `best` stays empty when none fits."""
        self.score([self.task.base])
        if self.best.iteration_ns <= self.task.problem.profile.duration_ns:
            return
        lowest = []
        for line in self.lines():
            if self.stopped:
                return
            if line.from_here_ns[line.possible] < self.best.iteration_ns:
                lowest.append((line, self.lowest(line)))
        if self.task.rule.ordered:
            return  # with barriers or gates nothing is promised, and most plans are slow
        for line, place in lowest:
            if place is not None:
                self._score_above(line, place)

    def any_fits(self) -> bool:
        """Whether some candidate fits; stops at the first."""
        return bool(self.score([self.task.base])[0]) or any(
            self._fitting_cell(line) is not None for line in self.lines()
        )

    def extremes(self) -> Iterator[Codes]:
        """Candidates that recompute all they may, and swap what is in time or all."""
        candidates = next(price_orders(self.task))
        for share in (1.0, _EVERYTHING):
            shares = np.array([share if self.task.rule.swap else 0.0])
            yield candidates.plans(np.array([len(candidates.order.ops)]), shares)[0]

    def faster(self, plans: list[Codes]) -> Codes | None:
        """Return the fastest of some plans if it beats the best candidate, else None."""
        before = self.best
        self.best = Best(iteration_ns=before.iteration_ns)
        if plans:
            self.score(plans)
        found, self.best = self.best.codes, before
        return found

    @property
    def stopped(self) -> bool:
        """Whether time is up, or a plan is found and enough work spent on better ones."""
        work = self.evaluations * self.task.scorer.graph.n_forward
        return self.late or (self.best.codes is not None and work > _WORK)

    @property
    def late(self) -> bool:
        """Whether the time limit has passed."""
        return self.deadline.passed

    def lines(self) -> Iterator[Line]:
        """All candidates, line by line: the first share with all price orders first."""
        first, *others = self._shares()
        orders = []
        for candidates in price_orders(self.task):
            orders.append(candidates)
            yield Line.over_counts(candidates, first)
        if not (self.task.rule.literal or self.task.rule.link_windows):
            for candidates in orders:
                yield from self._waiting(candidates)
        for share in others:
            for candidates in orders:
                yield Line.over_counts(candidates, share)

    def _waiting(self, candidates: Candidates) -> Iterator[Line]:
        """Run again what is cheaper than waiting for the link, and wait for the rest."""
        level = np.maximum.accumulate(candidates.order.ns_per_byte)
        count = int(np.searchsorted(level, self.task.waiting_ns_per_byte))
        line = Line.over_shares(candidates, count)
        if line is not None:
            yield line

    def _shares(self) -> tuple[float, ...]:
        rule = self.task.rule
        if not rule.swap:
            return (0.0,)
        if rule.literal or rule.link_windows:
            return _SHARES[:1]  # with windows, a layer's own time takes the place of the share
        task, hardware, graph = self.task, self.task.problem.hardware, self.task.scorer.graph
        shares: tuple[float, ...] = _SHARES
        copies = task.scorer.d2h_ns[task.relieving & task.worth_a_copy]
        if copies.max(initial=0) > _COARSE * task.critical.start_ns:
            shares += _SHARES_COARSE
        out = hardware.d2h_bytes_per_s * int(graph.forward_ns.sum())
        back = hardware.h2d_bytes_per_s * int(graph.backward_ns.sum())
        if back >= out:
            return shares
        return (*shares, *(back / out * share for share in _SHARES_BACK))

    # ------------------------------------------------------------------ along a line

    def lowest(self, line: Line) -> int | None:
        """Find the lowest place that fits, as far as one can tell by dividing a cell.

        None where none does, or where none of those left can beat the best plan so far.
        """
        cell = self._fitting_cell(line)
        if cell is None:
            return None
        low, high = cell
        while low < high:
            if line.from_here_ns[low] >= self.best.iteration_ns:
                return None
            # The places do not depend on what is possible, lest a larger budget walk elsewhere.
            width, count = high - low, self._at_once
            places = low + (
                np.arange(width) if width <= count
                else width * np.arange(1, count + 1) // (count + 1)
            )
            fits = self._fit(line, places)
            first = int(np.argmax(fits)) if fits.any() else len(places)
            if first < len(places):
                high = int(places[first])
            if first > 0:
                low = int(places[first - 1]) + 1
        return high

    def _fitting_cell(self, line: Line) -> tuple[int, int] | None:
        """Walk up a grid of places to the first cell whose last place fits."""
        top = len(line.counts) - 1
        step = max(1, -(-top // _CELLS))
        grid = np.append(np.arange(0, top, step), top)
        at = int(np.searchsorted(grid, line.possible))
        while at < len(grid) and not self.late:
            below = int(grid[at - 1]) + 1 if at else 0
            if line.from_here_ns[below] >= self.best.iteration_ns:
                return None
            fits = self._fit(line, grid[at : at + self._at_once])
            if fits.any():
                first = at + int(np.argmax(fits))
                return int(grid[first - 1]) + 1 if first else 0, int(grid[first])
            at += self._at_once
        return None

    @property
    def _at_once(self) -> int:
        """Places scored in one call on the way to the lowest: more where a plan takes little."""
        return min(8, max(1, _ONE_CALL // max(1, self.task.scorer.graph.n_forward)))

    def _fit(self, line: Line, places: Ints) -> Bools:
        """Tell which places fit; what is not possible is not scored."""
        fits: Bools = places >= line.possible
        if fits.any():
            fits[fits] = self._score_at(line, places[fits])
        return fits

    def _score_above(self, line: Line, place: int) -> None:
        """Score all places above one that may beat the best plan so far."""
        places = self._promising(line, place + 1)
        while places.size and not self.stopped:
            self._score_at(line, places[:_BATCH])
            places = self._promising(line, int(places[:_BATCH][-1]) + 1)

    def _promising(self, line: Line, start: int) -> Ints:
        """Places from `start` on that may beat the best plan so far."""
        return start + np.flatnonzero(line.at_least_ns[start:] < self.best.iteration_ns)

    def _score_at(self, line: Line, places: Ints) -> Bools:
        """Score candidates of a line, keep the best, and tell which fit."""
        counts, shares = line.counts[places], line.shares[places]
        prices = np.concatenate([[0.0], line.candidates.order.ns_per_byte])[counts]
        return self.score(line.candidates.plans(counts, shares), shares, prices)

    def score(
        self, plans: Codes | list[Codes], shares: Any = (0.0,), prices: Any = (0.0,)
    ) -> Bools:
        """Score plans, keep the best, and tell which fit."""
        self.evaluations += len(plans)
        task = self.task
        if task.rule.ordered:
            scores = task.scorer.score_plans(
                [task.rule.with_order(task.problem, task.scorer.decode(codes)) for codes in plans]
            )
        else:
            scores = task.scorer.score(np.asarray(plans))
        row = scores.best()
        if row is not None and scores.iteration_ns[row] < self.best.iteration_ns:
            at = min(row, len(shares) - 1)
            self.best = Best(plans[row], int(scores.iteration_ns[row]), float(shares[at]),
                             float(prices[at]))
        return scores.feasible
