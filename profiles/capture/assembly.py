"""Put operations, times and gradient lifetimes together to a profile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from slackswap.profile import ALL_ACTIONS, Action, BackwardOp, ForwardOp, Profile, Source, Tensor
from slackswap.profiles.capture.fake_price import OperationTimes
from slackswap.profiles.capture.lowered import LoweredGraph

#: A block is a module in a numbered list: the path up to its first number.
_BLOCK = re.compile(r"^(?:[^.]*[^.\d][^.]*\.)*?\d+(?=\.|$)")


def assemble(
    lowered: LoweredGraph,
    times: OperationTimes,
    *,
    name: str,
    source: Source,
    static_bytes: int,
    provenance: Mapping[str, Any],
) -> Profile:
    """Return the profile of a lowered graph."""
    paths = [op.path for op in lowered.forward] + [node.path for node in lowered.nodes]
    layers = number_layers(paths)
    counted = [
        storage
        for storage in (*lowered.inputs, *(s for op in lowered.forward for s in op.writes))
        if lowered.storages[storage].nbytes  # kernels return empty results that nobody asked for
    ]
    index = {storage: place for place, storage in enumerate(counted)}
    fixed = {s for op in lowered.forward if not op.recomputable for s in op.writes}
    tensors = tuple(
        Tensor(
            lowered.storages[storage].name,
            lowered.storages[storage].nbytes,
            (Action.KEEP, Action.SWAP) if storage in fixed else ALL_ACTIONS,
        )
        for storage in counted
    )
    forward = tuple(
        ForwardOp(
            name=op.name,
            duration_ns=times.forward_ns[place],
            reads=tuple(index[s] for s in op.reads if s in index),
            writes=tuple(index[s] for s in op.writes if s in index),
            workspace=times.forward_workspace[place],
            layer=layers.get(op.path),
            recomputable=op.recomputable,
            kind=op.kind,
        )
        for place, op in enumerate(lowered.forward)
    )
    lives = gradient_memory(lowered)
    backward = tuple(
        BackwardOp(
            name=node.name,
            duration_ns=times.backward_ns[place],
            reads=tuple(index[s] for s in node.reads if s in index),
            workspace=lives[place][1] + times.backward_workspace[place],
            carried=lives[place][0],
            layer=layers.get(node.path),
            kind=node.kind,
        )
        for place, node in enumerate(lowered.nodes)
    )
    return Profile(
        name=name,
        source=source,
        tensors=tensors,
        forward=forward,
        backward=backward,
        provenance=provenance,
        static_bytes=static_bytes,
    )


def gradient_memory(lowered: LoweredGraph) -> list[tuple[int, int]]:
    """Bytes of activation gradients alive on entry of each autograd node, and while it runs.

    A gradient lives from the node that writes it to the last one that reads it. Temporaries live
    until their node is done, as in the expressions that PyTorch's formulas are. Gradients of
    parameters are static memory and do not count.
    """
    made = {storage for op in lowered.backward for storage in op.writes}
    last_use: dict[int, int] = {}
    for place, node in enumerate(lowered.nodes):
        used = (storage for storage in (*node.reads, *node.writes) if storage in made)
        last_use.update(dict.fromkeys(used, place))
    dying: dict[int, int] = {}
    for storage, place in last_use.items():
        dying[place] = dying.get(place, 0) + lowered.storages[storage].nbytes
    lives = []
    live = 0
    for place, node in enumerate(lowered.nodes):
        carried = live
        live += sum(lowered.storages[storage].nbytes for storage in node.writes)
        lives.append((carried, live))
        live -= dying.get(place, 0)
    return lives


def number_layers(paths: Iterable[str]) -> dict[str, int]:
    """Give each block of a model a number, in the order in which they first run.

    A block is a module of a numbered list, such as ``encoder.layer.3`` or ``layer1.0``; what lies
    inside it belongs to it. Other modules have no number.
    """
    numbers: dict[str, int] = {}
    layers: dict[str, int] = {}
    for path in paths:
        match = _BLOCK.match(path)
        if match and path not in layers:
            layers[path] = numbers.setdefault(match[0], len(numbers))
    return layers
