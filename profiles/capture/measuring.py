"""Measure a training step operator by operator, on the device that runs it.

The CUDA clock and the CUDA scratch measurement were written without a GPU at hand: no test of this
repository exercises them.
"""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import fx
from torch.utils import _pytree as pytree

from slackswap.errors import SlackSwapError
from slackswap.profiles.capture.fake_price import OperationTimes
from slackswap.profiles.capture.isolation import global_state_kept
from slackswap.profiles.capture.joint import JointGraph
from slackswap.profiles.capture.lowered import LoweredGraph, tensors_of
from slackswap.profiles.capture.target import Subject


class Clock(Protocol):
    """Measures the operators of one iteration, then tells their times."""

    def run(self, operator: Callable[[], Any]) -> Any:
        """Run one operator and take its time."""

    def read(self) -> list[int]:
        """Return the times in nanoseconds of the operators run since the last reading."""


class WallClock:
    """A monotonic clock, for devices that compute while the caller waits."""

    def __init__(self) -> None:
        self._times: list[int] = []

    def run(self, operator: Callable[[], Any]) -> Any:
        """Run one operator and take its time."""
        start = time.perf_counter_ns()
        result = operator()
        self._times.append(time.perf_counter_ns() - start)
        return result

    def read(self) -> list[int]:
        """Return the times in nanoseconds of the operators run since the last reading."""
        times, self._times = self._times, []
        return times


class CudaClock:
    """CUDA events around each operator.

    Events measure what the device does, but also its waiting when Python launches more slowly
    than the device computes. So every `batch` operators the device is put to sleep first, and its
    queue fills up before the first of them starts.
    """

    #: About a millisecond for each ten launches, at 1.5 GHz.
    _CYCLES_PER_OPERATOR = 150_000

    def __init__(self, batch: int = 200) -> None:
        self._batch = batch
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def run(self, operator: Callable[[], Any]) -> Any:
        """Run one operator and take its time."""
        if len(self._events) % self._batch == 0:
            torch.cuda.synchronize()
            torch.cuda._sleep(self._batch * self._CYCLES_PER_OPERATOR)
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        result = operator()
        end.record()
        self._events.append((start, end))
        return result

    def read(self) -> list[int]:
        """Return the times in nanoseconds of the operators run since the last reading."""
        torch.cuda.synchronize()
        events, self._events = self._events, []
        return [round(start.elapsed_time(end) * 1e6) for start, end in events]


class _Interpreter(fx.Interpreter):  # type: ignore[misc]
    """Runs the joint graph on real tensors and hands the operators to a callback."""

    def __init__(
        self, module: fx.GraphModule, operators: set[fx.Node],
        call: Callable[[fx.Node, Callable[[], Any]], Any],
    ) -> None:
        # Values are dropped after their last use, as eager execution drops them.
        super().__init__(module, garbage_collect_values=True)
        self._operators = operators
        self._call = call

    def run_node(self, n: fx.Node) -> Any:
        if n not in self._operators:
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        target: Any = n.target
        return self._call(n, lambda: target(*args, **kwargs))


def graph_arguments(subject: Subject, joint: JointGraph) -> list[torch.Tensor]:
    """Real tensors for the placeholders of a joint graph, in their order."""
    static = list(subject.static_tensors())
    value: dict[fx.Node, torch.Tensor] = {}
    for node in joint.static_inputs:
        # _EachOnce numbers parameters, then buffers: "p3", "b12".
        value[node] = static[int(node.meta["desc"].target[1:])].detach()
    for node in joint.inputs:
        value[node] = subject.tensors[node.meta["desc"].idx]
    if joint.tangent is not None:
        tangent = joint.tangent.meta["val"]
        value[joint.tangent] = torch.ones(
            tangent.shape, dtype=tangent.dtype, device=static[0].device
        )
    return [value[node] for node in joint.module.graph.find_nodes(op="placeholder")]


def measure(
    subject: Subject, lowered: LoweredGraph, *, iterations: int, warmup: int
) -> OperationTimes:
    """Measure every operator of a lowered graph.

    Plain eager iterations alternate with instrumented ones, so that both see the same machine.

    Parameters
    ----------
    subject : Subject
        The step on real tensors.
    lowered : LoweredGraph
        Its graph.
    iterations, warmup : int
        Measured iterations, and those before them that are thrown away.

    Returns
    -------
    OperationTimes
        The median of each forward operator and autograd node; in the notes the interquartile
        ranges, the median time of plain iterations, and the machine.
    """
    cuda = any(tensor.is_cuda for tensor in subject.static_tensors())
    operators = [op.node for op in (*lowered.forward, *lowered.backward)]
    rows: list[list[int]] = []
    plain: list[int] = []
    for number in range(warmup + iterations):
        eager_ns = eager_iteration_ns(subject)
        clock = CudaClock() if cuda else WallClock()
        times = _by_node(lowered, instrumented_ns(subject, lowered, clock), sum)
        if number >= warmup:
            plain.append(eager_ns)
            rows.append(times)
    medians = [round(statistics.median(column)) for column in zip(*rows, strict=True)]
    spreads = [_interquartile_range(column) for column in zip(*rows, strict=True)]
    scratch = [0] * len(operators)
    if cuda:
        scratch = _cuda_scratch(subject, lowered, operators)
    scratch = _by_node(lowered, scratch, max)
    split = len(lowered.forward)
    return OperationTimes(
        forward_ns=tuple(medians[:split]),
        backward_ns=tuple(medians[split:]),
        forward_workspace=tuple(scratch[:split]),
        backward_workspace=tuple(scratch[split:]),
        notes={
            "times": "measured operator by operator, medians"
            + (" of CUDA events" if cuda else " of a monotonic clock"),
            "iterations": iterations,
            "warmup": warmup,
            "plain_iteration_ns": round(statistics.median(plain)),
            "plain_iteration_spread_ns": _interquartile_range(plain),
            "operators_ns": sum(medians),
            "forward_spread_ns": spreads[:split],
            "backward_spread_ns": spreads[split:],
            "machine": machine(),
        },
    )


def with_real_sizes(subject: Subject, lowered: LoweredGraph) -> LoweredGraph:
    """Run a graph once and take over the sizes that its storages really have.

    A fake kernel does not always know what the real one allocates: oneDNN's LSTM, for one, saves
    a workspace of its own choice.
    """
    operations = {op.node: op for op in (*lowered.forward, *lowered.backward)}
    sizes: dict[int, int] = {}

    def call(node: fx.Node, operator: Callable[[], Any]) -> Any:
        outcome = operator()
        tensors = [t for t in pytree.tree_leaves(outcome) if isinstance(t, torch.Tensor)]
        results = operations[node].results
        if len(tensors) == len(results):
            for storage, tensor in zip(results, tensors, strict=True):
                if storage is not None:
                    sizes[storage] = tensor.untyped_storage().nbytes()
        return outcome

    try:
        _run(_Interpreter(lowered.joint.module, set(operations), call), subject, lowered.joint)
    except RuntimeError as error:
        line = str(error).strip().partition("\n")[0]
        raise SlackSwapError(
            f"the traced graph does not run ({line[:300]})", where=subject.name,
            fix="leave out the operator that PyTorch cannot trace; for an LSTM on a CPU, call "
            "torch.backends.mkldnn.set_flags(False) in the build function",
        ) from error
    return lowered.with_sizes(sizes)


def eager_iteration_ns(subject: Subject) -> int:
    """Return the time of one forward and backward pass as a user runs it, in nanoseconds."""
    _synchronize(subject)
    start = time.perf_counter_ns()
    subject.step(*subject.tensors).backward()
    _synchronize(subject)
    taken = time.perf_counter_ns() - start
    for parameter in subject.step.parameters():
        parameter.grad = None
    return taken


def machine() -> dict[str, Any]:
    """Return what the measurements ran on: processor, threads, device, versions."""
    described: dict[str, Any] = {
        "processor": _processor(),
        "logical_cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }
    if torch.cuda.is_available():
        described["gpu"] = torch.cuda.get_device_name()
        described["cuda"] = torch.version.cuda
    return described


def _by_node(
    lowered: LoweredGraph, values: Sequence[int], join: Callable[[Sequence[int]], int]
) -> list[int]:
    """Join what was measured for each backward operation to one value an autograd node."""
    place = len(lowered.forward)
    joined = list(values[:place])
    for node in lowered.nodes:
        joined.append(join(values[place : place + len(node.operations)]))
        place += len(node.operations)
    return joined


def instrumented_ns(subject: Subject, lowered: LoweredGraph, clock: Clock) -> list[int]:
    """Run one iteration operator by operator and return what the clock says of each."""
    operators = [op.node for op in (*lowered.forward, *lowered.backward)]
    interpreter = _Interpreter(
        lowered.joint.module, set(operators), lambda _node, operator: clock.run(operator)
    )
    _run(interpreter, subject, lowered.joint)
    return clock.read()


def _run(interpreter: fx.Interpreter, subject: Subject, joint: JointGraph) -> None:
    with torch.no_grad():
        interpreter.run(*graph_arguments(subject, joint), enable_io_processing=False)


def _cuda_scratch(
    subject: Subject, lowered: LoweredGraph, operators: list[fx.Node]
) -> list[int]:
    """Peak bytes that each operator allocates beyond its results."""
    scratch: list[int] = []

    def call(node: fx.Node, operator: Callable[[], Any]) -> Any:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = operator()
        peak = torch.cuda.max_memory_allocated() - before
        results = {t.untyped_storage()._cdata: t.untyped_storage().nbytes()
                   for t in tensors_of(node)}
        scratch.append(max(0, peak - sum(results.values())))
        return result

    _run(_Interpreter(lowered.joint.module, set(operators), call), subject, lowered.joint)
    return scratch


def _interquartile_range(values: Sequence[int]) -> int:
    if len(values) < 2:
        return 0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return round(high - low)


def _synchronize(subject: Subject) -> None:
    if any(tensor.is_cuda for tensor in subject.static_tensors()):
        torch.cuda.synchronize()


def _processor() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@contextlib.contextmanager
def own_random_state(seed: int) -> Iterator[None]:
    """Seed PyTorch's generators inside, and put them back as they were afterwards."""
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices), global_state_kept():
        torch.manual_seed(seed)
        yield
