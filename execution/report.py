"""Predicted against measured: what the simulator said of a step, and what it was."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from slackswap.execution.log import IterationLog
from slackswap.quantities import format_bytes, format_ns
from slackswap.result import Evaluation, EventKind


@dataclass(frozen=True, slots=True)
class Figures:
    """What one step took.

    Attributes
    ----------
    step_ns, forward_ns, stall_ns, recompute_ns : int
        Times: both passes; the forward pass; waiting; recompute steps.
    peak_bytes : int
        Most memory in use, as the cost model counts it.
    offloaded_bytes, prefetched_bytes : int
        Bytes moved each way.
    """

    step_ns: int
    forward_ns: int
    stall_ns: int
    recompute_ns: int
    peak_bytes: int
    offloaded_bytes: int
    prefetched_bytes: int


@dataclass(frozen=True, slots=True)
class RunReport:
    """A step's prediction beside what was measured.

    Attributes
    ----------
    planner : str
        Who planned.
    budget_bytes : int or None
        The whole budget; None without a limit.
    reserved_bytes : int
        Part of it for what the profile does not count.
    predicted, measured : Figures
        The simulator's; medians over the steps, and the highest peak.
    steps : int
        Steps measured.
    """

    planner: str
    budget_bytes: int | None
    reserved_bytes: int
    predicted: Figures
    measured: Figures
    steps: int

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return label, predicted, measured and difference of each figure, as text."""
        rows = []
        for key, label in _LABELS.items():
            predicted, measured = getattr(self.predicted, key), getattr(self.measured, key)
            show = format_ns if key.endswith("_ns") else format_bytes
            off = f"{measured / predicted - 1:+.1%}" if predicted else "-"
            rows.append((label, show(predicted), show(measured), off))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)

    def __str__(self) -> str:
        table = [("", "predicted", "measured", "off"), *self.rows()]
        widths = [max(len(row[place]) for row in table) for place in range(4)]
        lines = [
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        return "\n".join(lines)


_LABELS = {
    "step_ns": "step time",
    "forward_ns": "forward pass",
    "stall_ns": "stalls",
    "recompute_ns": "recompute",
    "peak_bytes": "peak",
    "offloaded_bytes": "copied to host",
    "prefetched_bytes": "copied back",
}


def predicted_figures(evaluation: Evaluation) -> Figures:
    """Return the simulator's figures of a feasible plan."""
    assert evaluation.iteration_ns is not None
    return Figures(
        step_ns=evaluation.iteration_ns,
        forward_ns=evaluation.forward_ns or 0,
        stall_ns=evaluation.stall_ns or 0,
        recompute_ns=evaluation.recompute_ns or 0,
        peak_bytes=evaluation.peak_bytes or 0,
        offloaded_bytes=evaluation.offloaded_bytes or 0,
        prefetched_bytes=evaluation.prefetched_bytes or 0,
    )


def measured_figures(logs: Sequence[IterationLog]) -> Figures:
    """Return the medians of some steps' figures, and their highest peak."""

    def median(values: Sequence[int]) -> int:
        return int(statistics.median_low(values))

    return Figures(
        step_ns=median([log.iteration_ns for log in logs]),
        forward_ns=median([log.turn_ns - log.start_ns for log in logs]),
        stall_ns=median([log.total_ns(EventKind.STALL) for log in logs]),
        recompute_ns=median([log.total_ns(EventKind.RECOMPUTE) for log in logs]),
        peak_bytes=max(log.peak_bytes for log in logs),
        offloaded_bytes=median([log.bytes_moved(EventKind.OFFLOAD) for log in logs]),
        prefetched_bytes=median([log.bytes_moved(EventKind.PREFETCH) for log in logs]),
    )
