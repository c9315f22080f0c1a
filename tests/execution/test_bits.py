"""Loss, gradients and buffers under a plan are the plain model's, and memory keeps to the budget.

Copies run in virtual time, so that nothing depends on the machine; real tensors are moved.
"""

from __future__ import annotations

import functools
import itertools
import random

import pytest

torch = pytest.importorskip("torch", reason="running a plan needs the torch extra")

from drawing import random_plan  # noqa: E402
from execution_nets import NETS  # noqa: E402
from execution_runs import (  # noqa: E402
    LINK,
    call_like,
    captured_net,
    metered,
    one_step,
    planned_step,
)

from slackswap import Infeasible, InvalidPlan, Plan, Problem, planner_names, solve  # noqa: E402
from slackswap.execution.reserve import fixed_reserve  # noqa: E402

captured = functools.cache(captured_net)


@functools.cache
def plain(name):
    return one_step(captured(name).subject.step, captured(name))


def check(name, problem, plan) -> None:
    """Run a plan under the storage log: same bits, never above prediction and budget."""
    step = planned_step(captured(name), problem, plan)
    outcome, peak, log = metered(call_like(captured(name), step), captured(name), step)
    assert outcome.same_as(plain(name))
    prediction = step.planned.prediction
    allowed = prediction.peak_bytes + step.planned.reserved_bytes
    assert peak <= allowed, log.at_peak(without=outcome.gradients)
    assert allowed <= problem.budget_bytes or not problem.is_limited
    assert step.last.peak_bytes == prediction.peak_bytes
    assert step.last.iteration_ns == prediction.iteration_ns


@pytest.mark.parametrize("name", NETS)
def test_plans_of_one_action(name):
    profile = captured(name).profile
    problem = Problem(profile, LINK, None)
    saved = [t for i, t in enumerate(profile.tensors) if profile.graph.is_saved[i]]
    for action in ("keep", "swap", "recompute"):
        check(name, problem, Plan({t.name: action for t in saved if action in t.allowed}))


@pytest.mark.parametrize("name", NETS)
def test_random_plans_with_gates_and_barriers(name):
    profile = captured(name).profile
    unlimited = Problem(profile, LINK, None)
    rng, ran = random.Random(f"plans of {name}"), 0
    for _ in range(8):
        plan = random_plan(rng, unlimited)
        problem = unlimited.with_budget(rng.choice((None, 0.99, 0.9, 0.8)))
        try:
            check(name, problem, plan)
        except (InvalidPlan, Infeasible):  # runs what cannot run again; does not fit
            continue
        ran += 1
    assert ran >= 2


#: One net for each planner in turn, so that all run within seconds; the benchmark runs them all.
PLANNED = list(zip(planner_names(), itertools.cycle(("convnet", "unet", "lora", "experts"))))


@pytest.mark.parametrize(("planner", "name"), PLANNED)
def test_every_planner(planner, name):
    problem = Problem(captured(name).profile, LINK, 0.95)
    solution = solve(problem, planner, time_limit=0.5)
    if solution.plan is None or not solution.status.has_plan:
        pytest.skip(f"no plan: {solution.reason}")
    # Beside what the planned step sets aside: of a net so small, random states are a large part.
    check(name, problem.with_budget(problem.budget_bytes + 65_536), solution.plan)


@pytest.mark.parametrize("name", ["transformer", "convnet", "unet", "lora"])
def test_without_swaps_the_peak_is_the_simulators(name):
    """Within 0.2%, beside the loss, its gradient and new buffer values.

    Nothing else that is set aside is allowed for: random states alone are a tenth of such a net.
    The other nets are left out. The graphs of most have storages that eager execution does not
    make; under autocast some plans that recompute stay up to a tenth below, which is not explained.
    """
    profile = captured(name).profile
    problem = Problem(profile, LINK, None)
    saved = [t for i, t in enumerate(profile.tensors) if profile.graph.is_saved[i]]
    free = [t for t in saved if "recompute" in t.allowed]
    beside = fixed_reserve(captured(name).lowered)
    rng = random.Random(name)
    plans = [Plan(), Plan({t.name: "recompute" for t in free})]
    plans += [Plan({t.name: rng.choice(("keep", "recompute")) for t in free}) for _ in range(4)]
    for plan in plans:
        step = planned_step(captured(name), problem, plan)
        _, peak, _ = metered(call_like(captured(name), step), captured(name), step)
        expected = step.planned.prediction.peak_bytes
        assert abs(peak - beside - expected) <= 0.002 * expected
