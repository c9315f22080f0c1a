"""DTR: evict what is cheap to make again, large and stale, whenever an allocation fails.

Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen, Tatlock: *Dynamic Tensor Rematerialization*,
ICLR 2021, arXiv:2006.09616.

The rule
    Nothing is planned. When an allocation fails, the resident tensor with the least
    h = cost / (size x staleness) is evicted, again and again until it succeeds; an evicted tensor
    that is needed is made again from its parents. Staleness is the time since the last access. Its
    cost is the time of its own op and of its evicted neighbourhood: the evicted tensors that would
    have to be made again for it, and those that would need it to be made again.

Transformers
    The online rule is traced: the plan runs until an allocation fails, tensors are evicted by their
    h at that moment, and the run is taken up again. The plan recomputes what was evicted. Two
    readings of the cost: with the ``neighbourhood``, or ``local``, the own op alone.

Beyond the plan language
    A tensor that is evicted and made again within the forward pass, or evicted more than once:
    candidates are those whose forward uses are over and that are not needed yet, and what is made
    again stays. Eviction begins as soon as the forward uses are over, not at the failure.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from slackswap.cost_model.scorer import KEEP, RECOMPUTE, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.graph import Bools, Graph, Ints
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.fitting import out_of_reach, permitted
from slackswap.planners.common.readings import WithReadings
from slackswap.problem import Problem
from slackswap.result import Infeasibility, Phase


@dataclass(frozen=True, slots=True)
class DTR(WithReadings):
    """Trace the online rule, and recompute what it evicts.

    Parameters
    ----------
    cost : {"neighbourhood", "local"} or None
        What an eviction is taken to cost; None: whichever gives the faster plan.
    """

    name: ClassVar[str] = "dtr"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_swap=False)
    source: ClassVar[str] = "Kirisame et al., ICLR 2021"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"cost": ("neighbourhood", "local")}

    cost: Literal["neighbourhood", "local"] | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the trace of the rule.

        Raises
        ------
        Infeasible
            When an allocation fails and nothing can be evicted.
        """
        scorer, deadline = Scorer(problem), Deadline.after(time_limit)
        graph = scorer.graph
        codes = permitted(scorer, scorer.default)
        costs = Costs(graph, graph.is_saved & (codes == RECOMPUTE),
                      with_neighbourhood=self.cost == "neighbourhood")
        failures = 0
        while True:
            scores = scorer.score(codes)
            if scores.feasible[0]:
                break
            stuck = scores.evaluation(0).infeasible
            assert stuck is not None
            failures += 1
            idle = np.flatnonzero(_idle(scorer, codes, stuck.phase, stuck.op_index))
            evicted = codes.copy()
            # Without time to weigh them all go.
            evicted[idle if deadline.passed else _victims(graph, costs, idle, stuck)] = RECOMPUTE
            evicted = permitted(scorer, evicted)
            if (evicted == codes).all():
                raise out_of_reach(problem, "DTR", stuck)
            codes = evicted
        report(failures=failures, evicted=int((graph.is_saved & (codes == RECOMPUTE)).sum()))
        return scorer.decode(codes)


def _victims(graph: Graph, costs: Costs, idle: Ints, stuck: Infeasibility) -> list[int]:
    """Return who is evicted at a failure, by least h, until the bytes missing are covered."""
    ends = np.cumsum(graph.forward_ns)
    now = (
        int(ends[stuck.op_index] - graph.forward_ns[stuck.op_index])
        if stuck.phase is Phase.FORWARD
        else int(ends[-1] + graph.backward_ns[: stuck.op_index].sum())
    )
    weight = graph.nbytes[idle] * np.maximum(1, now - ends[graph.last_forward_use[idle]]).astype(
        np.float64
    )
    waiting = np.ones(len(idle), dtype=np.bool_)
    victims: list[int] = []
    missing = stuck.shortfall_bytes
    while missing > 0 and waiting.any():
        h = np.where(waiting, costs.of(idle) / weight, np.inf)
        place = int(np.argmin(h))
        t = int(idle[place])
        waiting[place] = False
        victims.append(t)
        costs.evict(t)
        missing -= int(graph.nbytes[t])
    return victims


class Costs:
    """What evicting each tensor costs, kept up to date as others are evicted.

    Parameters
    ----------
    graph : Graph
        The profile.
    evicted : bool[tensors]
        Saved tensors that are not there. Intermediates are not there either: ways lead through.
    with_neighbourhood : bool
        Whether the evicted neighbourhood counts, or a tensor's own op alone.
    """

    def __init__(self, graph: Graph, evicted: Bools, *, with_neighbourhood: bool) -> None:
        self.graph = graph
        self.missing = evicted | graph.is_intermediate
        self.with_neighbourhood = with_neighbourhood
        self.readers: list[list[int]] = [[] for _ in range(graph.n_tensors)]
        for op in range(graph.n_forward):
            for t in graph.forward_reads[op].tolist():
                self.readers[t].append(op)
        self._known: dict[int, int] = {}

    def of(self, tensors: Ints) -> Ints:
        """Return nanoseconds for each of some tensors."""
        return np.array([self._cost(t) for t in tensors.tolist()], dtype=np.int64)

    def evict(self, t: int) -> None:
        """Note that a tensor is gone: the costs of those around it change."""
        self.missing[t] = True
        for op in self.neighbourhood(t) | {int(self.graph.producer[t])}:
            for near in (*self.graph.forward_reads[op].tolist(),
                         *self.graph.forward_writes[op].tolist()):
                self._known.pop(near, None)
                for reader in self.readers[near]:
                    for written in self.graph.forward_writes[reader].tolist():
                        self._known.pop(written, None)

    def neighbourhood(self, t: int) -> set[int]:
        """Return the ops of the evicted tensors that t would be made of, or that t would make."""
        graph, missing = self.graph, self.missing
        back: set[int] = set()
        waiting = [int(graph.producer[t])]
        while waiting:
            for read in graph.forward_reads[waiting.pop()].tolist():
                before = int(graph.producer[read])
                if missing[read] and before not in back:
                    back.add(before)
                    waiting.append(before)
        on: set[int] = set()
        seen = {t}
        waiting = [t]
        while waiting:
            for op in self.readers[waiting.pop()]:
                for written in graph.forward_writes[op].tolist():
                    if missing[written] and written not in seen:
                        seen.add(written)
                        on.add(op)
                        waiting.append(written)
        return back | on

    def _cost(self, t: int) -> int:
        if t not in self._known:
            ops = {int(self.graph.producer[t])}
            if self.with_neighbourhood:
                ops |= self.neighbourhood(t)
            self._known[t] = int(self.graph.forward_ns[list(ops)].sum())
        return self._known[t]


def _idle(scorer: Scorer, codes: Codes, phase: Phase, op: int) -> Bools:
    """Return which kept tensors are used no more before an op and needed only after it."""
    graph = scorer.graph
    kept = (
        graph.is_saved & (codes == KEEP) & scorer.allowed[:, RECOMPUTE] & (graph.nbytes > 0)
        & graph.recomputable[np.maximum(graph.producer, 0)]
    )
    if phase is Phase.FORWARD:
        result: Bools = kept & (graph.last_forward_use < op)
    else:
        result = kept & (graph.first_backward_read > op)
    return result
