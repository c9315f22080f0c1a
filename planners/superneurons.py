"""SuperNeurons: recompute what is cheap, cache the rest on the device, evict the least recent.

Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska: *SuperNeurons: Dynamic GPU Memory Management for Training
Deep Neural Networks*, PPoPP 2018, arXiv:1801.04380.

The rule
    Outputs of CONV, FC, JOIN, FORK and CONCAT layers are checkpoints; every other saved output is
    recomputed from the checkpoint before it. Checkpoints live in a least-recently-used cache and
    leave for the host only when an allocation fails. In backward, each checkpoint layer fetches
    what the checkpoint layer before it needs. No bandwidth, no time enters any decision.
    A segment between checkpoints is recomputed *speed-centric* (each output kept once remade)
    while its bytes stay under `l_peak`, the largest need of a single layer, else
    *memory-centric* (remade for each reader).

Transformers
    FC and CONV are matrix products and attention, JOIN is a residual sum (in a trace, which does
    not name these, an elementwise op that reads a tensor and what a product made of it);
    embeddings and the loss are checkpoints as well. Nothing is recomputed or moved while
    everything fits. The readings differ in when an evicted checkpoint's copy out starts, in whether
    a fetch waits for the checkpoint layer before, and in which checkpoints that backward does not
    read itself are cached: of ``joins`` the residual sums from which a segment starts, while a
    product (a query before its rotary embedding, scores before their softmax) counts to the
    segment, which frees more; all of them; or none. The name ``superneurons-ungated`` stands for
    the readings without a prefetch gate.

Beyond the plan language
    Memory-centric recomputation: a saved tensor is made once and then stays, so every segment is
    speed-centric here, which is the faster of the two. Eviction during the backward pass, and of
    tensors that the forward pass reads again. Its choice of convolution algorithms.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from slackswap.analysis.layers import CONVOLUTIONS, MATRIX_PRODUCTS, is_of
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, Codes, Scorer
from slackswap.graph import Bools, Graph
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.eviction import evict
from slackswap.planners.common.fitting import checked, out_of_reach, permitted
from slackswap.planners.common.labels import require_labels
from slackswap.planners.common.readings import WithReadings
from slackswap.problem import Problem
from slackswap.profile import Profile

#: Kinds whose outputs are cheap to make again; all others are checkpoints.
CHEAP_KINDS = frozenset(
    {"norm", "elementwise", "dropout", "random", "softmax", "pool", "copy", "reduction", "fill"}
)


#: Kind of a sum that joins branches.
JOIN_KIND = "residual"

_HEAVY_KINDS = CONVOLUTIONS | MATRIX_PRODUCTS


@dataclass(frozen=True, slots=True)
class SuperNeurons(WithReadings):
    """Recompute cheap outputs, and evict checkpoints least recently used first.

    Parameters
    ----------
    prefetch_gate : bool or None
        Whether a checkpoint is fetched one checkpoint layer ahead, or as soon as memory allows.
    copy_at : {"failure", "eager"} or None
        When an evicted checkpoint's copy out starts: when the allocation fails, as its cache does,
        or as soon as it is written, as its unified tensor pool does.
    unread_checkpoints : {"joins", "all", "none"} or None
        Which checkpoints that only segments need, and backward itself does not, are cached.

    None stands for each of the values, the fastest plan being the answer.
    """

    name: ClassVar[str] = "superneurons"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = Capabilities()
    source: ClassVar[str] = "Wang et al., PPoPP 2018"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "prefetch_gate": (True, False),
        "copy_at": ("failure", "eager"),
        "unread_checkpoints": ("joins", "all", "none"),
    }

    prefetch_gate: bool | None = None
    copy_at: Literal["failure", "eager"] | None = None
    unread_checkpoints: Literal["joins", "all", "none"] | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the rule.

        Raises
        ------
        Skipped
            When not everything fits and no op has a kind.
        Infeasible
            When memory runs out with every checkpoint evicted.
        """
        scorer = Scorer(problem)
        profile, graph = problem.profile, scorer.graph
        as_it_is = permitted(scorer, scorer.default)
        if scorer.score(as_it_is).feasible[0]:
            return scorer.decode(as_it_is)
        require_labels(profile, "SuperNeurons", "kind", report)

        joins = join_ops(profile)
        cheap = _ops_of(profile, CHEAP_KINDS) & ~joins
        codes = permitted(scorer, self._segments(scorer, cheap, joins))
        # Idle tensors are touched last when their last forward reader runs.
        by_age = np.lexsort((np.arange(graph.n_tensors), graph.last_forward_use))
        evictions = evict(scorer, codes, by_age)
        if not evictions.fits:
            raise out_of_reach(problem, "SuperNeurons")
        plan = scorer.decode(evictions.codes)
        names = [tensor.name for tensor in profile.tensors]
        speed, memory = _segment_modes(profile, graph, cheap, codes)
        report(
            evicted=len(evictions.failed_at),
            speed_centric_segments=speed,
            memory_centric_segments=memory,
        )
        return checked(
            problem,
            Plan(
                plan.actions,
                offload_gates={
                    names[t]: op - 1
                    for t, op in evictions.failed_at.items()
                    if op - 1 > graph.producer[t] and self.copy_at == "failure"
                },
                prefetch_gates=(
                    _one_checkpoint_ahead(profile, evictions.needed_by)
                    if self.prefetch_gate
                    else {}
                ),
            ),
            "SuperNeurons",
        )

    def _segments(self, scorer: Scorer, cheap: Bools, joins: Bools) -> Codes:
        graph = scorer.graph
        made_by_cheap = ~graph.is_input & cheap[np.maximum(graph.producer, 0)]
        codes = scorer.default.copy()
        codes[graph.is_saved & made_by_cheap] = RECOMPUTE
        if self.unread_checkpoints != "none":
            cached = ~made_by_cheap & graph.is_intermediate
            if self.unread_checkpoints == "joins":
                cached &= joins[np.maximum(graph.producer, 0)]
            codes[cached & _read_by_segments(graph, codes, cached)] = KEEP
        return codes


@dataclass(frozen=True, slots=True)
class SuperNeuronsUngated(SuperNeurons):
    """SuperNeurons whose checkpoints come back as soon as memory allows."""

    name: ClassVar[str] = "superneurons-ungated"

    prefetch_gate: bool | None = False


def _ops_of(profile: Profile, kinds: frozenset[str]) -> Bools:
    return np.array([is_of(op, kinds) for op in profile.forward], dtype=np.bool_)


def join_ops(profile: Profile) -> Bools:
    """Return which forward ops join a branch with what it branched off from.

    Those of kind `residual`; in a profile without any, elementwise ops that read a tensor together
    with something that a product, an attention or a convolution made of that same tensor.
    """
    named = _ops_of(profile, frozenset({JOIN_KIND}))
    if named.any():
        return named
    graph = profile.graph
    readers = np.bincount(graph.forward_reads.items, minlength=graph.n_tensors)
    joins = np.zeros(graph.n_forward, dtype=np.bool_)
    for op, forward in enumerate(profile.forward):
        if forward.kind == "elementwise" and len(forward.reads) > 1:
            joins[op] = any(
                readers[fork] > 1
                and not graph.is_input[fork]
                and _branch_is_heavy(profile, op, fork)
                for fork in forward.reads
            )
    return joins


def _branch_is_heavy(profile: Profile, op: int, fork: int) -> bool:
    """Whether an op's other operands come from a tensor by way of a heavy op."""
    producer = profile.graph.producer
    start = int(producer[fork])
    waiting = [int(producer[t]) for t in profile.forward[op].reads if t != fork]
    branch: set[int] = set()
    while waiting:
        before = waiting.pop()
        if before > start and before not in branch:
            branch.add(before)
            waiting += [int(producer[t]) for t in profile.forward[before].reads]
    return any(fork in profile.forward[before].reads for before in branch) and any(
        is_of(profile.forward[before], _HEAVY_KINDS) for before in branch
    )


def _read_by_segments(graph: Graph, codes: Codes, cached: Bools) -> Bools:
    """Tensors that ops read which run again for recomputed ones, back to stored or cached ones."""
    read = np.zeros(graph.n_tensors, dtype=np.bool_)
    remade = graph.is_saved & (codes == RECOMPUTE)
    for op in range(graph.n_forward - 1, -1, -1):
        if remade[graph.forward_writes[op]].any():
            reads = graph.forward_reads[op]
            read[reads] = True
            remade[reads] |= (codes[reads] == RECOMPUTE) & ~cached[reads]
    return read


def _one_checkpoint_ahead(profile: Profile, needed_by: Mapping[int, int]) -> dict[str, int]:
    """Gate each tensor at the last checkpoint layer to start backward before it is needed."""
    checkpoint_ops = [
        j for j, op in enumerate(profile.backward) if op.reads and not is_of(op, CHEAP_KINDS)
    ]
    gates = {}
    for t, op in needed_by.items():
        before = bisect_left(checkpoint_ops, op)
        if before:
            gates[profile.tensors[t].name] = checkpoint_ops[before - 1]
    return gates


def _segment_modes(
    profile: Profile, graph: Graph, cheap: Bools, codes: Codes
) -> tuple[int, int]:
    """Count the segments under `l_peak` and those over it."""
    touched = [
        int(graph.nbytes[list({*op.reads, *op.writes})].sum()) + op.workspace
        for op in profile.forward
    ]
    touched += [
        int(graph.nbytes[list(op.reads)].sum()) + op.workspace for op in profile.backward
    ]
    l_peak = max(touched, default=0)
    remade = graph.is_saved & (codes == RECOMPUTE)
    sizes: list[int] = []
    for op in range(graph.n_forward):
        if not cheap[op] or op == 0 or not cheap[op - 1]:
            sizes.append(0)
        writes = graph.forward_writes[op]
        sizes[-1] += int(graph.nbytes[writes[remade[writes]]].sum())
    segments = [size for size in sizes if size]
    over = sum(size > l_peak for size in segments)
    return len(segments) - over, over
