"""Taking times: wall clock, warm, the best of several; and runs in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(slots=True)
class Watch:
    """Context in which both clocks run.

    Attributes
    ----------
    wall_s : float
        Seconds by the wall clock.
    cpu_s : float
        Processor seconds of all threads, and of child processes that ended meanwhile.
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0

    def __enter__(self) -> Watch:
        self.wall_s, self.cpu_s = time.perf_counter(), _processor_s()
        return self

    def __exit__(self, *exception: object) -> None:
        self.wall_s = time.perf_counter() - self.wall_s
        self.cpu_s = _processor_s() - self.cpu_s


def _processor_s() -> float:
    used = os.times()
    # The clock of this process is finer; that of children has the system's ticks.
    return time.process_time() + used.children_user + used.children_system


def best_of(
    repeats: int, function: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the seconds of the fastest of several calls: what the work itself takes."""
    return min(once(function, clock)[0] for _ in range(repeats))


def fresh_process(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[Watch, str]:
    """Run a command in a fresh process from start to end.

    Returns
    -------
    watch : Watch
        Times, interpreter start included.
    output : str
        What it printed.

    Raises
    ------
    subprocess.CalledProcessError
        When it fails.
    """
    variables = {**os.environ, **(environment or {})}
    with Watch() as watch:
        done = subprocess.run(
            arguments, capture_output=True, text=True, check=True, cwd=ROOT, env=variables
        )
    return watch, done.stdout


def fresh_python(
    code: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> tuple[Watch, Any]:
    """Run Python code in a fresh interpreter; the JSON it prints last is the result."""
    watch, output = fresh_process([sys.executable, "-c", code, *arguments], environment)
    lines = output.strip().splitlines()
    return watch, json.loads(lines[-1]) if lines else None
