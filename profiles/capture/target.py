"""What is captured: a user's ``build()`` turned into one training step with a scalar loss."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._dispatch.python import no_python_dispatcher
from torch._subclasses.fake_tensor import UnsupportedOperatorException
from torch.utils import _pytree as pytree

from slackswap.errors import SlackSwapError
from slackswap.profiles.capture.refusals import check_plain, refusal

Build = Callable[[], Any]

_RETURNS = (
    "return (model, inputs), where model(*inputs), or model(**inputs) for a dict, gives a scalar "
    "loss or an object with a .loss"
)


class TrainingStep(nn.Module):  # type: ignore[misc]  # PyTorch is not type-checked
    """The forward pass of one training step: example tensors in, a scalar loss out.

    Parameters
    ----------
    function : callable
        A module, or a loss function over modules.
    modules : sequence of nn.Module
        The modules whose parameters are trained.
    inputs : tuple of (tuple, dict)
        Positional and keyword arguments of `function`. What is not a tensor in them is constant.
    """

    def __init__(
        self, function: Callable[..., Any], modules: Sequence[nn.Module], inputs: Any
    ) -> None:
        super().__init__()
        # The prefix of every module path; `module_path` takes it off again.
        self.step = nn.ModuleList(modules)
        self._function = [function]  # in a list, so that a module is not registered twice
        leaves, self._spec = pytree.tree_flatten(inputs)
        self.tensors: list[torch.Tensor] = []
        # A tensor that is given twice (labels that are the inputs) is one input of the graph.
        place: dict[int, int] = {}
        self._leaves: list[tuple[bool, Any]] = []
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                self._leaves.append((False, leaf))
                continue
            if id(leaf) not in place:
                place[id(leaf)] = len(self.tensors)
                self.tensors.append(leaf)
            self._leaves.append((True, place[id(leaf)]))

    def arguments_of(
        self, tensors: Sequence[torch.Tensor]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call, nested as the example inputs are."""
        leaves = [tensors[value] if is_tensor else value for is_tensor, value in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return args, kwargs

    def tensors_of_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the tensors among the arguments of a call, in the order of `tensors`.

        Raises
        ------
        SlackSwapError
            When the call differs from the example inputs in more than the values of tensors.
        """
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        if spec != self._spec:
            raise _different_call("its arguments are nested otherwise than the example inputs")
        found: dict[int, torch.Tensor] = {}
        for number, (leaf, (is_tensor, value)) in enumerate(zip(leaves, self._leaves, strict=True)):
            if is_tensor != isinstance(leaf, torch.Tensor):
                raise _different_call(f"argument {number} is {_describe(leaf)}")
            if not is_tensor:
                if leaf is not value and leaf != value:
                    raise _different_call(f"argument {number} is {leaf!r}, not {value!r}")
            elif found.setdefault(value, leaf) is not leaf:
                raise _different_call(
                    f"argument {number} was the same tensor as another one in the example inputs"
                )
        return [found[place] for place in range(len(self.tensors))]

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the loss as a tensor without dimensions."""
        args, kwargs = self.arguments_of(tensors)
        # AOTAutograd traces under the Python dispatcher, which replaces some composite operators
        # (dropout, upsampling, recurrent layers) by decompositions that save other tensors than
        # eager execution does. Eager execution is what is profiled.
        with no_python_dispatcher():
            return _loss(self._function[0](*args, **kwargs))


@dataclass(frozen=True, slots=True)
class Subject:
    """A training step ready to be captured.

    Attributes
    ----------
    name : str
        The target as it was given, for people.
    step : TrainingStep
        Module whose forward pass gives the loss.
    tensors : tuple of torch.Tensor
        Its example inputs.
    """

    name: str
    step: TrainingStep
    tensors: tuple[torch.Tensor, ...]

    def static_tensors(self) -> Iterator[torch.Tensor]:
        """Parameters and buffers, each once."""
        yield from self.step.parameters()
        yield from self.step.buffers()


def load_build(target: str | Build) -> Build:
    """Return the function that a target such as ``my_pkg.my_module:build`` names.

    The current folder is searched first, as ``python -m`` does. A callable is returned as it is.

    Raises
    ------
    SlackSwapError
        When the module or the function does not exist, or the module fails to import.
    """
    if not isinstance(target, str):
        return target
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise SlackSwapError(
            f"{target!r} is not MODULE:FUNCTION", where="target",
            fix="write it like my_pkg.my_module:build",
        )
    folder = os.getcwd()
    added = folder not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        value: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            value = getattr(value, part)
    except Exception as error:
        raise SlackSwapError(
            f"{target} cannot be loaded ({type(error).__name__}: {_line(error)})", where="target",
            fix="check the name, and that the module imports by itself",
        ) from error
    finally:
        if added:
            sys.path.remove(folder)
    if not callable(value):
        raise SlackSwapError(
            f"{target} is {type(value).__name__}, not a function", where="target", fix=_RETURNS
        )
    return value  # type: ignore[no-any-return]


def make_subject(build: Build, name: str, device: torch.device) -> Subject:
    """Call `build` and check what it returns.

    Parameters
    ----------
    build : callable
        Returns the model or loss function, and its example inputs: a tensor, a tuple, or a dict
        of keyword arguments.
    name : str
        For error messages.
    device : torch.device
        Where parameters and inputs must be.

    Raises
    ------
    SlackSwapError
        When it fails or returns something else.
    """
    try:
        built = build()
    except SlackSwapError:
        raise
    except UnsupportedOperatorException as error:
        raise refusal(error, name, "the build function failed") from error
    except Exception as error:
        raise SlackSwapError(
            f"the build function failed ({type(error).__name__}: {_line(error)})", where=name,
            fix=_build_fix(error),
        ) from error
    if not isinstance(built, Sequence) or len(built) != 2 or not callable(built[0]):
        raise SlackSwapError(
            f"the build function returned {_describe(built)}", where=name, fix=_RETURNS
        )
    function, inputs = built
    modules = [function] if isinstance(function, nn.Module) else _modules_of(function)
    arguments = _arguments(inputs)
    check_plain(function, modules, pytree.tree_leaves(arguments), name)
    step = TrainingStep(function, modules, arguments)
    subject = Subject(name, step, tuple(step.tensors))
    if not any(parameter.requires_grad for parameter in step.parameters()):
        raise SlackSwapError(
            "no parameter to train was found", where=name,
            fix="return the module itself, or a loss function that refers to it",
        )
    for tensor in (*subject.static_tensors(), *subject.tensors):
        if tensor.device.type != device.type:
            raise SlackSwapError(
                f"a tensor of shape {tuple(tensor.shape)} is on {tensor.device}, not on {device}",
                where=name,
                fix="name no device in the build function; capture chooses it",
            )
    return subject


@contextlib.contextmanager
def told_errors(name: str, what: str) -> Iterator[None]:
    """Turn an exception of the user's model, or of PyTorch, into an error that says what to do."""
    try:
        yield
    except SlackSwapError:
        raise
    except Exception as error:
        raise refusal(error, name, what) from error


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    return (inputs,), {}


def _modules_of(function: Callable[..., Any]) -> list[nn.Module]:
    """Modules that a loss function refers to: its object, closure, defaults and globals."""
    candidates: list[Any] = []
    while hasattr(function, "func") and hasattr(function, "args"):  # functools.partial
        candidates += [*function.args, *getattr(function, "keywords", {}).values()]
        function = function.func
    candidates.append(getattr(function, "__self__", None))
    function = getattr(function, "__func__", function)
    if inspect.isfunction(function):
        names = inspect.getclosurevars(function)
        candidates += [*names.nonlocals.values(), *names.globals.values()]
        candidates += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    else:
        candidates += vars(function).values() if hasattr(function, "__dict__") else ()
    return list(dict.fromkeys(_modules_in(candidates)))


def _modules_in(candidates: Iterable[Any]) -> Iterator[nn.Module]:
    for candidate in candidates:
        for leaf in pytree.tree_leaves(candidate):
            if isinstance(leaf, nn.Module):
                yield leaf


def _loss(output: Any) -> torch.Tensor:
    loss = output if isinstance(output, torch.Tensor) else getattr(output, "loss", None)
    if loss is None and isinstance(output, Mapping):
        loss = output.get("loss")
    differentiable = not torch.is_grad_enabled() or getattr(loss, "requires_grad", False)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not differentiable:
        raise SlackSwapError(
            f"the model returned {_describe(output)}, which holds no scalar loss with a gradient",
            where="build", fix=_RETURNS + "; for a Hugging Face model, give labels",
        )
    return loss.reshape(())


def _different_call(what: str) -> SlackSwapError:
    return SlackSwapError(
        f"the call differs from the captured one: {what}", where="inputs",
        fix="call it like the example inputs, or capture it again with these",
    )


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, (tuple, list)):
        kinds = ", ".join(type(item).__name__ for item in value[:4])
        return f"{type(value).__name__} of ({kinds}{', ...' if len(value) > 4 else ''})"
    return f"{type(value).__name__}"


def _line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0][:300] if text else "no message"


def _build_fix(error: Exception) -> str:
    if "CUDA" in str(error):
        return "name no device in the build function; capture chooses it"
    return "call it by itself to see the whole error; it gets no arguments"
