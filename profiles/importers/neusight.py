"""Operator tables of NeuSight: training steps measured operator by operator, as CSV.

One row is one `torch.fx` node: embeddings, one transformer block, head. `neusight_profile` lays
the block out as many times as the model has layers, drops views and what runs on the host, and
derives what autograd saves from the operation (`slackswap.profiles.importers.neusight_ops`). A
small JSON file beside the table tells the number of layers and the measured time of the whole
step, against which the sums of the operators are set: a check that needs no trust.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import PurePath
from typing import Any

from slackswap import files
from slackswap.errors import InvalidFile, SlackSwapError
from slackswap.profile import Profile
from slackswap.profiles.importers.neusight_graph import GraphBuild
from slackswap.profiles.importers.neusight_ops import NodeSaves
from slackswap.profiles.importers.neusight_rows import read_rows
from slackswap.profiles.importers.reading import parse_decimal, read_measurements
from slackswap.profiles.optimizers import find_optimizer
from slackswap.quantities import integer_of, shown

MAX_LAYERS = 10_000

_FP32 = 4
#: Devices of the catalogue, by what their driver calls them.
_DEVICES = {
    r"A100.*80GB.*PCIE|A100.*PCIE.*80GB": "a100-80gb-pcie", r"A100.*80": "a100-80gb",
    r"A100.*40": "a100-40gb", r"H100.*PCIE": "h100-pcie", r"H100": "h100-sxm", r"H200": "h200",
    r"L4": "l4", r"V100": "v100", r"P100": "p100", r"MI300X": "mi300x",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """The whole step beside a table: layers, and milliseconds where it tells them."""

    layers: int
    forward_ns: int | None = None
    backward_ns: int | None = None


def recognises_neusight(text: str) -> bool:
    """Whether a text begins as such a table does, or is the file beside one."""
    line = text.lstrip().partition("\n")[0]
    if text.lstrip().startswith("{"):
        return '"num_layer"' in text[:1000] and '"fw_latency"' in text[:1000]
    return "_input_nodes" in line and "fw_latency" in line


def neusight_profile(
    text: str,
    *,
    file: str,
    name: str,
    layers: int | None = None,
    hardware: str | None = None,
    optimizer: str = "adamw",
) -> Profile:
    """Turn an operator table of NeuSight into the profile of a whole model.

    Parameters
    ----------
    text : str
        The table.
    file : str
        Its name, for errors and provenance; it may tell device, model and sizes. The JSON file of
        the same name beside it tells the layers and the measured step.
    name : str
        Name of the profile.
    layers : int, optional
        How many times the block of the table occurs; 0 when the table holds the whole model.
        Needed where no JSON file stands beside it.
    hardware : str, optional
        Name of the device in the catalogue, where the file's name does not tell it.
    optimizer : str
        Whose state counts as static memory: none, sgd, momentum, adam, adamw, mixed-adam.

    Returns
    -------
    Profile
        With source ``imported``; every assumption stands in its provenance.

    Raises
    ------
    InvalidFile
        When the text is not such a table: naming line and column. Also when it holds no backward
        times, or no block to repeat.
    SlackSwapError
        When the number of layers is unknown or impossible, or the optimizer is not known.
    """
    if text.lstrip().startswith("{"):
        raise InvalidFile("is the measured step, not the operators", where=file,
                          fix="import the .csv file beside it")
    state = find_optimizer(optimizer)
    rows = read_rows(text, file)
    if not any(row.backward_ns for row in rows.values()):
        first = next(iter(rows.values()))
        first.fail("bw_latency", "no row has a backward time: it is a table of inference",
                   "import the table of a training step")
    measured = _measured(file, layers)
    build = GraphBuild(rows, measured.layers)
    build.run()
    weights, itemsize = build.weights, build.itemsize
    profile = build.profile(
        name,
        static_bytes=(
            weights.trained * state.trained_bytes(itemsize) + weights.frozen * itemsize
            + weights.buffer_bytes
        ),
    )
    return Profile(
        profile.name, profile.source, profile.tensors, profile.forward, profile.backward,
        _provenance(profile, file, hardware, optimizer, measured, build), profile.static_bytes,
    )


def _measured(file: str, layers: int | None) -> Measured:
    """Return what the JSON file beside a table tells; `layers` stands above it."""
    count = None if layers is None else integer_of(layers)
    if layers is not None and (count is None or not 0 <= count <= MAX_LAYERS):
        raise SlackSwapError(f"layers is {shown(layers)}", where=file,
                             fix=f"write a whole number from 0 to {MAX_LAYERS}")
    beside = re.sub(r"(\.csv)?(\.gz)?$", ".json", file, count=1)
    if not os.path.exists(beside):
        if count is None:
            raise SlackSwapError(
                "the number of layers is not known: the table holds one block", where=file,
                fix=f"give the option layers, or put {PurePath(beside).name} beside it",
            )
        return Measured(count)
    document = files.parse_json(read_measurements(beside), where=beside)
    if not isinstance(document, Mapping):
        raise InvalidFile("is no JSON object", where=beside, fix="write {\"num_layer\": 24, ...}")
    told = integer_of(document.get("num_layer"))
    if count is None and (told is None or not 0 <= told <= MAX_LAYERS):
        raise InvalidFile(f"num_layer is {shown(document.get('num_layer'))}", where=beside,
                          fix=f"write a whole number from 0 to {MAX_LAYERS}, or give the option "
                          "layers")
    return Measured(
        count if count is not None else told or 0,
        _step_ns(document, "fw_latency", beside), _step_ns(document, "bwall_latency", beside),
    )


def _step_ns(document: Mapping[str, Any], key: str, file: str) -> int | None:
    value = document.get(key)
    if value is None:
        return None
    try:
        found = parse_decimal(re.sub(r"(\.[0-9]{18})[0-9]+", r"\1", repr(value)))
    except ValueError as error:
        raise InvalidFile(f"{key} is {error}", where=file, fix="write milliseconds") from error
    return round(found * 10**6)


def _provenance(
    profile: Profile, file: str, hardware: str | None, optimizer: str, measured: Measured,
    build: GraphBuild,
) -> dict[str, Any]:
    path = PurePath(file.replace("\\", "/"))
    device, model, mode = _named(path)
    known = hardware or next(
        (name for pattern, name in _DEVICES.items() if device and re.search(pattern, device, re.I)),
        device,
    )
    first = next((row for row in build.rows.values() if row.node == "placeholder"), None)
    sizes = first.shape if first is not None else ()
    ratios = {
        label: float(round(Fraction(predicted, found), 4))
        for label, predicted, found in (
            ("forward", sum(op.duration_ns for op in profile.forward), measured.forward_ns),
            ("backward", sum(op.duration_ns for op in profile.backward), measured.backward_ns),
        )
        if found
    }
    times = "measured: each operator alone, by NeuSight" + (f", on {device}" if device else "")
    if ratios:
        times += "; their sums are " + " and ".join(
            f"{value:.3f} of the measured {label}" for label, value in ratios.items()
        )
    weights = build.weights
    saves = {op.operation.saves for op in build.ops if op.kind == "attention"}
    attention = "one-kernel attention, " if NodeSaves.ATTENTION in saves else "eager attention, "
    provenance: dict[str, Any] = {
        "description": f"{model or path.stem}, measured on {device or 'a device not named'} "
        f"operator by operator, {''.join(f'batch {sizes[0]}, ' if sizes else '')}"
        f"{f'sequence {sizes[1]}, ' if len(sizes) > 1 else ''}{attention if saves else ''}"
        f"{'fp32' if build.itemsize == _FP32 else f'{8 * build.itemsize} bits'}",
        "format": "neusight",
        "file": path.name,
        "model": model or path.stem,
        "layers": measured.layers,
        "parameters": weights.trained + weights.frozen,
        "optimizer": optimizer,
        "times": times,
        "graph": "nodes and edges as in the file; saved tensors inferred from the operations",
        "assumptions": list(_assumptions(build, mode)),
    }
    if sizes:
        provenance["batch"] = sizes[0]
    if len(sizes) > 1:
        provenance["sequence"] = sizes[1]
    if device:
        provenance["device_name"] = device
    if known:
        provenance["hardware"] = known
    if ratios:
        provenance["measured_step"] = {
            "forward_ns": measured.forward_ns, "backward_ns": measured.backward_ns,
            "predicted_over_measured": ratios,
        }
    return provenance


def _named(path: PurePath) -> tuple[str, str, str]:
    """Return device, model and mode as a file's name tells them; empty where it does not.

    Names are ``DEVICE_model-mode-sequence-batch``; published tables stand in a folder of the
    device. A device's words begin with a capital or a digit, a model's do not.
    """
    stem = re.sub(r"(\.csv)?(\.gz)?$", "", path.name, count=1)
    match = re.fullmatch(r"(.+?)-(train|inf)\b.*", stem)
    if match is None:
        return "", "", ""
    words = match[1].split("_")
    at = next((i for i, word in enumerate(words) if word[:1].islower()), len(words))
    device, model = "_".join(words[:at]), "_".join(words[at:])
    return device or (path.parent.name if re.search("[A-Z]", path.parent.name) else ""), model, (
        match[2]
    )


def _assumptions(build: GraphBuild, mode: str) -> Iterator[str]:
    for block in build.blocks:
        if block.times > 1:
            yield (
                f"the block of the table occurs {block.times} times, each reading as "
                f"{block.entry} what the one before it gives as {block.result}"
            )
    yield (
        "backward ops run in reverse, each for its backward time and the accumulation of its "
        "weight gradients; the file has no loss"
    )
    yield (
        "views and rows on the host (size, getattr, getitem, view, permute) are no ops; their "
        "times, of launching nothing, are left out"
    )
    yield (
        "backward reads, as autograd saves: a factor whose partner has a gradient, the input of "
        "norms and activations, the result of softmax and tanh, a one-byte mask of dropout"
    )
    yield "forward ops have no workspace: the file does not tell it"
    yield "workspace and carried of backward ops: the activation gradients alive, by the graph"
    yield (
        "weights: by the shapes around each module, with biases; the head shares its table with "
        "the token embedding; other tables have a row for each position"
    )
    if build.copied:
        yield f"taken not to be in place: {', '.join(sorted(set(build.copied)))}"
    if build.weights.unknown:
        yield ("weights not counted, for the file does not tell their size: "
               + ", ".join(sorted(set(build.weights.unknown))))
    if build.guessed:
        yield ("operations not known, taken to save all they read and write: "
               + ", ".join(sorted(build.guessed)))
