"""SwapAdvisor: swap out what is needed last whenever memory runs out.

Huang, Jin, Li: *SwapAdvisor: Pushing Deep Learning Beyond the GPU Memory Limit via Smart Swapping*,
ASPLOS 2020.

The rule
    Given an order of ops and the sizes of memory pools, the ops are walked; where an allocation
    does not succeed, the tensor with the longest time to its next use leaves (Belady's rule).
    A copy out starts right after the tensor's last use, a copy in as early as memory allows. A
    genetic search over orders and pools is scored by a simulator.

Transformers
    Autograd fixes the order of ops, and this memory has no pools, so both genes of the search are
    constant. Two readings are left of it. ``belady``: one candidate, with Belady's victims, time
    to next use being counted in ops. ``genetic``: the victims themselves are the genes, scored by
    the cost model, from Belady's on; this project's genetic search, restricted to keep and swap.

Beyond the plan language
    Orders of ops and memory pools; a tensor that leaves and comes back within the forward pass.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from slackswap.cost_model.scorer import RECOMPUTE, Codes, Scorer
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.eviction import Evictions, evict
from slackswap.planners.common.fitting import checked, out_of_reach, permitted, swappable
from slackswap.planners.common.readings import WithReadings
from slackswap.problem import Problem
from slackswap.profile import Action


@dataclass(frozen=True, slots=True)
class SwapAdvisor(WithReadings):
    """Swap Belady's victims, or those that a genetic search finds.

    Parameters
    ----------
    victims : {"belady", "genetic"} or None
        Who leaves; None: whichever gives the faster plan.
    copy_at : {"use", "failure"}
        When the copy out of a victim of Belady's starts: after its last forward use, as planned
        swaps do, or only when the allocation fails, as reactive swapping would.
    evaluations : int
        Candidates that the genetic search scores.
    """

    name: ClassVar[str] = "swapadvisor"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = Capabilities(
        uses_recompute=False, deterministic=False
    )
    source: ClassVar[str] = "Huang et al., ASPLOS 2020"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"victims": ("belady", "genetic")}

    victims: Literal["belady", "genetic"] | None = None
    copy_at: Literal["use", "failure"] = "use"
    evaluations: int = 1_000

    def warm_up(self) -> None:
        """Import DEAP and what else the search needs."""
        from slackswap.search.genetic import evolution  # noqa: F401

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the rule.

        Raises
        ------
        Infeasible
            When memory runs out with every tensor that may leave gone.
        """
        scorer = Scorer(problem)
        evictions = _belady(scorer)
        if not evictions.fits:
            raise out_of_reach(problem, "SwapAdvisor")
        report(evicted=len(evictions.failed_at))
        if self.victims == "genetic" and evictions.failed_at:
            return self._searched(scorer, evictions.codes, rng, time_limit, report)
        graph, gates = scorer.graph, {}
        for t, failed_at in evictions.failed_at.items():
            gate = failed_at - 1 if self.copy_at == "failure" else int(graph.last_forward_use[t])
            if gate > graph.producer[t]:
                gates[problem.profile.tensors[t].name] = gate
        plan = scorer.decode(evictions.codes)
        return checked(problem, Plan(plan.actions, offload_gates=gates), "SwapAdvisor")

    def _searched(
        self, scorer: Scorer, start: Codes, rng: random.Random, time_limit: float | None,
        report: Report,
    ) -> Plan:
        from slackswap.search.genetic.evolution import evolve
        from slackswap.search.genetic.state import Settings

        outcome = evolve(
            _without_recompute(scorer.problem, start), Settings(self.evaluations), rng,
            seeds=[start], time_limit=time_limit,
        )
        report(candidates=outcome.candidates)
        return scorer.decode(outcome.best)


def _belady(scorer: Scorer) -> Evictions:
    graph = scorer.graph
    candidates = np.flatnonzero(swappable(scorer))
    order = candidates[
        np.lexsort(
            (candidates, -graph.nbytes[candidates], -graph.first_backward_read[candidates])
        )
    ]
    return evict(scorer, permitted(scorer, scorer.default), order)


def _without_recompute(problem: Problem, start: Codes) -> Problem:
    """Return the problem in which saved tensors can only stay or leave, and others do as now."""
    graph = problem.profile.graph
    tensors = tuple(
        tensor
        if graph.is_input[t] or start[t] == RECOMPUTE
        else replace(tensor, allowed=tuple(set(tensor.allowed) - {Action.RECOMPUTE}))
        for t, tensor in enumerate(problem.profile.tensors)
    )
    profile = replace(problem.profile, tensors=tensors)
    return Problem(profile, problem.hardware, problem.budget_bytes)
