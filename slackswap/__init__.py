"""Plan which saved activations of a training step to keep, swap or recompute, and judge the plans.

The names below are imported on first use, so that ``import slackswap`` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slackswap.bound import Bound, BoundMethod, certified_gap
    from slackswap.cost_model.engine import simulate, simulate_many
    from slackswap.errors import (
        BoundViolated,
        Infeasible,
        InvalidBudget,
        InvalidFile,
        InvalidHardware,
        InvalidPlan,
        InvalidPlanner,
        InvalidProfile,
        Skipped,
        SlackSwapError,
        SlackSwapWarning,
        SolverFailed,
        UnknownName,
    )
    from slackswap.hardware import Hardware
    from slackswap.library import load_hardware, load_profile
    from slackswap.plan import Plan, PlannerInfo
    from slackswap.planner import Capabilities, Planner, Report
    from slackswap.problem import Problem
    from slackswap.profile import Action, BackwardOp, ForwardOp, Profile, Tensor
    from slackswap.registry import planner_names, register, resolve_planner, unregister
    from slackswap.result import Evaluation, Event, Infeasibility
    from slackswap.solving import Solution, solve
    from slackswap.status import Status

__version__ = "0.1.0"

_HOME = {
    "bound": ("Bound", "BoundMethod", "certified_gap"),
    "cost_model.engine": ("simulate", "simulate_many"),
    "errors": (
        "BoundViolated",
        "Infeasible",
        "InvalidBudget",
        "InvalidFile",
        "InvalidHardware",
        "InvalidPlan",
        "InvalidPlanner",
        "InvalidProfile",
        "Skipped",
        "SlackSwapError",
        "SlackSwapWarning",
        "SolverFailed",
        "UnknownName",
    ),
    "hardware": ("Hardware",),
    "library": ("load_hardware", "load_profile"),
    "plan": ("Plan", "PlannerInfo"),
    "planner": ("Capabilities", "Planner", "Report"),
    "problem": ("Problem",),
    "profile": ("Action", "BackwardOp", "ForwardOp", "Profile", "Tensor"),
    "registry": ("planner_names", "register", "resolve_planner", "unregister"),
    "result": ("Evaluation", "Event", "Infeasibility"),
    "solving": ("Solution", "solve"),
    "status": ("Status",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Action",
    "BackwardOp",
    "Bound",
    "BoundMethod",
    "BoundViolated",
    "Capabilities",
    "Evaluation",
    "Event",
    "ForwardOp",
    "Hardware",
    "Infeasibility",
    "Infeasible",
    "InvalidBudget",
    "InvalidFile",
    "InvalidHardware",
    "InvalidPlan",
    "InvalidPlanner",
    "InvalidProfile",
    "Plan",
    "Planner",
    "PlannerInfo",
    "Problem",
    "Profile",
    "Report",
    "Skipped",
    "SlackSwapError",
    "SlackSwapWarning",
    "Solution",
    "SolverFailed",
    "Status",
    "Tensor",
    "UnknownName",
    "__version__",
    "certified_gap",
    "load_hardware",
    "load_profile",
    "planner_names",
    "register",
    "resolve_planner",
    "simulate",
    "simulate_many",
    "solve",
    "unregister",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'slackswap' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"slackswap.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
