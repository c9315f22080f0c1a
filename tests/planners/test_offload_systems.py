"""FlashNeuron, SSDTrain, G10, PyTorch's ahead-of-time offload and Megatron's: worked by hand."""

from handmade import LINK, actions_of, chain, plan_of

from slackswap import Problem, Status, solve
from slackswap.planners.aot_offload import AotOffload
from slackswap.planners.flashneuron import FlashNeuron, SSDTrain
from slackswap.planners.g10 import G10
from slackswap.planners.megatron_offload import MegatronOffload

# Six products in a row, 10 ns each, 20 ns backward; all tensors have 10 bytes, the input none: 60
# bytes while f5 runs. t0 .. t4 are saved. A copy takes 10 ns.
NET = chain([10] * 6)


def test_flashneuron_offloads_the_first_tensors():
    # 40 bytes: at f5 two of 60 must be gone, t0 and t1, both out by 30 (t1 is last read at 30).
    solution = plan_of(NET, 40, FlashNeuron())
    assert actions_of(solution) == {"t0": "swap", "t1": "swap"}
    assert not solution.plan.has_order
    assert solution.evaluation.stall_ns == 0
    assert actions_of(plan_of(NET, 60, FlashNeuron())) == {}


def test_ssdtrain_offloads_what_the_forward_pass_hides_whatever_the_budget():
    # A link half as fast: 20 ns a copy. t0 is written at 10: out at 30; t1 at 50; t2 at 70 > 60.
    slow = LINK.with_link(0.5)
    unlimited = plan_of(NET, None, SSDTrain(), slow)
    assert actions_of(unlimited) == {"t0": "swap", "t1": "swap"}
    assert actions_of(plan_of(NET, 50, SSDTrain(), slow)) == actions_of(unlimited)
    # With 30 the plan of FlashNeuron waits; SSDTrain keeps what the rate cannot move.
    assert solve(Problem(NET, slow, 30), SSDTrain()).status is Status.INFEASIBLE
    assert plan_of(NET, 30, FlashNeuron(), slow).evaluation.stall_ns > 0


def test_ssdtrain_stops_at_the_first_that_is_late():
    # t0 has 10 bytes, t1 100: its copy would end at 120. t2 alone would still pass, but comes
    # after.
    net = chain([10, 100, 10, 10, 10, 10])
    assert actions_of(plan_of(net, None, SSDTrain())) == {"t0": "swap"}


def test_g10_takes_the_relief_a_second_of_link_not_the_largest():
    # Tensors of 30, 10, 10, 10, 10 and 10 bytes: 80 in all at f5, the only op above 75. Forward
    # takes 60 ns. t0 (30 bytes, 30 ns a copy) is last read by f1 at 20: out at 50, as f5 begins. t1
    # (10 ns) is last read at 30, out at 40. Each takes 5 bytes off for 10 ns of f5: 50 byte-ns, and
    # 20 ns more of b5 that reads t4 (level 80 there less nothing): t0 costs 60 ns of link, t1 20.
    net = chain([30, 10, 10, 10, 10, 10])
    late = plan_of(net, 75, G10(prefetch="late"))
    assert actions_of(late) == {"t1": "swap"}
    assert late.plan.offload_gates == {"t1": 2}
    # b2 (number 3) reads t1 at 60 + 60 = 120; its copy must start at 110, during number 2.
    assert late.plan.prefetch_gates == {"t1": 2}
    eager = plan_of(net, 75, G10(prefetch="eager"))
    assert eager.plan.actions == late.plan.actions
    assert eager.plan.prefetch_gates == {}


def test_g10_evicts_until_the_pressure_fits():
    # 45 bytes: 60 at f5, 50 at f4: two of 10 must be gone at f5.
    solution = plan_of(NET, 45, G10(prefetch="eager"))
    assert list(actions_of(solution).values()) == ["swap", "swap"]
    assert solution.evaluation.stall_ns == 0


def test_aot_offload_marks_the_largest_or_the_earliest():
    # t1 has 30 bytes, the others 10: 80 bytes at f5.
    net = chain([10, 30, 10, 10, 10, 10])
    largest = plan_of(net, 70, AotOffload(marked="largest"))
    assert actions_of(largest) == {"t1": "swap"}
    # Copied out after f2, its last use. Back in 30 ns before b2 (number 3, from 120 on): 90 is in
    # number 1, which runs from 80 to 100.
    assert largest.plan.offload_gates == {"t1": 2}
    assert largest.plan.prefetch_gates == {"t1": 1}
    earliest = plan_of(net, 70, AotOffload(marked="earliest"))
    assert actions_of(earliest) == {"t0": "swap"}
    assert earliest.plan.offload_gates == {"t0": 1}


def blocks():
    """Four layers of a norm and a product, 10 bytes each, and the loss at the end."""
    return chain(
        [10] * 8, kinds=["norm", "gemm"] * 4, layers=[0, 0, 1, 1, 2, 2, 3, 3],
    )


def test_megatron_offloads_the_inputs_of_modules_in_leading_blocks():
    # f1 of layer 0 reads t0, f3 of layer 1 reads t2, ... : the inputs of products. 80 bytes while
    # f7 runs; with 70 one must be gone: block 0's. It is copied after its module, f1.
    solution = plan_of(blocks(), 70, MegatronOffload(modules="products", recompute=False))
    assert actions_of(solution) == {"t0": "swap"}
    assert solution.plan.offload_gates == {"t0": 1}
    # f3 (of layer 1) runs backward before f1: its backward op b3 is number 4.
    assert solution.plan.prefetch_gates == {"t0": 4}
    two = plan_of(blocks(), 60, MegatronOffload(modules="products", recompute=False))
    assert actions_of(two) == {"t0": "swap", "t2": "swap"}


def test_megatron_recomputes_norms_from_what_enters_them():
    # t0 is made by a norm of the input: recomputed, and so not moved; nothing else of block 0 is
    # an input of its product. Made again before b1 it costs 10 ns.
    solution = plan_of(blocks(), 70, MegatronOffload(modules="products", recompute=True))
    assert actions_of(solution) == {"t0": "recompute"}
    assert solution.evaluation.recompute_ns == 10


def test_modules_without_kinds_or_layers_are_refused():
    solution = solve(Problem(NET, LINK, 40), MegatronOffload())
    assert solution.status is Status.SKIPPED
    assert "layer" in solution.reason
