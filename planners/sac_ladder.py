"""SAC ladder: keep products and attention, recompute the rest of a block; then whole blocks.

torchtitan's selective activation checkpointing by op (``torchtitan/distributed``, mode
``selective``, option ``op``), and its full checkpointing (mode ``full``), as rungs of one ladder.

The rule
    Inside a block what matrix products and attention write is stored; all else that backward needs
    is made again from it and from the block's input. As few leading blocks as fit are treated so;
    if all of them do not suffice, whole blocks are recomputed from their inputs, again as few
    leading ones as fit.

Transformers
    It is made for them. Two readings: torchtitan's policy stores every second matrix product only,
    the first of a block, not the second, and so on (``alternate``); forks of it store ``all``.
    What is stored stays whether or not backward reads it, as the cache of the policy holds it.

Beyond the plan language
    Nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from slackswap.analysis.layers import blocks_of, layers_of
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.graph import Bools
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.block_checkpointing import interface
from slackswap.planners.common.fitting import first_fitting, out_of_reach, permitted
from slackswap.planners.common.labels import require_labels
from slackswap.planners.common.readings import WithReadings
from slackswap.problem import Problem

Products = Literal["alternate", "all"]


@dataclass(frozen=True, slots=True)
class SacLadder(WithReadings):
    """Recompute all but products and attention in blocks, then whole blocks.

    Parameters
    ----------
    products : {"alternate", "all"} or None
        Which matrix products of a block are stored; None: whichever gives the faster plan.
    """

    name: ClassVar[str] = "sac-ladder"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_swap=False)
    source: ClassVar[str] = "torchtitan, selective activation checkpointing by op"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"products": ("alternate", "all")}

    products: Products | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the lowest rung that fits.

        Raises
        ------
        Infeasible
            When it does not fit with every block recomputed.
        Skipped
            When the ops have no layers or no kinds.
        """
        assert self.products is not None
        for label in ("kind", "layer"):
            require_labels(problem.profile, "the SAC ladder", label, report)
        scorer, profile = Scorer(problem), problem.profile
        graph, layers = scorer.graph, layers_of(profile)
        blocks = [layers[n] for n in blocks_of(profile, layers)]
        sides = [interface(graph, block) for block in blocks]
        stored = np.zeros(graph.n_tensors, dtype=np.bool_)
        for block in blocks:
            count = 0
            for op in block.forward:
                kind = profile.forward[op].kind
                count += kind == "gemm"
                if kind == "attention" or (
                    kind == "gemm" and (self.products == "all" or count % 2 == 1)
                ):
                    stored[graph.forward_writes[op]] = True

        def codes_of(rung: int) -> Codes:
            codes = scorer.default.copy()
            whole = max(0, rung - len(blocks))
            for n, (inputs, inner) in enumerate(sides[: min(rung, len(blocks))]):
                codes[inner & graph.is_saved] = RECOMPUTE
                codes[inputs] = KEEP
                if n >= whole:
                    codes[inner & stored] = KEEP
            return permitted(scorer, codes)

        def fits(rungs: Sequence[int]) -> Bools:
            return scorer.score(np.array([codes_of(rung) for rung in rungs])).feasible

        rung = first_fitting(2 * len(blocks) + 1, fits, deadline=Deadline.after(time_limit))
        if rung is None:
            raise out_of_reach(problem, "recomputing every block")
        report(selective_blocks=min(rung, len(blocks)), whole_blocks=max(0, rung - len(blocks)))
        return scorer.decode(codes_of(rung))
