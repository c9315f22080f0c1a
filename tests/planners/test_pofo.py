"""POFO's dynamic programme: equal to the enumeration of its class by its own cost."""

from itertools import product
from math import inf
from random import Random

import pytest
from handmade import actions_of, chain, plan_of

from slackswap import Problem, load_profile, solve
from slackswap.planners.pofo import ChainChoice, Pofo, Stage, own_cost, solve_chain
from slackswap.profiles.library import profile_hardware


def every_way(count: int, start: int = 0):
    """Yield all ways to cover stages, written independently of the planner."""
    if start == count:
        yield []
        return
    for stop in range(start + 1, count + 1):
        for inner, result in product(("keep", "offload", "drop"), ("keep", "offload")):
            if inner != "drop" and stop > start + 1:
                continue
            if inner == "drop" and stop == count:
                continue  # the last stage is not dropped
            for rest in every_way(count, stop):
                yield [ChainChoice(start, stop, inner, result), *rest]


@pytest.mark.parametrize("seed", range(60))
def test_the_least_of_its_class(seed):
    rng = Random(seed)
    stages = [
        Stage(rng.randint(0, 9), rng.randint(0, 5), rng.randint(0, 4), rng.randint(1, 20),
              rng.randint(1, 40))
        for _ in range(rng.randint(1, 4))
    ]
    total = sum(stage.inner + stage.result for stage in stages)
    memory = rng.randint(1, total + 6)
    rates = rng.choice([10**8, 10**9, 3 * 10**9]), rng.choice([10**8, 10**9])
    costs = [own_cost(stages, way, memory, rates) for way in every_way(len(stages))]
    found = solve_chain(stages, memory, rates, slots=250)
    if found is None:
        assert min(costs) == inf
        return
    assert found[0] == pytest.approx(min(costs), abs=1e-9)
    assert own_cost(stages, found[1], memory, rates) == pytest.approx(found[0], abs=1e-9)


def test_stages_that_may_not_run_again_are_not_dropped():
    stages = [Stage(10, 1, 0, 5, 10, droppable=False), Stage(1, 0, 0, 5, 10)]
    found = solve_chain(stages, 11, (10**6, 10**6))
    assert found is None or all(choice.inner != "drop" for choice in found[1])


def test_a_chain_by_hand():
    # Six layers, each an op that writes 10 bytes and gives them to the next: nothing is saved for a
    # layer itself, so only results move. 60 bytes while f5 runs. With 50, one must go: moving one
    # takes 10 ns beside 60 of forward and 120 of backward, and costs nothing.
    net = chain([10] * 6, layers=range(6))
    solution = plan_of(net, 50, Pofo())
    assert set(actions_of(solution).values()) == {"swap"}
    assert solution.statistics["own_cost_ns"] == 0
    # Over a link a thousand times slower the cheapest op runs again instead.
    slow = plan_of(net, 50, Pofo(), profile_hardware("bert-large").with_link(1e-9))
    assert set(actions_of(slow).values()) == {"recompute"}


def test_coarser_slots_never_cost_less():
    profile = load_profile("bert-large")
    problem = Problem(profile, profile_hardware("bert-large"), 0.5)
    costs = [solve(problem, Pofo(slots=slots)).statistics for slots in (500, 50)]
    assert all("own_cost_ns" in cost for cost in costs)
