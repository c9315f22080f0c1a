from handmade import LINK, actions_of, chain, plan_of

from slackswap import BackwardOp, ForwardOp, Profile, Tensor
from slackswap.planners.capuchin import Capuchin

# t0 and t1 have 20 bytes, t2 and t3 have 4, the input x 4. f0 takes 15 ns, the others 10; backward
# ops take 20: b3 from 45 to 65, b2 from 65 to 85, b1 from 85 on. Keeping all: 4 + 20 + 20 + 4 + 4 =
# 52 while f3 runs from 35 on, which is the peak; 48 before and after.
NET = chain([20, 20, 4, 4], forward_ns=[15, 10, 10, 10], input_bytes=4)


def test_free_time_alone_swaps_the_longest():
    # Free times: t0 was last read at 25, so it is out at 45, and must start back at 85 - 20 = 65:
    # 20 ns. t1, last read at 35, is out at 55 and must start back at 45: -10. t2 is in use at the
    # peak. 2 bytes are missing with 50: t0 covers them. Its copy starts after f1 reads it (gate 1);
    # back it must start 20 ns before b1, that is with b2 (number 1).
    solution = plan_of(NET, 50, Capuchin(free_time="alone"))
    assert actions_of(solution) == {"t0": "swap"}
    assert solution.plan.offload_gates == {"t0": 1}
    assert solution.plan.prefetch_gates == {"t0": 1}
    # The copy ends at 45, but f3 should have begun at 35: 10 ns of stall.
    assert solution.evaluation.stall_ns == 10


def test_a_copy_that_ends_after_the_peak_is_not_free():
    # With "peak", t0's copy ends 10 ns too late. Memory saved per ns: t0 20 bytes in 15 ns, t1 20
    # in 10 ns (its source t0 stays). t1 comes first: recomputing costs 10 ns, swapping it would be
    # 55 - 35 = 20 ns late. It is recomputed, and covers what is missing.
    solution = plan_of(NET, 50, Capuchin(free_time="peak"))
    assert actions_of(solution) == {"t1": "recompute"}
    assert solution.evaluation.iteration_ns == 45 + 80 + 10


def test_the_cheaper_way_may_be_swapping():
    # As before, but f1 takes 25 ns: t0 is last read at 40, out at 60; f3 starts at 50. t1 is last
    # read at 50 and out at 70. Memory saved per ns: t0 20 in 15, t1 20 in 25. t0 comes first: 15 ns
    # of recomputation against 10 ns of lateness. It is swapped.
    profile = chain([20, 20, 4, 4], forward_ns=[15, 25, 10, 10], input_bytes=4)
    assert actions_of(plan_of(profile, 50, Capuchin(free_time="peak"))) == {"t0": "swap"}


def test_prices_grow_as_sources_are_recomputed():
    # One byte a ms: swapping is out of the question. a is made of the input in 10 ns, b of a in
    # 10, c of b in 12; each has 20 bytes; d (1 byte) is made of c and in use at the peak, f4, which
    # takes 10 of scratch: 20 + 20 + 20 + 1 + 10 = 71. Saved per ns: a and b 20/10, c 20/12; a is
    # the first of equals. With a gone, b is made of the input in 20 ns: c at 12 is cheaper, and
    # comes second. c is made of b still; b is now a source of one, so its own price counts twice.
    profile = Profile(
        "prices", "random",
        (Tensor("x", 0), Tensor("a", 20), Tensor("b", 20), Tensor("c", 20), Tensor("d", 1),
         Tensor("e", 0)),
        (
            ForwardOp("fa", 10, (0,), (1,)),
            ForwardOp("fb", 10, (1,), (2,)),
            ForwardOp("fc", 12, (2,), (3,)),
            ForwardOp("fd", 10, (3,), (4,)),
            ForwardOp("fe", 10, (4,), (5,), 10),
        ),
        (BackwardOp("be", 20, (4,)), BackwardOp("bd", 20, (3,)), BackwardOp("bc", 20, (2,)),
         BackwardOp("bb", 20, (1,))),
    )
    slow = LINK.with_link(1e-6)
    assert actions_of(plan_of(profile, 70, Capuchin(free_time="peak"), slow)) == {"a": "recompute"}
    assert actions_of(plan_of(profile, 50, Capuchin(free_time="peak"), slow)) == {
        "a": "recompute", "c": "recompute"
    }


def test_lanes_serve_one_copy_after_the_other():
    # p and q have 20 bytes each, are last read by f2, at 30, and needed by the last backward op.
    # f3 runs to 60, f4 to 70 with 30 of scratch, which is the peak: 70. Each alone is out at 50;
    # with 20 ns of backward before their need, at 90, it must start back at 70. Both: out at 50 and
    # 70, back from 50 and 70: just in time. With 10 ns before their need both are late by 10.
    def net(duration):
        return Profile(
            "lanes", "random",
            (Tensor("x", 0), Tensor("p", 20), Tensor("q", 20), *(Tensor(n, 0) for n in "rst")),
            (
                ForwardOp("fp", 10, (0,), (1,)),
                ForwardOp("fq", 10, (0,), (2,)),
                ForwardOp("fr", 10, (1, 2), (3,)),
                ForwardOp("fs", 30, (3,), (4,)),
                ForwardOp("ft", 10, (4,), (5,), 30),
            ),
            (BackwardOp("bt", duration, ()), BackwardOp("br", 20, (1, 2), 0)),
        )

    free = plan_of(net(20), 40, Capuchin(free_time="lane"))
    assert actions_of(free) == {"p": "swap", "q": "swap"}
    # The second would be late by 10; made again it takes 10: not more, so it is recomputed.
    late = plan_of(net(10), 40, Capuchin(free_time="lane"))
    assert actions_of(late) == {"p": "swap", "q": "recompute"}
    alone = plan_of(net(10), 40, Capuchin(free_time="alone"))
    assert actions_of(alone) == {"p": "swap", "q": "swap"}


def test_outputs_of_one_op_go_together():
    # p and s come from the same op, as a norm and its statistics do. 5 bytes are missing; p alone
    # has 20 and is picked, being first by bytes per ns; s goes with it.
    profile = Profile(
        "twins", "random",
        (Tensor("x", 0), Tensor("p", 20), Tensor("s", 4), Tensor("r", 0), Tensor("t", 0)),
        (
            ForwardOp("fp", 10, (0,), (1, 2)),
            ForwardOp("fr", 10, (1,), (3,)),
            ForwardOp("ft", 10, (3,), (4,), 30),
        ),
        (BackwardOp("bt", 20, ()), BackwardOp("bp", 20, (1, 2))),
    )
    solution = plan_of(profile, 49, Capuchin(free_time="peak"), LINK.with_link(1e-6))
    assert actions_of(solution) == {"p": "recompute", "s": "recompute"}
