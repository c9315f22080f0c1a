"""What the ops of an Aceso operator table compute: the graph of a Megatron GPT model.

Each op stands with the tensors it reads, writes, and saves for its backward op. Norms, scaled
softmax, bias with GELU, and bias with dropout and residual sum are one kernel each.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackswap.profiles.importers.aceso_shape import (
    FP32_BYTES,
    INDEX_BYTES,
    MASK_BYTES,
    TARGET_BYTES,
    Dimensions,
)


@dataclass(frozen=True, slots=True)
class LayerStep:
    """An op of the table with the roles of the tensors it touches.

    ``x`` is the residual stream as it enters the layer, ``y`` as it leaves.
    """

    op: str
    kind: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    saves: tuple[str, ...]


EMBEDDING = LayerStep(
    "encoder-embedding", "embedding", ("ids",), ("y", "dropout.mask"), ("ids", "dropout.mask")
)
LAYER = (
    LayerStep("enc-1st-layernorm", "norm", ("x",), ("norm1", "norm1.statistics"),
         ("x", "norm1.statistics")),
    LayerStep("enc-attention-qkv", "gemm", ("norm1",), ("q", "k", "v"), ("norm1",)),
    LayerStep("enc-attention-score", "attention", ("q", "k"), ("attention.scores",), ("q", "k")),
    LayerStep("enc-attention-softmax", "softmax", ("attention.scores",), ("attention.softmax",),
         ("attention.softmax",)),
    LayerStep("enc-attention-dropout", "dropout", ("attention.softmax",),
         ("attention.dropout", "attention.dropout.mask"), ("attention.dropout.mask",)),
    LayerStep("enc-attention-context", "attention", ("attention.dropout", "v"), ("attention",),
         ("attention.dropout", "v")),
    LayerStep("enc-attention-dense", "gemm", ("attention",), ("projection",), ("attention",)),
    LayerStep("enc-post-attention-dropout", "residual", ("projection", "x"),
         ("residual1", "dropout1.mask"), ("dropout1.mask",)),
    LayerStep("enc-2nd-layernorm", "norm", ("residual1",), ("norm2", "norm2.statistics"),
         ("residual1", "norm2.statistics")),
    LayerStep("enc-MLP-GEMM-1", "gemm", ("norm2",), ("fc1",), ("norm2",)),
    LayerStep("enc-MLP-gelu", "elementwise", ("fc1",), ("gelu",), ("fc1",)),
    LayerStep("enc-MLP-GEMM-2", "gemm", ("gelu",), ("fc2",), ("gelu",)),
    LayerStep("enc-post-MLP-dropout", "residual", ("fc2", "residual1"), ("y", "dropout2.mask"),
         ("dropout2.mask",)),
)
# The final norm first copies its input from sequence-first to batch-first and saves the copy; with
# one sequence in the batch there is nothing to copy.
FINAL_NORM = LayerStep("final-layernorm", "norm", ("x",), ("norm", "norm.statistics"),
                    ("x", "norm.statistics"))
FINAL_NORM_WITH_COPY = LayerStep(
    "final-layernorm", "norm", ("x",), ("norm.input", "norm", "norm.statistics"),
    ("norm.input", "norm.statistics"),
)
# Logits and cross entropy in one op. The fp32 logits become the softmax in place.
HEAD = LayerStep("gpt-post-process", "loss", ("norm", "labels"), ("softmax", "targets", "loss"),
              ("norm", "softmax", "targets"))

OPS = tuple(step.op for step in (EMBEDDING, *LAYER, FINAL_NORM, HEAD))
GEMMS = ("enc-attention-qkv", "enc-attention-dense", "enc-MLP-GEMM-1", "enc-MLP-GEMM-2")
WITHOUT_GRADIENT = ("mask", "statistics", "targets", "ids", "labels", "rest")


def tensor_sizes(d: Dimensions) -> dict[str, int]:
    """Return the bytes of each role's tensor."""
    row, inner = d.row_bytes, d.itemsize * d.tokens * d.ffn
    mask = MASK_BYTES * d.tokens * d.hidden
    sizes = dict.fromkeys(
        ("y", "norm1", "q", "k", "v", "attention", "projection", "residual1", "norm2", "fc2",
         "norm", "norm.input"),
        row,
    )
    sizes |= dict.fromkeys(("dropout.mask", "dropout1.mask", "dropout2.mask"), mask)
    sizes |= dict.fromkeys(
        ("norm1.statistics", "norm2.statistics", "norm.statistics"), d.statistics_bytes
    )
    sizes |= dict.fromkeys(
        ("attention.scores", "attention.softmax", "attention.dropout"), d.scores_bytes
    )
    sizes |= dict.fromkeys(("fc1", "gelu"), inner)
    return sizes | {
        "attention.dropout.mask": d.scores_bytes // d.itemsize * MASK_BYTES,
        "ids": 2 * INDEX_BYTES * d.tokens,
        "labels": INDEX_BYTES * d.tokens,
        "softmax": FP32_BYTES * d.tokens * d.padded_vocabulary,
        "targets": TARGET_BYTES * d.tokens,
        "loss": FP32_BYTES * d.tokens,
    }
