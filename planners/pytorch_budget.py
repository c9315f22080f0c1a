"""PyTorch's activation memory budget: a knapsack of what to keep, by its own solvers.

``torch._functorch.config.activation_memory_budget`` of AOTAutograd's min-cut partitioner, with the
solvers ``greedy``, ``dp`` and ``ilp`` of ``torch._functorch._activation_checkpointing.knapsack``,
which are called here as they are.

The rule
    A budget from 0 to 1 is a share of what the run-time optimal partition saves. Saved values are
    items: their weight is their size, their worth the time of the op that makes them. A 0/1
    knapsack keeps the most worth within the budget; the others are recomputed. Costs and sizes
    are taken to add up.

Transformers
    One item is an op with all it saves, since one rerun makes all. Items are sorted by size,
    largest first, as the partitioner sorts them. A user finds the budget by trial, for which the
    partitioner draws a Pareto curve in steps of 1/20: here the largest of these whose plan fits,
    refined to 1/320. The graph that is partitioned is a layer of the profile, as in training codes
    that compile block by block: what enters a block is then kept, which spares closures that reach
    back through the whole model. Or it is the whole model, which is the other reading, and the one
    that fits where layers are single ops.

Beyond the plan language
    The partitioner's min-cut over fusible ops before the knapsack, which recomputes for free what
    a compiler fuses: a profile holds ops as they run. Values whose recomputation the knapsack
    allows but the final min-cut then keeps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from slackswap.analysis.layers import boundaries, layers_of
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.errors import Skipped, SolverFailed
from slackswap.graph import Ints
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.fitting import out_of_reach, permitted
from slackswap.planners.common.readings import WithReadings
from slackswap.problem import Problem

#: What a knapsack solver is: weights, worths, capacity -> total worth, kept items, other items.
Solver = Callable[[list[float], list[float], float], tuple[float, list[int], list[int]]]

#: Steps of the partitioner's Pareto curve, and the finest budget tried.
_CURVE, _GRID = 20, 320

#: Rows that the table of the dynamic programme may have: 10,001 weights a row, 4 bytes a cell.
_MAX_DP_ITEMS = 5_000


@dataclass(frozen=True, slots=True)
class PyTorchBudget(WithReadings):
    """Keep what a knapsack solver of PyTorch keeps.

    Parameters
    ----------
    solver : {"dp", "greedy", "ilp"}
        PyTorch's default first.
    region : {"block", "model"} or None
        What is partitioned at once; None: whichever gives the faster plan.
    """

    name: ClassVar[str] = "pytorch-budget"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_swap=False)
    source: ClassVar[str] = "torch._functorch, activation_memory_budget"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {"region": ("block", "model")}

    solver: Literal["dp", "greedy", "ilp"] = "dp"
    region: Literal["block", "model"] | None = None

    def warm_up(self) -> None:
        """Import torch, if it is there, before planning is timed."""
        try:
            _knapsack(self.solver)
        except Skipped:
            return

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the largest budget found that fits.

        Raises
        ------
        Skipped
            When torch is not installed, or there are too many items for the solver's table.
        Infeasible
            When it does not fit with a budget of zero.
        """
        solve = _knapsack(self.solver)
        deadline = Deadline.after(time_limit)
        scorer = Scorer(problem)
        items = _Items(scorer, by_block=self.region == "block")
        if self.solver == "dp" and len(items.ops) > _MAX_DP_ITEMS:
            raise Skipped(
                f"the dynamic programme would need a table of {len(items.ops)} rows",
                where="planner 'pytorch-budget'", fix="give solver='greedy'",
            )
        low, codes = self._largest_that_fits(items, solve, deadline)
        if codes is None:
            raise out_of_reach(
                problem, f"PyTorch's memory budget, tried from 1 down to {low / _GRID:g},"
            )
        report(memory_budget=low / _GRID)
        return scorer.decode(codes)

    def _largest_that_fits(
        self, items: _Items, solve: Solver, deadline: Deadline
    ) -> tuple[int, Codes | None]:
        """Return the largest budget found, as a multiple of 1 / _GRID, and its plan."""

        def attempt(step: int) -> Codes | None:
            codes = items.codes(solve, step / _GRID)
            return codes if items.scorer.score(codes).feasible[0] else None

        # Downwards, not by bisection: when almost everything is recomputed, closures grow so long
        # that a smaller budget may need more memory.
        found: Codes | None = None
        low = _GRID
        for low in range(_GRID, -1, -_GRID // _CURVE):
            found = attempt(low)
            if found is not None or deadline.passed:
                break
        high = min(low + _GRID // _CURVE, _GRID)
        while found is not None and high - low > 1 and not deadline.passed:
            middle = (low + high) // 2
            codes = attempt(middle)
            if codes is None:
                high = middle
            else:
                low, found = middle, codes
        return low, found


class _Items:
    """Forward ops with what they save, as items of a knapsack."""

    def __init__(self, scorer: Scorer, *, by_block: bool) -> None:
        graph, profile = scorer.graph, scorer.problem.profile
        self.scorer = scorer
        movable = graph.is_saved & scorer.allowed[:, RECOMPUTE] & (graph.nbytes > 0)
        crossing = boundaries(profile, layers_of(profile)) if by_block else []
        self.entering: Ints = np.unique(np.concatenate([[], *crossing])).astype(np.int64)
        movable[self.entering] = False
        weight = graph.bytes_by_op(movable)
        self.movable = movable
        ops = np.flatnonzero((weight > 0) & graph.recomputable)
        self.ops: Ints = ops[np.lexsort((ops, -weight[ops]))]
        # The scale runs from what enters (0) to all that is saved (1).
        total = max(1, int(weight.sum()))
        self.weights = [int(weight[op]) / total for op in self.ops.tolist()]
        # In milliseconds, as the partitioner's own timer has them.
        self.worths = [int(graph.forward_ns[op]) / 1e6 for op in self.ops.tolist()]

    def codes(self, solve: Solver, budget: float) -> Codes:
        """Return the plan of a budget from 0 to 1."""
        others: Sequence[int]
        if budget in (0, 1) or not len(self.ops):  # the ends of the scale need no knapsack
            others = () if budget else range(len(self.ops))
        else:
            try:
                others = solve(list(self.weights), list(self.worths), budget)[2]
            except RuntimeError as error:
                raise SolverFailed(
                    f"PyTorch's solver stopped ({error})", where="planner 'pytorch-budget'",
                    fix="choose another solver",
                ) from error
        graph, codes = self.scorer.graph, self.scorer.default.copy()
        if budget < 1:
            codes[self.entering] = KEEP
        for op in self.ops[list(others)].tolist():
            writes = graph.forward_writes[op]
            codes[writes[self.movable[writes]]] = RECOMPUTE
        return permitted(self.scorer, codes)


def _knapsack(solver: str) -> Solver:
    try:
        from torch._functorch._activation_checkpointing import knapsack
    except ImportError as error:
        raise Skipped(
            f"PyTorch's knapsack solvers cannot be imported ({error})",
            where="planner 'pytorch-budget'",
            fix="install the extra: pip install 'slackswap[torch]'",
        ) from error
    function: Solver = getattr(knapsack, f"{solver}_knapsack")
    return function
