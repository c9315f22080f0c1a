"""Two plans of one problem side by side: figures, timelines, and what each difference is worth."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from slackswap import files
from slackswap.cost_model.engine import simulate
from slackswap.errors import InvalidFile, InvalidPlan
from slackswap.evaluation.comparison.differences import (
    FIGURES,
    Change,
    StallShift,
    diff_by_role,
    diff_by_tensor,
    stall_shifts,
)
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.quantities import format_ns
from slackswap.result import Evaluation
from slackswap.solving import Solution

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from slackswap.evaluation.report.svg import Drawing

def compare(
    plan_a: Plan | Solution,
    plan_b: Plan | Solution,
    problem: Problem | None = None,
    *,
    names: tuple[str, str] | None = None,
) -> PlanComparison:
    """Compare two plans of one problem.

    Parameters
    ----------
    plan_a, plan_b : Plan or Solution
        From, and to: changes are what the second does otherwise than the first.
    problem : Problem, optional
        What both are scored on; without it, the problem of the solutions.
    names : tuple of (str, str), optional
        What to call them; by default their planners' names.

    Returns
    -------
    PlanComparison
        In a notebook it shows itself: a table, both timelines with memory, and the changes.

    Raises
    ------
    InvalidPlan
        When a solution has no plan, when plans come without a problem or solutions with different
        ones, or when a plan cannot be carried out.
    """
    problem = problem or _common_problem(plan_a, plan_b)
    first, second = _plan_of(plan_a), _plan_of(plan_b)
    return PlanComparison(
        problem=problem,
        names=names or _names(first, second),
        plans=(first, second),
        evaluations=(
            simulate(problem, first, timeline=True), simulate(problem, second, timeline=True)
        ),
    )


@dataclass(frozen=True, repr=False)
class PlanComparison:
    """Two plans of one problem. Made by `compare`.

    Attributes
    ----------
    problem : Problem
        What they are scored on.
    names : tuple of (str, str)
        What they are called.
    plans : tuple of (Plan, Plan)
        The plans.
    evaluations : tuple of (Evaluation, Evaluation)
        Their scores, with timelines.
    """

    problem: Problem
    names: tuple[str, str]
    plans: tuple[Plan, Plan]
    evaluations: tuple[Evaluation, Evaluation]

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The tensors that the plans treat differently, each judged by taking it back."""
        return diff_by_tensor(self.problem, *self.plans, *self.evaluations)

    @cached_property
    def groups(self) -> tuple[Change, ...]:
        """The same by role (one tensor in many layers), with the stalls each is answerable for."""
        return diff_by_role(self.problem, *self.plans, *self.evaluations)

    @cached_property
    def stalls(self) -> tuple[StallShift, ...]:
        """The waits that differ between the two iterations, greatest shift first."""
        return stall_shifts(*self.evaluations)

    @property
    def barriers(self) -> tuple[str, ...]:
        """Sentences about barriers that only one of the plans has."""
        a, b = self.plans
        found = []
        for what, ours, theirs in (
            ("offload", a.offload_barriers, b.offload_barriers),
            ("prefetch", a.prefetch_barriers, b.prefetch_barriers),
        ):
            for name, mine, other in zip(self.names, (ours, theirs), (theirs, ours), strict=True):
                only = sorted(set(mine) - set(other))
                if only:
                    found.append(f"Only {name} has {what} barriers: {len(only)} of them")
        return tuple(found)

    def summary(self) -> pd.DataFrame:
        """Return the figures of both plans, and the second's less the first's.

        Returns
        -------
        pandas.DataFrame
            Indexed by the fields of `Evaluation`: nanoseconds, bytes, fractions. Missing where a
            plan does not fit.
        """
        import pandas as pd

        values = [
            [getattr(evaluation, field) for evaluation in self.evaluations]
            for _, field, _ in FIGURES
        ]
        table = pd.DataFrame(
            values, index=pd.Index([field for _, field, _ in FIGURES], name="figure"),
            columns=pd.Index(self.names), dtype=object,
        )
        table["difference"] = [None if None in pair else pair[1] - pair[0] for pair in values]
        return table

    def to_frame(self) -> pd.DataFrame:
        """Return `changes` as a table, one row a tensor, columns as in `Change`."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "tensor": change.tensors[0], "nbytes": change.nbytes,
                    "before": str(change.before), "after": str(change.after),
                    "time_ns": change.time_ns, "stall_ns": change.stall_ns,
                    "recompute_ns": change.recompute_ns, "moved_bytes": change.moved_bytes,
                    "shortfall_bytes": change.shortfall_bytes,
                    "waits_before_ns": change.waits_before_ns,
                    "waits_after_ns": change.waits_after_ns,
                }
                for change in self.changes
            ],
            columns=["tensor", "nbytes", "before", "after", "time_ns", "stall_ns", "recompute_ns",
                     "moved_bytes", "shortfall_bytes", "waits_before_ns", "waits_after_ns"],
        ).convert_dtypes()

    def figure(self) -> go.Figure:
        """Return both timelines and both memory curves on one time axis, as a Plotly figure."""
        from slackswap.evaluation.comparison.figure import comparison_figure

        return comparison_figure(self.problem, self.names, self.evaluations)

    def svg(self) -> str:
        """Return both timelines with memory as a still picture."""
        return self._drawing().svg()

    def savefig(self, path: str | os.PathLike[str]) -> None:
        """Write the still picture as an SVG file.

        Raises
        ------
        InvalidFile
            When the name does not end in ``.svg``, or the file cannot be written.
        """
        if not os.fspath(path).lower().endswith(".svg"):
            raise InvalidFile(
                "can only be an SVG picture", where=os.fspath(path),
                fix="let the name end in .svg, or use write_html, or figure().write_image "
                    "with kaleido installed",
            )
        self._drawing().save(path)

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Write tables and the live figure as one HTML page that needs no network.

        Raises
        ------
        InvalidFile
            When the file cannot be written.
        """
        from slackswap.evaluation.comparison.html import comparison_page

        files.write_text(path, comparison_page(self))

    def __repr__(self) -> str:
        told = [
            f"{name}: {_verdict(evaluation)}"
            for name, evaluation in zip(self.names, self.evaluations, strict=True)
        ]
        return f"<PlanComparison on {self.problem.profile.name}: {'; '.join(told)}>"

    def _repr_html_(self) -> str:
        from slackswap.evaluation.comparison.html import comparison_html

        return comparison_html(self, picture=self.svg())

    def _drawing(self) -> Drawing:
        from slackswap.evaluation.comparison.timeline_svg import TimelineRun, timeline_drawing

        runs = [
            TimelineRun(f"{name}: {_verdict(evaluation)}", evaluation)
            for name, evaluation in zip(self.names, self.evaluations, strict=True)
        ]
        return timeline_drawing(self.problem, runs)


def _verdict(evaluation: Evaluation) -> str:
    if evaluation.iteration_ns is None or evaluation.throughput is None:
        return f"does not fit: {evaluation.infeasible}"
    return f"{format_ns(evaluation.iteration_ns)}, {evaluation.throughput:.1%} of full throughput"


def _plan_of(plan: Plan | Solution) -> Plan:
    if isinstance(plan, Plan):
        return plan
    if plan.plan is None:
        raise InvalidPlan(
            f"{plan.planner.name} gave no plan ({plan.reason})", where="compare",
            fix="raise the budget, or compare another planner's plan",
        )
    return plan.plan


def _common_problem(plan_a: Plan | Solution, plan_b: Plan | Solution) -> Problem:
    problems = [plan.problem for plan in (plan_a, plan_b) if isinstance(plan, Solution)]
    if not problems:
        raise InvalidPlan(
            "two plans were given without a problem", where="compare",
            fix="give the problem: compare(plan_a, plan_b, problem)",
        )
    if len(problems) == 2:
        a, b = problems
        if (a.profile.sha256, a.hardware, a.budget_bytes) != (
            b.profile.sha256, b.hardware, b.budget_bytes
        ):
            raise InvalidPlan(
                "the solutions are of different problems", where="compare",
                fix="give the problem that both are to be scored on",
            )
    return problems[0]


def _names(first: Plan, second: Plan) -> tuple[str, str]:
    a, b = (plan.planner.name if plan.planner else "" for plan in (first, second))
    if a == b:
        return (f"{a} A", f"{b} B") if a else ("A", "B")
    return a or "A", b or "B"
