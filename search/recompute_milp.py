"""Recompute-only optimum: Checkmate's question, asked of this project's model.

Jain, Jain, Nrusimha, Gholami, Abbeel, Keutzer, Stoica, Gonzalez: *Checkmate: Breaking the Memory
Wall with Optimal Tensor Rematerialization*, MLSys 2020, arXiv:1910.02653.

The rule
    A mixed-integer linear programme decides which tensors to keep and which to recompute, so that
    time is least within the memory budget. Nothing is swapped.

Transformers
    The programme is that of ``search/milp`` with swapping forbidden: a relaxation of the cost
    model, so its solution may be short of memory when it is replayed. Then single tensors change
    until it fits, or the programme is solved again for a budget lower by what was missing; at last
    recomputed tensors are kept again, the largest first, while the plan fits. The solver starts
    from what SlackSwap's rule finds without swapping, which is also the answer when time runs out.

Beyond the plan language
    Checkmate may make a tensor several times, once in each stage of its schedule. Here a saved
    tensor that is made again stays until its last use.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from slackswap.cost_model.scorer import KEEP, RECOMPUTE, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.errors import Infeasible, InvalidPlanner
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.fitting import keep_more, out_of_reach, permitted
from slackswap.planners.common.repair import repair
from slackswap.planners.slackswap import SlackSwap
from slackswap.problem import Problem
from slackswap.search.bounds import integer_bound, tightened
from slackswap.search.milp.data import Restriction
from slackswap.search.milp.model import PlanModel
from slackswap.search.milp.solve import SolverAnswer
from slackswap.status import Status

_RECOMPUTE_ONLY = Restriction(allow_swap=False)

#: Times the budget of the programme is lowered before the rule gives up.
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class RecomputeMilp:
    """Solve the mixed-integer programme without swapping, and replay its plan.

    Parameters
    ----------
    relative_gap : float
        When the programme counts as solved.
    """

    name: ClassVar[str] = "recompute-milp"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_swap=False)
    source: ClassVar[str] = "Jain et al. (Checkmate), MLSys 2020"

    relative_gap: float = 1e-3

    def __post_init__(self) -> None:
        if not 0 <= self.relative_gap < 1:
            raise InvalidPlanner(
                f"relative_gap is {self.relative_gap}", where=f"planner {self.name!r}",
                fix="write a number from 0 to below 1",
            )

    def warm_up(self) -> None:
        """Import the solver before planning is timed."""
        import ortools.math_opt.python.mathopt  # noqa: F401

        SlackSwap().warm_up()

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the replayed plan of the programme.

        The bound it proves holds for plans that do not swap only. So it is reported as the
        statistic ``recompute_bound_ns``, not as a bound of the problem.

        Raises
        ------
        Infeasible
            When no plan without swapping was found to fit.
        """
        deadline = Deadline.after(time_limit)
        scorer = Scorer(problem)
        start = _start(problem, rng, time_limit)
        plans = [] if start is None else [scorer.encode(start)]
        budget = problem.budget_bytes
        for rounds in range(_ROUNDS):
            model, linear = tightened(
                problem.with_budget(budget), _RECOMPUTE_ONLY, time_limit=deadline.time_limit
            )
            if linear.status is Status.INFEASIBLE:
                break
            bound, answer = integer_bound(
                model,
                linear,
                relative_gap=self.relative_gap,
                time_limit=deadline.time_limit,
                hint=_hint(model, plans[0]) if plans and rounds == 0 else None,
            )
            if rounds == 0:
                report(
                    recompute_bound_ns=bound.value_ns,
                    recompute_bound_status=str(bound.status),
                    solver=bound.solver,
                )
            if answer is None or answer.x is None:
                break
            codes = permitted(scorer, _codes(scorer, model, answer))
            scores = scorer.score(codes)
            fitting = (
                codes
                if scores.feasible[0]
                else repair(scorer, codes, actions=(KEEP, RECOMPUTE))
            )
            if fitting is not None:
                report(rounds=rounds + 1, replay_fits=bool(scores.feasible[0]))
                plans.append(_kept_again(scorer, fitting, deadline))
                break
            budget -= max(1, int(scores.shortfall_bytes[0]))
            if budget <= 0 or deadline.passed:
                break
        if not plans:
            raise out_of_reach(problem, "recomputation alone")
        best = scorer.score(np.array(plans)).best()
        assert best is not None  # each of them fits
        return scorer.decode(plans[best])


def _start(problem: Problem, rng: random.Random, time_limit: float | None) -> Plan | None:
    try:
        return SlackSwap(swap=False).plan(
            problem, rng=rng, time_limit=time_limit, report=Report()
        )
    except Infeasible:
        return None


def _hint(model: PlanModel, codes: Codes) -> NDArray[np.float64]:
    """Return what a plan says of the model's variables: nothing but what is dropped."""
    hint = np.full(model.linear.n_columns, np.nan)
    hint[model.variables.swap] = 0
    hint[model.variables.drop] = codes == RECOMPUTE
    return hint


def _codes(scorer: Scorer, model: PlanModel, answer: SolverAnswer) -> Codes:
    """Return the plan of a solution: dropped or kept, intermediates included."""
    assert answer.x is not None
    dropped = answer.x[model.variables.drop] > 0.5
    codes = np.where(dropped, RECOMPUTE, KEEP).astype(np.int8)
    codes[scorer.graph.is_input] = KEEP
    return codes


def _kept_again(scorer: Scorer, codes: Codes, deadline: Deadline) -> Codes:
    graph = scorer.graph
    saved = np.flatnonzero(graph.is_saved)
    largest = saved[np.argsort(-graph.nbytes[saved], kind="stable")]
    return keep_more(
        scorer, codes, [np.array([t]) for t in largest.tolist()], deadline=deadline
    )
