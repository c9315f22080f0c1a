"""SlackSwap+: the rule, then a deterministic improvement search around its plan.

What the rule leaves is what whole tensors in price order cannot do. So the recompute set is chosen
anew as a knapsack (`slackswap.search.knapsack`), actions are exchanged between ops in the order of
expected gain (`slackswap.search.exchanges`), and last every change of one tensor is tried, on small
problems of several at once, until none helps (`slackswap.search.local_search`). Every plan is
scored by the cost model; the search can be stopped at any time and returns its best.

What is found depends on the budget, so that a larger one could be slower. Therefore lower budgets
of a fixed grid are planned for too, as far as they may be faster.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from slackswap.analysis.quick_bounds import least_ns
from slackswap.cost_model.scorer import Scorer
from slackswap.deadline import Deadline
from slackswap.errors import Infeasible
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.budget_grid import lower_budgets
from slackswap.planners.slackswap import SlackSwap
from slackswap.problem import Problem
from slackswap.search.enumeration import Decisions
from slackswap.search.exchanges import exchange
from slackswap.search.knapsack import knapsacks, least_time
from slackswap.search.local_search import Incumbent, improve_fully

#: Ops simulated after which a search ends. Two thousand tensors are certain to be gone through.
_WORK = 20_000_000
#: Times that all changes of one op are scored before single tensors are.
_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class SlackSwapPlus:
    """The rule followed by knapsack, exchanges and local search; anytime.

    Parameters
    ----------
    polish : int, optional
        Most plans scored after the rule's. By default as many as it takes on up to 2,000 tensors,
        and fewer the larger the profile.
    """

    polish: int | None = None

    name: ClassVar[str] = "slackswap+"
    version: ClassVar[str] = "3"
    capabilities: ClassVar[Capabilities] = Capabilities(anytime=True, monotone=True)

    def warm_up(self) -> None:
        """Load the compiled parts."""
        SlackSwap().warm_up()
        least_time(np.array([1, 2]), np.array([1, 2]), 2)

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Plan by the rule, then improve until nothing more is found or time is up.

        `statistics` are those of the rule, but for `evaluations`, which counts all, and
        `locally_optimal`: whether it is certain that no change of one tensor's action helps.
        """
        deadline = Deadline.after(time_limit)
        best = Incumbent(Scorer(problem), deadline)
        best.on_better = lambda codes: report.incumbent(best.scorer.decode(codes))
        failure: Infeasible | None = None
        certain = False
        try:
            certain = self._improve(best, report)
        except Infeasible as error:
            failure = error
        own_ns = best.iteration_ns
        for budget in lower_budgets(problem):
            least = least_ns(best.scorer, budget)
            if least is None or least >= best.iteration_ns or deadline.passed:
                break
            lower = Incumbent(Scorer(problem.with_budget(budget)), deadline)
            with suppress(Infeasible):
                self._improve(lower, Report())
            best.evaluations += lower.evaluations
            if lower.iteration_ns < best.iteration_ns:
                best.offer(lower.plan)
        if best.codes is not None and best.iteration_ns < own_ns:
            certain = improve_fully(best, Decisions.of(best.scorer))
        report(evaluations=best.evaluations, locally_optimal=certain)
        if failure is not None and best.codes is None:
            raise failure
        return best.scorer.decode(best.plan)

    def _improve(self, best: Incumbent, report: Report) -> bool:
        """Take the rule's plan for an incumbent's problem, and search on from it.

        Returns
        -------
        bool
            Whether it is certain that no change of one tensor helps.
        """
        problem = best.scorer.problem
        rule = SlackSwap().plan(
            problem, rng=random.Random(0), time_limit=best.deadline.time_limit, report=report
        )
        best.evaluations += report.statistics["evaluations"]
        best.offer(best.scorer.encode(rule))
        if best.iteration_ns <= problem.profile.duration_ns:
            return True
        by_work = max(1, _WORK // best.scorer.graph.n_forward)
        best.most = best.evaluations + (by_work if self.polish is None else self.polish)
        knapsacks(best, report.statistics["link_share"])
        useless = exchange(best, report.statistics["threshold_ns_per_byte"], _ROUNDS)
        return improve_fully(best, Decisions.of(best.scorer), useless)
