"""How long planning takes once warm, on models and on growing profiles."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import log
from types import MappingProxyType
from typing import Any

from benchmarks.scale import (
    GROWTH_HARDWARE,
    HALF,
    Scale,
    chain,
    layered,
    library_problem,
)
from benchmarks.tables import (
    VERDICT,
    Column,
    Goal,
    Row,
    Table,
    count,
    fine_percent,
    percent,
    seconds,
)
from benchmarks.timing import Watch
from slackswap.cost_model.engine import simulate
from slackswap.errors import Infeasible
from slackswap.plan import Plan
from slackswap.planner import Planner, Report
from slackswap.problem import Problem
from slackswap.registry import resolve_planner
from slackswap.search.bounds import lower_bound
from slackswap.solving import solve

_RULE = Goal(0.015, show=seconds)
_PLUS = Goal(0.15, show=seconds)
#: Largest planning time of growing profiles by forward ops, and largest certified gap.
_GROWTH = {1_000: Goal(0.1, show=seconds), 100_000: Goal(0.4, show=seconds)}


def tables(scale: Scale) -> Iterator[Table]:
    """Measure warm planning."""
    yield _models(scale)
    yield _curve(
        "planning-growth", f"SlackSwap: warm planning of growing layered profiles, f = {HALF}",
        [
            [Problem(layered(n, draw), GROWTH_HARDWARE, HALF) for draw in range(scale.draws)]
            for n in scale.growth
        ],
        scale.repeats, _GROWTH,
    )
    yield _curve(
        "planning-chain",
        f"SlackSwap: warm planning of one chain, one result in eight saved, f = {HALF}",
        [[Problem(chain(n), GROWTH_HARDWARE, HALF)] for n in scale.chain], scale.repeats,
    )


@dataclass(frozen=True, slots=True)
class Run:
    """One planning, timed.

    Attributes
    ----------
    wall_s, cpu_s : float
        By the wall clock, and by the processor time of the process.
    plan : Plan or None
        None when no plan of the planner fits.
    evaluations : int or None
        Plans the planner scored.
    """

    wall_s: float
    cpu_s: float
    plan: Plan | None
    evaluations: int | None


def quickest(problem: Problem, name: str, repeats: int) -> Run:
    """Plan once to warm up, then several times; return the quickest, all plans being the same."""
    solve(problem, name)
    planner = resolve_planner(name)
    return min((_timed(problem, planner) for _ in range(repeats)), key=lambda run: run.wall_s)


def _timed(problem: Problem, planner: Planner) -> Run:
    report, plan = Report(), None
    with Watch() as watch, suppress(Infeasible):
        plan = planner.plan(problem, rng=random.Random(0), time_limit=None, report=report)
    return Run(watch.wall_s, watch.cpu_s, plan, report.statistics.get("evaluations"))


def _models(scale: Scale) -> Table:
    rows: list[Row] = []
    for name in scale.profiles:
        for planner, goal in (("slackswap", _RULE), ("slackswap+", _PLUS)):
            problem = library_problem(name)
            run = quickest(problem, planner, scale.repeats)
            judged = name in scale.models or planner == "slackswap+"
            rows.append({"profile": name, "planner": planner, **_figures(problem, run),
                         **(goal.judged(run.wall_s) if judged else {})})
    columns = (
        Column("profile", "profile", left=True), Column("planner", "planner", left=True),
        Column("wall_s", "planning", seconds), *VERDICT, Column("cpu_s", "processor", seconds),
        Column("evaluations", "scored", count), Column("throughput", "throughput", percent),
    )
    return Table("planning", f"Warm planning at f = {HALF}", columns, rows,
                 f"Best of {scale.repeats}; the paper reports 0.4 s. Processor: the part of the "
                 "time that other work on the machine cannot stretch. Scored: plans.")


def _curve(
    name: str, title: str, sizes: Sequence[Sequence[Problem]], repeats: int,
    goals: Mapping[int, Goal] = MappingProxyType({}),
) -> Table:
    rows: list[dict[str, Any]] = []
    for problems in sizes:
        runs = [quickest(problem, "slackswap", repeats) for problem in problems]
        for draw, (problem, run) in enumerate(zip(problems, runs, strict=True)):
            ops = len(problem.profile.forward)
            row = {"ops": ops, "draw": draw, **_figures(problem, run),
                   "ns_per_op": run.wall_s * 1e9 / ops}
            first = rows[draw] if len(rows) > draw else row
            row["over_n_log_n"] = row["ns_per_op"] / first["ns_per_op"] / (
                log(ops) / log(first["ops"])
            )
            if run.plan is not None:
                bound = lower_bound(problem)
                row["gap"] = simulate(problem, run.plan).iteration_ns / bound.value_ns - 1
            if ops in goals:
                row |= goals[ops].judged(run.wall_s)
            rows.append(row)
    columns = (
        Column("ops", "ops", count), Column("draw", "draw"),
        Column("wall_s", "planning", seconds), *VERDICT, Column("cpu_s", "processor", seconds),
        Column("ns_per_op", "an op", lambda ns: f"{ns / 1e3:.2f} us"),
        Column("over_n_log_n", "/ n log n", lambda ratio: f"{ratio:.2f}"),
        Column("evaluations", "scored", count), Column("throughput", "through", percent),
        Column("gap", "gap", fine_percent),
    )
    return Table(name, title, columns, rows,
                 f"Forward ops; best of {repeats}; a link of 2 GB/s. Draw: which random layer is "
                 "repeated. / n log n: time over that of the smallest, by how n log n grows; 1 or "
                 "less is no faster growth. Through: throughput; none where the rule finds none. "
                 "Gap: certified.")


def _figures(problem: Problem, run: Run) -> dict[str, Any]:
    score = None if run.plan is None else simulate(problem, run.plan)
    return {"wall_s": run.wall_s, "cpu_s": run.cpu_s, "evaluations": run.evaluations,
            "throughput": None if score is None else score.throughput}
