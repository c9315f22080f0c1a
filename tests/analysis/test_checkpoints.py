"""Where a chain of dropped tensors is cut."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings, strategies as st

from slackswap.analysis.checkpoints import checkpoints
from slackswap.profiles.generators.random_dag import deep_chain_profile, random_profile


def test_a_chain_is_cut_where_it_exceeds_the_limit():
    # Equal tensors of 4 MiB that all follow from one another: at a limit of 10 MiB the third would
    # be 12, so it is kept, and so is each third one after it.
    graph = deep_chain_profile(9).graph
    limit = np.full(graph.n_forward, 10.0 * 2**20)
    chosen = checkpoints(graph, graph.is_input, graph.is_saved, limit)
    assert np.flatnonzero(chosen).tolist() == [3, 6, 9]


def test_what_is_there_anyway_cuts_a_chain():
    graph = deep_chain_profile(5).graph
    limit = np.full(graph.n_forward, 10.0 * 2**20)
    dropped = graph.is_saved.copy()
    dropped[3] = False
    assert not checkpoints(graph, graph.is_input, dropped, limit).any()


@settings(max_examples=200)
@given(st.integers(0, 2**40))
def test_once_cut_no_chain_exceeds_the_limit(seed):
    rng = random.Random(seed)
    graph = random_profile(rng, rng.randint(1, 30)).graph
    chance = np.array([rng.random() for _ in graph.nbytes])
    dropped = graph.is_saved & (chance < 0.8)
    limit = np.full(graph.n_forward, float(rng.randint(0, 200)))
    chosen = checkpoints(graph, graph.is_input, dropped, limit)
    assert not (chosen & ~dropped).any()
    assert not checkpoints(graph, graph.is_input, dropped & ~chosen, limit).any()
