"""The ends of the scale: keep everything, recompute everything, swap everything."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Scorer
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.problem import Problem


@dataclass(frozen=True, slots=True)
class KeepAll:
    """Keep every saved tensor: what training does without a planner."""

    name: ClassVar[str] = "keep-all"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(
        uses_swap=False, uses_recompute=False, uses_budget=False
    )

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Keep each saved tensor, or do the cheapest its `allowed` leaves where keep is missing."""
        return _all_of(problem, (KEEP, SWAP, RECOMPUTE))


@dataclass(frozen=True, slots=True)
class RecomputeAll:
    """Recompute every saved tensor that can be, from the inputs on."""

    name: ClassVar[str] = "recompute-all"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_swap=False, uses_budget=False)

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Recompute what may be; keep what a non-recomputable op writes."""
        return _all_of(problem, (RECOMPUTE, KEEP, SWAP))


@dataclass(frozen=True, slots=True)
class SwapAll:
    """Swap every saved tensor: the link alone carries the deficit."""

    name: ClassVar[str] = "swap-all"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_recompute=False, uses_budget=False)

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Swap what may be, in the order of writing while the host has room; keep the rest."""
        return _all_of(problem, (SWAP, KEEP, RECOMPUTE))


def _all_of(problem: Problem, preference: tuple[np.int8, ...]) -> Plan:
    """Give each saved tensor the first action of `preference` that it may take."""
    scorer, graph = Scorer(problem), problem.profile.graph
    allowed = scorer.allowed.copy()
    # An op that cannot run again must not have to, not even for a tensor further down: storing
    # everything it writes makes sure of that.
    fixed = ~graph.is_input
    fixed[fixed] = ~graph.recomputable[graph.producer[fixed]]
    allowed[fixed & allowed[:, :RECOMPUTE].any(axis=1), RECOMPUTE] = False
    codes = scorer.default.copy()
    wanted = np.full(graph.n_tensors, -1)
    for action in reversed(preference):
        wanted = np.where(allowed[:, action], action, wanted)
    chosen = (graph.is_saved | fixed) & (wanted >= 0)
    codes[chosen] = wanted[chosen]
    if problem.hardware.host_bytes is not None:
        in_order = np.argsort(graph.producer, kind="stable")
        swapped = in_order[codes[in_order] == SWAP]
        over = np.cumsum(graph.nbytes[swapped]) > problem.hardware.host_bytes
        codes[swapped[over]] = np.where(allowed[swapped[over], KEEP], KEEP, RECOMPUTE)
    return scorer.decode(codes)
