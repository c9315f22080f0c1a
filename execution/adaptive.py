"""Plan again between steps when the link is not what was planned for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slackswap.errors import Infeasible
from slackswap.execution.building import plan_and_compile
from slackswap.execution.log import IterationLog
from slackswap.execution.module import PlannedStep
from slackswap.hardware import Hardware
from slackswap.problem import Problem
from slackswap.profile import Profile
from slackswap.registry import PlannerLike
from slackswap.result import EventKind

#: Share by which a measured rate may differ from the one that was planned for.
TOLERANCE = 0.05


class Adaptive:
    """Watches a planned step and exchanges its plan when the link drifts.

    Parameters
    ----------
    step : PlannedStep
        What is trained with.
    planner : str or planner
        Who plans anew.
    tolerance : float
        Share by which the measured rate of a direction may differ from the plan's.
    seed : int
        Of the planner.

    Attributes
    ----------
    replanned : int
        Plans made since the start.

    Examples
    --------
    >>> adaptive = Adaptive(step)                                       # doctest: +SKIP
    >>> for batch in batches:                                           # doctest: +SKIP
    ...     step(*batch).backward(); optimizer.step(); adaptive.after_step()
    """

    def __init__(
        self, step: PlannedStep, planner: PlannerLike = "slackswap", *,
        tolerance: float = TOLERANCE, seed: int = 0,
    ) -> None:
        self._step, self._planner, self._seed = step, planner, seed
        self._tolerance = tolerance
        self.replanned = 0

    def after_step(self) -> bool:
        """Look at the step that has just run; return whether the next one has another plan.

        A plan without copies measures no link and stays, also when the link has become faster.
        """
        log = self._step.last
        if log is None or log.timetable is not self._step.planned.executable.timetable:
            return False
        problem = self._step.planned.problem
        found = measured_link(log, problem.hardware)
        if drift(problem.hardware, found) <= self._tolerance:
            return False
        profile = measured_times(log, problem.profile)
        budget = problem.budget_bytes if problem.is_limited else None
        again = Problem(profile, found, budget)
        self.replanned += 1
        try:
            planned = plan_and_compile(
                self._step.captured, again, self._planner, self._step.device, seed=self._seed
            )
        except Infeasible:
            return False  # the present plan keeps the budget, only later than it was thought
        self._step.use(planned)
        return True


def measured_link(log: IterationLog, assumed: Hardware) -> Hardware:
    """Return the hardware with the rates that the copies of a step had.

    The latency is taken as it was assumed; a direction without copies keeps its rate.
    """
    rates: dict[str, Any] = {}
    for kind, key in (
        (EventKind.OFFLOAD, "d2h_bytes_per_s"), (EventKind.PREFETCH, "h2d_bytes_per_s")
    ):
        copies = [event for event in log.events if event.kind is kind]
        taken = sum(max(1, e.end_ns - e.start_ns - assumed.latency_ns) for e in copies)
        if copies:
            rates[key] = max(1, round(log.bytes_moved(kind) * 1e9 / taken))
    return replace(assumed, **rates)


def drift(assumed: Hardware, found: Hardware) -> float:
    """Return the larger share by which a direction's rate differs."""
    return max(
        abs(found.d2h_bytes_per_s / assumed.d2h_bytes_per_s - 1),
        abs(found.h2d_bytes_per_s / assumed.h2d_bytes_per_s - 1),
    )


def measured_times(log: IterationLog, profile: Profile) -> Profile:
    """Return the profile with the times that its ops took in a step."""
    forward = {e.index: e.end_ns - e.start_ns for e in log.events if e.kind is EventKind.FORWARD}
    backward = {e.index: e.end_ns - e.start_ns for e in log.events if e.kind is EventKind.BACKWARD}
    return replace(
        profile,
        forward=tuple(
            replace(op, duration_ns=forward.get(i, op.duration_ns))
            for i, op in enumerate(profile.forward)
        ),
        backward=tuple(
            replace(op, duration_ns=backward.get(j, op.duration_ns))
            for j, op in enumerate(profile.backward)
        ),
    )
