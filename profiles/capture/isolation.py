"""Leave a user's model and PyTorch's global state as they were, whatever happens in between."""

from __future__ import annotations

import contextlib
import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import nn
from torch.utils._python_dispatch import _pop_mode

_CONTAINERS = (dict, OrderedDict, list, set)


@contextlib.contextmanager
def with_tensors(root: nn.Module, stand_ins: Mapping[int, torch.Tensor]) -> Iterator[None]:
    """Let other tensors stand in for parameters and buffers.

    Each module is visited once and each tensor replaced wherever it is registered, so a module
    under two attributes and a weight under two names are one. (``functional_call`` goes by name,
    takes a stand-in for the original at the second name, and leaves it there.)

    Parameters
    ----------
    root : nn.Module
        The model.
    stand_ins : mapping from int to Tensor
        By the ``id`` of the tensor that is replaced.
    """
    tables = [t for module in root.modules() for t in (module._parameters, module._buffers)]
    before = [dict(table) for table in tables]
    try:
        for table in tables:
            for name, tensor in table.items():
                if id(tensor) in stand_ins:
                    table[name] = stand_ins[id(tensor)]
        yield
    finally:
        for table, originals in zip(tables, before, strict=True):
            table.clear()
            table.update(originals)


@contextlib.contextmanager
def attributes_kept(root: nn.Module) -> Iterator[None]:
    """Put back the attributes of all modules: what a forward pass stores must not outlive it."""
    modules = list(root.modules())
    attributes = [dict(vars(module)) for module in modules]
    contents = [
        (value, value.copy())
        for found in attributes for value in found.values() if type(value) in _CONTAINERS
    ]
    try:
        yield
    finally:
        for module, found in zip(modules, attributes, strict=True):
            vars(module).clear()
            vars(module).update(found)
        for container, content in contents:
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(content)


@contextlib.contextmanager
def values_kept(
    changing: Iterable[torch.Tensor], trained: Iterable[nn.Parameter]
) -> Iterator[None]:
    """Put back the values of tensors that real steps change, and the gradients of parameters."""
    changing = list(changing)
    values = [tensor.detach().clone() for tensor in changing]
    gradients = [(parameter, parameter.grad) for parameter in trained]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(changing, values, strict=True):
                if not torch.equal(tensor, value):  # its version counter stays if it can
                    tensor.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient


@contextlib.contextmanager
def global_state_kept() -> Iterator[None]:
    """Put back random states, dispatch modes, and the settings that a build function may change."""
    depth = torch._C._len_torch_dispatch_stack()
    dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
    one_dnn, threads = torch._C._get_mkldnn_enabled(), torch.get_num_threads()
    autocast = {
        kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
        for kind in ("cpu", "cuda")
    }
    python = random.getstate()
    try:
        yield
    finally:
        # An exception inside a mode of PyTorch's own may leave it behind: under a fake mode the
        # random state could not be put back.
        while torch._C._len_torch_dispatch_stack() > depth:
            _pop_mode()
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch._C._set_mkldnn_enabled(one_dnn)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        for kind, (enabled, number_format) in autocast.items():
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, number_format)
        random.setstate(python)
