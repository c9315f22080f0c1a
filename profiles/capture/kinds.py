"""What kind of work an ATen operator does, for people, planners and the price of a fake trace."""

from __future__ import annotations

from typing import Any

import torch

#: Kinds whose time is arithmetic rather than memory traffic.
HEAVY = frozenset({"gemm", "attention", "conv"})

_BY_NAME: dict[str, str] = {
    name: kind
    for kind, names in {
        "gemm": "mm addmm bmm baddbmm dot mv addmv _scaled_mm linear _grouped_mm",
        "conv": "convolution convolution_backward cudnn_convolution mkldnn_convolution "
        "_slow_conv2d_forward",
        "attention": "_scaled_dot_product_flash_attention "
        "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention "
        "_scaled_dot_product_cudnn_attention_backward "
        "_scaled_dot_product_flash_attention_for_cpu "
        "_scaled_dot_product_flash_attention_for_cpu_backward _flash_attention_forward "
        "_flash_attention_backward _efficient_attention_forward _efficient_attention_backward",
        "norm": "native_layer_norm native_layer_norm_backward native_group_norm "
        "native_group_norm_backward _native_batch_norm_legit_functional "
        "_native_batch_norm_legit _native_batch_norm_legit_no_training native_batch_norm "
        "native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward "
        "_batch_norm_with_update_functional batch_norm_backward _fused_rms_norm "
        "_fused_rms_norm_backward",
        "softmax": "_softmax _softmax_backward_data _safe_softmax _log_softmax "
        "_log_softmax_backward_data logsumexp",
        "dropout": "native_dropout native_dropout_backward",
        "random": "bernoulli rand rand_like randn randn_like randint randint_like normal "
        "uniform normal_functional exponential random",
        "embedding": "embedding embedding_dense_backward index_select gather index index_put "
        "_unsafe_index _unsafe_index_put scatter scatter_add index_add scatter_reduce",
        "loss": "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward "
        "mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss "
        "huber_loss_backward binary_cross_entropy binary_cross_entropy_backward "
        "binary_cross_entropy_with_logits",
        "pool": "max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d "
        "avg_pool2d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward "
        "adaptive_max_pool2d adaptive_max_pool2d_backward max_pool3d_with_indices "
        "max_pool3d_with_indices_backward avg_pool3d avg_pool3d_backward "
        "upsample_nearest2d upsample_nearest2d_backward upsample_bilinear2d "
        "upsample_bilinear2d_backward upsample_bicubic2d upsample_bicubic2d_backward "
        "upsample_nearest1d upsample_nearest1d_backward _upsample_nearest_exact2d "
        "_upsample_nearest_exact2d_backward grid_sampler_2d grid_sampler_2d_backward",
        "copy": "_to_copy clone copy cat stack constant_pad_nd slice_backward select_backward "
        "slice_scatter select_scatter diagonal_scatter expand_copy roll flip repeat "
        "as_strided_scatter contiguous diagonal_backward unfold_backward im2col col2im "
        "pixel_shuffle pixel_unshuffle reflection_pad2d reflection_pad2d_backward "
        "replication_pad2d replication_pad2d_backward lift_fresh_copy repeat_interleave "
        "split_with_sizes_copy permute_copy view_copy transpose_copy",
        "reduction": "sum mean amax amin max min argmax argmin any all cumsum cumprod prod var "
        "var_mean std norm linalg_vector_norm count_nonzero topk sort _unique2 bincount",
        "fill": "full full_like zeros zeros_like ones ones_like new_zeros new_ones new_full "
        "scalar_tensor arange linspace fill eye tril_indices triu_indices",
        "elementwise": "add sub rsub mul div neg abs exp exp2 expm1 log log1p log2 pow sqrt rsqrt "
        "sin cos tan sinh cosh tanh tanh_backward sigmoid sigmoid_backward log_sigmoid_forward "
        "log_sigmoid_backward relu relu6 gelu gelu_backward silu silu_backward elu elu_backward "
        "mish mish_backward hardswish hardswish_backward hardsigmoid hardsigmoid_backward "
        "hardtanh hardtanh_backward leaky_relu leaky_relu_backward threshold "
        "threshold_backward softplus softplus_backward celu selu prelu _prelu_kernel "
        "_prelu_kernel_backward glu glu_backward erf erfc reciprocal square sign sgn floor ceil "
        "round trunc frac clamp clamp_min clamp_max maximum minimum fmod remainder atan atan2 "
        "where masked_fill masked_fill_backward masked_scatter eq ne lt le gt ge logical_and "
        "logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor isnan "
        "isinf isfinite addcmul addcdiv lerp tril triu floor_divide true_divide polar "
        "view_as_complex view_as_real complex _conj _conj_physical conj_physical angle "
        "__lshift__ __rshift__ bitwise_left_shift bitwise_right_shift nan_to_num heaviside "
        "copysign hypot addmm_activation one_hot detach_copy real imag",
    }.items()
    for name in names.split()
}

#: Allocations that write nothing.
UNINITIALISED = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
)

#: Fills that the functional graph writes as functions of the tensor that they overwrite.
_FILLS = frozenset(
    {
        "bernoulli.p", "uniform.default", "normal_functional.default", "exponential.default",
        "random.default", "random.from", "random.to", "geometric.default", "log_normal.default",
        "cauchy.default", "fill.Scalar", "zero.default",
    }
)

#: Batch norm in training mode reads these arguments only to update them.
_RUNNING_STATISTICS = {
    "_native_batch_norm_legit_functional": (3, 4),
    "_batch_norm_with_update_functional": (3, 4),
    "native_batch_norm": (3, 4),
    "cudnn_batch_norm": (3, 4),
    "native_batch_norm_backward": (3, 4),
    "cudnn_batch_norm_backward": (3, 4),
    "batch_norm_backward": (3, 4),
}


def operator_name(target: Any) -> str:
    """Short name of an operator: ``addmm``, ``native_dropout``."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target.overloadpacket.__name__)
    return str(getattr(target, "__name__", target))


def kind_of(target: Any) -> str:
    """Kind of an operator; ``other`` for one that is not in the table."""
    return _BY_NAME.get(operator_name(target), "other")


def is_allocation(target: Any) -> bool:
    """Whether an operator only allocates: its result has no value yet."""
    return operator_name(target) in UNINITIALISED


def reads_only_shape(target: Any) -> bool:
    """Whether an operator asks its operands for shape and number format, not for values."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    name = operator_name(target)
    return (
        name.endswith("_like")
        or name.startswith("new_")
        or f"{name}.{target._overloadname}" in _FILLS
    )


def is_random(target: Any) -> bool:
    """Whether an operator draws from the random-number generator."""
    return (
        isinstance(target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded in target.tags
    )


def has_side_effect(target: Any) -> bool:
    """Whether running an operator again could do something else, or do something twice.

    True for what writes to its arguments, for collectives, for assertions, and for calls that are
    not operators with a schema.
    """
    if not isinstance(target, torch._ops.OpOverload):
        return True
    return (
        target._schema.is_mutable
        or not target._schema.returns
        or target.namespace in ("_c10d_functional", "_c10d_functional_autograd", "c10d")
    )


def updated_arguments(target: Any) -> tuple[int, ...]:
    """Argument positions that a batch norm in training mode updates without using their values."""
    return _RUNNING_STATISTICS.get(operator_name(target), ())
