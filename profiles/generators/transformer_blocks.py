"""Transformer blocks, operation by operation: BERT, GPT-2 and Llama style.

Each block writes exactly the tensors that its backward needs, and between them the intermediates
through which a closure must pass: projections before their dropout, scores before their softmax.

A dropout mask is an operation of its own, which draws random numbers. It can run again: PyTorch's
checkpointing restores the generator's state first, and so gets the same mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from slackswap.profiles.generators import prices as table
from slackswap.profiles.generators.prices import FLAG, FP32, Price
from slackswap.profiles.generators.tape import Tape

Attention = Literal["sdpa", "eager"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes that the operations of one block share.

    Attributes
    ----------
    batch, sequence : int
        Sequences, and tokens in each.
    hidden, heads, kv_heads, ffn : int
        Width, attention heads for queries and for keys, width of the feed-forward layer.
    itemsize : int
        Bytes of an activation.
    attention : str
        ``sdpa``: one kernel; ``eager``: scores, softmax and context as operations of their own.
    fused : bool
        Norms, GELU and rotary embedding as one kernel each, and keys and values that query heads
        share read where they are; else as Hugging Face writes them.
    dropout : bool
        Whether the model drops activations while training.
    causal : bool
        Whether a token attends to earlier ones only.
    softmax_fp32 : bool
        Whether eager attention widens its softmax to fp32 and casts the result back.
    """

    batch: int
    sequence: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    itemsize: int
    attention: Attention
    fused: bool
    dropout: bool
    causal: bool
    softmax_fp32: bool

    @property
    def tokens(self) -> int:
        """Tokens in the batch."""
        return self.batch * self.sequence

    @property
    def head_size(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads

    @property
    def kv_width(self) -> int:
        """Width of all key heads together."""
        return self.kv_heads * self.head_size

    def nbytes(self, width: int) -> int:
        """Bytes of an activation of this width for every token."""
        return self.itemsize * self.tokens * width


def linear(tape: Tape, s: Shape, name: str, x: int, inner: int, width: int, *, bias: bool) -> int:
    """Append a matrix product with a weight; its backward needs the input."""
    y = tape.tensor(name, s.nbytes(width))
    price = table.gemm(s.tokens, inner, width, s.itemsize, bias=bias)
    tape.op(name, "gemm", price, reads=(x,), writes=(y,), saves=(x,))
    return y


def elementwise(
    tape: Tape, name: str, x: int, nbytes: int, price: Price, *, saves_input: bool = False
) -> int:
    """Append a map of one tensor to one of `nbytes`."""
    y = tape.tensor(name, nbytes)
    tape.op(
        name, "elementwise", price, reads=(x,), writes=(y,), saves=(x,) if saves_input else ()
    )
    return y


def layer_norm(tape: Tape, s: Shape, name: str, x: int) -> int:
    """Append a layer norm; its backward needs the input and two statistics a token."""
    y = tape.tensor(name, tape.nbytes(x))
    statistics = tape.tensor(f"{name}.statistics", 2 * FP32 * s.tokens, differentiable=False)
    tape.op(name, "norm", table.norm(tape.nbytes(x)), reads=(x,), writes=(y, statistics),
            saves=(x, statistics))
    return y


def rms_norm(tape: Tape, s: Shape, name: str, x: int) -> int:
    """Append an RMS norm, in one kernel or as Hugging Face's Llama writes it.

    As written it widens its input to fp32 and keeps that copy, so that the 16-bit residual itself
    is not saved.
    """
    narrow = tape.nbytes(x)
    if s.fused:
        y = tape.tensor(name, narrow)
        scale = tape.tensor(f"{name}.rstd", FP32 * s.tokens, differentiable=False)
        tape.op(name, "norm", table.norm(narrow), reads=(x,), writes=(y, scale), saves=(x, scale))
        return y
    wide = FP32 * s.tokens * s.hidden
    upcast = elementwise(tape, f"{name}.upcast", x, wide, table.cast(narrow, wide))
    rstd = tape.tensor(f"{name}.rstd", FP32 * s.tokens)
    tape.op(  # square (held as scratch), mean over the row, inverse root
        f"{name}.rstd", "norm",
        Price(table.stream(2 * wide, wide), table.stream(2 * wide), workspace=wide),
        reads=(upcast,), writes=(rstd,), saves=(upcast, rstd),
    )
    scaled = tape.tensor(f"{name}.scaled", wide)
    tape.op(  # backward: one product a factor, and the row sum for the inverse root
        f"{name}.scaled", "elementwise",
        Price(table.stream(2 * wide), table.stream(2 * wide, 3 * wide, wide),
              backward_workspace=wide),
        reads=(upcast, rstd), writes=(scaled,), saves=(upcast, rstd),
    )
    cast = elementwise(tape, f"{name}.cast", scaled, narrow, table.cast(wide, narrow))
    # Times the weight; backward also sums the weight's gradient over the tokens.
    price = Price(table.stream(2 * narrow), table.stream(2 * narrow, 3 * narrow, narrow),
                  backward_workspace=narrow)
    return elementwise(tape, name, cast, narrow, price, saves_input=True)


def dropout(tape: Tape, s: Shape, name: str, x: int, itemsize: int) -> int:
    """Append the drawing of a mask and its application; only the mask is needed backward."""
    if not s.dropout:
        return x
    nbytes = tape.nbytes(x)
    elements = nbytes // itemsize
    mask = tape.tensor(f"{name}.mask", FLAG * elements, differentiable=False)
    tape.op(f"{name}.mask", "random", table.dropout_mask(elements), writes=(mask,))
    y = tape.tensor(name, nbytes)
    tape.op(name, "dropout", table.dropout(nbytes, elements), reads=(x, mask), writes=(y,),
            saves=(mask,))
    return y


def residual(tape: Tape, name: str, x: int, branch: int) -> int:
    """Append the sum of a branch and the residual stream; its backward needs nothing."""
    y = tape.tensor(name, tape.nbytes(x))
    tape.op(name, "residual", table.residual(tape.nbytes(x)), reads=(x, branch), writes=(y,),
            passes_gradient=True)
    return y


def rotary(tape: Tape, s: Shape, name: str, x: int, angles: int) -> int:
    """Append the rotary embedding of queries or keys; backward turns the other way."""
    nbytes = tape.nbytes(x)
    y = tape.tensor(name, nbytes)
    if s.fused:
        price = table.linear_map(nbytes)
    else:
        # x cos, minus half of x, concatenation, times sin, sum.
        kernels = table.stream(2 * nbytes, nbytes, 2 * nbytes, 2 * nbytes, 3 * nbytes)
        price = Price(kernels, kernels, workspace=3 * nbytes, backward_workspace=2 * nbytes)
    tape.op(name, "elementwise", price, reads=(x, angles), writes=(y,), saves=(angles,))
    return y


def attention(tape: Tape, s: Shape, query: int, key: int, value: int) -> int:
    """Append attention; query, key and value may be parts of one tensor."""
    if s.kv_heads < s.heads and not (s.fused and s.attention == "sdpa"):
        key, value = (_repeat(tape, s, name, x) for name, x in (("k", key), ("v", value)))
    core: Callable[[Tape, Shape, int, int, int], int]
    core = _flash if s.attention == "sdpa" else _eager
    return core(tape, s, query, key, value)


def _repeat(tape: Tape, s: Shape, name: str, x: int) -> int:
    """Copy each key or value head once for every query head that reads it."""
    nbytes = s.nbytes(s.hidden)
    traffic = tape.nbytes(x) + nbytes
    price = Price(table.stream(traffic), table.stream(traffic))
    return elementwise(tape, f"{name}.repeat", x, nbytes, price)


def _flash(tape: Tape, s: Shape, query: int, key: int, value: int) -> int:
    inputs = tuple(dict.fromkeys((query, key, value)))
    # Copies of shared heads have one for every query head.
    grouped = s.fused and s.kv_heads < s.heads
    y = tape.tensor("attention", s.nbytes(s.hidden))
    lse = tape.tensor(
        "attention.lse", FP32 * s.batch * s.heads * s.sequence, differentiable=False
    )
    price = table.flash_attention(
        s.batch, s.sequence, s.heads, s.kv_heads if grouped else s.heads, s.head_size,
        s.itemsize, causal=s.causal,
    )
    tape.op("attention", "attention", price, reads=inputs, writes=(y, lse),
            saves=(*inputs, y, lse))
    return y


def _eager(tape: Tape, s: Shape, query: int, key: int, value: int) -> int:
    maps = s.batch * s.heads
    elements = maps * s.sequence**2
    nbytes = s.itemsize * elements
    scores = tape.tensor("attention.scores", nbytes)
    operands = tuple(dict.fromkeys((query, key)))
    tape.op(
        "attention.scores", "attention",
        table.batched_gemm(maps, s.sequence, s.head_size, s.sequence, s.itemsize),
        reads=operands, writes=(scores,), saves=operands,
    )
    for step in ("scale", "mask"):
        scores = elementwise(
            tape, f"attention.{step}", scores, nbytes, table.linear_map(nbytes)
        )
    wide = (FP32 if s.softmax_fp32 else s.itemsize) * elements
    weights = tape.tensor("attention.softmax", wide)
    tape.op("attention.softmax", "softmax", table.softmax(nbytes, wide), reads=(scores,),
            writes=(weights,), saves=(weights,))
    if s.softmax_fp32:
        weights = elementwise(
            tape, "attention.cast", weights, nbytes, table.cast(wide, nbytes)
        )
    weights = dropout(tape, s, "attention.dropout", weights, s.itemsize)
    y = tape.tensor("attention", s.nbytes(s.hidden))
    tape.op(
        "attention.context", "attention",
        table.batched_gemm(maps, s.sequence, s.sequence, s.head_size, s.itemsize),
        reads=(weights, value), writes=(y,), saves=(weights, value),
    )
    return y


def gelu(tape: Tape, s: Shape, x: int) -> int:
    """Append GELU in one kernel; its backward needs the input."""
    nbytes = tape.nbytes(x)
    return elementwise(tape, "gelu", x, nbytes, table.activation(nbytes), saves_input=True)


def gelu_as_written(tape: Tape, s: Shape, x: int) -> int:
    """Append 0.5 x (1 + tanh(c (x + 0.044715 x^3))) one operation after the other."""
    n = tape.nbytes(x)
    cube = elementwise(tape, "gelu.cube", x, n, Price(table.stream(2 * n), table.stream(3 * n)),
                       saves_input=True)
    inner = tape.tensor("gelu.inner", n)
    tape.op(  # scale, add x, scale: linear in both, so nothing is saved
        "gelu.inner", "elementwise",
        Price(table.stream(2 * n, 3 * n, 2 * n), table.stream(2 * n, 2 * n), workspace=2 * n),
        reads=(cube, x), writes=(inner,),
    )
    tanh = tape.tensor("gelu.tanh", n)
    tape.op("gelu.tanh", "elementwise", table.activation(n), reads=(inner,), writes=(tanh,),
            saves=(tanh,))
    gate = tape.tensor("gelu.gate", n)
    tape.op("gelu.gate", "elementwise", Price(table.stream(2 * n)), reads=(tanh,),
            writes=(gate,), passes_gradient=True)
    half = elementwise(tape, "gelu.half", x, n, table.linear_map(n))
    y = tape.tensor("gelu", n)
    tape.op("gelu", "elementwise", table.product(n), reads=(half, gate), writes=(y,),
            saves=(half, gate))
    return y


def bert_block(tape: Tape, s: Shape, x: int, extras: tuple[int, ...]) -> int:
    """Append a block with its norms after the residual sums; return its result."""
    query, key, value = (
        linear(tape, s, name, x, s.hidden, s.hidden, bias=True) for name in ("q", "k", "v")
    )
    context = attention(tape, s, query, key, value)
    branch = linear(tape, s, "projection", context, s.hidden, s.hidden, bias=True)
    branch = dropout(tape, s, "dropout1", branch, s.itemsize)
    middle = layer_norm(tape, s, "norm1", residual(tape, "residual1", x, branch))
    branch = linear(tape, s, "fc1", middle, s.hidden, s.ffn, bias=True)
    branch = linear(tape, s, "fc2", gelu(tape, s, branch), s.ffn, s.hidden, bias=True)
    branch = dropout(tape, s, "dropout2", branch, s.itemsize)
    return layer_norm(tape, s, "norm2", residual(tape, "residual2", middle, branch))


def gpt2_block(tape: Tape, s: Shape, x: int, extras: tuple[int, ...]) -> int:
    """Append a block with its norms before the branches; return its residual sum."""
    qkv = linear(
        tape, s, "qkv", layer_norm(tape, s, "norm1", x), s.hidden, 3 * s.hidden, bias=True
    )
    context = attention(tape, s, qkv, qkv, qkv)
    branch = linear(tape, s, "projection", context, s.hidden, s.hidden, bias=True)
    x = residual(tape, "residual1", x, dropout(tape, s, "dropout1", branch, s.itemsize))
    branch = linear(tape, s, "fc1", layer_norm(tape, s, "norm2", x), s.hidden, s.ffn, bias=True)
    branch = (gelu if s.fused else gelu_as_written)(tape, s, branch)
    branch = linear(tape, s, "fc2", branch, s.ffn, s.hidden, bias=True)
    return residual(tape, "residual2", x, dropout(tape, s, "dropout2", branch, s.itemsize))


def llama_block(tape: Tape, s: Shape, x: int, extras: tuple[int, ...]) -> int:
    """Append a block with RMS norms, rotary embedding and a gated feed-forward layer."""
    (angles,) = extras
    normed = rms_norm(tape, s, "norm1", x)
    query = linear(tape, s, "q", normed, s.hidden, s.hidden, bias=False)
    key = linear(tape, s, "k", normed, s.hidden, s.kv_width, bias=False)
    value = linear(tape, s, "v", normed, s.hidden, s.kv_width, bias=False)
    query = rotary(tape, s, "q.rotary", query, angles)
    key = rotary(tape, s, "k.rotary", key, angles)
    context = attention(tape, s, query, key, value)
    branch = linear(tape, s, "projection", context, s.hidden, s.hidden, bias=False)
    x = residual(tape, "residual1", x, branch)
    normed = rms_norm(tape, s, "norm2", x)
    gate = linear(tape, s, "gate", normed, s.hidden, s.ffn, bias=False)
    up = linear(tape, s, "up", normed, s.hidden, s.ffn, bias=False)
    nbytes = s.nbytes(s.ffn)
    silu = elementwise(tape, "silu", gate, nbytes, table.activation(nbytes), saves_input=True)
    gated = tape.tensor("gated", nbytes)
    tape.op("gated", "elementwise", table.product(nbytes), reads=(silu, up), writes=(gated,),
            saves=(silu, up))
    branch = linear(tape, s, "down", gated, s.ffn, s.hidden, bias=False)
    return residual(tape, "residual2", x, branch)
