"""Solving a linear model through OR-Tools MathOpt, the solver chosen by name."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackswap.errors import SolverFailed
from slackswap.search.milp.linear import LinearModel
from slackswap.status import Status

Floats = NDArray[np.float64]

#: Relative tolerance granted to a solver's own bound. Solvers accept rows violated by 1e-6 in
#: units in which tensors are near 1 and the objective is near 10^3.
SOLVER_TOLERANCE = 1e-6


class SolverName(StrEnum):
    """A solver of OR-Tools MathOpt.

    CP-SAT is missing on purpose: it rounds continuous variables to a grid, and what it calls a
    dual bound is then none.
    """

    HIGHS = "highs"
    SCIP = "scip"
    GLOP = "glop"


@dataclass(frozen=True, slots=True, eq=False)
class SimplexBasis:
    """A simplex basis by kind of variable and family of constraints.

    It can start the solution of a model that has further kinds and families: those begin at their
    lower bound, and not binding.

    Attributes
    ----------
    columns, rows : mapping of str to list of MathOpt's statuses
        By block name.
    """

    columns: Mapping[str, list[Any]]
    rows: Mapping[str, list[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class SolverAnswer:
    """What a solver said, in the model's units.

    Attributes
    ----------
    solver : SolverName
        Who answered.
    status : Status
        `optimal`, `feasible` or `timeout` (stopped with and without a solution), `infeasible`.
    objective : float or None
        Value of the best solution.
    bound : float
        Lower bound; -inf when there is none.
    x : float64[columns] or None
        Best solution.
    duals : float64[rows] or None
        Dual values, for a model without integers.
    basis : SimplexBasis or None
        Final basis, for a model without integers.
    runtime_s : float
        Time in the solver.
    note : str
        A fallback to another solver, with the reason.
    """

    solver: SolverName
    status: Status
    objective: float | None
    bound: float
    x: Floats | None
    duals: Floats | None
    basis: SimplexBasis | None
    runtime_s: float
    note: str = ""


def solve_linear(
    model: LinearModel,
    solver: SolverName,
    *,
    time_limit: float | None = None,
    relative_gap: float | None = None,
    seed: int = 0,
    hint: Floats | None = None,
    basis: SimplexBasis | None = None,
) -> SolverAnswer:
    """Solve a model.

    Parameters
    ----------
    model : LinearModel
        With or without integers.
    solver : SolverName
        HiGHS and SCIP for models with integers, HiGHS and GLOP for those without (SCIP gives no
        dual values).
    time_limit : float, optional
        Seconds.
    relative_gap : float, optional
        Stop when solution and bound are this close.
    seed : int
        Of the solver's own randomness.
    hint : float64[columns], optional
        A solution to start from; NaN where unknown.
    basis : SimplexBasis, optional
        Where GLOP starts; HiGHS takes none through MathOpt.

    Raises
    ------
    SolverFailed
        With the solver's own message.
    """
    from ortools.math_opt.python import mathopt

    started = time.perf_counter()
    stated = mathopt.Model.from_model_proto(_proto(model))
    parameters = mathopt.SolveParameters(
        time_limit=None if time_limit is None else datetime.timedelta(seconds=time_limit),
        relative_gap_tolerance=relative_gap if model.integer.any() else None,
        random_seed=None if solver is SolverName.GLOP else seed,
    )
    start = mathopt.ModelSolveParameters()
    if hint is not None:
        start.solution_hints.append(_hint(mathopt, stated, hint))
    if basis is not None and solver is SolverName.GLOP:
        start.initial_basis = _stated_basis(mathopt, stated, model, basis)
    kind = {
        SolverName.HIGHS: mathopt.SolverType.HIGHS,
        SolverName.SCIP: mathopt.SolverType.GSCIP,
        SolverName.GLOP: mathopt.SolverType.GLOP,
    }[solver]
    try:
        result = mathopt.solve(stated, kind, params=parameters, model_params=start)
    except Exception as error:
        raise SolverFailed(
            f"{solver} failed: {own_message(error)}", where="solver",
            fix="try another solver",
        ) from error
    return _answer(mathopt, model, solver, result, time.perf_counter() - started)


def solve_with_fallback(
    model: LinearModel, solvers: Sequence[SolverName], **options: Any
) -> SolverAnswer:
    """Ask solvers in turn until one answers; a fallback stands in the answer's note.

    Raises
    ------
    SolverFailed
        When none answers, with what each said.
    """
    failures: list[str] = []
    for solver in solvers:
        try:
            answer = solve_linear(model, solver, **options)
        except SolverFailed as error:
            failures.append(error.what)
            continue
        if not failures:
            return answer
        note = f"{answer.solver} answered, because {'; '.join(failures)}"
        return replace(answer, note=note)
    raise SolverFailed("; ".join(failures), where="solver", fix="report the problem")


def own_message(error: BaseException) -> str:
    """Find the message of the solver itself.

    MathOpt's error path can fail on its own (`AttributeError: canonical_code`), which leaves what
    the solver said in the exception's context.
    """
    while isinstance(error, AttributeError) and error.__context__ is not None:
        error = error.__context__
    return f"{error}" or type(error).__name__


def _answer(
    mathopt: Any, model: LinearModel, solver: SolverName, result: Any, runtime_s: float
) -> SolverAnswer:
    reason, limit = result.termination.reason, mathopt.TerminationReason
    found = result.has_primal_feasible_solution()
    if reason == limit.OPTIMAL:
        status = Status.OPTIMAL
    elif reason in (limit.INFEASIBLE, limit.INFEASIBLE_OR_UNBOUNDED):
        status = Status.INFEASIBLE  # every variable has a finite box
    elif reason in (limit.FEASIBLE, limit.NO_SOLUTION_FOUND):
        status = Status.FEASIBLE if found else Status.TIMEOUT
    else:
        raise SolverFailed(
            f"{solver} stopped with {reason.name.lower()}: {result.termination.detail}",
            where="solver", fix="try another solver",
        )
    bounds = result.termination.objective_bounds
    return SolverAnswer(
        solver=solver,
        status=status,
        objective=float(bounds.primal_bound) if found else None,
        bound=float(bounds.dual_bound),
        x=_vector(result.variable_values(), model.n_columns) if found else None,
        duals=(
            _vector(result.dual_values(), model.n_rows)
            if result.has_dual_feasible_solution() else None
        ),
        basis=_basis(model, result),
        runtime_s=runtime_s,
    )


def _basis(model: LinearModel, result: Any) -> SimplexBasis | None:
    found = result.solutions[0].basis if result.solutions else None
    if found is None:
        return None
    columns = {variable.id: status for variable, status in found.variable_status.items()}
    rows = {row.id: status for row, status in found.constraint_status.items()}
    return SimplexBasis(
        {b.name: [columns[i] for i in range(b.start, b.stop)] for b in model.column_blocks},
        {b.name: [rows[i] for i in range(b.start, b.stop)] for b in model.row_blocks},
    )


def _stated_basis(mathopt: Any, stated: Any, model: LinearModel, basis: SimplexBasis) -> Any:
    status = mathopt.BasisStatus
    parts: list[list[Any]] = []
    for blocks, known, other in (
        (model.column_blocks, basis.columns, status.AT_LOWER_BOUND),
        (model.row_blocks, basis.rows, status.BASIC),
    ):
        parts.append([])
        for block in blocks:
            width = block.stop - block.start
            mine = known.get(block.name, [])
            parts[-1] += mine if len(mine) == width else [other] * width
    return mathopt.Basis(
        variable_status=dict(zip(stated.variables(), parts[0], strict=True)),
        constraint_status=dict(zip(stated.linear_constraints(), parts[1], strict=True)),
    )


def _vector(values: Any, count: int) -> Floats:
    vector = np.zeros(count)
    for key, value in values.items():
        vector[key.id] = value
    return vector


def _hint(mathopt: Any, stated: Any, hint: Floats) -> Any:
    known = {
        variable: float(hint[variable.id])
        for variable in stated.variables()
        if not np.isnan(hint[variable.id])
    }
    return mathopt.SolutionHint(variable_values=known)


def _proto(model: LinearModel) -> Any:
    """State the model as MathOpt's message at once; entry by entry takes far longer."""
    from ortools.math_opt import model_pb2

    proto = model_pb2.ModelProto(name="plan")
    variables, rows = proto.variables, proto.linear_constraints
    variables.ids.extend(range(model.n_columns))
    variables.lower_bounds.extend(model.lower.tolist())
    variables.upper_bounds.extend(model.upper.tolist())
    variables.integers.extend(model.integer.tolist())
    variables.names.extend(model.column_names())
    rows.ids.extend(range(model.n_rows))
    rows.lower_bounds.extend(model.row_lower.tolist())
    rows.upper_bounds.extend(model.row_upper.tolist())
    rows.names.extend(model.row_names())
    used = np.flatnonzero(model.cost)
    proto.objective.offset = model.offset
    proto.objective.linear_coefficients.ids.extend(used.tolist())
    proto.objective.linear_coefficients.values.extend(model.cost[used].tolist())
    matrix = proto.linear_constraint_matrix
    matrix.row_ids.extend(model.rows.tolist())
    matrix.column_ids.extend(model.columns.tolist())
    matrix.coefficients.extend(model.values.tolist())
    return proto
