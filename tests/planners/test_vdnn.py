import pytest
from handmade import actions_of, chain, plan_of

from slackswap import BackwardOp, ForwardOp, Problem, Profile, Status, Tensor, load_profile, solve
from slackswap.planners.vdnn import VDNNAll, VDNNConv, VDNNDyn, VDNNPlusPlus
from slackswap.profiles.library import profile_hardware

# conv, conv, pool, pool, conv, and a dense layer at the end.
NET = chain([8] * 6, kinds=["conv", "conv", "pool", "pool", "conv", "gemm"])


def test_all_swaps_every_input_but_the_last_layers():
    # Layers 1 to 4 read t0 to t3: these leave while their reader runs, that is from the end of
    # the op that wrote them (so without a gate), and compute waits at the reader's end. x is an
    # input, t4 belongs to the last layer. Backward ops are b5, b4, .. b0, numbers 0 to 5: while
    # layer 5 runs backward the map of layer 4 comes back, and so on; the last fetch is that of
    # layer 1, during layer 2.
    plan = plan_of(NET, None, VDNNAll()).plan
    assert plan.actions == dict.fromkeys(("t0", "t1", "t2", "t3"), "swap")
    assert plan.offload_gates == {}
    assert plan.offload_barriers == (1, 2, 3, 4)
    assert plan.prefetch_gates == {"t3": 0, "t2": 1, "t1": 2, "t0": 3}
    assert plan.prefetch_barriers == (0, 1, 2, 3)


def test_conv_swaps_inputs_of_convolutions_and_searches_past_pooling():
    # Convolutions 1 and 4 read t0 and t3. During backward of layer 5 layer 4 is found at once.
    # During layer 4 the search passes both pooling layers, whose maps stay, and finds layer 1.
    plan = plan_of(NET, None, VDNNConv()).plan
    assert plan.actions == {"t0": "swap", "t3": "swap"}
    assert plan.offload_barriers == (1, 4)
    assert plan.prefetch_gates == {"t3": 0, "t0": 1}
    assert plan.prefetch_barriers == (0, 1)


def test_the_search_ends_at_a_convolution_whose_map_stays():
    # A fork: convolution 2 reads the input, not t0, so nothing of its own moves. During backward
    # of layer 3 the search would pass it if it were a pooling layer; as a CONV it ends there. So
    # t0, the map of layer 1, is fetched one layer later, during backward of layer 2 (number 2).
    tensors = (Tensor("x", 8), *(Tensor(f"t{i}", 8) for i in range(5)))
    reads = ((0,), (1,), (0,), (2, 3), (4,))  # f3 joins t1 and t2

    def net(kind):
        kinds = ("conv", "conv", kind, "pool", "conv")
        return Profile(
            "fork", "random", tensors,
            tuple(
                ForwardOp(f"f{i}", 10, reads[i], (i + 1,), kind=kinds[i]) for i in range(5)
            ),
            tuple(
                BackwardOp(f"b{i}", 20, () if i == 3 else reads[i], kind=kinds[i])
                for i in reversed(range(5))
            ),
        )

    # Layer 3 saves nothing, so t1 and t2 are no saved tensors; only t0 moves.
    convolution = plan_of(net("conv"), None, VDNNConv(granularity="op")).plan
    pooling = plan_of(net("pool"), None, VDNNConv(granularity="op")).plan
    assert convolution.actions == pooling.actions == {"t0": "swap"}
    # Backward ops b4, b3, b2, b1, b0 are numbers 0 to 4. b3 reads nothing: it counts to layer 4.
    assert pooling.prefetch_gates == {"t0": 0}
    assert convolution.prefetch_gates == {"t0": 2}


def test_a_map_with_several_readers_leaves_with_the_last():
    # x -> f0 -> t0; f1 and f2 read t0, f3 reads their sum; t0's copy starts when f2 does: gate 1.
    profile = Profile(
        "two-readers", "random",
        (Tensor("x", 0), *(Tensor(f"t{i}", 8) for i in range(4))),
        (
            ForwardOp("f0", 10, (0,), (1,), kind="conv"),
            ForwardOp("f1", 10, (1,), (2,), kind="conv"),
            ForwardOp("f2", 10, (1,), (3,), kind="conv"),
            ForwardOp("f3", 10, (2, 3), (4,), kind="residual"),
        ),
        (BackwardOp("b3", 20), BackwardOp("b2", 20, (1,)), BackwardOp("b1", 20, (1,))),
    )
    plan = plan_of(profile, None, VDNNAll(granularity="op")).plan
    assert plan.actions == {"t0": "swap"}
    assert plan.offload_gates == {"t0": 1}
    assert plan.offload_barriers == (2,)


def test_dyn_takes_the_first_policy_that_fits():
    # Sizes 8, pooling results 2. Keeping all: 8 + 8 + 2 + 2 + 8 and the last result 8: 36. With
    # convolutions' inputs t0 (8) and t3 (2) away there are 8 + 2 + 8 + 8 = 26 while f5 runs, and
    # at most 8 + 8 + 8 while f2 ... f4 do. With t1 and t2 away too, 8 + 8 = 16.
    profile = chain([8, 8, 2, 2, 8, 8], kinds=["conv", "conv", "pool", "pool", "conv", "gemm"])
    found = {
        budget: plan_of(profile, budget, VDNNDyn()).statistics["policy"] for budget in (36, 26, 18)
    }
    assert found == {36: "none", 26: "conv", 18: "all"}
    assert solve(Problem(profile, profile_hardware("vgg16"), 15), VDNNDyn()).status is (
        Status.INFEASIBLE
    )


def test_plus_plus_is_vdnn_without_the_waits():
    vdnn = plan_of(NET, None, VDNNAll()).plan
    plus = plan_of(NET, None, VDNNPlusPlus(policy="all")).plan
    assert (plus.actions, plus.prefetch_gates) == (vdnn.actions, vdnn.prefetch_gates)
    assert plus.offload_barriers == plus.prefetch_barriers == ()


def test_a_layer_of_several_ops_waits_at_its_end():
    # Two layers of two ops: the maps inside the first leave as soon as written, and compute waits
    # at the end of f1, which reads t0. t1 is read by the last layer, and stays.
    profile = chain([8] * 4, kinds="conv", layers=[0, 0, 1, 1])
    plan = plan_of(profile, None, VDNNAll()).plan
    assert plan.actions == {"t0": "swap"}
    assert plan.offload_barriers == (1,)
    assert plan.prefetch_gates == {"t0": 0}  # during backward of the layer before
    assert plan.prefetch_barriers == (1,)
    by_op = plan_of(profile, None, VDNNAll(granularity="op")).plan
    assert set(by_op.actions) == {"t0", "t1"}


def test_waiting_layers_stall_vgg_though_the_link_suffices():
    # On vDNN's own hardware: taking all maps out keeps the link of a Titan X busy for as long as
    # the forward pass takes (to within 1%), so that it could all be hidden. Yet waiting for it
    # layer by layer costs about a quarter of the time, since early layers have large maps and late
    # ones much work. Without the waits it costs less.
    profile, hardware = load_profile("vgg16"), profile_hardware("vgg16")
    problem = Problem(profile, hardware)
    vdnn = solve(problem, VDNNAll(granularity="layer")).evaluation
    plus = solve(problem, VDNNPlusPlus(policy="all", granularity="layer")).evaluation
    forward_ns = sum(op.duration_ns for op in profile.forward)
    assert vdnn.d2h_busy_ns == pytest.approx(forward_ns, rel=0.01)
    assert vdnn.stall_ns / profile.duration_ns == pytest.approx(0.26, abs=0.03)
    assert plus.offloaded_bytes == vdnn.offloaded_bytes
    assert 0 < plus.stall_ns < 0.75 * vdnn.stall_ns


def test_attention_and_products_stand_for_convolutions_in_transformers():
    profile = load_profile("bert-large")
    solution = plan_of(profile, None, VDNNConv(), profile_hardware("bert-large"))
    moved = actions_of(solution)
    assert {"layer1.attention", "layer1.q", "layer1.gelu"} <= set(moved)
    # GELU's and the norms' inputs are read by no product, and masks neither.
    assert not {"layer1.fc1", "layer1.residual1", "layer1.dropout1.mask"} & set(moved)
