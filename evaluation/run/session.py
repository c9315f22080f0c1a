"""Running a suite from Python, as ``slackswap evaluate`` does."""

from __future__ import annotations

import os
from pathlib import Path

from slackswap.evaluation.run.environment import usable_cores
from slackswap.evaluation.run.executor import Executor, InProcessExecutor, ProcessExecutor
from slackswap.evaluation.run.finished import LAST_RUN, Finished, load_finished
from slackswap.evaluation.run.runner import Outline, Rerun, RunProgress, outline, run
from slackswap.evaluation.run.store import Store
from slackswap.evaluation.run.suite import Suite, load_suite


def run_suite(
    suite: str | Suite,
    output: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    rerun: Rerun | str = Rerun.NOTHING,
    progress: RunProgress | None = None,
) -> Finished:
    """Run a suite, and return its results.

    Parameters
    ----------
    suite : str or Suite
        A name, a ``.toml`` file, or what `Suite.selected` returned.
    output : path-like
        Folder of results. What it holds already is not measured again.
    jobs : int, optional
        Cells at once. By default cells whose planning time counts run alone and all others side by
        side; 0 runs every cell in this process, where planners registered in a notebook are known.
        Planners that are not built in then run in forks of it, with their limit; where processes
        cannot fork, in it.
    rerun : {"nothing", "failed", "all"}
        What to measure again.
    progress : RunProgress, optional
        Told of each cell.

    See Also
    --------
    Suite.check : Finds names that cannot be had before anything runs, as the command line does.
    """
    chosen = load_suite(suite) if isinstance(suite, str) else suite
    store = Store(Path(output))
    todo = outline(chosen.cells(), store, Rerun(rerun))
    remember(store, chosen, todo)
    if todo.to_run:
        executor: Executor = (
            InProcessExecutor() if jobs == 0 else ProcessExecutor(jobs or usable_cores())
        )
        run(todo.to_run, store, executor, progress,
            all_contended=jobs is not None and jobs > 1)
    return load_finished(store)


def remember(store: Store, suite: Suite, todo: Outline) -> None:
    """Note in a store what its last run is about, before it begins: it may be interrupted."""
    store.create()
    keys = [task.identity.key for task in todo.to_run] + [record.key for record in todo.stored]
    store.write_document(
        LAST_RUN,
        {"suite": suite.name, "title": suite.title, "description": suite.description,
         "keys": sorted(keys)},
    )
