import pytest

from slackswap import Plan, Problem, SlackSwapError, load_hardware, simulate
from slackswap.profiles.generators.convnet import RESNET50, VGG16, convnet_profile
from slackswap.profiles.generators.prices import Prices
from slackswap.profiles.overlap import hideable_in_forward


def backward_bytes(profile):
    """Bytes that backward reads, the image included."""
    graph = profile.graph
    return int(graph.nbytes[graph.first_backward_read >= 0].sum())


def test_saved_bytes_of_an_image_are_the_published_ones():
    assert backward_bytes(convnet_profile(VGG16, batch=1)) / 1e6 == pytest.approx(61.0, abs=0.05)
    with_indices = convnet_profile(VGG16, batch=1, pool_indices=True)
    assert backward_bytes(with_indices) / 1e6 == pytest.approx(73.2, abs=0.05)
    # 0.2 MB of batch statistics are shared by the batch.
    resnet = convnet_profile(RESNET50, batch=4, pool_indices=True)
    assert backward_bytes(resnet) / 4e6 == pytest.approx(86.0, abs=0.05)


def test_vgg_saves_each_map_once():
    profile = convnet_profile(VGG16, batch=1)
    saved = {profile.tensors[i].name for i in profile.graph.is_saved.nonzero()[0]}
    maps = {f"conv{s}_{i}.conv" for s, n in enumerate((2, 2, 3, 3, 3), 1) for i in range(1, n + 1)}
    assert {name for name in saved if name.startswith("conv")} == maps
    assert {name for name in saved if name.startswith("pool")} == {
        f"pool{stage}.pool" for stage in range(1, 6)
    }


@pytest.mark.parametrize(
    ("model", "gflop", "parameters"),
    [(VGG16, 30.94, 138_357_544), (RESNET50, 8.18, 25_557_032)],
)
def test_work_and_parameters_are_the_published_ones(model, gflop, parameters):
    # At full efficiency on a machine with endless memory bandwidth, 10^9 FLOP/s: time is work.
    from dataclasses import replace

    machine = replace(load_hardware("titan-x"), name="ideal", flops_per_s=10**9,
                      memory_bytes_per_s=2**60)
    ideal = Prices(gemm_efficiency=1, conv_efficiency=1, conv3x3_efficiency=1,
                   memory_efficiency=1, launch_ns=0)
    profile = convnet_profile(model, batch=1, hardware=machine, prices=ideal)
    assert sum(op.duration_ns for op in profile.forward) / 1e9 == pytest.approx(gflop, abs=0.02)
    assert profile.provenance["parameters"] == parameters
    assert profile.static_bytes == 12 * parameters


def test_link_of_a_titan_x_just_hides_vgg():
    profile = convnet_profile(VGG16, batch=16)
    hidden = hideable_in_forward(profile, load_hardware("titan-x"))
    assert hidden.forward_ns / 16e6 == pytest.approx(4.76, abs=0.01)
    assert hidden.fraction == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("model", [VGG16, RESNET50])
def test_profiles_are_sound(model):
    profile = convnet_profile(model, batch=2)
    problem = Problem(profile, load_hardware("titan-x"))
    assert simulate(problem, Plan(actions={})).iteration_ns == profile.duration_ns
    read = {index for op in (*profile.forward, *profile.backward) for index in op.reads}
    unread = [t.name for index, t in enumerate(profile.tensors) if index not in read]
    assert len(unread) == 1
    assert unread[0].endswith("loss")
    assert all(op.layer is not None and op.kind for op in (*profile.forward, *profile.backward))


def test_first_convolution_computes_no_gradient_of_the_image():
    profile = convnet_profile(VGG16, batch=2)
    op = profile.backward[-1]
    assert op.name == "conv1_1.conv.bwd"
    # Beside the gradient on entry only its ReLU's, none for the image.
    assert op.workspace == 2 * op.carried


def test_empty_batch_is_refused():
    with pytest.raises(SlackSwapError, match="positive"):
        convnet_profile(VGG16, batch=0)
