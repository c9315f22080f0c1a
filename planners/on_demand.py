"""On-demand offload: everything above a size leaves, and comes back when it is used.

torchtune's ``OffloadActivations`` and PyTorch's ``torch.autograd.graph.save_on_cpu``.

The rule
    Each saved tensor of at least a given size is copied out when it is saved, and copied back by
    the backward op that uses it: its prefetch starts only when compute has reached that op.

Transformers
    Readings: copies out run beside compute and are not waited for, as torchtune's streams do, or
    compute waits after each op, as with ``save_on_cpu``. The size is the
    largest with which the plan fits, as a user would set it by trial (``min_bytes`` fixes it;
    torchtune's default is 1024).

Beyond the plan language
    The limit on copies under way at once.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from slackswap.cost_model.scorer import SWAP, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.graph import Bools
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
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
class OnDemand(WithReadings):
    """Offload all tensors above a size, and fetch each at its use.

    Parameters
    ----------
    min_bytes : int or None
        Smallest tensor that leaves; None: the largest size with which the plan fits.
    synchronous : bool or None
        Whether compute waits for copies out after each op that writes such a tensor; None:
        whichever is faster.
    """

    name: ClassVar[str] = "on-demand"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_recompute=False)
    source: ClassVar[str] = "torchtune; torch.autograd.graph.save_on_cpu"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"synchronous": (False, True)}

    min_bytes: int | None = None
    synchronous: bool | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the size given, or of the largest that fits.

        Raises
        ------
        Infeasible
            When it does not fit.
        """
        scorer = Scorer(problem)
        graph = scorer.graph
        candidates = swappable(scorer) & (graph.nbytes > 0)

        def codes_of(least: int) -> Codes:
            codes = scorer.default.copy()
            codes[candidates & (graph.nbytes >= least)] = SWAP
            return permitted(scorer, codes)

        least = self.min_bytes
        if least is None:
            largest = int(graph.nbytes.max(initial=0)) + 1
            sizes = [largest, *np.unique(graph.nbytes[candidates])[::-1].tolist()]

            def fits(steps: Sequence[int]) -> Bools:
                return scorer.score(np.array([codes_of(sizes[step]) for step in steps])).feasible

            step = first_fitting(len(sizes), fits, deadline=Deadline.after(time_limit))
            if step is None:
                raise out_of_reach(problem, "on-demand offload")
            least = sizes[step]
        report(min_bytes=least)
        codes = codes_of(least)
        swapped = np.flatnonzero(codes == SWAP).tolist()
        tensors = problem.profile.tensors
        plan = Plan(
            scorer.decode(codes).actions,
            # A copy joins the queue when its op ends, after that op's own barrier: the barrier
            # that waits for it is the next op's.
            offload_barriers=(
                tuple(
                    int(graph.producer[t]) + 1
                    for t in swapped
                    if graph.producer[t] + 1 < graph.n_forward
                )
                if self.synchronous
                else ()
            ),
            prefetch_gates={tensors[t].name: int(graph.first_backward_read[t]) for t in swapped},
        )
        return checked(problem, plan, "on-demand offload")
