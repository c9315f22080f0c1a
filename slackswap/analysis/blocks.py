"""The blocks of a profile: layers of the same make, one after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from slackswap.analysis.layers import layer_of_ops
from slackswap.graph import Bools
from slackswap.profile import Profile


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One block.

    Attributes
    ----------
    layer : int
        Its layer.
    inputs : bool[tensors]
        What it reads of earlier layers.
    inner : bool[tensors]
        What it writes and no later layer reads.
    """

    layer: int
    inputs: Bools
    inner: Bools


def blocks_of(profile: Profile) -> tuple[Block, ...]:
    """Find the blocks of a profile, in forward order.

    Blocks are the layers whose sequence of op kinds is the most frequent one: the transformer
    blocks, but not embedding and head. Where no sequence repeats, every layer but the last is one.
    """
    graph = profile.graph
    layers = layer_of_ops(profile.forward)
    order = list(dict.fromkeys(layers.tolist()))
    make = {
        layer: tuple(profile.forward[i].kind for i in np.flatnonzero(layers == layer))
        for layer in order
    }
    commonest, count = Counter(make.values()).most_common(1)[0] if make else ((), 0)
    chosen = [layer for layer in order if make[layer] == commonest] if count > 1 else order[:-1]

    written_in = np.where(graph.is_input, -2, layers[graph.producer] if len(layers) else -2)
    reader_layers = layers[graph.forward_reads.owners()]
    read = graph.forward_reads.items
    crosses = np.zeros(graph.n_tensors, dtype=np.bool_)
    crosses[read[reader_layers != written_in[read]]] = True
    blocks = []
    for layer in chosen:
        inputs = np.zeros(graph.n_tensors, dtype=np.bool_)
        inputs[read[reader_layers == layer]] = True
        inputs &= (written_in != layer) & ~graph.is_input
        blocks.append(Block(layer, inputs, (written_in == layer) & ~crosses))
    return tuple(blocks)
