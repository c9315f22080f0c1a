"""How fast the genetic search is, how near the bound it ends, and what each operator is worth."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.scale import Scale, library_problem
from benchmarks.tables import VERDICT, Column, Goal, Row, Table, count, fine_percent, seconds
from slackswap.bound import Bound, certified_gap
from slackswap.problem import Problem
from slackswap.search.bounds import lower_bound
from slackswap.search.genetic.evolution import evolve
from slackswap.search.genetic.operators import CROSSOVERS, MUTATIONS
from slackswap.search.genetic.state import Settings
from slackswap.solving import Solution, solve

_TIME = Goal(10.0, show=seconds)
_GAP = Goal(0.02, show=fine_percent)
_JOBS = 2
_TIMED = "gpt2-xl"
_SEEDS = (0, 1, 2)


def tables(scale: Scale) -> Iterator[Table]:
    """Search at f = 0.5; then, unless the scale is quick, without one operator after the other."""
    problems = {name: library_problem(name) for name in scale.profiles}
    bounds = {name: lower_bound(problem) for name, problem in problems.items()}
    yield _searches(problems, bounds, scale)
    if scale.sensitivity:
        models = {name: problems[name] for name in scale.models}
        yield _ablation(models, bounds, Settings(evaluations=scale.candidates, jobs=_JOBS))


def _searches(problems: dict[str, Problem], bounds: dict[str, Bound], scale: Scale) -> Table:
    rows: list[Row] = []
    for name, problem in problems.items():
        for planner in ("genetic", "genetic-seeded"):
            solution = solve(problem, planner, evaluations=scale.candidates, jobs=_JOBS)
            row = _row(name, planner, solution, bounds[name])
            cold = planner == "genetic"
            if cold and name in scale.models:
                row |= _GAP.judged(row["gap"])
            elif not cold:
                best = _best_seed(solution)
                row |= {"best_seed_ns": best, "target": "<= seeds",
                        "met": best is None or row["iteration_ns"] <= best}
            rows.append(row)
            if cold and name == _TIMED:
                rows.append({**row, "planner": "genetic: time", **_TIME.judged(row["planning_s"])})
    columns = (
        Column("profile", "profile", left=True), Column("planner", "planner", left=True),
        Column("candidates", "unique", count), Column("planning_s", "planning", seconds),
        Column("per_candidate_s", "each", seconds), Column("gap", "above bound", fine_percent),
        *VERDICT,
    )
    return Table("genetic", "Genetic search at f = 0.5", columns, rows,
                 f"Seed 0, {_JOBS} threads. Time includes operators and bookkeeping, and asking "
                 "the planners that seed it. Bound: LP.")


def _row(name: str, planner: str, solution: Solution, bound: Bound) -> dict[str, object]:
    candidates = solution.statistics["candidates"]
    evaluation = solution.evaluation
    return {
        "profile": name, "planner": planner, "candidates": candidates,
        "planning_s": solution.planning_s, "per_candidate_s": solution.planning_s / candidates,
        "gap": solution.gap_to(bound),
        "iteration_ns": None if evaluation is None else evaluation.iteration_ns,
        "generations": solution.statistics["generations"],
        "stopped": solution.statistics["stopped"],
    }


def _best_seed(solution: Solution) -> int | None:
    found = solution.statistics["seeds"].values()
    return min((time for time in found if isinstance(time, int)), default=None)


# ---------------------------------------------------------------------- ablation


def variants(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Settings without one operator each, and without all that know of roles and layers."""
    yield "all operators", settings
    for name in MUTATIONS:
        rest = tuple(other for other in MUTATIONS if other != name)
        yield f"no mutation {name}", replace(settings, mutations=rest)
    for name in CROSSOVERS:
        rest = tuple(other for other in CROSSOVERS if other != name)
        yield f"no crossover {name}", replace(settings, crossovers=rest)
    yield "single genes only", replace(settings, mutations=("point",), crossovers=("gene",))
    yield "no crossover at all", replace(settings, crossover=0.0)


def _ablation(problems: dict[str, Problem], bounds: dict[str, Bound], settings: Settings) -> Table:
    rows: list[Row] = []
    for title, tuned in variants(settings):
        row: dict[str, object] = {"variant": title}
        for name, problem in problems.items():
            gaps = [_gap(problem, tuned, seed, bounds[name]) for seed in _SEEDS]
            met = [gap for gap in gaps if gap is not None]
            row[name] = sum(met) / len(met) if len(met) == len(gaps) else None
        rows.append(row)
    columns = (
        Column("variant", "operators", left=True),
        *(Column(name, name, fine_percent) for name in problems),
    )
    return Table("genetic-operators", "Cold search without some of its operators", columns, rows,
                 f"Mean distance above the LP bound, seeds {', '.join(map(str, _SEEDS))}, "
                 f"{settings.evaluations:,} unique candidates each.")


def _gap(problem: Problem, settings: Settings, seed: int, bound: Bound) -> float | None:
    short, time_ns = evolve(problem, settings, random.Random(seed)).grade
    return None if short else certified_gap(time_ns, bound)
