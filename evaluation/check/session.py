"""Asking a planner under observation: what it answered, and what it did beside answering."""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from slackswap import files
from slackswap.errors import Skipped, SlackSwapError
from slackswap.evaluation.check.cases import Case
from slackswap.planner import Planner
from slackswap.problem import Problem
from slackswap.registry import PlannerLike, resolve_planner
from slackswap.solving import Solution, solve
from slackswap.status import Status

#: Seconds after which a planner that was given no limit is interrupted.
PATIENCE_S = 120.0
#: The same for one that was given a limit, as a multiple of it and beyond it.
_PATIENCE_FACTOR, _PATIENCE_MORE_S = 5.0, 5.0


class CheckFailed(SlackSwapError, AssertionError):
    """A planner broke a rule that the check kit checks."""


class NeverReturned(CheckFailed):
    """A planner had to be interrupted."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One answer of a planner, and what else happened.

    Attributes
    ----------
    case : Case
        The problem.
    solution : Solution
        The answer, scored.
    mutated : str
        What of the problem was changed; empty if nothing.
    touched : str
        Which global random state was changed; empty if none.
    """

    case: Case
    solution: Solution
    mutated: str
    touched: str

    @property
    def declined(self) -> bool:
        """Whether the planner said that it does not apply to this problem."""
        return self.solution.status is Status.SKIPPED


@dataclass(slots=True)
class Session:
    """Asks one planner, and remembers the answers for the next check.

    Attributes
    ----------
    target : PlannerLike
        As it was given.
    planner : Planner
        The planner itself.
    seed : int
        Seed of its randomness.
    time_limit : float
        Seconds that the check of time limits gives.
    """

    target: PlannerLike
    planner: Planner
    seed: int
    time_limit: float
    _answers: dict[tuple[str, int], Observed] = field(default_factory=dict)
    _never_returned: bool = False

    @classmethod
    def of(cls, target: PlannerLike, *, seed: int = 0, time_limit: float = 1.0) -> Session:
        """Start a session; errors as in `resolve_planner`."""
        return cls(target, resolve_planner(target), seed, time_limit)

    def ask(self, case: Case, *, seed: int | None = None, again: bool = False) -> Observed:
        """Return the planner's answer to a case, the remembered one unless asked `again`.

        Raises
        ------
        CheckFailed
            When it does not return within `PATIENCE_S`.
        Exception
            Whatever the planner raises.
        """
        key = (case.name, self.seed if seed is None else seed)
        if again or key not in self._answers:
            answer = self.observe(case, seed=key[1])
            if again:
                return answer
            self._answers[key] = answer
        return self._answers[key]

    def observe(
        self, case: Case, *, seed: int | None = None, time_limit: float | None = None
    ) -> Observed:
        """Ask the planner once, and look at what it changes; errors as in `ask`.

        Once it had to be interrupted it is asked no more.
        """
        if self._never_returned:
            raise Skipped("it did not return when it was asked before")
        try:
            return _observe(
                self.planner, case, self.seed if seed is None else seed, time_limit
            )
        except NeverReturned:
            self._never_returned = True
            raise

    def answers(self, cases: tuple[Case, ...]) -> list[Observed]:
        """Return the answers to all cases that the planner applies to.

        Raises
        ------
        Skipped
            When it applies to none of them.
        """
        found = [self.ask(case) for case in cases]
        taken = [answer for answer in found if not answer.declined]
        if not taken:
            raise Skipped(f"the planner declined all its problems ({found[0].solution.reason})")
        return taken


def _observe(planner: Planner, case: Case, seed: int, time_limit: float | None) -> Observed:
    patience = (
        PATIENCE_S if time_limit is None else _PATIENCE_FACTOR * time_limit + _PATIENCE_MORE_S
    )
    problem = case.build()
    _ = problem.keep_all_peak_bytes, problem.profile.sha256, problem.profile.index_of
    before, states = _contents(problem), _random_states()
    try:
        with _interrupted_after(patience, planner.name):
            solution = solve(problem, planner, seed=seed, time_limit=time_limit)
    finally:
        after = _random_states()
        _restore(states)
    contents = _contents(problem)
    mutated = ", ".join(name for name, value in before.items() if contents[name] != value)
    # A library that the planner was the first to load had no state before.
    touched = ", ".join(name for name in states if repr(after[name]) != repr(states[name]))
    return Observed(case, solution, mutated, touched)


def _contents(problem: Problem) -> dict[str, object]:
    """Return all that a planner could write to: the documents, and the arrays that are shared."""
    contents: dict[str, object] = {
        "problem.profile": files.canonical_json(problem.profile.to_dict()),
        "problem.profile.index_of": tuple(problem.profile.index_of.items()),
        "problem.hardware": files.canonical_json(problem.hardware.to_dict()),
        "problem.budget_bytes": problem.budget_bytes,
    }
    graph = problem.profile.graph
    for spec in fields(graph):
        value = getattr(graph, spec.name)
        name = f"problem.profile.graph.{spec.name}"
        if isinstance(value, np.ndarray):
            contents[name] = value.tobytes()
        elif hasattr(value, "items") and hasattr(value, "start"):
            contents[name] = (value.start.tobytes(), value.items.tobytes())
        else:
            contents[name] = value
    return contents


def _random_states() -> dict[str, Any]:
    """Return the state of every global generator that is loaded."""
    states: dict[str, Any] = {
        "random": random.getstate(),
        # Arrays print shortened, and states are compared as text.
        "numpy.random": _listed(np.random.get_state()),
    }
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        states["torch"] = torch.get_rng_state().tolist()
    return states


def _listed(state: Any) -> tuple[Any, ...]:
    return tuple(part.tolist() if isinstance(part, np.ndarray) else part for part in state)


def _restore(states: dict[str, Any]) -> None:
    random.setstate(states["random"])
    name, keys, *rest = states["numpy.random"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
    if "torch" in states:
        torch = sys.modules["torch"]
        torch.set_rng_state(torch.tensor(states["torch"], dtype=torch.uint8))


@contextlib.contextmanager
def _interrupted_after(seconds: float, name: str) -> Iterator[None]:
    """Raise in the main thread when the time is over; where there are no signals, do nothing."""
    usable = hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()
    if not usable:
        yield
        return

    def interrupt(signum: int, frame: object) -> None:
        raise NeverReturned(
            f"{name} did not return within {seconds:g} s", where="planner",
            fix="give it a limit of its own, and let it keep `time_limit`",
        )

    earlier = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
