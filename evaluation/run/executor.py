"""Where cells run. Only this file knows of processes; the runner sees futures.

A cluster's executor can take the place of these: it needs `submit` and `stop`, and its futures
must raise `CellTimedOut` or `WorkerDied` where that is what happened.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from slackswap.errors import SlackSwapError
from slackswap.evaluation.run.lifetime import die_with, epitaph


class CellTimedOut(SlackSwapError):
    """The call ran into its time limit and was killed."""


class WorkerDied(SlackSwapError):
    """The process of the call ended without an answer."""


class Executor(Protocol):
    """Runs calls elsewhere, and kills those that exceed their limit."""

    @property
    def workers(self) -> int:
        """How many calls can run at once."""
        ...

    def submit(
        self, function: Callable[..., Any], *arguments: Any, timeout_s: float, **options: Any
    ) -> Future[Any]:
        """Queue a call; its time counts from when it starts."""
        ...

    def stop(self) -> None:
        """Kill what runs, drop what waits."""
        ...


class ProcessExecutor:
    """Processes on this machine, started anew by `spawn` so that none inherits threads or state.

    Parameters
    ----------
    workers : int
        How many.
    """

    def __init__(self, workers: int) -> None:
        from pebble import ProcessPool

        self.workers = workers
        self._pool = ProcessPool(
            max_workers=workers,
            initializer=_start_worker,
            initargs=(os.getpid(),),
            context=multiprocessing.get_context("spawn"),
        )

    def submit(
        self, function: Callable[..., Any], *arguments: Any, timeout_s: float, **options: Any
    ) -> Future[Any]:
        """Queue a call; its time counts from when it starts."""
        from pebble import ProcessExpired

        inner = self._pool.schedule(function, arguments, options, timeout=timeout_s)
        outer: Future[Any] = Future()

        def pass_on(_: Any) -> None:
            if inner.cancelled():
                outer.cancel()
                return
            error = inner.exception()
            if error is None:
                outer.set_result(inner.result())
            elif isinstance(error, TimeoutError):
                outer.set_exception(CellTimedOut(f"killed after {timeout_s:g} s"))
            elif isinstance(error, ProcessExpired):
                outer.set_exception(WorkerDied(epitaph(error.exitcode)))
            else:
                outer.set_exception(error)

        inner.add_done_callback(pass_on)
        return outer

    def stop(self) -> None:
        """Kill what runs, drop what waits."""
        self._pool.stop()
        self._pool.join()


class InProcessExecutor:
    """Runs each call at once in this process: for notebooks and small runs.

    It cannot kill a built-in planner or a bound; other planners get a process of their own.
    """

    workers = 1

    def submit(
        self, function: Callable[..., Any], *arguments: Any, timeout_s: float, **options: Any
    ) -> Future[Any]:
        """Run a call now; `timeout_s` is not enforced."""
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments, **options))
        except Exception as error:
            done.set_exception(error)
        return done

    def stop(self) -> None:
        """Nothing runs between calls."""


def _start_worker(parent: int) -> None:
    # Ctrl-C reaches the whole process group; the runner alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(parent)
    from threadpoolctl import threadpool_limits

    # Kept for the process's life: linear algebra must not use the cores of other cells.
    threadpool_limits(limits=1)
    from slackswap.evaluation.run.measure import prepare_worker

    prepare_worker()
