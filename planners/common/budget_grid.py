"""Lower budgets that a planner plans for too, so that a larger budget is not slower."""

from __future__ import annotations

from slackswap.problem import Problem

#: Rungs up to the peak of keeping everything.
RUNGS = 20


def lower_rungs(problem: Problem) -> tuple[Problem, ...]:
    """Return the problem at each rung below its budget, the highest first.

    What a planner finds on a rung fits every larger budget and, without barriers, is no slower
    there. A planner that takes the best of its rungs and its own budget is therefore never slower
    than on any rung below.
    """
    peak = problem.keep_all_peak_bytes
    rungs = {peak * step // RUNGS for step in range(1, RUNGS + 1)}
    below = sorted((rung for rung in rungs if 0 < rung < problem.budget_bytes), reverse=True)
    return tuple(problem.with_budget(rung) for rung in below)
