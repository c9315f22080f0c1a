"""Block checkpointing: recompute whole blocks from their inputs.

Chen et al., "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174), as Megatron-LM
applies it to transformers ("full" recomputation, method "block"): the inner tensors of the first N
blocks are dropped and made again in the backward pass; block inputs are kept, whether or not
backward reads them; N is the smallest number that fits.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slackswap.analysis.layers import Layer, blocks_of, layers_of
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, Scorer
from slackswap.errors import Infeasible, Skipped
from slackswap.graph import Bools, Graph, Ints
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.problem import Problem


@dataclass(frozen=True, slots=True)
class BlockCheckpointing:
    """Recompute the smallest number of leading blocks that fits, sized by the cost model."""

    name: ClassVar[str] = "block-checkpointing"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_swap=False)
    source: ClassVar[str] = "Megatron-LM, full, block"

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Score every number of leading blocks and take the smallest that fits."""
        layers = layers_of(problem.profile)
        blocks = [layers[n] for n in blocks_of(problem.profile, layers)]
        if not blocks:
            raise Skipped("the profile has no blocks", where=self.name,
                          fix="give its ops a layer each")
        scorer, graph = Scorer(problem), problem.profile.graph
        codes = np.tile(scorer.default, (len(blocks) + 1, 1))
        for count, block in enumerate(blocks, start=1):
            codes[count] = codes[count - 1]
            inputs, inner = interface(graph, block)
            codes[count, inner & graph.is_saved & scorer.allowed[:, RECOMPUTE]] = RECOMPUTE
            codes[count, inputs & scorer.allowed[:, KEEP]] = KEEP
        scores = scorer.score(codes)
        if not scores.feasible.any():
            raise Infeasible(
                f"recomputing all {len(blocks)} blocks does not fit {problem.budget_bytes} bytes",
                where=self.name, fix="raise the budget",
            )
        count = int(np.argmax(scores.feasible))
        report(blocks=count, of=len(blocks))
        return scorer.decode(codes[count])


def interface(graph: Graph, layer: Layer) -> tuple[Bools, Bools]:
    """Return what a layer reads of earlier ones, and what only it reads of what it writes.

    Returns
    -------
    inputs, inner : bool[tensors]
        The profile's own inputs are in neither.
    """
    def inside(ops: Ints) -> Bools:
        return (ops >= layer.forward.start) & (ops < layer.forward.stop)

    written = inside(graph.producer)
    reads, by_layer = graph.forward_reads.items, inside(graph.forward_reads.owners())
    inputs, crosses = np.zeros((2, graph.n_tensors), dtype=np.bool_)
    inputs[reads[by_layer]] = True
    crosses[reads[~by_layer]] = True
    return inputs & ~written & ~graph.is_input, written & ~crosses
