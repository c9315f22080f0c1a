"""When the link slows down in mid-training, the next steps run a plan for the slower link."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="running a plan needs the torch extra")

from execution_runs import CPU, call_like, captured_net, one_step  # noqa: E402

from slackswap import Hardware, Problem  # noqa: E402
from slackswap.execution.adaptive import Adaptive, drift, measured_link  # noqa: E402
from slackswap.execution.building import plan_and_compile  # noqa: E402
from slackswap.execution.link import VirtualLink  # noqa: E402
from slackswap.execution.module import PlannedStep  # noqa: E402
from slackswap.result import EventKind  # noqa: E402

#: At half of it, the U-Net's plan for it loses a fifth to stalls.
FAST = Hardware("fast", 10**7, 10**7, 1_000)


def test_half_the_speed_in_mid_training_is_planned_for_within_five_steps():
    captured = captured_net("unet")
    plain = one_step(captured.subject.step, captured)
    problem = Problem(captured.profile, FAST, 0.75)
    link = VirtualLink(FAST)
    step = PlannedStep(captured, plan_and_compile(captured, problem, "slackswap", CPU), link)
    adaptive, call = Adaptive(step), call_like(captured, step)
    times, plans = [], []
    for number in range(12):
        if number == 5:
            link.hardware = FAST.with_link(0.5)
        assert one_step(call, captured).same_as(plain)
        times.append(step.last.iteration_ns)
        plans.append(step.planned.plan)
        changed = adaptive.after_step()
        assert changed == (number == 5)  # the first slow step shows it, and nothing drifts again
    assert step.last.bytes_moved(EventKind.OFFLOAD) > 0
    assert plans[0] != plans[-1]
    # What a planner does that knew the slow link from the start.
    slow = problem.with_hardware(FAST.with_link(0.5))
    best = plan_and_compile(captured, slow, "slackswap", CPU).prediction.iteration_ns
    assert times[5] > 1.1 * times[4] > times[10]
    assert times[10] <= 1.01 * best
    assert adaptive.replanned == 1


def test_the_measured_link_is_the_one_that_copies_ran_on():
    captured = captured_net("convnet")
    problem = Problem(captured.profile, FAST, 0.95)
    slow = FAST.with_link(0.25)
    planned = plan_and_compile(captured, problem, "vdnn-all", CPU)
    step = PlannedStep(captured, planned, VirtualLink(slow))
    one_step(call_like(captured, step), captured)
    found = measured_link(step.last, FAST)
    assert drift(slow, found) < 0.01
    assert drift(FAST, found) == pytest.approx(0.75, abs=0.01)


def test_a_plan_without_copies_stays():
    captured = captured_net("counting")
    problem = Problem(captured.profile, FAST, None)
    step = PlannedStep(
        captured, plan_and_compile(captured, problem, "keep-all", CPU),
        VirtualLink(FAST.with_link(0.1)),
    )
    one_step(call_like(captured, step), captured)
    assert not Adaptive(step).after_step()
