"""Layer windows: keep, recompute or offload by a linear programme, each layer with its own link.

The automatic activation memory policy proposed for torchtitan's graph trainer in 2026
(``auto_perf_maxing``, github.com/pytorch/torchtitan/pull/4636 and the drafts it followed).

The rule
    A linear programme decides which share of each tensor stays, is recomputed, or leaves, so that
    the added time is least and memory fits at every layer of the backward pass. What a layer
    offloads must fit its own window: its bytes over the bandwidth take no longer than the layer's
    own forward time, nor its copies back than its own backward time. Then offloading is free, and
    recomputation costs the sum of what each tensor takes alone. Shares become whole tensors; where
    the plan then takes more than was modelled, the cap is lowered and all is solved again.

Transformers
    Layers are the profile's own. What crosses from one to the next is stored, kept or offloaded,
    whether or not backward reads it, so that no recomputation reaches into another layer; only
    where that does not fit, as in nets whose layers are single ops, it may be recomputed. One
    decision a forward op, for all it saves; its price includes the intermediates on the way. The
    forward pass is held to the budget as well. Where layers are long and what is in use anywhere in
    one does not fit at once, memory is modelled op by op. Whole decisions: of what does not stay,
    offload while the window has room, by share or by price a byte, whichever adds less time;
    recompute the rest; at last keep again, dearest first, while the plan fits. Copies go out as
    soon as written, and come back as early as memory allows. In drafts of the policy the window of
    a layer was all the time after it, which is the other reading.

Beyond the plan language
    Moving a layer's offload into the forward time of the layers after it by a set number of them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from slackswap.analysis.closure import IMPOSSIBLE, closure_ns
from slackswap.analysis.layers import Layer, boundaries, layers_of
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.errors import Skipped, SolverFailed
from slackswap.graph import Graph, Ints
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.fitting import keep_more, out_of_reach, permitted
from slackswap.planners.common.readings import WithReadings
from slackswap.problem import Problem

#: Times the cap is lowered by what the plan was short before the rule gives up.
_ROUNDS = 12

#: Layers times saved tensors up to which the programme is stated.
_MAX_CELLS = 1_000_000

#: A share below this is none: above the solver's own tolerance of 1e-7, which is absolute.
_SHARE = 1e-6

#: Added time for all that could leave, as a part of all that could be recomputed: of equal plans
#: the one that keeps most.
_PREFER_KEEP = 1e-6


@dataclass(frozen=True, slots=True)
class LayerWindow(WithReadings):
    """Solve the linear programme with per-layer windows.

    Parameters
    ----------
    window : {"own", "suffix"} or None
        Time that a layer's copies may take: its own, or all that is left after it; None: whichever
        gives the faster plan.
    """

    name: ClassVar[str] = "layer-window"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = Capabilities()
    source: ClassVar[str] = "torchtitan's automatic policy, 2026"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"window": ("own", "suffix")}

    window: Literal["own", "suffix"] | None = None

    def warm_up(self) -> None:
        """Import the solver before planning is timed."""
        import scipy.optimize  # noqa: F401

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the rule.

        Raises
        ------
        Infeasible
            When no cap gives a plan that fits.
        Skipped
            When there are too many layers and tensors for the programme.
        SolverFailed
            When HiGHS fails.
        """
        assert self.window is not None
        deadline = Deadline.after(time_limit)
        scorer = Scorer(problem)
        as_it_is = permitted(scorer, scorer.default)
        if scorer.score(as_it_is).feasible[0]:
            return scorer.decode(as_it_is)
        layers, saved = layers_of(problem.profile), int(scorer.graph.is_saved.sum())
        if len(layers) * saved > _MAX_CELLS:
            raise Skipped(
                f"the programme would have {len(layers)} times {saved} coefficients of memory",
                where="planner 'layer-window'", fix="use a planner by rule",
            )
        places = [layers]
        if len(problem.profile.forward) * saved <= _MAX_CELLS:
            places.append(layers_of(problem.profile, "op"))
        for store_boundaries in (True, False):
            for where in places:
                model = _Model(scorer, self.window, where, store_boundaries=store_boundaries)
                codes = self._solved(model, deadline, report)
                if codes is not None:
                    return scorer.decode(codes)
        raise out_of_reach(problem, "the linear programme of layer windows")

    def _solved(self, model: _Model, deadline: Deadline, report: Report) -> Codes | None:
        """Return the plan of the highest cap tried that fits, or None."""
        scorer = model.scorer
        cap = scorer.problem.budget_bytes
        for rounds in range(_ROUNDS):
            shares = model.solve(cap, deadline)
            if shares is None:
                break
            trials = [
                permitted(scorer, model.rounded(*shares, by_share=by_share))
                for by_share in (True, False)
            ]
            scores = scorer.score(np.array(trials))
            if scores.feasible.any():
                report(rounds=rounds + 1, cap_bytes=cap)
                fitting = [
                    model.restored(trials[n], deadline) for n in np.flatnonzero(scores.feasible)
                ]
                return min(fitting, key=model.added_ns)
            # Less than the solver can tell apart would give the same shares again.
            cap -= max(model.visible_bytes, int(scores.shortfall_bytes.min()))
            if deadline.passed:
                break
        return None


class _Model:
    """Items (forward ops with what they save), their prices, and the rows of the programme."""

    def __init__(
        self,
        scorer: Scorer,
        window: Literal["own", "suffix"],
        places: tuple[Layer, ...],
        *,
        store_boundaries: bool,
    ) -> None:
        graph, profile = scorer.graph, scorer.problem.profile
        self.scorer = scorer
        self.layers = layers_of(profile)
        crossing = np.zeros(graph.n_tensors, dtype=np.bool_)
        for tensors in boundaries(profile, self.layers) if store_boundaries else ():
            crossing[tensors] = True
        self.stored = graph.is_input | crossing
        movable = (graph.is_saved | crossing) & (graph.nbytes > 0)
        producer = graph.producer[movable]
        self.items: Ints = np.unique(producer)
        self.item_of = np.full(graph.n_tensors, -1, dtype=np.int64)
        self.item_of[movable] = np.searchsorted(self.items, producer)
        self.tensors = [np.flatnonzero(self.item_of == item) for item in range(len(self.items))]
        self.price = closure_ns(graph, graph.is_saved | self.stored)[self.items].astype(np.float64)
        by_item = {
            action: np.array([scorer.allowed[t, action].all() for t in self.tensors], dtype=bool)
            for action in (SWAP, RECOMPUTE)
        }
        self.may_swap = by_item[SWAP]
        crosses = np.array([crossing[t].any() for t in self.tensors], dtype=bool)
        self.may_recompute = by_item[RECOMPUTE] & (self.price < IMPOSSIBLE) & ~crosses
        self.out_ns = np.array([scorer.d2h_ns[t].sum() for t in self.tensors], dtype=np.float64)
        self.in_ns = np.array([scorer.h2d_ns[t].sum() for t in self.tensors], dtype=np.float64)
        self.nbytes = np.array([graph.nbytes[t].sum() for t in self.tensors], dtype=np.float64)
        self.fixed, self.away = _memory_rows(
            graph, places, _reads(graph, self.layers), self.item_of, len(self.items)
        )
        self.windows = self._windows(window)

    def _windows(self, window: str) -> list[tuple[Any, float, float]]:
        """Return the items, the forward time and the backward time of each window."""
        graph, rows = self.scorer.graph, []
        forward = [int(graph.forward_ns[layer.forward].sum()) for layer in self.layers]
        backward = [int(graph.backward_ns[layer.backward].sum()) for layer in self.layers]
        for n, layer in enumerate(self.layers):
            if window == "own":
                inside = (self.items >= layer.forward.start) & (self.items < layer.forward.stop)
                times = forward[n], backward[n]
            else:
                inside = self.items >= layer.forward.start
                times = sum(forward[n + 1 :]), sum(backward[n + 1 :])
            if inside.any():
                rows.append((inside, float(times[0]), float(times[1])))
        return rows

    @property
    def visible_bytes(self) -> int:
        """Least change of the cap that changes the shares by more than rounding off."""
        return 1 + int(2 * _SHARE * self.nbytes.max(initial=0))

    def _longest_ns(self) -> float:
        prices = self.price[self.may_recompute]
        return float(max(prices.max(initial=0), self.out_ns.max(), self.in_ns.max()))

    def solve(self, cap: int, deadline: Deadline) -> tuple[Any, Any] | None:
        """Return the shares recomputed and offloaded of each item; None if there are none."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, eye_array, hstack, vstack

        count = len(self.items)
        if count == 0:
            return (np.zeros(0), np.zeros(0)) if (self.fixed <= cap).all() else None
        # The solver's tolerances are absolute: the largest tensor and the longest price are one.
        size, span = 1 / self.nbytes.max(), 1 / max(1.0, self._longest_ns())
        # What is away lowers the level at a layer.
        away = csr_array(self.away * size)
        rows = [hstack([-away, -away])]
        bounds = [(cap - self.fixed - self.away.sum(axis=1)) * size]
        none = csr_array((1, count))

        def limit_offload(weights: Any, most: float) -> None:
            rows.append(hstack([none, csr_array(weights[np.newaxis])]))
            bounds.append(np.array([most]))

        for inside, forward_ns, backward_ns in self.windows:
            limit_offload(np.where(inside, self.out_ns, 0) * span, forward_ns * span)
            limit_offload(np.where(inside, self.in_ns, 0) * span, backward_ns * span)
        host_bytes = self.scorer.problem.hardware.host_bytes
        if host_bytes is not None:
            limit_offload(self.nbytes * size, host_bytes * size)
        rows.append(hstack([csr_array(eye_array(count))] * 2))
        bounds.append(np.ones(count))
        price = np.where(self.may_recompute, self.price, 0) * span
        # At least what the solver can tell from nothing.
        least = max(1e-5, _PREFER_KEEP * float(price.sum()) / count)
        keep_most = least * self.nbytes * size
        possible = np.concatenate([self.may_recompute, self.may_swap])
        options = {"time_limit": max(0.01, deadline.left_s)} if deadline.is_limited else {}
        solve: Any = linprog  # its stubs know no sparse matrices
        result = solve(
            np.concatenate([price + keep_most, keep_most]),
            A_ub=vstack(rows),
            b_ub=np.concatenate(bounds),
            bounds=np.stack([np.zeros(2 * count), possible], axis=1),
            method="highs",
            options=options,
        )
        if result.status in (1, 2):  # out of time, or infeasible
            return None
        if not result.success:
            raise SolverFailed(
                f"HiGHS: {result.message}", where="planner 'layer-window'",
                fix="report the problem",
            )
        return result.x[:count], result.x[count:]

    def rounded(self, recomputed: Any, offloaded: Any, *, by_share: bool) -> Codes:
        """Return whole decisions: what does not stay fills the windows, or is recomputed.

        The windows are filled by share offloaded, or by price a byte. What neither fits nor can be
        recomputed stays.
        """
        codes = self.scorer.default.copy()
        codes[self.stored] = KEEP
        freed = recomputed + offloaded > _SHARE
        rate = -self.price / self.nbytes
        keys = (rate, -offloaded.round(6)) if by_share else (rate,)
        order = np.lexsort(keys)
        left = [[forward_ns, backward_ns] for _, forward_ns, backward_ns in self.windows]
        for item in order[freed[order]].tolist():
            mine = [n for n, (inside, _, _) in enumerate(self.windows) if inside[item]]
            fits = all(
                self.out_ns[item] <= left[n][0] + 1 and self.in_ns[item] <= left[n][1] + 1
                for n in mine
            )
            if self.may_swap[item] and fits:
                codes[self.tensors[item]] = SWAP
                for n in mine:
                    left[n][0] -= self.out_ns[item]
                    left[n][1] -= self.in_ns[item]
            elif self.may_recompute[item]:
                codes[self.tensors[item]] = RECOMPUTE
        return codes

    def added_ns(self, codes: Codes) -> float:
        """Return what the recomputations of a plan add, as the programme counts it."""
        recomputed = [(codes[tensors] == RECOMPUTE).any() for tensors in self.tensors]
        return float(self.price[np.array(recomputed, dtype=np.bool_)].sum())

    def restored(self, codes: Codes, deadline: Deadline) -> Codes:
        """Keep recomputed items again, dearest a byte first, while the plan fits."""
        order = np.argsort(-self.price / self.nbytes, kind="stable")
        return keep_more(
            self.scorer, codes, [self.tensors[item] for item in order.tolist()], deadline=deadline
        )


def _memory_rows(
    graph: Graph, places: tuple[Layer, ...], reads: tuple[Ints, Ints], item_of: Ints, count: int
) -> tuple[Any, Any]:
    """Return, for each place there and back, the bytes in any case and those that may be away.

    Returns
    -------
    fixed : float64[rows]
        Inputs, workspace and tensors in use, at the place's fullest op.
    away : float64[rows, items]
        Bytes of each item that stay only if kept: idle before, during and after the place.
    """
    fixed, away = [], []
    moved = np.flatnonzero(item_of >= 0)
    written = np.flatnonzero(~graph.is_input)
    first_read, last_read = reads
    for place in places:
        start, stop = place.forward.start, place.forward.stop
        idle = moved[graph.last_forward_use[moved] < start]
        busy = written[
            (graph.producer[written] < stop) & (graph.last_forward_use[written] >= start)
        ]
        stays = item_of[busy] >= 0
        level = max(
            int(graph.forward_workspace[op])
            + int(
                graph.nbytes[
                    busy[
                        (graph.producer[busy] <= op)
                        & (stays | (graph.last_forward_use[busy] >= op))
                    ]
                ].sum()
            )
            for op in place.forward
        )
        fixed.append(float(graph.input_bytes + level))
        away.append(_by_item(graph, idle, item_of, count))
    for place in places:
        if not len(place.backward):
            continue
        idle = moved[first_read[moved] >= place.backward.stop]
        busy = moved[first_read[moved] < place.backward.stop]
        level = max(
            int(graph.backward_workspace[op])
            + int(graph.nbytes[busy[last_read[busy] >= op]].sum())
            for op in place.backward
        )
        fixed.append(float(graph.input_bytes + level))
        away.append(_by_item(graph, idle, item_of, count))
    return np.array(fixed), np.array(away).reshape(len(fixed), count)


def _reads(graph: Graph, layers: tuple[Layer, ...]) -> tuple[Ints, Ints]:
    """Return the first and last backward op that needs each tensor.

    A stored tensor that backward does not read serves recomputation in the layers that read it.
    """
    first, last = graph.first_backward_read.copy(), graph.last_backward_read.copy()
    layer_of = np.zeros(graph.n_forward, dtype=np.int64)
    for n, layer in enumerate(layers):
        layer_of[layer.forward.start : layer.forward.stop] = n
    for t in np.flatnonzero(graph.is_intermediate).tolist():
        first[t] = layers[layer_of[graph.last_forward_use[t]]].backward.start
        nearest = min(int(layer_of[graph.producer[t]]) + 1, len(layers) - 1)
        last[t] = layers[nearest].backward.stop - 1
    return first, last


def _by_item(graph: Graph, tensors: Ints, item_of: Ints, count: int) -> Any:
    row = np.zeros(count)
    np.add.at(row, item_of[tensors], graph.nbytes[tensors])
    return row
