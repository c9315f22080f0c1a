"""Judging planners: suites, stored results, claims, figures, reports, and the check kit.

The names below are imported on first use, so that one tool does not pay for another's libraries.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slackswap.evaluation.check import (
        CheckFailed,
        CheckOutcome,
        CheckReport,
        CheckStatus,
        check_names,
        check_planner,
        run_checks,
    )

_HOME = {
    "check": (
        "CheckFailed",
        "CheckOutcome",
        "CheckReport",
        "CheckStatus",
        "check_names",
        "check_planner",
        "run_checks",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "CheckFailed",
    "CheckOutcome",
    "CheckReport",
    "CheckStatus",
    "check_names",
    "check_planner",
    "run_checks",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'slackswap.evaluation' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"slackswap.evaluation.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
