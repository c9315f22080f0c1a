"""From the joint graph to storages and operations."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import torch
from torch import fx
from torch.utils import _pytree as pytree

from slackswap.errors import SlackSwapError
from slackswap.profiles.capture.grouping import autograd_nodes, is_sum, mark_residuals
from slackswap.profiles.capture.joint import JointGraph, is_backward
from slackswap.profiles.capture.kinds import (
    has_side_effect,
    is_allocation,
    kind_of,
    operator_name,
    reads_only_shape,
    updated_arguments,
)
from slackswap.profiles.capture.lowered import (
    AutogradNode,
    LoweredGraph,
    Operation,
    Storage,
    tensors_of,
)


def lower(joint: JointGraph) -> LoweredGraph:
    """Find the storages and operations of a joint graph.

    Raises
    ------
    SlackSwapError
        When a result is not an ordinary dense tensor.
    """
    return _Lowering(joint).run()


def _identity(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError) as error:
        raise SlackSwapError(
            f"a {tensor.layout} tensor of type {type(tensor).__name__} has no storage",
            where="capture", fix="capture models of dense tensors",
        ) from error


class _Lowering:
    def __init__(self, joint: JointGraph) -> None:
        self._joint = joint
        self._nodes = joint.operators
        self._storages: list[Storage] = []
        self._index: dict[int, int] = {}  # by identity; absent for what is not counted
        self._uncounted: set[int] = set()
        self._storage_of: dict[fx.Node, int] = {}
        self._names: Counter[str] = Counter()
        # Static memory whose value changes during the step: buffers that are updated.
        self._changed = {before for before, _ in joint.updates}

    def run(self) -> LoweredGraph:
        """Walk the graph once."""
        self._leave_out_static_memory()
        inputs = self._add_inputs()
        operations = [op for op in map(self._operation, self._nodes) if op is not None]
        forward = [op for op in operations if not is_backward(op.node)]
        backward = [op for op in operations if is_backward(op.node)]
        backward = list(self._sum_in_place(backward))
        return LoweredGraph(
            joint=self._joint,
            storages=tuple(self._storages),
            inputs=inputs,
            forward=tuple(mark_residuals(forward, self._storage_of)),
            backward=tuple(backward),
            nodes=tuple(self._hold(list(autograd_nodes(forward, backward)))),
            storage_of=self._storage_of,
        )

    def _leave_out_static_memory(self) -> None:
        """Parameters, buffers and parameter gradients are static; new buffer values go there."""
        joint = self._joint
        for node in (*joint.static_inputs, *joint.gradients):
            self._uncounted.update(map(_identity, tensors_of(node)))
        if joint.tangent is not None:
            self._uncounted.update(map(_identity, tensors_of(joint.tangent)))
        for node in joint.module.graph.nodes:
            if node.op == "get_attr":
                self._uncounted.update(map(_identity, tensors_of(node)))
        for node in joint.gradients:
            # The first part of a gradient that is summed up (a weight used twice) lies in it.
            for part in _first_parts(node):
                self._uncounted.update(map(_identity, tensors_of(part)))
        for _, value in joint.updates:
            # Eager execution updates in place. A value that the forward pass itself goes on with
            # is an activation that is copied into the buffer.
            if all(is_backward(user) or user.op == "output" for user in value.users):
                self._uncounted.update(map(_identity, tensors_of(value)))
        for op in self._nodes:
            if is_allocation(op.target):
                self._uncounted.update(map(_identity, tensors_of(op)))

    def _add_inputs(self) -> tuple[int, ...]:
        for node in self._joint.inputs:
            for tensor in tensors_of(node):
                name = str(node.meta["desc"].idx)
                self._add(tensor, f"input.{name}")
            self._locate(node)
        return tuple(range(len(self._storages)))

    def _add(self, tensor: torch.Tensor, name: str) -> None:
        identity = _identity(tensor)
        if identity in self._index or identity in self._uncounted:
            return
        nbytes = tensor.untyped_storage().nbytes()
        if not isinstance(nbytes, int):
            raise SlackSwapError(
                f"{name} has a size that depends on data", where="capture",
                fix="make the shapes independent of tensor values",
            )
        self._index[identity] = len(self._storages)
        self._storages.append(Storage(name, nbytes))

    def _locate(self, node: fx.Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            storage = self._index.get(_identity(value))
            if storage is not None:
                self._storage_of[node] = storage

    def _operation(self, node: fx.Node) -> Operation | None:
        results = tensors_of(node)
        fresh = [
            tensor for tensor in results
            if _identity(tensor) not in self._index and not self._aliases_argument(node, tensor)
        ]
        is_view = bool(results) and not fresh
        silent = not results and not _does_something(node)
        if node.target is operator.getitem or is_view or silent or is_allocation(node.target):
            self._locate(node)
            return None
        path = self._joint.paths[node]
        operator_ = "accumulate" if is_sum(node) else operator_name(node.target)
        name = self._unique(f"{path}/{operator_}".lstrip("/"))
        reads = self._reads(node)
        first = len(self._storages)
        for place, tensor in enumerate(results):
            self._add(tensor, name if place == 0 else f"{name}:{place}")
        self._locate(node)
        return Operation(
            node=node,
            name=name,
            kind=kind_of(node.target),
            path=path,
            reads=reads,
            writes=tuple(range(first, len(self._storages))),
            recomputable=not has_side_effect(node.target) and not self._reads_changed(node),
            results=tuple(self._index.get(_identity(tensor)) for tensor in results),
        )

    def _aliases_argument(self, node: fx.Node, tensor: torch.Tensor) -> bool:
        identity = _identity(tensor)
        return any(
            _identity(value) == identity
            for argument in node.all_input_nodes
            for value in tensors_of(argument)
        )

    def _reads(self, node: fx.Node) -> tuple[int, ...]:
        if reads_only_shape(node.target):
            return ()
        found = (
            self._index.get(_identity(value))
            for argument in node.all_input_nodes
            for value in tensors_of(argument)
        )
        return tuple(dict.fromkeys(storage for storage in found if storage is not None))

    def _reads_changed(self, node: fx.Node) -> bool:
        """Whether an operation needs the value that a buffer had before it was updated."""
        ignored = updated_arguments(node.target)
        for place, argument in enumerate(node.args):
            if place in ignored and _in_training(node):
                continue
            for leaf in pytree.tree_leaves(argument):
                if isinstance(leaf, fx.Node) and self._is_changed(leaf):
                    return True
        return False

    def _is_changed(self, node: fx.Node) -> bool:
        identities = {_identity(tensor) for tensor in tensors_of(node)}
        return any(
            not identities.isdisjoint(map(_identity, tensors_of(buffer)))
            for buffer in self._changed
        )

    def _unique(self, name: str) -> str:
        self._names[name] += 1
        count = self._names[name]
        return name if count == 1 else f"{name}#{count}"

    def _sum_in_place(self, backward: list[Operation]) -> Iterator[Operation]:
        """Let a sum of gradients write into its first operand where autograd does.

        The engine adds in place when nothing else holds the first gradient; the functional graph
        always makes a third tensor.
        """
        last_use: dict[int, int] = {}
        for place, op in enumerate(backward):
            last_use.update(dict.fromkeys((*op.reads, *op.writes), place))
        made = {storage for op in backward for storage in op.writes}
        same: dict[int, int] = {}

        def root(storage: int) -> int:
            while storage in same:
                storage = same[storage]
            return storage

        for place, op in enumerate(backward):
            reads = tuple(dict.fromkeys(map(root, op.reads)))
            writes = op.writes
            if is_sum(op.node):
                first = self._storage_of.get(cast("fx.Node", op.node.args[0]))
                free = first is not None and first in made and last_use[first] == place
                if first is not None and free and self._same_size(op, first):
                    same.update(dict.fromkeys(writes, root(first)))
                    writes = ()
            yield replace(op, reads=reads, writes=writes)

    def _hold(self, nodes: list[AutogradNode]) -> list[AutogradNode]:
        """Let autograd nodes hold what they saved, where no operation reads it as late."""
        place_of: dict[int, int] = {}
        last_read: dict[int, int] = {}
        for place, node in enumerate(nodes):
            first = node.operations[0].node
            if not is_sum(first) and "seq_nr" in first.meta:
                place_of[first.meta["seq_nr"]] = place
            last_read.update(dict.fromkeys(node.reads, place))
        latest: dict[int, int] = {}
        for identity, sequence in self._joint.unpacked:
            storage = self._index.get(identity)
            if storage is not None and place_of:
                # The engine runs nodes by falling sequence numbers. One that only makes views has
                # no operation: what it saved goes when the node before it is done.
                place = (
                    place_of[sequence] if sequence in place_of
                    else max((p for s, p in place_of.items() if s > sequence), default=0)
                )
                latest[storage] = max(place, latest.get(storage, -1))
        held: dict[int, list[int]] = {}
        for storage, place in latest.items():
            if place > last_read.get(storage, -1):
                held.setdefault(place, []).append(storage)
        return [replace(node, held=tuple(held.get(p, ()))) for p, node in enumerate(nodes)]

    def _same_size(self, op: Operation, first: int) -> bool:
        return all(
            self._storages[storage].nbytes == self._storages[first].nbytes for storage in op.writes
        )


def _first_parts(gradient: fx.Node) -> Iterator[fx.Node]:
    node = gradient
    while node.op == "call_function":
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node):
            return
        if is_sum(node):
            yield source
        elif not isinstance(node.meta.get("val"), torch.Tensor) or not any(
            _identity(node.meta["val"]) == _identity(tensor) for tensor in tensors_of(source)
        ):
            return  # neither a sum nor a view: this made the gradient
        node = source


def _does_something(node: fx.Node) -> bool:
    """Whether an operator without a tensor result is more than a question about a shape."""
    return isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.returns


def _in_training(node: fx.Node) -> bool:
    """Whether a batch norm uses the statistics of its batch.

    All variants take their flags as booleans, of which ``training`` is the first; those without
    one run in training mode only.
    """
    flags = [value for value in (*node.args, *node.kwargs.values()) if isinstance(value, bool)]
    return flags[0] if flags else True
