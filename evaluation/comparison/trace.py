"""The timeline of one simulated iteration as Chrome-trace JSON, which Perfetto opens."""

from __future__ import annotations

import os
from typing import Any

from slackswap import files
from slackswap.cost_model.engine import simulate
from slackswap.errors import SlackSwapError
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.result import Evaluation, Event, Stream

_PROCESS = 1
_THREADS = {Stream.COMPUTE: (1, "compute"), Stream.D2H: (2, "D2H (offload)"),
            Stream.H2D: (3, "H2D (prefetch)")}
_BOTH = (4, "both directions at once")


def chrome_trace(evaluation: Evaluation, *, title: str = "slackswap") -> dict[str, Any]:
    """Return an evaluation's timeline as a Chrome-trace object.

    Parameters
    ----------
    evaluation : Evaluation
        From ``simulate(problem, plan, timeline=True)``; an infeasible one ends where it got stuck.
    title : str
        Name of the process in the viewer.

    Returns
    -------
    dict
        One track per stream, one for when both directions of the link run if they ever do, and a
        counter of memory in use. Times are in microseconds, as the format wants.

    Raises
    ------
    SlackSwapError
        When the evaluation carries no timeline.
    """
    if evaluation.timeline is None or evaluation.memory_curve is None:
        raise SlackSwapError(
            "carries no timeline", where="evaluation",
            fix="score the plan with simulate(problem, plan, timeline=True)",
        )
    events: list[dict[str, Any]] = [_metadata("process_name", 0, {"name": title})]
    both = evaluation.both_directions or ()
    for thread, name in (*_THREADS.values(), *([_BOTH] if both else [])):
        events.append(_metadata("thread_name", thread, {"name": name}))
        events.append(_metadata("thread_sort_index", thread, {"sort_index": thread}))
    events += [_stretch(event) for event in evaluation.timeline]
    events += [
        {"name": _BOTH[1], "cat": "link", "ph": "X", "ts": start / 1000,
         "dur": (end - start) / 1000, "pid": _PROCESS, "tid": _BOTH[0], "args": {}}
        for start, end in both
    ]
    levels = dict(evaluation.memory_curve)  # of several changes at one instant the last counts
    events += [
        {"name": "memory in use", "ph": "C", "pid": _PROCESS, "tid": 0, "ts": time_ns / 1000,
         "args": {"bytes": level}}
        for time_ns, level in sorted(levels.items())
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_trace(
    path: str | os.PathLike[str], problem: Problem, plan: Plan
) -> Evaluation:
    """Simulate a plan and write its timeline as Chrome-trace JSON, whole or not at all.

    Returns
    -------
    Evaluation
        The score, with timeline and memory curve.
    """
    evaluation = simulate(problem, plan, timeline=True)
    planner = f" by {plan.planner.name}" if plan.planner else ""
    files.write_json(
        path, chrome_trace(evaluation, title=f"{problem.profile.name}{planner}")
    )
    return evaluation


def _stretch(event: Event) -> dict[str, Any]:
    arguments: dict[str, Any] = {"kind": str(event.kind), "index": event.index}
    if event.cause is not None:
        arguments["waits_for"] = event.tensor or str(event.cause)
        arguments["cause"] = str(event.cause)
    name = f"stall: {event.name}" if event.cause is not None else event.name
    return {
        "name": name,
        "cat": str(event.kind),
        "ph": "X",
        "ts": event.start_ns / 1000,
        "dur": (event.end_ns - event.start_ns) / 1000,
        "pid": _PROCESS,
        "tid": _THREADS[event.stream][0],
        "args": arguments,
    }


def _metadata(kind: str, thread: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": _PROCESS, "tid": thread, "ts": 0, "args": arguments}
