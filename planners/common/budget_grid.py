"""Lower budgets that a planner plans for too, so that a larger budget is not slower."""

from __future__ import annotations

from slackswap.problem import Problem

#: Steps of the grid up to the peak of keeping everything.
_STEPS = 20


def lower_budgets(problem: Problem) -> tuple[int, ...]:
    """Return the budgets of the grid below a problem's own, the highest first.

    What a planner finds for a lower budget fits every larger one and, without barriers, is no
    slower there. A planner that takes the best of the grid and its own budget is therefore never
    slower than at any budget of the grid below.
    """
    peak = problem.keep_all_peak_bytes
    grid = {peak * step // _STEPS for step in range(1, _STEPS + 1)}
    return tuple(
        sorted((budget for budget in grid if 0 < budget < problem.budget_bytes), reverse=True)
    )
