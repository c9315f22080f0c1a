"""Analytic profiles of transformers: every operation of one training step, priced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from slackswap.errors import SlackSwapError
from slackswap.hardware import Hardware
from slackswap.profile import Profile
from slackswap.profiles.catalogue import DEFAULT_HARDWARE
from slackswap.profiles.generators import prices as table
from slackswap.profiles.generators.prices import DEFAULT_PRICES, FP32, INDEX, Price, Prices
from slackswap.profiles.generators.tape import Tape
from slackswap.profiles.generators.transformer_blocks import (
    Attention,
    Shape,
    bert_block,
    dropout,
    elementwise,
    gelu,
    gpt2_block,
    layer_norm,
    linear,
    llama_block,
    residual,
    rms_norm,
)

Family = Literal["bert", "gpt2", "llama"]

_BLOCK: dict[Family, Callable[[Tape, Shape, int, tuple[int, ...]], int]] = {
    "bert": bert_block,
    "gpt2": gpt2_block,
    "llama": llama_block,
}


@dataclass(frozen=True, slots=True)
class TransformerModel:
    """Sizes of a transformer.

    Attributes
    ----------
    name : str
        For people.
    family : str
        ``bert``: norms after the sums, bidirectional; ``gpt2``: norms before the branches;
        ``llama``: RMS norms, rotary embedding, gated feed-forward, no bias.
    layers, hidden, heads, ffn, vocabulary : int
        Blocks, width, attention heads, width of the feed-forward layer, tokens known.
    kv_heads : int or None
        Heads of keys and values; None: as many as `heads`.
    positions : int
        Rows of the learned table of positions; 0 for none.
    dropout : bool
        Whether it drops activations while training.
    """

    name: str
    family: Family
    layers: int
    hidden: int
    heads: int
    ffn: int
    vocabulary: int
    kv_heads: int | None = None
    positions: int = 0
    dropout: bool = True

    def __post_init__(self) -> None:
        sizes = (self.layers, self.hidden, self.heads, self.ffn, self.vocabulary, self.key_heads)
        if min(sizes) < 1 or self.hidden % self.heads or self.heads % self.key_heads:
            raise SlackSwapError(
                f"sizes {sizes} do not make a transformer", where=f"model {self.name!r}",
                fix="use positive sizes, with hidden a multiple of heads and heads of kv_heads",
            )

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def parameters(self) -> int:
        """Trainable parameters."""
        h, ffn, vocabulary = self.hidden, self.ffn, self.vocabulary
        if self.family == "llama":
            kv = h // self.heads * self.key_heads
            block = 2 * h * h + 2 * h * kv + 3 * h * ffn + 2 * h
            return self.layers * block + 2 * vocabulary * h + h
        block = 4 * (h * h + h) + 2 * h * ffn + ffn + h + 4 * h
        total = self.layers * block + (vocabulary + self.positions) * h + 2 * h
        if self.family == "bert":  # token types, and the masked-language head on a tied table
            total += 2 * h + h * h + h + 2 * h + vocabulary
        return total


BERT_LARGE = TransformerModel("BERT-Large", "bert", 24, 1024, 16, 4096, 30522, positions=512)
GPT2_XL = TransformerModel("GPT-2 XL", "gpt2", 48, 1600, 25, 6400, 50257, positions=1024)
LLAMA_7B = TransformerModel("Llama-7B", "llama", 32, 4096, 32, 11008, 32000, dropout=False)
LLAMA3_8B = TransformerModel(
    "Llama-3-8B", "llama", 32, 4096, 32, 14336, 128256, kv_heads=8, dropout=False
)


def transformer_profile(
    model: TransformerModel,
    *,
    batch: int,
    sequence: int,
    hardware: Hardware = DEFAULT_HARDWARE,
    prices: Prices = DEFAULT_PRICES,
    attention: Attention = "sdpa",
    fused: bool = True,
    itemsize: int = 2,
    name: str | None = None,
) -> Profile:
    """Return one training step of a transformer, priced by the roofline.

    Layer 0 is the embedding, layers 1 to `model.layers` are the blocks, the next is the head with
    the loss. With ``prices.with_head`` false only the blocks remain: their input is an input of
    the profile, and the gradient of their result is given.

    Parameters
    ----------
    model : TransformerModel
        Sizes.
    batch, sequence : int
        Sequences, and tokens in each.
    hardware : Hardware
        What it runs on; it must state its arithmetic and memory rates.
    prices : Prices
        Rates of the kernels.
    attention : str
        ``sdpa`` for one kernel, ``eager`` for its operations one by one.
    fused : bool
        Norms, GELU and rotary embedding in one kernel each; else as Hugging Face writes them.
    itemsize : int
        Bytes of an activation: 2 for bf16 and fp16.
    name : str, optional
        Name of the profile.

    Raises
    ------
    SlackSwapError
        When a size is not positive, or the sequence is longer than the table of positions.
    InvalidHardware
        When the hardware states no rates.
    """
    _check(model, batch, sequence, itemsize, attention)
    shape = Shape(
        batch=batch,
        sequence=sequence,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.key_heads,
        ffn=model.ffn,
        itemsize=itemsize,
        attention=attention,
        fused=fused,
        dropout=model.dropout,
        causal=model.family != "bert",
        softmax_fp32=model.family == "llama",
    )
    tape = Tape(hardware, prices)
    tape.begin(0, "embedding")
    extras: tuple[int, ...] = ()
    if model.family == "llama":
        # Cosine and sine of every position and pair of channels.
        angles = 2 * itemsize * sequence * shape.head_size
        extras = (tape.tensor("angles", angles, differentiable=False),)
    if prices.with_head:
        x = _embedding(tape, model, shape)
    else:
        x = tape.tensor("result", shape.nbytes(model.hidden))
    for layer in range(1, model.layers + 1):
        tape.begin(layer, f"layer{layer}")
        x = _BLOCK[model.family](tape, shape, x, extras)
    if prices.with_head:
        tape.begin(model.layers + 1, "head")
        x = _head(tape, model, shape, x)
    return tape.profile(
        name or model.name,
        root=x,
        provenance={
            "model": model.name,
            "batch": batch,
            "sequence": sequence,
            "dtype": {2: "bf16", 4: "fp32"}.get(itemsize, f"{8 * itemsize} bits"),
            "attention": attention,
            "operations": "fused" if fused else "as written",
            "hardware": hardware.name,
            "times": "roofline of slackswap.profiles.generators.prices",
            "prices": asdict(prices),
            "parameters": model.parameters,
        },
        static_bytes=model.parameters * table.MIXED_ADAM_BYTES_PER_PARAMETER,
    )


def _embedding(tape: Tape, model: TransformerModel, s: Shape) -> int:
    """Append the lookup of tokens, and what BERT and GPT-2 add to it."""
    nbytes = s.nbytes(s.hidden)
    x = _lookup(tape, s, "tokens", model.vocabulary)
    if model.family == "llama":
        return x
    if model.family == "bert":
        x = residual(tape, "types.sum", x, _lookup(tape, s, "types", 2))
    y = tape.tensor("positions", nbytes)
    tape.op("positions", "elementwise", table.add_parameter(nbytes), reads=(x,), writes=(y,),
            passes_gradient=True)
    if model.family == "bert":
        y = layer_norm(tape, s, "norm", y)
    return dropout(tape, s, "dropout", y, s.itemsize)


def _lookup(tape: Tape, s: Shape, name: str, rows: int) -> int:
    indices = tape.tensor(f"{name}.ids", INDEX * s.tokens, differentiable=False)
    y = tape.tensor(name, s.nbytes(s.hidden))
    tape.op(name, "embedding", table.embedding(s.tokens, s.hidden, rows, s.itemsize),
            reads=(indices,), writes=(y,), saves=(indices,))
    return y


def _head(tape: Tape, model: TransformerModel, s: Shape, x: int) -> int:
    """Append the last norm or transform, the logits of every token, and the loss in fp32."""
    bert = model.family == "bert"
    if bert:
        x = gelu(tape, s, linear(tape, s, "transform", x, s.hidden, s.hidden, bias=True))
    norm = rms_norm if model.family == "llama" else layer_norm
    x = norm(tape, s, "norm", x)
    logits = linear(tape, s, "logits", x, s.hidden, model.vocabulary, bias=bert)
    wide = FP32 * s.tokens * model.vocabulary
    if s.itemsize < FP32:
        logits = elementwise(
            tape, "logits.fp32", logits, wide, table.cast(tape.nbytes(logits), wide)
        )
    probabilities = tape.tensor("log_softmax", wide)
    tape.op("log_softmax", "loss", table.softmax(wide, wide), reads=(logits,),
            writes=(probabilities,), saves=(probabilities,))
    labels = tape.tensor("labels", INDEX * s.tokens, differentiable=False)
    loss = tape.tensor("loss", FP32)
    price: Price = table.nll(s.tokens, model.vocabulary)
    tape.op("loss", "loss", price, reads=(probabilities, labels), writes=(loss,),
            saves=(probabilities, labels))
    return loss


def _check(
    model: TransformerModel, batch: int, sequence: int, itemsize: int, attention: str
) -> None:
    if min(batch, sequence, itemsize) < 1:
        raise SlackSwapError(
            f"batch {batch}, sequence {sequence} and itemsize {itemsize} must be positive",
            where=f"model {model.name!r}", fix="write 1 or more of each",
        )
    if model.positions and sequence > model.positions:
        raise SlackSwapError(
            f"sequence {sequence} is longer than its {model.positions} positions",
            where=f"model {model.name!r}", fix=f"use at most {model.positions} tokens",
        )
    if attention not in ("sdpa", "eager"):
        raise SlackSwapError(
            f"attention {attention!r} is not known", where=f"model {model.name!r}",
            fix="use sdpa or eager",
        )
