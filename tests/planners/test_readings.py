"""A rule that can be read in several ways answers with the fastest plan of all readings."""

from random import Random

import pytest
from handmade import LINK, chain

from slackswap import Problem, Report, Status, planner_names, resolve_planner, solve
from slackswap.planners.capuchin import Capuchin
from slackswap.planners.chen import ChenGreedy
from slackswap.planners.common.readings import WithReadings, slowest_reading
from slackswap.profiles.generators.random_dag import random_problem

WITH_READINGS = [
    name for name in planner_names() if isinstance(resolve_planner(name), WithReadings)
]


@pytest.mark.parametrize("name", WITH_READINGS)
def test_the_plain_name_is_the_fastest_of_the_readings(name):
    if name == "pytorch-budget":
        pytest.importorskip("torch")
    planner = resolve_planner(name)
    readings = planner.readings()
    assert len(readings) > 1
    answered = 0
    for seed in range(6):
        problem = random_problem(Random(100 + seed), 9)
        if seed % 2:  # rules that do the same whatever the budget rarely fit a small one
            problem = problem.with_budget(2 * problem.keep_all_peak_bytes)
        plain = solve(problem, planner)
        # Only what is searched for depends on the seed, and may differ when asked again.
        alone = {
            label: solve(problem, reading) for label, reading in readings.items()
            if "genetic" not in label
        }
        times = {
            label: solution.evaluation.iteration_ns for label, solution in alone.items()
            if solution.status.has_plan
        }
        assert plain.status.has_plan >= bool(times)
        if not plain.status.has_plan:
            continue
        answered += 1
        told = plain.statistics["readings"]
        assert set(told) == set(readings)
        assert {label: told[label] for label in times} == times
        assert plain.evaluation.iteration_ns == told[plain.statistics["reading"]]
        assert plain.evaluation.iteration_ns <= min(times.values(), default=2**62)
        slowest = slowest_reading(plain.statistics)
        assert slowest is not None
        assert slowest[1] == max(t for t in told.values() if isinstance(t, int))
    assert answered


def test_a_reading_that_is_fixed_is_the_only_one():
    assert list(Capuchin(free_time="lane").readings().values()) == [Capuchin(free_time="lane")]
    problem = random_problem(Random(3), 9)
    assert "readings" not in solve(problem, Capuchin(free_time="lane")).statistics
    assert slowest_reading({}) is None


def test_without_a_plan_the_reason_of_the_first_reading_is_given():
    # Whatever is kept, an op holds what it reads and what it writes: 20 bytes.
    problem = Problem(chain([10] * 4), LINK, 15)
    solution = solve(problem, ChenGreedy())
    assert solution.status is Status.INFEASIBLE
    assert solution.plan is None
    assert "greedy checkpointing" in solution.reason
    assert set(solution.statistics["readings"]) == {"granularity=op", "granularity=layer"}


def test_a_limit_that_is_over_still_tries_one_reading():
    problem = Problem(chain([20, 20, 4, 4], input_bytes=4), LINK, 50)
    report = Report()
    Capuchin().plan(problem, rng=Random(0), time_limit=1e-9, report=report)
    assert "no time left" in report.statistics["readings"].values()
