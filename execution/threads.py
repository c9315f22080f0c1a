"""A link of two copy threads, for a device that computes while the caller waits: the CPU.

Copies go as fast as the machine copies, or, emulated, at the rate of a stated hardware.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slackswap.execution.errors import ExecutionFailed
from slackswap.execution.ledger import Ledger
from slackswap.execution.link import Tensors
from slackswap.execution.log import IterationLog
from slackswap.hardware import Hardware
from slackswap.result import EventKind

#: Seconds between looks at whether a copy thread still lives.
_LOOK_S = 0.2
#: What a sleeping thread may oversleep: the rest of an emulated copy is waited for awake.
_AWAKE_NS = 100_000


@dataclass(frozen=True, slots=True)
class _Job:
    """One copy of one iteration."""

    tensor: int
    start_ns: int
    source: Any
    ledger: Ledger
    tensors: Tensors
    log: IterationLog


class _Worker:
    """A thread that runs one direction's copies, one at a time."""

    def __init__(
        self, lock: threading.Condition, kind: EventKind, copy: Callable[[_Job], Any],
        ended: Callable[[EventKind, _Job, Any], None],
    ) -> None:
        self._lock, self._kind, self._copy, self._ended = lock, kind, copy, ended
        self.job: _Job | None = None
        self.failure: BaseException | None = None
        self._closed = False
        self.thread = threading.Thread(target=self._work, name=f"slackswap-{kind}", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Let the thread end after its present copy. The lock is held."""
        self._closed = True
        self._lock.notify_all()

    def _work(self) -> None:
        try:
            while True:
                with self._lock:
                    while self.job is None and not self._closed:
                        self._lock.wait()
                    if self._closed:
                        return
                    job = self.job
                assert job is not None
                result = self._copy(job)
                with self._lock:
                    self.job = None
                    self._ended(self._kind, job, result)
                    del job, result
                    self._lock.notify_all()
        except BaseException as error:  # told to the thread that waits
            with self._lock:
                self.failure = error
                self._lock.notify_all()


class ThreadLink:
    """Two copy threads and a monotonic clock.

    Parameters
    ----------
    emulated : Hardware, optional
        Rates and latency that copies are held to; without one they go as fast as they can. May be
        replaced between iterations.
    patience_s : float
        Seconds without the end of any copy, beyond what the emulated hardware takes, after which
        a copy counts as stuck.
    """

    def __init__(self, emulated: Hardware | None = None, *, patience_s: float = 10.0) -> None:
        self.emulated, self.patience_s = emulated, patience_s
        self.lock = threading.Condition()
        self._workers: dict[EventKind, _Worker] = {}
        self._ends = 0
        self._ledger: Ledger | None = None

    def begin(self, ledger: Ledger, tensors: Tensors, log: IterationLog) -> None:
        """Serve a new iteration; wait for what still runs of one that was given up."""
        # Its copies end without effect: they belong to another ledger.
        self._ledger, self._tensors, self._log = ledger, tensors, log
        try:
            while any(worker.job is not None for worker in self._workers.values()):
                self._wait_for_an_end()
        except ExecutionFailed:
            self._dismiss()  # a worker that failed or hangs: others take over

    def now(self) -> int:
        """Nanoseconds on a monotonic clock."""
        return time.perf_counter_ns()

    def compute(self, work: Callable[[], None], duration_ns: int) -> None:
        """Run an op; it takes what it takes."""
        work()

    def arrive(self) -> None:
        """Do nothing: the copy threads themselves tell of their ends."""

    def pump(self) -> None:
        """Hand the copies that may start to their threads."""
        ledger = self._ledger
        assert ledger is not None
        tensor = ledger.take_offload()
        if tensor is not None:
            self._start(EventKind.OFFLOAD, tensor, self._tensors.source(tensor))
        tensor = ledger.take_prefetch()
        if tensor is not None:
            self._log.curve.append((self.now(), ledger.memory))
            self._start(EventKind.PREFETCH, tensor, None)

    def wait(self) -> None:
        """Wait until a copy ends.

        Raises
        ------
        ExecutionFailed
            When a copy thread failed, was killed, or hangs.
        """
        try:
            self._wait_for_an_end()
        except ExecutionFailed:
            self._dismiss()
            raise

    def close(self) -> None:
        """Let the threads end."""
        with self.lock:
            self._dismiss()

    # ---------------------------------------------------------------- threads

    def _start(self, kind: EventKind, tensor: int, source: Any) -> None:
        assert self._ledger is not None
        worker = self._workers.get(kind)
        if worker is None:
            worker = self._workers[kind] = _Worker(self.lock, kind, self._runs(kind), self._end)
        worker.job = _Job(tensor, self.now(), source, self._ledger, self._tensors, self._log)
        self.lock.notify_all()

    def _runs(self, kind: EventKind) -> Callable[[_Job], Any]:
        return self._offload if kind is EventKind.OFFLOAD else self._prefetch

    def _offload(self, job: _Job) -> None:
        job.tensors.offload(job.tensor, job.source)
        if self.emulated is not None:
            self._hold(job.start_ns + self.emulated.d2h_ns(job.ledger.nbytes(job.tensor)))

    def _prefetch(self, job: _Job) -> Any:
        memory = job.tensors.prefetch(job.tensor)
        if self.emulated is not None:
            self._hold(job.start_ns + self.emulated.h2d_ns(job.ledger.nbytes(job.tensor)))
        return memory

    def _hold(self, until_ns: int) -> None:
        while (left := until_ns - self.now()) > 0:
            if left > _AWAKE_NS:
                time.sleep((left - _AWAKE_NS) / 1e9)

    def _end(self, kind: EventKind, job: _Job, memory: Any) -> None:
        """Tell the ledger of the end of a copy. The lock is held."""
        self._ends += 1
        if job.ledger is not self._ledger:
            return  # of an iteration that was given up
        job.log.copy(kind, job.tensor, job.start_ns, self.now())
        if kind is EventKind.OFFLOAD:
            if job.ledger.end_offload():
                job.tensors.evict(job.tensor)
                job.log.curve.append((self.now(), job.ledger.memory))
        else:
            job.tensors.restore(job.tensor, memory)
            job.ledger.end_prefetch()
        self.pump()

    def _wait_for_an_end(self) -> None:
        seen, patience = self._ends, self.patience_s
        jobs = [worker.job for worker in self._workers.values() if worker.job is not None]
        if self.emulated is not None:
            patience += sum(
                self.emulated.d2h_ns(job.ledger.nbytes(job.tensor))
                + self.emulated.h2d_ns(job.ledger.nbytes(job.tensor)) for job in jobs
            ) / 1e9
        limit = time.monotonic() + patience
        while self._ends == seen:
            for kind, worker in self._workers.items():
                if worker.failure is not None or not worker.thread.is_alive():
                    cause = worker.failure
                    told = "was killed" if cause is None else f"failed: {cause!r}"
                    raise ExecutionFailed(
                        f"the {kind} thread {told}", where="execution",
                        fix="run the step again: threads are started anew",
                    ) from cause
            if time.monotonic() > limit:
                raise ExecutionFailed(
                    f"no copy has ended for {patience:.0f} s", where="execution",
                    fix="look what holds the machine's memory bus, or raise patience_s",
                )
            self.lock.wait(_LOOK_S)

    def _dismiss(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers = {}
