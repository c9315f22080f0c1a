"""Lower bounds on the time of every plan: the ladder compute, LP, MILP, enumeration."""

from __future__ import annotations

import time
from dataclasses import replace
from math import ceil

import numpy as np

from slackswap.bound import Bound, BoundMethod
from slackswap.errors import SolverFailed
from slackswap.problem import Problem
from slackswap.search.enumeration import enumerate_plans, enumeration_bound
from slackswap.search.milp.data import Restriction
from slackswap.search.milp.exact import dual_bound
from slackswap.search.milp.model import PlanModel, build_model
from slackswap.search.milp.solve import (
    SOLVER_TOLERANCE,
    Answer,
    SolverName,
    solve_with_fallback,
)
from slackswap.status import Status

_LP_SOLVERS = (SolverName.HIGHS, SolverName.GLOP)
_MILP_SOLVERS = (SolverName.SCIP, SolverName.HIGHS)


def lower_bound(
    problem: Problem,
    method: BoundMethod | str = BoundMethod.LP,
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
    method : BoundMethod or str
        ``compute`` (the sum of all durations), ``lp`` (safe: rests on exact arithmetic), ``milp``
        (the solver's, within its tolerance) or ``enumeration`` (small problems; exact for plans
        without gates and barriers).
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
    started = time.perf_counter()
    model = build_model(problem, Restriction(allow_swap, allow_recompute))
    name = None if solver is None else SolverName(solver)
    bound = linear_bound(model, solver=name, time_limit=time_limit)
    if chosen is BoundMethod.MILP and bound.status is not Status.INFEASIBLE:
        bound, _ = integer_bound(
            model, bound, solver=name, time_limit=time_limit, relative_gap=relative_gap, seed=seed
        )
    return replace(bound, method=chosen, runtime_s=time.perf_counter() - started)


def compute_bound(problem: Problem) -> Bound:
    """Return the time of computing alone: the sum of all durations."""
    return Bound(problem.profile.duration_ns, BoundMethod.COMPUTE)


def linear_bound(
    model: PlanModel, *, solver: SolverName | None = None, time_limit: float | None = None
) -> Bound:
    """Bound by the LP relaxation, evaluated from its dual values in exact arithmetic.

    Arguments and errors as for `lower_bound`.
    """
    if not model.has_room:
        return _infeasible(model, None, "an op does not fit the budget even by itself")
    relaxed = model.linear.relaxed()
    answer = solve_with_fallback(relaxed, _order(_LP_SOLVERS, solver), time_limit=time_limit)
    if answer.status is Status.INFEASIBLE:
        return _infeasible(model, answer, answer.note)
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
    )


def integer_bound(
    model: PlanModel,
    linear: Bound,
    *,
    solver: SolverName | None = None,
    time_limit: float | None = None,
    relative_gap: float = 1e-3,
    seed: int = 0,
    hint: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None,
) -> tuple[Bound, Answer | None]:
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
    answer : Answer or None
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
        return _infeasible(model, answer, answer.note), answer
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


def _infeasible(model: PlanModel, answer: Answer | None, note: str) -> Bound:
    return Bound(
        value_ns=model.compute_ns,
        method=BoundMethod.LP,
        solver=None if answer is None else str(answer.solver),
        status=Status.INFEASIBLE,
        safe=True,
        runtime_s=0.0 if answer is None else answer.runtime_s,
        note=note,
    )


def _order(solvers: tuple[SolverName, ...], first: SolverName | None) -> tuple[SolverName, ...]:
    """Put the solver asked for first; SCIP and GLOP stand for each other."""
    if first is SolverName.HIGHS or first is None:
        front = solvers if first is None else (SolverName.HIGHS,)
    else:
        front = tuple(solver for solver in solvers if solver is not SolverName.HIGHS)
    return tuple(dict.fromkeys((*front, *solvers)))
