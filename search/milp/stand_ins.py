"""What takes the place of a kept intermediate once a closure has read it.

A kept intermediate may be freed as soon as the closures that read it are over, which the model
must allow from the first backward op whose closure could. But what it was read for is a saved
tensor, made again and from then on *retained*: the memory is not gained, it changes hands. So until
the first of those saved tensors is needed by backward itself, at least the smaller of the two sizes
stays taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from slackswap.search.milp.data import ModelData

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class StandIns:
    """Groups of intermediates that closures read for the same saved tensors.

    Attributes
    ----------
    tensors : int64[members]
        Intermediates.
    group : int64[members]
        The group of each. Two groups share no intermediate and no saved tensor.
    nbytes : int64[members]
        The smaller of its own size and the least size of what closures read it for.
    first, last : int64[groups]
        Backward ops from which on, and up to which, the memory of a group counts: none of the
        intermediates counts as waiting any more, and none of the saved tensors as in use yet.
    most : int64[groups]
        Largest `nbytes` of a group.
    """

    tensors: Ints
    group: Ints
    nbytes: Ints
    first: Ints
    last: Ints
    most: Ints

    @classmethod
    def of(cls, data: ModelData) -> StandIns:
        """Follow each intermediate forward to the first saved tensors that can be missing."""
        graph = data.graph
        never = graph.n_backward
        least = np.full(graph.n_tensors, np.iinfo(np.int64).max)
        needed = np.full(graph.n_tensors, never, dtype=np.int64)
        leader = list(range(graph.n_tensors))

        def find(t: int) -> int:
            while leader[t] != t:
                leader[t] = leader[leader[t]]
                t = leader[t]
            return t

        def follow(t: int, op: int) -> None:
            for made in graph.forward_writes[op].tolist():
                if graph.is_saved[made]:
                    if not data.may_drop[made]:
                        continue
                    size, need = graph.nbytes[made], graph.first_backward_read[made]
                elif data.last_read[made] >= 0:
                    size, need = least[made], needed[made]
                else:
                    continue
                least[t] = min(least[t], size)
                needed[t] = min(needed[t], need)
                leader[find(made)] = find(t)

        # Readers come later than producers, so a sweep backwards finds what they lead to settled.
        for op in range(graph.n_forward - 1, -1, -1):
            if data.last_closure[op] >= 0:
                for t in graph.forward_reads[op].tolist():
                    if graph.is_intermediate[t]:
                        follow(t, op)

        member = graph.is_intermediate & (data.last_read >= 0) & (least > 0) & (graph.nbytes > 0)
        tensors = np.flatnonzero(member & (least < np.iinfo(np.int64).max))
        leaders = np.array([find(t) for t in tensors.tolist()], dtype=np.int64)
        _, group = np.unique(leaders, return_inverse=True)
        count = int(group.max(initial=-1)) + 1
        first = np.zeros(count, dtype=np.int64)
        last = np.full(count, never, dtype=np.int64)
        most = np.zeros(count, dtype=np.int64)
        nbytes = np.minimum(graph.nbytes[tensors], least[tensors])
        np.maximum.at(first, group, data.first_read[tensors])
        np.minimum.at(last, group, needed[tensors] - 1)
        np.maximum.at(most, group, nbytes)
        useful = first <= last
        number = np.cumsum(useful) - 1
        kept = useful[group]
        return cls(
            tensors[kept], number[group[kept]], nbytes[kept], first[useful], last[useful],
            most[useful],
        )
