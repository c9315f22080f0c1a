"""Selective recomputation: attention internals first, then whole blocks.

Korthikanti, Casper, Lym, McAfee, Andersch, Shoeybi, Catanzaro: *Reducing Activation Recomputation
in Large Transformer Models*, MLSys 2023, arXiv:2205.05198; Megatron-LM's ``selective`` and
``full`` granularities.

The rule
    Recompute what attention saves between its first product and its last: softmax, dropout mask
    and dropped softmax, large and cheap to make again. If that does not suffice, recompute whole
    blocks, from the first on, keeping their inputs: as few as fit.

Transformers
    Internals are the saved tensors that attention ops, and the ops between them in a block, write
    for one another. A fused attention kernel has none: it makes them again by itself. Kindest
    reading: only as many leading blocks give their internals up as needed; with
    ``every_block=True`` all do, as the switch in Megatron-LM does. In a profile without attention
    blocks are recomputed at once.

Beyond the plan language
    Nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slackswap.cost_model.engine import RECOMPUTE, Codes, Scorer
from slackswap.graph import Bools, Graph, Ints
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.chen import Segments
from slackswap.planners.fitting import deadline_of, first_fitting, out_of_reach, permitted
from slackswap.planners.layers import Layer, repeated
from slackswap.problem import Problem
from slackswap.profile import Profile

#: Kind of the ops that attention begins and ends with.
ATTENTION = "attention"


@dataclass(frozen=True, slots=True)
class SelectiveCheckpointing:
    """Recompute attention internals, then blocks.

    Parameters
    ----------
    every_block : bool
        Whether attention internals go in all blocks or none.
    """

    name: ClassVar[str] = "selective-checkpointing"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_swap=False)

    every_block: bool = False

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the first plan that fits of: nothing, internals, blocks one by one.

        Raises
        ------
        Infeasible
            When it does not fit with every block recomputed.
        """
        scorer = Scorer(problem)
        segments = Segments(scorer)
        internals = [
            attention_internals(problem.profile, scorer.graph, layer) for layer in segments.layers
        ]
        blocks = [n for n, tensors in enumerate(internals) if len(tensors)]
        partial = [len(blocks)] if self.every_block else list(range(1, len(blocks) + 1))
        steps = [(0, 0), *((n, 0) for n in partial if n)]
        # Blocks in order; what is no block, such as an embedding, only when all blocks are gone.
        last = len(segments.layers) - 1
        whole = [n for n in repeated(problem.profile, segments.layers) if n < last]
        whole += [n for n in range(last) if n not in whole]
        steps += [(len(blocks), n) for n in range(1, len(whole) + 1)]

        def codes_of(step: int) -> Codes:
            opened, recomputed = steps[step]
            inside = whole[:recomputed]
            ends = {end for n in inside for end in (n - 1, n) if 0 <= end < last}
            codes = segments.recomputed(ends, inside)
            for n in blocks[:opened]:
                codes[internals[n]] = RECOMPUTE
            return permitted(scorer, codes)

        def fits(numbers: Sequence[int]) -> Bools:
            return scorer.score(np.array([codes_of(number) for number in numbers])).feasible

        step = first_fitting(len(steps), fits, deadline=deadline_of(time_limit))
        if step is None:
            raise out_of_reach(problem, "recomputing attention, then blocks")
        report(attention_blocks=steps[step][0], whole_blocks=steps[step][1])
        return scorer.decode(codes_of(step))


def attention_internals(profile: Profile, graph: Graph, layer: Layer) -> Ints:
    """Return the saved tensors that attention in a layer writes for itself.

    Parameters
    ----------
    profile, graph : Profile, Graph
        The iteration.
    layer : Layer
        Where to look.

    Returns
    -------
    int64[tensors]
        What ops from the first attention op to the last but one write and none after them reads.
    """
    ops = [op for op in layer.forward if profile.forward[op].kind == ATTENTION]
    if not ops:
        return np.zeros(0, dtype=np.int64)
    start = graph.forward_writes.start
    written = graph.forward_writes.items[start[ops[0]] : start[ops[-1]]]
    inner = graph.is_saved[written] & (graph.last_forward_use[written] <= ops[-1])
    result: Ints = written[inner]
    return result
