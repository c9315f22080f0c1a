"""``slackswap evaluate``: run a suite, keep every result, tell what came out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackswap.errors import SlackSwapError

if TYPE_CHECKING:
    from slackswap.evaluation.cell import Cell
    from slackswap.evaluation.finished import Finished
    from slackswap.evaluation.record import Record
    from slackswap.evaluation.runner import Outline
    from slackswap.evaluation.store import Store
    from slackswap.evaluation.suite import Suite

app = typer.Typer()

#: Cells that the progress display names at once.
_NAMED = 3


@app.command()
def evaluate(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="smoke, paper, sweep, hard, all; or a file.")
    ] = "paper",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR",
                     help="Folder of results; by default results/SUITE."),
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", "-p", metavar="PROFILE", help="Only this profile; repeatable."),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option("--budget", "-b", metavar="BUDGET", help="Only this budget; repeatable."),
    ] = None,
    planner: Annotated[
        list[str] | None,
        typer.Option("--planner", metavar="PLANNER",
                     help="Only this planner, or one of your own (file.py:Name); repeatable."),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option("--seed", help="Only this seed; repeatable.")
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option("--repeats", "-r", min=1, help="Measure each cell this many times."),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="TIME", help="Kill a cell after this: 30s, 1.5m."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", min=1,
            help="Cells at once. Without it, cells whose planning time counts run alone; with 2 "
            "or more, they do not, and are stamped so.",
        ),
    ] = None,
    rerun: Annotated[
        str, typer.Option("--rerun", metavar="WHAT", help="Measure again: nothing, failed, all.")
    ] = "nothing",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the matrix and an estimate.")
    ] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Write no HTML report.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Run a suite of cells, store each result as it comes, and print what came out.

    Suites: smoke, paper, sweep, hard, all. A run that was interrupted resumes where it stopped.
    """
    from slackswap.evaluation.runner import Rerun, outline
    from slackswap.evaluation.store import Store
    from slackswap.evaluation.suite import load_suite

    if rerun not in tuple(Rerun):
        raise SlackSwapError(f"--rerun {rerun!r} is not known", where="rerun",
                             fix=f"use {', '.join(Rerun)}")
    chosen = load_suite(suite).selected(
        profiles=profile or (), budgets=budget or (), planners=planner or (), seeds=seed or (),
        repeats=repeats,
        timeout_s=None if timeout is None else parse_seconds(timeout),
    )
    store = Store(output or Path("results") / chosen.name)
    cells = chosen.cells()
    todo = outline(cells, store, Rerun(rerun))
    if dry_run:
        _print_matrix(chosen, cells, todo, store)
        return 0
    store.create()
    # Before the first cell, so that an interrupted run can be shown as well.
    _remember(store, chosen, todo)
    interrupted = not _run(todo, store, jobs)
    return _tell(store, chosen, interrupted=interrupted, report=not no_report, as_json=as_json)


def parse_seconds(text: str) -> float:
    """Read a time such as ``30s``, ``1.5m``, ``1h`` or ``30``.

    Raises
    ------
    SlackSwapError
        When it is not one.
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        seconds = float(number) * units[unit]
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise SlackSwapError(f"{text!r} is not a time", where="timeout",
                             fix="write 30s, 1.5m or 1h")
    return seconds


def _run(todo: Outline, store: Store, jobs: int | None) -> bool:
    """Run what is to run; return False when interrupted by the user."""
    from slackswap.evaluation.environment import usable_cores
    from slackswap.evaluation.executor import ProcessExecutor
    from slackswap.evaluation.runner import run

    if not todo.to_run:
        return True
    executor = ProcessExecutor(jobs or usable_cores())
    progress = _progress(len(todo.to_run))
    try:
        with progress if hasattr(progress, "__enter__") else nullcontext():
            run(todo.to_run, store, executor, progress, all_contended=jobs is not None and jobs > 1)
    except KeyboardInterrupt:
        return False
    return True


def _progress(total: int) -> Any:
    from slackswap.evaluation.runner import Progress

    if not sys.stderr.isatty():
        return _Lines()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    class Live(Progress):
        """A bar with the cells that are running."""

        def __init__(self) -> None:
            self.bar = Bar(
                MofNCompleteColumn(), BarColumn(20), TimeElapsedColumn(),
                TextColumn("{task.description}", markup=False),
                console=Console(stderr=True), transient=True,
            )
            self.task = self.bar.add_task("", total=total)
            self.running: dict[str, None] = {}

        def __enter__(self) -> Live:
            self.bar.start()
            return self

        def __exit__(self, *exception: object) -> None:
            self.bar.stop()

        def started(self, cell: Cell) -> None:
            self.running[cell.label] = None
            self._show()

        def finished(self, record: Record, done: int, total: int) -> None:
            self.running.pop(record.cell.label, None)
            self.bar.update(self.task, completed=done)
            self._show()

        def _show(self) -> None:
            text = "; ".join(list(self.running)[:_NAMED])
            self.bar.update(self.task, description=text[:60])

    return Live()


class _Lines:
    """One line for every tenth of the cells, where nothing can be redrawn."""

    def started(self, cell: Cell) -> None:
        """Say nothing."""

    def finished(self, record: Record, done: int, total: int) -> None:
        """Print a line when another tenth is done."""
        if done == total or done * 10 // total > (done - 1) * 10 // total:
            print(f"{done}/{total} cells, last: {record.cell.label}", file=sys.stderr, flush=True)


def _remember(store: Store, suite: Suite, todo: Outline) -> None:
    from slackswap.evaluation.finished import LAST_RUN

    keys = [task.identity.key for task in todo.to_run] + [record.key for record in todo.stored]
    store.write_document(
        LAST_RUN,
        {"suite": suite.name, "title": suite.title, "description": suite.description,
         "keys": sorted(keys)},
    )


def _tell(
    store: Store, suite: Suite, *, interrupted: bool, report: bool, as_json: bool
) -> int:
    """Print what came out, and write the report; return the exit code."""
    from slackswap.cli.output import note, print_json
    from slackswap.evaluation.finished import load_finished

    finished = load_finished(store)
    if interrupted:
        note("interrupted: what had finished is stored; the same command goes on from there")
        return 130
    path = None
    if report:
        from slackswap.evaluation.report import write_report

        path = store.folder / "report.html"
        write_report(finished, path)
    if as_json:
        print_json({"suite": suite.name, "output": str(store.folder),
                    "report": None if path is None else str(path), **_counts(finished)})
    else:
        print_finished(finished)
        print(f"results: {store.folder}")
        if path is not None:
            print(f"report:  {path}")
    return 1 if finished.plans["bound_violated"].any() else 0


def _counts(finished: Finished) -> Mapping[str, Any]:
    from slackswap.evaluation.summary import notes

    return {
        "cells": len(finished.records),
        "statuses": {str(k): int(v) for k, v in finished.plans["status"].value_counts().items()},
        "claims": [
            {"claim": entry.claim.name, "paper": entry.claim.paper, "here": entry.finding.ours,
             "verdict": str(entry.finding.verdict), "why": entry.finding.why,
             "sensitivity": {label: str(f.verdict) for label, f in entry.sensitivity}}
            for entry in finished.claims
        ],
        "notes": notes(finished.plans),
        "status": "ok",
    }


def print_finished(finished: Finished) -> None:
    """Print the tables of a run."""
    from slackswap.cli.output import console, heading, print_table
    from slackswap.evaluation.summary import (
        claims_table,
        failures_table,
        notes,
        ranking_table,
        throughput_table,
    )

    plans = finished.plans
    tables = [throughput_table(plans), ranking_table(plans), failures_table(plans),
              claims_table(finished.claims)]
    for table in tables:
        if table is None or not table.rows:
            continue
        heading(f"\n{table.title}")
        print_table(table.columns, table.rows, left=table.left, folding=table.folding)
        if table.note:
            console().print(table.note, style="dim", markup=False)
    print()
    for line in notes(plans):
        console().print(f"note: {line}", markup=False)


def _print_matrix(suite: Suite, cells: list[Cell], todo: Outline, store: Store) -> None:
    from slackswap.cli.output import heading, print_pairs, print_table

    heading(f"{suite.title} ({suite.name})")
    print(suite.description)
    rows = []
    for group in suite.groups:
        mine = group.cells()
        if not mine:
            continue
        rows.append((
            group.name,
            ", ".join(profile.label for profile in group.profiles),
            ", ".join(group.budgets),
            ", ".join(s.name for s in (*group.planners, *group.bounds)),
            str(len(group.variants)),
            str(len(mine)),
        ))
    print_table(("group", "profiles", "budgets", "planners, bounds", "variants", "cells"), rows,
                left=("group",), folding=("profiles", "budgets", "planners, bounds"))
    expected = dict(suite.expected_s())
    print_pairs([
        ("cells", f"{len(todo.to_run) + len(todo.stored)}, of which {len(todo.stored)} are stored "
                  f"in {store.folder}"),
        ("to run", f"{len(todo.to_run)}, of which "
                   f"{sum(task.cell.alone for task in todo.to_run)} alone"),
        ("estimate", f"about {_minutes(todo.estimated_s(expected))} of work; at most "
                     f"{_minutes(todo.limit_s())}, were every cell killed at its limit"),
    ])


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
