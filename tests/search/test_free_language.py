"""The free Lagrangian bound against every plan of a language far richer than the simulator's."""

from __future__ import annotations

import random
from functools import cache

import pytest
from free_plans import fastest

from slackswap import BackwardOp, ForwardOp, Hardware, Problem, Profile, Tensor
from slackswap.search.enumeration import enumerate_plans
from slackswap.search.lagrangian.bound import (
    PriceSearch,
    evaluate_certificate,
    lagrangian_bound,
)
from slackswap.search.lagrangian.instants import Facts
from slackswap.search.lagrangian.relaxation import Multipliers, Relaxation
from slackswap.status import Status

LINK = Hardware("link", 10**9, 10**9)  # a byte a nanosecond, each way
SEEDS = range(60)


def small_problem(rng: random.Random) -> Problem:
    """Three or four ops whose tensors are read, let alone, and read again."""
    n = rng.choice((2, 3, 3))
    tensors = tuple(Tensor(f"t{i}", rng.randint(1, 4)) for i in range(n))
    forward = tuple(
        ForwardOp(
            f"f{i}", rng.randint(1, 4),
            tuple(t for t in range(i) if rng.random() < 0.5), (i,), rng.choice((0, 0, 1)),
            recomputable=rng.random() < 0.9,
        )
        for i in range(n)
    )
    backward = tuple(
        BackwardOp(
            f"b{j}", rng.randint(1, 4),
            tuple(t for t in range(n) if rng.random() < 0.4), rng.choice((0, 0, 1)),
        )
        for j in range(rng.choice((2, 3)))
    )
    profile = Profile("small", "random", tensors, forward, backward)
    least = Facts.of(Problem(profile, LINK), free=True).least_bytes()
    total = sum(tensor.nbytes for tensor in tensors)
    return Problem(profile, LINK, rng.randint(least, max(least, total - 1)))


@cache
def optimum(seed: int) -> tuple[Problem, int | None]:
    """Draw a problem, split one of its tensors in two, and try everything."""
    rng = random.Random(seed)
    problem = small_problem(rng)
    sizes = [tensor.nbytes for tensor in problem.profile.tensors]
    parts = {t: (nbytes,) for t, nbytes in enumerate(sizes)}
    largest = sizes.index(max(sizes))
    if sizes[largest] > 1:
        parts[largest] = (sizes[largest] // 2, sizes[largest] - sizes[largest] // 2)
    try:
        return problem, fastest(problem, parts, 60_000)
    except OverflowError:
        pytest.skip("too many states to try")


@pytest.mark.parametrize("seed", SEEDS)
def test_no_free_plan_is_faster(seed):
    problem, best = optimum(seed)
    bound = lagrangian_bound(problem, free=True)
    if best is None:
        return
    assert bound.status is not Status.INFEASIBLE
    assert bound.value_ns <= best
    if bound.certificate is not None:
        assert evaluate_certificate(problem, bound.certificate, free=True) == bound.value_ns


@pytest.mark.parametrize("seed", SEEDS)
def test_no_free_plan_is_faster_whatever_the_instant_and_prices(seed):
    problem, best = optimum(seed)
    if best is None:
        return
    rng = random.Random(seed)
    facts, graph = Facts.of(problem, free=True), problem.profile.graph
    one = 2**10
    for instant in (
        *map(facts.in_forward, range(graph.n_forward + 1)),
        *map(facts.in_backward, range(graph.n_backward)),
    ):
        relaxation = Relaxation(facts, instant)
        search = PriceSearch(relaxation)
        search.run()
        tried = [] if search.best is None else [search.best.exact()]
        outs = [i for i in range(graph.n_forward) if relaxation.window_out_ns(i) >= 0]
        backs = range(instant.first_due, graph.n_backward)
        tried += [
            Multipliers(one, rng.randrange(4 * one), {i: rng.randrange(one // 3) for i in outs},
                   {j: rng.randrange(one // 3) for j in backs})
            for _ in range(5)
        ]
        for prices in tried:
            assert problem.profile.duration_ns + relaxation.proven_ns(prices) <= best, instant


@pytest.mark.parametrize("seed", SEEDS)
def test_plans_of_the_simulator_are_free_plans(seed):
    problem, best = optimum(seed)
    found = enumerate_plans(problem).iteration_ns
    if found is not None:
        assert best is not None
        assert best <= found
        assert lagrangian_bound(problem, free=True).value_ns <= found


def test_a_tensor_that_leaves_between_two_reads():
    # a (4 bytes) is read by b0 and b2, b (4 bytes) by b1, with room for one of them. The simulator
    # holds a from b0 to b2, so nothing fits. A free plan copies a out in 4 ns after f, and b out in
    # 4 ns after g; a returns (4 ns), b0, b returns (4 ns), b1, a returns (4 ns), b2: 5 + 20.
    profile = Profile(
        "again", "random", (Tensor("a", 4), Tensor("b", 4)),
        (ForwardOp("f", 1, (), (0,), recomputable=False),
         ForwardOp("g", 1, (), (1,), recomputable=False)),
        (BackwardOp("b0", 1, (0,)), BackwardOp("b1", 1, (1,)), BackwardOp("b2", 1, (0,))),
    )
    problem = Problem(profile, LINK, 4)
    assert fastest(problem, {0: (4,), 1: (4,)}, 10**5) == 25
    assert lagrangian_bound(problem).status is Status.INFEASIBLE
    free = lagrangian_bound(problem, free=True)
    assert free.status is not Status.INFEASIBLE
    assert profile.duration_ns < free.value_ns <= 25


def test_the_language_is_richer():
    """Else the tests above would say nothing that enumeration does not say."""
    gained = 0
    for seed in SEEDS:
        try:
            problem, best = optimum(seed)
        except pytest.skip.Exception:
            continue
        found = enumerate_plans(problem).iteration_ns
        gained += best is not None and (found is None or best < found)
    assert gained >= 3
