"""What operations belong together: autograd nodes in backward, branches that join in forward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from torch import fx

from slackswap.profiles.capture.kinds import HEAVY, operator_name
from slackswap.profiles.capture.lowered import AutogradNode, Operation


def is_sum(node: fx.Node) -> bool:
    """Whether a node is the sum of gradients that the autograd engine itself makes."""
    return bool(node.meta.get("is_gradient_acc", False))


def autograd_nodes(
    forward: list[Operation], backward: list[Operation]
) -> Iterator[AutogradNode]:
    """Group backward operations by autograd node: neighbours with one sequence number."""
    name_of: dict[int, str] = {}
    for op in forward:
        name_of.setdefault(op.node.meta.get("seq_nr", -1), op.name)
    names: Counter[str] = Counter()
    groups = groupby(
        enumerate(backward),
        # A sum is a node of its own: a negative number that no other has.
        key=lambda item: -1 - item[0] if is_sum(item[1].node)
        else item[1].node.meta.get("seq_nr", -1 - item[0]),
    )
    for sequence, group in groups:
        operations = tuple(op for _, op in group)
        base = name_of.get(sequence)
        name = operations[0].name if base is None else f"{base}.bwd"
        names[name] += 1
        yield AutogradNode(name if names[name] == 1 else f"{name}#{names[name]}", operations)


def mark_residuals(
    forward: list[Operation], storage_of: dict[fx.Node, int]
) -> Iterator[Operation]:
    """Call a sum ``residual`` where it joins two branches with heavy work between them.

    Position embeddings, masks and rotary embeddings are sums too, but their operands differ only
    by light operations.
    """
    # Bit i of an ancestor set stands for forward operation i.
    ancestors: dict[int, int] = {}
    heavy = 0
    for place, op in enumerate(forward):
        above = 1 << place
        for storage in op.reads:
            above |= ancestors.get(storage, 0)
        if op.kind in HEAVY:
            heavy |= 1 << place
        ancestors.update(dict.fromkeys(op.writes, above))
        operands = _summands(op, storage_of)
        if operands is not None:
            between = ancestors.get(operands[0], 0) ^ ancestors.get(operands[1], 0)
            if between & heavy:
                op = replace(op, kind="residual")
        yield op


def _summands(op: Operation, storage_of: dict[fx.Node, int]) -> tuple[int, int] | None:
    """Storages of two activations of equal shape that an operation adds, or None."""
    if operator_name(op.node.target) != "add" or len(op.node.args) < 2:
        return None
    first, second = op.node.args[:2]
    if not isinstance(first, fx.Node) or not isinstance(second, fx.Node):
        return None
    shapes = {tuple(node.meta["val"].shape) for node in (first, second, op.node)}
    storages = storage_of.get(first), storage_of.get(second)
    if len(shapes) > 1 or storages[0] is None or storages[1] is None:
        return None
    return storages[0], storages[1]
