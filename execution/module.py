"""A plan as a PyTorch module: shares the model's parameters, and trains in an ordinary loop."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import fx, nn
from torch._functorch._aot_autograd import descriptors as desc

from slackswap.execution.errors import DifferentModel, ExecutionFailed
from slackswap.execution.link import Link
from slackswap.execution.live import LiveRun
from slackswap.execution.log import IterationLog
from slackswap.execution.planned import Planned
from slackswap.execution.pool import HostPool
from slackswap.execution.report import RunReport, measured_figures, predicted_figures
from slackswap.execution.static import StaticRun, Streams
from slackswap.execution.static_order import StaticOrder
from slackswap.execution.values import IterationValues, StorageListener
from slackswap.profiles.capture.joint import JointGraph
from slackswap.profiles.capture.session import Captured


class _Run(torch.autograd.Function):  # type: ignore[misc]  # PyTorch is not type-checked
    """The step as one node of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, iteration: _Iteration, *_trained: torch.Tensor) -> torch.Tensor:
        ctx.iteration = iteration
        return iteration.forward()

    @staticmethod
    def backward(ctx: Any, tangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise ExecutionFailed(
                "gradients of gradients are asked for (create_graph=True)", where="backward",
                fix="take them from the model itself",
            )
        iteration: _Iteration = ctx.iteration
        return None, *iteration.backward(tangent)


class _Iteration:
    """One forward pass and its backward pass."""

    def __init__(
        self, run: LiveRun | StaticRun, values: IterationValues, watched: list[torch.Tensor],
        ended: Callable[[IterationLog], None],
    ) -> None:
        self._run, self._values, self._watched, self._ended = run, values, watched, ended
        self._versions: list[int] | None = None
        self.over = False

    def forward(self) -> torch.Tensor:
        try:
            with _plain_dispatch():
                self._run.forward()
                loss = self._values.turn()
        except BaseException:
            self._give_up()
            raise
        self._versions = [tensor._version for tensor in self._watched]
        return loss

    def backward(self, tangent: torch.Tensor) -> list[torch.Tensor]:
        if self.over:
            raise ExecutionFailed(
                "the backward pass of this step has run, or failed: its activations are gone",
                where="backward", fix="run the forward pass again; retain_graph has no effect here",
            )
        if [tensor._version for tensor in self._watched] != self._versions:
            self._give_up()
            raise ExecutionFailed(
                "a parameter or buffer was changed between forward and backward", where="backward",
                fix="step the optimizer after the backward pass",
            )
        try:
            with _plain_dispatch():
                self._values.start_backward(tangent)
                self._run.backward()
                gradients = self._values.end()
        except BaseException:
            self._give_up()
            raise
        self.over = True
        self._ended(self._run.log)
        return gradients

    def _give_up(self) -> None:
        self.over = True
        self._values.drop()


class PlannedStep(nn.Module):  # type: ignore[misc]
    """A training step that keeps to a plan.

    Call it like the model; it returns the loss. ``loss.backward()`` gives the parameters their
    gradients, the same to the bit as the plain model's. Parameters and buffers are the model's own,
    so any optimizer works on either. Without gradients (``torch.no_grad()``) the model itself runs.

    Parameters
    ----------
    captured : Captured
        The model's training step on real tensors.
    planned : Planned
        The plan, compiled.
    link : Link or Streams
        Carries the copies out: a link by live admission, streams in the plan's static order.
    """

    def __init__(self, captured: Captured, planned: Planned, link: Link | Streams) -> None:
        super().__init__()
        step = captured.subject.step
        self.model = step.step
        # In a list, so that its parameters are not registered again.
        self._plain = [step]
        self.captured, self._link = captured, link
        self._inputs = [_Signature.of(tensor) for tensor in captured.subject.tensors]
        static = list(captured.subject.static_tensors())
        joint = captured.lowered.joint
        self._static = [
            (node, static[static_place(node)], _Signature.of(static[static_place(node)]))
            for node in joint.static_inputs
        ]
        self._constants = {
            node: getattr(joint.module, str(node.target))
            for node in joint.module.graph.find_nodes(op="get_attr")
        }
        self._trained = gradient_targets(joint)
        self._modes = {module: module.training for module in step.step.modules()}
        self._autocast = _autocast_state(self.device)
        self._running: weakref.ref[_Iteration] | None = None
        self._listener: StorageListener | None = None
        self.last: IterationLog | None = None
        self.use(planned)
        weakref.finalize(self, link.close)

    @property
    def device(self) -> torch.device:
        """Where the step runs."""
        device: torch.device = self._static[0][1].device
        return device

    @property
    def planned(self) -> Planned:
        """The plan in use, with its budget and prediction."""
        return self._planned

    @property
    def host_bytes(self) -> int:
        """Host memory taken for swapped tensors; none before the first step."""
        return 0 if self._pool is None else self._pool.nbytes

    def use(self, planned: Planned) -> None:
        """Take on another plan of this model from the next step on."""
        self._check_not_running()
        self._planned, self._executable = planned, planned.executable
        self._pool: HostPool | None = None
        program = self._executable.program
        # A link admits live; streams only queue, in an order that is fixed beforehand.
        static = not hasattr(self._link, "pump")
        self._order = StaticOrder.of(self._executable.timetable) if static else None
        read = {
            node for out in (*program.steps, program.end)
            for instruction in out for node in instruction.reads
        }
        self._watched = [tensor for node, tensor, _ in self._static if node in read]

    def take_host(self) -> HostPool:
        """Take the host memory for swapped tensors, if it is not there yet.

        Raises
        ------
        ExecutionFailed
            When the host does not give it.
        """
        if self._pool is None:
            self._pool = HostPool(self._executable.timetable, pinned=self.device.type == "cuda")
        return self._pool

    def listen(self, listener: StorageListener | None) -> None:
        """Let `listener` be told of every storage that a copy makes."""
        self._listener = listener

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run the forward pass and return the loss.

        Raises
        ------
        DifferentModel
            When inputs, modes or number formats are not those that were captured.
        ExecutionFailed
            When a step is still in flight, or this one cannot be carried out.
        """
        plain = self._plain[0]
        tensors = plain.tensors_of_call(args, kwargs)
        if not torch.is_grad_enabled():
            return plain(*tensors)
        self._check_not_running()
        self._check_state(tensors)
        arguments = dict(self._constants)
        arguments.update((node, tensor.detach()) for node, tensor, _ in self._static)
        joint = self.captured.lowered.joint
        inputs = dict(zip(joint.inputs, self._ordered(tensors), strict=True))
        arguments.update((node, tensor.detach()) for node, tensor in inputs.items())
        values = IterationValues(self._executable, arguments, self.take_host(), self._listener)
        run = self._run_of(values)
        iteration = _Iteration(run, values, self._watched, self._finished)
        self._running = weakref.ref(iteration)
        sources = {node: tensor for node, tensor, _ in self._static} | inputs
        loss: torch.Tensor = _Run.apply(iteration, *(sources[node] for node in self._trained))
        return loss

    def _run_of(self, values: IterationValues) -> LiveRun | StaticRun:
        table, link = self._executable.timetable, self._link
        if self._order is None:
            return LiveRun(table, cast("Link", link), values, values)
        return StaticRun(table, self._order, cast("Streams", link), values, values)

    def _ordered(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [tensors[node.meta["desc"].idx] for node in self.captured.lowered.joint.inputs]

    def _finished(self, log: IterationLog) -> None:
        self.last = log

    def report(self, logs: Sequence[IterationLog] | None = None) -> RunReport:
        """Compare steps with their prediction.

        Parameters
        ----------
        logs : sequence of IterationLog, optional
            Of steps under the present plan; by default of the last one.

        Raises
        ------
        ExecutionFailed
            When no step has run yet.
        """
        logs = logs or ([] if self.last is None else [self.last])
        if not logs:
            raise ExecutionFailed(
                "no step has run yet", where="report", fix="run forward and backward first"
            )
        planned = self._planned
        problem = planned.problem
        return RunReport(
            planner=planned.planner,
            budget_bytes=problem.budget_bytes if problem.is_limited else None,
            reserved_bytes=planned.reserved_bytes,
            predicted=predicted_figures(planned.prediction),
            measured=measured_figures(logs),
            steps=len(logs),
        )

    # ---------------------------------------------------------------- checks

    def _check_not_running(self) -> None:
        running = None if self._running is None else self._running()
        if running is not None and not running.over:
            raise ExecutionFailed(
                "a forward pass is in flight whose backward pass has not run: the budget is for "
                "one step", where="forward",
                fix="call backward first, or drop the loss if its gradient is not wanted",
            )

    def _check_state(self, tensors: list[torch.Tensor]) -> None:
        for place, (tensor, expected) in enumerate(zip(tensors, self._inputs, strict=True)):
            expected.check(tensor, f"input {place}")
        for node, tensor, expected in self._static:
            expected.check(tensor, f"parameter or buffer {node.name}")
        for module, training in self._modes.items():
            if module.training != training:
                raise _different(
                    f"{type(module).__name__} is in {_mode(module.training)} mode and was captured "
                    f"in {_mode(training)} mode"
                )
        if _autocast_state(self.device) != self._autocast:
            raise _different("autocast is set otherwise than when it was captured")


@dataclass(frozen=True, slots=True)
class _Signature:
    """What must not change about a tensor between capture and use."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    stride: tuple[int, ...]
    requires_grad: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Signature:
        return cls(
            tensor.shape, tensor.dtype, tensor.device, tensor.stride(), tensor.requires_grad
        )

    def check(self, tensor: torch.Tensor, what: str) -> None:
        found = _Signature.of(tensor)
        if found == self:
            return
        for field in self.__slots__:
            if getattr(found, field) != getattr(self, field):
                raise _different(
                    f"{what} has {field} {_shown(getattr(found, field))}, and was captured with "
                    f"{_shown(getattr(self, field))}"
                )


def _shown(value: Any) -> str:
    return str(tuple(value)) if isinstance(value, (torch.Size, tuple)) else str(value)


def _different(what: str) -> DifferentModel:
    return DifferentModel(
        what, where="forward", fix="compile the step again as it is now, or change it back"
    )


def _mode(training: bool) -> str:
    return "training" if training else "evaluation"


def _autocast_state(device: torch.device) -> tuple[bool, torch.dtype | None]:
    enabled = torch.is_autocast_enabled(device.type)
    return enabled, torch.get_autocast_dtype(device.type) if enabled else None


def _plain_dispatch() -> Any:
    """Run operators as they are recorded: casts are nodes of the graph already."""
    return torch._C._DisableAutocast()


def static_place(node: fx.Node) -> int:
    """Return the place of a placeholder among the step's parameters and buffers."""
    return int(node.meta["desc"].target[1:])  # "p3", "b12": numbered through


def gradient_targets(joint: JointGraph) -> tuple[fx.Node, ...]:
    """Return, for each of the graph's gradients, the placeholder that it is the gradient of."""
    placeholders = {
        node.meta["desc"]: node for node in joint.module.graph.find_nodes(op="placeholder")
    }
    output = next(iter(joint.module.graph.find_nodes(op="output")))
    return tuple(
        placeholders[role.grad_of]
        for value, role in zip(output.args[0], output.meta["desc"], strict=True)
        if isinstance(value, fx.Node) and isinstance(role, desc.GradAOTOutput)
    )
