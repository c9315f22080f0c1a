"""How long planning takes once warm, on models and on growing profiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import Any

from benchmarks.scale import (
    GROWTH_HARDWARE,
    HALF,
    Scale,
    chain,
    layered,
    library_problem,
)
from benchmarks.tables import VERDICT, Column, Goal, Row, Table, count, percent, seconds
from slackswap.problem import Problem
from slackswap.solving import Solution, solve

_RULE = Goal(0.010, show=seconds)
_PLUS = Goal(0.5, show=seconds)
_LARGE = Goal(0.4, show=seconds)
_LARGE_OPS = 100_000
#: A chain cannot halve its memory by the rule: what runs again is all back at the last op of its
#: run. This leaves room for it.
_CHAIN_BUDGET = 0.7


def tables(scale: Scale) -> Iterator[Table]:
    """Measure warm planning."""
    yield _models(scale)
    yield _curve(
        "planning-growth", "SlackSwap: warm planning of growing layered profiles, f = 0.5",
        [(Problem(layered(n), GROWTH_HARDWARE, HALF)) for n in scale.growth], scale.repeats,
    )
    yield _curve(
        "planning-chain",
        f"SlackSwap: warm planning of one chain, one result in eight saved, f = {_CHAIN_BUDGET}",
        [(Problem(chain(n), GROWTH_HARDWARE, _CHAIN_BUDGET)) for n in scale.chain], scale.repeats,
    )


def quickest(problem: Problem, planner: str, repeats: int) -> Solution:
    """Plan several times and return the solution that took least time; the plans are the same."""
    return min((solve(problem, planner) for _ in range(repeats)), key=lambda s: s.planning_s)


def _models(scale: Scale) -> Table:
    rows: list[Row] = []
    for name in scale.profiles:
        for planner, goal in (("slackswap", _RULE), ("slackswap+", _PLUS)):
            solution = quickest(library_problem(name), planner, scale.repeats)
            judged = name in scale.models or planner == "slackswap+"
            rows.append({
                "profile": name, "planner": planner, **_figures(solution),
                **(goal.judged(solution.planning_s) if judged else {}),
            })
    columns = (
        Column("profile", "profile", left=True), Column("planner", "planner", left=True),
        Column("planning_s", "planning", seconds), Column("evaluations", "plans scored", count),
        Column("throughput", "throughput", percent), *VERDICT,
    )
    return Table("planning", "Warm planning at f = 0.5", columns, rows,
                 f"Best of {scale.repeats}; the paper reports 0.4 s.")


def _curve(name: str, title: str, problems: Sequence[Problem], repeats: int) -> Table:
    rows: list[Row] = []
    first: dict[str, Any] = {}
    for problem in problems:
        solution = quickest(problem, "slackswap", repeats)
        ops = len(problem.profile.forward)
        row = {"ops": ops, **_figures(solution),
               "ns_per_op": solution.planning_s * 1e9 / ops, "status": str(solution.status)}
        first = first or row
        # Times that grow as n log n keep this at 1 or below.
        growth = solution.planning_s / first["planning_s"] / (
            ops * log(ops) / (first["ops"] * log(first["ops"]))
        )
        goal = _LARGE.judged(solution.planning_s) if ops == _LARGE_OPS else {}
        rows.append({**row, "over_n_log_n": growth, **(goal if name == "planning-growth" else {})})
    columns = (
        Column("ops", "forward ops", count), Column("planning_s", "planning", seconds),
        Column("ns_per_op", "per op", lambda ns: f"{ns / 1e3:.2f} us"),
        Column("over_n_log_n", "over n log n", lambda ratio: f"{ratio:.2f}"),
        Column("evaluations", "plans scored", count), Column("throughput", "throughput", percent),
        Column("status", "status", left=True), *VERDICT,
    )
    return Table(name, title, columns, rows,
                 f"Best of {repeats}, a link of 2 GB/s. Over n log n: time over that of the first "
                 "row, divided by how n log n grows.")


def _figures(solution: Solution) -> dict[str, Any]:
    return {
        "planning_s": solution.planning_s,
        "evaluations": solution.statistics.get("evaluations"),
        "throughput": None if solution.evaluation is None else solution.evaluation.throughput,
    }
