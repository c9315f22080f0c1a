"""FlashNeuron and SSDTrain: offload from the first layer on.

Bae, Lee, Jin, Son, Kim, Jang, Ham, Lee: *FlashNeuron: SSD-Enabled Large-Batch Training of Very Deep
Neural Networks*, FAST 2021. Wu et al.: *SSDTrain: An Activation Offloading Framework to SSDs for
Faster Large Language Model Training*, 2024, arXiv:2408.10013.

The rule
    *FlashNeuron* walks the tensors from the first layer on and offloads them until what stays fits.
    *SSDTrain* offloads from the first layer on as well, but only as much as the measured rate moves
    while the forward pass runs: what the last layers save stays. Neither recomputes.

Transformers
    Tensors are taken in the order of writing, whatever the network. Copies start as soon as a
    tensor is written and come back as early as memory allows. The link to the host stands for the
    one to the drive. FlashNeuron offloads no more than fits needs; SSDTrain all that it can hide,
    whatever the budget.

Beyond the plan language
    FlashNeuron's second phase, which offloads compressible tensors instead in half precision, and
    SSDTrain's forwarding of a tensor that is needed before its copy has ended.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slackswap.cost_model.scorer import SWAP, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.graph import Bools, Ints
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.fitting import (
    checked,
    first_fitting,
    out_of_reach,
    permitted,
    swappable,
)
from slackswap.planners.common.link import admit_earliest
from slackswap.problem import Problem


@dataclass(frozen=True, slots=True)
class FlashNeuron:
    """Offload the fewest of the first tensors that make the plan fit."""

    name: ClassVar[str] = "flashneuron"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_recompute=False)
    source: ClassVar[str] = "Bae et al., FAST 2021"

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the fewest tensors that fits.

        Raises
        ------
        Infeasible
            When it does not fit with all of them offloaded.
        """
        scorer = Scorer(problem)
        order = _in_order(scorer)

        def codes_of(count: int) -> Codes:
            codes = scorer.default.copy()
            codes[order[:count]] = SWAP
            return permitted(scorer, codes)

        def fits(counts: Sequence[int]) -> Bools:
            return scorer.score(np.array([codes_of(count) for count in counts])).feasible

        count = first_fitting(len(order) + 1, fits, deadline=Deadline.after(time_limit))
        if count is None:
            raise out_of_reach(problem, "offloading from the first layer on")
        report(offloaded=count)
        return scorer.decode(codes_of(count))


@dataclass(frozen=True, slots=True)
class SSDTrain:
    """Offload the first tensors, as many as the link moves during the forward pass."""

    name: ClassVar[str] = "ssdtrain"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_recompute=False, uses_budget=False)
    source: ClassVar[str] = "Wu et al., 2024, arXiv:2408.10013"

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the one plan of the rule.

        Raises
        ------
        Infeasible
            When it does not fit.
        """
        scorer = Scorer(problem)
        graph, order = scorer.graph, _in_order(scorer)
        hidden = admit_earliest(
            graph, swappable(scorer) & (graph.nbytes > 0), scorer.d2h_ns,
            int(graph.forward_ns.sum()), problem.hardware.host_bytes,
        )[order]
        # From the first on: where one no longer fits, later ones stay as well.
        count = len(order) if hidden.all() else int(np.argmin(hidden))
        codes = scorer.default.copy()
        codes[order[:count]] = SWAP
        report(offloaded=count)
        return checked(problem, scorer.decode(permitted(scorer, codes)),
                       "offloading what the forward pass hides")


def _in_order(scorer: Scorer) -> Ints:
    """Return the tensors that may leave, in the order of writing."""
    graph = scorer.graph
    in_order = graph.forward_writes.items
    result: Ints = in_order[(swappable(scorer) & (graph.nbytes > 0))[in_order]]
    return result
