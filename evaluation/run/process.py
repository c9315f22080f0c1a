"""The process of one planner: started, listened to, and ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import IO, Any

from slackswap.errors import PlannerFailed
from slackswap.evaluation.run import child
from slackswap.evaluation.run.child import Order
from slackswap.evaluation.run.lifetime import epitaph
from slackswap.quantities import format_bytes
from slackswap.registry import is_registered
from slackswap.solving import Reply

#: Seconds a process may take until its planner is loaded and everything is compiled.
STARTUP_S = 120.0
#: Seconds it may take to send an answer that is ready.
_SENDING_S = 60.0
#: Bytes of an answer, and of what is kept of the first and the last prints.
_ANSWER_BYTES, _PRINTED_BYTES = 2**28, 1000
#: Seconds between looks at whether it still runs, and for the last of its output to arrive.
_LOOK_S, _END_S = 0.1, 2.0


class Late(Exception):
    """The planner has not returned within its time."""


class PlannerProcess:
    """A planner's process, read from two threads so that it never waits for its reader."""

    def __init__(
        self, pid: int, answers: IO[bytes], prints: IO[bytes], ended: Callable[[], int | None]
    ) -> None:
        self._pid, self._ended = pid, ended
        self._started = time.perf_counter()
        self._ready_at = self._done_at = self._started
        self._ready, self._done, self._read = (threading.Event() for _ in range(3))
        self._line = b""
        self._prints = _Prints()
        self._readers = [
            threading.Thread(target=self._read_answer, args=(answers,), daemon=True),
            threading.Thread(target=self._prints.drain, args=(prints,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def answer(self, patience_s: float | None) -> Reply | dict[str, Any]:
        """Wait for the answer; `patience_s` counts from when the planner starts to work."""
        if not self._wait(self._ready, STARTUP_S):
            raise PlannerFailed(
                f"was not loaded within {STARTUP_S:g} s",
                fix="do the work in plan(), not when the module is imported",
            )
        if not self._wait(self._done, patience_s):
            raise Late
        if not self._wait(self._read, _SENDING_S) or not self._line.endswith(b"\n"):
            self._wait_for_end()
            too_long = len(self._line) >= _ANSWER_BYTES
            raise PlannerFailed(
                "its answer is too long" if too_long else epitaph(self._ended()),
                fix=_last_words(self.printed()),
            )
        return child.decoded(self._line)

    @property
    def warm_up_s(self) -> float:
        """Seconds until the planner was ready."""
        return self._ready_at - self._started

    @property
    def planning_s(self) -> float:
        """Seconds that it worked, by our clock."""
        return self._done_at - self._ready_at

    def printed(self) -> str:
        """Return what it printed, shortened."""
        return self._prints.text()

    def kill(self) -> None:
        """End the process and all that it started."""
        for kill in (getattr(os, "killpg", os.kill), os.kill):
            # A forked process leads no group yet in its first moments.
            with contextlib.suppress(OSError):
                if kill is not os.kill or self._ended() is None:
                    kill(self._pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        self._wait_for_end()
        for reader in self._readers:
            reader.join(timeout=_END_S)

    def _wait(self, event: threading.Event, seconds: float | None) -> bool:
        end = None if seconds is None else time.perf_counter() + seconds
        while not event.wait(_LOOK_S if end is None
                             else max(0.0, min(_LOOK_S, end - time.perf_counter()))):
            if self._ended() is not None:
                event.wait(_END_S)  # what it wrote arrives; what it started may hold the pipe
                return True
            if end is not None and time.perf_counter() >= end:
                return False
        return True

    def _wait_for_end(self) -> None:
        end = time.perf_counter() + _END_S
        while self._ended() is None and time.perf_counter() < end:
            time.sleep(0.005)

    def _read_answer(self, answers: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError), answers:
            while line := answers.readline(_ANSWER_BYTES):
                if line == child.READY and not self._ready.is_set():
                    self._ready_at = time.perf_counter()
                    self._ready.set()
                elif line == child.DONE and not self._done.is_set():
                    self._done_at = time.perf_counter()
                    self._done.set()
                else:
                    self._line = line
                    break
        for event in (self._ready, self._done, self._read):
            event.set()


class _Prints:
    """The first and the last of what a process prints."""

    def __init__(self) -> None:
        self._first, self._last, self._count = b"", b"", 0

    def drain(self, stream: IO[bytes]) -> None:
        """Read until the end."""
        with contextlib.suppress(OSError, ValueError), stream:
            while chunk := os.read(stream.fileno(), 2**16):
                room = _PRINTED_BYTES - len(self._first)
                self._first += chunk[:room]
                self._last = (self._last + chunk[room:])[-_PRINTED_BYTES:]
                self._count += len(chunk)

    def text(self) -> str:
        """Return it with a note of what is left out."""
        left_out = self._count - len(self._first) - len(self._last)
        middle = f"\n... {format_bytes(left_out)} left out ...\n" if left_out > 0 else ""
        return (self._first.decode(errors="replace") + middle
                + self._last.decode(errors="replace"))


@contextlib.contextmanager
def running(order: Order) -> Iterator[PlannerProcess]:
    """Start a process that carries out an order; it ends with the block, whatever happens."""
    process = _forked(order) if is_registered(order.planner) else _spawned(order)
    try:
        yield process
    finally:
        process.kill()


def _spawned(order: Order) -> PlannerProcess:
    """Start a fresh interpreter: `multiprocessing` would run a caller's script a second time."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", "from slackswap.evaluation.run.child import main; main()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    running = PlannerProcess(process.pid, process.stdout, process.stderr, process.poll)
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(pickle.dumps((sys.path, os.getpid(), order)))
    return running


def _forked(order: Order) -> PlannerProcess:
    """Fork this process, for a planner that no other can load."""
    parent = os.getpid()
    (answers, answers_in), (prints, prints_in) = os.pipe(), os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns where there are threads. The child starts none of ours.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            for descriptor in (1, 2):
                os.dup2(prints_in, descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdout, sys.stderr = (
                os.fdopen(os.dup(fd), "w", errors="replace") for fd in (1, 2)
            )
            child.carry_out(order, os.fdopen(answers_in, "wb"), parent)
        finally:
            os._exit(1)
    os.close(answers_in)
    os.close(prints_in)
    return PlannerProcess(pid, os.fdopen(answers, "rb"), os.fdopen(prints, "rb"), _Waiter(pid).poll)


class _Waiter:
    """Asks after the end of a forked process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


def _last_words(printed: str) -> str:
    lines = printed.strip().splitlines()
    return f"its last words were: {lines[-1][:200]}" if lines else ""
