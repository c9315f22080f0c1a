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
    for one another. A fused attention kernel has none: it makes them again by itself. Readings:
    only as many leading blocks give their internals up as needed, or all do, as with the switch in
    Megatron-LM. In a profile without attention
    blocks are recomputed at once.

Beyond the plan language
    Nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from slackswap.analysis.layers import Layer, blocks_of
from slackswap.cost_model.scorer import RECOMPUTE, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.graph import Bools, Graph, Ints
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.chen import Segments
from slackswap.planners.common.fitting import first_fitting, out_of_reach, permitted
from slackswap.planners.common.labels import require_labels
from slackswap.planners.common.readings import WithReadings
from slackswap.problem import Problem
from slackswap.profile import Profile

#: Kind of the ops that attention begins and ends with.
ATTENTION = "attention"


@dataclass(frozen=True, slots=True)
class SelectiveCheckpointing(WithReadings):
    """Recompute attention internals, then blocks.

    Parameters
    ----------
    every_block : bool or None
        Whether attention internals go in all blocks or none; None: whichever is faster.
    """

    name: ClassVar[str] = "selective-checkpointing"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_swap=False)
    source: ClassVar[str] = "Korthikanti et al., MLSys 2023"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"every_block": (False, True)}

    every_block: bool | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the first plan that fits of: nothing, internals, blocks one by one.

        Raises
        ------
        Skipped
            When not everything fits and no op has a kind, or none a layer.
        Infeasible
            When it does not fit with every block recomputed.
        """
        scorer = Scorer(problem)
        as_it_is = permitted(scorer, scorer.default)
        if not scorer.score(as_it_is).feasible[0]:
            require_labels(problem.profile, "selective checkpointing", "kind", report)
            require_labels(problem.profile, "selective checkpointing", "layer", report)
        segments = Segments(scorer)
        internals = [
            attention_internals(problem.profile, scorer.graph, layer) for layer in segments.layers
        ]
        opened = [n for n, tensors in enumerate(internals) if len(tensors)]
        deadline = Deadline.after(time_limit)
        last = len(segments.layers) - 1
        leading = list(range(last))
        blocks = [n for n in blocks_of(problem.profile, segments.layers) if n < last]
        # Blocks in order, and what is no block only when all of them are gone; or simply from the
        # first layer on, where it is the stem that saves most.
        orders = [[*blocks, *(n for n in leading if n not in blocks)], leading]
        partial = [len(opened)] if self.every_block else list(range(1, len(opened) + 1))
        steps = [(0, 0), *((n, 0) for n in partial if n)]
        steps += [(len(opened), n) for n in range(1, last + 1)]

        def codes_of(step: int, order: Sequence[int]) -> Codes:
            count, whole = steps[step]
            inside = order[:whole]
            ends = {end for n in inside for end in (n - 1, n) if 0 <= end < last}
            codes = segments.recomputed(ends, inside)
            for n in opened[:count]:
                codes[internals[n]] = RECOMPUTE
            return permitted(scorer, codes)

        def first(order: Sequence[int]) -> int | None:
            def fits(numbers: Sequence[int]) -> Bools:
                codes = np.array([codes_of(number, order) for number in numbers])
                return scorer.score(codes).feasible

            return first_fitting(len(steps), fits, deadline=deadline)

        found = [(step, order) for order in orders if (step := first(order)) is not None]
        if not found:
            raise out_of_reach(problem, "recomputing attention, then blocks")
        step, order = min(found, key=lambda answer: answer[0])
        report(attention_blocks=steps[step][0], whole_blocks=steps[step][1])
        return scorer.decode(codes_of(step, order))


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
