"""Train a model plainly and under plans, and compare bits, bytes and times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from slackswap.execution.link import Link
from slackswap.execution.log import IterationLog
from slackswap.execution.meter import StorageLog
from slackswap.execution.module import PlannedStep
from slackswap.execution.planned import Planned
from slackswap.execution.report import RunReport
from slackswap.execution.static import Streams
from slackswap.execution.values import same_bits
from slackswap.profiles.capture.session import Captured

#: Steps before those that are timed: caches, allocator and threads settle.
WARM_UP = 2
_LEARNING_RATE = 1e-3


@dataclass(frozen=True, slots=True)
class Training:
    """Some steps of AdamW.

    Attributes
    ----------
    losses : list of torch.Tensor
        One a step.
    gradients, state : list of torch.Tensor
        Of the last step; parameters and buffers after it.
    step_ns : int
        Median time of forward and backward pass.
    """

    losses: list[torch.Tensor]
    gradients: list[torch.Tensor]
    state: list[torch.Tensor]
    step_ns: int

    def first_difference(self, other: Training) -> str | None:
        """Say where two trainings differ in a bit; None if nowhere."""
        for number, pair in enumerate(zip(self.losses, other.losses, strict=True)):
            if not same_bits(pair[:1], pair[1:]):
                return f"the loss of step {number + 1}"
        for what in ("gradients", "state"):
            ours, theirs = getattr(self, what), getattr(other, what)
            if not same_bits(ours, theirs):
                label = {"gradients": "a gradient", "state": "a parameter or buffer"}[what]
                return f"{label} after step {len(self.losses)}"
        return None


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of training under a plan.

    Attributes
    ----------
    report : RunReport
        Predicted against measured.
    plain_ns : int
        Median step time of the plain model in the same run.
    predicted_throughput, measured_throughput : float
        Time of the plain step over that of the planned one; the simulator's, and measured.
    difference : str or None
        Where bits differ from the plain model's; None if nowhere.
    live_bytes : int
        Peak of the storage log: everything alive but parameters, gradients and buffers.
    host_bytes : int
        Host memory for swapped tensors.
    planned : Planned
        What was run.
    logs : list of IterationLog
        Of the steps that count.
    """

    report: RunReport
    plain_ns: int
    predicted_throughput: float
    measured_throughput: float
    difference: str | None
    live_bytes: int
    host_bytes: int
    planned: Planned
    logs: list[IterationLog] = field(repr=False)

    @property
    def keeps_budget(self) -> bool:
        """Whether neither ledger nor storage log ever went above the budget."""
        budget = self.report.budget_bytes
        highest = max(self.live_bytes, self.report.measured.peak_bytes)
        return budget is None or highest <= budget

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            **self.report.to_dict(),
            "plain_ns": self.plain_ns,
            "predicted_throughput": self.predicted_throughput,
            "measured_throughput": self.measured_throughput,
            "bits_equal": self.difference is None,
            "difference": self.difference,
            "live_bytes": self.live_bytes,
            "host_bytes": self.host_bytes,
            "keeps_budget": self.keeps_budget,
            "plan": self.planned.plan.to_dict(),
        }


def try_plans(
    captured: Captured, plans: Sequence[Planned], make_link: Callable[[], Link | Streams],
    *, steps: int, seed: int = 0,
) -> list[Trial]:
    """Train from the same start under each plan, and plainly.

    The model is left as it was. Each training sees the same random numbers.

    Parameters
    ----------
    captured : Captured
        The step on real tensors.
    plans : sequence of Planned
        What to run.
    make_link : callable
        Returns a new link for each plan.
    steps : int
        Steps that count, after `WARM_UP` others.
    seed : int
        Of PyTorch's random numbers.
    """
    start = _state(captured)
    try:
        plain = train(captured, captured.subject.step, steps=steps, seed=seed)
        return [
            _tried(captured, planned, make_link(), plain, start, steps=steps, seed=seed)
            for planned in plans
        ]
    finally:
        _put_back(captured, start)


def _tried(
    captured: Captured, planned: Planned, link: Link | Streams, plain: Training,
    start: list[torch.Tensor], *, steps: int, seed: int,
) -> Trial:
    _put_back(captured, start)
    step = PlannedStep(captured, planned, link)
    logs: list[IterationLog] = []

    def call(*tensors: torch.Tensor) -> torch.Tensor:
        if step.last is not None and (not logs or logs[-1] is not step.last):
            logs.append(step.last)
        args, kwargs = captured.subject.step.arguments_of(tensors)
        loss: torch.Tensor = step(*args, **kwargs)
        return loss

    training = train(captured, call, steps=steps, seed=seed)
    assert step.last is not None
    logs = [*logs, step.last][-steps:]
    live = live_bytes(captured, step)
    host = step.host_bytes
    link.close()
    report = step.report(logs)
    return Trial(
        report=report,
        plain_ns=plain.step_ns,
        predicted_throughput=planned.prediction.throughput or 0.0,
        measured_throughput=plain.step_ns / training.step_ns,
        difference=plain.first_difference(training),
        live_bytes=live,
        host_bytes=host,
        planned=planned,
        logs=logs,
    )


def train(
    captured: Captured, call: Callable[..., torch.Tensor], *, steps: int, seed: int
) -> Training:
    """Train some steps from the present state, and clear the gradients at the end."""
    module = captured.subject.step
    optimizer = torch.optim.AdamW(
        [p for p in module.parameters() if p.requires_grad], lr=_LEARNING_RATE
    )
    losses, times = [], []
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        for _ in range(WARM_UP + steps):
            optimizer.zero_grad()
            started = time.perf_counter_ns()
            loss = call(*captured.subject.tensors)
            loss.backward()
            if loss.is_cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter_ns() - started)
            optimizer.step()
            losses.append(loss.detach().clone())
            del loss
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    result = Training(losses, gradients, _state(captured), int(statistics.median(times[WARM_UP:])))
    for parameter in module.parameters():
        parameter.grad = None
    return result


def live_bytes(captured: Captured, step: PlannedStep) -> int:
    """Run one step under the storage log and return its peak, inputs included.

    Gradients are cleared afterwards.
    """
    subject = captured.subject
    known = [*subject.static_tensors(), *captured.lowered.joint.constants, *subject.tensors]
    log = StorageLog(step.device, known)
    log.leave_out(step.take_host().memory)
    step.listen(log.note)
    args, kwargs = subject.step.arguments_of(subject.tensors)
    with log:
        step(*args, **kwargs).backward()
    step.listen(None)
    gradients = [p.grad for p in subject.step.parameters() if p.grad is not None]
    inputs: int = captured.profile.graph.input_bytes
    highest = log.peak(without=gradients) + inputs
    for parameter in subject.step.parameters():
        parameter.grad = None
    return highest


def _state(captured: Captured) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in captured.subject.static_tensors()]


def _put_back(captured: Captured, state: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(captured.subject.static_tensors(), state, strict=True):
            tensor.copy_(value)
