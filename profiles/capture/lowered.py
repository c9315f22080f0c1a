"""A training step as storages, operations and autograd nodes: what a profile is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import fx
from torch.utils import _pytree as pytree

from slackswap.profiles.capture.joint import JointGraph
from slackswap.profiles.capture.kinds import HEAVY


@dataclass(frozen=True, slots=True)
class Storage:
    """One piece of device memory; every view of it is the same storage.

    Attributes
    ----------
    name : str
        Unique among inputs and results of forward operations.
    nbytes : int
        Size in bytes.
    """

    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Operation:
    """A node that computes. Views and allocations are not operations: they cost nothing.

    Attributes
    ----------
    node : fx.Node
        Where it stands in the graph.
    name, kind : str
        Module path and operator; kind of work.
    path : str
        Module path.
    reads, writes : tuple of int
        Storages. Of parameters, buffers and their gradients there is none.
    recomputable : bool
        Whether running it again gives the same result and no side effect (random operations do
        when the state of the generator is restored).
    results : tuple of (int or None)
        Storage of each tensor that the node returns, None in static memory.
    """

    node: fx.Node
    name: str
    kind: str
    path: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    recomputable: bool
    results: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class AutogradNode:
    """Backward operations that autograd runs as one: it unpacks all that they read beforehand.

    Attributes
    ----------
    name : str
        The forward operation's, with ``.bwd``; a sum of gradients is an ``accumulate``.
    operations : tuple of Operation
        In execution order.
    held : tuple of int
        Storages that autograd keeps until this node, though no operation of the graph reads
        their values: it only asks for their shape. Eager execution holds them; who runs the graph
        need not.
    """

    name: str
    operations: tuple[Operation, ...]
    held: tuple[int, ...] = ()

    @property
    def path(self) -> str:
        """Module path."""
        return self.operations[0].path

    @property
    def kind(self) -> str:
        """Kind of its first heavy operation, else of its first."""
        heavy = (op.kind for op in self.operations if op.kind in HEAVY)
        return next(heavy, self.operations[0].kind)

    @property
    def reads(self) -> tuple[int, ...]:
        """Storages that it reads or holds."""
        read = (s for op in self.operations for s in op.reads)
        return tuple(dict.fromkeys((*read, *self.held)))

    @property
    def writes(self) -> tuple[int, ...]:
        """Storages that it writes."""
        return tuple(s for op in self.operations for s in op.writes)


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """A training step as storages and operations.

    Attributes
    ----------
    joint : JointGraph
        The graph it was made from.
    storages : tuple of Storage
        Inputs first, then results in the order in which they are written.
    inputs : tuple of int
        Storages of the example tensors.
    forward, backward : tuple of Operation
        In execution order.
    nodes : tuple of AutogradNode
        Backward operations by the autograd node that runs them, in execution order.
    storage_of : mapping from fx.Node to int
        Storage that a tensor node lies in; nodes in static memory are absent.
    """

    joint: JointGraph
    storages: tuple[Storage, ...]
    inputs: tuple[int, ...]
    forward: tuple[Operation, ...]
    backward: tuple[Operation, ...]
    nodes: tuple[AutogradNode, ...]
    storage_of: dict[fx.Node, int]

    @property
    def written(self) -> frozenset[int]:
        """Storages that a forward operation writes."""
        return frozenset(storage for op in self.forward for storage in op.writes)

    @property
    def saved(self) -> frozenset[int]:
        """Storages of the forward pass, inputs included, that an autograd node reads or holds."""
        forward = self.written.union(self.inputs)
        return frozenset(
            storage for node in self.nodes for storage in node.reads if storage in forward
        )

    def with_sizes(self, nbytes: Mapping[int, int]) -> LoweredGraph:
        """Return a copy in which some storages have other sizes."""
        return replace(
            self,
            storages=tuple(
                replace(storage, nbytes=nbytes.get(place, storage.nbytes))
                for place, storage in enumerate(self.storages)
            ),
        )

    @property
    def saved_bytes(self) -> int:
        """Their total size."""
        return sum(self.storages[storage].nbytes for storage in self.saved)


def tensors_of(node: fx.Node) -> list[torch.Tensor]:
    """Fake tensors that a node returns, in order; those that are absent left out."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
