"""Plans by search, and lower bounds on every plan.

The names below are imported on first use, so that one tool does not pay for another's libraries.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slackswap.search.bounds import lower_bound
    from slackswap.search.enumeration import Enumerate
    from slackswap.search.feasibility import LeastBudget, least_budget
    from slackswap.search.milp_planner import MilpPlanner

_MODULE_OF = {
    "Enumerate": "enumeration",
    "LeastBudget": "feasibility",
    "MilpPlanner": "milp_planner",
    "least_budget": "feasibility",
    "lower_bound": "bounds",
}

__all__ = ["Enumerate", "LeastBudget", "MilpPlanner", "least_budget", "lower_bound"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'slackswap.search' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"slackswap.search.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
