"""Capture a model, plan with several planners, and train under each plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from slackswap.errors import Infeasible, InvalidPlan
from slackswap.execution.building import carrier, link_of, plan_and_compile
from slackswap.execution.trial import Trial, try_plans
from slackswap.hardware import Hardware
from slackswap.problem import Problem
from slackswap.profiles.capture.session import capture_step
from slackswap.profiles.capture.target import Build, load_build
from slackswap.quantities import Budget
from slackswap.registry import PlannerLike, resolve_planner


@dataclass(frozen=True, slots=True)
class Run:
    """What came of running some planners' plans.

    Attributes
    ----------
    problem : Problem
        The captured profile, the link that was planned for, and the whole budget.
    trials : tuple of Trial
        Fastest measured step first.
    without_plan : tuple of (str, str)
        Planners that had no plan for the budget, and why.
    """

    problem: Problem
    trials: tuple[Trial, ...]
    without_plan: tuple[tuple[str, str], ...]


def run_planners(
    target: str | Build,
    planners: Sequence[PlannerLike],
    *,
    budget: Budget | None,
    steps: int,
    hardware: Hardware | None = None,
    order: str | None = None,
    device: str = "cpu",
    iterations: int = 5,
    seed: int = 0,
) -> Run:
    """Run a model under each planner's plan.

    Parameters
    ----------
    target : str or callable
        ``my_module:build``, or the function: it returns a model and its example inputs.
    planners : sequence of planners
        As `slackswap.solve` takes them.
    budget : int, float, str or None
        For the activations.
    steps : int
        Training steps that are timed.
    hardware : Hardware, optional
        A link to plan for and to hold copies to. Without one this machine's copies are measured,
        and go as fast as they can.
    order : str, optional
        ``live`` or ``static``, as of `slackswap.execution.compile`.
    device : str
        Where to run.
    iterations : int
        Iterations to measure operators with.
    seed : int
        Of planners and of PyTorch's random numbers.
    """
    chosen = [resolve_planner(planner) for planner in planners]
    captured = capture_step(
        load_build(target), device=device, hardware=None, optimizer="adamw",
        iterations=iterations, warmup=2, name=None, description=None, prices=None, seed=seed,
    )
    problem = Problem(captured.profile, hardware or link_of(captured), budget)
    where = torch.device(device)
    plans, without = [], []
    for planner in chosen:
        try:
            plans.append(
                plan_and_compile(captured, problem, planner, where, seed=seed)
            )
        except (Infeasible, InvalidPlan) as error:
            without.append((planner.name, str(error)))
    trials = try_plans(
        captured, plans, lambda: carrier(captured, where, hardware, order), steps=steps, seed=seed
    )
    trials.sort(key=lambda trial: trial.report.measured.step_ns)
    return Run(problem, tuple(trials), tuple(without))
