"""The Lagrangian bound: prices found by cutting planes, evaluated in exact arithmetic.

The bound is concave and piecewise linear in the prices. Each minimum cut gives its value and a
linear piece above it; a small LP over all pieces so far proposes the next prices
(Kelley), and the step goes part of the way there from the best prices known (in-out), which damps
the jumps. Rows for the link are added where the choice at hand breaks them most.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slackswap.bound import Bound, BoundMethod
from slackswap.deadline import NO_DEADLINE, Deadline
from slackswap.problem import Problem
from slackswap.quantities import format_bytes
from slackswap.result import Phase
from slackswap.search.lagrangian.instants import Facts
from slackswap.search.lagrangian.relaxation import CutChoice, Multipliers, Relaxation
from slackswap.search.milp.data import EVERY_PLAN, ModelData, Restriction
from slackswap.search.milp.memory import op_need
from slackswap.status import Status

#: Pieces, of all prices tried at one instant.
_MOST_CUTS = 60
#: Distance between bound and its upper estimate, over the time of computing, that ends a search.
_TOLERANCE = 1e-5
#: Share of the step towards the proposed prices, after the first steps, which are whole.
_STEP, _WHOLE_STEPS = 0.7, 4
#: Rows for the link in each direction.
_MOST_ROWS = 16
#: Most that a byte may cost, over the price at which everything would run again.
_DEAREST = 1000.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """What proves a Lagrangian bound: anyone can evaluate it, see `evaluate_certificate`.

    Attributes
    ----------
    phase, op : Phase, int
        The instant; see `Instant`.
    prices : Multipliers
        Exact prices.
    """

    phase: Phase
    op: int
    prices: Multipliers

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object; prices are integers, in units of 1 / ``one``."""
        prices = self.prices
        return {
            "method": "lagrangian", "phase": str(self.phase), "op": self.op, "one": prices.one,
            "memory": prices.memory, "host": prices.host,
            "out": {str(op): price for op, price in prices.out.items()},
            "back": {str(op): price for op, price in prices.back.items()},
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Certificate:
        """Read what `to_dict` returned."""
        return cls(
            Phase(document["phase"]), int(document["op"]),
            Multipliers(
                int(document["one"]), int(document["memory"]),
                {int(op): int(price) for op, price in document["out"].items()},
                {int(op): int(price) for op, price in document["back"].items()},
                int(document["host"]),
            ),
        )


def evaluate_certificate(
    problem: Problem,
    certificate: Certificate,
    restriction: Restriction = EVERY_PLAN,
    *,
    free: bool = False,
) -> int:
    """Return the lower bound in nanoseconds that a certificate proves, in exact arithmetic.

    `restriction` and `free` are those that the bound was proven for; see `lagrangian_bound`.

    Raises
    ------
    ValueError
        When its prices prove nothing; see `Relaxation.check`.
    """
    facts = Facts.of(problem, restriction, free=free)
    relaxation = Relaxation(facts, facts.at(certificate.phase, certificate.op))
    return problem.profile.duration_ns + relaxation.proven_ns(certificate.prices)


def lagrangian_bound(
    problem: Problem,
    restriction: Restriction = EVERY_PLAN,
    *,
    free: bool = False,
    deadline: Deadline = NO_DEADLINE,
) -> Bound:
    """Bound the time of every plan by Lagrangian relaxation.

    Parameters
    ----------
    problem : Problem
        Profile, hardware and budget.
    restriction : Restriction
        Bound only plans that do not swap, or do not recompute saved tensors.
    free : bool
        Bound plans of the free language of ``docs/lower-bounds.md`` too: tensors may be split, and
        their parts moved at any time. Without it the bound is higher; it holds for every plan that
        the simulator accepts, and for those that split tensors or move them outside of their uses.
    deadline : Deadline
        What is proven by then is returned.

    Returns
    -------
    Bound
        Safe, with its `Certificate`; status `infeasible` when some op needs more than the budget
        whatever the plan, `feasible` when the search for prices was cut short.
    """
    started, computing = time.perf_counter(), problem.profile.duration_ns
    facts = Facts.of(problem, restriction, free=free)
    need = facts.least_bytes() if free else op_need(ModelData.of(problem, restriction)).nbytes

    def impossible(need: int) -> Bound:
        return Bound(
            computing, BoundMethod.LAGRANGIAN, status=Status.INFEASIBLE,
            runtime_s=time.perf_counter() - started,
            note=f"no plan fits: at least {format_bytes(need)} are needed",
        )

    if need > problem.budget_bytes:
        return impossible(need)
    best, certificate, complete = 0, None, True
    known: Multipliers | None = None
    for instant in facts.instants():
        relaxation = Relaxation(facts, instant)
        search = PriceSearch(relaxation, beyond_ns=float(best))
        search.run(deadline, known)
        complete &= search.complete
        if search.best is None:
            continue
        prices = search.best.exact()
        if search.at_dearest:
            missing = relaxation.missing_bytes(prices.memory, prices.host)
            if missing:
                return impossible(problem.budget_bytes + missing)
        proven = relaxation.proven_ns(prices)
        if certificate is None or proven > best:
            best, certificate, known = proven, Certificate(instant.phase, instant.op, prices), (
                search.best
            )
    return Bound(
        computing + best, BoundMethod.LAGRANGIAN,
        status=Status.OPTIMAL if complete else Status.FEASIBLE,
        runtime_s=time.perf_counter() - started, certificate=certificate,
    )


@dataclass(slots=True)
class PriceSearch:
    """The search for the prices that give the largest bound at one instant.

    Attributes
    ----------
    relaxation : Relaxation
        What is evaluated.
    beyond_ns : float
        A bound beyond computing that is known already; the search ends where it cannot exceed it.
    best : Multipliers or None
        The best prices so far.
    best_ns : float
        Their bound on the time beyond computing, not proven.
    complete : bool
        Whether no other prices are noticeably better.
    at_dearest : bool
        Whether memory is best priced near the most that is allowed: perhaps no plan fits.
    """

    relaxation: Relaxation
    beyond_ns: float = 0.0
    best: Multipliers | None = None
    best_ns: float = -np.inf
    complete: bool = False
    at_dearest: bool = field(default=False, init=False)
    cuts: int = field(default=0, init=False)

    def run(self, deadline: Deadline = NO_DEADLINE, start: Multipliers | None = None) -> None:
        """Search until nothing better is to be expected, or time is up."""
        relaxation, instant = self.relaxation, self.relaxation.instant
        graph, problem = relaxation.graph, relaxation.facts.problem
        movable_bytes = int(graph.nbytes[instant.movable].sum())
        if movable_bytes <= instant.room_bytes:
            self.complete = True  # everything may stay
            return
        tolerance = _TOLERANCE * problem.profile.duration_ns
        natural = max(1.0, float(graph.forward_ns.sum())) / movable_bytes
        master = _Master(relaxation, natural)
        prices = self._first(natural, start)
        while True:
            choice = relaxation.solve(prices)
            self.cuts += 1
            if choice.excess > self.best_ns:
                self.best, self.best_ns = prices, float(choice.excess)
                self.at_dearest = prices.memory >= 0.5 * _DEAREST * natural
            proposed, estimate = master.add(choice)
            if estimate <= max(self.best_ns, self.beyond_ns) + tolerance:
                self.complete = True
                return
            if self.cuts >= _MOST_CUTS or deadline.passed or proposed is None:
                return
            step = 1.0 if self.cuts <= _WHOLE_STEPS else _STEP
            assert self.best is not None
            prices = _between(self.best, proposed, step)

    def _first(self, natural: float, start: Multipliers | None) -> Multipliers:
        """Return prices to begin with: those of another instant, or a guess."""
        relaxation = self.relaxation
        instant = relaxation.instant
        if start is not None:
            return replace(
                start,
                out={op: price for op, price in start.out.items()
                     if op < relaxation.graph.n_forward and relaxation.window_out_ns(op) >= 0},
                back={op: price for op, price in start.back.items() if op >= instant.first_due},
            )
        return Multipliers(1.0, natural, {0: 0.5} if relaxation.window_out_ns(0) >= 0 else {})


def _between(old: Multipliers, new: Multipliers, step: float) -> Multipliers:
    """Return prices part of the way from old to new ones."""
    def mix(a: float, b: float) -> float:
        return (1 - step) * a + step * b

    def mixed(a: Any, b: Any) -> dict[int, float]:
        rows = {op: mix(a.get(op, 0.0), b.get(op, 0.0)) for op in {**a, **b}}
        total = sum(rows.values())
        return {op: price / max(1.0, total) for op, price in rows.items()}

    return Multipliers(
        1.0, mix(old.memory, new.memory), mixed(old.out, new.out), mixed(old.back, new.back),
        mix(old.host, new.host),
    )


class _Master:
    """The LP over the pieces found so far, built up row by row.

    It maximises an estimate t subject to ``t <= slope @ prices + rerun`` for each piece, where the
    slope is how far the choice of the piece breaks each limit. The estimate is an upper bound on
    what prices over the rows chosen so far can prove.
    """

    def __init__(self, relaxation: Relaxation, natural: float) -> None:
        from ortools.linear_solver import pywraplp

        self.relaxation, self.natural = relaxation, natural
        self.solver = pywraplp.Solver.CreateSolver("GLOP")
        self.scale = max(1.0, float(relaxation.facts.problem.profile.duration_ns))
        infinity = self.solver.infinity()
        self.estimate = self.solver.NumVar(-infinity, 1e6, "estimate")
        self.memory = self.solver.NumVar(0.0, _DEAREST, "memory")
        host = relaxation.facts.problem.hardware.host_bytes
        self.host = self.solver.NumVar(0.0, 0.0 if host is None else _DEAREST, "host")
        self.out: dict[int, Any] = {}
        self.back: dict[int, Any] = {}
        self.sum_out = self.solver.Constraint(-infinity, 1.0)
        self.sum_back = self.solver.Constraint(-infinity, 1.0)
        self.solver.Maximize(self.estimate)
        self.pieces: list[tuple[Any, _Slopes]] = []

    def add(self, choice: CutChoice) -> tuple[Multipliers | None, float]:
        """Add the piece of a choice; return the prices proposed next, and the estimate in ns."""
        slopes = _Slopes.of(self.relaxation, choice)
        piece = self.solver.Constraint(-self.solver.infinity(), slopes.rerun_ns / self.scale)
        piece.SetCoefficient(self.estimate, 1.0)
        piece.SetCoefficient(self.memory, -slopes.memory * self.natural / self.scale)
        piece.SetCoefficient(self.host, -slopes.host * self.natural / self.scale)
        self.pieces.append((piece, slopes))
        for op, price in self.out.items():
            piece.SetCoefficient(price, -slopes.out[op] / self.scale)
        for op, price in self.back.items():
            piece.SetCoefficient(price, -slopes.back[op] / self.scale)
        self._add_row(slopes.out, self.out, self.sum_out, "out")
        self._add_row(slopes.back, self.back, self.sum_back, "back")
        if self.solver.Solve() != self.solver.OPTIMAL:
            return None, float("inf")
        return Multipliers(
            1.0, self.memory.solution_value() * self.natural,
            {op: max(0.0, price.solution_value()) for op, price in self.out.items()},
            {op: max(0.0, price.solution_value()) for op, price in self.back.items()},
            self.host.solution_value() * self.natural,
        ), self.estimate.solution_value() * self.scale

    def _add_row(self, slopes: Any, prices: dict[int, Any], total: Any, name: str) -> None:
        """Give the row that the choice breaks most a price, if it has none."""
        if not len(slopes):
            return
        op = int(slopes.argmax())
        if slopes[op] <= 0 or op in prices or len(prices) >= _MOST_ROWS:
            return
        prices[op] = self.solver.NumVar(0.0, 1.0, f"{name}{op}")
        total.SetCoefficient(prices[op], 1.0)
        for piece, known in self.pieces:
            slope = known.out[op] if name == "out" else known.back[op]
            piece.SetCoefficient(prices[op], -slope / self.scale)


@dataclass(frozen=True, slots=True, eq=False)
class _Slopes:
    """By how much a choice exceeds each limit; minus infinity where an op has no limit."""

    rerun_ns: float
    memory: float
    host: float
    out: Any
    back: Any

    @classmethod
    def of(cls, relaxation: Relaxation, choice: CutChoice) -> _Slopes:
        facts, instant, graph = relaxation.facts, relaxation.instant, relaxation.graph
        rerun = float(graph.forward_ns[choice.again].sum())
        copied = np.flatnonzero(choice.copied)
        out = np.zeros(graph.n_forward)
        np.add.at(out, graph.producer[copied], facts.out_ns[copied].astype(np.float64))
        out = np.cumsum(out[::-1])[::-1] - (instant.before_ns - facts.end_ns)
        out[facts.end_ns > instant.before_ns] = -np.inf
        back = np.zeros(graph.n_backward + 1)
        np.add.at(back, instant.due[copied], facts.back_ns[copied].astype(np.float64))
        back = np.cumsum(back[:-1]) - (instant.after_ns + rerun)
        back[: instant.first_due] = -np.inf
        host = facts.problem.hardware.host_bytes
        return cls(
            rerun, float(graph.nbytes[choice.kept].sum()) - instant.room_bytes,
            0.0 if host is None else float(graph.nbytes[choice.copied].sum()) - host, out, back,
        )
