"""The best trades of time for memory, against all of them."""

from __future__ import annotations

import itertools
import random

import numpy as np
from hypothesis import given, settings, strategies as st

from slackswap import BackwardOp, ForwardOp, Profile, Tensor
from slackswap.analysis.hull import hull_vertices
from slackswap.profiles.generators.random_dag import random_profile


def trades(graph, droppable, storable):
    """Yield (memory, time) of every set of ops that may run again, with the stores it needs."""
    for bits in itertools.product((False, True), repeat=graph.n_forward):
        again = np.array(bits, dtype=np.bool_)
        if (again & ~graph.recomputable).any():
            continue
        stored = np.zeros(graph.n_tensors, dtype=np.bool_)
        for op in np.flatnonzero(again):
            read = graph.forward_reads[op]
            read = read[graph.is_intermediate[read]]
            stored[read[~again[graph.producer[read]]]] = True
        if (stored & ~storable).any():
            continue
        kept = droppable.copy()
        kept[kept] = ~again[graph.producer[kept]]
        yield int(graph.nbytes[kept | stored].sum()), int(graph.forward_ns[again].sum())


def corners(points):
    """Return the corners of the lower convex hull, from least time to least memory."""
    cheapest = {}
    for memory, time in points:
        cheapest[memory] = min(time, cheapest.get(memory, time))
    hull = []
    for memory, time in sorted(cheapest.items(), reverse=True):
        while hull and hull[-1][1] >= time:
            hull.pop()
        while len(hull) > 1:
            (m0, t0), (m1, t1) = hull[-2:]
            if (t1 - t0) * (m0 - memory) < (time - t0) * (m0 - m1):
                break
            hull.pop()
        hull.append((memory, time))
    return hull


@settings(max_examples=200)
@given(st.integers(0, 2**40))
def test_every_corner_is_found_and_nothing_else(seed):
    rng = random.Random(seed)
    graph = random_profile(rng, rng.randint(1, 8)).graph
    chance = np.array([rng.random() for _ in graph.nbytes])
    droppable, storable = graph.is_saved & (chance < 0.9), graph.is_intermediate & (chance < 0.8)
    found = [(v.memory_bytes, v.time_ns) for v in hull_vertices(graph, droppable, storable, 10**6)]
    hull = corners(trades(graph, droppable, storable))
    # The first corner drops only what costs no time; the search starts from dropping nothing.
    assert set(hull[1:]) <= set(found)
    assert set(found) <= set(hull)


def test_a_store_is_priced_together_with_what_it_makes_cheap():
    # s needs u, which needs a dear op: alone it costs 1 + 100 ns and frees 10 bytes. With u stored
    # it costs 1 ns and frees 10 - 2 bytes: between keeping s and remaking both, and 12 times less
    # a byte. The vertices are (101 ns, 0 bytes) and (1 ns, 2 bytes).
    profile = Profile(
        "pair", "random", (Tensor("u", 2), Tensor("s", 10)),
        (ForwardOp("dear", 100, (), (0,)), ForwardOp("cheap", 1, (0,), (1,))),
        (BackwardOp("b", 5, (1,)),),
    )
    graph = profile.graph
    vertices = list(hull_vertices(graph, graph.is_saved, graph.is_intermediate, 16))
    assert [(v.time_ns, v.memory_bytes) for v in vertices] == [(101, 0), (1, 2)]
    assert vertices[1].stored.tolist() == [True, False]
    assert vertices[1].dropped.tolist() == [False, True]
