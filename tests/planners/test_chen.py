import pytest
from handmade import LINK, actions_of, chain, plan_of

from slackswap import Problem, Status, solve
from slackswap.planners.chen import ChenGreedy, ChenSqrt, greedy_boundaries


def test_sqrt_keeps_every_third_of_nine():
    # Nine ops without layers are nine blocks: segments of three. The results of blocks 2 and 5 are
    # kept; the last segment is not recomputed, and t8 is not needed.
    solution = plan_of(chain([4] * 9), None, ChenSqrt())
    assert actions_of(solution) == dict.fromkeys(("t0", "t1", "t3", "t4"), "recompute")
    assert solution.evaluation.recompute_ns == 40


@pytest.mark.parametrize(("count", "length"), [(4, 2), (6, 2), (7, 3), (12, 3), (13, 4)])
def test_the_root_is_rounded_to_the_nearest(count, length):
    solution = plan_of(chain([4] * count), None, ChenSqrt(granularity="op"))
    assert solution.statistics["segment_blocks"] == length


def test_sqrt_by_layers_where_ops_do_not_fit():
    # Six layers of two ops, the second of which makes 20 bytes that the next layer only needs
    # forward; the first makes 2 bytes. By ops: twelve blocks in segments of three. By layers: six
    # blocks in segments of two. Boundaries by ops: t2, t5, t8: 2 + 20 + 2. By layers: t3, t7, with
    # 20 each.
    profile = chain([2, 20] * 6, layers=[n // 2 for n in range(12)])
    by_op = plan_of(profile, None, ChenSqrt(granularity="op"))
    by_layer = plan_of(profile, None, ChenSqrt(granularity="layer"))
    assert set(by_op.plan.actions) == {"t0", "t1", "t3", "t4", "t6", "t7"}
    assert set(by_layer.plan.actions) == {"t0", "t1", "t2", "t4", "t5", "t6"}
    either = plan_of(profile, by_op.evaluation.peak_bytes, ChenSqrt())
    assert either.plan.actions == by_op.plan.actions
    assert by_layer.evaluation.peak_bytes > by_op.evaluation.peak_bytes


def test_greedy_walk():
    # 4, 8, 12 > 8: kept after block 2, and anew: 4, 8, and the last block bounds nothing.
    assert greedy_boundaries([4] * 6, 8) == [2]
    # Each block by itself exceeds 0.
    assert greedy_boundaries([4] * 4, 0) == [0, 1, 2]
    assert greedy_boundaries([1, 9, 1, 1, 9, 1], 8) == [1, 4]
    assert greedy_boundaries([], 0) == []


def test_greedy_takes_the_smallest_segment_size_that_fits():
    # Six ops, t0 .. t4 of 10 bytes, t5 of none: 50 in all. With size 0 every result is a boundary
    # and nothing is recomputed: 50. With 10, results 1 and 3 are kept (10, 20 > 10), t0 and t2 are
    # recomputed: t1, t3, t4 are 30; t2 comes and goes when t3 is gone. 40 bytes need the latter.
    profile = chain([10] * 5 + [0])
    solution = plan_of(profile, 40, ChenGreedy())
    assert actions_of(solution) == {"t0": "recompute", "t2": "recompute"}
    assert solution.statistics["segment_bytes"] == 10
    assert actions_of(plan_of(profile, 50, ChenGreedy())) == {}
    # Two tensors at a time is the least a chain can do.
    assert solve(Problem(profile, LINK, 19), ChenGreedy()).status is Status.INFEASIBLE
