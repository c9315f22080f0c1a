"""The closure problem against trying every choice."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from slackswap.analysis.min_cut import lightest_closure


def by_enumeration(weights: list[int], arcs: list[tuple[int, int]]) -> int:
    return min(
        sum(weight for weight, taken in zip(weights, choice, strict=True) if taken)
        for choice in product((False, True), repeat=len(weights))
        if all(choice[head] or not choice[tail] for tail, head in arcs)
    )


@pytest.mark.parametrize("seed", range(200))
def test_equals_enumeration(seed):
    rng = random.Random(seed)
    count = rng.randint(0, 8)
    weights = [rng.choice((0, rng.randint(-9, 9), rng.randint(-(2**40), 2**40)))
               for _ in range(count)]
    arcs = [(rng.randrange(count), rng.randrange(count)) for _ in range(rng.randint(0, 12))
            if count]
    tails, heads = (np.array([arc[end] for arc in arcs], dtype=np.int64) for end in (0, 1))
    chosen, weight = lightest_closure(np.array(weights, dtype=np.int64), tails, heads)
    assert weight == by_enumeration(weights, arcs)
    assert weight == sum(w for w, taken in zip(weights, chosen, strict=True) if taken)
    assert all(chosen[head] or not chosen[tail] for tail, head in arcs)


def test_a_worked_example():
    # Op 0 gains 5 and needs node 2 (weight 3); op 1 gains 1 and needs node 2 and node 3 (4).
    # Op 0 alone: -5 + 3 = -2. Both: -6 + 3 + 4 = 1. So op 0 and what it needs.
    chosen, weight = lightest_closure(
        np.array([-5, -1, 3, 4]), np.array([0, 1, 1]), np.array([2, 2, 3])
    )
    assert weight == -2
    assert chosen.tolist() == [True, False, True, False]
