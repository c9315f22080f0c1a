"""What autograd saves, by its own hooks: while a graph is traced, and as its yardstick."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, cast
from unittest import mock

import torch
from torch._functorch._aot_autograd.functional_utils import from_fun, to_fun
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.utils import checkpoint

from slackswap.profiles.capture.isolation import with_tensors
from slackswap.profiles.capture.target import Subject


class TraceLog:
    """What autograd saves while a step is traced, and which node unpacks it."""

    def __init__(self) -> None:
        self._packed: list[torch.Tensor] = []
        # Held until the end, so that no other storage takes an identity.
        self._storages: list[torch.UntypedStorage] = []
        self._unpacked: list[tuple[int, int]] = []

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record a forward pass and the backward pass that follows; the last one counts.

        The model's own hooks (checkpoints, offloading) are left out, as tracing leaves them out.
        """
        self._packed.clear()
        self._storages.clear()
        self._unpacked.clear()
        hooks, autograd = torch.autograd.graph.saved_tensors_hooks, torch._C._autograd
        tracing = autograd._saved_tensors_hooks_set_tracing(False)
        autograd._push_saved_tensors_default_hooks(self._pack, self._unpack)
        try:
            with (
                mock.patch.object(hooks, "__enter__", _nothing),
                mock.patch.object(hooks, "__exit__", _nothing),
            ):
                yield
        finally:
            autograd._pop_saved_tensors_default_hooks()
            autograd._saved_tensors_hooks_set_tracing(tracing)

    def close(self) -> tuple[tuple[int, int], ...]:
        """Return identity of the storage and sequence number of the node, and let go of all."""
        found = tuple(
            (int(self._storages[key]._cdata), sequence) for key, sequence in self._unpacked
        )
        self._packed.clear()
        return tuple(dict.fromkeys(found))

    def _pack(self, tensor: torch.Tensor) -> int:
        self._packed.append(tensor)
        self._storages.append(_storage(tensor))
        return len(self._packed) - 1

    def _unpack(self, key: int) -> torch.Tensor:
        node = torch._C._current_autograd_node()
        if node is not None:
            self._unpacked.append((key, int(node._sequence_nr())))
        return self._packed[key]


def _nothing(_hooks: Any, *_error: Any) -> None:
    """Stand for a method of hooks that are left out."""


@dataclass(frozen=True, slots=True)
class SavedByHooks:
    """What a forward pass leaves saved.

    Attributes
    ----------
    storages : tuple of (int, str)
        Bytes of each storage, and the autograd nodes that saved it.
    checkpoints : int
        Checkpointed parts, which save their inputs only.
    """

    storages: tuple[tuple[int, str], ...]
    checkpoints: int

    @property
    def nbytes(self) -> int:
        """Bytes of all storages."""
        return sum(nbytes for nbytes, _ in self.storages)


class _Token:
    """Stands for a saved tensor as long as autograd holds it."""

    __slots__ = ("__weakref__", "owners", "storage", "tensor")

    def __init__(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> None:
        # Without its history: a saved result handed back as it is would keep itself alive.
        self.tensor = tensor.detach()
        self.storage = storage
        self.owners: list[str] = []


def saved_by_hooks(
    subject: Subject,
    fake_mode: FakeTensorMode | None = None,
    constants: Iterable[torch.Tensor] = (),
) -> SavedByHooks:
    """Run the forward pass and list what autograd holds for backward at its end.

    Each storage counts once, whatever its views; parameters, buffers and constants do not count,
    the example inputs do.

    Parameters
    ----------
    subject : Subject
        The training step, on real or on fake tensors.
    fake_mode : FakeTensorMode, optional
        Mode to run under. Tensors are then hidden behind functional wrappers, as they are
        while a graph is traced: models ask whether a tensor is fake, and take branches that they
        would not take for a real one.
    constants : iterable of torch.Tensor
        Tensors of the model's code that are always there.
    """
    with contextlib.ExitStack() as stack:
        state = list(subject.static_tensors())
        constants = list(constants)
        tensors = subject.tensors
        stand_ins = {id(tensor): tensor for tensor in state}
        if fake_mode is not None:
            stack.enter_context(fake_mode)
            stack.enter_context(FunctionalTensorMode())
            constants = [_faked(tensor, fake_mode) for tensor in constants]
            stand_ins = {id(tensor): _wrapped(tensor, fake_mode) for tensor in state}
            tensors = tuple(_wrapped(tensor, fake_mode) for tensor in tensors)
        static = {_storage(tensor)._cdata for tensor in (*stand_ins.values(), *constants)}
        alive: weakref.WeakSet[_Token] = weakref.WeakSet()
        asked: list[_Token] = []

        def pack(tensor: torch.Tensor) -> _Token:
            token = _Token(tensor, _storage(tensor))
            alive.add(token)
            return token

        def unpack(token: _Token) -> torch.Tensor:
            asked.append(token)
            return token.tensor

        checkpoints = stack.enter_context(_counted_checkpoints())
        stack.enter_context(with_tensors(subject.step, stand_ins))
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(pack, unpack))
        loss = subject.step(*tensors)
        # What a part that led nowhere saved is gone already.
        tokens = [token for token in alive if token.storage._cdata not in static]
        _name_owners(loss.grad_fn, asked)
        asked.clear()
        names: dict[int, dict[str, None]] = {}
        sizes: dict[int, int] = {}
        for token in tokens:
            identity = token.storage._cdata
            sizes[identity] = token.storage.nbytes()
            names.setdefault(identity, {}).update(dict.fromkeys(token.owners))
        del loss
    return SavedByHooks(
        tuple((sizes[identity], ", ".join(names[identity])) for identity in sizes),
        len(checkpoints),
    )


def _name_owners(start: Any, asked: list[_Token]) -> None:
    """Give every token the names of the autograd nodes that hold it."""
    waiting, seen = [start], {start}
    while waiting:
        node = waiting.pop()
        for attribute in _saved_attributes(cast("Hashable", type(node))):
            with contextlib.suppress(Exception):  # a name is a courtesy
                getattr(node, attribute)
            for token in asked:
                token.owners.append(node.name())
            asked.clear()
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)


@cache
def _saved_attributes(kind: Hashable) -> tuple[str, ...]:
    found = (name for name in dir(kind) if name.startswith("_saved_"))
    return (*found, "saved_tensors") if hasattr(kind, "saved_tensors") else tuple(found)


@contextlib.contextmanager
def _counted_checkpoints() -> Iterator[list[None]]:
    """Collect an item for each checkpointed part that runs."""
    found: list[None] = []
    frame = checkpoint._CheckpointFrame
    start = frame.__init__

    def counting(self: Any, *args: Any, **kwargs: Any) -> None:
        found.append(None)
        start(self, *args, **kwargs)

    with mock.patch.object(frame, "__init__", counting):
        yield found


def _faked(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    # Tensors of a model that was there before the capture are real.
    return tensor if isinstance(tensor, FakeTensor) else mode.from_tensor(tensor)


def _wrapped(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    return cast("torch.Tensor", to_fun(_faked(tensor, mode)))


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    if isinstance(tensor, FunctionalTensor):
        torch._sync(tensor)
        tensor = cast("torch.Tensor", from_fun(tensor))
    return tensor.untyped_storage()
