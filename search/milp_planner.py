"""The mixed-integer programme as a planner: solved, replayed in the referee, repaired, polished."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import ClassVar

from slackswap.cost_model.engine import Codes, Scorer
from slackswap.errors import Infeasible, InvalidPlanner
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.planners.fitting import deadline_of, permitted
from slackswap.planners.repair import permitted_actions, repair
from slackswap.planners.slackswap import SlackSwap
from slackswap.problem import Problem
from slackswap.search.bounds import integer_bound, tightened
from slackswap.search.enumeration import Decisions
from slackswap.search.milp.data import Restriction
from slackswap.search.milp.memory import op_need
from slackswap.search.milp.model import PlanModel, build_model
from slackswap.search.milp.plans import codes_of, hint_of
from slackswap.search.milp.solve import SolverName
from slackswap.search.polish import polish
from slackswap.status import Status


@dataclass(frozen=True, slots=True)
class MilpPlanner:
    """Solve the mixed-integer programme and replay its plan.

    The programme relaxes the referee's rules, so its plan may be short of memory, or slower than
    the programme says. Then the plan is repaired, and the programme is solved again for a little
    less memory. The rule's plan starts the solver and the comparison.

    Reported are the programme's own objective (``model_objective_ns``), the bounds, and what the
    referee says of the replayed plan (``replayed_ns``), apart from each other.

    Parameters
    ----------
    solver : {"scip", "highs"}
        Who solves; the other one is asked when it fails.
    relative_gap : float
        When the programme counts as solved, and how near to its objective the replayed plan
        should come.
    solver_limit : float
        Most seconds of one solution when no time limit is given.
    rounds : int
        Most times the programme is solved.
    polish : int
        Most plans scored by the local search at the end.
    allow_swap, allow_recompute : bool
        Plan without swapping, or without recomputing saved tensors. The bound then holds for such
        plans only: it is reported as the statistic ``restricted_bound_ns``.
    """

    solver: str = "scip"
    relative_gap: float = 1e-3
    solver_limit: float = 60.0
    rounds: int = 3
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
        """Import the solver and the rule's tools before planning is timed."""
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
        attempt = _Attempt(self, problem, report, deadline_of(time_limit))
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
    """The best plan so far, and how it was come by."""

    planner: MilpPlanner
    problem: Problem
    report: Report
    deadline: float | None
    scorer: Scorer = field(init=False)
    best: Codes | None = None
    best_ns: int | None = None

    def __post_init__(self) -> None:
        self.scorer = Scorer(self.problem)

    @property
    def is_whole(self) -> bool:
        """Whether every plan is allowed, so that a bound is one on the problem itself."""
        return self.planner.allow_swap and self.planner.allow_recompute

    def left(self, most: float | None = None) -> float | None:
        """Seconds left for one solution."""
        if self.deadline is None:
            return most
        return max(0.01, self.deadline - time.perf_counter())

    @property
    def late(self) -> bool:
        """Whether the time limit has passed."""
        return self.deadline is not None and time.perf_counter() > self.deadline

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
        """Solve the programme, replay, and again with less memory while its plan disappoints."""
        planner, report = self.planner, self.report
        solver = SolverName(planner.solver)
        model, bound = tightened(
            self.problem, Restriction(planner.allow_swap, planner.allow_recompute),
            time_limit=self.left(planner.solver_limit),
        )
        if bound.status is Status.INFEASIBLE:
            raise Infeasible(bound.note, where="budget", fix="raise the budget")
        if self.is_whole:
            report.bound(bound)
        linear = bound
        for number in range(planner.rounds):
            if self.late:
                return
            bound, answer = integer_bound(
                model, linear, solver=solver, time_limit=self.left(planner.solver_limit),
                relative_gap=planner.relative_gap,
                hint=None if self.best is None else hint_of(model, self.best),
            )
            if number == 0:
                self.state(bound.value_ns, str(bound.status), bound.solver)
                if self.is_whole:
                    report.bound(bound)
            report(rounds=number + 1)
            if answer is None or answer.x is None or answer.objective is None:
                return
            objective_ns = round(answer.objective * model.ns)
            replayed_ns, short = self.replay(codes_of(model, answer.x))
            if number == 0:
                report(model_objective_ns=objective_ns, replayed_ns=replayed_ns,
                       replay_short_bytes=short)
            if self.best_ns is not None and (
                self.best_ns <= objective_ns * (1 + planner.relative_gap)
            ):
                return
            budget = model.data.problem.budget_bytes
            model = self.with_less_memory(model, short or budget // 1000)
            if op_need(model.data).nbytes > model.data.problem.budget_bytes:
                return

    def state(self, value_ns: int, status: str, solver: str | None) -> None:
        """Report what the solver proved."""
        self.report(solver=solver, solver_status=status)
        if not self.is_whole:
            self.report(restricted_bound_ns=value_ns)

    def replay(self, codes: Codes) -> tuple[int | None, int]:
        """Score the programme's plan; repair it if it does not fit.

        Returns
        -------
        iteration_ns : int or None
            Its time, unrepaired.
        short : int
            Bytes it is short of; 0 if it fits.
        """
        scores = self.scorer.score(codes)
        iteration_ns = self.offer(codes)
        if iteration_ns is not None:
            return iteration_ns, 0
        actions = permitted_actions(
            swap=self.planner.allow_swap, recompute=self.planner.allow_recompute
        )
        repaired = repair(self.scorer, permitted(self.scorer, codes), actions=actions)
        if repaired is not None:
            self.offer(repaired)
        return None, int(scores.shortfall_bytes[0])

    def with_less_memory(self, model: PlanModel, nbytes: int) -> PlanModel:
        """State the programme again for a smaller budget."""
        data = model.data
        budget = max(1, data.problem.budget_bytes - max(1, nbytes))
        return build_model(
            data.problem.with_budget(budget), data.restriction,
            [milestone.op for milestone in model.milestones],
        )

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
