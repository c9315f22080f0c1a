"""POFO: keep, recompute or offload along a chain of blocks, by dynamic programming.

Beaumont, Eyraud-Dubois, Shilova: *Efficient Combination of Rematerialization and Offloading for
Training DNNs*, NeurIPS 2021; for recomputation alone their *rotor* (Beaumont, Eyraud-Dubois,
Herrmann, Joly, Shilova, 2019, arXiv:1911.13214).

The rule
    The network is a chain of stages. What a stage saves stays, is offloaded, or is dropped; stages
    dropped in a row are made again together from the last result that was stored, and such a result
    may be offloaded as well. A dynamic programme over the chain, with memory in slots, finds the
    least time: recomputation, plus what the copies take beyond the forward pass, and beyond the
    backward pass on the way back.

Transformers
    Stages are the profile's layers. The last is never dropped: its backward comes at once. Bytes of
    memory and of the link are counted in slots, rounded up. Its own cost leaves out when copies are
    made; where its plan does not fit by the cost model, the programme is solved again for the
    memory less what was missing.

Beyond the plan language
    A stage that runs forward more than twice, as rotor's nested segments do. Copies in the order
    that the paper's schedule gives them: here they go out as soon as written, and come back as
    early as memory allows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, NamedTuple

import numpy as np

from slackswap.analysis.layers import Layer, boundaries, layers_of
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.errors import InvalidPlanner
from slackswap.graph import Ints
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.fitting import out_of_reach, permitted
from slackswap.problem import Problem

#: Solutions tried with less and less memory before the rule gives up.
_ROUNDS = 24


class Stage(NamedTuple):
    """A stage of the chain.

    Attributes
    ----------
    inner, result : int
        Bytes that it saves for itself, and bytes that later stages read.
    workspace : int
        Most scratch of its ops, forward or backward.
    forward_ns, backward_ns : int
        Its time.
    droppable : bool
        Whether it may run again.
    """

    inner: int
    result: int
    workspace: int
    forward_ns: int
    backward_ns: int
    droppable: bool = True


class ChainChoice(NamedTuple):
    """What happens to stages `start` .. `stop` - 1.

    Attributes
    ----------
    start, stop : int
        One stage, or several that are dropped together.
    inner : {"keep", "offload", "drop"}
        What they save for themselves; of several dropped ones the results before the last go too.
    result : {"keep", "offload"}
        What comes of the last of them.
    """

    start: int
    stop: int
    inner: str
    result: str


@dataclass(frozen=True, slots=True)
class Pofo:
    """Solve the chain by dynamic programming.

    Parameters
    ----------
    slots : int
        Slots that the memory is counted in.
    """

    name: ClassVar[str] = "pofo"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities()
    source: ClassVar[str] = "Beaumont, Eyraud-Dubois, Shilova, NeurIPS 2021"

    slots: int = 250

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise InvalidPlanner(
                f"slots is {self.slots}", where=f"planner {self.name!r}", fix="write 1 or more"
            )

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the least cost that fits.

        Raises
        ------
        Infeasible
            When no memory for the programme gives a plan that fits.
        """
        deadline, scorer = Deadline.after(time_limit), Scorer(problem)
        chain = Chain(scorer)
        as_it_is = permitted(scorer, scorer.default)
        if scorer.score(as_it_is).feasible[0]:
            return scorer.decode(as_it_is)
        memory = problem.budget_bytes - scorer.graph.input_bytes
        hardware = problem.hardware
        rates = hardware.d2h_bytes_per_s, hardware.h2d_bytes_per_s
        for rounds in range(_ROUNDS):
            found = solve_chain(chain.stages, memory, rates, slots=self.slots)
            if found is None:
                break
            cost_ns, choices = found
            codes = permitted(scorer, chain.codes(choices))
            scores = scorer.score(codes)
            if scores.feasible[0]:
                report(rounds=rounds + 1, own_cost_ns=cost_ns)
                return scorer.decode(codes)
            if deadline.passed:
                break
            # At least a slot less, or the same would come out.
            memory -= max(-(-memory // self.slots), int(scores.shortfall_bytes[0]))
        raise out_of_reach(problem, "the dynamic programme over the chain")


def own_cost(
    stages: Sequence[Stage], choices: Sequence[ChainChoice], memory: int, rates: tuple[int, int]
) -> float:
    """Return the time that choices add by the rule's own cost; infinite where they do not fit.

    Parameters
    ----------
    stages : sequence of Stage
        The chain.
    choices : sequence of ChainChoice
        One after the other, covering it.
    memory : int
        Bytes for what the stages save, and their scratch.
    rates : tuple of (int, int)
        Bytes a second, out and back.
    """
    stays = moved = extra = 0
    for choice in choices:
        part = stages[choice.start : choice.stop]
        if stays + _needs(part) > memory:
            return inf
        left, out, again = _effects(part, choice.inner, choice.result)
        stays, moved, extra = stays + left, moved + out, extra + again
    return extra + _idle_ns(stages, moved, rates)


def solve_chain(
    stages: Sequence[Stage], memory: int, rates: tuple[int, int], *, slots: int = 250
) -> tuple[float, list[ChainChoice]] | None:
    """Return the least own cost and the choices that have it; None if nothing fits.

    Exact where bytes come in whole slots, as when `memory` and all that is moved are no more than
    `slots` bytes; else sizes are rounded up.
    """
    if memory <= 0:
        return None
    total = sum(stage.inner + stage.result for stage in stages)
    unit, link_unit = max(1, -(-memory // slots)), max(1, -(-total // slots))
    width, depth = memory // unit + 1, -(-total // link_unit) + len(stages) + 1
    # Entry (m, k): least time so far with m slots of memory taken and k moved.
    tables: list[Any] = [np.full((width, depth), inf) for _ in range(len(stages) + 1)]
    sources: list[Any] = [np.full((width, depth), -1, dtype=np.int64) for _ in tables]
    ways: list[list[tuple[ChainChoice, int, int]]] = [[] for _ in tables]
    tables[0][0, 0] = 0
    for start in range(len(stages)):
        if not np.isfinite(tables[start]).any():
            continue
        for choice in _choices(stages, start):
            part = stages[choice.start : choice.stop]
            room = (memory - _needs(part)) // unit + 1
            left, out, again = _effects(part, choice.inner, choice.result)
            dm, dk = -(-left // unit), -(-out // link_unit)
            room = min(room, width - dm)
            if room <= 0:
                continue
            trial = tables[start][:room, : depth - dk] + again
            target = tables[choice.stop][dm : dm + room, dk:]
            better = trial < target
            target[better] = trial[better]
            sources[choice.stop][dm : dm + room, dk:][better] = len(ways[choice.stop])
            ways[choice.stop].append((choice, dm, dk))
    idle = np.array([_idle_ns(stages, k * link_unit, rates) for k in range(depth)])
    final = tables[-1] + idle
    m, k = np.unravel_index(int(np.argmin(final)), final.shape)
    if not np.isfinite(final[m, k]):
        return None
    cost, at, choices = float(final[m, k]), len(stages), []
    while at:
        choice, dm, dk = ways[at][sources[at][m, k]]
        choices.append(choice)
        at, m, k = choice.start, m - dm, k - dk
    return cost, choices[::-1]


def _choices(stages: Sequence[Stage], start: int) -> list[ChainChoice]:
    """Return the choices that may begin at a stage."""
    last = len(stages) - 1
    found = [
        ChainChoice(start, start + 1, inner, result)
        for inner in ("keep", "offload")
        for result in ("keep", "offload")
    ]
    for stop in range(start + 1, last + 1):
        if not stages[stop - 1].droppable:
            break
        found += [ChainChoice(start, stop, "drop", result) for result in ("keep", "offload")]
    return found


def _needs(part: Sequence[Stage]) -> int:
    """Return the bytes in use while stages run again together, and then backward."""
    return sum(stage.inner + stage.result for stage in part) + max(
        stage.workspace for stage in part
    )


def _effects(part: Sequence[Stage], inner: str, result: str) -> tuple[int, int, int]:
    """Return bytes that stay, bytes moved, and time of running again."""
    saved, last = part[0].inner, part[-1].result
    stays = (saved if inner == "keep" else 0) + (last if result == "keep" else 0)
    moved = (saved if inner == "offload" else 0) + (last if result == "offload" else 0)
    again = sum(stage.forward_ns for stage in part) if inner == "drop" else 0
    return stays, moved, again


def _idle_ns(stages: Sequence[Stage], moved: int, rates: tuple[int, int]) -> float:
    """Return what copies of so many bytes take beyond the passes they run beside."""
    out, back = (moved * 1e9 / rate for rate in rates)
    return max(0.0, out - sum(stage.forward_ns for stage in stages)) + max(
        0.0, back - sum(stage.backward_ns for stage in stages)
    )


class Chain:
    """A profile as a chain of stages.

    Attributes
    ----------
    stages : list of Stage
        One a layer.
    """

    def __init__(self, scorer: Scorer) -> None:
        graph, profile = scorer.graph, scorer.problem.profile
        self.scorer = scorer
        layers = layers_of(profile)
        crossing = [*boundaries(profile, layers), np.zeros(0, dtype=np.int64)]
        self._inner: list[Ints] = []
        self._result: list[Ints] = []
        self._entering: list[Ints] = [np.zeros(0, dtype=np.int64), *crossing[:-1]]
        self.stages: list[Stage] = []
        for layer, leaving in zip(layers, crossing, strict=True):
            ops = layer.forward
            start = graph.forward_writes.start
            written = graph.forward_writes.items[start[ops.start] : start[ops.stop]]
            result = leaving[np.isin(leaving, written)]
            inner = written[graph.is_saved[written] & ~np.isin(written, result)]
            self._inner.append(inner)
            self._result.append(result)
            self.stages.append(self._stage(layer, inner, result))

    def _stage(self, layer: Layer, inner: Ints, result: Ints) -> Stage:
        graph = self.scorer.graph
        scratch = [0, *graph.forward_workspace[list(layer.forward)].tolist()]
        scratch += graph.backward_workspace[list(layer.backward)].tolist()
        return Stage(
            int(graph.nbytes[inner].sum()), int(graph.nbytes[result].sum()), max(scratch),
            int(graph.forward_ns[list(layer.forward)].sum()),
            int(graph.backward_ns[list(layer.backward)].sum()),
            bool(graph.recomputable[list(layer.forward)].all()),
        )

    def codes(self, choices: Sequence[ChainChoice]) -> Codes:
        """Return the plan of choices."""
        graph, codes = self.scorer.graph, self.scorer.default.copy()
        kept: list[Ints] = []
        moved: list[Ints] = []
        for choice in choices:
            for n in range(choice.start, choice.stop):
                if choice.inner == "drop":
                    codes[self._inner[n]] = RECOMPUTE
                    if n + 1 < choice.stop:
                        codes[self._result[n]] = RECOMPUTE
                elif choice.inner == "offload":
                    codes[self._inner[n]] = SWAP
            result = self._result[choice.stop - 1]
            (moved if choice.result == "offload" else kept).append(result)
            if choice.inner == "drop":
                kept.append(self._entering[choice.start])
        # What a dropped stretch starts from is stored, whether or not backward reads it.
        starts = [self._entering[c.start] for c in choices if c.inner == "drop"]
        needed = np.zeros(graph.n_tensors, dtype=np.bool_)
        for tensors in starts:
            needed[tensors] = True
        for tensors in kept:
            stored = tensors[graph.is_saved[tensors] | needed[tensors]]
            codes[stored] = KEEP
        for tensors in moved:
            stored = tensors[graph.is_saved[tensors] | needed[tensors]]
            codes[stored] = SWAP
        return codes
