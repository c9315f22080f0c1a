"""Give a plan to PyTorch's own machinery: selective checkpointing, and the memory-budget solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slackswap.errors import Skipped

if TYPE_CHECKING:
    from slackswap.plan import Plan
    from slackswap.problem import Problem


def as_checkpoint_policy(problem: Problem, plan: Plan) -> Any:
    """Return a plan as the ``context_fn`` of selective activation checkpointing.

    Pass it on: ``checkpoint(model, *inputs, use_reentrant=False, context_fn=policy)``. Checkpoint
    the whole step: operators are recognised by the number of their call.

    Parameters
    ----------
    problem : Problem
        With the captured profile that the plan is for.
    plan : Plan
        The plan. What is lost of it stands in ``policy.projection``, scored.

    Raises
    ------
    Skipped
        When PyTorch is not installed.
    InvalidPlan
        When the plan is not for this profile.
    """
    _need_torch()
    from slackswap.execution.pytorch import CheckpointContexts

    return CheckpointContexts(problem, plan)


def as_knapsack_solver(problem: Problem, plan: Plan) -> tuple[Any, Any]:
    """Return a plan as solver and runtime estimator of ``torch.compile``'s memory budget.

    Set them as ``torch._functorch.config.activation_memory_budget_solver`` and
    ``activation_memory_budget_runtime_estimator``, beside an ``activation_memory_budget`` below 1.

    Parameters
    ----------
    problem : Problem
        With the captured profile that the plan is for.
    plan : Plan
        The plan. What is lost of it stands in ``solver.projection``, scored.

    Returns
    -------
    solver, estimator
        Objects of PyTorch's interfaces; what they do not recognise in a graph stands in
        ``solver.unknown``.

    Raises
    ------
    Skipped
        When PyTorch is not installed.
    InvalidPlan
        When the plan is not for this profile.
    """
    _need_torch()
    from slackswap.execution.pytorch import PlanEstimator, PlanSolver

    return PlanSolver(problem, plan), PlanEstimator(problem, plan)


def _need_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise Skipped(
            "PyTorch is not installed", where="execution", fix="pip install 'slackswap[torch]'"
        ) from error
