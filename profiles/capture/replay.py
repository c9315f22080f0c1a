"""Run closures again on real tensors and compare bits: the proof that a captured DAG is complete.

A plan that recomputes a tensor relies on the profile: the ops of the closure, run again with
nothing but the tensors that the profile says they read, must give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from slackswap.profiles.capture.joint import is_backward
from slackswap.profiles.capture.kinds import is_allocation, is_random, reads_only_shape
from slackswap.profiles.capture.lowered import LoweredGraph, Operation
from slackswap.profiles.capture.measuring import graph_arguments
from slackswap.profiles.capture.target import Subject


@dataclass(frozen=True, slots=True)
class Replay:
    """Outcome of running closures again.

    Attributes
    ----------
    compared : tuple of str
        Tensors that were made a second time.
    different : tuple of str
        Those whose bits differ.
    """

    compared: tuple[str, ...]
    different: tuple[str, ...]


class ForwardRun:
    """One forward pass on real tensors, with every value and random state kept.

    Parameters
    ----------
    subject : Subject
        The step on real tensors.
    lowered : LoweredGraph
        Its graph.
    """

    def __init__(self, subject: Subject, lowered: LoweredGraph) -> None:
        self._lowered = lowered
        self._values: dict[fx.Node, Any] = {}
        self._states: dict[fx.Node, torch.Tensor] = {}
        self._operations = {op.node for op in lowered.forward}
        graph = lowered.joint.module.graph
        self._nodes = [node for node in lowered.joint.operators if not is_backward(node)]
        placeholders = graph.find_nodes(op="placeholder")
        arguments = graph_arguments(subject, lowered.joint)
        self._values.update(zip(placeholders, arguments, strict=True))
        for node in graph.find_nodes(op="get_attr"):
            self._values[node] = getattr(lowered.joint.module, str(node.target))
        self._static = set(self._values)
        with torch.no_grad():
            for node in self._nodes:
                if is_random(node.target):
                    self._states[node] = torch.get_rng_state()
                self._values[node] = _execute(node, self._values)
            # Recomputation happens during backward, when the buffers have their new values.
            for buffer, value in lowered.joint.updates:
                self._values[buffer] = self._values[value]

    def recompute(self, targets: Iterable[int], available: Iterable[int]) -> Replay:
        """Make storages again from those that are available, and compare them.

        Parameters
        ----------
        targets : iterable of int
            Storages to make again.
        available : iterable of int
            Storages that may be read as they are, beside static memory.

        Raises
        ------
        KeyError
            When an operation reads a value that the lowered graph does not say it reads.
        """
        wanted = frozenset(targets)
        closure = self._closure(wanted, frozenset(available))
        # Only what the operations are said to read: anything else that they touch is an error.
        available = frozenset(available).intersection(s for op in closure for s in op.reads)
        running = {op.node for op in closure}
        storage_of = self._lowered.storage_of
        values = {node: self._values[node] for node in self._static}
        for node in self._nodes:
            if storage_of.get(node) in available:
                values[node] = self._values[node]
        before = torch.get_rng_state()
        compared: dict[int, bool] = {}
        try:
            with torch.no_grad():
                for node in self._nodes:
                    self._replay(node, running, values)
                    storage = storage_of.get(node)
                    if storage in wanted and node in values:
                        same = _same_bits(values[node], self._values[node])
                        compared[storage] = compared.get(storage, True) and same
        finally:
            torch.set_rng_state(before)
        names = self._lowered.storages
        return Replay(
            tuple(names[storage].name for storage in compared),
            tuple(names[storage].name for storage, same in compared.items() if not same),
        )

    def _replay(
        self, node: fx.Node, running: set[fx.Node], values: dict[fx.Node, Any]
    ) -> None:
        if node in values:
            return
        is_operation = node in self._operations
        if is_operation and node not in running:
            return
        if is_allocation(node.target):
            values[node] = self._values[node]  # without a value of its own: nothing to remake
            return
        if not is_operation and any(source not in values for source in node.all_input_nodes):
            return  # a view of something that is not there
        if node in self._states:
            torch.set_rng_state(self._states[node])
        # An operator that asks for a shape may ask a tensor that is gone.
        source = self._values if reads_only_shape(node.target) else values
        values[node] = _execute(node, source)

    def _closure(self, wanted: frozenset[int], available: frozenset[int]) -> list[Operation]:
        """Operations that make the wanted storages from the available ones, in forward order."""
        producer = {storage: op for op in self._lowered.forward for storage in op.writes}
        missing = list(wanted)
        found: set[str] = set()
        while missing:
            op = producer[missing.pop()]
            if op.name not in found:
                found.add(op.name)
                missing += [s for s in op.reads if s in producer and s not in available]
        return [op for op in self._lowered.forward if op.name in found]


def check_closures(subject: Subject, lowered: LoweredGraph) -> Replay:
    """Recompute every recomputable tensor of a training step and compare bits.

    Each one is made again twice: alone, with every other saved tensor kept; and from nothing but
    the inputs and what cannot be recomputed.
    """
    run = ForwardRun(subject, lowered)
    fixed = {s for op in lowered.forward if not op.recomputable for s in op.writes}
    recomputable = sorted(lowered.written - fixed)
    base = fixed.union(lowered.inputs)
    replays = [
        run.recompute([storage], base | (lowered.saved - {storage})) for storage in recomputable
    ]
    replays.append(run.recompute(recomputable, base))
    return Replay(
        tuple(name for replay in replays for name in replay.compared),
        tuple(name for replay in replays for name in replay.different),
    )


def _execute(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    args, kwargs = pytree.tree_map(
        lambda leaf: values[leaf] if isinstance(leaf, fx.Node) else leaf,
        (tuple(node.args), dict(node.kwargs)),
    )
    target: Any = node.target
    return target(*args, **kwargs)


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    # As bytes: NaN equals itself, and 0.0 differs from -0.0.
    pair = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (first, second)]
    return bool(torch.equal(*pair))
