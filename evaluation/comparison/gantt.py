"""One plan's iteration as a picture: three streams, and memory against the budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from slackswap.errors import SlackSwapError
from slackswap.evaluation.report.figures import styled
from slackswap.evaluation.report.palette import BLUE, KIND_COLOURS
from slackswap.problem import Problem
from slackswap.quantities import format_ns
from slackswap.result import Evaluation, Event, EventKind, Stream

#: What the streams are called in pictures.
LANES = {Stream.COMPUTE: "compute", Stream.D2H: "to host", Stream.H2D: "to device"}


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a stream, one event or several of one layer.

    Attributes
    ----------
    stream, kind : Stream, EventKind
        Where, and what for.
    start_ns, end_ns : int
        When.
    name, label : str
        Op, tensor or layer; and a sentence about it.
    """

    stream: Stream
    kind: EventKind
    start_ns: int
    end_ns: int
    name: str
    label: str


def gantt_figure(problem: Problem, evaluation: Evaluation) -> go.Figure:
    """Draw the timeline of an evaluation.

    Parameters
    ----------
    problem : Problem
        What was simulated: tells layers and the budget.
    evaluation : Evaluation
        From ``simulate(problem, plan, timeline=True)``.

    Returns
    -------
    plotly.graph_objects.Figure
        Streams above, memory in use below, one time axis. Ops of one layer that follow each other
        are drawn as one stretch.

    Raises
    ------
    SlackSwapError
        When the evaluation carries no timeline.
    """
    from plotly.subplots import make_subplots

    if evaluation.timeline is None or evaluation.memory_curve is None:
        raise SlackSwapError(
            "carries no timeline", where="evaluation",
            fix="score the plan with simulate(problem, plan, timeline=True)",
        )
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08, row_heights=[0.45, 0.55]
    )
    spans = spans_of(problem, evaluation.timeline)
    for kind in EventKind:
        mine = [span for span in spans if span.kind is kind]
        if mine:
            figure.add_trace(stream_bars(kind, mine), row=1, col=1)
    figure.add_trace(memory_line(evaluation), row=2, col=1)
    if problem.is_limited:
        end = evaluation.memory_curve[-1][0] if evaluation.memory_curve else 10**6
        figure.add_trace(budget_line(problem, end), row=2, col=1)
    styled(figure, height=430)
    figure.update_layout(barmode="overlay", bargap=0.25)
    figure.update_yaxes(
        row=1, col=1, categoryorder="array", categoryarray=list(reversed(LANES.values())),
        gridcolor="rgba(0,0,0,0)",
    )
    figure.update_yaxes(title="memory (GB)", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title="time (ms)", row=2, col=1)
    figure.update_xaxes(range=[0, max((s.end_ns for s in spans), default=0) / 1e6])
    return figure


def stream_bars(kind: EventKind, spans: Sequence[Span]) -> go.Bar:
    """Return the bars of one kind of event."""
    return go.Bar(
        name=str(kind), orientation="h",
        y=[LANES[span.stream] for span in spans],
        base=np.array([span.start_ns / 1e6 for span in spans], dtype=np.float32),
        x=np.array([(span.end_ns - span.start_ns) / 1e6 for span in spans], dtype=np.float32),
        text=None, customdata=[span.label for span in spans],
        marker={"color": KIND_COLOURS[kind], "line": {"width": 0}},
        hovertemplate="%{customdata}<br>from %{base:.3f} ms<extra></extra>",
    )


def memory_line(
    evaluation: Evaluation, *, name: str = "memory in use", colour: str = BLUE,
    dash: str = "solid", fill: bool = True,
) -> go.Scatter:
    """Return the curve of memory in use; an evaluation without one gives an empty curve."""
    curve = evaluation.memory_curve or ()
    # Of several changes at one instant the peak between them counts, then the last.
    return go.Scatter(
        x=np.array([time for time, _ in curve], dtype=np.float64) / 1e6,
        y=(np.array([level for _, level in curve], dtype=np.float64) / 1e9).astype(np.float32),
        mode="lines", name=name, line={"shape": "hv", "color": colour, "width": 1.2, "dash": dash},
        fill="tozeroy" if fill else None, fillcolor="rgba(0,114,178,0.18)" if fill else None,
        hovertemplate="%{y:.2f} GB at %{x:.2f} ms<extra></extra>",
    )


def budget_line(problem: Problem, end_ns: int) -> go.Scatter:
    """Return the budget as a line from the start to `end_ns`."""
    return go.Scatter(
        x=[0.0, end_ns / 1e6], y=[problem.budget_bytes / 1e9] * 2, mode="lines", name="budget",
        line={"color": KIND_COLOURS["stall"], "dash": "dash", "width": 1.5},
        hovertemplate="budget %{y:.2f} GB<extra></extra>",
    )


def spans_of(problem: Problem, timeline: Iterable[Event]) -> list[Span]:
    """Join ops of one kind and layer that follow each other without a gap."""
    found: list[Span] = []
    last: dict[Stream, tuple[Event, int | None, int]] = {}  # latest event, its layer, ops joined
    for event in timeline:
        if event.end_ns == event.start_ns:
            continue
        layer = _layer(problem, event)
        before = last.get(event.stream)
        joined = 1
        if (
            before is not None and event.stream is Stream.COMPUTE and layer is not None
            and before[1] == layer and before[0].kind is event.kind
            and before[0].end_ns == event.start_ns
        ):
            joined = before[2] + 1
            index = next(i for i in range(len(found) - 1, -1, -1)
                         if found[i].stream is event.stream)
            start = found[index].start_ns
            found[index] = Span(
                event.stream, event.kind, start, event.end_ns, f"layer {layer}",
                f"{event.kind} of layer {layer}: {joined} ops, "
                f"{format_ns(event.end_ns - start)}",
            )
        else:
            found.append(
                Span(event.stream, event.kind, event.start_ns, event.end_ns, event.name,
                     _label(event))
            )
        last[event.stream] = (event, layer, joined)
    return found


def _layer(problem: Problem, event: Event) -> int | None:
    if event.kind in (EventKind.FORWARD, EventKind.RECOMPUTE):
        return problem.profile.forward[event.index].layer
    if event.kind is EventKind.BACKWARD:
        return problem.profile.backward[event.index].layer
    return None


def _label(event: Event) -> str:
    length = format_ns(event.end_ns - event.start_ns)
    if event.kind is EventKind.STALL:
        return f"{event.name} waits {length} for {event.tensor or event.cause}"
    return f"{event.kind} {event.name}, {length}"
