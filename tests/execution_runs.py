"""Run a captured step plainly and under plans, and compare everything that comes out."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from execution_nets import NETS

from slackswap import Hardware, Plan, Problem
from slackswap.execution.building import compile_plan
from slackswap.execution.link import VirtualLink
from slackswap.execution.meter import StorageLog
from slackswap.execution.module import PlannedStep
from slackswap.execution.values import same_bits
from slackswap.profiles.capture.assembly import assemble
from slackswap.profiles.capture.fake_price import OperationTimes
from slackswap.profiles.capture.session import Captured, traced_step

CPU = torch.device("cpu")
LINK = Hardware("a link", 10**8, 10**8, 10_000)


def captured_net(name: str) -> Captured:
    """Capture a net, with times that are made up: those of the machine would change the plans."""
    with traced_step(NETS[name], device="cpu") as traced:
        lowered = traced.lowered
    rng = random.Random(name)
    times = OperationTimes(
        tuple(rng.randrange(20_000, 400_000) for _ in lowered.forward),
        tuple(rng.randrange(20_000, 800_000) for _ in lowered.nodes),
        (0,) * len(lowered.forward), (0,) * len(lowered.nodes), {},
    )
    profile = assemble(
        lowered, times, name=name, source="traced", static_bytes=0, provenance={}
    )
    return Captured(profile, traced.subject, lowered)


@dataclass
class Outcome:
    """What one forward and backward pass leaves behind."""

    loss: torch.Tensor
    gradients: list[torch.Tensor]
    buffers: list[torch.Tensor]

    def same_as(self, other: Outcome) -> bool:
        return same_bits(
            [self.loss, *self.gradients, *self.buffers],
            [other.loss, *other.gradients, *other.buffers],
        )


def one_step(step, captured: Captured, seed: int = 5) -> Outcome:
    """Run forward and backward of `step`, and put the model back as it was."""
    plain = captured.subject.step
    buffers = list(plain.buffers())
    before = [buffer.clone() for buffer in buffers]
    torch.manual_seed(seed)
    loss = step(*captured.subject.tensors)
    loss.backward()
    gradients = [p.grad for p in plain.parameters() if p.grad is not None]
    result = Outcome(loss.detach(), gradients, [buffer.clone() for buffer in buffers])
    for parameter in plain.parameters():
        parameter.grad = None
    with torch.no_grad():
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)
    return result


def call_like(captured: Captured, step: PlannedStep):
    """Call a planned step with the flat example tensors, as the plain `Step` is called."""

    def call(*tensors):
        args, kwargs = captured.subject.step.arguments_of(tensors)
        return step(*args, **kwargs)

    return call


def metered(step, captured: Captured, planned_step: PlannedStep | None = None):
    """Run one step under the storage log; return the outcome and its peak, inputs included."""
    subject = captured.subject
    log = StorageLog(CPU, [*subject.static_tensors(), *captured.lowered.joint.constants,
                           *subject.tensors])
    if planned_step is not None:
        planned_step.listen(log.note)
        log.leave_out(planned_step.take_host().memory)
    torch.manual_seed(5)
    buffers = list(subject.step.buffers())
    before = [buffer.clone() for buffer in buffers]
    with log:
        loss = step(*subject.tensors)
        loss.backward()
    gradients = [p.grad for p in subject.step.parameters() if p.grad is not None]
    inputs = captured.profile.graph.input_bytes
    peak = log.peak(without=gradients) + inputs
    result = Outcome(loss.detach(), gradients, [buffer.clone() for buffer in buffers])
    for parameter in subject.step.parameters():
        parameter.grad = None
    with torch.no_grad():
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)
    if planned_step is not None:
        planned_step.listen(None)
    return result, peak, log


def planned_step(captured: Captured, problem: Problem, plan: Plan, link=None) -> PlannedStep:
    return PlannedStep(
        captured, compile_plan(captured, problem, plan, CPU), link or VirtualLink(problem.hardware)
    )
