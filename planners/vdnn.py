"""vDNN: swap the input feature maps of layers, one layer at a time, and wait at its end.

Rhu, Gimelshein, Clemons, Zulfiqar, Keckler: *vDNN: Virtualized Deep Neural Networks for Scalable,
Memory-Efficient Neural Network Design*, MICRO 2016, arXiv:1602.08124. vDNN++: Shriram, Garg,
Kulkarni: *Dynamic Memory Management for GPU-Based Training of Deep Neural Networks*, IPDPS 2019.

The rule
    While a layer runs forward, its input feature map is copied out, by its last reader when it has
    several; compute waits at the layer's end until that copy has ended. While a layer runs
    backward, the nearest earlier layer whose map is out and not yet under way is fetched, the
    search ending at the nearest CONV layer; compute waits at the layer's end again. Nothing is
    recomputed. The last layer's map stays, since it is needed at once. *all* moves the maps of all
    layers, *conv* those of CONV layers, *dyn* takes the first that fits of none, conv, all.
    vDNN++ drops the two waits.

Transformers
    CONV is a matrix product or attention. A layer is the profile's own (a block): a wait at the
    end of a block overlaps with all of it, and the next block's maps arrive during all of this one.
    Or each op is a layer, which is the other reading.
    A dropout mask is an input of the op that applies it; statistics that no forward op reads are
    not feature maps, and stay.

Beyond the plan language
    The choice of convolution algorithms by workspace, and the GPU-side memory pool. *dyn* decides
    one policy for the whole network here, not an algorithm a layer.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from slackswap.analysis.layers import Granularity, Layer, heavy_kinds, is_of, layers_of
from slackswap.cost_model.scorer import SWAP, Scorer
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.fitting import checked, out_of_reach, permitted, swappable
from slackswap.planners.common.labels import report_missing_kinds, require_labels
from slackswap.planners.common.readings import WithReadings
from slackswap.problem import Problem

Policy = Literal["none", "conv", "all"]

_SOURCE = "Rhu et al., MICRO 2016"
_CHOICES: Mapping[str, tuple[Any, ...]] = {"granularity": ("layer", "op")}
_CAPABILITIES = Capabilities(uses_recompute=False)
#: One policy moves the same maps whatever the budget.
_ONE_POLICY = Capabilities(uses_recompute=False, uses_budget=False)


@dataclass(frozen=True, slots=True)
class VDNNAll(WithReadings):
    """Swap the input feature map of every layer.

    Parameters
    ----------
    granularity : {"layer", "op"} or None
        What counts as a layer; None: whichever gives the faster plan.
    """

    name: ClassVar[str] = "vdnn-all"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = _ONE_POLICY
    source: ClassVar[str] = _SOURCE
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = _CHOICES

    granularity: Granularity | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the one plan of this policy.

        Raises
        ------
        Infeasible
            When it does not fit.
        """
        assert self.granularity is not None
        return checked(problem, vdnn_plan(problem, "all", self.granularity), "vDNN-all")


@dataclass(frozen=True, slots=True)
class VDNNConv(WithReadings):
    """Swap the input feature maps of CONV layers; parameter as of `VDNNAll`."""

    name: ClassVar[str] = "vdnn-conv"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = _ONE_POLICY
    source: ClassVar[str] = _SOURCE
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = _CHOICES

    granularity: Granularity | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the one plan of this policy.

        Raises
        ------
        Skipped
            When no op has a kind: then no budget would help.
        Infeasible
            When it does not fit.
        """
        require_labels(problem.profile, "vDNN-conv", "kind", report)
        assert self.granularity is not None
        return checked(problem, vdnn_plan(problem, "conv", self.granularity), "vDNN-conv")


@dataclass(frozen=True, slots=True)
class VDNNDyn(WithReadings):
    """Take the first that fits of none, conv and all, as trial runs of the original do.

    Parameters
    ----------
    granularity : {"layer", "op"} or None
        What counts as a layer; None: whichever gives the faster plan.
    """

    name: ClassVar[str] = "vdnn-dyn"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = _CAPABILITIES
    source: ClassVar[str] = _SOURCE
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = _CHOICES

    granularity: Granularity | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the first policy that fits.

        Raises
        ------
        Infeasible
            When none does.
        """
        assert self.granularity is not None
        return _first(problem, "vDNN-dyn", ("none", "conv", "all"), self.granularity, report)


@dataclass(frozen=True, slots=True)
class VDNNPlusPlus(WithReadings):
    """vDNN without the waits at the ends of layers.

    Parameters
    ----------
    policy : {"dyn", "conv", "all"}
        Whose maps move; *dyn* is the kindest.
    granularity : {"layer", "op"} or None
        What counts as a layer; None: whichever gives the faster plan.
    """

    name: ClassVar[str] = "vdnn++"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = _CAPABILITIES
    source: ClassVar[str] = "Shriram et al., IPDPS 2019"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = _CHOICES

    policy: Literal["dyn", "conv", "all"] = "dyn"
    granularity: Granularity | None = None

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the policy, or of the first of *dyn* that fits.

        Raises
        ------
        Infeasible
            When none does.
        """
        assert self.granularity is not None
        policies: tuple[Policy, ...] = (
            ("none", "conv", "all") if self.policy == "dyn" else (self.policy,)
        )
        return _first(problem, "vDNN++", policies, self.granularity, report, barriers=False)


def _first(
    problem: Problem,
    rule: str,
    policies: tuple[Policy, ...],
    granularity: Granularity,
    report: Report,
    *,
    barriers: bool = True,
) -> Plan:
    if policies == ("conv",):
        require_labels(problem.profile, rule, "kind", report)
    report_missing_kinds(problem.profile, report)  # without kinds, conv moves nothing
    plans = [vdnn_plan(problem, policy, granularity, barriers=barriers) for policy in policies]
    scores = Scorer(problem).score_plans(plans)
    fitting = np.flatnonzero(scores.feasible)
    if not len(fitting):
        scores.check_valid()
        raise out_of_reach(problem, rule, scores.evaluation(len(plans) - 1).infeasible)
    report(policy=policies[int(fitting[0])])
    return plans[int(fitting[0])]


def vdnn_plan(
    problem: Problem, policy: Policy, granularity: Granularity = "layer", *, barriers: bool = True
) -> Plan:
    """Return the plan of one policy, whether or not it fits.

    Parameters
    ----------
    problem : Problem
        Only its profile, and what it permits, matter.
    policy : {"none", "conv", "all"}
        Whose input feature maps move.
    granularity : {"layer", "op"}
        What counts as a layer.
    barriers : bool
        Whether compute waits at the ends of layers.
    """
    scorer = Scorer(problem)
    profile, graph = problem.profile, scorer.graph
    layers = layers_of(profile, granularity)
    layer_of_op = np.zeros(graph.n_forward, dtype=np.int64)
    for n, layer in enumerate(layers):
        layer_of_op[layer.forward.start : layer.forward.stop] = n
    convolutions = heavy_kinds(profile)
    heavy = np.array([is_of(op, convolutions) for op in profile.forward], dtype=np.bool_)

    moves = swappable(scorer) & (graph.last_forward_use > graph.producer)
    if policy == "none":
        moves[:] = False
    else:
        moves[moves] = layer_of_op[graph.last_forward_use[moves]] < len(layers) - 1
        if policy == "conv":
            read_by_heavy = np.zeros(graph.n_tensors, dtype=np.bool_)
            readers = graph.forward_reads.owners()
            read_by_heavy[graph.forward_reads.items[heavy[readers]]] = True
            moves &= read_by_heavy
    codes = scorer.default.copy()
    codes[moves] = SWAP
    codes = permitted(scorer, codes)

    maps_of: dict[int, list[int]] = {}
    for t in np.flatnonzero(codes == SWAP).tolist():
        maps_of.setdefault(int(layer_of_op[graph.last_forward_use[t]]), []).append(t)
    is_conv = [bool(heavy[layer.forward.start : layer.forward.stop].any()) for layer in layers]
    fetched_during = _fetch_order(layers, maps_of, is_conv)

    offload_gates: dict[str, int] = {}
    prefetch_gates: dict[str, int] = {}
    for n, maps in maps_of.items():
        start = layers[n].forward.start
        trigger = layers[fetched_during.get(n, n)].backward
        for t in maps:
            name = profile.tensors[t].name
            if start - 1 > graph.producer[t]:
                offload_gates[name] = start - 1
            if len(trigger):
                prefetch_gates[name] = trigger.start
    plan = scorer.decode(codes)
    return Plan(
        plan.actions,
        offload_gates=offload_gates,
        offload_barriers=tuple(layers[n].forward.stop - 1 for n in maps_of) if barriers else (),
        prefetch_gates=prefetch_gates,
        prefetch_barriers=(
            tuple(layers[m].backward.stop - 1 for m in set(fetched_during.values()))
            if barriers
            else ()
        ),
    )


def _fetch_order(
    layers: tuple[Layer, ...], maps_of: Mapping[int, list[int]], is_conv: list[bool]
) -> dict[int, int]:
    """Return the layer during whose backward each layer's maps are fetched."""
    during: dict[int, int] = {}
    for current in range(len(layers) - 1, -1, -1):
        if not len(layers[current].backward):
            continue
        for n in range(current - 1, -1, -1):
            if n in maps_of and n not in during:
                during[n] = current
                break
            if is_conv[n]:
                break
    return during


