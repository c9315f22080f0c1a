"""Capuchin: swap what has free time to spare, and compare swapping and recomputing for the rest.

Peng, Shi, Dai, Jin, Ma, Xiong, Yang, Qian: *Capuchin: Tensor-based GPU Memory Management for Deep
Learning*, ASPLOS 2020.

The rule
    One measured iteration tells when each tensor is accessed. Candidates are accessed more than
    once and alive where memory peaks. The *free time* of a tensor runs from the end of a copy out
    that starts after its last forward access to the start of a copy in that ends at its first
    backward access. Tensors are swapped by free time, longest first, while it is not negative and
    until the bytes saved cover what the peak exceeds the memory by. Of the others the one with the
    most *memory saved per second* of recomputation is taken, again and again, and swapped or
    recomputed, whichever costs less; the prices of others change as their sources go. A copy in is
    triggered by the latest access that still hides it. A transfer has its lane for itself.

Transformers
    An access is a read by an op. What lies between saved tensors is part of a recomputation's
    price. A rerun makes all outputs of its op, so these go together. Readings of free time:
    ``"peak"`` counts a swap as free only if its copy out, queued behind the others,
    also ends before the peak, where its bytes are missed; ``"lane"`` asks only that both copies,
    queued, fit before the backward access; ``"alone"`` is the formula by itself, each tensor as if
    it had the link alone.

Beyond the plan language
    Eviction on failure while a first iteration is measured, copies of recomputed tensors kept or
    dropped by the memory at hand (here one that is made again stays), and in-triggers corrected
    from iteration to iteration by how late a copy came. ``triggers=False`` is where that ends:
    copies start as soon as memory allows. On the profiles of the library it makes no difference.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from slackswap.analysis.memory import critical_op, not_resident_at
from slackswap.cost_model.schedule import backward_schedule
from slackswap.cost_model.scorer import RECOMPUTE, SWAP, Codes, Scorer
from slackswap.deadline import NO_DEADLINE, Deadline
from slackswap.graph import Bools, Graph, Ints
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.fitting import checked, out_of_reach, permitted
from slackswap.planners.common.readings import WithReadings
from slackswap.problem import Problem
from slackswap.profile import ALL_ACTIONS

#: Tensors in a row that may be refused as free swaps before no more are tried.
_PATIENCE = 256

FreeTime = Literal["peak", "lane", "alone"]


@dataclass(frozen=True, slots=True)
class Capuchin(WithReadings):
    """Swap by free time, then swap or recompute by price.

    Parameters
    ----------
    free_time : {"peak", "lane", "alone"} or None
        When a swap counts as free; None: whichever reading gives the fastest plan.
    triggers : bool
        Whether copies in wait for their in-trigger, or start as soon as memory allows.
    """

    name: ClassVar[str] = "capuchin"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = Capabilities()
    source: ClassVar[str] = "Peng et al., ASPLOS 2020"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"free_time": ("peak", "lane", "alone")}

    free_time: FreeTime | None = None
    triggers: bool = True

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the rule.

        Raises
        ------
        Infeasible
            When it does not fit with every candidate swapped or recomputed.
        """
        scorer = Scorer(problem)
        graph = scorer.graph
        assert self.free_time is not None
        codes = permitted(scorer, scorer.default)
        scores = scorer.score(codes)
        choice = _Choice(scorer, self.free_time, Deadline.after(time_limit))
        peak = critical_op(graph)
        missing = peak.level_bytes - problem.budget_bytes
        stages = (not_resident_at(graph, peak), graph.is_saved)
        stage = 0
        while not scores.feasible[0]:
            missing = choice.cover(stages[stage], max(missing, 1))
            codes = permitted(scorer, choice.codes())
            scores = scorer.score(codes)
            if missing > 0 and not scores.feasible[0]:
                stage += 1
                if stage == len(stages):
                    raise out_of_reach(problem, "Capuchin", scores.evaluation(0).infeasible)
            elif missing <= 0:
                # Covered where memory peaked, yet another place is short: a later iteration
                # would find that out, and evict more.
                missing = int(scores.shortfall_bytes[0])
        swapped = np.flatnonzero(codes == SWAP)
        report(
            swapped=len(swapped),
            recomputed=int((graph.is_saved & (codes == RECOMPUTE)).sum()),
        )
        names = [tensor.name for tensor in problem.profile.tensors]
        plan = scorer.decode(codes)
        return checked(
            problem,
            Plan(
                plan.actions,
                offload_gates={
                    names[t]: int(graph.last_forward_use[t])
                    for t in swapped.tolist()
                    if graph.last_forward_use[t] > graph.producer[t]
                },
                prefetch_gates=(
                    {names[t]: gate for t, gate in in_triggers(scorer, codes).items()}
                    if self.triggers
                    else {}
                ),
            ),
            "Capuchin",
        )


def in_triggers(scorer: Scorer, codes: Codes) -> dict[int, int]:
    """Return the latest backward op whose start still hides each swapped tensor's copy in.

    Copies are placed one after the other, each as late as its own access and the start of the
    next allow, on the timeline without stalls.

    Parameters
    ----------
    scorer : Scorer
        The problem.
    codes : int8[tensors]
        Actions.
    """
    schedule = backward_schedule(
        scorer.problem.profile, [ALL_ACTIONS[code] for code in codes.tolist()]
    )
    durations = np.array([step.duration_ns for step in schedule.steps], dtype=np.int64)
    starts = np.cumsum(durations) - durations
    op_starts = starts[list(schedule.first_step)]
    swapped = [t for t in np.flatnonzero(codes == SWAP).tolist() if t in schedule.first_need]
    swapped.sort(key=lambda t: (schedule.first_need[t], t), reverse=True)
    gates: dict[int, int] = {}
    free_until = 2**62
    for t in swapped:
        free_until = min(int(starts[schedule.first_need[t]]), free_until) - int(scorer.h2d_ns[t])
        gates[t] = max(0, int(np.searchsorted(op_starts, free_until, side="right")) - 1)
    return gates


@dataclass(slots=True)
class _Price:
    """A candidate's recomputation: its sources, and what making it again takes."""

    sources: set[int]
    own_ns: int
    extra_ns: int = 0


@dataclass(slots=True)
class _Choice:
    """Tensors chosen so far, and the prices of the others."""

    scorer: Scorer
    free_time: FreeTime
    deadline: Deadline = NO_DEADLINE
    swapped: list[int] = field(default_factory=list)
    recomputed: dict[int, set[int]] = field(default_factory=dict)  # tensor: its sources
    _prices: dict[int, _Price] = field(default_factory=dict)
    _users: dict[int, set[int]] = field(default_factory=dict)  # candidates by source
    _settled: Bools = field(init=False)
    _last_end: Ints = field(init=False)
    _back: Ints = field(init=False)
    _peak_ns: int = field(init=False)

    def __post_init__(self) -> None:
        graph = self.scorer.graph
        ends = np.concatenate([[0], np.cumsum(graph.forward_ns)])
        starts = ends[-1] + np.cumsum(graph.backward_ns) - graph.backward_ns
        self._last_end = ends[graph.last_forward_use + 1]
        self._back = np.append(starts, 0)[graph.first_backward_read]
        self._settled = ~graph.is_saved | (graph.nbytes == 0)
        self._peak_ns = critical_op(graph).start_ns
        self._price(_sources(graph))

    def codes(self) -> Codes:
        """Return the actions chosen."""
        codes = self.scorer.default.copy()
        codes[self.swapped] = SWAP
        codes[list(self.recomputed)] = RECOMPUTE
        return codes

    def cover(self, candidates: Bools, missing: int) -> int:
        """Choose among candidates until `missing` bytes are saved; return what is left of it."""
        missing = self._swap_free(candidates, missing)
        return self._cheaper(candidates, missing) if missing > 0 else missing

    def _swap_free(self, candidates: Bools, missing: int) -> int:
        scorer, nbytes = self.scorer, self.scorer.graph.nbytes
        free = self._back - scorer.h2d_ns - self._last_end - scorer.d2h_ns
        eligible = np.flatnonzero(
            candidates & ~self._settled & scorer.allowed[:, SWAP] & (free >= 0)
        )
        queue = eligible[np.lexsort((eligible, -free[eligible]))]
        # Whole runs are tried at once, halved until they pass: the same choice as one by one.
        at, run, refused = 0, 1, 0
        while at < len(queue) and missing > 0 and refused < _PATIENCE and not self._late():
            enough = int(np.searchsorted(np.cumsum(nbytes[queue[at : at + run]]), missing)) + 1
            batch = queue[at : at + min(run, enough)].tolist()
            if self.free_time == "alone" or self._lateness([*self.swapped, *batch]) == 0:
                self._settled[batch] = True
                self.swapped += batch
                missing -= int(nbytes[batch].sum())
                at, run, refused = at + len(batch), 2 * run, 0
            elif len(batch) > 1:
                run = len(batch) // 2
            else:
                at, refused = at + 1, refused + 1
        return missing

    def _late(self) -> bool:
        return self.deadline.passed

    def _cheaper(self, candidates: Bools, missing: int) -> int:
        """Take candidates by memory saved per second, each by the cheaper way."""
        nbytes = self.scorer.graph.nbytes
        allowed = self.scorer.allowed
        heap = [
            (-self._saved_per_ns(t), t)
            for t in np.flatnonzero(candidates & ~self._settled).tolist()
        ]
        heapq.heapify(heap)
        before = self._lateness(self.swapped)
        while heap and missing > 0:
            rate, t = heapq.heappop(heap)
            if self._settled[t] or -rate != self._saved_per_ns(t):
                continue
            price = self._prices.get(t)
            weighed = allowed[t, SWAP] and not (price is not None and self._late())
            late = self._lateness([*self.swapped, t]) if weighed else None
            if price is not None and (
                late is None or price.own_ns + price.extra_ns <= late - before
            ):
                changed, saved = self._recompute(t, candidates)
                missing -= saved
                for other in changed:
                    if candidates[other] and not self._settled[other]:
                        heapq.heappush(heap, (-self._saved_per_ns(other), other))
            elif late is not None:
                self._settled[t] = True
                self.swapped.append(t)
                before = late
                missing -= int(nbytes[t])
            else:
                self._settled[t] = True
        return missing

    def _recompute(self, t: int, candidates: Bools) -> tuple[set[int], int]:
        """Choose a tensor, and the others its op makes; return whose price changed, and bytes."""
        graph = self.scorer.graph
        saved, changed = 0, set()
        for output in graph.forward_writes[int(graph.producer[t])].tolist():
            if output == t or (
                candidates[output] and not self._settled[output] and output in self._prices
            ):
                self._settled[output] = True
                saved += int(graph.nbytes[output])
                changed |= self._update_prices(output)
        return changed, saved

    def _update_prices(self, t: int) -> set[int]:
        """Let the sources of a recomputed tensor take its place."""
        own = self._prices[t]
        reruns = 1
        for other in self._users.get(t, ()):
            if other in self.recomputed:
                self.recomputed[other].discard(t)
                self.recomputed[other] |= own.sources
                self._note(other, own.sources)
                reruns += 1
        self.recomputed[t] = set(own.sources)
        changed: set[int] = set()
        for other in list(self._users.get(t, ())):
            if self._settled[other] or other not in self._prices:
                continue
            price = self._prices[other]
            price.sources.discard(t)
            price.sources |= own.sources
            self._note(other, own.sources)
            price.own_ns += own.own_ns
            price.extra_ns = price.own_ns * sum(
                user in self.recomputed for user in self._users.get(other, ())
            )
            changed.add(other)
        for other in own.sources:
            if other in self._prices and not self._settled[other]:
                self._prices[other].extra_ns = reruns * self._prices[other].own_ns
                changed.add(other)
        self._users.pop(t, None)
        return changed

    def _saved_per_ns(self, t: int) -> float:
        price = self._prices.get(t)
        if price is None:
            return 0.0
        return float(self.scorer.graph.nbytes[t]) / (price.own_ns + price.extra_ns + 1)

    def _lateness(self, swapped: list[int]) -> int:
        """How late the latest copy is when each lane serves one transfer after the other."""
        if not swapped:
            return 0
        chosen = np.array(swapped, dtype=np.int64)
        out = chosen[np.lexsort((chosen, self._last_end[chosen]))]
        out_ns = self.scorer.d2h_ns[out]
        # End of copy i: the latest start of a busy stretch plus all copies in it up to i.
        out_end = np.cumsum(out_ns) + np.maximum.accumulate(
            self._last_end[out] - (np.cumsum(out_ns) - out_ns)
        )
        back = out[np.lexsort((out, self._back[out]))][::-1]
        in_ns = self.scorer.h2d_ns[back]
        in_start = np.minimum.accumulate(
            self._back[back] + np.cumsum(in_ns) - in_ns
        ) - np.cumsum(in_ns)
        start_of = np.zeros(len(self._back), dtype=np.int64)
        start_of[back] = in_start
        limit = start_of[out]
        if self.free_time == "peak":
            limit = np.minimum(limit, self._peak_ns)
        return max(0, int((out_end - limit).max()))

    def _price(self, sources: dict[int, tuple[set[int], int]]) -> None:
        allowed = self.scorer.allowed
        for t, (needed, duration) in sources.items():
            if allowed[t, RECOMPUTE]:
                self._prices[t] = _Price(needed, duration)
                self._note(t, needed)

    def _note(self, user: int, sources: Iterable[int]) -> None:
        for source in sources:
            self._users.setdefault(source, set()).add(user)


def _sources(graph: Graph) -> dict[int, tuple[set[int], int]]:
    """Return, for each saved tensor that can be made again, the saved tensors it is made of.

    With them the time of the ops on the way, those through intermediates included.
    """
    result: dict[int, tuple[set[int], int]] = {}
    for t in np.flatnonzero(graph.is_saved).tolist():
        ops, missing, sources = {int(graph.producer[t])}, [int(graph.producer[t])], set()
        possible = True
        while missing:
            op = missing.pop()
            possible &= bool(graph.recomputable[op])
            for read in graph.forward_reads[op].tolist():
                before = int(graph.producer[read])
                if graph.is_saved[read]:
                    sources.add(read)
                elif not graph.is_input[read] and before not in ops:
                    ops.add(before)
                    missing.append(before)
        if possible:
            result[t] = sources, int(graph.forward_ns[list(ops)].sum())
    return result
