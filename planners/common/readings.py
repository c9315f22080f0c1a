"""Readings: what a rule leaves open, tried in every way that its source admits.

A published rule, carried over to another kind of network or described only in part, can often be
read in several ways. Each such choice is a parameter of the planner. Left at None it stands for all
its values: the planner then plans under each reading, and answers with the fastest plan by the cost
model. All of it counts as planning time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar, Self

from slackswap.cost_model.scorer import Scorer
from slackswap.deadline import Deadline
from slackswap.errors import Infeasible, Skipped
from slackswap.plan import Plan
from slackswap.planner import Report
from slackswap.problem import Problem


class WithReadings:
    """A planner by a rule that can be read in several ways; mix into a frozen dataclass.

    A subclass names the open parameters in `choices`, gives them None as default, and plans under
    one reading in `plan_as_read`, where none of them is None.

    Attributes
    ----------
    choices : mapping of str to tuple
        By parameter, the values that its source admits.
    """

    __slots__ = ()

    name: ClassVar[str]
    choices: ClassVar[Mapping[str, tuple[Any, ...]]]

    def plan_as_read(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the plan of the rule under one reading."""
        raise NotImplementedError

    def readings(self) -> dict[str, Self]:
        """Return the readings that the parameters leave, by label."""
        left = {name: values for name, values in self.choices.items()
                if getattr(self, name) is None}
        return {
            ", ".join(f"{name}={value}" for name, value in zip(left, values, strict=True)):
                replace(self, **dict(zip(left, values, strict=True)))  # type: ignore[type-var]
            for values in product(*left.values())
        }

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Return the fastest plan of all readings; of equally fast ones the first.

        It reports which reading that is (``reading``), and what came of each (``readings``):
        nanoseconds, or why it has no plan.

        Raises
        ------
        Infeasible
            When no reading has a plan that fits.
        Skipped
            When none applies.
        """
        readings = self.readings()
        if len(readings) == 1:
            (only,) = readings.values()
            return only.plan_as_read(problem, rng=rng, time_limit=time_limit, report=report)
        deadline = Deadline.after(time_limit)
        scorer = Scorer(problem)
        found: dict[str, int | str] = {}
        best: tuple[int, Plan, Report] | None = None
        failure: Infeasible | Skipped | None = None
        for number, (label, reading) in enumerate(readings.items()):
            seeded = random.Random(rng.getrandbits(64))
            if best is not None and deadline.passed:
                found[label] = "no time left"
                continue
            share = max(deadline.left_s, 0.01) / (len(readings) - number)
            own = Report()
            try:
                plan = reading.plan_as_read(
                    problem, rng=seeded, time_limit=share if deadline.is_limited else None,
                    report=own,
                )
            except (Infeasible, Skipped) as error:
                found[label] = str(error)
                # That it does not fit says more than that it does not apply.
                if failure is None or isinstance(failure, Skipped):
                    failure = error
                continue
            scores = scorer.score_plans([plan])
            if not scores.feasible[0]:
                found[label] = f"its plan does not fit: {scores.evaluation(0).infeasible}"
                continue
            time_ns = int(scores.iteration_ns[0])
            found[label] = time_ns
            if best is None or time_ns < best[0]:
                best = time_ns, plan, own
                report(reading=label)
        report(readings=found)
        if best is None:
            raise failure or Infeasible(
                f"no reading of {self.name} has a plan that fits",
                where=f"profile {problem.profile.name!r}", fix="raise the budget",
            )
        report(**best[2].statistics)
        return best[1]


def slowest_reading(statistics: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return the slowest reading that has a plan, and its time, from a planner's statistics."""
    times = {
        label: value for label, value in statistics.get("readings", {}).items()
        if isinstance(value, int)
    }
    return max(times.items(), key=lambda entry: entry[1], default=None)
