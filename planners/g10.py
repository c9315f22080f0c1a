"""G10: evict where it relieves most memory pressure a second of link.

Zhang, Zhou, Xue, Liu, Huang: *G10: Enabling An Efficient Unified GPU Memory and Storage
Architecture with Smart Tensor Migrations*, MICRO 2023, arXiv:2310.09443.

The rule
    A tensor is inactive between two uses. Evicting it there lowers the memory pressure from the end
    of its copy out to the start of its copy back; its benefit is what that takes off the area by
    which the pressure exceeds the capacity, its cost the time of both copies. Again and again the
    inactive period with the largest benefit over cost is evicted, its copies placed on the link,
    until the pressure fits. Prefetches are placed as late as is safe, and then moved earlier where
    memory allows.

Transformers
    A saved tensor is inactive once, between its last forward and its first backward use. Copies
    out start right after the last use. Two readings of the prefetches: ``late``, and ``eager``, as
    early as memory allows.

Beyond the plan language
    The choice between host and drive as a place to go, and migration by pages.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from slackswap.cost_model.scorer import SWAP, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.graph import Bools, Ints
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
class G10(WithReadings):
    """Evict by relief of memory pressure over link time.

    Parameters
    ----------
    prefetch : {"late", "eager"} or None
        When copies come back; None: whichever gives the faster plan.
    """

    name: ClassVar[str] = "g10"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_recompute=False)
    source: ClassVar[str] = "Zhang et al., MICRO 2023"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"prefetch": ("late", "eager")}

    prefetch: Literal["late", "eager"] | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the rule.

        Raises
        ------
        Infeasible
            When the pressure stays above the budget whatever is evicted.
        """
        scorer, deadline = Scorer(problem), Deadline.after(time_limit)
        pressure = Pressure(scorer)
        pressure.relieve(problem.budget_bytes, deadline)
        graph = scorer.graph
        # Where copies queue for longer than a tensor is inactive, the link relieves nothing in
        # time, and compute must wait for what is still too much: longest inactive first.
        rest = sorted(pressure.waiting, key=lambda t: (-int(graph.first_backward_read[t]), t))
        names = [tensor.name for tensor in problem.profile.tensors]

        def codes_of(more: int) -> Codes:
            codes = scorer.default.copy()
            codes[pressure.evicted + rest[:more]] = SWAP
            return permitted(scorer, codes)

        def fits(numbers: Sequence[int]) -> Bools:
            # Gates delay copies, and so time; whether memory suffices does not depend on them.
            return scorer.score(np.array([codes_of(more) for more in numbers])).feasible

        more = first_fitting(len(rest) + 1, fits, deadline=deadline)
        if more is None:
            raise out_of_reach(problem, "G10")
        report(evicted=len(pressure.evicted), beyond_the_link=more)
        codes = codes_of(more)
        plan = Plan(
            scorer.decode(codes).actions,
            offload_gates={
                names[t]: int(graph.last_forward_use[t])
                for t in np.flatnonzero(codes == SWAP).tolist()
                if graph.last_forward_use[t] > graph.producer[t]
            },
            prefetch_gates=(
                {names[t]: gate for t, gate in in_triggers(scorer, codes).items()}
                if self.prefetch == "late"
                else {}
            ),
        )
        return checked(problem, plan, "G10")


class Pressure:
    """Memory over time without stalls, the link's two queues, and who has been evicted.

    Parameters
    ----------
    scorer : Scorer
        The problem.

    Attributes
    ----------
    evicted : list of int
        Tensors, in the order of eviction.
    waiting : set of int
        Tensors that may still be evicted.
    """

    def __init__(self, scorer: Scorer) -> None:
        graph = scorer.graph
        self.scorer = scorer
        durations = np.concatenate([graph.forward_ns, graph.backward_ns])
        self.starts: Ints = np.cumsum(durations) - durations
        self.durations = durations
        self.level = np.concatenate(graph.keep_all_levels)
        ends = self.starts + durations
        self.last_use = ends[np.maximum(graph.last_forward_use, 0)] if len(ends) else ends
        self.first_use = (
            self.starts[np.minimum(graph.n_forward + np.maximum(graph.first_backward_read, 0),
                                   len(ends) - 1)] if len(ends) else ends
        )
        may_leave: Bools = swappable(scorer) & (graph.nbytes > 0)
        self.waiting = set(np.flatnonzero(may_leave).tolist())
        self.evicted: list[int] = []
        self.busy: list[tuple[int, int]] = []

    def relieve(self, capacity: int, deadline: Deadline) -> None:
        """Evict, best ratio first, until no op exceeds the capacity or nothing would help."""
        # A benefit only falls as others are evicted: the top of the heap is repriced and put back.
        heap = [(-self.ratio(t, capacity), t) for t in sorted(self.waiting)]
        heapq.heapify(heap)
        while heap and (self.level > capacity).any() and not deadline.passed:
            _, t = heapq.heappop(heap)
            ratio = self.ratio(t, capacity)
            if ratio <= 0:
                continue
            if heap and ratio < -heap[0][0]:
                heapq.heappush(heap, (-ratio, t))
                continue
            self._evict(t)

    def ratio(self, t: int, capacity: int) -> float:
        """Return the benefit of evicting a tensor, in byte-seconds, over its time on the link."""
        away = self._away(t)
        over = np.maximum(self.level[away] - capacity, 0)
        relief = np.minimum(over, self.scorer.graph.nbytes[t])
        benefit = float((relief * self.durations[away].astype(np.float64)).sum())
        return benefit / max(1, int(self.scorer.d2h_ns[t] + self.scorer.h2d_ns[t]))

    def _away(self, t: int) -> slice:
        """Return the ops that start and end while a tensor is away."""
        out = self._copied_out(t)
        back = int(self.first_use[t]) - int(self.scorer.h2d_ns[t])
        first = int(np.searchsorted(self.starts, out, side="left"))
        last = int(np.searchsorted(self.starts + self.durations, back, side="right"))
        return slice(first, max(first, last))

    def _copied_out(self, t: int) -> int:
        """Return when a copy out ends that takes the first gap of the link after the last use."""
        start, duration = int(self.last_use[t]), int(self.scorer.d2h_ns[t])
        for begin, end in self.busy:
            if start + duration <= begin:
                break
            start = max(start, end)
        return start + duration

    def _evict(self, t: int) -> None:
        self.level[self._away(t)] -= self.scorer.graph.nbytes[t]
        end = self._copied_out(t)
        self.busy.append((end - int(self.scorer.d2h_ns[t]), end))
        self.busy = _merged(self.busy)
        self.evicted.append(t)
        self.waiting.discard(t)


def _merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return stretches of time in order, those that meet made one."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(stretches):
        if merged and begin == merged[-1][1]:
            merged[-1] = merged[-1][0], end
        else:
            merged.append((begin, end))
    return merged
