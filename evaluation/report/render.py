"""How the domain's objects look in a notebook: small tables in the notebook's own colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from html import escape
from typing import Any

from slackswap.hardware import Hardware
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.profile import Profile
from slackswap.quantities import format_bytes, format_ns, format_seconds
from slackswap.result import Evaluation
from slackswap.solving import Solution

Pairs = Iterable[tuple[str, str]]


def render(value: object) -> str:
    """Return a value of the domain as HTML; anything else as escaped text."""
    for kind, (title, pairs) in _RENDERERS.items():
        if isinstance(value, kind):
            return _table(title(value), pairs(value))
    return f"<pre>{escape(repr(value))}</pre>"


def _profile(profile: Profile) -> Pairs:
    graph = profile.graph
    problem = Problem(profile, _ANY_HARDWARE)
    yield "source", profile.source
    yield "ops", f"{len(profile.forward)} forward, {len(profile.backward)} backward"
    yield "tensors", (
        f"{len(profile.tensors)}, {int(graph.is_saved.sum())} saved "
        f"({format_bytes(int(graph.nbytes[graph.is_saved].sum()))})"
    )
    yield "iteration", f"{format_ns(profile.duration_ns)}, keeping everything"
    yield "keep-everything peak", format_bytes(problem.keep_all_peak_bytes)
    if profile.static_bytes:
        yield "static", f"{format_bytes(profile.static_bytes)} (weights, gradients, optimizer)"
    for name in ("model", "batch", "sequence", "dtype", "device"):
        if name in profile.provenance:
            yield name, str(profile.provenance[name])
    yield "sha256", profile.sha256[:16] + "…"


def _plan(plan: Plan) -> Pairs:
    counts = Counter(map(str, plan.actions.values()))
    yield "actions", ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"
    for name, entries in (
        ("offload gates", plan.offload_gates), ("offload barriers", plan.offload_barriers),
        ("prefetch gates", plan.prefetch_gates), ("prefetch barriers", plan.prefetch_barriers),
    ):
        if entries:
            yield name, str(len(entries))
    if plan.planner is not None:
        yield "planner", f"{plan.planner.name} {plan.planner.version}"
        if plan.planner.parameters:
            yield "parameters", ", ".join(f"{k}={v}" for k, v in plan.planner.parameters.items())
        if plan.planner.seed is not None:
            yield "seed", str(plan.planner.seed)


def _problem(problem: Problem) -> Pairs:
    yield "profile", problem.profile.name
    yield "hardware", problem.hardware.name
    if problem.is_limited:
        yield "budget", f"{format_bytes(problem.budget_bytes)}, {problem.fraction:.1%} of the peak"
    else:
        yield "budget", "unlimited"
    yield "keep-everything peak", format_bytes(problem.keep_all_peak_bytes)
    static, device = problem.profile.static_bytes, problem.hardware.device_bytes
    if problem.is_limited and device is not None:
        total = static + problem.budget_bytes
        fits = "fits" if total <= device else "does not fit"
        yield "static + budget", f"{format_bytes(total)}: {fits} {format_bytes(device)}"


def _hardware(hardware: Hardware) -> Pairs:
    yield "to host", f"{format_bytes(hardware.d2h_bytes_per_s)}/s"
    yield "to device", f"{format_bytes(hardware.h2d_bytes_per_s)}/s"
    yield "latency", format_ns(hardware.latency_ns)
    yield "duplex", "full" if hardware.full_duplex else "half"
    if hardware.device_bytes is not None:
        yield "memory", format_bytes(hardware.device_bytes)


def _evaluation(evaluation: Evaluation) -> Pairs:
    if evaluation.iteration_ns is None:
        yield "feasible", f"no: {evaluation.infeasible or 'there is no plan'}"
        return
    total = max(1, evaluation.iteration_ns)
    yield "throughput", f"{evaluation.throughput:.2%} of that with memory unlimited"
    yield "iteration", format_ns(evaluation.iteration_ns)
    for name, value in (
        ("recompute", evaluation.recompute_ns),
        ("stall, forward", evaluation.stall_forward_ns),
        ("stall, backward", evaluation.stall_backward_ns),
    ):
        if value is not None:
            yield name, f"{format_ns(value)} ({value / total:.2%})"
    yield "peak", format_bytes(evaluation.peak_bytes or 0)
    yield "to host", (
        f"{format_bytes(evaluation.offloaded_bytes or 0)}, busy {evaluation.d2h_utilisation:.1%}"
    )
    yield "to device", (
        f"{format_bytes(evaluation.prefetched_bytes or 0)}, busy {evaluation.h2d_utilisation:.1%}"
    )


def _solution(solution: Solution) -> Pairs:
    yield "status", str(solution.status)
    if solution.reason:
        yield "why", solution.reason
    yield "problem", (
        f"{solution.problem.profile.name} on {solution.problem.hardware.name} at "
        f"{format_bytes(solution.problem.budget_bytes)}"
    )
    if solution.evaluation is not None:
        yield from _evaluation(solution.evaluation)
    yield "planning", f"{format_seconds(solution.planning_s)}, warm"
    if solution.gap is not None:
        yield "gap", f"{solution.gap:.3%} to its own bound"


def _table(title: str, pairs: Pairs) -> str:
    rows = "".join(
        f"<tr><th style='text-align:left;font-weight:normal;opacity:.7'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in pairs
    )
    return f"<div><strong>{escape(title)}</strong><table>{rows}</table></div>"


_ANY_HARDWARE = Hardware("any", 1, 1)

_RENDERERS: dict[type, tuple[Callable[[Any], str], Callable[[Any], Pairs]]] = {
    Profile: (lambda profile: f"Profile {profile.name}", _profile),
    Plan: (lambda plan: f"Plan{f' by {plan.planner.name}' if plan.planner else ''}", _plan),
    Problem: (lambda problem: f"Problem {problem.profile.name}", _problem),
    Hardware: (lambda hardware: f"Hardware {hardware.name}", _hardware),
    Evaluation: (lambda _: "Evaluation", _evaluation),
    Solution: (lambda solution: f"Solution by {solution.planner.name}", _solution),
}
