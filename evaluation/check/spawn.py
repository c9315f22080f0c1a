"""Runs a planner in a fresh interpreter, as worker processes of a suite do.

A fresh interpreter rather than `multiprocessing`, which would run an unguarded script of the
caller's a second time.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

from slackswap.errors import SlackSwapError
from slackswap.plan import Plan
from slackswap.planner import Planner
from slackswap.problem import Problem

_PROGRAM = "from slackswap.evaluation.check.spawn import child; child()"


def plan_in_child(
    planner: Planner, target: str | None, problem: Problem, *, seed: int, timeout: float
) -> Plan | None:
    """Pickle planner and problem, plan in a fresh interpreter, and return the plan.

    Parameters
    ----------
    planner : Planner
        What is pickled.
    target : str or None
        Name or place it was loaded from, which the child loads first: a module loaded from a file
        is known to pickle by a name that only loading gives.
    problem : Problem
        What to plan for.
    seed : int
        Seed of the planner's randomness.
    timeout : float
        Seconds after which the child is killed.

    Returns
    -------
    Plan or None
        None when the planner has none.

    Raises
    ------
    SlackSwapError
        When planner or problem cannot be pickled or unpickled, or planning fails in the child.
    """
    try:
        cargo = pickle.dumps((planner, problem))
    except Exception as error:
        raise SlackSwapError(
            f"cannot be pickled ({type(error).__name__}: {error})", where=planner.name,
            fix="keep lambdas, open files and local classes out of its fields",
        ) from error
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            input=pickle.dumps((sys.path, target, seed, cargo)),
            capture_output=True, timeout=timeout, check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SlackSwapError(
            f"did not return from a new process within {timeout:g} s", where=planner.name
        ) from error
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    if done.returncode or not lines:
        told = done.stderr.decode(errors="replace").strip().splitlines()
        raise SlackSwapError(
            f"fails in a new process ({told[-1] if told else f'exit code {done.returncode}'})",
            where=planner.name, fix="define it at the top of a module that can be imported",
        )
    # The last line: whatever a planner prints stands before it.
    document = json.loads(lines[-1])
    return None if document is None else Plan.from_dict(document)


def child() -> None:
    """Read planner and problem from standard input; write the plan to standard output."""
    path, target, seed, cargo = pickle.load(sys.stdin.buffer)
    sys.path[:] = path
    from slackswap.registry import resolve_planner
    from slackswap.solving import solve

    if target is not None:
        resolve_planner(target)
    planner, problem = pickle.loads(cargo)
    plan: Any = solve(problem, planner, seed=seed).plan
    print()
    print(json.dumps(None if plan is None else plan.to_dict()))
