"""SlackSwap: link time is a budget, spent where recomputing is dearest.

Feng, Zhou and Wang, "SlackSwap", arXiv 2610.13003, of which the abstract is public. Its rule: the
link's time during the forward pass is one global budget; tensors are ranked by closure cost per
byte, which is updated as tensors are decided; the budget goes to those dearest to recompute; what
is still missing is recomputed, cheapest first; copies go out first in, first out, come back
earliest deadline first, and no barrier binds them to layers. `literal=True` is that alone.

How the rule is read here. Closure prices order the tensors; a threshold in that order separates
what is recomputed from what is not. For the link, all tensors above the threshold are of the same
value: each byte of them that is swapped out spares one byte at the threshold from recomputation. So
the earliest written go first: their copies start soonest and are needed back last, which is where
the slack is.

What is ours. A price order decides tensors one by one, but what dropping one costs depends on what
else is dropped and stored. So the order is made several times, each time with other intermediates
stored and other tensors never dropped: those of the best trades of time for memory
(`slackswap.analysis.hull`), with a checkpoint now and then (`slackswap.analysis.checkpoints`).
Order, threshold and share of the link are those with which the cost model finds the plan to fit and
be fastest (`slackswap.planners.common.candidate_search`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Literal

from slackswap.analysis.quick_bounds import least_ns
from slackswap.cost_model.scorer import Codes
from slackswap.deadline import NO_DEADLINE, Deadline
from slackswap.errors import Infeasible
from slackswap.hardware import Hardware
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.budget_grid import lower_budgets
from slackswap.planners.common.candidate_search import CandidateSearch
from slackswap.planners.common.candidates import Task
from slackswap.planners.common.ordering import with_layer_barriers, with_on_demand_gates
from slackswap.planners.common.repair import permitted_actions, repair
from slackswap.problem import Problem
from slackswap.profile import BackwardOp, ForwardOp, Profile, Tensor

#: On profiles of more ops repairing takes long, so no lower budgets are tried.
_REPAIRED_UP_TO = 2_000


@dataclass(frozen=True, slots=True)
class SlackSwap:
    """The paper's rule, verified in the cost model. Each parameter is an ablation.

    Parameters
    ----------
    swap, recompute : bool
        Whether it may swap, and recompute.
    closure_prices : bool
        Rank by closure time; else by each op's own time, as additive planners do.
    link_order : {"earliest", "dearest"}
        Which of the tensors above the threshold get the link first: the earliest written, or the
        dearest to recompute.
    link_windows : bool
        Each layer's copies must fit into that layer's own forward time, instead of one budget.
    layer_barriers : bool
        Compute waits for the link at the end of each layer, both ways.
    on_demand : bool
        A tensor comes back only when the backward op that needs it is reached.
    store_intermediates : bool
        May keep intermediates that make closures cheap.
    checkpoints : bool
        Keeps a tensor of a dropped chain now and then, so that closures end there.
    literal : bool
        The abstract's rule to the letter: one price order, the link's whole time, dearest first.
    """

    swap: bool = True
    recompute: bool = True
    closure_prices: bool = True
    link_order: Literal["earliest", "dearest"] = "earliest"
    link_windows: bool = False
    layer_barriers: bool = False
    on_demand: bool = False
    store_intermediates: bool = True
    checkpoints: bool = True
    literal: bool = False

    name: ClassVar[str] = "slackswap"
    version: ClassVar[str] = "3"

    def warm_up(self) -> None:
        """Load the compiled parts on a problem of three ops."""
        tensors = (Tensor("a", 8), Tensor("u", 8), Tensor("b", 8))
        forward = (
            ForwardOp("fa", 8, (), (0,)),
            ForwardOp("fu", 1, (0,), (1,)),
            ForwardOp("fb", 8, (1,), (2,)),
        )
        backward = (BackwardOp("bb", 8, (2,)), BackwardOp("ba", 8, (0,)))
        problem = Problem(
            Profile("warm-up", "random", tensors, forward, backward),
            Hardware("warm-up", 10**9, 10**9),
            23,
        )
        CandidateSearch(Task(self, problem), NO_DEADLINE).run()

    @property
    def ordered(self) -> bool:
        """Whether its plans have barriers or gates."""
        return self.layer_barriers or self.on_demand

    @property
    def dearest_first(self) -> bool:
        """Whether the link goes to the dearest first instead of to the earliest written."""
        return self.literal or self.link_order == "dearest"

    @property
    def capabilities(self) -> Capabilities:
        """What it promises: with barriers a larger budget may be slower."""
        return Capabilities(
            uses_swap=self.swap, uses_recompute=self.recompute, monotone=not self.ordered
        )

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Find the fastest candidate that fits; repair one where none does."""
        search = CandidateSearch(Task(self, problem), Deadline.after(time_limit))
        repaired, complete = None, True
        if least_ns(search.task.scorer) is not None:
            search.run()
            if not self.ordered:
                repaired, complete = self._repaired(search)
        codes = search.best.codes if repaired is None else repaired
        report(
            evaluations=search.evaluations,
            link_share=search.best.share,
            threshold_ns_per_byte=search.best.ns_per_byte,
            repaired=repaired is not None,
            exhaustive=complete and not self.ordered and not search.stopped,
        )
        if codes is None and search.late:
            raise Infeasible(
                f"found no plan of the rule for {problem.budget_bytes} bytes in time",
                where="slackswap", fix="raise the time limit or the budget",
            )
        if codes is None:
            raise Infeasible(
                f"no plan of the rule fits {problem.budget_bytes} bytes",
                where="slackswap",
                fix="raise the budget, or see `slackswap bound` for what any plan needs",
            )
        return self.with_order(problem, search.task.scorer.decode(codes))

    def with_order(self, problem: Problem, plan: Plan) -> Plan:
        """Add the barriers and gates of the ablations to a plan."""
        if self.layer_barriers:
            plan = with_layer_barriers(problem.profile, plan)
        return with_on_demand_gates(problem.profile, plan) if self.on_demand else plan

    def _repaired(self, search: CandidateSearch) -> tuple[Codes | None, bool]:
        """Change single tensors of extreme candidates where none of them fits.

        What is found so for a lower budget is used at this one too if it is faster, so that these
        plans do not break the promise that a larger budget is not slower.

        Returns
        -------
        codes : int8[tensors] or None
            A plan that fits and is faster than the best candidate, if there is one.
        complete : bool
            Whether all lower budgets were tried at which such a plan may be faster.
        """
        fitting = [] if search.best.codes is not None else self._repairs(search)
        complete = True
        for budget in lower_budgets(search.task.problem):
            least = least_ns(search.task.scorer, budget)
            if least is None or least >= search.best.iteration_ns:
                break
            if search.stopped or search.task.scorer.graph.n_forward > _REPAIRED_UP_TO:
                complete = False
                break
            problem = search.task.problem.with_budget(budget)
            lower = CandidateSearch(Task(self, problem), search.deadline)
            if not lower.any_fits():
                fitting += self._repairs(lower)
            search.evaluations += lower.evaluations
        return search.faster(fitting), complete

    def _repairs(self, search: CandidateSearch) -> list[Codes]:
        """Repair the extreme candidates of a search as far as time allows."""
        actions = permitted_actions(swap=self.swap, recompute=self.recompute)
        repairs = [
            repair(search.task.scorer, start, actions=actions, deadline=search.deadline)
            for start in search.extremes()
            if not search.late
        ]
        return [codes for codes in repairs if codes is not None]
