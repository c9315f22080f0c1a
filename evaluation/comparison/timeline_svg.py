"""Simulated iterations as a still picture: three streams and memory, one below the other.

What `gantt_figure` shows alive, for files and for pages without scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slackswap.errors import SlackSwapError
from slackswap.evaluation.comparison.gantt import LANES, Span, spans_of
from slackswap.evaluation.report.palette import BLUE, KIND_COLOURS
from slackswap.evaluation.report.svg import FAINT, RULE, Drawing, text_width
from slackswap.problem import Problem
from slackswap.quantities import format_bytes, format_ns
from slackswap.result import Evaluation, EventKind, Stream

_LANE, _GAP = 22.0, 5.0
_MEMORY = 64.0
_LEFT, _RIGHT = 78.0, 16.0
_TITLE, _FOOT = 26.0, 52.0
#: Steps of a curve closer than this, in pixels, are drawn as one.
_SEEN = 0.3


@dataclass(frozen=True, slots=True)
class TimelineRun:
    """One iteration to draw.

    Attributes
    ----------
    title : str
        Line above it.
    evaluation : Evaluation
        From ``simulate(problem, plan, timeline=True)``.
    """

    title: str
    evaluation: Evaluation


def timeline_drawing(
    problem: Problem, runs: Sequence[TimelineRun], *, width: float = 920.0, names: bool = False,
    hints: bool = True,
) -> Drawing:
    """Draw iterations of one problem below each other, on one scale of time.

    Parameters
    ----------
    problem : Problem
        Tells layers and the budget.
    runs : sequence of TimelineRun
        Top to bottom.
    width : float
        In pixels.
    names : bool
        Write the name of an op or tensor into its stretch where there is room.
    hints : bool
        Say under the pointer what each stretch is; without, the file is a third of the size.

    Raises
    ------
    SlackSwapError
        When an evaluation carries no timeline.
    """
    for run in runs:
        if run.evaluation.timeline is None or run.evaluation.memory_curve is None:
            raise SlackSwapError(
                "carries no timeline", where=f"evaluation of {run.title}",
                fix="score the plan with simulate(problem, plan, timeline=True)",
            )
    block = _TITLE + 3 * (_LANE + _GAP) + _MEMORY + 16
    drawing = Drawing(
        width, 8 + len(runs) * block + _FOOT,
        f"{problem.profile.name}: " + ", ".join(run.title for run in runs),
    )
    all_spans = [spans_of(problem, run.evaluation.timeline or ()) for run in runs]
    end = max([1, *(span.end_ns for spans in all_spans for span in spans)])
    scale = (width - _LEFT - _RIGHT) / end
    top = _most_bytes(problem, runs)
    for number, (run, spans) in enumerate(zip(runs, all_spans, strict=True)):
        y = 8 + number * block
        drawing.text(_LEFT, y + 16, run.title, size=13, bold=True)
        _draw_lanes(drawing, spans, y + _TITLE, scale, names, hints)
        _draw_memory(drawing, problem, run.evaluation, y + _TITLE + 3 * (_LANE + _GAP), scale, top)
    foot = 8 + len(runs) * block
    _draw_time_axis(drawing, foot, scale, end)
    kinds = {span.kind for spans in all_spans for span in spans}
    _draw_legend(drawing, foot + 36, [kind for kind in EventKind if kind in kinds],
                 limited=problem.is_limited)
    return drawing


def _draw_lanes(
    drawing: Drawing, spans: Sequence[Span], y: float, scale: float, names: bool, hints: bool
) -> None:
    for number, stream in enumerate(Stream):
        top = y + number * (_LANE + _GAP)
        drawing.text(_LEFT - 8, top + 15, LANES[stream], size=11, anchor="end", fill=FAINT)
        drawing.rect(_LEFT, top, drawing.width - _LEFT - _RIGHT, _LANE, RULE, opacity=0.28)
        for span in spans:
            if span.stream is not stream:
                continue
            x, length = _LEFT + span.start_ns * scale, (span.end_ns - span.start_ns) * scale
            # A hair between neighbours, so that a row of equal ones can be counted.
            drawing.rect(x, top, max(length - min(0.8, length / 4), 0.3), _LANE,
                         KIND_COLOURS[span.kind], hint=span.label if hints else "")
            if names and text_width(span.name, 10) < length - 4:
                drawing.text(x + length / 2, top + 15, span.name, size=10, anchor="middle",
                             fill="#ffffff" if span.kind in _DARK else "#000000")


_DARK = {EventKind.FORWARD, EventKind.STALL, EventKind.OFFLOAD}


def _most_bytes(problem: Problem, runs: Sequence[TimelineRun]) -> int:
    levels = [level for run in runs for _, level in run.evaluation.memory_curve or ()]
    most = max([1, *levels])
    return max(most, problem.budget_bytes) if problem.is_limited else most


def _draw_memory(
    drawing: Drawing, problem: Problem, evaluation: Evaluation, y: float, scale: float, top: int,
) -> None:
    base, height = y + 6 + _MEMORY, _MEMORY - 8
    points = _steps([
        (_LEFT + time_ns * scale, base - height * level / top)
        for time_ns, level in evaluation.memory_curve or ()
    ])
    if not points:
        return
    drawing.path([(points[0][0], base), *points, (points[-1][0], base)], fill=BLUE, opacity=0.18)
    drawing.path(points, stroke=BLUE, width=1.2)
    drawing.line(_LEFT, base, drawing.width - _RIGHT, base)
    drawing.text(_LEFT - 8, base, "memory", size=11, anchor="end", fill=FAINT)
    if problem.is_limited:
        level = base - height * problem.budget_bytes / top
        drawing.line(_LEFT, level, drawing.width - _RIGHT, level, KIND_COLOURS["stall"],
                     width=1.3, dash="5 4")
        drawing.text(_LEFT - 8, level + 4, format_bytes(problem.budget_bytes), size=10,
                     anchor="end", fill=KIND_COLOURS["stall"])


def _steps(changes: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of a step curve; of changes closer than can be seen, the extremes."""
    corners: list[tuple[float, float]] = []
    start = 0
    while start < len(changes):
        end = start + 1
        while end < len(changes) and changes[end][0] - changes[start][0] < _SEEN:
            end += 1
        x, heights = changes[start][0], [y for _, y in changes[start:end]]
        if corners:
            corners.append((x, corners[-1][1]))
        extremes = dict.fromkeys((min(heights), max(heights), heights[-1]))
        corners += [(x, y) for y in extremes]
        if corners[-1][1] != heights[-1]:
            corners.append((x, heights[-1]))
        start = end
    return corners


def _draw_time_axis(drawing: Drawing, y: float, scale: float, end: int) -> None:
    step = _round_step(end / 8)
    for tick in range(0, end + 1, step):
        x = _LEFT + tick * scale
        drawing.line(x, y - 8, x, y - 3, FAINT)
        drawing.text(x, y + 9, format_ns(tick) if tick else "0", size=10, anchor="middle",
                     fill=FAINT)


def _round_step(least: float) -> int:
    """Return the smallest of 1, 2, 5 times a power of ten that is no less."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least:
                return factor * power
        power *= 10


def _draw_legend(
    drawing: Drawing, y: float, kinds: Sequence[EventKind], *, limited: bool
) -> None:
    x = _LEFT
    for kind in kinds:
        drawing.rect(x, y - 9, 11, 11, KIND_COLOURS[kind], radius=2)
        drawing.text(x + 16, y + 1, str(kind), size=11)
        x += 34 + text_width(str(kind), 11)
    if limited:
        drawing.line(x, y - 3, x + 20, y - 3, KIND_COLOURS["stall"], width=1.3, dash="5 4")
        drawing.text(x + 26, y + 1, "budget", size=11)
