import math
from fractions import Fraction

import pytest

from slackswap import Hardware, SlackSwapError, load_hardware, load_profile
from slackswap.errors import InvalidHardware
from slackswap.problem import Problem
from slackswap.profiles.generators import prices as table
from slackswap.profiles.generators.convnet import RESNET50, VGG16, convnet_profile
from slackswap.profiles.generators.prices import DEFAULT_PRICES, Kernel, Prices, total_flops
from slackswap.profiles.generators.roofline import duration_ns, kernel_ns
from slackswap.profiles.library import find_profile, profile_hardware
from slackswap.profiles.overlap import hideable_fraction

TOY = Hardware("toy", 1, 1, flops_per_s=10**12, memory_bytes_per_s=10**11)
PLAIN = Prices(gemm_efficiency=0.5, memory_efficiency=0.5, launch_ns=7)


@pytest.mark.parametrize(
    ("kernel", "nanoseconds"),
    [
        (Kernel("gemm", 10**6, 0), 2_000),  # 10^6 / (10^12 x 0.5) s
        (Kernel("gemm", 10**6, 10**6), 20_000),  # its traffic takes longer
        (Kernel("memory", 10**6, 10**4), 1_000),  # arithmetic at full rate: as long as...
        (Kernel("memory", 0, 10**6), 20_000),
        (Kernel("memory", 0, 0), 0),
    ],
)
def test_kernel_takes_its_longer_side(kernel, nanoseconds):
    assert kernel_ns(kernel, TOY, PLAIN) == nanoseconds + 7


def test_kernels_of_one_op_run_one_after_the_other():
    kernels = table.stream(10**6, 10**6)
    assert duration_ns(kernels, TOY, PLAIN) == 2 * (20_000 + 7)


def test_hardware_without_rates_cannot_be_priced():
    with pytest.raises(InvalidHardware, match="flops_per_s"):
        kernel_ns(Kernel("memory", 0, 1), Hardware("bare", 1, 1), PLAIN)


@pytest.mark.parametrize(
    "change", [{"gemm_efficiency": 0}, {"memory_efficiency": -0.5}, {"launch_ns": -1},
               {"conv_efficiency": float("nan")}]
)
def test_impossible_rates_are_refused(change):
    with pytest.raises(SlackSwapError):
        Prices(**change)


def test_matrix_product_costs_twice_as_much_backward():
    price = table.gemm(8, 16, 32, 2)
    assert total_flops(price.forward) == 2 * 8 * 16 * 32
    assert total_flops(price.backward) == 2 * total_flops(price.forward)
    assert price.forward[0].nbytes == 2 * (8 * 16 + 16 * 32 + 8 * 32)
    with_bias = table.gemm(8, 16, 32, 2, bias=True)
    assert with_bias.backward[:2] == price.backward
    assert with_bias.backward[2].nbytes == 2 * 8 * 32


def test_attention_skips_half_when_causal_and_needs_five_products_backward():
    both, causal = (
        table.flash_attention(2, 64, 4, 4, 8, 2, causal=causal) for causal in (False, True)
    )
    assert total_flops(both.forward) == 4 * 2 * 4 * 64 * 64 * 8
    assert 2 * total_flops(causal.forward) == total_flops(both.forward)
    assert Fraction(total_flops(both.backward), total_flops(both.forward)) == Fraction(5, 2)
    # fp32 gradient of the query, and a row sum per head.
    assert both.backward_workspace == 4 * 2 * 64 * 4 * 8 + 4 * 2 * 64 * 4


def hideable_shares(efficiency):
    """The smallest and the largest hideable share of the blocks' saved bytes."""
    prices = Prices(gemm_efficiency=efficiency)
    shares = [
        hideable_fraction(
            find_profile(name, prices=prices), profile_hardware(name), blocks_only=True
        )
        for name in ("bert-large", "gpt2-xl", "llama-7b")
    ]
    return min(shares), max(shares)


@pytest.mark.golden
def test_gemm_efficiency_is_the_one_that_fits_the_published_range_best():
    def error(efficiency):
        low, high = hideable_shares(efficiency)
        return math.log(low / 0.11) ** 2 + math.log(high / 0.38) ** 2

    candidates = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75)
    assert min(candidates, key=error) == DEFAULT_PRICES.gemm_efficiency


@pytest.mark.golden
@pytest.mark.parametrize(
    ("model", "forward_ms", "total_ms", "tolerance"),
    [(VGG16, 76.15, 262.42, 0.01), (RESNET50, 56.42, 171.02, 0.05)],
)
def test_convnets_take_their_published_time_on_a_titan_x(model, forward_ms, total_ms, tolerance):
    # cnn-benchmarks, cuDNN 5, 16 images: forward is fitted, the whole step is not.
    profile = convnet_profile(model, batch=16)
    forward = sum(op.duration_ns for op in profile.forward) / 1e6
    assert forward == pytest.approx(forward_ms, rel=0.002)
    assert profile.duration_ns / 1e6 == pytest.approx(total_ms, rel=tolerance)


GOLDEN = {
    # forward ns, backward ns, saved bytes, keep-everything peak
    "bert-large": (76_126_990, 155_681_239, 15_906_766_848, 19_907_739_648),
    "bert-large-eager": (117_028_846, 198_691_447, 31_987_728_384, 35_988_701_184),
    "gpt2-xl": (156_686_814, 314_464_354, 23_148_986_368, 26_442_760_192),
    "llama-7b": (598_980_713, 1_214_286_018, 41_483_796_480, 43_582_128_128),
    "llama3-8b": (707_266_165, 1_445_515_036, 48_396_009_472, 56_803_622_912),
    "vgg16": (300_622_871, 728_396_184, 3_864_913_920, 4_148_953_600),
    "resnet50": (224_245_030, 483_859_940, 5_460_141_568, 5_549_277_184),
}


@pytest.mark.golden
@pytest.mark.parametrize("name", GOLDEN)
def test_price_table_is_frozen(name):
    profile = load_profile(name)
    graph = profile.graph
    assert (
        int(graph.forward_ns.sum()),
        int(graph.backward_ns.sum()),
        int(graph.nbytes[graph.is_saved].sum()),
        Problem(profile, load_hardware("a100-80gb")).keep_all_peak_bytes,
    ) == GOLDEN[name]


@pytest.mark.golden
def test_hideable_shares_of_the_three_models():
    shares = [
        round(
            hideable_fraction(load_profile(name), profile_hardware(name), blocks_only=True), 4
        )
        for name in ("bert-large", "gpt2-xl", "llama-7b")
    ]
    assert shares == [0.1206, 0.1708, 0.3635]
