"""Activation gradients alive around each backward op, from the forward graph alone.

Measurement files seldom say what a backward op holds beside saved tensors. At the least it holds
the gradients on their way: one is made by the first backward op that reaches its tensor, and freed
by the backward op of the forward op that wrote the tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GradientLevel:
    """Bytes of activation gradients around one backward op.

    Attributes
    ----------
    carried : int
        Alive when the op starts.
    workspace : int
        Alive while it runs: `carried` and what it makes.
    """

    carried: int
    workspace: int


def gradient_levels(
    ops: Sequence[tuple[Sequence[str], Sequence[str]]],
    nbytes: Mapping[str, int],
    *,
    without_gradient: Collection[str],
    roots: Collection[str],
) -> list[GradientLevel]:
    """Return the gradients alive around the backward op of each forward op.

    Parameters
    ----------
    ops : sequence of (reads, writes)
        Tensor names of the forward ops, in execution order.
    nbytes : mapping of str to int
        Sizes of all tensors in bytes; a gradient is as large as its tensor.
    without_gradient : collection of str
        Tensors that receive none: inputs, masks, indices, statistics.
    roots : collection of str
        Tensors whose gradients are there at the start.

    Returns
    -------
    list of GradientLevel
        In the order of `ops`, not of the backward pass. A second gradient of a tensor is held
        beside the first while the op that makes it runs, then added to it in place.
    """
    alive = {name: nbytes[name] for name in roots}
    live = sum(alive.values())
    levels: list[GradientLevel] = []
    for reads, writes in reversed(ops):
        incoming = [name for name in writes if name in alive]
        # Where no gradient arrives none leaves: a branch that the loss does not see.
        made = [name for name in reads if name not in without_gradient] if incoming else []
        levels.append(GradientLevel(live, live + sum(nbytes[name] for name in made)))
        for name in incoming:
            live -= alive.pop(name)
        for name in made:
            if name not in alive:
                alive[name] = nbytes[name]
                live += nbytes[name]
    return levels[::-1]
