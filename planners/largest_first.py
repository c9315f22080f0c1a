"""Largest first: offload the largest tensors until the rest fits.

What frameworks offer as a switch: DeepSpeed's activation offload by size, and the
``sac_and_offload`` memory policy of torchtitan's graph trainer.

The rule
    Order the saved tensors by size, leave those of the last layers out, since they are needed
    back at once, and offload the largest until the plan fits. Copies start as soon as a tensor is
    written and come back as early as memory allows, which is the kindest reading. Neither
    bandwidth nor recomputation enters.

Transformers
    Layers are the profile's own; equal sizes are taken in the order of writing, which gives the
    copies most time.

Beyond the plan language
    Nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slackswap.analysis.layers import layers_of
from slackswap.cost_model.scorer import SWAP, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.errors import InvalidPlanner
from slackswap.graph import Bools
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.fitting import (
    first_fitting,
    out_of_reach,
    permitted,
    swappable,
)
from slackswap.problem import Problem


@dataclass(frozen=True, slots=True)
class LargestFirst:
    """Offload the fewest of the largest tensors that make the plan fit.

    Parameters
    ----------
    skip_layers : int
        How many of the last layers keep their tensors.
    """

    name: ClassVar[str] = "largest-first"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_recompute=False)
    source: ClassVar[str] = "DeepSpeed; torchtitan's sac_and_offload"

    skip_layers: int = 1

    def __post_init__(self) -> None:
        if self.skip_layers < 0:
            raise InvalidPlanner(
                f"skip_layers is {self.skip_layers}", where=f"planner {self.name!r}",
                fix="write 0 or more layers",
            )

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
        graph = scorer.graph
        layers = layers_of(problem.profile)
        end = len(layers) - self.skip_layers
        first_skipped = layers[end].forward.start if 0 <= end < len(layers) else graph.n_forward
        if end < 0:
            first_skipped = 0
        candidates = np.flatnonzero(
            swappable(scorer) & (graph.nbytes > 0) & (graph.producer < first_skipped)
        )
        candidates = candidates[
            np.lexsort((candidates, graph.producer[candidates], -graph.nbytes[candidates]))
        ]

        def codes_of(count: int) -> Codes:
            codes = scorer.default.copy()
            codes[candidates[:count]] = SWAP
            return permitted(scorer, codes)

        def fits(counts: Sequence[int]) -> Bools:
            return scorer.score(np.array([codes_of(count) for count in counts])).feasible

        count = first_fitting(len(candidates) + 1, fits, deadline=Deadline.after(time_limit))
        if count is None:
            raise out_of_reach(problem, "largest-first offload")
        report(offloaded=count)
        return scorer.decode(codes_of(count))
