"""From a model and a budget to a training step that keeps to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slackswap.errors import Skipped

if TYPE_CHECKING:
    from slackswap.execution.module import PlannedStep
    from slackswap.hardware import Hardware
    from slackswap.plan import Plan
    from slackswap.profile import Profile
    from slackswap.quantities import Budget
    from slackswap.registry import PlannerLike


def compile(
    model: Callable[..., Any] | str,
    example_inputs: Any = None,
    *,
    budget: Budget | None = None,
    planner: PlannerLike = "slackswap",
    plan: Plan | None = None,
    profile: Profile | None = None,
    hardware: Hardware | str | None = None,
    emulate_link: bool = False,
    order: str | None = None,
    device: str = "cpu",
    iterations: int = 5,
    seed: int = 0,
) -> PlannedStep:
    """Compile a model's training step so that its activations keep to a memory budget.

    The step is captured and measured, planned for, and compiled to a module that shares the model's
    parameters and buffers: train it in an ordinary loop, with any optimizer. Loss and gradients are
    the plain model's, to the bit.

    Parameters
    ----------
    model : callable or str
        A module, or a loss function over modules, that returns a scalar loss or an object with a
        ``loss``; or ``my_module:build``, a function that returns it and its inputs.
    example_inputs : tensor, tuple or dict
        What the model is called with. Every later call has the same shapes.
    budget : int, float, str or None
        As of `slackswap.Problem`: bytes, or a fraction of what keeping everything takes. It covers
        everything the cost model counts, and what is listed in ``reserved_bytes``.
    planner : str or planner
        Who plans, when no `plan` is given.
    plan : Plan, optional
        A plan for this model.
    profile : Profile, optional
        An earlier capture of this model: its times are taken, nothing is measured.
    hardware : Hardware or str, optional
        Whose link is planned for; by default this machine's copies are measured.
    emulate_link : bool
        Hold copies to the rates of `hardware`, to see how a step would run with such a link.
    order : str, optional
        ``live``: the rules of the cost model are asked whenever a copy or an op ends (default on a
        CPU). ``static``: waits are fixed beforehand, so that the peak does not depend on times
        (always on CUDA, where the host runs ahead).
    device : str
        ``cpu`` or ``cuda``; where the model and its inputs are.
    iterations : int
        Iterations to measure operators with.
    seed : int
        Of the planner.

    Returns
    -------
    PlannedStep
        An ``nn.Module``; ``report()`` compares the last step with its prediction.

    Raises
    ------
    Skipped
        When PyTorch is not installed.
    Infeasible
        When no plan of the planner fits the budget.
    DifferentModel
        When plan or profile is of another model.
    SlackSwapError
        When the model cannot be captured.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise Skipped(
            "PyTorch is not installed", where="execution", fix="pip install 'slackswap[torch]'"
        ) from error
    from slackswap.execution.building import build_step

    return build_step(
        model, example_inputs, budget=budget, planner=planner, plan=plan, profile=profile,
        hardware=hardware, emulate_link=emulate_link, order=order, device=device,
        iterations=iterations, seed=seed,
    )
