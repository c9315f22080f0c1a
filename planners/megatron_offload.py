"""Megatron's fine-grained offload: inputs of chosen modules leave, norms and activations rerun.

Megatron Core, *Fine-grained activation offloading* (2025, with rednote), used together with its
fine-grained recomputation.

The rule
    Modules are named by kind: norms, attention, its projections, the first product of the
    feed-forward part, its activation. What a chosen module saves of its input is copied out after
    the module's forward, and must be back for its backward; while a module runs backward, the
    inputs of the next one to run backward are fetched. Outputs of norms and activations, cheap to
    make, are recomputed. How much is offloaded is set by hand.

Transformers
    It is made for them. Modules are ops by their kind. What is set by hand is the smallest number
    of leading blocks with which the plan fits. The open choice is which modules:
    ``attention`` alone, ``products`` (attention and matrix products), or ``all``, norms and
    activations too, whose inputs are what their recomputation starts from.

Beyond the plan language
    A cap on copies under way at once, beyond the one at a time of this cost model. The choice of
    tensors by a least size.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from slackswap.analysis.layers import blocks_of, forward_of_backward, layers_of
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.graph import Bools
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.block_checkpointing import interface
from slackswap.planners.common.fitting import checked, first_fitting, out_of_reach, permitted
from slackswap.planners.common.labels import require_labels
from slackswap.planners.common.readings import WithReadings
from slackswap.problem import Problem

Modules = Literal["attention", "products", "all"]

#: Kinds of the modules whose inputs leave, by choice.
_MODULES: Mapping[str, frozenset[str]] = {
    "attention": frozenset({"attention"}),
    "products": frozenset({"attention", "gemm"}),
    "all": frozenset({"attention", "gemm", "norm", "elementwise"}),
}
#: Kinds of the modules whose outputs are recomputed.
_CHEAP = frozenset({"norm", "elementwise"})


@dataclass(frozen=True, slots=True)
class MegatronOffload(WithReadings):
    """Offload the inputs of chosen modules in leading blocks, and recompute norms and activations.

    Parameters
    ----------
    modules : {"attention", "products", "all"} or None
        Whose inputs leave; None: whichever gives the fastest plan.
    recompute : bool or None
        Whether outputs of norms and activations are recomputed; None: whichever is faster.
    """

    name: ClassVar[str] = "megatron-offload"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities()
    source: ClassVar[str] = "Megatron Core, fine-grained activation offloading"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "modules": ("attention", "products", "all"), "recompute": (True, False),
    }

    modules: Modules | None = None
    recompute: bool | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the fewest leading blocks that fits.

        Raises
        ------
        Infeasible
            When it does not fit with all blocks.
        Skipped
            When the ops have no layers or no kinds.
        """
        assert self.modules is not None
        for label in ("kind", "layer"):
            require_labels(problem.profile, "Megatron's fine-grained offload", label, report)
        scorer, profile = Scorer(problem), problem.profile
        graph, layers = scorer.graph, layers_of(profile)
        blocks = [layers[n] for n in blocks_of(profile, layers)]
        kinds = _MODULES[self.modules]
        module_of = np.full(graph.n_tensors, -1, dtype=np.int64)  # the last chosen one to read it
        cheap = np.zeros(graph.n_tensors, dtype=np.bool_)
        for op, forward in enumerate(profile.forward):
            if forward.kind in kinds:
                module_of[list(forward.reads)] = op
            if forward.kind in _CHEAP:
                cheap[graph.forward_writes[op]] = True
        fetched_at = _fetch_ops(problem, sorted(set(module_of[module_of >= 0].tolist())))
        names = [tensor.name for tensor in profile.tensors]

        def codes_of(count: int) -> Codes:
            codes = scorer.default.copy()
            inside = np.zeros(graph.n_forward, dtype=np.bool_)
            for block in blocks[:count]:
                inside[block.forward.start : block.forward.stop] = True
                inputs, inner = interface(graph, block)
                if self.recompute:
                    codes[inner & cheap & graph.is_saved] = RECOMPUTE
                    codes[inputs] = KEEP
            leaves = graph.is_saved & (module_of >= 0) & inside[np.maximum(module_of, 0)]
            codes[leaves & (codes == KEEP)] = SWAP
            return permitted(scorer, codes)

        def fits(counts: Sequence[int]) -> Bools:
            # Gates delay copies, and so time; whether memory suffices does not depend on them.
            return scorer.score(np.array([codes_of(count) for count in counts])).feasible

        count = first_fitting(len(blocks) + 1, fits, deadline=Deadline.after(time_limit))
        if count is None:
            raise out_of_reach(problem, "offloading the modules of every block")
        report(blocks=count)
        codes = codes_of(count)
        swapped = np.flatnonzero(codes == SWAP).tolist()
        plan = Plan(
            scorer.decode(codes).actions,
            offload_gates={
                names[t]: int(module_of[t]) for t in swapped if module_of[t] > graph.producer[t]
            },
            prefetch_gates={
                names[t]: fetched_at[int(module_of[t])]
                for t in swapped if int(module_of[t]) in fetched_at
            },
        )
        return checked(problem, plan, "Megatron's fine-grained offload")


def _fetch_ops(problem: Problem, modules: Sequence[int]) -> dict[int, int]:
    """Return the backward op at which each module's inputs are fetched.

    It is the first op of the module that runs backward before it; the module that runs backward
    first has none.
    """
    undone_by: dict[int, int] = {}
    for j, op in enumerate(forward_of_backward(problem.profile).tolist()):
        undone_by.setdefault(op, j)
    running = [module for module in reversed(modules) if module in undone_by]
    return {
        module: undone_by[before]
        for before, module in pairwise(running)
    }
