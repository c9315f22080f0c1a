"""The check kit finds out whether a planner keeps the rules that comparisons rest on.

Run it as ``slackswap planners check TARGET``, or in pytest::

    import pytest
    from slackswap.evaluation import check_names, check_planner

    @pytest.mark.parametrize("check", check_names())
    def test_my_planner(check):
        check_planner(MyPlanner, check)
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from slackswap.errors import Skipped, SlackSwapError, UnknownName
from slackswap.evaluation.check.rules import RULES, Rule
from slackswap.evaluation.check.session import CheckFailed, Session
from slackswap.naming import did_you_mean
from slackswap.registry import PlannerLike

__all__ = [
    "CheckFailed",
    "CheckOutcome",
    "CheckReport",
    "CheckStatus",
    "check_names",
    "check_planner",
    "run_checks",
]


class CheckStatus(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What came of one check.

    Attributes
    ----------
    name, promise : str
        The check, and what it checks in one line.
    status : CheckStatus
        How it ended.
    reason : str
        Why it failed or was skipped.
    """

    name: str
    promise: str
    status: CheckStatus
    reason: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return a JSON object."""
        return {"name": self.name, "promise": self.promise, "status": str(self.status),
                "reason": self.reason}


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What came of all checks of a planner.

    Attributes
    ----------
    planner : str
        Its name.
    outcomes : tuple of CheckOutcome
        In the order they ran.
    """

    planner: str
    outcomes: tuple[CheckOutcome, ...]

    def with_status(self, status: CheckStatus) -> tuple[CheckOutcome, ...]:
        """Return the outcomes of one status."""
        return tuple(outcome for outcome in self.outcomes if outcome.status is status)

    @property
    def failed(self) -> tuple[CheckOutcome, ...]:
        """The checks that failed."""
        return self.with_status(CheckStatus.FAILED)

    @property
    def passed(self) -> bool:
        """Whether at least one check ran and none failed."""
        return not self.failed and bool(self.with_status(CheckStatus.PASSED))

    def summary(self) -> str:
        """Return one line that says how many ran, failed and were skipped."""
        skipped = len(self.with_status(CheckStatus.SKIPPED))
        ran = len(self.outcomes) - skipped
        return f"{self.planner}: {ran} checks ran, {len(self.failed)} failed, {skipped} skipped"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "planner": self.planner,
            "passed": self.passed,
            "ran": len(self.outcomes) - len(self.with_status(CheckStatus.SKIPPED)),
            "failed": len(self.failed),
            "skipped": len(self.with_status(CheckStatus.SKIPPED)),
            "checks": [outcome.to_dict() for outcome in self.outcomes],
        }


def check_names() -> tuple[str, ...]:
    """Return the names of all checks, in the order they run."""
    return tuple(rule.name for rule in RULES)


def run_checks(
    target: PlannerLike,
    checks: Iterable[str] | None = None,
    *,
    seed: int = 0,
    time_limit: float = 1.0,
    progress: Callable[[str], None] = lambda name: None,
) -> CheckReport:
    """Check a planner and report, whatever comes out.

    Parameters
    ----------
    target : str, Planner, type or callable
        As `slackswap.resolve_planner` takes it.
    checks : iterable of str, optional
        Names of checks; all of them by default.
    seed : int
        Seed of the planner's randomness.
    time_limit : float
        Seconds that the check of time limits gives the planner.
    progress : callable
        Told the name of each check before it runs.

    Raises
    ------
    UnknownName
        When there is no such check.
    SlackSwapError
        When the planner cannot be loaded.
    """
    rules = RULES if checks is None else [_rule(name) for name in checks]
    session = Session.of(target, seed=seed, time_limit=time_limit)
    outcomes = []
    for rule in rules:
        progress(rule.name)
        outcomes.append(_outcome(rule, session))
    return CheckReport(session.planner.name, tuple(outcomes))


def check_planner(
    target: PlannerLike, check: str | None = None, *, seed: int = 0, time_limit: float = 1.0
) -> CheckReport:
    """Check a planner and raise if it breaks a rule: for tests.

    Parameters
    ----------
    target : str, Planner, type or callable
        As `slackswap.resolve_planner` takes it.
    check : str, optional
        One of `check_names`; all of them by default.
    seed, time_limit
        As for `run_checks`.

    Returns
    -------
    CheckReport
        In which no check failed and at least one ran.

    Raises
    ------
    CheckFailed
        Naming every check that failed and why; also when no check ran.
    unittest.SkipTest
        When the one check asked for does not apply; pytest counts the test as skipped.
    """
    report = run_checks(
        target, None if check is None else [check], seed=seed, time_limit=time_limit
    )
    if check is not None and report.with_status(CheckStatus.SKIPPED):
        raise unittest.SkipTest(report.outcomes[0].reason)
    if report.failed:
        raise CheckFailed(
            "; ".join(f"{outcome.name}: {outcome.reason}" for outcome in report.failed),
            where=report.planner, fix="",
        )
    if not report.passed:
        raise CheckFailed("no check ran: all were skipped", where=report.planner)
    return report


def _rule(name: str) -> Rule:
    for rule in RULES:
        if rule.name == name:
            return rule
    raise UnknownName(
        f"no check is called {name!r}{did_you_mean(name, check_names())}", where="check",
        fix=f"use one of {', '.join(check_names())}",
    )


def _outcome(rule: Rule, session: Session) -> CheckOutcome:
    status, reason = CheckStatus.PASSED, ""
    try:
        rule.run(session)
    except Skipped as skip:
        status, reason = CheckStatus.SKIPPED, skip.what
    except SlackSwapError as error:
        status, reason = CheckStatus.FAILED, str(error)
    except Exception as error:
        status, reason = CheckStatus.FAILED, f"it raised {type(error).__name__}: {error}"
    return CheckOutcome(rule.name, rule.promise, status, reason)
