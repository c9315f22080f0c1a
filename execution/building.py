"""Do the work of `slackswap.execution.compile`: capture, plan, compile, and set memory aside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from slackswap.cost_model.engine import simulate
from slackswap.errors import Infeasible, SlackSwapError
from slackswap.execution.copy_rate import measure_copy_rate
from slackswap.execution.cuda import CudaStreams
from slackswap.execution.link import Link
from slackswap.execution.module import PlannedStep
from slackswap.execution.planned import Planned
from slackswap.execution.program import Program, check_profile, compile_program
from slackswap.execution.reserve import fixed_reserve, reserve_of
from slackswap.execution.static import Streams
from slackswap.execution.thread_streams import ThreadStreams
from slackswap.execution.threads import ThreadLink
from slackswap.execution.timetable import Timetable
from slackswap.execution.values import Executable
from slackswap.hardware import Hardware
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.profile import Profile
from slackswap.profiles.capture.link import fit_hardware, measure_link
from slackswap.profiles.capture.session import Captured, capture_step
from slackswap.profiles.capture.target import load_build
from slackswap.profiles.library import load_hardware
from slackswap.quantities import Budget, format_bytes
from slackswap.registry import PlannerLike
from slackswap.solving import solve

#: Plans made with ever more set aside before a budget counts as too small.
_ATTEMPTS = 5


def build_step(
    model: Callable[..., Any] | str,
    example_inputs: Any,
    *,
    budget: Budget | None,
    planner: PlannerLike,
    plan: Plan | None,
    profile: Profile | None,
    hardware: Hardware | str | None,
    emulate_link: bool,
    order: str | None,
    device: str,
    iterations: int,
    seed: int,
) -> PlannedStep:
    """See `slackswap.execution.compile`."""
    build = load_build(model) if isinstance(model, str) else lambda: (model, example_inputs)
    chosen = load_hardware(hardware) if isinstance(hardware, str) else hardware
    captured = capture_step(
        build, device=device, hardware=None, optimizer="none", iterations=iterations, warmup=2,
        name=None, description=None, prices=None, seed=0,
    )
    if profile is not None:
        check_profile(captured.lowered, profile)
    where = torch.device(device)
    problem = Problem(profile or captured.profile, chosen or link_of(captured), budget)
    planned = (
        compile_plan(captured, problem, plan, where) if plan is not None
        else plan_and_compile(captured, problem, planner, where, seed=seed)
    )
    emulated = problem.hardware if emulate_link else None
    return PlannedStep(captured, planned, carrier(captured, where, emulated, order))


def carrier(
    captured: Captured, device: torch.device, emulated: Hardware | None = None,
    order: str | None = None,
) -> Link | Streams:
    """Return what carries copies out on a device.

    Parameters
    ----------
    captured : Captured
        Whose tensors are copied.
    device : torch.device
        Where the step runs.
    emulated : Hardware, optional
        Rates that copies are held to; on a CPU only.
    order : str, optional
        ``live`` or ``static``.

    Raises
    ------
    SlackSwapError
        When the device cannot do it.
    """
    if order not in (None, "live", "static"):
        raise SlackSwapError(f"{order!r} is no order", where="order", fix="use live or static")
    if device.type == "cuda":
        if order == "live" or emulated is not None:
            raise SlackSwapError(
                "live admission and emulated links need a host that waits for every op",
                where=f"device {device}", fix="leave order and the emulated link out",
            )
        return CudaStreams(device)
    if order == "static":
        return ThreadStreams(lambda t: captured.profile.tensors[t].nbytes, emulated)
    return ThreadLink(emulated)


def link_of(captured: Captured) -> Hardware:
    """Return the link of the machine that a step was captured on, measured."""
    device = next(captured.subject.step.parameters()).device
    if device.type == "cuda":
        return fit_hardware(measure_link(), torch.cuda.get_device_name(device))
    return measure_copy_rate()


def compile_plan(
    captured: Captured, problem: Problem, plan: Plan, device: torch.device
) -> Planned:
    """Compile a plan, and set aside what it takes beyond the profile.

    Raises
    ------
    Infeasible
        When what remains of the budget is too little for the plan.
    InvalidPlan
        When it cannot be carried out whatever the budget.
    """
    return _finished(
        problem, compile_program(captured.lowered, Timetable.of(problem, plan)), plan, device
    )


def _finished(problem: Problem, program: Program, plan: Plan, device: torch.device) -> Planned:
    """Check that a compiled plan fits beside what is set aside for it."""
    reserved = reserve_of(program, device)
    table = Timetable.of(_less(problem, reserved), plan)
    prediction = simulate(table.problem, plan, timeline=True)
    if not prediction.feasible:
        raise Infeasible(
            f"the plan does not fit: {prediction.infeasible}",
            where=f"budget {format_bytes(problem.budget_bytes)}, of which {reserved:,} bytes are "
            "set aside for what the profile does not count",
            fix="plan for a smaller budget, or run it with a larger one",
        )
    return Planned(
        problem, reserved, prediction, Executable.of(table, program, device)
    )


def plan_and_compile(
    captured: Captured, problem: Problem, planner: PlannerLike, device: torch.device,
    *, seed: int = 0,
) -> Planned:
    """Plan for a budget, and compile the plan.

    What a plan takes beyond the profile is known when it is there. So each attempt sets aside what
    the plan before it took, until one fits.

    Raises
    ------
    Infeasible
        When the planner has no plan for the budget.
    """
    reserve = fixed_reserve(captured.lowered)
    for _ in range(_ATTEMPTS):
        solution = solve(_less(problem, reserve), planner, seed=seed)
        if solution.plan is None or not solution.status.has_plan:
            reason = solution.reason or f"its answer is {solution.status}"
            break
        program = compile_program(captured.lowered, Timetable.of(problem, solution.plan))
        try:
            return _finished(problem, program, solution.plan, device)
        except Infeasible as error:
            reason, reserve = error.what, max(reserve + 1, reserve_of(program, device))
    raise Infeasible(
        f"{solution.planner.name} has no plan: {reason}",
        where=f"budget {format_bytes(problem.budget_bytes)}, of which {reserve:,} bytes are "
        "set aside for what the profile does not count",
        fix="give a larger budget, or name another planner",
    )


def _less(problem: Problem, reserve: int) -> Problem:
    if not problem.is_limited:
        return problem
    return problem.with_budget(max(1, problem.budget_bytes - reserve))
