"""The timeline of one simulated iteration as Chrome-trace JSON, which Perfetto opens."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from slackswap import files
from slackswap.cost_model.engine import simulate
from slackswap.errors import SlackSwapError
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.profile import Profile
from slackswap.result import Evaluation, Event, EventKind, Stream

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
    both = evaluation.both_directions or ()
    events = [
        *_heads(title, [_BOTH] if both else []),
        *map(_stretch, evaluation.timeline),
        *(
            {"name": _BOTH[1], "cat": "link", "ph": "X", "ts": start / 1000,
             "dur": (end - start) / 1000, "pid": _PROCESS, "tid": _BOTH[0], "args": {}}
            for start, end in both
        ),
        *_counter(evaluation.memory_curve),
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _heads(title: str, more: Sequence[tuple[int, str]] = ()) -> Iterator[dict[str, Any]]:
    yield _metadata("process_name", 0, {"name": title})
    for thread, name in (*_THREADS.values(), *more):
        yield _metadata("thread_name", thread, {"name": name})
        yield _metadata("thread_sort_index", thread, {"sort_index": thread})


def _counter(curve: Sequence[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    levels = dict(curve)  # of several changes at one instant the last counts
    for time_ns, level in sorted(levels.items()):
        yield {"name": "memory in use", "ph": "C", "pid": _PROCESS, "tid": 0,
               "ts": time_ns / 1000, "args": {"bytes": level}}


@dataclass(frozen=True, slots=True)
class Track:
    """One run of an iteration, simulated or measured.

    Attributes
    ----------
    title : str
        Name of the process in the viewer.
    events : sequence of Event
        What each stream did.
    memory_curve : sequence of (int, int)
        Time in ns, and bytes in use from then on.
    """

    title: str
    events: Sequence[Event]
    memory_curve: Sequence[tuple[int, int]]


def trace_beside(tracks: Sequence[Track], profile: Profile) -> dict[str, Any]:
    """Return several runs of one profile's iteration as a Chrome-trace object, one process each.

    Copies carry their bytes, and arrows lead from each offload to the prefetch of the same tensor,
    and from there to the first op that waited for it or ran after it.
    """
    events: list[dict[str, Any]] = []
    for number, track in enumerate(tracks, start=_PROCESS):
        stretches = []
        for event in track.events:
            stretch = _stretch(event)
            if event.stream is not Stream.COMPUTE:
                stretch["args"]["bytes"] = profile.tensors[event.index].nbytes
            stretches.append(stretch)
        own = [
            *_heads(track.title), *stretches, *_arrows(track.events, profile),
            *_counter(track.memory_curve),
        ]
        for entry in own:
            entry["pid"] = number
            if "id" in entry:
                entry["id"] = f"{number}.{entry['id']}"
        events += own
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _arrows(events: Sequence[Event], profile: Profile) -> Iterator[dict[str, Any]]:
    """Flow events: the end of an offload, its prefetch, and the first backward op that reads."""
    prefetches = {event.index: event for event in events if event.kind is EventKind.PREFETCH}
    steps = sorted(
        (event for event in events if event.kind in (EventKind.BACKWARD, EventKind.RECOMPUTE)),
        key=lambda event: event.start_ns,
    )
    for offload in events:
        prefetch = prefetches.get(offload.index)
        if offload.kind is not EventKind.OFFLOAD or prefetch is None:
            continue
        tensor = offload.index
        use = next(
            (
                step for step in steps
                if step.start_ns >= prefetch.end_ns
                and tensor in (
                    profile.backward if step.kind is EventKind.BACKWARD else profile.forward
                )[step.index].reads
            ),
            None,
        )
        for phase, event in (("s", offload), ("t", prefetch), ("f", use)):
            if event is not None:
                yield {
                    "name": "tensor", "cat": "flow", "ph": phase, "id": tensor, "pid": _PROCESS,
                    "tid": _THREADS[event.stream][0], "ts": event.start_ns / 1000,
                    **({"bp": "e"} if phase == "f" else {}),
                }


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
