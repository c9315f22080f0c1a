"""PyTorch's ahead-of-time offload: copy out after the last use, fetch back in time.

``torch._functorch._activation_offloading``, a pass over the graphs of AOTAutograd.

The rule
    Saved values that a user has marked leave for the host after their last use in the forward
    graph. Each comes back for its first use in the backward graph: its reload is moved back over
    the ops before, until these take as long as its copy; reloads that overlap wait for one another.
    Nothing is recomputed, and what is marked is the user's choice.

Transformers
    Which values a user marks is the open choice: the fewest of the ``largest``, or of the
    ``earliest``, that make the plan fit.

Beyond the plan language
    That only matrix products, convolutions and attention count as time to overlap with. The pass
    skips views and values that are not contiguous; a profile has neither.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from slackswap.cost_model.scorer import SWAP, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.graph import Bools
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.capuchin import in_triggers
from slackswap.planners.common.fitting import (
    checked,
    first_fitting,
    out_of_reach,
    permitted,
    swappable,
)
from slackswap.planners.common.readings import WithReadings
from slackswap.problem import Problem


@dataclass(frozen=True, slots=True)
class AotOffload(WithReadings):
    """Offload marked tensors after their last use, each fetched back in time for its first.

    Parameters
    ----------
    marked : {"largest", "earliest"} or None
        Which tensors are marked first; None: whichever gives the faster plan.
    """

    name: ClassVar[str] = "aot-offload"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_recompute=False)
    source: ClassVar[str] = "torch._functorch, activation offloading"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"marked": ("largest", "earliest")}

    marked: Literal["largest", "earliest"] | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the fewest marked tensors that fits.

        Raises
        ------
        Infeasible
            When it does not fit with all of them marked.
        """
        scorer = Scorer(problem)
        graph = scorer.graph
        candidates = np.flatnonzero(swappable(scorer) & (graph.nbytes > 0))
        keys = [candidates, graph.producer[candidates]]
        if self.marked == "largest":
            keys.append(-graph.nbytes[candidates])
        order = candidates[np.lexsort(keys)]
        names = [tensor.name for tensor in problem.profile.tensors]

        def codes_of(count: int) -> Codes:
            codes = scorer.default.copy()
            codes[order[:count]] = SWAP
            return permitted(scorer, codes)

        def fits(counts: Sequence[int]) -> Bools:
            # Gates delay copies, and so time; whether memory suffices does not depend on them.
            return scorer.score(np.array([codes_of(count) for count in counts])).feasible

        count = first_fitting(len(order) + 1, fits, deadline=Deadline.after(time_limit))
        if count is None:
            raise out_of_reach(problem, "ahead-of-time offload")
        report(offloaded=count)
        codes = codes_of(count)
        plan = Plan(
            scorer.decode(codes).actions,
            offload_gates={
                names[t]: int(graph.last_forward_use[t])
                for t in np.flatnonzero(codes == SWAP).tolist()
                if graph.last_forward_use[t] > graph.producer[t]
            },
            prefetch_gates={names[t]: gate for t, gate in in_triggers(scorer, codes).items()},
        )
        return checked(problem, plan, "ahead-of-time offload")
