"""``slackswap evaluate``: run a suite, keep every result, tell what came out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackswap.errors import SlackSwapError

if TYPE_CHECKING:
    from slackswap.evaluation.run.finished import Finished
    from slackswap.evaluation.run.runner import Outline, RunProgress
    from slackswap.evaluation.run.store import Store
    from slackswap.evaluation.run.suite import Suite

app = typer.Typer()


@app.command()
def evaluate(
    suite: Annotated[
        str,
        typer.Argument(metavar="SUITE",
                       help="smoke, paper, paper-consistent, sweep, hard, all; or a file."),
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

    Suites: smoke, paper, paper-consistent, sweep, hard, all. A run that was interrupted resumes
    where it stopped.

    Exit codes: 0 answered; 1 if a cell ended in an error, none was answered, or a bound was
    violated; 2 bad input, such as a name that nobody has; 130 interrupted.
    """
    from slackswap.cli.output import print_json
    from slackswap.evaluation.run.runner import Rerun, outline
    from slackswap.evaluation.run.session import run_suite
    from slackswap.evaluation.run.store import Store
    from slackswap.evaluation.run.suite import load_suite

    if rerun not in tuple(Rerun):
        raise SlackSwapError(f"--rerun {rerun!r} is not known", where="rerun",
                             fix=f"use {', '.join(Rerun)}")
    chosen = load_suite(suite).selected(
        profiles=profile or (), budgets=budget or (), planners=planner or (), seeds=seed or (),
        repeats=repeats,
        timeout_s=None if timeout is None else parse_seconds(timeout),
    )
    store = Store(output or Path("results") / chosen.name)
    chosen.check()
    if dry_run:
        todo = outline(chosen.cells(), store, Rerun(rerun))
        if as_json:
            print_json(_matrix(chosen, todo, store))
        else:
            _print_matrix(chosen, todo, store)
        return 0
    try:
        with _progress() as progress:
            finished = run_suite(
                chosen, store.folder, jobs=jobs, rerun=rerun, progress=progress
            )
    except KeyboardInterrupt:
        print("interrupted: what had finished is stored; the same command goes on from there",
              file=sys.stderr)
        return 130
    return _tell(finished, chosen.name, report=not no_report, as_json=as_json)


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


def _progress() -> AbstractContextManager[RunProgress]:
    from slackswap.cli.progress import Lines, Live

    return Live() if sys.stderr.isatty() else Lines()


def _tell(finished: Finished, suite: str, *, report: bool, as_json: bool) -> int:
    """Print what came out, and write the report; return the exit code."""
    from slackswap.cli.output import print_json

    folder = finished.store.folder
    path = None
    if report:
        from slackswap.evaluation.report.page import write_report

        path = folder / "report.html"
        write_report(finished, path)
    if as_json:
        print_json({"suite": suite, "output": str(folder),
                    "report": None if path is None else str(path), **counts(finished)})
    else:
        print_finished(finished)
        print(f"results: {folder}")
        if path is not None:
            print(f"report:  {path}")
    return _exit_code(finished)


def _exit_code(finished: Finished) -> int:
    """Return 1 when a bound was violated, a cell erred, or no cell was answered; else 0."""
    from slackswap.evaluation.run.cell import CellKind
    from slackswap.status import Status

    statuses = {r.status for r in finished.records if r.cell.kind is CellKind.PLAN}
    answered = any(status.has_plan or status is Status.INFEASIBLE for status in statuses)
    erred = any(record.status is Status.ERROR for record in finished.records)
    return int(bool(finished.plans["bound_violated"].any()) or erred or not answered)


def counts(finished: Finished) -> Mapping[str, Any]:
    """Return what came out of a run, for programs."""
    from slackswap.evaluation.analysis.summary import notes

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
    from slackswap.cli.output import heading, paragraph, print_table
    from slackswap.evaluation.analysis.summary import (
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
            paragraph(table.note, style="dim")
    print()
    for line in notes(plans):
        paragraph(f"note: {line}")


def _matrix(suite: Suite, todo: Outline, store: Store) -> Mapping[str, Any]:
    """Return what a run would do, for programs."""
    return {
        "status": "ok",
        "suite": suite.name,
        "output": str(store.folder),
        "groups": [
            {
                "group": group.name,
                "profiles": [profile.label for profile in group.profiles],
                "budgets": list(group.budgets),
                "planners": [spec.name for spec in group.planners],
                "bounds": [spec.name for spec in group.bounds],
                "variants": len(group.variants),
                "cells": len(cells),
            }
            for group in suite.groups
            if (cells := group.cells())
        ],
        "cells": len(todo.to_run) + len(todo.stored),
        "stored": len(todo.stored),
        "to_run": len(todo.to_run),
        "alone": sum(task.cell.alone for task in todo.to_run),
        "estimated_s": todo.estimated_s(dict(suite.expected_s())),
        "limit_s": todo.limit_s(),
    }


def _print_matrix(suite: Suite, todo: Outline, store: Store) -> None:
    from slackswap.cli.output import heading, paragraph, print_pairs, print_table

    heading(f"{suite.title} ({suite.name})")
    paragraph(suite.description)
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
