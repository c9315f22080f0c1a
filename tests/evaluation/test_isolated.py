"""Whatever a planner does, other planners, bounds and stored results are what they are without it.

The reference is what `solve` and `lower_bound` give in a process in which no such planner ran.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import slackswap
from slackswap import (
    InvalidPlanner,
    Plan,
    Problem,
    Status,
    UnknownName,
    register,
    simulate,
    solve,
    unregister,
)
from slackswap.errors import PlannerFailed
from slackswap.evaluation.run.cell import Cell, CellKind
from slackswap.evaluation.run.executor import InProcessExecutor, ProcessExecutor
from slackswap.evaluation.run.isolated import describe, solve_isolated
from slackswap.evaluation.run.runner import outline, run
from slackswap.evaluation.run.sources import ProfileSource
from slackswap.evaluation.run.store import Store
from slackswap.profiles.catalogue import DEFAULT_HARDWARE
from slackswap.profiles.generators.random_dag import layered_profile
from slackswap.search.bounds import lower_bound

HOSTILE = Path(__file__).with_name("hostile_planners.py")
SOURCE = ProfileSource.of({"generate": "layered", "n_forward": 60, "seed": 3})


def hostile(name: str) -> str:
    return f"{HOSTILE}:{name}"


@pytest.fixture
def problem() -> Problem:
    return Problem(layered_profile(60, random.Random(3), name="layered-3"), DEFAULT_HARDWARE, 0.7)


def _figures(cells: list[Cell], store: Store, executor: Any) -> dict[str, Any]:
    records = run(outline(cells, store).to_run, store, executor)
    return {
        record.cell.subject_label: (record.status, record.figures.get("iteration_ns"),
                                    record.figures.get("bound_ns"),
                                    (record.plan or {}).get("actions"))
        for record in records
    }


def test_no_result_depends_on_which_cells_ran_before(tmp_path: Path, problem: Problem) -> None:
    names = ["writes", "sets_fields", "patches", "leaves", "exits", "forges", "claims"]
    bad = [Cell(CellKind.PLAN, hostile(name), SOURCE, budget="0.7", alone=False) for name in names]
    honest = [
        Cell(CellKind.PLAN, "slackswap", SOURCE, budget="0.7", alone=False),
        Cell(CellKind.PLAN, "largest-first", SOURCE, budget="0.7", alone=False),
        Cell(CellKind.BOUND, "lp", SOURCE, budget="0.7", alone=False),
    ]
    first = _figures([*bad, *honest], Store(tmp_path / "1"), ProcessExecutor(1))
    last = _figures([*honest, *reversed(bad)], Store(tmp_path / "2"), InProcessExecutor())
    assert first == last

    alone = solve(problem, "slackswap")
    assert alone.evaluation is not None
    assert first["slackswap"][1] == alone.evaluation.iteration_ns
    assert first["lp"][2] == lower_bound(problem, "lp").value_ns
    # A plan that keeps everything does not fit, whatever its planner did to the budget or the
    # cost model.
    for name in ("sets_fields", "patches", "claims"):
        assert first[f"hostile_planners.py:{name}"][0] is Status.INFEASIBLE
    for name in ("writes", "leaves", "exits", "forges"):
        assert first[f"hostile_planners.py:{name}"][0] is Status.ERROR
    assert not hasattr(slackswap, "was_imported_with_a_hostile_planner")


def test_a_patched_cost_model_scores_nothing(problem: Problem) -> None:
    ample = problem.with_budget(None)
    solution = solve_isolated(ample, hostile("patches"))
    assert solution.evaluation == simulate(ample, Plan())
    # Nor does a stopped clock: planning is timed from here.
    assert solution.planning_s > 0


def test_a_claimed_bound_proves_nothing(problem: Problem) -> None:
    solution = solve_isolated(problem.with_budget(None), hostile("claims"))
    assert (solution.bound, solution.gap) == (None, None)
    assert solution.statistics["claimed_bound_ns"] == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("writes", "ValueError at hostile_planners.py:17: assignment destination is read-only"),
        ("raises", "ZeroDivisionError at hostile_planners.py:72: division by zero"),
        ("leaves", "its process ended with exit code 0"),
        ("exits", "SystemExit at hostile_planners.py:41: enough"),
        ("forges", "its answer cannot be read"),
    ],
)
def test_errors_name_file_and_line(problem: Problem, name: str, reason: str) -> None:
    with pytest.raises(PlannerFailed) as caught:
        solve_isolated(problem, hostile(name))
    assert caught.value.what.startswith(reason)


@pytest.mark.parametrize("name", ["loops", "loops_in_c"])
def test_what_never_returns_is_killed(problem: Problem, name: str) -> None:
    solution = solve_isolated(problem, hostile(name), patience_s=0.3)
    assert (solution.status, solution.plan) == (Status.TIMEOUT, None)
    assert solution.reason == "killed after 0.3 s"


def test_prints_are_captured_and_shortened(
    problem: Problem, capfd: pytest.CaptureFixture[str]
) -> None:
    solution = solve_isolated(problem, hostile("prints"))
    assert solution.plan == Plan(planner=solution.planner)
    assert solution.printed.startswith("line 0\nline 1\n")
    assert "left out" in solution.printed
    assert solution.printed.endswith("line 999999\n")
    assert len(solution.printed) < 2100
    assert capfd.readouterr() == ("", "")


def test_wrong_names_and_parameters_are_told_as_by_solve(problem: Problem) -> None:
    with pytest.raises(UnknownName, match="did you mean 'slackswap'"):
        solve_isolated(problem, "slakswap")
    with pytest.raises(InvalidPlanner, match="no parameter 'depth'"):
        solve_isolated(problem, hostile("claims"), depth=3)
    with pytest.raises(InvalidPlanner, match="no 'nothing'"):
        describe(hostile("nothing"))


def test_a_description_is_that_of_the_planner() -> None:
    found = describe(hostile("raises"))
    assert (found.name, found.version, len(found.source)) == ("raises", "1", 16)
    assert describe("slackswap").name == "slackswap"
    assert not hasattr(slackswap, "was_imported_with_a_hostile_planner")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_planners_that_only_this_process_knows_are_forked(problem: Problem) -> None:
    seen: list[int] = []

    def spoils(problem, *, rng, time_limit, report):  # type: ignore[no-untyped-def]
        seen.append(1)
        problem.profile.graph.nbytes.flags.writeable = True
        problem.profile.graph.nbytes[:] = 0
        print("spoilt")
        report(pid=os.getpid())
        return Plan()

    ample = problem.with_budget(None)
    for target in (spoils, "spoils"):
        register(spoils)
        try:
            solution = solve_isolated(ample, target)
        finally:
            unregister("spoils")
        assert solution.evaluation == simulate(ample, Plan())
        assert solution.printed == "spoilt\n"
        assert solution.statistics["pid"] != os.getpid()
    assert not seen
    assert ample.profile.graph.nbytes.any()

    def hangs(problem, *, rng, time_limit, report):  # type: ignore[no-untyped-def]
        while True:
            pass

    assert solve_isolated(ample, hangs, patience_s=0.2).status is Status.TIMEOUT


def test_nothing_outlives_the_cell(problem: Problem, tmp_path: Path) -> None:
    path = tmp_path / "leaver.py"
    path.write_text(
        "import subprocess, sys\n"
        "from slackswap import Plan\n"
        "def leaver(problem, *, rng, time_limit, report):\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "    report(pid=child.pid)\n"
        "    return Plan()\n",
        encoding="utf-8",
    )
    pid = solve_isolated(problem, f"{path}:leaver").statistics["pid"]
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        except OSError:
            break
        if state[0] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("what the planner started still runs")
    assert not multiprocessing.active_children()


SCRIPT = """
from slackswap import Plan, register
from slackswap.evaluation import load_suite, run_suite

print("body")

@register("mine")
def mine(problem, *, rng, time_limit, report):
    problem.profile.graph.nbytes.flags.writeable = True
    problem.profile.graph.nbytes[:] = 0
    return Plan({})

suite = load_suite("SUITE")
finished = run_suite(suite, "results", jobs=0)
print(sorted((r.cell.subject, str(r.status), r.figures.get("iteration_ns"))
             for r in finished.records))
"""
SUITE = """
title = "t"
[[group]]
profiles = [{ generate = "deep-chain", n = 6 }]
budgets = ["1.0"]
planners = ["mine", "keep-all"]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_planners_of_a_script_without_a_guard(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(SUITE, encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPT.replace("SUITE", "t.toml"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    body, rows = done.stdout.splitlines()
    assert body == "body"
    times = {subject: time_ns for subject, _, time_ns in eval(rows) if time_ns is not None}
    assert times["mine"] == times["keep-all"] > 0
