"""Plans by MILP: solved, simulated, repaired where the relaxation was too loose, polished."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from slackswap.bound import Bound
from slackswap.cost_model.scorer import KEEP, SWAP, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.errors import Infeasible, InvalidPlanner
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.common.fitting import permitted
from slackswap.planners.common.repair import permitted_actions, repair
from slackswap.planners.slackswap import SlackSwap
from slackswap.problem import Problem
from slackswap.result import Phase
from slackswap.search.bounds import integer_bound, tightened
from slackswap.search.enumeration import Decisions
from slackswap.search.local_search import polish
from slackswap.search.milp.data import Restriction
from slackswap.search.milp.memory import op_need
from slackswap.search.milp.model import PlanModel, build_model
from slackswap.search.milp.plans import codes_of, hint_of
from slackswap.search.milp.solve import SolverName
from slackswap.status import Status

#: Shares of the budget taken off, one after the other, when the MILP's plan does not fit.
_SLACKS = (0.0, 0.005, 0.02)


@dataclass(frozen=True, slots=True)
class MilpPlanner:
    """Solve the MILP of a problem and simulate its plan.

    The MILP relaxes the cost model, so its plan may not fit, or be slower than its objective says.
    Then the plan is repaired, and a stricter MILP is solved: with a milestone at the op where the
    plan ran out of memory, or with latencies charged and a little less memory. SlackSwap's plan is
    the first incumbent.

    The MILP's objective (``model_objective_ns``), the bounds, and the simulated time of its plan
    (``replayed_ns``) are reported separately.

    Parameters
    ----------
    solver : {"scip", "highs"}
        Which solver runs; the other one is tried when it fails.
    relative_gap : float
        Relative gap at which the MILP counts as solved, and within which the simulated time of
        its plan should agree with its objective.
    solver_limit : float
        Seconds for all solves together when no time limit is given.
    rounds : int
        Most MILPs solved.
    polish : int
        Most plans scored by the local search at the end.
    allow_swap, allow_recompute : bool
        Plan without swapping, or without recomputing saved tensors. The bound then holds for such
        plans only: it is reported as the statistic ``restricted_bound_ns``.
    """

    solver: str = "scip"
    relative_gap: float = 1e-3
    solver_limit: float = 60.0
    rounds: int = 5
    polish: int = 4000
    allow_swap: bool = True
    allow_recompute: bool = True

    name: ClassVar[str] = "milp"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(anytime=True, gives_bound=True)

    def __post_init__(self) -> None:
        place = f"planner {self.name!r}"
        if self.solver not in (SolverName.SCIP, SolverName.HIGHS):
            raise InvalidPlanner(f"solver is {self.solver!r}", where=place, fix="use scip or highs")
        if not 0 <= self.relative_gap < 1:
            raise InvalidPlanner(
                f"relative_gap is {self.relative_gap}", where=place,
                fix="write a number from 0 to below 1",
            )
        if not self.solver_limit > 0 or self.rounds < 1 or self.polish < 0:
            raise InvalidPlanner(
                "solver_limit and rounds must be positive, polish not negative", where=place,
                fix="leave them at their defaults",
            )

    def warm_up(self) -> None:
        """Import the solver and what SlackSwap needs, before planning is timed."""
        import ortools.math_opt.python.mathopt  # noqa: F401

        SlackSwap().warm_up()

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the fastest plan found.

        Raises
        ------
        Infeasible
            When it is proven that no plan fits, or none was found in time.
        """
        deadline = (
            Deadline().sooner(self.solver_limit)
            if time_limit is None
            else Deadline.after(time_limit)
        )
        attempt = _Attempt(self, problem, report, deadline)
        attempt.start_from_rule(rng, time_limit)
        attempt.solve()
        if attempt.best is None:
            raise Infeasible(
                "no plan was found that fits", where="milp",
                fix="raise the time limit or the budget",
            )
        return attempt.finish(attempt.best)


@dataclass(slots=True)
class _Attempt:
    """One planning run: the incumbent, and how it is improved."""

    planner: MilpPlanner
    problem: Problem
    report: Report
    deadline: Deadline
    scorer: Scorer = field(init=False)
    best: Codes | None = None
    best_ns: int | None = None

    def __post_init__(self) -> None:
        self.scorer = Scorer(self.problem)

    @property
    def is_whole(self) -> bool:
        """Whether no action is ruled out, so that its bound holds for the problem itself."""
        return self.planner.allow_swap and self.planner.allow_recompute

    def offer(self, codes: Codes) -> int | None:
        """Score a plan, keep it if it is the best so far, and return its time if it fits."""
        scores = self.scorer.score(codes)
        if not scores.feasible[0]:
            return None
        iteration_ns = int(scores.iteration_ns[0])
        if self.best_ns is None or iteration_ns < self.best_ns:
            self.best, self.best_ns = codes, iteration_ns
            self.report.incumbent(self.scorer.decode(codes))
        return iteration_ns

    def start_from_rule(self, rng: random.Random, time_limit: float | None) -> None:
        """Begin with the plan of SlackSwap's rule, if it finds one."""
        rule = SlackSwap(swap=self.planner.allow_swap, recompute=self.planner.allow_recompute)
        try:
            plan = rule.plan(self.problem, rng=rng, time_limit=time_limit, report=Report())
        except Infeasible:
            return
        if not plan.has_order:
            self.offer(self.scorer.encode(plan))

    def solve(self) -> None:
        """Solve the MILP, simulate its plan, and tighten the MILP until the two agree."""
        planner = self.planner
        model, linear = tightened(
            self.problem, Restriction(planner.allow_swap, planner.allow_recompute),
            # Its exact evaluation and the replay come after.
            time_limit=max(0.01, 0.7 * self.deadline.left_s),
        )
        if linear.status is Status.INFEASIBLE:
            raise Infeasible(linear.note, where="budget", fix="raise the budget")
        if self.is_whole:
            self.report.bound(linear)
        proven_ns = linear.value_ns
        slacks = list(_SLACKS)
        for number in range(planner.rounds):
            left_s = self.deadline.left_s
            if left_s <= 0:
                return
            bound, answer = integer_bound(
                model, linear, solver=SolverName(planner.solver), time_limit=left_s,
                relative_gap=planner.relative_gap,
                hint=None if self.best is None else hint_of(model, self.best),
            )
            self.report(rounds=number + 1)
            if number == 0:
                proven_ns = bound.value_ns
                self.state(bound)
            if answer is None or answer.x is None or answer.objective is None:
                return
            replay = self.replay(model, codes_of(model, answer.x))
            if number == 0:
                self.report(model_objective_ns=round(answer.objective * model.ns),
                            replayed_ns=replay.iteration_ns, replay_short_bytes=replay.short_bytes)
            if self.best_ns is not None and (
                self.best_ns <= proven_ns * (1 + planner.relative_gap)
            ):
                return
            stricter = self.stricter(model, replay, slacks)
            if stricter is None:
                return
            model = stricter

    def state(self, bound: Bound) -> None:
        """Report what the solver proved."""
        self.report(solver=bound.solver, solver_status=str(bound.status))
        if self.is_whole:
            self.report.bound(bound)
        else:
            self.report(restricted_bound_ns=bound.value_ns)

    def replay(self, model: PlanModel, codes: Codes) -> _Replay:
        """Simulate the MILP's plan; offer it as it is, without tiny copies, and repaired."""
        scores = self.scorer.score(codes)
        iteration_ns = self.offer(codes)
        self.offer(_without_tiny_copies(model, self.scorer, codes))
        if iteration_ns is not None:
            return _Replay(iteration_ns, 0, None)
        actions = permitted_actions(
            swap=self.planner.allow_swap, recompute=self.planner.allow_recompute
        )
        repaired = repair(self.scorer, permitted(self.scorer, codes), actions=actions)
        if repaired is not None:
            self.offer(repaired)
        stuck = scores.evaluation(0).infeasible
        op = stuck.op_index if stuck is not None and stuck.phase is Phase.BACKWARD else None
        return _Replay(None, int(scores.shortfall_bytes[0]), op)

    def stricter(
        self, model: PlanModel, replay: _Replay, slacks: list[float]
    ) -> PlanModel | None:
        """Return a MILP that rules the last plan out; None when nothing is left to try.

        A plan stuck at a backward op gets a milestone there, if it has none. Else every copy is
        charged its latency, and the next of the slacks is taken off the budget.
        """
        data, milestones = model.data, [milestone.op for milestone in model.milestones]
        if replay.stuck_op is not None and replay.stuck_op not in milestones:
            return build_model(data.problem, data.restriction, [*milestones, replay.stuck_op])
        if not slacks:
            return None
        budget = self.problem.budget_bytes - int(slacks.pop(0) * self.problem.budget_bytes)
        stricter = build_model(
            self.problem.with_budget(max(1, budget)), data.restriction, milestones
        )
        if op_need(stricter.data).nbytes > budget:
            return None
        return _with_latency_charged(stricter)

    def finish(self, best: Codes) -> Plan:
        """Polish the best plan."""
        decisions = Decisions.of(
            self.scorer, allow_swap=self.planner.allow_swap,
            allow_recompute=self.planner.allow_recompute,
        )
        codes, evaluations = polish(
            self.scorer, best, decisions, evaluations=self.planner.polish, deadline=self.deadline
        )
        self.offer(codes)
        self.report(polish_evaluations=evaluations, simulated_ns=self.best_ns)
        return self.scorer.decode(codes)


@dataclass(frozen=True, slots=True)
class _Replay:
    """The simulation of the MILP's own plan.

    Attributes
    ----------
    iteration_ns : int or None
        Its time; None if it does not fit.
    short_bytes : int
        Bytes missing then.
    stuck_op : int or None
        The backward op at which they are missing.
    """

    iteration_ns: int | None
    short_bytes: int
    stuck_op: int | None


def _with_latency_charged(model: PlanModel) -> PlanModel:
    """Charge each swapped tensor the latency of both transfers, as if compute waited for it."""
    linear, variables = model.linear, model.variables
    cost = linear.cost.copy()
    cost[variables.swap] += 2 * model.data.problem.hardware.latency_ns / model.ns
    return replace(model, linear=replace(linear, cost=cost))


def _without_tiny_copies(model: PlanModel, scorer: Scorer, codes: Codes) -> Codes:
    """Keep what is swapped at less than half the link's rate.

    The fluid link has no latency, so the MILP swaps tiny tensors as readily as large ones; each
    delays the whole queue behind it.
    """
    half = model.data.d2h_rate / 2
    tiny = (codes == SWAP) & (scorer.graph.nbytes < half * scorer.d2h_ns) & scorer.allowed[:, KEEP]
    return np.where(tiny, KEEP, codes).astype(np.int8)
