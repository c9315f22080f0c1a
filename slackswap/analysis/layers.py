"""Layers and blocks of a profile: stretches of forward ops and the backward ops that undo them.

A layer of the profile (a convolution with its ReLU, a transformer block) or a single op can each
stand for what a paper calls a layer. A *block* is a layer of the repeated part of a network: a
transformer block, but not the embedding and not the head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np

from slackswap.graph import Ints
from slackswap.profile import BackwardOp, ForwardOp, Profile

#: What counts as one layer: the profile's own layers, or each op.
Granularity = Literal["layer", "op"]

CONVOLUTIONS = frozenset({"conv"})
MATRIX_PRODUCTS = frozenset({"gemm", "attention"})

#: How far back a backward op's forward op is looked for.
_REACH = 64


@dataclass(frozen=True, slots=True)
class Layer:
    """A stretch of forward ops and the stretch of backward ops that undoes it.

    Attributes
    ----------
    forward, backward : range
        Op indices; `backward` is empty when nothing flows back through the layer.
    number : int or None
        The profile's layer number; None for ops outside all numbered layers, and for single ops.
    """

    forward: range
    backward: range
    number: int | None = None


def layer_numbers(ops: Sequence[ForwardOp] | Sequence[BackwardOp]) -> list[int | None]:
    """Return the layer number of each op.

    An op without a number between numbered ones belongs to the layer before it. Those before the
    first numbered op and after the last one (an embedding, a head) belong to none.
    """
    numbers = [op.layer for op in ops]
    numbered = [i for i, number in enumerate(numbers) if number is not None]
    for i in range(numbered[0], numbered[-1]) if numbered else ():
        if numbers[i] is None:
            numbers[i] = numbers[i - 1]
    return numbers


def layer_of_ops(ops: Sequence[ForwardOp] | Sequence[BackwardOp]) -> Ints:
    """Return for each op which stretch of one layer number it lies in, counted from 0."""
    numbers = layer_numbers(ops)
    lengths = [len(list(run)) for _, run in groupby(numbers)]
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def last_of_layers(ops: Sequence[ForwardOp] | Sequence[BackwardOp]) -> tuple[int, ...]:
    """Return the ops after which the layer changes, and the last op."""
    changes = np.flatnonzero(np.diff(layer_of_ops(ops))).tolist()
    return (*changes, len(ops) - 1) if len(ops) else ()


def layers_of(profile: Profile, granularity: Granularity = "layer") -> tuple[Layer, ...]:
    """Return the layers of a profile in forward order.

    Parameters
    ----------
    profile : Profile
        The iteration.
    granularity : {"layer", "op"}
        The profile's own layers (see `layer_numbers`), ops outside all of them being layers of
        their own; or every op, also where no op has a number.
    """
    numbers = layer_numbers(profile.forward)
    by_op = granularity == "op" or all(number is None for number in numbers)
    ends = range(len(numbers)) if by_op else last_of_layers(profile.forward)
    stretches = [
        range(start, end + 1)
        for start, end in zip((0, *(end + 1 for end in ends)), ends, strict=False)
    ]
    owner = (
        forward_of_backward(profile)
        if by_op
        else _layer_of_backward(profile, stretches)
    )
    # Layers run backward in reverse order: a stray op counts to the layer that is under way.
    owner = np.minimum.accumulate(owner) if len(owner) else owner
    first = len(owner) - np.searchsorted(owner[::-1], np.arange(len(stretches)), side="right")
    end = len(owner) - np.searchsorted(owner[::-1], np.arange(len(stretches)), side="left")
    return tuple(
        Layer(
            stretch, range(int(first[n]), int(end[n])), None if by_op else numbers[stretch.start]
        )
        for n, stretch in enumerate(stretches)
    )


def blocks_of(profile: Profile, layers: Sequence[Layer] | None = None) -> tuple[int, ...]:
    """Return which layers of a profile are its blocks, as places in `layers_of`.

    Blocks are the numbered layers from the first to the last that has the commonest sequence of op
    kinds; of several equally common ones the longest counts, which is more of the network. Layers
    of another make between them (a downsampling unit) are blocks too. Where no sequence occurs
    twice, every numbered layer is a block: nothing tells them apart.

    Parameters
    ----------
    profile : Profile
        The iteration.
    layers : sequence of Layer, optional
        ``layers_of(profile)``, where it is known already.
    """
    found = layers_of(profile) if layers is None else layers
    numbered = [n for n, layer in enumerate(found) if layer.number is not None]
    kinds = {n: tuple(profile.forward[op].kind for op in found[n].forward) for n in numbered}
    counts = Counter(kinds.values())
    if max(counts.values(), default=0) <= 1:
        return tuple(numbered)
    commonest = max(counts, key=lambda sequence: (counts[sequence], len(sequence)))
    alike = [n for n in numbered if kinds[n] == commonest]
    return tuple(n for n in numbered if alike[0] <= n <= alike[-1])


def forward_of_backward(profile: Profile) -> Ints:
    """Return the forward op that each backward op undoes, as far as reads and kinds tell.

    Both passes are walked in opposite directions. A backward op belongs to the latest forward op
    of its kind and layer, before the one found last, that touches all it reads; an op that reads
    nothing, or fits nowhere, goes with the op before it.

    Returns
    -------
    int64[backward ops]
    """
    owner = np.zeros(len(profile.backward), dtype=np.int64)
    at, claimed = len(profile.forward) - 1, False
    for j, op in enumerate(profile.backward):
        wanted = set(op.reads)
        if wanted:
            start = at - 1 if claimed else at
            for i in range(start, max(-1, start - _REACH), -1):
                candidate = profile.forward[i]
                if (
                    candidate.kind == op.kind
                    and candidate.layer == op.layer
                    and wanted.issubset((*candidate.reads, *candidate.writes))
                ):
                    at, claimed = i, True
                    break
        owner[j] = max(at, 0)
    return owner


def _layer_of_backward(profile: Profile, stretches: list[range]) -> Ints:
    last_with = {
        profile.forward[stretch.start].layer: n
        for n, stretch in enumerate(stretches)
        if profile.forward[stretch.start].layer is not None
    }
    owner_of_op = np.empty(len(profile.forward), dtype=np.int64)
    for n, stretch in enumerate(stretches):
        owner_of_op[stretch.start : stretch.stop] = n
    by_touch = forward_of_backward(profile)
    return np.array(
        [
            last_with.get(op.layer, owner_of_op[by_touch[j]] if len(owner_of_op) else 0)
            for j, op in enumerate(profile.backward)
        ],
        dtype=np.int64,
    )


def heavy_kinds(profile: Profile) -> frozenset[str]:
    """Return the kinds of op that stand for the convolutions of a convolutional network.

    Convolutions where they are most of the heavy ops; else matrix products and attention, where a
    transformer spends its time.
    """
    kinds = [op.kind for op in profile.forward]
    convolutions = sum(kind in CONVOLUTIONS for kind in kinds)
    products = sum(kind in MATRIX_PRODUCTS for kind in kinds)
    return CONVOLUTIONS if convolutions > products else MATRIX_PRODUCTS


def is_of(op: ForwardOp | BackwardOp, kinds: Collection[str]) -> bool:
    """Whether an op is of one of these kinds."""
    return op.kind is not None and op.kind in kinds


def boundaries(profile: Profile, layers: tuple[Layer, ...]) -> list[Ints]:
    """Return what must be stored after each layer so that later ones can be remade without it.

    Returns
    -------
    list of int64 arrays
        For each layer but the last, the tensors written up to its end that later forward ops
        read; inputs left out.
    """
    graph = profile.graph
    written = np.flatnonzero(~graph.is_input)
    ends = np.array([layer.forward.stop for layer in layers[:-1]], dtype=np.int64)
    # Layer n is crossed by tensors produced before its end and read at or after it.
    first = np.searchsorted(ends, graph.producer[written], side="right")
    last = np.searchsorted(ends, graph.last_forward_use[written], side="right")
    crossing: list[list[int]] = [[] for _ in ends]
    for t, low, high in zip(written.tolist(), first.tolist(), last.tolist(), strict=True):
        for n in range(low, high):
            crossing[n].append(t)
    return [np.array(tensors, dtype=np.int64) for tensors in crossing]
