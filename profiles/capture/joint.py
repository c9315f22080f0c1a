"""Trace one training step into a single forward-and-backward graph through AOTAutograd."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch import fx, nn
from torch._functorch._aot_autograd import descriptors as desc
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import traceback as fx_traceback

from slackswap.errors import SlackSwapError
from slackswap.profiles.capture.isolation import with_tensors
from slackswap.profiles.capture.saved import TraceLog
from slackswap.profiles.capture.target import Subject, told_errors

_MODULE = "slackswap.module"


@dataclass(frozen=True, slots=True)
class JointGraph:
    """The functional graph of one training step.

    Every node is an ATen operator without side effects: in-place operations, aliases and buffer
    updates are resolved, so each value is written once. ``node.meta["val"]`` holds fake tensors
    whose storages tell which values alias.

    Attributes
    ----------
    module : torch.fx.GraphModule
        Forward nodes, then backward nodes, in the order of eager execution.
    static_inputs : tuple of fx.Node
        Placeholders of parameters and buffers.
    inputs : tuple of fx.Node
        Placeholders of the example tensors, in their order.
    tangent : fx.Node or None
        Placeholder of the gradient of the loss.
    gradients : tuple of fx.Node
        Values that become gradients of parameters.
    updates : tuple of (fx.Node, fx.Node)
        The placeholder of a buffer, or of a weight that the forward pass itself changes (an
        average of others), and the value that it takes on.
    loss : fx.Node
        The result.
    paths : mapping from fx.Node to str
        Path of the module that each operator belongs to; "" for the top.
    unpacked : tuple of (int, int)
        What autograd itself saved: the identity of a storage, and the sequence number of the
        autograd node that unpacked it in backward.
    """

    module: fx.GraphModule
    static_inputs: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    tangent: fx.Node | None
    gradients: tuple[fx.Node, ...]
    updates: tuple[tuple[fx.Node, fx.Node], ...]
    loss: fx.Node
    paths: dict[fx.Node, str]
    unpacked: tuple[tuple[int, int], ...] = ()

    @property
    def constants(self) -> list[torch.Tensor]:
        """Tensors of the model's code that are neither parameter, buffer nor input."""
        nodes = [node for node in self.module.graph.nodes if node.op == "get_attr"]
        return [getattr(self.module, str(node.target)) for node in nodes]

    @property
    def operators(self) -> list[fx.Node]:
        """Nodes that compute, in order."""
        return [node for node in self.module.graph.nodes if node.op == "call_function"]


def is_backward(node: fx.Node) -> bool:
    """Whether a node was recorded during the backward pass."""
    return bool(node.meta.get("partitioner_tag") == "is_backward")


def trace(subject: Subject, fake_mode: FakeTensorMode) -> JointGraph:
    """Trace the forward and backward pass of a training step.

    Parameters
    ----------
    subject : Subject
        The step, on real or on fake tensors.
    fake_mode : FakeTensorMode
        Mode to trace under; that of the subject's tensors when they are fake.

    Raises
    ------
    SlackSwapError
        When the model does something that cannot be traced.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(told_errors(subject.name, "the training step cannot be traced"))
        stack.enter_context(_quiet())
        stack.enter_context(fake_mode)
        stack.enter_context(_module_paths(subject.step))
        stack.enter_context(_fake_constants())
        log = TraceLog()
        joint = aot_export_joint_with_descriptors(
            stack, _EachOnce(subject.step, log), subject.tensors
        )
        module = joint.graph_module
        unpacked = log.close()
    return replace(_read_roles(module), unpacked=unpacked)


class _EachOnce(nn.Module):  # type: ignore[misc]
    """A step whose tied weights are one parameter, and which logs what autograd saves.

    AOTAutograd lifts a parameter once for every name it has, so that a tied weight would get
    separate gradients where eager execution sums them.
    """

    def __init__(self, step: nn.Module, log: TraceLog) -> None:
        super().__init__()
        self._step = [step]  # in a list, so that its parameters are not registered again
        self._log = log
        self._names: list[tuple[int, str]] = []
        for parameter in step.parameters():
            self._names.append((id(parameter), f"p{len(self._names)}"))
            self.register_parameter(self._names[-1][1], parameter)
        for buffer in step.buffers():
            self._names.append((id(buffer), f"b{len(self._names)}"))
            self.register_buffer(self._names[-1][1], buffer)

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        stand_ins = {original: getattr(self, own) for original, own in self._names}
        with with_tensors(self._step[0], stand_ins), self._log.recording():
            loss: torch.Tensor = self._step[0](*tensors)
        return loss


def _read_roles(module: fx.GraphModule) -> JointGraph:
    static: list[fx.Node] = []
    inputs: dict[int, fx.Node] = {}
    buffers: dict[str, fx.Node] = {}
    tangent: fx.Node | None = None
    for node in module.graph.find_nodes(op="placeholder"):
        role = node.meta["desc"]
        if isinstance(role, desc.TangentAOTInput):
            tangent = node
        elif isinstance(role, (desc.ParamAOTInput, desc.BufferAOTInput)):
            static.append(node)
            buffers[role.target] = node
        elif isinstance(role, desc.PlainAOTInput):
            inputs[role.idx] = node
        else:
            raise SlackSwapError(
                f"the graph has an input that is not understood ({type(role).__name__})",
                where="capture", fix="give example inputs that are plain tensors of their own",
            )
    output = next(iter(module.graph.find_nodes(op="output")))
    gradients: list[fx.Node] = []
    updates: list[tuple[fx.Node, fx.Node]] = []
    loss: fx.Node | None = None
    for value, role in zip(output.args[0], output.meta["desc"], strict=True):
        if not isinstance(value, fx.Node):
            continue
        if isinstance(role, desc.GradAOTOutput):
            gradients.append(value)
        elif isinstance(role, desc.InputMutationAOTOutput):
            mutated = role.mutated_input
            if isinstance(mutated, (desc.BufferAOTInput, desc.ParamAOTInput)):
                updates.append((buffers[mutated.target], value))
        elif loss is None:
            loss = value
    assert loss is not None  # TrainingStep returns exactly one tensor
    return JointGraph(
        module=module,
        static_inputs=tuple(static),
        inputs=tuple(inputs[index] for index in sorted(inputs)),
        tangent=tangent,
        gradients=tuple(gradients),
        updates=tuple(updates),
        loss=loss,
        paths=_paths(module),
    )


@contextlib.contextmanager
def _fake_constants() -> Iterator[None]:
    """Let the graph hold fake constants: tensors that are neither parameter, buffer nor input.

    AOTAutograd refuses them, since a graph that holds them could not run; ours only runs when
    its constants are real.
    """
    with mock.patch("torch._dynamo.utils.assert_no_fake_params_or_buffers", return_value=None):
        yield


@contextlib.contextmanager
def _module_paths(step: nn.Module) -> Iterator[None]:
    """Label every traced node with the path of the innermost module that is running."""
    handles = []
    open_labels: list[Any] = []
    for path, child in step.named_modules():
        def enter(_module: nn.Module, _inputs: Any, path: str = path) -> None:
            label = fx_traceback.annotate({_MODULE: path})
            label.__enter__()
            open_labels.append(label)

        def leave(_module: nn.Module, _inputs: Any, _output: Any) -> None:
            open_labels.pop().__exit__(None, None, None)

        handles.append(child.register_forward_pre_hook(enter))
        handles.append(child.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        while open_labels:  # of modules that failed
            open_labels.pop().__exit__(None, None, None)
        for handle in handles:
            handle.remove()


def _paths(module: fx.GraphModule) -> dict[fx.Node, str]:
    paths: dict[fx.Node, str] = {}
    by_sequence: dict[int, str] = {}
    last = ""
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        sequence = node.meta.get("seq_nr")
        if is_backward(node):
            # Autograd gives a backward node the sequence number of the forward operator it
            # belongs to. A sum of gradients belongs to none: it goes with its predecessor.
            if sequence is not None and not node.meta.get("is_gradient_acc", False):
                last = by_sequence.get(sequence, last)
            paths[node] = last
        else:
            paths[node] = module_path(node.meta.get("custom", {}).get(_MODULE, ""))
            if sequence is not None:
                by_sequence.setdefault(sequence, paths[node])
    return paths


def module_path(path: str) -> str:
    """Path of a module within the user's model: without the prefix that `TrainingStep` adds."""
    parts = path.split(".")
    return ".".join(parts[2:]) if parts[0] == "step" else path


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep PyTorch's tracing chatter out, and turn a silently ignored autocast into an error."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", message=".*CUDA is not available.*")
            yield
    finally:
        logger.setLevel(level)
