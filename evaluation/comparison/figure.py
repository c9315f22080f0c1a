"""Two iterations as one live figure: the streams of each, and memory of both."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from slackswap.evaluation.comparison.gantt import (
    LANES,
    budget_line,
    memory_line,
    spans_of,
    stream_bars,
)
from slackswap.evaluation.report.figures import styled
from slackswap.evaluation.report.palette import BLUE, ORANGE
from slackswap.problem import Problem
from slackswap.result import Evaluation, EventKind


def comparison_figure(
    problem: Problem, names: Sequence[str], evaluations: Sequence[Evaluation]
) -> go.Figure:
    """Draw two iterations of one problem on one time axis.

    Parameters
    ----------
    problem : Problem
        Tells layers and the budget.
    names : sequence of str
        What the two plans are called.
    evaluations : sequence of Evaluation
        Their scores, with timelines.
    """
    figure = make_subplots(
        rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.07,
        row_heights=[0.28, 0.28, 0.44], subplot_titles=(*names, "memory in use"),
    )
    seen: set[EventKind] = set()
    end_ns = 1
    for row, evaluation in enumerate(evaluations, start=1):
        spans = spans_of(problem, evaluation.timeline or ())
        end_ns = max([end_ns, *(span.end_ns for span in spans)])
        for kind in EventKind:
            mine = [span for span in spans if span.kind is kind]
            if mine:
                bars = stream_bars(kind, mine)
                # One entry in the legend shows and hides a kind in both.
                bars.update(legendgroup=str(kind), showlegend=kind not in seen)
                seen.add(kind)
                figure.add_trace(bars, row=row, col=1)
        figure.update_yaxes(
            row=row, col=1, categoryorder="array", categoryarray=list(reversed(LANES.values())),
            range=[-0.5, len(LANES) - 0.5],  # a stream that does nothing is shown too
        )
    for name, evaluation, colour, dash, fill in zip(
        names, evaluations, (ORANGE, BLUE), ("dot", "solid"), (False, True), strict=True
    ):
        figure.add_trace(
            memory_line(evaluation, name=f"memory, {name}", colour=colour, dash=dash, fill=fill),
            row=3, col=1,
        )
    if problem.is_limited:
        figure.add_trace(budget_line(problem, end_ns), row=3, col=1)
    styled(figure, height=640)
    figure.update_layout(barmode="overlay", bargap=0.25, margin={"t": 34},
                         legend={"y": -0.15})
    figure.update_yaxes(title="GB", rangemode="tozero", row=3, col=1)
    figure.update_xaxes(range=[0, end_ns / 1e6])
    figure.update_xaxes(title="time (ms)", row=3, col=1)
    return figure
