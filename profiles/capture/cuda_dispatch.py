"""Make fake tensors take the operators that a CUDA device would run.

A CPU build of PyTorch cannot differentiate fake tensors that claim to be on a CUDA device: the
autograd engine asks for a device guard that only a CUDA build registers, and aborts. Fake tensors
on the CPU device can be traced anywhere, and almost every operator of a training step has the same
schema, the same saved tensors and the same result sizes on both devices. The few composite
operators that branch on the device are overridden here, within a scope, by what PyTorch runs on
CUDA:

* ``dropout`` runs the fused kernel, which saves a mask of one byte an element (on the CPU a noise
  tensor of the full number format is drawn and saved);
* ``scaled_dot_product_attention`` takes the flash or the memory-efficient kernel by PyTorch's own
  rules for a device of compute capability 8.0 (on the CPU: another flash kernel, or the composite
  with softmax and mask in memory when dropout is on).

`slackswap.profiles.capture.fake_mode` gives layer norm's statistics the number format of CUDA.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812  (its usual name)
from torch import Tensor

aten = torch.ops.aten

_HALF = (torch.float16, torch.bfloat16)
#: Largest head size of PyTorch's flash kernel.
_FLASH_MAX_HEAD = 256


@contextlib.contextmanager
def cuda_kernels() -> Iterator[None]:
    """Run CUDA's composite operators on fake CPU tensors while the scope lasts.

    Meant for fake tensors only: the kernels they name do not exist for real CPU tensors.
    """
    # oneDNN has operators (a fused LSTM) that only CPU tensors run.
    one_dnn = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with torch.library._scoped_library("aten", "IMPL") as library:
            library.impl("dropout", _dropout, "AutogradCPU")
            library.impl("scaled_dot_product_attention", _attention, "AutogradCPU")
            yield
    finally:
        torch._C._set_mkldnn_enabled(one_dnn)


def _dropout(value: Tensor, p: float, train: bool) -> Tensor:
    # As at::dropout on CUDA: the fused kernel needs 0 < p < 1.
    if not train or p == 0:
        return value
    if p == 1:
        return value.mul(torch.zeros((), dtype=value.dtype, device=value.device))
    return cast("Tensor", aten.native_dropout.default(value, p, True)[0])


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Choose the kernel as ``_fused_sdp_choice`` does for compute capability 8.0."""
    if flash_fits(query, key, value, attn_mask, is_causal, enable_gqa):
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if efficient_fits(query, key, value, attn_mask):
        bias = _bias(attn_mask, query, key)
        compute_log_sumexp = any(x.requires_grad for x in (query, key, value)) or (
            bias is not None and bias.requires_grad
        )
        results = aten._scaled_dot_product_efficient_attention.default(
            query, key, value, bias, compute_log_sumexp, dropout_p, is_causal, scale=scale
        )
    else:
        results = aten._scaled_dot_product_attention_math.default(
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale,
            enable_gqa=enable_gqa,
        )
    return cast("Tensor", results[0])


def flash_fits(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, gqa: bool
) -> bool:
    """Tell whether PyTorch's flash kernel takes these operands.

    It needs four dimensions, 16-bit numbers, no mask, heads of at most 256 numbers that are
    contiguous, equal batches, and a square score matrix when causal.
    """
    if mask is not None or not _dense(query, key, value):
        return False
    if any(x.dtype not in _HALF or x.dtype != query.dtype for x in (query, key, value)):
        return False
    if query.shape[-1] > _FLASH_MAX_HEAD or not _same(query, key, value, -1):
        return False
    heads = query.shape[1], key.shape[1], value.shape[1]
    fits = heads[1] == heads[2] and (
        heads[0] % heads[1] == 0 if gqa else heads[0] == heads[1]
    )
    return fits and not (causal and query.shape[-2] != key.shape[-2])


def efficient_fits(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Tell whether PyTorch's memory-efficient kernel takes these operands.

    It takes a mask and fp32, but no grouped heads, and needs 16-byte aligned rows (4-byte for
    fp32 on compute capability 8.0).
    """
    if not _dense(query, key, value) or not _same(query, key, value, 1):
        return False
    dtypes = (*_HALF, torch.float32)
    if any(x.dtype not in dtypes or x.dtype != query.dtype for x in (query, key, value)):
        return False
    if query.shape[-1] != key.shape[-1]:
        return False
    aligned = 8 if query.dtype in _HALF else 4
    if query.shape[-1] % aligned or value.shape[-1] % aligned:
        return False
    return mask is None or mask.dtype in (torch.bool, query.dtype)


def _dense(query: Tensor, key: Tensor, value: Tensor) -> bool:
    return (
        all(x.dim() == 4 and x.stride(-1) == 1 and x.numel() for x in (query, key, value))
        and _same(query, key, value, 0)
        and key.shape[-2] == value.shape[-2]
    )


def _same(query: Tensor, key: Tensor, value: Tensor, dim: int) -> bool:
    return bool(query.shape[dim] == key.shape[dim] == value.shape[dim])


def _flash(
    query: Tensor, key: Tensor, value: Tensor, p: float, causal: bool, scale: float | None
) -> Tensor:
    head = query.shape[-1]
    scale = 1 / math.sqrt(head) if scale is None else scale
    # The kernel works on heads that are multiples of 8; PyTorch pads the others.
    padding = -head % 8
    if padding:
        query, key, value = (F.pad(x, (0, padding)) for x in (query, key, value))
    result: Tensor = aten._scaled_dot_product_flash_attention.default(
        query, key, value, p, causal, False, scale=scale
    )[0]
    return result[..., :head] if padding else result


def _bias(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """Turn a mask into the additive bias that the memory-efficient kernel reads."""
    if mask is None:
        return None
    bias = mask
    if mask.dtype == torch.bool:
        bias = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(
            mask.logical_not(), -math.inf
        )
    length = bias.shape[-1]
    # Rows must start at multiples of 16 numbers; PyTorch pads, then takes the slice.
    if length % 16:
        bias = F.pad(bias, (0, -length % 16))[..., :length]
    return bias.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def dispatch_note() -> dict[str, Any]:
    """Return what a fake capture assumed, for provenance."""
    return {
        "kernels": "CUDA, compute capability 8.0: fused dropout masks, flash or memory-efficient "
        "attention by PyTorch's rules, fp32 layer-norm statistics",
    }
