"""The one price table: what each kind of operation of a training step costs.

A price is a list of kernels, each with its arithmetic (FLOPs) and its device-memory traffic
(bytes), for the forward and for the backward op, plus the scratch memory of each. `Prices` holds
the rates that turn kernels into time (see `slackswap.profiles.generators.roofline`). The gradients
that are carried past an op follow from the order of the ops: see
`slackswap.profiles.generators.tape`.

Only `gemm_efficiency` was fitted, once, and only to the share of the saved bytes that the link
can hide on an A100 (11% to 38% over three models); ``docs/price-table.md`` tells how. A change of
any constant here moves every analytic profile, and is caught by the golden tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from slackswap.errors import SlackSwapError

Rate = Literal["gemm", "attention", "conv", "conv3x3", "memory"]

#: Bytes of a single-precision number: statistics, logits and the loss are kept in it.
FP32 = 4
#: Bytes of a token index (PyTorch's int64) and of one flag of a dropout mask (bool).
INDEX = 8
FLAG = 1

#: Attention in one kernel multiplies twice forward (scores, context) and five times backward:
#: scores again, then the gradients of value, probabilities, query and key (Dao 2022, section 3).
ATTENTION_BACKWARD_FACTOR = Fraction(5, 2)

#: How many times longer each gradient of a convolution takes than its forward pass, on average:
#: cnn-benchmarks' times on a Titan X give 1.27 (VGG-16) and 1.18 (ResNet-50).
CONV_GRADIENT_FACTOR = Fraction(5, 4)

#: Mixed precision with Adam: bf16 weights and gradients, fp32 master weights and two fp32 moments
#: (Rajbhandari 2020, section 3.1).
MIXED_ADAM_BYTES_PER_PARAMETER = 2 + 2 + 4 + 4 + 4
#: Single precision with momentum: weights, gradients, one moment.
FP32_MOMENTUM_BYTES_PER_PARAMETER = 4 + 4 + 4


@dataclass(frozen=True, slots=True)
class Prices:
    """Rates that turn kernels into time, and what a profile includes.

    Attributes
    ----------
    gemm_efficiency : float
        Share of peak arithmetic that a matrix product reaches. Large GEMMs on an A100 are
        published at 0.5 (in models, with their shapes) to 0.75 (alone). The one fitted value.
    attention_efficiency : float
        The same for attention in one kernel, forward and backward: 0.55, within what FlashAttention
        and FlashAttention-2 publish for the A100 at head sizes 64 and 128 (0.3 to 0.7).
    conv3x3_efficiency : float
        FLOPs of the direct algorithm per second over peak, for 3x3 convolutions of stride 1. Above
        one: Winograd's algorithm multiplies less. From VGG-16 on a Titan X: 76.15 ms for 16
        images (cnn-benchmarks, cuDNN 5), which no other operation explains.
    conv_efficiency : float
        The same for all other convolutions. From ResNet-50 there: 56.42 ms for 16 images.
    memory_efficiency : float
        Share of peak device-memory bandwidth that streaming kernels reach: 0.8, as copies of large
        arrays measure.
    launch_ns : int
        Time added per kernel. A launch that overlaps its predecessor still costs about 0.9 µs
        (NVIDIA's CUDA Graphs measurements: 3.8 µs for a kernel of 2.9 µs); one more for the ramp
        at both ends.
    with_head : bool
        Whether a transformer includes embedding, head and loss. The logits are cast to fp32 before
        the loss, as autocast and causal Hugging Face models do; `BertForMaskedLM` of transformers 5
        does not, so its traced capture saves 2 bytes a logit less.
    """

    gemm_efficiency: float = 0.65
    attention_efficiency: float = 0.55
    conv3x3_efficiency: float = 1.07
    conv_efficiency: float = 0.36
    memory_efficiency: float = 0.8
    launch_ns: int = 2_000
    with_head: bool = True

    def __post_init__(self) -> None:
        for name in ("gemm", "attention", "conv3x3", "conv", "memory"):
            value = getattr(self, f"{name}_efficiency")
            if not 0 < value <= 4:
                raise SlackSwapError(
                    f"{name}_efficiency is {value!r}", where="prices",
                    fix="write a share of the peak rate, such as 0.75",
                )
        if self.launch_ns < 0:
            raise SlackSwapError(
                f"launch_ns is {self.launch_ns}", where="prices", fix="write 0 or more nanoseconds"
            )

    def efficiency(self, rate: Rate) -> float:
        """Share of peak arithmetic that a kernel of this rate reaches."""
        # A streaming kernel's arithmetic is never its limit.
        return 1.0 if rate == "memory" else float(getattr(self, f"{rate}_efficiency"))


DEFAULT_PRICES = Prices()


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch: its arithmetic in FLOPs, its device-memory traffic in bytes."""

    rate: Rate
    flops: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Price:
    """What one operation launches and holds.

    Attributes
    ----------
    forward, backward : tuple of Kernel
        Launches of the op and of its gradient; an empty `backward` costs nothing.
    workspace, backward_workspace : int
        Scratch bytes of each, results and gradients not counted.
    """

    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...] = ()
    workspace: int = 0
    backward_workspace: int = 0


def stream(*nbytes: int) -> tuple[Kernel, ...]:
    """One memory-bound kernel for each amount of traffic in bytes."""
    return tuple(Kernel("memory", 0, amount) for amount in nbytes)


def gemm(rows: int, inner: int, columns: int, itemsize: int, *, bias: bool = False) -> Price:
    """Matrix product with a weight: one kernel forward, one for each gradient backward.

    The bias is added in the product's epilogue; its gradient is a column sum of its own. The
    libraries' workspace is allocated once and stays, so it is not an activation.
    """
    kernel = Kernel(
        "gemm", 2 * rows * inner * columns,
        itemsize * (rows * inner + inner * columns + rows * columns),
    )
    bias_gradient = stream(itemsize * rows * columns) if bias else ()
    return Price((kernel,), (kernel, kernel, *bias_gradient))


def batched_gemm(count: int, rows: int, inner: int, columns: int, itemsize: int) -> Price:
    """Product of two batches of activations: scores and context of attention as written."""
    kernel = Kernel(
        "gemm", 2 * count * rows * inner * columns,
        itemsize * count * (rows * inner + inner * columns + rows * columns),
    )
    return Price((kernel,), (kernel, kernel))


def flash_attention(
    batch: int, sequence: int, heads: int, kv_heads: int, head_size: int, itemsize: int, *,
    causal: bool,
) -> Price:
    """Attention in one kernel: scores and probabilities never reach memory.

    Backward holds query's gradient and a row sum per head in fp32; with grouped heads also the
    gradients of key and value for every query head, before they are summed.
    """
    flops = 4 * batch * heads * sequence * sequence * head_size
    if causal:  # blocks above the diagonal are skipped
        flops //= 2
    query = itemsize * batch * sequence * heads * head_size
    key = itemsize * batch * sequence * kv_heads * head_size
    rows = FP32 * batch * heads * sequence
    forward = Kernel("attention", flops, 2 * query + 2 * key + rows)
    # Reads query, key, value, result and its gradient; writes three gradients.
    backward = Kernel(
        "attention", int(flops * ATTENTION_BACKWARD_FACTOR), 4 * query + 4 * key + 2 * rows
    )
    accumulator = FP32 * batch * sequence * heads * head_size
    prepare, finish = stream(2 * query + rows, accumulator + query)
    expanded = 2 * query if kv_heads < heads else 0
    reduction = stream(2 * query + 2 * key) if kv_heads < heads else ()
    return Price(
        (forward,), (prepare, backward, finish, *reduction),
        backward_workspace=accumulator + rows + expanded,
    )


def norm(nbytes: int) -> Price:
    """Layer norm or RMS norm in one kernel; backward one for the input, one for the weights."""
    return Price(stream(2 * nbytes), stream(3 * nbytes, 2 * nbytes))


def activation(nbytes: int) -> Price:
    """GELU, SiLU or ReLU: reads one, writes one; backward reads two, writes one."""
    return Price(stream(2 * nbytes), stream(3 * nbytes))


def product(nbytes: int) -> Price:
    """Elementwise product of two activations; backward one kernel for each factor."""
    return Price(stream(3 * nbytes), stream(3 * nbytes, 3 * nbytes))


def linear_map(nbytes: int) -> Price:
    """Scaling, masking or rotation: reads one, writes one, both ways."""
    return Price(stream(2 * nbytes), stream(2 * nbytes))


def cast(nbytes_in: int, nbytes_out: int) -> Price:
    """Change of number format, both ways."""
    return Price(stream(nbytes_in + nbytes_out), stream(nbytes_in + nbytes_out))


def residual(nbytes: int) -> Price:
    """Sum of two activations; backward hands its gradient on without a kernel."""
    return Price(stream(3 * nbytes))


def add_parameter(nbytes: int) -> Price:
    """Broadcast sum with a parameter; backward is the reduction for its gradient."""
    return Price(stream(2 * nbytes), stream(nbytes))


def dropout_mask(elements: int) -> Price:
    """Draw a mask: written only. No gradient."""
    return Price(stream(FLAG * elements))


def dropout(nbytes: int, elements: int) -> Price:
    """Apply a mask, both ways."""
    return Price(stream(2 * nbytes + FLAG * elements), stream(2 * nbytes + FLAG * elements))


def softmax(nbytes_in: int, nbytes_out: int) -> Price:
    """Softmax over rows, perhaps to a wider format; backward reads result and gradient."""
    return Price(stream(nbytes_in + nbytes_out), stream(2 * nbytes_out + nbytes_in))


def embedding(tokens: int, width: int, vocabulary: int, itemsize: int) -> Price:
    """Gather rows of a table; backward clears the table's gradient and adds rows into it."""
    rows = itemsize * tokens * width
    return Price(
        stream(INDEX * tokens + 2 * rows),
        stream(itemsize * vocabulary * width, INDEX * tokens + 3 * rows),
    )


def nll(tokens: int, classes: int) -> Price:
    """Negative log likelihood: reads one entry a row; backward writes a whole gradient."""
    entries = tokens * (FP32 + INDEX)
    return Price(stream(entries), stream(FP32 * tokens * classes, entries))


def convolution(
    pixels: int, channels_in: int, channels_out: int, kernel: int, *, stride: int, nbytes_in: int,
    bias: bool, input_gradient: bool,
) -> Price:
    """Convolution: `pixels` of its result over the batch, fp32.

    Algorithms that need no workspace are assumed, as a training step short of memory would choose.
    """
    weights = kernel * kernel * channels_in * channels_out
    nbytes_out = FP32 * pixels * channels_out
    launch = Kernel(
        "conv3x3" if (kernel, stride) == (3, 1) else "conv",
        2 * pixels * weights, nbytes_in + FP32 * weights + nbytes_out,
    )
    slower = Kernel(launch.rate, int(launch.flops * CONV_GRADIENT_FACTOR), launch.nbytes)
    gradients = (slower,) * (1 + input_gradient)  # of the weights, and of the input
    return Price((launch,), gradients + (stream(nbytes_out) if bias else ()))


def batch_norm(nbytes: int) -> Price:
    """Statistics, then normalisation; backward two sums, then the gradient."""
    return Price(stream(nbytes, 2 * nbytes), stream(2 * nbytes, 3 * nbytes))


def pool(nbytes_in: int, nbytes_out: int) -> Price:
    """Pooling; backward reads input, result and its gradient, and writes the input's gradient."""
    return Price(stream(nbytes_in + nbytes_out), stream(2 * nbytes_in + 2 * nbytes_out))


def in_place_relu(price: Price, nbytes: int) -> Price:
    """Follow an operation by a ReLU on its own result; backward makes a second gradient of it."""
    return Price(
        price.forward + stream(2 * nbytes),
        stream(3 * nbytes) + price.backward,
        price.workspace,
        price.backward_workspace + nbytes,
    )


def accumulate(nbytes: int) -> Price:
    """Sum of two gradients of one tensor."""
    return Price(stream(3 * nbytes))


def total_flops(kernels: Iterable[Kernel]) -> int:
    """Arithmetic of a list of kernels."""
    return sum(kernel.flops for kernel in kernels)
