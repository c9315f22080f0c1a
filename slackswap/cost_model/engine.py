"""Scoring plans, on either engine: the compiled kernel or the readable reference."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from slackswap.cost_model import reference
from slackswap.cost_model.scorer import Scorer
from slackswap.errors import EnginesDisagree, InvalidPlan, SlackSwapError
from slackswap.hardware import Hardware
from slackswap.plan import Plan
from slackswap.problem import Problem, checked_problem
from slackswap.quantities import as_items
from slackswap.result import Evaluation

EngineName = Literal["kernel", "reference"]

_ENVIRONMENT = "SLACKSWAP_ENGINE"


def simulate(
    problem: Problem, plan: Plan, engine: EngineName | None = None, *, timeline: bool = False
) -> Evaluation:
    """Score a plan: simulate one iteration under it.

    Parameters
    ----------
    problem : Problem
        Profile, hardware and budget.
    plan : Plan
        What to do with each saved tensor.
    engine : {"kernel", "reference"}, optional
        The compiled kernel (default), or the readable reference; both give the same figures.
        Without it the environment variable ``SLACKSWAP_ENGINE`` decides: ``python`` is the
        reference.
    timeline : bool
        Also return the memory curve and what each stream did. Both engines run then, and must
        agree.

    Returns
    -------
    Evaluation
        With ``feasible = False`` and the reason when a valid plan does not fit.

    Raises
    ------
    InvalidPlan
        When the plan cannot be carried out whatever the budget.
    EnginesDisagree
        With `timeline`, if the engines differ: a bug.
    """
    checked_problem(problem).check_plan(plan)
    chosen = default_engine(engine)
    traced = reference.simulate(problem, plan) if timeline or chosen == "reference" else None
    if traced is not None and chosen == "reference":
        return traced
    scores = Scorer(problem).score_plans([plan])
    scores.check_valid()
    if traced is None:
        return scores.evaluation(0)
    _check_agreement(scores.evaluation(0), traced)
    return traced


def simulate_many(
    problem: Problem,
    plans: Sequence[Plan],
    engine: EngineName | None = None,
    *,
    jobs: int = 1,
) -> list[Evaluation]:
    """Score many plans of one problem in one call.

    Parameters
    ----------
    problem : Problem
        Profile, hardware and budget.
    plans : sequence of Plan
        The plans.
    engine : {"kernel", "reference"}, optional
        As in `simulate`.
    jobs : int
        Threads of the kernel.

    Raises
    ------
    InvalidPlan
        For the first plan that cannot be carried out, naming its place in `plans`.
    """
    checked_problem(problem)
    plans = as_items(plans, "plans", InvalidPlan)
    for number, plan in enumerate(plans):
        try:
            problem.check_plan(plan)
        except InvalidPlan as error:
            raise _in_list(error, number) from error
    if default_engine(engine) == "reference":
        return [_reference_in_list(problem, plan, number) for number, plan in enumerate(plans)]
    scores = Scorer(problem).score_plans(plans, jobs=jobs)
    scores.check_valid()
    return [scores.evaluation(number) for number in range(len(plans))]


def default_engine(engine: EngineName | None = None) -> EngineName:
    """Return the engine asked for, or the one the environment chooses."""
    chosen = engine or os.environ.get(_ENVIRONMENT, "kernel")
    if chosen in ("reference", "python"):
        return "reference"
    if chosen == "kernel":
        return "kernel"
    raise SlackSwapError(
        f"engine {chosen!r} is not known", where="engine" if engine else _ENVIRONMENT,
        fix="use kernel or reference",
    )


def warm_up() -> None:
    """Load and compile the kernel, so that later calls run at full speed."""
    from slackswap.profile import BackwardOp, ForwardOp, Profile, Tensor

    profile = Profile(
        "warm-up", "random", (Tensor("a", 1),), (ForwardOp("f", 1, (), (0,)),),
        (BackwardOp("b", 1, (0,)),),
    )
    Scorer(Problem(profile, Hardware("warm-up", 1, 1))).score(np.zeros((1, 1), dtype=np.int8))


def _check_agreement(kernel: Evaluation, traced: Evaluation) -> None:
    if kernel != replace(traced, memory_curve=None, timeline=None):
        raise EnginesDisagree(
            f"kernel and reference differ: {kernel} and {traced.to_dict()}",
            where="cost model", fix="this is a bug: please report the problem and the plan",
        )


def _in_list(error: InvalidPlan, number: int) -> InvalidPlan:
    return InvalidPlan(error.what, where=f"plans[{number}]: {error.where}", fix=error.fix)


def _reference_in_list(problem: Problem, plan: Plan, number: int) -> Evaluation:
    try:
        return replace(reference.simulate(problem, plan), memory_curve=None, timeline=None)
    except InvalidPlan as error:
        raise _in_list(error, number) from error
