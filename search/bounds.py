"""Lower bounds on the time of every plan: compute, Lagrangian, LP, MILP, enumeration."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, fields, replace
from math import ceil

import numpy as np

from slackswap.bound import Bound, BoundMethod
from slackswap.cost_model.scorer import Scorer
from slackswap.deadline import Deadline
from slackswap.errors import Infeasible, SlackSwapError, SolverFailed
from slackswap.planner import Report
from slackswap.planners.slackswap import SlackSwap
from slackswap.problem import Problem, checked_problem
from slackswap.quantities import shown
from slackswap.search.enumeration import enumerate_plans, enumeration_bound
from slackswap.search.lagrangian.bound import lagrangian_bound
from slackswap.search.milp.data import EVERY_PLAN, Restriction
from slackswap.search.milp.exact import dual_bound
from slackswap.search.milp.linear import Floats
from slackswap.search.milp.memory import necessary_budget, op_need
from slackswap.search.milp.model import PlanModel, build_model
from slackswap.search.milp.plans import hint_of
from slackswap.search.milp.solve import (
    SOLVER_TOLERANCE,
    SimplexBasis,
    SolverAnswer,
    SolverName,
    solve_with_fallback,
)
from slackswap.status import Status

_LP_SOLVERS = (SolverName.HIGHS, SolverName.GLOP)
_MILP_SOLVERS = (SolverName.SCIP, SolverName.HIGHS)
#: Times that milestones are added, and how many at once.
_MILESTONE_ROUNDS = 2
_MILESTONES_AT_ONCE = 2
#: Memory whose price is below this share of the first dearest gets no milestone.
_NEGLIGIBLE_PRICE = 0.1


def lower_bound(
    problem: Problem,
    method: BoundMethod | str | None = None,
    *,
    solver: SolverName | str | None = None,
    time_limit: float | None = None,
    relative_gap: float = 1e-3,
    seed: int = 0,
    allow_swap: bool = True,
    allow_recompute: bool = True,
    jobs: int = 1,
) -> Bound:
    """Prove a lower bound on the simulated time of every plan of a problem.

    Parameters
    ----------
    problem : Problem
        Profile, hardware and budget.
    method : BoundMethod or str, optional
        ``compute`` (the sum of all durations), ``lagrangian`` (safe: rests on exact arithmetic;
        near the LP, and hundreds of times faster on large profiles), ``lp`` (safe as well),
        ``milp`` (the solver's, within its tolerance) or ``enumeration`` (small problems; exact for
        plans without gates and barriers). Without one: ``lagrangian``, or ``lp`` if a solver is
        named.
    solver : SolverName or str, optional
        ``highs`` or ``scip``; the other one is asked when it fails, and the bound's note says so.
        For an LP, ``scip`` stands for GLOP, since SCIP gives no dual values.
    time_limit : float, optional
        Seconds for the solver. What is proven by then is returned.
    relative_gap : float
        When a MILP counts as solved.
    seed : int
        Of the solver.
    allow_swap, allow_recompute : bool
        Bound only plans that do not swap, or do not recompute saved tensors.
    jobs : int
        Threads of the enumeration.

    Returns
    -------
    Bound
        With status `infeasible`, and the value of pure compute, when no plan fits the budget.

    Raises
    ------
    Skipped
        When there are too many plans to enumerate.
    SolverFailed
        When no solver answers.
    """
    checked_problem(problem)
    if method is None:
        method = BoundMethod.LAGRANGIAN if solver is None else BoundMethod.LP
    if not isinstance(method, str) or method not in tuple(BoundMethod):
        raise SlackSwapError(f"bound method {shown(method)} is not known", where="method",
                             fix=f"use one of {', '.join(BoundMethod)}")
    chosen = BoundMethod(method)
    if chosen is BoundMethod.COMPUTE:
        return compute_bound(problem)
    if chosen is BoundMethod.ENUMERATION:
        return enumeration_bound(
            problem,
            enumerate_plans(
                problem, allow_swap=allow_swap, allow_recompute=allow_recompute, jobs=jobs
            ),
        )
    restriction = Restriction(allow_swap, allow_recompute)
    if chosen is BoundMethod.LAGRANGIAN:
        return lagrangian_bound(
            problem, restriction, deadline=Deadline.after(time_limit, share=1.0)
        )
    started, deadline = time.perf_counter(), Deadline.after(time_limit, share=1.0)
    name = None if solver is None else SolverName(solver)
    model, bound = tightened(
        problem, restriction, solver=name, time_limit=time_limit
    )
    wanted = chosen is BoundMethod.MILP and bound.status is not Status.INFEASIBLE
    if wanted and not deadline.passed:
        bound, _ = integer_bound(
            model, bound, solver=name, time_limit=deadline.time_limit,
            relative_gap=relative_gap, seed=seed, hint=_rule_hint(model),
        )
    return replace(bound, method=chosen, runtime_s=time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class ClassCeilings:
    """What plans of a class can reach at most: how much swapping, and recomputing, is worth.

    Attributes
    ----------
    swap_only, recompute_only, every_plan : Bound
        Lower bounds on the time of plans that recompute no saved tensor, that swap nothing, and of
        all plans.
    """

    swap_only: Bound
    recompute_only: Bound
    every_plan: Bound

    def throughput(self, duration_ns: int) -> dict[str, float | None]:
        """Return the highest possible throughputs by class; None where no plan fits.

        Parameters
        ----------
        duration_ns : int
            Time of the keep-everything plan without a limit.
        """
        return {
            spec.name: None if bound.status is Status.INFEASIBLE else (
                duration_ns / bound.value_ns if bound.value_ns else 1.0
            )
            for spec in fields(self)
            for bound in (getattr(self, spec.name),)
        }


def class_ceilings(problem: Problem, *, time_limit: float | None = None) -> ClassCeilings:
    """Bound the plans that only swap, and those that only recompute, beside all plans.

    Parameters
    ----------
    problem : Problem
        Profile, hardware and budget.
    time_limit : float, optional
        Seconds for each bound.
    """
    return ClassCeilings(
        lower_bound(problem, allow_recompute=False, time_limit=time_limit),
        lower_bound(problem, allow_swap=False, time_limit=time_limit),
        lower_bound(problem, time_limit=time_limit),
    )


def compute_bound(problem: Problem) -> Bound:
    """Return the time of computing alone: the sum of all durations."""
    return Bound(problem.profile.duration_ns, BoundMethod.COMPUTE)


def linear_bound(
    model: PlanModel, *, solver: SolverName | None = None, time_limit: float | None = None
) -> Bound:
    """Bound by the LP relaxation of a model, evaluated from its duals in exact arithmetic.

    Arguments and errors as for `lower_bound`.
    """
    return _relaxation(model, solver, time_limit, None)[0]


def tightened(
    problem: Problem,
    restriction: Restriction = EVERY_PLAN,
    *,
    solver: SolverName | None = None,
    time_limit: float | None = None,
) -> tuple[PlanModel, Bound]:
    """State the model with milestones at the backward ops where memory binds, and bound by its LP.

    One of them is the op at the peak of keeping everything. For others, the LP without milestones
    says by its dual values where memory has a price. Its basis starts the next LP.

    Parameters
    ----------
    problem : Problem
        Profile, hardware and budget.
    restriction : Restriction
        Which plans it is about.
    solver, time_limit
        As for `lower_bound`.

    Returns
    -------
    model : PlanModel
        The model.
    bound : Bound
        The largest of the LP bounds on the way.
    """
    started, deadline = time.perf_counter(), Deadline.after(time_limit, share=1.0)
    model = build_model(problem, restriction)
    bound, answer = _relaxation(model, solver, time_limit, None)
    # Where even the plain model asks for nothing beyond compute, no milestone would.
    candidates = [] if bound.value_ns == model.compute_ns else _peak_op(model)
    dearest = 0.0
    for _ in range(_MILESTONE_ROUNDS):
        if answer is None or answer.duals is None or deadline.passed:
            break
        price = _memory_prices(model, answer.duals)
        dearest = max(dearest, float(price.max(initial=0.0)))
        tight = np.flatnonzero(price > max(_NEGLIGIBLE_PRICE * dearest, 1e-9))
        candidates += tight[np.argsort(-price[tight], kind="stable")].tolist()
        tracked = [milestone.op for milestone in model.milestones]
        added = [op for op in dict.fromkeys(candidates) if op not in tracked]
        if not added:
            break
        model = build_model(problem, restriction, tracked + added[:_MILESTONES_AT_ONCE])
        next_bound, answer = _relaxation(model, solver, deadline.time_limit, answer.basis)
        if next_bound.status is Status.INFEASIBLE:
            return model, next_bound
        bound = replace(max(bound, next_bound, key=lambda bound: bound.value_ns),
                        status=next_bound.status)
    return model, replace(bound, runtime_s=time.perf_counter() - started)


def _peak_op(model: PlanModel) -> list[int]:
    """Backward op at the peak of keeping everything; none without backward ops."""
    _, levels = model.data.graph.keep_all_levels
    return [int(levels.argmax())] if len(levels) else []


def _memory_prices(model: PlanModel, duals: Floats) -> Floats:
    """Price of memory at each backward op, from dual values and reduced costs."""
    linear, waiting = model.linear, model.variables.waiting
    rows = next(block for block in linear.row_blocks if block.name == "backward_memory")
    reduced = linear.cost - np.bincount(
        linear.columns, weights=linear.values * duals[linear.rows], minlength=linear.n_columns
    )
    price: Floats = np.abs(duals[rows.start : rows.stop]) + np.maximum(0.0, -reduced[waiting])
    return price


def _relaxation(
    model: PlanModel, solver: SolverName | None, time_limit: float | None,
    basis: SimplexBasis | None,
) -> tuple[Bound, SolverAnswer | None]:
    need = op_need(model.data)
    if need.nbytes > model.data.problem.budget_bytes:
        return _infeasible(model, None, need.nbytes), None
    relaxed = model.linear.relaxed()
    # Started from a basis GLOP is by far the fastest, without one HiGHS.
    solvers = _LP_SOLVERS if basis is None else _LP_SOLVERS[::-1]
    answer = solve_with_fallback(
        relaxed, _order(solvers, solver), time_limit=time_limit, basis=basis
    )
    if answer.status is Status.INFEASIBLE:
        return _confirmed(model, answer), answer
    duals = np.zeros(relaxed.n_rows) if answer.duals is None else answer.duals
    proven = ceil(dual_bound(relaxed, duals) * int(model.ns))
    # A plan outside the boxes of the stalls takes longer than this.
    value = min(max(proven, model.compute_ns), model.longest_ns)
    return Bound(
        value_ns=value,
        method=BoundMethod.LP,
        solver=str(answer.solver),
        status=answer.status,
        runtime_s=answer.runtime_s,
        note=answer.note,
    ), answer


def integer_bound(
    model: PlanModel,
    linear: Bound,
    *,
    solver: SolverName | None = None,
    time_limit: float | None = None,
    relative_gap: float = 1e-3,
    seed: int = 0,
    hint: Floats | None = None,
) -> tuple[Bound, SolverAnswer | None]:
    """Bound by the MILP, as the solver reports it, never below the LP bound.

    Parameters
    ----------
    model : PlanModel
        The model.
    linear : Bound
        Its LP bound; kept when the solver does not get beyond it or fails.
    solver, time_limit, relative_gap, seed
        As for `lower_bound`.
    hint : float64[columns], optional
        A solution to start from; NaN where unknown.

    Returns
    -------
    bound : Bound
        The bound.
    answer : SolverAnswer or None
        What the solver said, with its solution if it has one; None when it failed.
    """
    try:
        answer = solve_with_fallback(
            model.linear, _order(_MILP_SOLVERS, solver), time_limit=time_limit,
            relative_gap=relative_gap, seed=seed, hint=hint,
        )
    except SolverFailed as error:
        note = f"the LP bound, because {error.what}"
        return replace(linear, method=BoundMethod.MILP, status=Status.FEASIBLE, note=note), None
    if answer.status is Status.INFEASIBLE:
        return replace(_confirmed(model, answer), method=BoundMethod.MILP), answer
    value = linear.value_ns
    if np.isfinite(answer.bound):
        value = max(value, ceil(answer.bound * (1 - SOLVER_TOLERANCE) * model.ns))
    return Bound(
        value_ns=min(value, model.longest_ns),
        method=BoundMethod.MILP,
        solver=str(answer.solver),
        status=answer.status,
        safe=value == linear.value_ns,
        tolerance=SOLVER_TOLERANCE,
        runtime_s=linear.runtime_s + answer.runtime_s,
        note=answer.note,
    ), answer


def _rule_hint(model: PlanModel) -> Floats | None:
    """Return the plan of SlackSwap's rule: with a good plan at hand the solver prunes at once."""
    data = model.data
    rule = SlackSwap(swap=data.restriction.allow_swap, recompute=data.restriction.allow_recompute)
    try:
        plan = rule.plan(data.problem, rng=random.Random(0), time_limit=None, report=Report())
    except Infeasible:
        return None
    return hint_of(model, Scorer(data.problem).encode(plan))


def _confirmed(model: PlanModel, answer: SolverAnswer) -> Bound:
    """Check in exact arithmetic what a solver calls infeasible, and say by how much it is."""
    data, budget = model.data, model.data.problem.budget_bytes
    needed = necessary_budget(
        data.problem, data.restriction, [milestone.op for milestone in model.milestones]
    )
    if needed > budget:
        return _infeasible(model, answer, needed)
    return Bound(
        value_ns=model.compute_ns,
        method=BoundMethod.LP,
        solver=str(answer.solver),
        status=Status.FEASIBLE,
        runtime_s=answer.runtime_s,
        note=f"pure compute: {answer.solver} calls the model infeasible, which exact arithmetic "
        "does not confirm",
    )


def _infeasible(model: PlanModel, answer: SolverAnswer | None, needed: int) -> Bound:
    return Bound(
        value_ns=model.compute_ns,
        method=BoundMethod.LP,
        solver=None if answer is None else str(answer.solver),
        status=Status.INFEASIBLE,
        runtime_s=0.0 if answer is None else answer.runtime_s,
        note=f"no plan fits: at least {needed} bytes are needed",
    )


def _order(solvers: tuple[SolverName, ...], first: SolverName | None) -> tuple[SolverName, ...]:
    """Put the solver asked for first; SCIP and GLOP stand for each other."""
    if first is SolverName.HIGHS or first is None:
        front = solvers if first is None else (SolverName.HIGHS,)
    else:
        front = tuple(solver for solver in solvers if solver is not SolverName.HIGHS)
    return tuple(dict.fromkeys((*front, *solvers)))
