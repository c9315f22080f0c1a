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
    from slackswap.evaluation.claims import Claim, Finding, Judged, Verdict, judge_claims
    from slackswap.evaluation.figures import (
        action_figure,
        budget_figure,
        gap_figure,
        profile_figure,
        ranking_figure,
        search_figure,
        time_figure,
    )
    from slackswap.evaluation.finished import Finished, load_finished
    from slackswap.evaluation.frame import COLUMNS, export, latest, load_facts, load_results
    from slackswap.evaluation.gantt import gantt_figure
    from slackswap.evaluation.plan_comparison import PlanComparison, compare
    from slackswap.evaluation.report import write_report
    from slackswap.evaluation.session import run_suite
    from slackswap.evaluation.stalls import stalls_by_tensor
    from slackswap.evaluation.statistics import (
        bootstrap_interval,
        compare_planners,
        non_monotone_steps,
        performance_profiles,
        ranking,
        shifted_geometric_mean,
    )
    from slackswap.evaluation.store import Store
    from slackswap.evaluation.suite import Suite, load_suite, suite_names
    from slackswap.evaluation.trace import chrome_trace, write_trace

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
    "claims": ("Claim", "Finding", "Judged", "Verdict", "judge_claims"),
    "figures": (
        "action_figure",
        "budget_figure",
        "gap_figure",
        "profile_figure",
        "ranking_figure",
        "search_figure",
        "time_figure",
    ),
    "finished": ("Finished", "load_finished"),
    "frame": ("COLUMNS", "export", "latest", "load_facts", "load_results"),
    "gantt": ("gantt_figure",),
    "plan_comparison": ("PlanComparison", "compare"),
    "report": ("write_report",),
    "session": ("run_suite",),
    "stalls": ("stalls_by_tensor",),
    "statistics": (
        "bootstrap_interval",
        "compare_planners",
        "non_monotone_steps",
        "performance_profiles",
        "ranking",
        "shifted_geometric_mean",
    ),
    "store": ("Store",),
    "suite": ("Suite", "load_suite", "suite_names"),
    "trace": ("chrome_trace", "write_trace"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "COLUMNS",
    "CheckFailed",
    "CheckOutcome",
    "CheckReport",
    "CheckStatus",
    "Claim",
    "Finding",
    "Finished",
    "Judged",
    "PlanComparison",
    "Store",
    "Suite",
    "Verdict",
    "action_figure",
    "bootstrap_interval",
    "budget_figure",
    "check_names",
    "check_planner",
    "chrome_trace",
    "compare",
    "compare_planners",
    "export",
    "gantt_figure",
    "gap_figure",
    "judge_claims",
    "latest",
    "load_facts",
    "load_finished",
    "load_results",
    "load_suite",
    "non_monotone_steps",
    "performance_profiles",
    "profile_figure",
    "ranking",
    "ranking_figure",
    "run_checks",
    "run_suite",
    "search_figure",
    "shifted_geometric_mean",
    "stalls_by_tensor",
    "suite_names",
    "time_figure",
    "write_report",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'slackswap.evaluation' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"slackswap.evaluation.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
