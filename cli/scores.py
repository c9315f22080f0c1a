"""One plan's score, for people and as JSON: what `plan` and `simulate` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slackswap.bound import Bound, gap_of_plan, status_with_gap
from slackswap.cli.output import heading, print_pairs
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.profile import Action
from slackswap.quantities import format_bytes, format_ns, format_seconds
from slackswap.result import Evaluation
from slackswap.solving import Solution
from slackswap.status import Status


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan with its score and the bound beside it; or why there is none.

    Attributes
    ----------
    problem : Problem
        What was asked.
    planner : str or None
        Who made the plan.
    status : Status
        How it ended.
    plan, evaluation : Plan, Evaluation or None
        The plan and its score.
    bound : Bound or None
        Lower bound on every plan's time.
    bound_note : str
        Why there is no bound, if one was asked for.
    reason : str
        Why there is no plan that fits.
    planning_s, warm_up_s : float or None
        Time it took to plan, and to get ready.
    more : mapping
        What else the JSON object holds.
    """

    problem: Problem
    planner: str | None
    status: Status
    plan: Plan | None
    evaluation: Evaluation | None
    bound: Bound | None = None
    bound_note: str = ""
    reason: str = ""
    planning_s: float | None = None
    warm_up_s: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, solution: Solution, bound: Bound | None, bound_note: str = "") -> Answer:
        """Return what came of asking a planner."""
        document = solution.to_dict()
        more = {
            key: document[key]
            for key in ("planner_version", "parameters", "seed", "warm_up_s", "statistics")
        }
        answer = cls(
            solution.problem, solution.planner.name, solution.status, solution.plan,
            solution.evaluation, bound, bound_note, solution.reason, solution.planning_s,
            solution.warm_up_s, more,
        )
        return replace(answer, status=status_with_gap(answer.status, answer.gap))

    @property
    def fits(self) -> bool:
        """Whether there is a plan within the budget."""
        return self.evaluation is not None and self.evaluation.feasible

    @property
    def impossible(self) -> bool:
        """Whether it is proven that no plan at all fits."""
        return self.bound is not None and self.bound.status is Status.INFEASIBLE

    @property
    def gap(self) -> float | None:
        """Certified gap; None without a plan that fits or a bound that holds for it."""
        return gap_of_plan(
            None if self.evaluation is None else self.evaluation.iteration_ns, self.bound,
            has_order=self.plan is not None and self.plan.has_order,
        )

    def to_dict(self, *, with_plan: bool = False) -> dict[str, Any]:
        """Return the JSON object that commands print."""
        problem = self.problem
        document: dict[str, Any] = {
            "profile": problem.profile.name,
            "profile_sha256": problem.profile.sha256,
            "hardware": problem.hardware.name,
            "planner": self.planner,
            "status": str(self.status),
            "reason": self.reason,
            "warning": problem.warning,
            "budget_bytes": problem.budget_bytes if problem.is_limited else None,
            "keep_all_peak_bytes": problem.keep_all_peak_bytes,
            "static_bytes": problem.profile.static_bytes,
            "device_bytes": problem.hardware.device_bytes,
            **(self.evaluation or Evaluation(feasible=False)).to_dict(),
            "planning_s": self.planning_s,
            **self.more,
            **(self.bound.to_dict() if self.bound else {"bound_ns": None}),
            "gap": self.gap,
        }
        if self.bound_note:
            document["bound_note"] = self.bound_note
        if with_plan:
            document["plan"] = None if self.plan is None else self.plan.to_dict()
        return document


def problem_line(problem: Problem) -> str:
    """Return one line that says what is planned for."""
    budget = "with unlimited memory"
    if problem.is_limited:
        budget = (
            f"within {format_bytes(problem.budget_bytes)}, {problem.fraction:.3g} of the "
            f"{format_bytes(problem.keep_all_peak_bytes)} that keeping everything takes"
        )
    return f"{problem.profile.name} on {problem.hardware.name} {budget}"


def print_answer(
    answer: Answer, written: str | None = None, more: Sequence[tuple[str, str]] = ()
) -> None:
    """Print a plan's score for people, `more` labelled lines after the bound."""
    heading(f"{answer.planner or 'the plan'}: {problem_line(answer.problem)}")
    pairs = _score_lines(answer) if answer.fits else [("no plan", answer.reason)]
    if answer.planning_s is not None:
        warm_up = f", after {format_seconds(answer.warm_up_s)} of warm-up" if answer.warm_up_s \
            else ""
        pairs.append(("planning", f"{format_seconds(answer.planning_s)}{warm_up}"))
    pairs += [*_bound_lines(answer), *more]
    pairs.append(("device", device_line(answer.problem)))
    if answer.problem.warning:
        pairs.append(("warning", answer.problem.warning))
    if answer.status is Status.TIMEOUT:
        pairs.append(("status", f"timeout: {answer.reason}"))
    if written is not None:
        pairs.append(("written", written))
    print_pairs(pairs)


def _score_lines(answer: Answer) -> list[tuple[str, str]]:
    score = answer.evaluation
    assert score is not None
    problem = answer.problem
    pairs = [
        ("throughput", f"{percent(score.throughput)} of keeping everything: "
                       f"{format_ns(score.iteration_ns or 0)} an iteration instead of "
                       f"{format_ns(problem.profile.duration_ns)}"),
        ("stalls", f"{format_ns(score.stall_forward_ns or 0)} in forward, "
                   f"{format_ns(score.stall_backward_ns or 0)} in backward"),
        ("recompute", format_ns(score.recompute_ns or 0)),
        ("peak", format_bytes(score.peak_bytes or 0)
                 + (f" of {format_bytes(problem.budget_bytes)}" if problem.is_limited else "")),
        ("link", f"{format_bytes(score.offloaded_bytes or 0)} out "
                 f"(busy {percent(score.d2h_utilisation)} of the time), "
                 f"{format_bytes(score.prefetched_bytes or 0)} back "
                 f"({percent(score.h2d_utilisation)})"),
    ]
    if answer.plan is not None:
        pairs.append(("actions", _action_line(problem, answer.plan)))
    return pairs


def _action_line(problem: Problem, plan: Plan) -> str:
    graph, index_of = problem.profile.graph, problem.profile.index_of
    chosen = {index_of[name]: action for name, action in plan.actions.items()}
    parts = []
    for action in Action:
        tensors = [
            t for t in range(graph.n_tensors)
            if not graph.is_input[t]
            and (graph.is_saved[t] or chosen.get(t, Action.RECOMPUTE) is not Action.RECOMPUTE)
            and chosen.get(t, Action.KEEP) is action
        ]
        nbytes = sum(int(graph.nbytes[t]) for t in tensors)
        parts.append(f"{action} {len(tensors)} tensors ({format_bytes(nbytes)})")
    return ", ".join(parts)


def _bound_lines(answer: Answer) -> list[tuple[str, str]]:
    bound = answer.bound
    if bound is None:
        return [("bound", f"none: {answer.bound_note}")] if answer.bound_note else []
    lines = [("bound", bound_line(bound))]
    if answer.gap is not None:
        slower = "no slower" if answer.gap == 0 else f"at most {percent(answer.gap)} slower"
        lines.append(("gap", f"{slower} than the fastest plan there can be"
                             f"{'' if bound.safe else ', within the tolerance'}"))
    return lines


def bound_line(bound: Bound) -> str:
    """Return one line that says what a bound proves, and how."""
    if bound.status is Status.INFEASIBLE:
        how = f"{bound.method}, {format_seconds(bound.runtime_s)}"
        note = bound.note.removeprefix("no plan fits: ")
        return f"no plan fits, proven ({how})" + (f": {note}" if note else "")
    how = str(bound.method) if bound.solver is None else f"{bound.method} by {bound.solver}"
    trust = "exact" if bound.safe else f"solver tolerance {bound.tolerance:.1g}"
    text = (f"no plan takes less than {format_ns(bound.value_ns)} "
            f"({how}, {bound.status}, {trust}, {format_seconds(bound.runtime_s)})")
    return f"{text}; {bound.note}" if bound.note else text


def device_line(problem: Problem) -> str:
    """Return static bytes plus budget against the device's memory."""
    static, device = problem.profile.static_bytes, problem.hardware.device_bytes
    used = problem.budget_bytes if problem.is_limited else problem.keep_all_peak_bytes
    what = "budget" if problem.is_limited else "keep-everything peak"
    text = (f"static {format_bytes(static)} + {what} {format_bytes(used)} = "
            f"{format_bytes(static + used)}")
    if device is None:
        return text
    left = device - static - used
    verdict = f"{format_bytes(left)} free" if left >= 0 else f"{format_bytes(-left)} too much"
    return f"{text} of {format_bytes(device)}: {verdict}"


def percent(fraction: float | None) -> str:
    """Return a fraction for people: two digits after the point where it is below one percent."""
    if fraction is None:
        return "-"
    if fraction and abs(fraction) < 0.01:
        return f"{100 * fraction:.2g}%"
    return f"{100 * fraction:.1f}%"
