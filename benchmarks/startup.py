"""How soon it is there: help, import, first compilation."""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale import Scale
from benchmarks.tables import VERDICT, Column, Goal, Table, seconds
from benchmarks.timing import Watch, fresh_process, fresh_python

_HELP = Goal(0.3, show=seconds)
#: For a quiet machine; judged by processor time, which other work stretches less.
_FIRST = Goal(8, show=seconds)
_HEAVY = ("pandas", "ortools", "torch", "plotly", "numba")
_IMPORT = f"""
import json, sys, time
started = time.perf_counter()
import slackswap
elapsed = time.perf_counter() - started
print(json.dumps([elapsed, [name for name in {_HEAVY!r} if name in sys.modules]]))
"""
_FIRST_PLAN = """
import json, time
started = time.perf_counter()
import slackswap
from slackswap.profiles.library import profile_hardware
problem = slackswap.Problem(slackswap.load_profile("gpt2-xl"), profile_hardware("gpt2-xl"), 0.5)
solution = slackswap.solve(problem, "slackswap")
print(json.dumps([time.perf_counter() - started, solution.warm_up_s, solution.planning_s]))
"""


def tables(scale: Scale) -> Iterator[Table]:
    """Measure fresh processes."""
    runs = scale.repeats
    command = Path(sysconfig.get_path("scripts")) / "slackswap"
    helping = [str(command)] if command.exists() else [sys.executable, "-m", "slackswap.cli.main"]
    bare = _quickest(runs, [sys.executable, "-c", "pass"])
    # The first run fills the file cache and byte code; it is not what a user sees twice.
    for_help = _quickest(runs + 1, [*helping, "--help"])
    imports = [fresh_python(_IMPORT)[1] for _ in range(runs)]
    heavy = sorted({name for _, loaded in imports for name in loaded})
    rows: list[dict[str, Any]] = [
        {"what": "bare interpreter", **_times(bare)},
        {"what": "slackswap --help", **_times(for_help), **_HELP.judged(for_help.wall_s)},
        {"what": "import slackswap (inside the process)",
         "seconds": min(elapsed for elapsed, _ in imports)},
        {"what": f"import slackswap pulls in {', '.join(heavy) or 'none'} of {', '.join(_HEAVY)}",
         "target": "none", "met": not heavy},
    ]
    if scale.cold:
        with tempfile.TemporaryDirectory() as folder:
            environment = {"NUMBA_CACHE_DIR": folder}
            empty = fresh_python(_FIRST_PLAN, environment=environment)
            rows += _first_plan("empty compiler cache", empty)
            rows[-3].update(_FIRST.judged(empty[0].cpu_s))
    fresh_python(_FIRST_PLAN)
    warm = [fresh_python(_FIRST_PLAN) for _ in range(runs)]
    rows += _first_plan("filled compiler cache", min(warm, key=lambda run: run[0].wall_s))
    columns = (
        Column("what", "what", left=True, breaks=True), Column("seconds", "time", seconds),
        *VERDICT, Column("cpu_s", "processor", seconds),
    )
    yield Table("startup", "Start-up, each in a fresh process", columns, rows,
                f"Best of {runs}; what an empty cache costs is measured once.")


def _quickest(runs: int, arguments: Sequence[str]) -> Watch:
    return min((fresh_process(arguments)[0] for _ in range(runs)), key=lambda watch: watch.wall_s)


def _times(watch: Watch) -> dict[str, float]:
    return {"seconds": watch.wall_s, "cpu_s": watch.cpu_s}


def _first_plan(cache: str, run: tuple[Watch, Any]) -> list[dict[str, Any]]:
    watch, (_, warm_up_s, planning_s) = run
    return [
        {"what": f"gpt2-xl planned from a cold start, {cache}", **_times(watch)},
        {"what": "    of it warm-up: imports, compiler or its cache", "seconds": warm_up_s},
        {"what": "    of it planning", "seconds": planning_s},
    ]
