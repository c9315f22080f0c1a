"""A tape of priced operations, and the backward pass that follows from it.

Generators write forward operations down with the tensors whose values their gradients need. The
backward ops, their order, and the activation gradients alive around each of them (`workspace` and
`carried` of the profile) then follow by the rules of reverse-mode differentiation as PyTorch's
engine applies them: a gradient is freed when the op that takes it is done; where a tensor has
several readers their gradients are summed, in place when nobody else holds the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slackswap.hardware import Hardware
from slackswap.profile import BackwardOp, ForwardOp, Profile, Source, Tensor
from slackswap.profiles.generators import prices as table
from slackswap.profiles.generators.prices import Price, Prices
from slackswap.profiles.generators.roofline import duration_ns


@dataclass(frozen=True, slots=True)
class _Op:
    name: str
    kind: str
    layer: int
    price: Price
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    saves: tuple[int, ...]
    passes_gradient: bool


class Tape:
    """Forward operations in execution order.

    Parameters
    ----------
    hardware : Hardware
        What the operations run on; it must state its arithmetic and memory rates.
    prices : Prices
        Rates of the kernels.
    """

    def __init__(self, hardware: Hardware, prices: Prices) -> None:
        self._hardware = hardware
        self._prices = prices
        self._tensors: list[Tensor] = []
        self._differentiable: list[bool] = []
        self._ops: list[_Op] = []
        self._layer = 0
        self._prefix = ""

    def begin(self, layer: int, prefix: str) -> None:
        """Give the tensors and ops that follow a layer, and their names a prefix."""
        self._layer, self._prefix = layer, f"{prefix}."

    def tensor(self, name: str, nbytes: int, *, differentiable: bool = True) -> int:
        """Declare a storage and return its index; it is an input unless an op writes it."""
        self._tensors.append(Tensor(self._prefix + name, nbytes))
        self._differentiable.append(differentiable)
        return len(self._tensors) - 1

    def nbytes(self, tensor: int) -> int:
        """Size of a tensor."""
        return self._tensors[tensor].nbytes

    def op(
        self,
        name: str,
        kind: str,
        price: Price,
        *,
        reads: Sequence[int] = (),
        writes: Sequence[int],
        saves: Sequence[int] = (),
        passes_gradient: bool = False,
    ) -> None:
        """Append an operation.

        Parameters
        ----------
        name, kind : str
            As in the profile.
        price : Price
            Its kernels and scratch, both ways.
        reads, writes : sequence of int
            Tensors.
        saves : sequence of int
            Those of them (or inputs) whose values its backward op needs.
        passes_gradient : bool
            Whether its readers receive the gradient of its result as it is, without a copy.
        """
        self._ops.append(
            _Op(self._prefix + name, kind, self._layer, price, tuple(reads), tuple(writes),
                tuple(saves), passes_gradient)
        )

    def profile(
        self,
        name: str,
        *,
        root: int,
        source: Source = "analytic",
        provenance: Mapping[str, Any],
        static_bytes: int,
    ) -> Profile:
        """Return the profile of the forward operations and of the backward pass from `root`."""
        forward = tuple(
            ForwardOp(
                name=op.name,
                duration_ns=duration_ns(op.price.forward, self._hardware, self._prices),
                reads=op.reads,
                writes=op.writes,
                workspace=op.price.workspace,
                layer=op.layer,
                kind=op.kind,
            )
            for op in self._ops
        )
        return Profile(
            name=name,
            source=source,
            tensors=tuple(self._tensors),
            forward=forward,
            backward=tuple(self._backward(root)),
            provenance=provenance,
            static_bytes=static_bytes,
        )

    def _backward(self, root: int) -> list[BackwardOp]:
        gradients = _Gradients([tensor.nbytes for tensor in self._tensors])
        gradients.create(root)
        ops: list[BackwardOp] = []
        sums: Counter[int] = Counter()
        for op in reversed(self._ops):
            incoming = [tensor for tensor in op.writes if tensor in gradients]
            if not incoming:  # a mask, an index: nothing flows back
                continue
            receivers = [tensor for tensor in op.reads if self._differentiable[tensor]]
            carried = gradients.live
            if op.passes_gradient:
                produced = [gradients.share(incoming[0]) for _ in receivers]
            else:
                produced = [gradients.allocate(tensor) for tensor in receivers]
            if op.price.backward:
                ops.append(
                    BackwardOp(
                        name=f"{op.name}.bwd",
                        duration_ns=duration_ns(op.price.backward, self._hardware, self._prices),
                        reads=op.saves,
                        workspace=gradients.live + op.price.backward_workspace,
                        carried=carried,
                        layer=op.layer,
                        kind=op.kind,
                    )
                )
            for tensor in incoming:
                gradients.release(tensor)
            for tensor, storage in zip(receivers, produced, strict=True):
                if tensor in gradients:
                    sums[tensor] += 1
                    name = f"{self._tensors[tensor].name}.accumulate"
                    ops.append(
                        self._accumulation(
                            name if sums[tensor] == 1 else f"{name}{sums[tensor]}",
                            tensor, storage, gradients, op.layer,
                        )
                    )
                else:
                    gradients.bind(tensor, storage)
        return ops

    def _accumulation(
        self, name: str, tensor: int, storage: int, gradients: _Gradients, layer: int
    ) -> BackwardOp:
        carried = gradients.live
        peak = gradients.accumulate(tensor, storage)
        kernels = table.accumulate(self.nbytes(tensor)).forward
        return BackwardOp(
            name=name,
            duration_ns=duration_ns(kernels, self._hardware, self._prices),
            workspace=peak,
            carried=carried,
            layer=layer,
            kind="elementwise",
        )


class _Gradients:
    """Gradient storages alive at one moment of the backward pass, counted by reference."""

    def __init__(self, nbytes: Sequence[int]) -> None:
        self._nbytes = nbytes
        self._storage_of: dict[int, int] = {}
        self._size: list[int] = []
        self._holders: list[int] = []
        self.live = 0

    def __contains__(self, tensor: int) -> bool:
        return tensor in self._storage_of

    def create(self, tensor: int) -> None:
        """Allocate the gradient of a tensor and bind it."""
        self.bind(tensor, self.allocate(tensor))

    def allocate(self, tensor: int) -> int:
        """Allocate a storage of a tensor's size, held once."""
        self._size.append(self._nbytes[tensor])
        self._holders.append(1)
        self.live += self._nbytes[tensor]
        return len(self._size) - 1

    def share(self, tensor: int) -> int:
        """Hold the storage of a tensor's gradient once more."""
        storage = self._storage_of[tensor]
        self._holders[storage] += 1
        return storage

    def bind(self, tensor: int, storage: int) -> None:
        """Make a storage the gradient of a tensor."""
        self._storage_of[tensor] = storage

    def release(self, tensor: int) -> None:
        """Let go of a tensor's gradient: the op that takes it is done."""
        self._drop(self._storage_of.pop(tensor))

    def accumulate(self, tensor: int, storage: int) -> int:
        """Add a storage to a tensor's gradient and return the peak of live bytes meanwhile."""
        first = self._storage_of[tensor]
        if self._holders[first] > 1:  # someone else still needs the old value
            self._storage_of[tensor] = self.allocate(tensor)
            peak = self.live
            self._drop(first)
        else:
            peak = self.live
        self._drop(storage)
        return peak

    def _drop(self, storage: int) -> None:
        self._holders[storage] -= 1
        if not self._holders[storage]:
            self.live -= self._size[storage]
