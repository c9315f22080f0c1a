"""Largest-first and on-demand offload."""

import pytest
from handmade import LINK, actions_of, chain, plan_of

from slackswap import InvalidPlanner, Problem, Status, solve
from slackswap.planners.largest_first import LargestFirst
from slackswap.planners.on_demand import OnDemand

# 5, 9, 7 and 9 bytes are saved, and 40 in all needed while f4 runs. Each op is a layer.
NET = chain([5, 9, 7, 9, 10])


def test_largest_first_takes_the_fewest_and_skips_the_last_layer():
    # The last layer wrote t4, which backward does not need; the largest are t1 and t3, t1 first.
    assert actions_of(plan_of(NET, 40, LargestFirst())) == {}
    assert actions_of(plan_of(NET, 39, LargestFirst())) == {"t1": "swap"}
    # t3 is in use while f4 runs, and b4 needs it first: it never relieves anything. Then t2.
    assert actions_of(plan_of(NET, 30, LargestFirst())) == dict.fromkeys(
        ("t1", "t2", "t3"), "swap"
    )
    # With two layers skipped t3 is left out.
    assert actions_of(plan_of(NET, 30, LargestFirst(skip_layers=2))) == {
        "t1": "swap", "t2": "swap"
    }
    assert solve(Problem(NET, LINK, 39), LargestFirst(skip_layers=9)).status is Status.INFEASIBLE
    with pytest.raises(InvalidPlanner, match="skip_layers"):
        LargestFirst(skip_layers=-1)


def test_on_demand_takes_all_above_the_largest_size_that_fits():
    # 9 bytes and more: t1 and t3, which leaves 31. Backward ops are b4 .. b0: t3 is read by number
    # 0, t1 by number 2.
    solution = plan_of(NET, 31, OnDemand())
    assert actions_of(solution) == {"t1": "swap", "t3": "swap"}
    assert solution.plan.prefetch_gates == {"t3": 0, "t1": 2}
    assert solution.statistics["min_bytes"] == 9
    assert actions_of(plan_of(NET, 40, OnDemand())) == {}
    assert actions_of(plan_of(NET, 30, OnDemand())) == dict.fromkeys(("t1", "t2", "t3"), "swap")
    assert set(plan_of(NET, 40, OnDemand(min_bytes=6)).plan.actions) == {"t1", "t2", "t3"}


def test_a_copy_on_demand_is_waited_for_in_full():
    # t1 alone, 9 bytes: it is long out, and comes back when b2 is reached: 9 ns of stall.
    profile = chain([5, 9, 7, 7, 10])
    solution = plan_of(profile, 37, OnDemand())
    assert actions_of(solution) == {"t1": "swap"}
    assert solution.evaluation.stall_ns == 9


def test_synchronous_copies_hold_compute_up():
    # t1's copy is queued as f1 ends; f2 takes 2 ns and the barrier behind it waits for the rest: 7.
    profile = chain([5, 9, 7, 7, 10], forward_ns=[10, 10, 2, 10, 10])
    waiting = plan_of(profile, 37, OnDemand(synchronous=True))
    assert waiting.plan.offload_barriers == (2,)
    assert waiting.evaluation.stall_forward_ns == 7
    assert plan_of(profile, 37, OnDemand()).evaluation.stall_forward_ns == 0
