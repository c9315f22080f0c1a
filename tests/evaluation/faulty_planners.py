"""Planners with one fault each, and an honest one that they all start from."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from slackswap import Bound, BoundMethod, Capabilities, Infeasible, Plan, Status
from slackswap.cost_model.scorer import SWAP, Scorer

_CALLS = itertools.count()


@dataclass(frozen=True, slots=True)
class Honest:
    """Swaps the largest tensors first, until the plan fits."""

    name: ClassVar[str] = "honest"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_recompute=False)

    def plan(self, problem, *, rng, time_limit, report):
        scorer, graph = Scorer(problem), problem.profile.graph
        tensors = np.flatnonzero(graph.is_saved & scorer.allowed[:, SWAP])
        tensors = tensors[np.argsort(-graph.nbytes[tensors], kind="stable")]
        counts = np.unique(np.linspace(0, len(tensors), 30).astype(int))
        codes = np.tile(scorer.default, (len(counts), 1))
        for row, count in enumerate(counts):
            codes[row, tensors[:count]] = SWAP
        best = scorer.score(codes).best()
        if best is None:
            raise Infeasible("swapping does not suffice")
        return scorer.decode(codes[best])


class MutatesArrays(Honest):
    """Makes a tensor larger in the arrays that everybody shares."""

    def plan(self, problem, **given):
        plan = super().plan(problem, **given)
        problem.profile.graph.nbytes[-1] += 1
        return plan


class MutatesProvenance(Honest):
    """Leaves a note in the profile."""

    def plan(self, problem, **given):
        problem.profile.provenance["seen"] = True
        return super().plan(problem, **given)


class MutatesBudget(Honest):
    """Gives itself more room."""

    def plan(self, problem, **given):
        plan = super().plan(problem, **given)
        object.__setattr__(problem, "budget_bytes", problem.budget_bytes + 1)
        return plan


class Overruns(Honest):
    """Works twice as long as it may."""

    def plan(self, problem, *, rng, time_limit, report):
        plan = super().plan(problem, rng=rng, time_limit=time_limit, report=report)
        if time_limit is not None:
            time.sleep(2 * time_limit)
        return plan


class NeverReturns(Honest):
    """Waits for something that does not come."""

    def plan(self, problem, **given):
        while True:
            time.sleep(0.01)


class SeedsTheGlobalGenerator(Honest):
    """Wants to be reproducible, at everybody else's cost."""

    def plan(self, problem, **given):
        random.seed(0)
        return super().plan(problem, **given)


class DrawsFromNumpy(Honest):
    """Draws from NumPy's global generator."""

    def plan(self, problem, **given):
        np.random.random()
        return super().plan(problem, **given)


class ExceedsMemory(Honest):
    """Plans for twice the memory there is."""

    def plan(self, problem, **given):
        return super().plan(problem.with_budget(2 * problem.budget_bytes), **given)


class ReportsTooLargeAnIncumbent(Honest):
    """Its plan fits, what it reports on the way does not."""

    def plan(self, problem, *, rng, time_limit, report):
        report.incumbent(Plan())
        return super().plan(problem, rng=rng, time_limit=time_limit, report=report)


class NeverSaysInfeasible(Honest):
    """Returns some plan where there is none."""

    def plan(self, problem, **given):
        try:
            return super().plan(problem, **given)
        except Infeasible:
            return Plan()


class GivesUpEasily(Honest):
    """Says that nothing fits as soon as something must be moved."""

    def plan(self, problem, **given):
        if problem.fraction <= 1:
            raise Infeasible("too hard")
        return super().plan(problem, **given)


class SwapsForNothing(Honest):
    """Swaps although everything fits."""

    def plan(self, problem, **given):
        scorer, graph = Scorer(problem), problem.profile.graph
        codes = scorer.default.copy()
        codes[graph.is_saved & scorer.allowed[:, SWAP]] = SWAP
        if scorer.score(codes).feasible[0]:
            return scorer.decode(codes)
        return super().plan(problem, **given)


@dataclass(frozen=True, slots=True)
class ClaimsAFalseBound(Honest):
    """Proves too much."""

    capabilities: ClassVar[Capabilities] = Capabilities(uses_recompute=False, gives_bound=True)

    def plan(self, problem, *, rng, time_limit, report):
        plan = Honest.plan(self, problem, rng=rng, time_limit=time_limit, report=report)
        took = int(Scorer(problem).score_plans([plan]).iteration_ns[0])
        # Its own plan's time: above the optimum whenever that plan is not the best.
        report.bound(Bound(took, BoundMethod.LP))
        return plan


class ClaimsNothingFits(Honest):
    """Its bound says that no plan fits, and its plan does."""

    def plan(self, problem, *, rng, time_limit, report):
        report.bound(Bound(1, BoundMethod.LP, status=Status.INFEASIBLE))
        return super().plan(problem, rng=rng, time_limit=time_limit, report=report)


@dataclass(frozen=True, slots=True)
class PromisesABound(Honest):
    """Declares a bound and gives none."""

    capabilities: ClassVar[Capabilities] = Capabilities(uses_recompute=False, gives_bound=True)


class RemembersCalls(Honest):
    """Does something else each time."""

    def plan(self, problem, **given):
        plan = super().plan(problem, **given)
        return Plan(plan.actions, offload_barriers=(next(_CALLS) % len(problem.profile.forward),))


class DependsOnTheSeed(Honest):
    """Declares itself deterministic, and is not."""

    def plan(self, problem, *, rng, time_limit, report):
        plan = super().plan(problem, rng=rng, time_limit=time_limit, report=report)
        return Plan(plan.actions, offload_barriers=(rng.randrange(len(problem.profile.forward)),))


@dataclass(frozen=True, slots=True)
class DeniesSwapping(Honest):
    """Declares that it never swaps."""

    capabilities: ClassVar[Capabilities] = Capabilities(uses_swap=False)


@dataclass(frozen=True, slots=True)
class DeniesRecomputing(Honest):
    """Recomputes, and declares that it does not."""

    def plan(self, problem, *, rng, time_limit, report):
        scorer, graph = Scorer(problem), problem.profile.graph
        allowed = graph.is_saved & scorer.allowed[:, 2] & graph.recomputable[graph.producer]
        rows = np.tile(scorer.default, (2, 1))
        rows[1, allowed] = 2
        best = scorer.score(rows).best()
        if best is None:
            raise Infeasible("recomputing does not suffice")
        return scorer.decode(rows[best])


@dataclass(frozen=True, slots=True)
class HoldsALambda(Honest):
    """Cannot be pickled."""

    key: Any = field(default=lambda tensor: tensor)


@dataclass(frozen=True, slots=True)
class UnwritableParameter(Honest):
    """Has a parameter that no file can hold."""

    choices: Any = field(default_factory=lambda: {1, 2})


class NamesAStranger(Honest):
    """Plans for a tensor that is not there."""

    def plan(self, problem, **given):
        return Plan({"stranger": "keep"})


class ReturnsNothing(Honest):
    """Forgets to return its plan."""

    def plan(self, problem, **given):
        super().plan(problem, **given)


class FailsOnZeroBytes(Honest):
    """Divides by the size of each tensor."""

    def plan(self, problem, **given):
        _ = [1 / nbytes for nbytes in problem.profile.graph.nbytes.tolist()]
        return super().plan(problem, **given)


class FailsOnOneOp(Honest):
    """Takes it that there are two ops."""

    def plan(self, problem, **given):
        _ = problem.profile.forward[1]
        return super().plan(problem, **given)


class OffByOneByte(Honest):
    """Takes the budget for one byte more than it is."""

    def plan(self, problem, **given):
        return super().plan(problem.with_budget(problem.budget_bytes + 1), **given)


@dataclass(frozen=True, slots=True)
class DeniesItGetsSlower(Honest):
    """Declares itself monotone; adds a barrier where the budget is large."""

    capabilities: ClassVar[Capabilities] = Capabilities(uses_recompute=False, monotone=True)

    def plan(self, problem, *, rng, time_limit, report):
        if problem.fraction < 0.95:
            return Honest.plan(self, problem, rng=rng, time_limit=time_limit, report=report)
        graph = problem.profile.graph
        names = [problem.profile.tensors[t].name for t in np.flatnonzero(graph.is_saved)]
        return Plan(
            dict.fromkeys(names, "swap"), offload_barriers=tuple(range(graph.n_forward))
        )


class DeclinesEverything(Honest):
    """Applies nowhere."""

    def plan(self, problem, **given):
        from slackswap import Skipped

        raise Skipped("needs a licence")
