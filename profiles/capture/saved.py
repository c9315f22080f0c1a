"""Count what autograd saves, by its own hooks: the yardstick of a captured graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import cast

import torch
from torch._functorch._aot_autograd.functional_utils import from_fun, to_fun
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

from slackswap.profiles.capture.target import Subject


def saved_bytes(
    subject: Subject,
    fake_mode: FakeTensorMode | None = None,
    constants: Iterable[torch.Tensor] = (),
) -> int:
    """Run the forward pass and count the bytes that autograd saves for backward.

    Each storage counts once, whatever its views; parameters, buffers and constants do not count,
    the example inputs do.

    Parameters
    ----------
    subject : Subject
        The training step, on real or on fake tensors.
    fake_mode : FakeTensorMode, optional
        Mode of its fake tensors. They are then hidden behind functional wrappers, as they are
        while a graph is traced: models ask whether a tensor is fake, and take branches that they
        would not take for a real one.
    constants : iterable of torch.Tensor
        Tensors of the model's code that are always there.

    Returns
    -------
    int
        Bytes.
    """
    with contextlib.ExitStack() as stack:
        state: dict[str, torch.Tensor] = dict(_static_tensors(subject))
        tensors = subject.tensors
        if fake_mode is not None:
            stack.enter_context(fake_mode)
            stack.enter_context(FunctionalTensorMode())
            state = {name: _wrapped(tensor) for name, tensor in state.items()}
            tensors = tuple(_wrapped(tensor) for tensor in tensors)
        static = {_storage(tensor)._cdata for tensor in (*state.values(), *constants)}
        saved: dict[int, torch.UntypedStorage] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = _storage(tensor)
            if storage._cdata not in static:
                saved[storage._cdata] = storage  # held, so that no other takes its identity
            # Without its history: a saved result handed back as it is would keep itself alive.
            return tensor.detach()

        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved))
        loss = torch.func.functional_call(subject.step, state, tensors, tie_weights=True)
        del loss
    return sum(storage.nbytes() for storage in saved.values())


def _static_tensors(subject: Subject) -> Iterator[tuple[str, torch.Tensor]]:
    yield from subject.step.named_parameters()
    yield from subject.step.named_buffers()


def _wrapped(tensor: torch.Tensor) -> torch.Tensor:
    return cast("torch.Tensor", to_fun(tensor))


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    if isinstance(tensor, FunctionalTensor):
        torch._sync(tensor)
        tensor = cast("torch.Tensor", from_fun(tensor))
    return tensor.untyped_storage()
