"""Errors that a user can read: what is wrong, where, and what would fix it."""

from __future__ import annotations

from typing import Any, ClassVar


class SlackSwapWarning(UserWarning):
    """Something worth knowing that does not stop the work."""


class SlackSwapError(Exception):
    """Base of every error this package raises on purpose.

    Parameters
    ----------
    what : str
        What is wrong, as one sentence without a final stop.
    where : str, optional
        The place: a file, a field, an op, a tensor.
    fix : str, optional
        What would make it right.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f". {self.fix[0].upper()}{self.fix[1:]}" if self.fix else ""
        return f"{place}{self.what}{remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only arguments do not survive Exception's own pickling, and
        # errors cross process boundaries in the runner.
        return _rebuild, (type(self), self.what, self.where, self.fix)


def _rebuild(kind: type[SlackSwapError], what: str, where: str, fix: str) -> SlackSwapError:
    return kind(what, where=where, fix=fix)


class InvalidFile(SlackSwapError):
    """A file cannot be read, is too large, or is not the format it claims to be."""


class InvalidProfile(SlackSwapError):
    """A profile breaks a rule of the format."""


class InvalidHardware(SlackSwapError):
    """A hardware description breaks a rule of the format."""


class InvalidPlan(SlackSwapError):
    """A plan cannot be carried out on this problem, whatever the memory budget."""


class InvalidBudget(SlackSwapError):
    """A memory budget cannot be understood."""


class InvalidPlanner(SlackSwapError):
    """A planner cannot be loaded or does not follow the protocol."""


class PlannerFailed(SlackSwapError):
    """A planner raised an error, ended its process, or answered what cannot be read."""


class UnknownName(SlackSwapError):
    """No built-in profile, hardware, planner or suite has this name."""


class Infeasible(SlackSwapError):
    """No plan within a planner's rule fits the budget."""

    exit_code: ClassVar[int] = 3


class Skipped(SlackSwapError):
    """A planner does not apply here, or an optional part it needs is absent."""


class SolverFailed(SlackSwapError):
    """A solver stopped without an answer."""


class BoundViolated(SlackSwapError):
    """A lower bound lies above a simulated time: a bug in this package, never a result."""


class EnginesDisagree(SlackSwapError):
    """Reference and kernel give different results: a bug in this package, never a result."""
