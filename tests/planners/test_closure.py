"""Closure prices, against what the referee runs again."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings, strategies as st

from slackswap import BackwardOp, ForwardOp, Hardware, Plan, Problem, Profile, Tensor, simulate
from slackswap.analysis.closure import (
    IMPOSSIBLE,
    ClosureOrder,
    closure_ns,
    least_rerun_ns,
    rank_by_closure,
    spread,
)
from slackswap.profiles.generators.random_dag import random_profile

LINK = Hardware("toy", 10**9, 10**9)


def all_saved(profile):
    return profile.graph.is_input | profile.graph.is_saved


@settings(max_examples=400)
@given(st.integers(0, 2**40))
def test_the_price_of_one_op_is_what_the_referee_reruns(seed):
    rng = random.Random(seed)
    profile = random_profile(rng, rng.randint(1, 12))
    graph = profile.graph
    prices = closure_ns(graph, all_saved(profile))
    for t in np.flatnonzero(graph.is_saved).tolist():
        if "recompute" not in profile.tensors[t].allowed:
            continue
        price = int(prices[graph.producer[t]])
        if price >= IMPOSSIBLE:
            continue
        plan = Plan({profile.tensors[t].name: "recompute"})
        assert simulate(Problem(profile, LINK), plan, "reference").recompute_ns == price


@settings(max_examples=400)
@given(st.integers(0, 2**40))
def test_dropping_several_takes_at_least_each_op_once(seed):
    rng = random.Random(seed)
    profile = random_profile(rng, rng.randint(1, 12))
    graph = profile.graph
    prices = closure_ns(graph, all_saved(profile))
    ops = [
        op for op in range(graph.n_forward)
        if prices[op] < IMPOSSIBLE and any(
            graph.is_saved[t] and "recompute" in profile.tensors[t].allowed
            for t in graph.forward_writes[op]
        )
    ]
    rng.shuffle(ops)
    least = least_rerun_ns(graph, all_saved(profile), np.array(ops, dtype=np.int64))
    assert least[0] == 0
    assert not ops or least[1] == prices[ops[0]]
    for count in range(1, len(ops) + 1):
        dropped = {
            profile.tensors[t].name: "recompute"
            for op in ops[:count] for t in graph.forward_writes[op]
            if graph.is_saved[t] and "recompute" in profile.tensors[t].allowed
        }
        evaluation = simulate(Problem(profile, LINK), Plan(dropped), "reference")
        assert least[count] <= evaluation.recompute_ns


def fork() -> Profile:
    """x -> u (10 ns, intermediate) -> a (1 ns), b (1 ns), both for the first backward op; c is big.

    Alone, a costs 11 for 10 bytes and b 11 for 20; c costs 6 for 10.
    """
    return Profile(
        "fork",
        "random",
        (Tensor("x", 1), Tensor("u", 5), Tensor("a", 10), Tensor("b", 20), Tensor("c", 10)),
        (
            ForwardOp("fu", 10, (0,), (1,)),
            ForwardOp("fa", 1, (1,), (2,)),
            ForwardOp("fb", 1, (1,), (3,)),
            ForwardOp("fc", 6, (0,), (4,)),
        ),
        (BackwardOp("bab", 1, (2, 3)), BackwardOp("bc", 1, (4,))),
    )


def freed(profile):
    graph = profile.graph
    result = np.zeros(graph.n_forward, dtype=np.int64)
    np.add.at(result, graph.producer[graph.is_saved], graph.nbytes[graph.is_saved])
    return result


def test_prices_are_updated_as_closures_interact():
    # b is cheapest (11 / 20). With it u is made again for the same backward op anyway, so a costs
    # only its own 1 for 10 bytes and overtakes c (6 / 10), which by static prices would be second.
    profile = fork()
    order = rank_by_closure(profile.graph, all_saved(profile), freed(profile))
    assert [profile.forward[op].name for op in order.ops] == ["fb", "fa", "fc"]
    assert order.ns_per_byte.tolist() == [11 / 20, 1 / 10, 6 / 10]


def test_own_time_prices_ignore_the_closure():
    profile = fork()
    order = rank_by_closure(
        profile.graph, all_saved(profile), freed(profile), own_time_only=True
    )
    assert [profile.forward[op].name for op in order.ops] == ["fb", "fa", "fc"]
    assert order.ns_per_byte.tolist() == [1 / 20, 1 / 10, 6 / 10]


def test_what_cannot_run_again_has_no_place_in_the_order():
    profile = fork()
    forward = (ForwardOp("fu", 10, (0,), (1,), recomputable=False), *profile.forward[1:])
    fixed = Profile("fixed", "random", profile.tensors, forward, profile.backward)
    order = rank_by_closure(fixed.graph, all_saved(fixed), freed(fixed))
    assert [fixed.forward[op].name for op in order.ops] == ["fc"]


def test_long_closures_are_priced_without_walking_them_op_by_op():
    # 1,000 intermediates in a row: the walk is cut, the price is not.
    n = 1000
    profile = Profile(
        "long",
        "random",
        tuple(Tensor(f"t{i}", 1) for i in range(n + 1)),
        tuple(ForwardOp(f"f{i}", 1, (i,), (i + 1,)) for i in range(n)),
        (BackwardOp("b", 1, (n,)),),
    )
    assert closure_ns(profile.graph, all_saved(profile))[-1] == n


def test_many_paths_do_not_make_a_closure_impossible():
    """42 diamonds of intermediates: 2^42 paths, but each of the 127 ops runs once, for 1 ms."""
    tensors, forward, below = [Tensor("x", 1)], [], 0
    for number in range(42):
        left, right, both = (len(tensors) + at for at in range(3))
        tensors += [Tensor(f"{part}{number}", 1) for part in ("left", "right", "both")]
        forward += [
            ForwardOp(f"l{number}", 10**6, (below,), (left,)),
            ForwardOp(f"r{number}", 10**6, (below,), (right,)),
            ForwardOp(f"b{number}", 10**6, (left, right), (both,)),
        ]
        below = both
    tensors.append(Tensor("saved", 1))
    forward.append(ForwardOp("end", 10**6, (below,), (below + 1,)))
    profile = Profile("diamonds", "random", tuple(tensors), tuple(forward),
                      (BackwardOp("back", 1, (below + 1,)),))
    assert closure_ns(profile.graph, all_saved(profile))[-1] == 127 * 10**6


def test_a_price_that_fell_stays_where_it_is():
    # 3.0 is not within a quarter of 1.0; what follows counts as 3.0 until 5.0.
    order = ClosureOrder(np.arange(7), np.array([1.0, 3.0, 0.1, 0.1, 5.0, 6.0, 7.0]))
    assert spread(order, 1.25).ops.tolist() == [0, 1, 3, 2, 4, 5, 6]


def test_ops_of_one_price_are_taken_far_apart():
    # Eight places, binary digits read backwards: 000 001 010 011 ... -> 0 4 2 6 1 5 3 7.
    order = ClosureOrder(np.array([3, 1, 0, 2, 5, 4, 7, 6]), np.ones(8))
    assert spread(order, 1.25).ops.tolist() == [0, 4, 2, 6, 1, 5, 3, 7]


def test_prices_far_apart_keep_their_order():
    # 1.2 is within a quarter of 1.0, 1.3 is not; of a group of two the first executed comes first.
    order = ClosureOrder(np.array([9, 2, 4]), np.array([1.0, 1.2, 1.3]))
    out = spread(order, 1.25)
    assert out.ops.tolist() == [2, 9, 4]
    assert out.ns_per_byte.tolist() == [1.2, 1.0, 1.3]


@settings(max_examples=200)
@given(st.lists(st.integers(0, 5), max_size=40))
def test_spreading_loses_nothing(prices):
    prices = np.sort(np.array(prices, dtype=np.float64))
    ops = np.random.default_rng(len(prices)).permutation(len(prices))
    out = spread(ClosureOrder(ops, prices), 1.25)
    price_of = dict(zip(ops.tolist(), prices.tolist(), strict=True))
    assert sorted(out.ops.tolist()) == sorted(ops.tolist())
    assert out.ns_per_byte.tolist() == [price_of[op] for op in out.ops.tolist()]
    # Whole prices differ by a quarter at least from 4 to 5 on, so no two are mixed.
    assert out.ns_per_byte.tolist() == sorted(prices.tolist())
