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
    constant: one candidate remains, Belady's. Time to next use is counted in ops.

Beyond the plan language
    Orders of ops and memory pools; a tensor that leaves and comes back within the forward pass.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from slackswap.cost_model.scorer import Scorer
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.eviction import evict
from slackswap.planners.common.fitting import checked, out_of_reach, permitted, swappable
from slackswap.problem import Problem


@dataclass(frozen=True, slots=True)
class SwapAdvisor:
    """Swap Belady's victims.

    Parameters
    ----------
    copy_at : {"use", "failure"}
        When a victim's copy out starts: after its last forward use, as planned swaps do, or only
        when the allocation fails, as reactive swapping would.
    """

    name: ClassVar[str] = "swapadvisor"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_recompute=False)

    copy_at: Literal["use", "failure"] = "use"

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the rule.

        Raises
        ------
        Infeasible
            When memory runs out with every tensor that may leave gone.
        """
        scorer = Scorer(problem)
        graph = scorer.graph
        candidates = np.flatnonzero(swappable(scorer))
        order = candidates[
            np.lexsort(
                (candidates, -graph.nbytes[candidates], -graph.first_backward_read[candidates])
            )
        ]
        evictions = evict(scorer, permitted(scorer, scorer.default), order)
        if not evictions.fits:
            raise out_of_reach(problem, "SwapAdvisor")
        report(evicted=len(evictions.failed_at))
        gates = {}
        for t, failed_at in evictions.failed_at.items():
            gate = failed_at - 1 if self.copy_at == "failure" else int(graph.last_forward_use[t])
            if gate > graph.producer[t]:
                gates[problem.profile.tensors[t].name] = gate
        plan = scorer.decode(evictions.codes)
        return checked(problem, Plan(plan.actions, offload_gates=gates), "SwapAdvisor")
