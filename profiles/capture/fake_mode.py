"""Fake tensors that still know the values which do not depend on data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from slackswap.profiles.capture.kinds import is_allocation

aten = torch.ops.aten

#: Largest tensors whose values are followed: positions, masks and schedules, not activations.
_MAX_INTEGERS = 1 << 20
_MAX_FLOATS = 1 << 12


class FollowingFakeMode(FakeTensorMode):  # type: ignore[misc]
    """A fake mode that follows the values of tensors made from constants.

    Models branch on such values: Hugging Face decoders look whether position indices are
    consecutive, stochastic depth reads its rates from ``linspace``. A plain fake tensor has no
    values, so the branch would end the trace. Values that depend on parameters, random numbers or
    activations are still unknown.

    Parameters
    ----------
    cuda_results : bool
        Give results the number formats of CUDA kernels where those of the CPU differ.
    """

    def __init__(self, *, cuda_results: bool = False) -> None:
        super().__init__(allow_non_fake_inputs=True)
        # By identity: == on tensors compares elements.
        self._values = WeakTensorKeyDictionary()
        self._building = False
        self._cuda_results = cuda_results

    def __deepcopy__(self, memo: dict[int, Any]) -> FollowingFakeMode:
        """Return the mode itself: a copy of a fake tensor lives under the same mode."""
        return self

    def __copy__(self) -> FollowingFakeMode:
        """Return the mode itself."""
        return self

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """Answer every unknown yes-or-no question with no, while a model is being built.

        Initialisation asks such questions ("is any value beyond the cut-off?") until random
        weights satisfy it. Fake weights always do.
        """
        swap = torch.utils.swap_tensors

        def forgetting_swap(first: torch.Tensor, second: torch.Tensor) -> None:
            # `model.to(dtype)` swaps fake parameters, which nothing may refer to weakly.
            self.fake_tensor_converter.meta_converter.tensor_memo.clear()
            for tensor in (first, second):
                self._values.pop(tensor, None)
            swap(first, second)

        self._building = True
        try:
            with self, mock.patch.object(torch.utils, "swap_tensors", forgetting_swap):
                yield
        finally:
            self._building = False

    def follow(self, fake: FakeTensor, value: torch.Tensor) -> None:
        """Let `fake` have a known value, if it is small enough."""
        if _is_small(value):
            self._values[fake] = value.detach()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator on fake tensors, and on the known values beside them."""
        kwargs = kwargs or {}
        if func is aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            value = self._values.get(args[0])
            if value is not None:
                with unset_fake_temporarily():
                    return value.item()
            if self._building and args[0].dtype == torch.bool:
                return False
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if isinstance(func, torch._ops.OpOverload):
            self._follow(func, args, kwargs, result)
            if self._cuda_results and func is aten.native_layer_norm.default:
                return self._fp32_statistics(result)
        return result

    def _follow(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        tensors = [
            leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
        ]
        known = [
            self._values.get(leaf) if isinstance(leaf, FakeTensor) else leaf for leaf in tensors
        ]
        if func._schema.is_mutable:
            self._mutate(func, args, kwargs, tensors, known)
            return
        results = [result] if isinstance(result, FakeTensor) else result
        if (
            not isinstance(results, (list, tuple))
            or not all(isinstance(item, FakeTensor) for item in results)
            or any(value is None for value in known)
            or torch.Tag.nondeterministic_seeded in func.tags
            or is_allocation(func)
            or not all(map(_is_small, results))
        ):
            return
        outcome = self._on_values(func, args, kwargs)
        values = [outcome] if isinstance(outcome, torch.Tensor) else outcome or ()
        for fake, value in zip(results, values, strict=False):
            if isinstance(value, torch.Tensor) and value.shape == fake.shape:
                self.follow(fake, value)

    def _mutate(
        self, func: Any, args: Any, kwargs: Any, tensors: list[Any], known: list[Any]
    ) -> None:
        """Repeat an in-place operation on the known values, or forget what it may change."""
        followed = torch.Tag.nondeterministic_seeded not in func.tags and all(
            value is not None for value in known
        )
        if followed and self._on_values(func, args, kwargs) is not None:
            return
        for tensor in tensors:
            # Views of a known value share its storage, so they are found by it.
            value = self._values.get(tensor) if isinstance(tensor, FakeTensor) else None
            if value is not None:
                storage = value.untyped_storage()._cdata
                for fake, other in list(self._values.items()):
                    if other.untyped_storage()._cdata == storage:
                        del self._values[fake]

    def _on_values(self, func: Any, args: Any, kwargs: Any) -> Any:
        def known(leaf: Any) -> Any:
            if isinstance(leaf, torch.device):
                return torch.device("cpu")  # values are followed there, whatever the model's device
            return self._values[leaf] if isinstance(leaf, FakeTensor) else leaf

        args, kwargs = pytree.tree_map(known, (args, kwargs))
        try:
            with unset_fake_temporarily(), torch.no_grad():
                return func(*args, **kwargs)
        except (RuntimeError, NotImplementedError):
            # A kernel that real CPU tensors lack: the value stays unknown.
            return None

    def _fp32_statistics(self, result: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        # CUDA keeps mean and reciprocal deviation of 16-bit inputs in fp32, the CPU in 16 bits.
        normed, *statistics = result
        if normed.dtype not in (torch.float16, torch.bfloat16):
            return result
        with self:
            wide = [torch.empty_like(item, dtype=torch.float32) for item in statistics]
        return (normed, *wide)

    def from_tensor(self, tensor: torch.Tensor, **options: Any) -> torch.Tensor:
        """Return the fake twin of a real tensor.

        The values of integers and flags are followed: a model that branches on its padding mask
        takes the branch that the example inputs take.
        """
        fake = super().from_tensor(tensor, **options)
        real = not isinstance(tensor, FakeTensor)
        if real and isinstance(fake, FakeTensor) and not tensor.is_floating_point():
            with unset_fake_temporarily():
                if _is_small(tensor):
                    self.follow(fake, tensor.detach().cpu())
        return cast("torch.Tensor", fake)


def _is_small(tensor: torch.Tensor) -> bool:
    limit = _MAX_FLOATS if tensor.is_floating_point() else _MAX_INTEGERS
    return bool(
        tensor.layout == torch.strided and not tensor.is_complex() and tensor.numel() <= limit
    )
