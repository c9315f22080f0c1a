"""How long the lower bounds take, and how far apart they and the best plan are."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.scale import GROWTH_HARDWARE, Scale, layered, library_problem
from benchmarks.tables import VERDICT, Column, Goal, Row, Table, fine_percent, seconds
from benchmarks.timing import Watch
from slackswap.bound import Bound, BoundMethod, certified_gap
from slackswap.problem import Problem
from slackswap.search.bounds import lower_bound
from slackswap.solving import solve

_LAGRANGIAN = Goal(0.05, show=seconds)
_LP = Goal(2.0, show=seconds)
_MILP = Goal(20.0, show=seconds)
#: When the MILP counts as proven.
_GAP = 1e-3


def tables(scale: Scale) -> Iterator[Table]:
    """Prove bounds at f = 0.5."""
    rows: list[Row] = []
    for name in scale.profiles:
        problem = library_problem(name)
        plan = solve(problem, "slackswap+").evaluation
        time_ns = None if plan is None else plan.iteration_ns
        judged = name in scale.models
        with Watch() as watch:
            priced = lower_bound(problem, BoundMethod.LAGRANGIAN)
        rows.append({**_row(name, priced, watch, time_ns),
                     **(_LAGRANGIAN.judged(watch.wall_s) if judged else {})})
        with Watch() as watch:
            linear = lower_bound(problem, BoundMethod.LP)
        rows.append({**_row(name, linear, watch, time_ns),
                     **(_LP.judged(watch.wall_s) if judged else {})})
        with Watch() as watch:
            integer = _integer(problem, scale)
        row = _row(name, integer, watch, time_ns)
        if judged:
            verdict = _MILP.judged(watch.wall_s)
            row |= {**verdict, "met": verdict["met"] and row["status"] == "optimal"}
        rows.append(row)
    columns = (
        Column("profile", "profile", left=True), Column("method", "bound", left=True),
        Column("solver", "solver", left=True), Column("status", "status", left=True),
        Column("wall_s", "time", seconds), *VERDICT, Column("cpu_s", "processor", seconds),
        Column("value_ns", "proven", _ms), Column("gap", "best plan", fine_percent),
    )
    yield Table("bounds", "Lower bounds at f = 0.5", columns, rows,
                "Time includes building the model. Lagrangian and LP: evaluated in exact "
                "arithmetic. MILP: the solver's, to a gap of 0.1%. Best plan: how far slackswap+ "
                "lies above.")
    yield _growth(scale)


#: Seconds that the Lagrangian bound may take, by forward ops.
_GROWTH_GOALS = {1_000: 0.15, 10_000: 0.5, 100_000: 5.0}
#: Up to so many ops the LP is solved beside it.
_LP_UP_TO = 1_000


def _growth(scale: Scale) -> Table:
    """Bound layered graphs of growing size; the LP beside the small ones."""
    rows: list[Row] = []
    for size in scale.growth:
        for draw in (0, 1):
            problem = Problem(layered(size, draw), GROWTH_HARDWARE, 0.5)
            _ = problem.profile.graph  # laid out once per profile, whoever bounds it
            with Watch() as watch:
                bound = lower_bound(problem, BoundMethod.LAGRANGIAN)
            row: Row = {"ops": size, "draw": draw, "wall_s": watch.wall_s,
                        "share": bound.value_ns / problem.profile.duration_ns}
            if size in _GROWTH_GOALS:
                row |= Goal(_GROWTH_GOALS[size], show=seconds).judged(watch.wall_s)
            if size <= _LP_UP_TO:
                with Watch() as watch:
                    linear = lower_bound(problem, BoundMethod.LP, time_limit=scale.milp_time_limit)
                row |= {"lp_s": watch.wall_s, "over_lp": bound.value_ns / linear.value_ns - 1}
            rows.append(row)
    columns = (
        Column("ops", "forward ops"), Column("draw", "draw"), Column("wall_s", "time", seconds),
        *VERDICT, Column("share", "over computing", _factor), Column("lp_s", "LP's time", seconds),
        Column("over_lp", "above LP", fine_percent),
    )
    return Table("bounds-growth", "Lagrangian bound on layered graphs at f = 0.5", columns, rows,
                 "Two draws a size, 2 GB/s. Above LP: negative where the bound is below it.")


def _factor(value: float) -> str:
    return f"{value:.4f}"


def _integer(problem: Problem, scale: Scale) -> Bound:
    return lower_bound(
        problem, BoundMethod.MILP, relative_gap=_GAP, time_limit=scale.milp_time_limit
    )


def _row(name: str, bound: Bound, watch: Watch, time_ns: int | None) -> dict[str, object]:
    return {
        "profile": name, "method": str(bound.method), "solver": bound.solver,
        "status": str(bound.status), "wall_s": watch.wall_s, "cpu_s": watch.cpu_s,
        "value_ns": bound.value_ns,
        "gap": None if time_ns is None else certified_gap(time_ns, bound), "note": bound.note,
    }


def _ms(value: float) -> str:
    return f"{value / 1e6:.2f} ms"
