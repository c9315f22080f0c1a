"""Operator tables of the Aceso profiler: a CSV of measured GPT operators.

The profiler runs each op of one transformer layer by itself on a GPU and writes one row for it:
``op_name, forward-compute, backward-compute`` (microseconds), ``input_size, output_size, weights,
activations, fwd_reserved, bwd_reserved`` (MiB). `aceso_profile` lays the layer out as many times
as the model has layers. The times are measured; the graph is inferred from the op names, and
checked by the sizes.

What the columns mean follows from the profiler's published code: `activations` is what the forward
op leaves allocated, `fwd_reserved` what it took from the device beyond that, `bwd_reserved` what
the backward op took in addition; sizes of inputs and outputs count what merely passes by.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from slackswap.errors import SlackSwapError
from slackswap.profile import Profile
from slackswap.profiles.generators.prices import MIXED_ADAM_BYTES_PER_PARAMETER
from slackswap.profiles.importers.aceso_graph import (
    EMBEDDING,
    FINAL_NORM,
    FINAL_NORM_WITH_COPY,
    GEMMS,
    HEAD,
    LAYER,
    OPS,
    WITHOUT_GRADIENT,
    LayerStep,
    tensor_sizes,
)
from slackswap.profiles.importers.aceso_shape import (
    TOLERANCE_BYTES,
    Dimensions,
    Measurement,
    infer_dimensions,
)
from slackswap.profiles.importers.builder import ProfileBuilder
from slackswap.profiles.importers.gradients import gradient_levels
from slackswap.profiles.importers.reading import MIB, CsvRow, Place, csv_rows

T = TypeVar("T")

COLUMNS = (
    "op_name", "forward-compute", "backward-compute", "input_size", "output_size", "weights",
    "activations", "fwd_reserved", "bwd_reserved",
)
MAX_LAYERS = 10_000

#: The profiler writes this in every measured column of an op that failed, by default for lack of
#: memory: microseconds and MiB alike.
_FAILED = 10_000_000


@dataclass(frozen=True, slots=True)
class _KnownModel:
    pattern: str
    model: str
    layers: int
    dtype: str


_KNOWN_MODELS = (
    _KnownModel(r"gpt-?neo-?2\.7", "GPT-Neo 2.7B", 32, "fp16"),
    _KnownModel(r"opt-?350", "OPT 350M", 24, "fp16"),
)
_KNOWN_DEVICES = {r"a100-?40": "a100-40gb", r"a100-?80": "a100-80gb"}


def recognises_aceso(text: str) -> bool:
    """Whether a text begins as an Aceso operator table does."""
    header = [cell.strip() for cell in text.lstrip("\n").partition("\n")[0].split(",")]
    return "op_name" in header and "forward-compute" in header


def aceso_profile(
    text: str,
    *,
    file: str,
    name: str,
    layers: int | None = None,
    weight_gradients: bool = False,
) -> Profile:
    """Turn an Aceso operator table into the profile of a whole model.

    Parameters
    ----------
    text : str
        The table.
    file : str
        Its name, for errors and provenance; it may tell the model and the device.
    name : str
        Name of the profile.
    layers : int, optional
        How many layers the model has: the table holds one. Needed unless the file's name tells a
        known model.
    weight_gradients : bool
        The profiler differentiates by the inputs of an op, not by its weights. With True the
        backward op of a matrix product also gets the time of its forward op, which its weight
        gradient has the arithmetic of; that of the head by its arithmetic at the rate of the
        largest product of the layer.

    Returns
    -------
    Profile
        With source ``imported``; every assumption stands in its provenance.

    Raises
    ------
    InvalidFile
        When the text is not such a table, or its sizes are not those of the transformer that the
        op names stand for.
    SlackSwapError
        When the number of layers is unknown or impossible.
    """
    known = _match({model.pattern: model for model in _KNOWN_MODELS}, file)
    layers = _layer_count(layers if layers is not None or known is None else known.layers, file)
    table = _read(text, file)
    dimensions = infer_dimensions(table)
    build = _Build(table, dimensions, weight_gradients)
    build.run(layers)
    parameters = _parameters(dimensions, layers)
    return build.builder.profile(
        name,
        source="imported",
        static_bytes=parameters * MIXED_ADAM_BYTES_PER_PARAMETER,
        provenance=_provenance(
            file, known, layers, dimensions, parameters, table, weight_gradients, build.rests
        ),
    )


class _Build:
    """One pass over the model, layer by layer."""

    def __init__(
        self, table: Mapping[str, Measurement], dimensions: Dimensions, weight_gradients: bool
    ) -> None:
        self.builder = ProfileBuilder()
        self.rests: dict[str, int] = {}
        self._table = table
        self._extra_ns = (
            _weight_gradient_ns(table, dimensions) if weight_gradients else {}
        )
        self._sizes = tensor_sizes(dimensions)
        self._unexplained = _unexplained(table, dimensions)
        self._nbytes: dict[str, int] = {}
        self._done: list[tuple[LayerStep, int, str, list[str], list[str], list[str]]] = []

    def run(self, layers: int) -> None:
        """Lay out embedding, layers, head, and the backward pass."""
        names = {"ids": self._tensor("ids", "ids"), "labels": self._tensor("labels", "labels")}
        self._forward(EMBEDDING, 0, "embedding", names)
        for layer in range(1, layers + 1):
            names = {"x": names["y"], "labels": names["labels"]}
            for step in LAYER:
                self._forward(step, layer, f"layer{layer}", names)
        names = {"x": names["y"], "labels": names["labels"]}
        copy = self._unexplained["final-layernorm"] >= self._sizes["norm.input"] - TOLERANCE_BYTES
        if copy:
            self._unexplained["final-layernorm"] -= self._sizes["norm.input"]
        for step in (FINAL_NORM_WITH_COPY if copy else FINAL_NORM, HEAD):
            self._forward(step, layers + 1, "head", names)
        self._backward(names["loss"])

    def _forward(self, step: LayerStep, layer: int, prefix: str, names: dict[str, str]) -> None:
        row = self._table[step.op]
        for role in step.writes:
            # The residual stream that leaves a layer bears the name of what makes it.
            label = role if role != "y" else "embedding" if layer == 0 else "residual2"
            names[role] = self._tensor(
                label if label == prefix else f"{prefix}.{label}", role
            )
        reads = [names[role] for role in step.reads]
        writes = [names[role] for role in step.writes]
        saves = [names[role] for role in step.saves]
        rest = self._unexplained[step.op]
        if rest > TOLERANCE_BYTES:
            self.rests[step.op] = rest
            extra = self._tensor(f"{prefix}.{_short(step.op)}.rest", "rest", rest)
            writes.append(extra)
            saves.append(extra)
        label = f"{prefix}.{_short(step.op)}"
        self.builder.forward(
            label, row.forward_ns, reads=reads, writes=writes, workspace=row.forward_reserved,
            layer=layer, kind=step.kind,
        )
        self._done.append((step, layer, label, reads, writes, saves))

    def _backward(self, root: str) -> None:
        levels = gradient_levels(
            [(reads, writes) for *_, reads, writes, _ in self._done],
            self._nbytes,
            without_gradient={
                name for name in self._nbytes if name.rpartition(".")[2] in WITHOUT_GRADIENT
            },
            roots=(root,),
        )
        for (step, layer, label, _, _, saves), level in zip(
            reversed(self._done), reversed(levels), strict=True
        ):
            row = self._table[step.op]
            self.builder.backward(
                f"{label}.bwd",
                row.backward_ns + self._extra_ns.get(step.op, 0),
                reads=saves,
                # What the forward op reserved and gave back was there to be used again, and is not
                # in the backward op's figure.
                workspace=max(row.backward_reserved, row.forward_reserved, level.workspace),
                carried=level.carried,
                layer=layer,
                kind=step.kind,
            )

    def _tensor(self, name: str, role: str, nbytes: int | None = None) -> str:
        self._nbytes[name] = self._sizes[role] if nbytes is None else nbytes
        return self.builder.tensor(name, self._nbytes[name])


def _read(text: str, file: str) -> dict[str, Measurement]:
    table: dict[str, Measurement] = {}
    place = Place(file, 1)
    for row in csv_rows(text, file, COLUMNS):
        place, op = row.place, row.cells["op_name"]
        if op not in OPS:
            place.fail(f"op {op[:60]!r} is not known", f"keep these ops: {', '.join(OPS)}")
        if op in table:
            place.fail(
                f"op {op!r} stands there twice, first on line {table[op].place.line}",
                "keep one row of each op: the importer repeats the layer itself",
            )
        table[op] = _measurement(op, row)
    missing = [op for op in OPS if op not in table]
    if missing:
        place.fail(
            f"the file ends without {missing[0]!r}", f"write one row of each of {', '.join(OPS)}"
        )
    return table


def _measurement(op: str, row: CsvRow) -> Measurement:
    for column in COLUMNS[3:5]:  # recorded for nothing, but they must be numbers
        row.number(column)
    if row.number("forward-compute") == row.number("activations") == _FAILED:
        row.place.fail(
            f"the profiler could not run {op!r}: it wrote its mark for a failed op",
            "measure it again with more memory",
        )
    return Measurement(
        op,
        row.place,
        forward_ns=row.number("forward-compute", scale=1000),
        backward_ns=row.number("backward-compute", scale=1000),
        weights=row.number("weights", scale=MIB),
        activations=row.number("activations", scale=MIB),
        forward_reserved=row.number("fwd_reserved", scale=MIB),
        backward_reserved=row.number("bwd_reserved", scale=MIB),
    )


def _layer_count(layers: int | None, file: str) -> int:
    if layers is None:
        raise SlackSwapError(
            "the table holds one layer, and does not say how many the model has", where=file,
            fix="give layers, for example layers=24",
        )
    if isinstance(layers, bool) or not isinstance(layers, int) or not 1 <= layers <= MAX_LAYERS:
        raise SlackSwapError(
            f"{layers!r} layers are not possible", where="layers",
            fix=f"give a whole number from 1 to {MAX_LAYERS:,}",
        )
    return layers


def _unexplained(table: Mapping[str, Measurement], dimensions: Dimensions) -> dict[str, int]:
    """Bytes each op leaves allocated beyond the tensors that its name stands for."""
    return {
        op: max(0, table[op].activations - expected)
        for op, expected in dimensions.activations().items()
    }


def _weight_gradient_ns(
    table: Mapping[str, Measurement], d: Dimensions
) -> dict[str, int]:
    extra = {op: table[op].forward_ns for op in GEMMS}
    # Same arithmetic a weight, so the head's time is in proportion to its weights.
    largest = table["enc-MLP-GEMM-1"]
    extra[HEAD.op] = largest.forward_ns * d.padded_vocabulary // d.ffn
    return extra


def _parameters(d: Dimensions, layers: int) -> int:
    """Weights, biases and norms of the model; the head shares the embedding's weights."""
    per_layer = (
        d.hidden * (4 * d.hidden + 2 * d.ffn)  # products
        + 3 * d.hidden + d.hidden + d.ffn + d.hidden  # their biases
        + 4 * d.hidden  # norms
    )
    return d.hidden * (d.vocabulary + d.sequence) + layers * per_layer + 2 * d.hidden


def _provenance(
    file: str,
    known: _KnownModel | None,
    layers: int,
    d: Dimensions,
    parameters: int,
    table: Mapping[str, Measurement],
    weight_gradients: bool,
    rests: Mapping[str, int],
) -> dict[str, Any]:
    device = _match(_KNOWN_DEVICES, file)
    model = known.model if known else "GPT"
    dtype = known.dtype if known else f"{8 * d.itemsize}-bit"
    return {
        "description": f"{model}, batch {d.batch}, sequence {d.sequence}, {dtype}, eager "
        "attention; times measured, graph inferred",
        "format": "aceso",
        "file": file.replace("\\", "/").rpartition("/")[2],
        "model": model,
        "batch": d.batch,
        "sequence": d.sequence,
        "dtype": dtype,
        "attention": "eager",
        "layers": layers,
        "hidden": d.hidden,
        "heads": d.heads,
        "ffn": d.ffn,
        "vocabulary": d.vocabulary,
        "padded_vocabulary": d.padded_vocabulary,
        "parameters": parameters,
        **({"hardware": device} if device else {}),
        "times": "measured: each op by itself on a GPU, by the Aceso profiler, means over runs",
        "graph": "inferred: from the names of the ops, checked by the sizes of their allocations",
        "assumptions": list(_assumptions(table, weight_gradients, rests)),
    }


def _assumptions(
    table: Mapping[str, Measurement], weight_gradients: bool, rests: Mapping[str, int]
) -> Iterator[str]:
    yield "all layers take the time of the one measured"
    yield "dimensions worked out from weights and allocations; as many positions as tokens"
    yield (
        "saved tensors are those of Megatron's kernels: softmax, mask and result of the attention "
        "dropout; q, k and v as tensors of their own; bias, dropout and residual sum as one kernel "
        "that saves its mask; two fp32 statistics a token and norm; the fp32 softmax of the loss"
    )
    yield "workspace of a forward op: the memory its run reserved beyond what it left allocated"
    yield (
        "workspace of a backward op: the largest of the memory that its backward and its forward "
        "run reserved, and of the activation gradients that the graph implies; the first contains "
        "output gradients that the profiler made in fp32, so it is an upper estimate"
    )
    yield "carried: activation gradients alive on entry, by the graph"
    ratios = [table[op].backward_ns / max(1, table[op].forward_ns) for op in GEMMS]
    yield (
        "backward times are gradients by inputs only, as the profiler takes them: backward over "
        f"forward is {min(ratios):.2f} to {max(ratios):.2f} for the layer's matrix products, "
        "where two products would give about 2; "
        + ("a weight gradient at the forward time was added to each, and to the head by its "
           "arithmetic" if weight_gradients else "no time was added for weight gradients")
    )
    yield "token ids, positions and labels are int64 inputs; an attention mask is not counted"
    yield (
        f"static bytes: {MIXED_ADAM_BYTES_PER_PARAMETER} a parameter (mixed precision, Adam); "
        "the head shares the embedding's weights"
    )
    for op, nbytes in rests.items():
        yield f"{op} left {nbytes} bytes more than its name explains: one more saved tensor"


def _short(op: str) -> str:
    return op.removeprefix("enc-").removeprefix("encoder-")


def _match(patterns: Mapping[str, T], file: str) -> T | None:
    base = file.replace("\\", "/").rpartition("/")[2].lower()
    return next((value for pattern, value in patterns.items() if re.search(pattern, base)), None)
