"""A log of live storages, by weak references: it trusts neither the profile nor the ledger."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class StorageLog(TorchDispatchMode):  # type: ignore[misc]  # PyTorch is not type-checked
    """Logs when storages come to life and when they are freed, while it is active.

    Every operator's results are looked at, and whatever is handed to `note`; a storage is freed
    when its last reference goes, which a weak reference tells. So the log counts what the process
    holds, not what a plan says it holds.

    Parameters
    ----------
    device : torch.device
        Storages elsewhere are not counted.
    known : iterable of torch.Tensor
        Tensors that are there already: parameters, buffers, inputs.
    """

    def __init__(self, device: torch.device, known: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self._device = device
        self._lock = threading.RLock()  # a collection may run a callback inside `note`
        self._numbers: dict[int, int] = {}
        self._changes: list[tuple[int, int]] = []  # number of the storage, bytes more or less
        self._makers: dict[int, str] = {}
        self._known: list[torch.UntypedStorage] = []
        for tensor in known:
            self.leave_out(tensor)

    def leave_out(self, tensor: torch.Tensor) -> None:
        """Let a tensor's storage not count, such as the host memory of a plan for the CPU."""
        storage = tensor.untyped_storage()
        self._known.append(storage)  # held, so that no other takes its key
        self._numbers[storage._cdata] = -1

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator and note its results."""
        results = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(results):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == self._device.type:
                self.note(leaf.untyped_storage(), str(func))
        return results

    def note(self, storage: torch.UntypedStorage, maker: str = "copy") -> None:
        """Note a storage, unless it is known."""
        key = storage._cdata
        with self._lock:
            if key in self._numbers:
                return
            number = len(self._makers)
            nbytes = storage.nbytes()
            self._numbers[key] = number
            self._makers[number] = maker
            self._changes.append((number, nbytes))

        def freed() -> None:
            with self._lock:
                self._numbers.pop(key, None)
                self._changes.append((number, -nbytes))

        weakref.finalize(storage, freed)

    def peak(self, *, without: Iterable[torch.Tensor] = ()) -> int:
        """Return the most bytes that were alive at once.

        Parameters
        ----------
        without : iterable of torch.Tensor
            Tensors still alive that do not count: the gradients of parameters are static memory.
        """
        left_out = {self._numbers.get(tensor.untyped_storage()._cdata) for tensor in without}
        level = highest = 0
        for number, change in self._changes:
            if number not in left_out:
                level += change
                highest = max(highest, level)
        return highest

    def at_peak(self, *, without: Iterable[torch.Tensor] = ()) -> list[tuple[str, int]]:
        """Return what was alive at the peak: the operator that made it, and its bytes."""
        left_out = {self._numbers.get(tensor.untyped_storage()._cdata) for tensor in without}
        level = highest = 0
        alive: dict[int, int] = {}
        best: dict[int, int] = {}
        for number, change in self._changes:
            if number in left_out:
                continue
            level += change
            if change > 0:
                alive[number] = change
            else:
                alive.pop(number, None)
            if level > highest:
                highest, best = level, dict(alive)
        return [(self._makers[number], nbytes) for number, nbytes in best.items()]
