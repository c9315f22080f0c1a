"""The sizes of a transformer, worked out from an Aceso operator table.

The table holds megabytes rounded to three decimals and no dimensions. Weights and allocations
together give them all; each is then checked against every row, so that a table of another kind of
model ends in an error and not in a wrong graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import NoReturn

from slackswap.profiles.importers.reading import MIB, Place

#: Three decimals of a MiB, and a few of the allocator's 512-byte blocks.
TOLERANCE_BYTES = MIB // 1000 + 4 * 512

MASK_BYTES = 1
INDEX_BYTES = 8
FP32_BYTES = 4

#: Logits may have this many more columns than the vocabulary has words, by padding.
_MOST_PADDING = 1024

_GIVE_DIMENSIONS = (
    "enc-attention-softmax", "enc-attention-dropout", "enc-attention-dense", "enc-MLP-GEMM-1",
    "gpt-post-process",
)

#: Bytes a token that the loss keeps beside its softmax: a flag for targets held elsewhere and the
#: target's index. The loss itself, in fp32, is not needed again.
TARGET_BYTES = MASK_BYTES + INDEX_BYTES


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of the table, in nanoseconds and bytes.

    Attributes
    ----------
    op : str
        Name of the op.
    place : Place
        Its line.
    forward_ns, backward_ns : int
        Durations.
    weights : int
        Parameters.
    activations : int
        Allocated by the forward op and still there when it is done: its results and what it saved
        beside its inputs.
    forward_reserved, backward_reserved : int
        Memory the allocator took from the device for the op beyond that.
    """

    op: str
    place: Place
    forward_ns: int
    backward_ns: int
    weights: int
    activations: int
    forward_reserved: int
    backward_reserved: int


@dataclass(frozen=True, slots=True)
class Dimensions:
    """What the table's transformer must look like.

    Attributes
    ----------
    batch, sequence, hidden, heads, ffn : int
        Of the model.
    vocabulary, padded_vocabulary : int
        Rows of the embedding by its weights, and columns of the logits: Megatron runs with more,
        a multiple of 128.
    itemsize : int
        Bytes of an activation.
    """

    batch: int
    sequence: int
    hidden: int
    heads: int
    ffn: int
    vocabulary: int
    padded_vocabulary: int
    itemsize: int

    @property
    def tokens(self) -> int:
        """Tokens in the batch."""
        return self.batch * self.sequence

    @property
    def row_bytes(self) -> int:
        """Bytes of one hidden state for every token."""
        return self.itemsize * self.tokens * self.hidden

    @property
    def scores_bytes(self) -> int:
        """Bytes of the attention scores."""
        return self.itemsize * self.tokens * self.heads * self.sequence

    @property
    def statistics_bytes(self) -> int:
        """Mean and inverse deviation of a norm, in fp32."""
        return 2 * FP32_BYTES * self.tokens

    def activations(self) -> dict[str, int]:
        """Bytes that each op must leave allocated, at the least."""
        row, tokens = self.row_bytes, self.tokens
        inner = self.itemsize * tokens * self.ffn
        scores = self.scores_bytes
        mask = MASK_BYTES * tokens * self.hidden
        return {
            "encoder-embedding": row + mask,
            "enc-1st-layernorm": row + self.statistics_bytes,
            "enc-attention-qkv": 3 * row,
            "enc-attention-score": scores,
            "enc-attention-softmax": scores,
            "enc-attention-dropout": scores + scores // self.itemsize * MASK_BYTES,
            "enc-attention-context": row,
            "enc-attention-dense": row,
            "enc-post-attention-dropout": row + mask,
            "enc-2nd-layernorm": row + self.statistics_bytes,
            "enc-MLP-GEMM-1": inner,
            "enc-MLP-gelu": inner,
            "enc-MLP-GEMM-2": row,
            "enc-post-MLP-dropout": row + mask,
            "final-layernorm": row + self.statistics_bytes,
            "gpt-post-process": tokens * (
                FP32_BYTES * self.padded_vocabulary + TARGET_BYTES + FP32_BYTES
            ),
        }

    def weights(self) -> dict[str, int]:
        """Bytes of weights that each op must have; biases and norms are not in the table."""
        row = self.itemsize * self.hidden
        return {
            "encoder-embedding": row * (self.vocabulary + self.sequence),
            "enc-attention-qkv": 3 * row * self.hidden,
            "enc-attention-dense": row * self.hidden,
            "enc-MLP-GEMM-1": row * self.ffn,
            "enc-MLP-GEMM-2": row * self.ffn,
            "gpt-post-process": row * self.vocabulary,
        }


def infer_dimensions(table: Mapping[str, Measurement]) -> Dimensions:
    """Work out the dimensions of the transformer that a table was measured on.

    Parameters
    ----------
    table : mapping of str to Measurement
        The rows by op name, complete.

    Raises
    ------
    InvalidFile
        Naming the row that does not fit a dense transformer with learned positions, eager
        attention and dropout on one device.
    """
    softmax, dropped = table["enc-attention-softmax"], table["enc-attention-dropout"]
    mask = dropped.activations - softmax.activations
    itemsize = _ratio(softmax.activations * MASK_BYTES, mask, dropped, "dropout mask")
    dense = table["enc-attention-dense"]
    hidden = _rounded_root(_ratio(dense.weights, itemsize, dense, "weights"))
    tokens = _ratio(dense.activations, itemsize * hidden, dense, "activations")
    ffn = _ratio(table["enc-MLP-GEMM-1"].activations, itemsize * tokens,
                 table["enc-MLP-GEMM-1"], "activations")
    head = table["gpt-post-process"]
    vocabulary = _ratio(head.weights, itemsize * hidden, head, "weights")
    padded = _ratio(head.activations - tokens * (TARGET_BYTES + FP32_BYTES),
                    FP32_BYTES * tokens, head, "activations")
    if not 0 <= padded - vocabulary < _MOST_PADDING:
        _misfit(head, f"its weights are for {vocabulary} words, its activations for {padded}")
    embedding = table["encoder-embedding"]
    sequence = _sequence(embedding, tokens, embedding.weights - head.weights, itemsize * hidden)
    heads = _ratio(softmax.activations, itemsize * tokens * sequence, softmax, "activations")
    if hidden % heads:
        _misfit(softmax, f"{heads} heads do not divide a width of {hidden}")
    dimensions = Dimensions(
        tokens // sequence, sequence, hidden, heads, ffn, vocabulary, padded, itemsize
    )
    _check(table, dimensions)
    return dimensions


def _sequence(row: Measurement, tokens: int, positions_bytes: int, position_bytes: int) -> int:
    """Return the sequence length: learned positions, which must divide the tokens.

    The profiler sets as many positions as a sequence has tokens.
    """
    if positions_bytes <= 2 * TOLERANCE_BYTES:
        _misfit(row, "it has no more weights than the head, so none for positions")
    estimate = positions_bytes / position_bytes
    slack = 2 * TOLERANCE_BYTES / position_bytes
    near = [
        length
        for length in range(max(1, round(estimate - slack)), round(estimate + slack) + 1)
        if tokens % length == 0
    ]
    if not near:
        _misfit(row, f"about {estimate:.0f} positions do not divide {tokens} tokens")
    return min(near, key=lambda length: abs(length - estimate))


def _check(table: Mapping[str, Measurement], dimensions: Dimensions) -> None:
    for op, expected in dimensions.weights().items():
        if abs(table[op].weights - expected) > TOLERANCE_BYTES:
            _misfit(table[op], f"weights are {table[op].weights:,} bytes, not {expected:,}")
    for op, expected in dimensions.activations().items():
        excess = table[op].activations - expected
        # More than expected is a further saved tensor, but not where dimensions come from.
        if excess < -TOLERANCE_BYTES or (excess > TOLERANCE_BYTES and op in _GIVE_DIMENSIONS):
            _misfit(
                table[op], f"activations are {table[op].activations:,} bytes, not {expected:,}"
            )


def _ratio(amount: int, unit: int, row: Measurement, column: str) -> int:
    value = round(amount / unit) if unit > 0 else 0
    if value < 1:
        _misfit(row, f"{column} of {amount:,} bytes leave nothing for one item of {unit:,}")
    return value


def _rounded_root(value: int) -> int:
    root = isqrt(value)
    return root + (value - root * root > root)


def _misfit(row: Measurement, what: str) -> NoReturn:
    row.place.fail(
        f"{row.op} does not fit the transformer that the other rows describe: {what}",
        "import tables of dense GPT models at tensor-parallel degree 1, with eager attention, "
        "dropout and learned positions",
    )
