"""Timelines: trace files, stalls by tensor, and the picture, against the referee's figures."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from slackswap import Plan, Problem, simulate
from slackswap.errors import SlackSwapError
from slackswap.evaluation.comparison.gantt import gantt_figure
from slackswap.evaluation.comparison.stalls import stalls_by_tensor
from slackswap.evaluation.comparison.trace import chrome_trace, write_trace
from slackswap.profiles.catalogue import DEFAULT_HARDWARE
from slackswap.profiles.generators.random_dag import layered_profile
from slackswap.result import Evaluation


@pytest.fixture(scope="module")
def problem() -> Problem:
    profile = layered_profile(60, random.Random(1))
    return Problem(profile, DEFAULT_HARDWARE.with_link(0.2), "0.8")


@pytest.fixture(scope="module")
def plan(problem: Problem) -> Plan:
    graph = problem.profile.graph
    names = [problem.profile.tensors[t].name for t in graph.is_saved.nonzero()[0]]
    return Plan({name: ("recompute" if n % 3 else "swap") for n, name in enumerate(names[:-4])})


@pytest.fixture(scope="module")
def evaluation(problem: Problem, plan: Plan) -> Evaluation:
    found = simulate(problem, plan, timeline=True)
    assert found.feasible
    assert found.stall_ns
    return found


def _durations(trace: dict, **wanted: object) -> int:  # type: ignore[type-arg]
    return round(1000 * sum(
        event["dur"] for event in trace["traceEvents"]
        if event["ph"] == "X" and all(event[key] == value for key, value in wanted.items())
    ))


def test_a_trace_accounts_for_every_nanosecond(problem: Problem, evaluation: Evaluation) -> None:
    trace = chrome_trace(evaluation)
    stall = evaluation.stall_ns
    assert stall is not None
    assert _durations(trace, cat="stall") == stall
    assert _durations(trace, cat="recompute") == evaluation.recompute_ns
    assert _durations(trace, cat="offload") == evaluation.d2h_busy_ns
    assert _durations(trace, cat="prefetch") == evaluation.h2d_busy_ns
    # The compute stream has no hole.
    assert _durations(trace, tid=1) == evaluation.iteration_ns


def test_a_track_does_one_thing_at_a_time(evaluation: Evaluation) -> None:
    trace = chrome_trace(evaluation)
    for track in (1, 2, 3):
        spans = sorted(
            (e["ts"], e["ts"] + e["dur"])
            for e in trace["traceEvents"] if e["ph"] == "X" and e["tid"] == track
        )
        assert spans
        assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(spans))


def test_a_trace_is_what_viewers_read(
    problem: Problem, plan: Plan, evaluation: Evaluation, tmp_path: Path
) -> None:
    path = tmp_path / "timeline.json"
    assert write_trace(path, problem, plan) == evaluation
    trace = json.loads(path.read_text(encoding="utf-8"))
    assert all(
        isinstance(event["ts"], (int, float)) and not isinstance(event["ts"], bool)
        for event in trace["traceEvents"]
    )
    names = {
        e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"
    }
    assert len(names) == 3
    counters = [e for e in trace["traceEvents"] if e["ph"] == "C"]
    assert counters
    assert max(e["args"]["bytes"] for e in counters) <= evaluation.peak_bytes
    assert counters == sorted(counters, key=lambda e: e["ts"])
    assert counters[-1]["args"]["bytes"] == problem.profile.graph.input_bytes


def test_stalls_by_tensor_add_up(evaluation: Evaluation) -> None:
    stalls = stalls_by_tensor(evaluation)
    assert sum(stall.total_ns for stall in stalls) == evaluation.stall_ns
    assert [s.total_ns for s in stalls] == sorted((s.total_ns for s in stalls), reverse=True)
    assert len({(s.cause, s.tensor) for s in stalls}) == len(stalls)


def test_the_picture_shows_all_of_the_time(problem: Problem, evaluation: Evaluation) -> None:
    figure = gantt_figure(problem, evaluation)
    bars = {trace.name: sum(map(float, trace.x)) for trace in figure.data if trace.type == "bar"}
    assert bars["stall"] * 1e6 == pytest.approx(evaluation.stall_ns, rel=1e-4)
    assert bars["recompute"] * 1e6 == pytest.approx(evaluation.recompute_ns, rel=1e-4)
    assert bars["offload"] * 1e6 == pytest.approx(evaluation.d2h_busy_ns, rel=1e-4)
    busy = bars["forward"] + bars["backward"] + bars["recompute"] + bars["stall"]
    assert busy * 1e6 == pytest.approx(evaluation.iteration_ns, rel=1e-4)
    memory = next(trace for trace in figure.data if trace.name == "memory in use")
    assert max(map(float, memory.y)) * 1e9 == pytest.approx(evaluation.peak_bytes, rel=1e-4)
    budget = next(trace for trace in figure.data if trace.name == "budget")
    assert budget.y[0] * 1e9 == pytest.approx(problem.budget_bytes)


def test_an_infeasible_plan_is_traced_up_to_where_it_got_stuck(problem: Problem) -> None:
    stuck = simulate(problem.with_budget("0.5"), Plan({}), timeline=True)
    assert not stuck.feasible
    assert chrome_trace(stuck)["traceEvents"]
    gantt_figure(problem.with_budget("0.5"), stuck)


def test_without_a_timeline_there_is_an_error_that_says_how_to_get_one(
    problem: Problem, plan: Plan
) -> None:
    bare = simulate(problem, plan)
    for call in (chrome_trace, stalls_by_tensor, lambda e: gantt_figure(problem, e)):
        with pytest.raises(SlackSwapError, match="timeline=True"):
            call(bare)
