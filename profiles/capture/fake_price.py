"""Price the operators of a fake trace: FLOPs and bytes from their shapes, rates from the table.

The rates and the multi-kernel operators are those of `slackswap.profiles.generators.prices`, so a
traced and an analytic profile of one model differ by what the model really runs, not by the prices.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from slackswap.hardware import Hardware
from slackswap.profiles.capture.kinds import kind_of, operator_name, reads_only_shape
from slackswap.profiles.capture.lowered import LoweredGraph, Operation, tensors_of
from slackswap.profiles.catalogue import for_fp32
from slackswap.profiles.generators import prices as table
from slackswap.profiles.generators.prices import Kernel, Price, Prices, stream
from slackswap.profiles.generators.roofline import duration_ns


@dataclass(frozen=True, slots=True)
class OperationTimes:
    """Time and scratch memory of a lowered graph, by forward operation and by autograd node.

    Attributes
    ----------
    forward_ns, backward_ns : tuple of int
        Durations in nanoseconds.
    forward_workspace, backward_workspace : tuple of int
        Scratch bytes inside each.
    notes : dict
        How they were obtained, for provenance.
    """

    forward_ns: tuple[int, ...]
    backward_ns: tuple[int, ...]
    forward_workspace: tuple[int, ...]
    backward_workspace: tuple[int, ...]
    notes: dict[str, Any]


def price_graph(lowered: LoweredGraph, hardware: Hardware, prices: Prices) -> OperationTimes:
    """Price every operation on a device.

    An operator that is not in the table of kinds costs its memory traffic, and is named under
    ``unpriced_operators`` with the number of its uses.

    Raises
    ------
    InvalidHardware
        When the hardware states no arithmetic rate or no memory bandwidth.
    """
    single = for_fp32(hardware)

    def cost(*operations: Operation) -> tuple[int, int]:
        total, largest = 0, 0
        for op in operations:
            kernels, scratch = operator_kernels(op.node)
            device = single if _is_fp32(op.node) else hardware
            total += duration_ns(kernels, device, prices)
            largest = max(largest, scratch)  # each frees its own before the next
        return total, largest

    forward = [cost(op) for op in lowered.forward]
    backward = [cost(*node.operations) for node in lowered.nodes]
    unpriced = Counter(
        operator_name(op.node.target)
        for op in (*lowered.forward, *lowered.backward)
        if op.kind == "other"
    )
    return OperationTimes(
        forward_ns=tuple(duration for duration, _ in forward),
        backward_ns=tuple(duration for duration, _ in backward),
        forward_workspace=tuple(scratch for _, scratch in forward),
        backward_workspace=tuple(scratch for _, scratch in backward),
        notes={
            "times": f"priced by the roofline of {hardware.name}",
            "prices": {name: getattr(prices, name) for name in prices.__slots__},
            "unpriced_operators": dict(sorted(unpriced.items())),
        },
    )


def operator_kernels(node: fx.Node) -> tuple[tuple[Kernel, ...], int]:
    """Return the kernels that an operator launches, and its scratch bytes."""
    name = operator_name(node.target)
    kind = kind_of(node.target)
    if kind == "attention":
        return _attention(node)
    if kind == "gemm":
        return _gemm(node), 0
    if kind == "conv":
        return _convolution(node), 0
    special = _SEVERAL_KERNELS.get(name)
    if special is not None:
        return special(node), 0
    return stream(_traffic(node)), 0


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """Arguments by their name in the schema, nodes replaced by their fake values."""
    schema = node.target._schema
    bound = {
        argument.name: argument.default_value
        for argument in schema.arguments
        if argument.has_default_value()
    }
    bound.update(zip((a.name for a in schema.arguments), node.args, strict=False))
    bound.update(node.kwargs)
    return {
        key: pytree.tree_map(
            lambda leaf: leaf.meta.get("val") if isinstance(leaf, fx.Node) else leaf, value
        )
        for key, value in bound.items()
    }


def touched_bytes(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's distinct elements: an expanded dimension counts once."""
    elements = math.prod(
        size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride
    )
    return int(elements * tensor.element_size()) if tensor.numel() else 0


def _traffic(node: fx.Node) -> int:
    """Every operand read once, every result written once."""
    reads = 0 if reads_only_shape(node.target) else _read_bytes(node)
    return reads + sum(map(touched_bytes, tensors_of(node)))


def _read_bytes(node: fx.Node) -> int:
    return sum(
        touched_bytes(tensor) for source in node.all_input_nodes for tensor in tensors_of(source)
    )


def _is_fp32(node: fx.Node) -> bool:
    """Whether a matrix product or convolution multiplies numbers of more than 16 bits."""
    values = [tensor for source in node.all_input_nodes for tensor in tensors_of(source)]
    floating = [value for value in values if value.is_floating_point()]
    return bool(floating) and all(value.element_size() >= table.FP32 for value in floating)


def _gemm(node: fx.Node) -> tuple[Kernel, ...]:
    formula = flop_registry.get(node.target.overloadpacket)
    if formula is None:  # products with a vector: their traffic is their price
        return stream(_traffic(node))
    values = pytree.tree_map(
        lambda leaf: leaf.meta.get("val") if isinstance(leaf, fx.Node) else leaf,
        (tuple(node.args), dict(node.kwargs)),
    )
    flops = int(formula(*values[0], **values[1], out_val=node.meta["val"]))
    return (Kernel("gemm", flops, _traffic(node)),)


def _attention(node: fx.Node) -> tuple[tuple[Kernel, ...], int]:
    bound = arguments_of(node)
    query, key, value = bound["query"], bound["key"], bound["value"]
    batch, heads, rows, head_size = query.shape
    kv_heads, columns = key.shape[1], key.shape[2]
    causal = bool(bound.get("is_causal", False))
    backward = operator_name(node.target).endswith("_backward")
    bias = bound.get("attn_bias", bound.get("attn_mask"))
    bias_bytes = touched_bytes(bias) if isinstance(bias, torch.Tensor) else 0
    if rows == columns and head_size == value.shape[-1]:
        price = table.flash_attention(
            batch, rows, heads, kv_heads, head_size, query.element_size(), causal=causal
        )
        kernels = price.backward if backward else price.forward
        scratch = price.backward_workspace if backward else price.workspace
    else:
        flops = 2 * batch * heads * rows * columns * (head_size + value.shape[-1])
        if causal:
            flops //= 2
        if backward:
            flops = int(flops * table.ATTENTION_BACKWARD_FACTOR)
        kernels, scratch = (Kernel("attention", flops, _traffic(node) - bias_bytes),), 0
    return kernels + (stream(bias_bytes) if bias_bytes else ()), scratch


def _convolution(node: fx.Node) -> tuple[Kernel, ...]:
    bound = arguments_of(node)
    weight, transposed = bound["weight"], bool(bound.get("transposed", False))
    backward = "grad_output" in bound
    result = bound["grad_output"] if backward else tensors_of(node)[0]
    # Every weight is multiplied once for each pixel of the side that the stride makes smaller.
    small = bound["input"] if transposed else result
    pixels = small.shape[0] * math.prod(small.shape[2:])
    flops = 2 * pixels * weight.numel()
    plain = all(size == 3 for size in weight.shape[2:]) and all(
        stride == 1 for stride in bound["stride"]
    )
    rate: table.Rate = "conv3x3" if plain and weight.dim() == 4 else "conv"
    traffic = sum(map(touched_bytes, (bound["input"], weight, result)))
    if not backward:
        return (Kernel(rate, flops, traffic),)
    to_input, to_weight, to_bias = bound["output_mask"]
    slower = Kernel(rate, int(flops * table.CONV_GRADIENT_FACTOR), traffic)
    gradients = (slower,) * (int(to_input) + int(to_weight))
    return gradients + (stream(touched_bytes(result)) if to_bias else ())


def _first_input(node: fx.Node) -> int:
    return touched_bytes(arguments_of(node)["input"])


def _layer_norm_backward(node: fx.Node) -> tuple[Kernel, ...]:
    return table.norm(_first_input(node)).backward


def _batch_norm(node: fx.Node) -> tuple[Kernel, ...]:
    return table.batch_norm(_first_input(node)).forward


def _batch_norm_backward(node: fx.Node) -> tuple[Kernel, ...]:
    return table.batch_norm(_first_input(node)).backward


def _embedding(node: fx.Node) -> tuple[Kernel, ...]:
    # Of the table only the rows that are looked up are read.
    return _lookup(node).forward


def _embedding_backward(node: fx.Node) -> tuple[Kernel, ...]:
    return _lookup(node).backward


def _lookup(node: fx.Node) -> Price:
    bound = arguments_of(node)
    indices = bound["indices"].numel()
    if "grad_output" in bound:
        result = tensors_of(node)[0]
        width, vocabulary = result.shape[-1], result.shape[0]
        itemsize = result.element_size()
    else:
        vocabulary, width = bound["weight"].shape
        itemsize = bound["weight"].element_size()
    return table.embedding(indices, width, vocabulary, itemsize)


def _gathered(node: fx.Node) -> tuple[Kernel, ...]:
    """Rows or elements picked by an index: as many are read as are written."""
    result = sum(map(touched_bytes, tensors_of(node)))
    bound = arguments_of(node)
    leaves = pytree.tree_leaves(bound.get("index", bound.get("indices")))
    index = sum(touched_bytes(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))
    return stream(2 * result + index)


def _nll(node: fx.Node) -> tuple[Kernel, ...]:
    target = arguments_of(node)["target"]
    return stream(target.numel() * (table.FP32 + table.INDEX))


def _nll_backward(node: fx.Node) -> tuple[Kernel, ...]:
    target = arguments_of(node)["target"]
    cleared = sum(map(touched_bytes, tensors_of(node)))
    return stream(cleared, target.numel() * (table.FP32 + table.INDEX))


_SEVERAL_KERNELS = {
    "native_layer_norm_backward": _layer_norm_backward,
    "_native_batch_norm_legit_functional": _batch_norm,
    "_batch_norm_with_update_functional": _batch_norm,
    "cudnn_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "batch_norm_backward": _batch_norm_backward,
    "cudnn_batch_norm_backward": _batch_norm_backward,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "gather": _gathered,
    "index_select": _gathered,
    "index": _gathered,
    "_unsafe_index": _gathered,
    "nll_loss_forward": _nll,
    "nll_loss2d_forward": _nll,
    "nll_loss_backward": _nll_backward,
    "nll_loss2d_backward": _nll_backward,
}
