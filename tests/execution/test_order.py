"""Events under live admission, in virtual time, are those of the simulator's timeline."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from drawing import random_case

from slackswap import InvalidPlan, simulate
from slackswap.execution.errors import ExecutionFailed
from slackswap.execution.link import NoTensors, VirtualLink
from slackswap.execution.live import LiveRun, NoCode
from slackswap.execution.timetable import Timetable
from slackswap.result import EventKind, Stream


def outcome(problem, plan) -> LiveRun:
    run = LiveRun(Timetable.of(problem, plan), VirtualLink(problem.hardware), NoCode(), NoTensors())
    run.forward()
    run.backward()
    return run


def by_stream(events):
    """What each stream did when; stalls are compared by their sum."""
    return {
        stream: [
            (event.kind, event.index, event.start_ns, event.end_ns)
            for event in events
            if event.stream is stream and event.kind is not EventKind.STALL
        ]
        for stream in Stream
    }


@pytest.mark.parametrize("block", range(20))
def test_events_are_the_simulators_in_order_and_time(block):
    """On 60 plans that fit in each block, more than 1,000 in all; a third on contended links."""
    seen, seed = Counter(), 900_000 + 1000 * block
    while seen["equal"] < 60:
        seed += 1
        case = random_case(seed, contended=seed % 3 == 0)
        try:
            expected = simulate(case.problem, case.plan, "reference", timeline=True)
        except InvalidPlan:
            seen["invalid"] += 1
            continue
        if not expected.feasible:
            seen["infeasible"] += 1
            with pytest.raises(ExecutionFailed, match="cannot start"):
                outcome(case.problem, case.plan)
            continue
        log = outcome(case.problem, case.plan).log
        assert by_stream(log.events) == by_stream(expected.timeline), seed
        assert log.iteration_ns == expected.iteration_ns, seed
        assert log.total_ns(EventKind.STALL) == expected.stall_ns, seed
        assert log.total_ns(EventKind.RECOMPUTE) == expected.recompute_ns, seed
        assert log.peak_bytes == expected.peak_bytes, seed
        assert log.bytes_moved(EventKind.PREFETCH) == expected.prefetched_bytes, seed
        seen["equal"] += 1
        seen["moved"] += bool(expected.offloaded_bytes)
        seen["stalled"] += bool(expected.stall_ns)
    assert seen["moved"] > 15
    assert seen["stalled"] > 8


def test_a_slower_link_than_planned_for_still_keeps_the_budget():
    """Live admission does not rest on the times that a plan was made with."""
    finished = 0
    for seed in range(910_000, 910_200):
        case = random_case(seed)
        try:
            expected = simulate(case.problem, case.plan)
        except InvalidPlan:
            continue
        if not expected.feasible or not expected.offloaded_bytes:
            continue
        table = Timetable.of(case.problem, case.plan)
        slow = replace(case.problem.hardware, d2h_bytes_per_s=1, h2d_bytes_per_s=1)
        run = LiveRun(table, VirtualLink(slow), NoCode(), NoTensors())
        run.forward()
        run.backward()
        assert run.log.peak_bytes <= case.problem.budget_bytes
        finished += 1
    assert finished > 20
