"""The runner: what becomes of a cell whatever its planner does, and of a run that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slackswap.evaluation.run.cell import Cell, CellKind
from slackswap.evaluation.run.executor import InProcessExecutor, ProcessExecutor
from slackswap.evaluation.run.record import Record
from slackswap.evaluation.run.runner import Rerun, RunProgress, outline, run
from slackswap.evaluation.run.sources import ProfileSource
from slackswap.evaluation.run.store import Store
from slackswap.status import Status

CHAIN = ProfileSource.of({"generate": "deep-chain", "n": 6})

PLANNERS = """
import os, signal, time
from slackswap import Plan, register
from slackswap.errors import Infeasible, Skipped

def works(problem, *, rng, time_limit, report):
    report(seen=time_limit)
    return Plan({})

def raises(problem, *, rng, time_limit, report):
    raise ZeroDivisionError("one by none")

def gives_up(problem, *, rng, time_limit, report):
    raise Infeasible("nothing fits")

def declines(problem, *, rng, time_limit, report):
    raise Skipped("not here")

def lies(problem, *, rng, time_limit, report):
    return "a plan"

def invents(problem, *, rng, time_limit, report):
    return Plan({"no such tensor": "keep"})

def sleeps(problem, *, rng, time_limit, report):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(0.01)

def dies(problem, *, rng, time_limit, report):
    os.kill(os.getpid(), signal.SIGKILL)

def leaves(problem, *, rng, time_limit, report):
    os._exit(7)
"""


@pytest.fixture
def planner(tmp_path: Path) -> Callable[..., Cell]:
    path = tmp_path / "planners_under_test.py"
    path.write_text(PLANNERS, encoding="utf-8")

    def cell(name: str, **options: Any) -> Cell:
        return Cell(CellKind.PLAN, f"{path}:{name}", CHAIN, **options)

    return cell


def _run(cells: list[Cell], store: Store, executor: Any = None, **options: Any) -> list[Record]:
    todo = outline(cells, store)
    return run(todo.to_run, store, executor or InProcessExecutor(), **options)


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("works", Status.OPTIMAL, ""),
        ("raises", Status.ERROR, "ZeroDivisionError at planners_under_test.py:11: one by none"),
        ("gives_up", Status.INFEASIBLE, "nothing fits"),
        ("declines", Status.SKIPPED, "not here"),
        ("lies", Status.ERROR, "InvalidPlanner"),
        ("invents", Status.ERROR, "no such tensor"),
    ],
)
def test_whatever_a_planner_does_is_its_result(
    planner: Callable[..., Cell], tmp_path: Path, name: str, status: Status, reason: str
) -> None:
    (record,) = _run([planner(name)], Store(tmp_path / "r"))
    assert record.status.has_plan == status.has_plan
    if not status.has_plan:
        assert record.status is status
    assert reason in record.reason
    assert Store(tmp_path / "r").read(record.key) == _stored(record)


def test_a_planner_that_is_not_there_is_skipped_with_the_reason(tmp_path: Path) -> None:
    (record,) = _run([Cell(CellKind.PLAN, "nonesuch", CHAIN)], Store(tmp_path))
    assert record.status is Status.SKIPPED
    assert "nonesuch" in record.reason


def test_a_profile_that_is_not_there_is_an_answer_too(tmp_path: Path) -> None:
    missing = ProfileSource.of({"file": str(tmp_path / "gone.json")})
    (record,) = _run([Cell(CellKind.PLAN, "keep-all", missing)], Store(tmp_path / "r"))
    assert record.status in (Status.SKIPPED, Status.ERROR)
    assert "gone.json" in record.reason


def test_planners_are_told_less_than_their_cells_limit(
    planner: Callable[..., Cell], tmp_path: Path
) -> None:
    (record,) = _run([planner("works", timeout_s=50.0)], Store(tmp_path / "r"))
    assert record.figures["statistics"]["seen"] == pytest.approx(40.0)


def test_bounds_and_facts_are_cells(tmp_path: Path) -> None:
    cells = [
        Cell(CellKind.FACTS, "facts", CHAIN),
        Cell(CellKind.BOUND, "compute", CHAIN, budget="0.8", alone=False),
    ]
    facts, bound = _run(cells, Store(tmp_path))
    assert facts.figures["saved_bytes"] == 6 * 2**22
    assert bound.figures["bound_ns"] == bound.figures["keep_all_ns"]
    assert bound.status is Status.OPTIMAL


def test_a_second_run_has_nothing_to_do(planner: Callable[..., Cell], tmp_path: Path) -> None:
    cells, store = [planner("works"), planner("raises"), planner("gives_up")], Store(tmp_path / "r")
    _run(cells, store)
    assert not outline(cells, store).to_run
    again = outline(cells, store, Rerun.FAILED)
    assert [task.cell.subject.rpartition(":")[2] for task in again.to_run] == ["raises"]
    assert len(outline(cells, store, Rerun.ALL).to_run) == 3


def test_cells_skipped_for_want_of_a_package_run_again_once_packages_differ(
    planner: Callable[..., Cell], tmp_path: Path
) -> None:
    cells, store = [planner("declines"), planner("gives_up")], Store(tmp_path / "r")
    for record in _run(cells, store):
        without = {**record.circumstances.versions, "torch": "absent"}
        store.write(replace(record, circumstances=replace(record.circumstances, versions=without)))
    (again,) = outline(cells, store).to_run
    assert again.cell.subject.endswith(":declines")
    run([again], store, InProcessExecutor())
    assert not outline(cells, store).to_run


def test_results_are_stored_as_they_come(planner: Callable[..., Cell], tmp_path: Path) -> None:
    store = Store(tmp_path / "r")
    stored: list[int] = []

    class Watch(RunProgress):
        def finished(self, record: Record, done: int, total: int) -> None:
            stored.append(len(list(store.records())))
            assert total == 2

    _run([planner("works"), planner("raises")], store, progress=Watch())
    assert stored == [1, 2]


def test_an_interrupted_run_keeps_what_it_has_and_stops_its_workers(
    planner: Callable[..., Cell], tmp_path: Path
) -> None:
    store = Store(tmp_path / "r")
    executor = Scripted(workers=1)

    class Interrupt(RunProgress):
        def finished(self, record: Record, done: int, total: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _run([planner("works"), planner("raises")], store, executor, progress=Interrupt())
    assert executor.stopped
    assert len(list(store.records())) == 1


class Scripted:
    """An executor that runs calls only when asked to wait, and notes who was in flight."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.stopped = False
        self.flights: list[set[str]] = []
        self.contended: dict[str, bool] = {}
        self._flying: set[str] = set()

    def submit(
        self, function: Callable[..., Any], *arguments: Any, timeout_s: float, **options: Any
    ) -> Future[Any]:
        cell = arguments[0]
        self.contended[cell.label] = options["contended"]
        self._flying.add(cell.label)
        self.flights.append(set(self._flying))
        future: Future[Any] = Later(function, arguments, options)
        future.add_done_callback(lambda _: self._flying.discard(cell.label))
        return future

    def stop(self) -> None:
        self.stopped = True


class Later(Future[Any]):
    """A future that is worked out in a thread of its own a moment later."""

    def __init__(self, function: Callable[..., Any], arguments: Any, options: Any) -> None:
        import threading

        super().__init__()
        threading.Thread(
            target=lambda: (time.sleep(0.02), self.set_result(function(*arguments, **options)))
        ).start()


def test_cells_whose_time_counts_run_alone(planner: Callable[..., Cell], tmp_path: Path) -> None:
    cells = [planner("works", seed=seed, alone=seed < 2) for seed in range(6)]
    executor = Scripted(workers=3)
    _run(cells, Store(tmp_path / "r"), executor)
    alone = {cell.label for cell in cells if cell.alone}
    assert all(len(flight) == 1 for flight in executor.flights if flight & alone)
    assert max(map(len, executor.flights)) == 3
    assert {label for label, contended in executor.contended.items() if not contended} == alone


def test_on_request_all_run_side_by_side_and_are_stamped(
    planner: Callable[..., Cell], tmp_path: Path
) -> None:
    cells = [planner("works", seed=seed) for seed in range(4)]
    executor = Scripted(workers=2)
    records = _run(cells, Store(tmp_path / "r"), executor, all_contended=True)
    assert max(map(len, executor.flights)) == 2
    assert all(record.circumstances.contended for record in records)


@pytest.mark.slow
def test_processes_are_killed_at_the_limit_and_their_deaths_are_told(
    planner: Callable[..., Cell], tmp_path: Path
) -> None:
    cells = [
        planner("sleeps", timeout_s=0.3),
        planner("dies"),
        planner("leaves"),
        planner("works"),
    ]
    records = _run(cells, Store(tmp_path / "r"), ProcessExecutor(1))
    told = {record.cell.subject.rpartition(":")[2]: record for record in records}
    assert told["sleeps"].status is Status.TIMEOUT
    assert told["sleeps"].reason == "killed after 0.3 s"
    assert told["dies"].status is Status.ERROR
    assert "SIGKILL" in told["dies"].reason
    assert "exit code 7" in told["leaves"].reason
    # The workers that were lost are replaced.
    assert told["works"].status.has_plan


SUITE = """
title = "Killed"
[defaults]
timeout = 60
[[group]]
profiles = [{{ generate = "deep-chain", n = 6 }}]
budgets = ["1.0"]
planners = ["{path}:slow"]
seeds = [{seeds}]
"""
SLOW = """
import time
from slackswap import Plan

def slow(problem, *, rng, time_limit, report):
    time.sleep(0.15)
    return Plan({})
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals")
def test_kill_9_loses_nothing_that_had_finished(tmp_path: Path) -> None:
    path = tmp_path / "slow_planner.py"
    path.write_text(SLOW, encoding="utf-8")
    suite = tmp_path / "killed.toml"
    suite.write_text(
        SUITE.format(path=path, seeds=", ".join(map(str, range(40)))), encoding="utf-8"
    )
    folder = tmp_path / "results"
    command = [sys.executable, "-m", "slackswap.cli.main", "evaluate", str(suite), "--output",
               str(folder), "--no-report", "--jobs", "1"]
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        cwd=tmp_path,
    )
    try:
        while len(list(folder.glob("cells/*.json"))) < 3:
            assert child.poll() is None, "it ended before it could be killed"
            time.sleep(0.02)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    finished = {path.name: path.read_bytes() for path in folder.glob("cells/*.json")}
    assert 3 <= len(finished) < 40
    assert all(json.loads(text)["status"] for text in finished.values())

    again = subprocess.run(
        [*command, "--json", "--seed", "0", "--seed", "1", "--seed", "2"], capture_output=True,
        text=True, check=False, cwd=tmp_path,
    )
    assert again.returncode == 0, again.stderr
    answer = json.loads(again.stdout)
    assert answer["statuses"] == {"feasible": 3}
    # What was there is there still, byte for byte: nothing was measured twice.
    assert all((folder / "cells" / name).read_bytes() == text for name, text in finished.items())


def _stored(record: Record) -> Record:
    return replace(record, plan=None)
