"""The SAC ladder and DTR: worked by hand."""

from random import Random

import numpy as np
import pytest
from handmade import LINK, actions_of, chain, plan_of

from slackswap import Problem, Status, solve
from slackswap.planners.dtr import DTR, Costs
from slackswap.planners.sac_ladder import SacLadder
from slackswap.profiles.generators.random_dag import random_problem

# Three blocks of product, norm, product, norm; all tensors have 10 bytes, the input none. All
# but the last are saved: 120 bytes while f11 runs.
BLOCKS = chain([10] * 12, kinds=["gemm", "norm"] * 6, layers=[n // 4 for n in range(12)])


def test_the_ladder_stores_products_and_recomputes_the_rest():
    # Block 0 writes t0 .. t3; t3 enters block 1 and stays. Stored are the products t0 and t2;
    # recomputed is the norm t1, from t0, in 10 ns.
    every = plan_of(BLOCKS, 110, SacLadder(products="all"))
    assert actions_of(every) == {"t1": "recompute"}
    assert every.statistics["selective_blocks"] == 1
    # Every second product only: t2 is made again too.
    alternate = plan_of(BLOCKS, 110, SacLadder(products="alternate"))
    assert actions_of(alternate) == {"t1": "recompute", "t2": "recompute"}


def test_after_the_last_rung_of_one_kind_comes_the_next():
    # All three blocks selective: t1, t5 and t9 are gone, 90 are left. What must run again at once
    # takes 10 more. With 80 the first block goes whole: t0, t1 and t2.
    solution = plan_of(BLOCKS, 80, SacLadder(products="all"))
    assert solution.statistics["selective_blocks"] == 3
    assert solution.statistics["whole_blocks"] == 1
    assert {name for name, action in actions_of(solution).items() if action == "recompute"} == {
        "t0", "t1", "t2", "t5", "t9"
    }


def test_the_ladder_needs_kinds_and_layers():
    assert solve(Problem(chain([10] * 4), LINK, 30), SacLadder()).status is Status.SKIPPED


def test_dtr_evicts_the_least_cost_over_size_and_staleness():
    # Five ops, 10 bytes each: 50 bytes while f4 runs, from 40 on; 45 are there. Idle are t0 (last
    # read at 20), t1 (30) and t2 (40, as f4 begins: it has just been read; staleness at least 1).
    # h of t0 = 10 / (10 x 20), of t1 = 10 / (10 x 10): t0 goes.
    solution = plan_of(chain([10] * 5), 45, DTR(cost="local"))
    assert actions_of(solution) == {"t0": "recompute"}
    # Were t0 five times as dear, 50 / (10 x 20) against 10 / (10 x 10): t1 goes. f0 takes 50.
    dear = chain([10] * 5, forward_ns=[50, 10, 10, 10, 10])
    assert actions_of(plan_of(dear, 45, DTR(cost="local"))) == {"t1": "recompute"}
    # And were t0 of 40 bytes, 10 / (40 x 20) would be less than all.
    large = chain([40, 10, 10, 10, 10])
    assert actions_of(plan_of(large, 75, DTR(cost="local"))) == {"t0": "recompute"}


def test_dtr_counts_the_evicted_neighbourhood():
    # t1 was evicted. t2 would be made of it: 10 ns more. t0 is what it would be made of: the same.
    # t4 has t3 between: nothing.
    graph = chain([10] * 7).graph
    evicted = np.zeros(graph.n_tensors, dtype=np.bool_)
    evicted[2] = True  # tensor 0 is the input: t1 is 2
    costs = Costs(graph, evicted, with_neighbourhood=True)
    assert costs.neighbourhood(3) == costs.neighbourhood(1) == {1}
    assert costs.neighbourhood(5) == set()
    assert costs.of(np.array([1, 3, 5])).tolist() == [20, 20, 10]
    costs.evict(3)  # now t1 and t2 are gone: t0 and t3 have both around them
    assert costs.of(np.array([1, 4, 5])).tolist() == [30, 30, 10]


def test_costs_kept_up_to_date_are_those_counted_anew():
    rng = Random(5)
    for seed in range(20):
        graph = random_problem(Random(seed), 14).profile.graph
        costs = Costs(graph, np.zeros(graph.n_tensors, dtype=np.bool_), with_neighbourhood=True)
        saved = np.flatnonzero(graph.is_saved)
        costs.of(saved)
        gone = np.zeros(graph.n_tensors, dtype=np.bool_)
        for t in rng.sample(saved.tolist(), len(saved) // 2):
            costs.evict(t)
            gone[t] = True
            anew = Costs(graph, gone, with_neighbourhood=True)
            assert costs.of(saved).tolist() == anew.of(saved).tolist()


def test_dtr_spreads_checkpoints_over_a_chain():
    # The paper's setting: a chain of equal ops. With N = 36 and memory for 2 sqrt(N) + 4 tensors it
    # proves O(N) operations; here each tensor is made again at most once, so at most N in all.
    net = chain([10] * 36)
    solution = solve(Problem(net, LINK, 10 * 16), DTR(cost="neighbourhood"))
    assert solution.status.has_plan, solution.reason
    assert solution.evaluation.recompute_ns <= 36 * 10
    kept = sorted(
        set(range(35))
        - {int(name[1:]) for name, action in actions_of(solution).items() if action == "recompute"}
    )
    # What is left is spread: no gap longer than the memory that refilling it takes.
    assert max(np.diff(kept)) < 16


@pytest.mark.parametrize("cost", ["neighbourhood", "local"])
def test_dtr_only_recomputes(cost):
    found = 0
    for seed in range(30):
        solution = solve(random_problem(Random(200 + seed), 10), DTR(cost=cost))
        if solution.status.has_plan:
            found += 1
            assert "swap" not in set(actions_of(solution).values())
    assert found > 5
