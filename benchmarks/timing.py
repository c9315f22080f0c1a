"""Taking times: wall clock, warm, the best of several; and runs in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")

ROOT = Path(__file__).resolve().parent.parent


def once(
    function: Callable[[], Result], clock: Callable[[], float] = time.perf_counter
) -> tuple[float, Result]:
    """Return the seconds one call takes by a clock, and its result."""
    started = clock()
    result = function()
    return clock() - started, result


def best_of(
    repeats: int, function: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the seconds of the fastest of several calls: what the work itself takes."""
    return min(once(function, clock)[0] for _ in range(repeats))


def fresh_process(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[float, str]:
    """Run a command in a fresh process from start to end.

    Returns
    -------
    seconds : float
        Wall clock, interpreter start included.
    output : str
        What it printed.

    Raises
    ------
    subprocess.CalledProcessError
        When it fails.
    """
    variables = {**os.environ, **(environment or {})}
    started = time.perf_counter()
    done = subprocess.run(
        arguments, capture_output=True, text=True, check=True, cwd=ROOT, env=variables
    )
    return time.perf_counter() - started, done.stdout


def fresh_python(
    code: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> tuple[float, Any]:
    """Run Python code in a fresh interpreter; the JSON it prints last is the result."""
    elapsed, output = fresh_process([sys.executable, "-c", code, *arguments], environment)
    lines = output.strip().splitlines()
    return elapsed, json.loads(lines[-1]) if lines else None
