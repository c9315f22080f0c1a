"""Sublinear memory: keep some boundaries between blocks, and recompute what lies between them.

Chen, Xu, Zhang, Guestrin: *Training Deep Nets with Sublinear Memory Cost*, 2016, arXiv:1604.06174.

The rule
    *sqrt*: of L blocks in a row, keep the result of every sqrt(L)-th; recompute the rest, segment
    by segment. *greedy*: walk the blocks, adding up the bytes of what they save; where the sum
    passes a segment size, keep the result and start anew. The segment size is then searched so
    that the plan fits: the smallest, since it keeps most.

Transformers
    The paper's blocks are its operators, so that a boundary may fall anywhere; what is kept there
    is all that later ops read. Frameworks take the model's layers: transformer blocks, bottlenecks.
    Both are readings. Ops are finer, but sqrt(L) ops may be too many boundaries.
    The last segment is not recomputed, as in implementations: its backward comes at once. The
    paper's rerun of a segment makes all of it; here only what backward asks for.

Beyond the plan language
    Nothing of these two. The paper's recursive scheme, which makes a segment's tensors more than
    once, cannot be expressed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any, ClassVar

import numpy as np

from slackswap.analysis.layers import Granularity, Layer, boundaries, layers_of
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.graph import Bools, Ints
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.fitting import (
    checked,
    first_fitting,
    out_of_reach,
    permitted,
)
from slackswap.planners.common.readings import WithReadings
from slackswap.problem import Problem

_SOURCE = "Chen et al., 2016, arXiv:1604.06174"
_CHOICES: Mapping[str, tuple[Any, ...]] = {"granularity": ("op", "layer")}

#: Segment sizes tried; of more distinct sums an even choice is.
_SIZES = 2048


@dataclass(frozen=True, slots=True)
class ChenSqrt(WithReadings):
    """Keep every sqrt(L)-th boundary.

    Parameters
    ----------
    granularity : {"layer", "op"} or None
        What counts as a block; None: whichever gives the faster plan.
    """

    name: ClassVar[str] = "chen-sqrt"
    version: ClassVar[str] = "2"
    # The segments follow from the number of blocks, not from the budget.
    capabilities: ClassVar[Capabilities] = Capabilities(uses_swap=False, uses_budget=False)
    source: ClassVar[str] = _SOURCE
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = _CHOICES

    granularity: Granularity | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the one plan of the rule.

        Raises
        ------
        Infeasible
            When it does not fit.
        """
        assert self.granularity is not None
        scorer = Scorer(problem)
        segments = Segments(scorer, self.granularity)
        count = len(segments.layers)
        # The root is rounded to the nearest whole number.
        length = max(1, (isqrt(4 * count) + 1) // 2)
        codes = segments.codes(range(length - 1, count - 1, length))
        report(segment_blocks=length)
        return checked(problem, scorer.decode(codes), "checkpointing every sqrt(L)-th block")


@dataclass(frozen=True, slots=True)
class ChenGreedy(WithReadings):
    """Keep a boundary wherever the bytes of a segment pass a size; the smallest size that fits.

    Parameters
    ----------
    granularity : {"layer", "op"} or None
        What counts as a block; None: whichever gives the faster plan.
    """

    name: ClassVar[str] = "chen-greedy"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_swap=False)
    source: ClassVar[str] = _SOURCE
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = _CHOICES

    granularity: Granularity | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the smallest segment size that fits.

        Raises
        ------
        Infeasible
            When none does.
        """
        assert self.granularity is not None
        scorer = Scorer(problem)
        as_it_is = permitted(scorer, scorer.default)
        if scorer.score(as_it_is).feasible[0]:
            return scorer.decode(as_it_is)
        segments = Segments(scorer, self.granularity)
        sizes = _segment_sizes(segments.saved_bytes)

        def codes_of(step: int) -> Codes:
            return segments.codes(greedy_boundaries(segments.saved_bytes, sizes[step]))

        def fits(steps: Sequence[int]) -> Bools:
            return scorer.score(np.array([codes_of(step) for step in steps])).feasible

        step = first_fitting(len(sizes), fits, deadline=Deadline.after(time_limit))
        if step is None:
            raise out_of_reach(problem, "greedy checkpointing with any segment size")
        report(segment_bytes=sizes[step])
        return scorer.decode(codes_of(step))


def greedy_boundaries(saved_bytes: Sequence[int], size: int) -> list[int]:
    """Return the blocks whose results are kept when segments hold at most about `size` bytes.

    Parameters
    ----------
    saved_bytes : sequence of int
        Bytes that each block saves.
    size : int
        A boundary is kept after the block with which a segment's sum passes it.
    """
    kept, total = [], 0
    for n, nbytes in enumerate(saved_bytes[:-1]):
        total += nbytes
        if total > size:
            kept.append(n)
            total = 0
    return kept


def _segment_sizes(saved_bytes: Sequence[int]) -> list[int]:
    """Return segment sizes, ascending, at which the boundaries may change."""
    sums = np.concatenate([[0], np.cumsum(saved_bytes)])
    if len(sums) <= _SIZES:
        sizes = np.unique(sums[:, np.newaxis] - sums)
        sizes = sizes[sizes >= 0]
    else:
        sizes = np.unique(np.geomspace(1, max(2, int(sums[-1])), _SIZES).astype(np.int64))
    if len(sizes) > _SIZES:
        sizes = sizes[np.linspace(0, len(sizes) - 1, _SIZES).round().astype(np.int64)]
    return [int(size) for size in sizes]


class Segments:
    """Plans that keep some boundaries between layers and recompute between them.

    Parameters
    ----------
    scorer : Scorer
        The problem.
    granularity : {"layer", "op"}
        What counts as a layer.

    Attributes
    ----------
    layers : tuple of Layer
        Of the profile.
    saved_bytes : list of int
        Bytes that each layer writes for backward.
    """

    def __init__(self, scorer: Scorer, granularity: Granularity = "layer") -> None:
        graph = scorer.graph
        self.scorer = scorer
        self.layers: tuple[Layer, ...] = layers_of(scorer.problem.profile, granularity)
        self._boundaries: list[Ints] = boundaries(scorer.problem.profile, self.layers)
        # A boundary's op keeps all it writes, what only backward reads included.
        self._results = [graph.forward_writes[layer.forward.stop - 1] for layer in self.layers]
        self._layer_of = np.full(graph.n_tensors, -1, dtype=np.int64)
        for n, layer in enumerate(self.layers):
            for op in layer.forward:
                self._layer_of[graph.forward_writes[op]] = n
        saved = np.zeros(len(self.layers), dtype=np.int64)
        np.add.at(
            saved, self._layer_of[graph.is_saved], graph.nbytes[graph.is_saved]
        )
        self.saved_bytes: list[int] = saved.tolist()

    def codes(self, kept: Iterable[int]) -> Codes:
        """Return the plan that keeps what crosses the ends of these layers.

        What is saved before the last of them and is no boundary is recomputed; what comes after
        is kept.
        """
        ends = list(kept)
        return self.recomputed(ends, range(max(ends, default=-1) + 1))

    def recomputed(self, kept: Iterable[int], inside: Iterable[int]) -> Codes:
        """Return the plan that keeps boundaries after layers and recomputes inside others.

        Parameters
        ----------
        kept : iterable of int
            Layers whose end is a boundary.
        inside : iterable of int
            Layers whose saved tensors are recomputed unless they cross a boundary.
        """
        graph = self.scorer.graph
        codes = self.scorer.default.copy()
        codes[graph.is_saved & np.isin(self._layer_of, list(inside))] = RECOMPUTE
        for n in kept:
            results = self._results[n]
            codes[results[graph.is_saved[results]]] = KEEP
            codes[self._boundaries[n]] = KEEP
        return permitted(self.scorer, codes)
