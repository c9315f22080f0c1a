"""The genetic search: how fast it is, how near the bound it comes, and SlackSwap beside it."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.scale import Scale, library_problem
from benchmarks.tables import (
    VERDICT,
    Column,
    Goal,
    Row,
    Table,
    count,
    fine_percent,
    seconds,
    signed_percent,
)
from slackswap.bound import BoundMethod
from slackswap.search.bounds import lower_bound
from slackswap.solving import Solution, solve

_TIME = Goal(10.0, show=seconds)
_GAP = Goal(0.02, show=lambda value: f"{value:.0%}")
_TIMED = "gpt2-xl"


def tables(scale: Scale) -> Iterator[Table]:
    """Search cold and seeded, with the same number of unique candidates."""
    rows: list[Row] = []
    for name in scale.models:
        problem = library_problem(name)
        bound = lower_bound(problem, BoundMethod.LP)
        rule = solve(problem, "slackswap")
        for planner in ("genetic", "genetic-seeded"):
            found = solve(problem, planner, candidates=scale.candidates)
            gap = found.gap_to(bound)
            goals = [_GAP.judged(gap)] if planner == "genetic" else []
            if planner == "genetic" and name == _TIMED:
                goals.append(_TIME.judged(found.planning_s))
            rows.append({
                "profile": name, "planner": planner, "planning_s": found.planning_s,
                "candidates": found.statistics.get("candidates"), "gap": gap,
                "rule_gap": rule.gap_to(bound), "difference": _difference(rule, found),
                **({"target": ", ".join(goal["target"] for goal in goals),
                    "met": all(goal["met"] for goal in goals)} if goals else {}),
            })
    columns = (
        Column("profile", "profile", left=True), Column("planner", "search", left=True),
        Column("candidates", "unique", count), Column("planning_s", "time", seconds),
        Column("gap", "gap to LP", fine_percent), Column("rule_gap", "slackswap", fine_percent),
        Column("difference", "its time", signed_percent), *VERDICT,
    )
    yield Table("genetic", "Genetic search at f = 0.5, beside SlackSwap", columns, rows,
                "Cold (genetic) starts at random, seeded from the rule planners. Its time: "
                "SlackSwap's simulated time against the search's; where the search's gap is above "
                "2% that says nothing.")


def _difference(rule: Solution, found: Solution) -> float | None:
    mine, theirs = rule.evaluation, found.evaluation
    if mine is None or theirs is None or mine.iteration_ns is None or not theirs.iteration_ns:
        return None
    return mine.iteration_ns / theirs.iteration_ns - 1
