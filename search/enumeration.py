"""Every plan of a small problem, scored: ground truth."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from slackswap.bound import Bound, BoundMethod
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Scorer
from slackswap.errors import Infeasible, Skipped
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.problem import Problem
from slackswap.search.milp.data import ModelData
from slackswap.status import Status

Codes = NDArray[np.int8]

#: Most tensors that enumeration decides on: 3^12 is half a million plans.
MAX_DECISIONS = 12

_CHUNK = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """The tensors that plans can treat differently, and how.

    Attributes
    ----------
    tensors : tuple of int
        Their indices. Left out are inputs, tensors that allow one action only, and intermediates
        that no closure can read or write: storing those changes nothing.
    options : tuple of int8 arrays
        Codes that each may take.
    base : int8[tensors]
        Codes of all other tensors.
    """

    tensors: tuple[int, ...]
    options: tuple[Codes, ...]
    base: Codes

    @classmethod
    def of(cls, scorer: Scorer, *, allow_swap: bool = True, allow_recompute: bool = True
           ) -> Decisions:
        """Find the decisions of a problem."""
        graph, data = scorer.graph, ModelData.of(scorer.problem)
        allowed = scorer.allowed.copy()
        allowed[:, RECOMPUTE] &= data.may_drop & (allow_recompute | graph.is_intermediate)
        allowed[:, SWAP] &= allow_swap
        unread = graph.is_intermediate & (data.last_read < 0)
        allowed[unread & (data.last_closure[graph.producer] < 0)] = [False, False, True]
        # Stored, an output that nobody reads is not written again by an op that runs again for
        # another output. It is never transferred, so keeping and swapping it are the same.
        allowed[unread & allowed[:, KEEP], SWAP] = False
        base = scorer.default.copy()
        tensors: list[int] = []
        for t in range(graph.n_tensors):
            codes = np.flatnonzero(allowed[t]).astype(np.int8)
            if len(codes) > 1:
                tensors.append(t)
            elif len(codes) == 1:
                base[t] = codes[0]
            else:
                # Nothing is permitted: with the default the cost model calls the plan invalid.
                base[t] = RECOMPUTE if graph.is_intermediate[t] else KEEP
        options = tuple(np.flatnonzero(allowed[t]).astype(np.int8) for t in tensors)
        return cls(tuple(tensors), options, base)

    @property
    def count(self) -> int:
        """Number of plans."""
        return prod(len(codes) for codes in self.options)

    def chunks(self) -> Iterator[Codes]:
        """Yield the codes of all plans, some thousands at a time."""
        for start in range(0, self.count, _CHUNK):
            number = np.arange(start, min(start + _CHUNK, self.count))
            codes = np.repeat(self.base[np.newaxis], len(number), axis=0)
            for t, choices in zip(self.tensors, self.options, strict=True):
                number, digit = np.divmod(number, len(choices))
                codes[:, t] = choices[digit]
            yield codes


@dataclass(frozen=True, slots=True, eq=False)
class Enumerated:
    """The best of all plans without gates and barriers.

    Attributes
    ----------
    codes : int8[tensors] or None
        The fastest plan, the first of equals; None when none fits.
    iteration_ns : int or None
        Its time.
    plans, feasible : int
        How many there are, and how many of them fit.
    runtime_s : float
        Time it took.
    """

    codes: Codes | None
    iteration_ns: int | None
    plans: int
    feasible: int
    runtime_s: float


def enumerate_plans(
    problem: Problem, *, allow_swap: bool = True, allow_recompute: bool = True, jobs: int = 1
) -> Enumerated:
    """Score every plan of a problem.

    Parameters
    ----------
    problem : Problem
        With at most `MAX_DECISIONS` tensors that plans can treat differently.
    allow_swap, allow_recompute : bool
        Leave out plans that swap, or that recompute saved tensors.
    jobs : int
        Threads.

    Raises
    ------
    Skipped
        When there are more such tensors.
    """
    started = time.perf_counter()
    scorer = Scorer(problem)
    decisions = Decisions.of(scorer, allow_swap=allow_swap, allow_recompute=allow_recompute)
    if len(decisions.tensors) > MAX_DECISIONS:
        raise Skipped(
            f"{len(decisions.tensors)} tensors can be treated differently, more than "
            f"{MAX_DECISIONS}",
            where="enumeration", fix="use milp",
        )
    best: Codes | None = None
    best_ns: int | None = None
    feasible = 0
    for codes in decisions.chunks():
        scores = scorer.score(codes, jobs=jobs)
        feasible += int(scores.feasible.sum())
        row = scores.best()
        if row is not None and (best_ns is None or scores.iteration_ns[row] < best_ns):
            best, best_ns = codes[row].copy(), int(scores.iteration_ns[row])
    return Enumerated(best, best_ns, decisions.count, feasible, time.perf_counter() - started)


def enumeration_bound(problem: Problem, enumerated: Enumerated) -> Bound:
    """Return the best plan's time as a bound on plans without gates and barriers.

    When no plan fits, the status is `infeasible` and the value is that of pure compute.
    """
    best = enumerated.iteration_ns
    return Bound(
        value_ns=problem.profile.duration_ns if best is None else best,
        method=BoundMethod.ENUMERATION,
        status=Status.INFEASIBLE if best is None else Status.OPTIMAL,
        runtime_s=enumerated.runtime_s,
        gated=False,
        note=f"{enumerated.plans} plans, {enumerated.feasible} of them fit",
    )


@dataclass(frozen=True, slots=True)
class Enumerate:
    """Tries every plan without gates and barriers: optimal, and only for small problems.

    Parameters
    ----------
    jobs : int
        Threads; the plan does not depend on it.
    """

    name: ClassVar[str] = "enumerate"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(gives_bound=True, monotone=True)

    jobs: int = 1

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the fastest plan.

        Raises
        ------
        Skipped
            When more than `MAX_DECISIONS` tensors can be treated differently.
        Infeasible
            When no plan fits.
        """
        enumerated = enumerate_plans(problem, jobs=self.jobs)
        report(plans=enumerated.plans, plans_that_fit=enumerated.feasible)
        report.bound(enumeration_bound(problem, enumerated))
        if enumerated.codes is None:
            raise Infeasible(
                f"none of all {enumerated.plans} plans fits {problem.budget_bytes} bytes",
                where="budget", fix="raise the budget",
            )
        return Scorer(problem).decode(enumerated.codes)
