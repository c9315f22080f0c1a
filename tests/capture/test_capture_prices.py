"""Prices of a fake trace, CUDA's operators on fake tensors, memory that stays."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="capture needs the torch extra")

import capture_nets as nets  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import DataDependentOutputException  # noqa: E402

from slackswap.profiles.capture import capture  # noqa: E402
from slackswap.profiles.capture.cuda_dispatch import cuda_kernels  # noqa: E402
from slackswap.profiles.capture.fake_mode import FollowingFakeMode  # noqa: E402
from slackswap.profiles.capture.fake_price import operator_kernels  # noqa: E402
from slackswap.profiles.capture.session import traced_step  # noqa: E402
from slackswap.profiles.capture.static_memory import static_bytes  # noqa: E402
from slackswap.profiles.catalogue import find_hardware, for_fp32  # noqa: E402
from slackswap.profiles.generators import prices as table  # noqa: E402
from slackswap.profiles.generators.prices import Kernel, Prices, stream  # noqa: E402
from slackswap.profiles.generators.roofline import duration_ns  # noqa: E402
from slackswap.profiles.optimizers import OPTIMIZERS, find_optimizer  # noqa: E402


def kernels(build):
    """Kernels and scratch of every operation, by name."""
    with traced_step(build, device="fake") as traced:
        lowered = traced.lowered
        return {op.name: operator_kernels(op.node) for op in (*lowered.forward, *lowered.backward)}


def attention_step(dtype=torch.bfloat16, causal=True, kv_heads=4, mask=None, head=16):
    layer = nn.Linear(head, head, bias=False).to(dtype)

    def loss(x, y):
        q = layer(x)
        return F.scaled_dot_product_attention(
            q, y, y, attn_mask=mask() if mask else None, is_causal=causal,
            enable_gqa=kv_heads != 4,
        ).float().sum()

    x = torch.randn(2, 4, 32, head, dtype=dtype)
    return loss, (x, torch.randn(2, kv_heads, 32, head, dtype=dtype))


def test_products_cost_their_arithmetic_and_operands():
    found = kernels(lambda: (nn.Sequential(nn.Linear(8, 16), nn.Flatten(0), nn.Linear(96, 1)),
                             torch.randn(6, 8)))
    (kernel,), scratch = found["0/addmm"]
    assert kernel == Kernel("gemm", 2 * 6 * 8 * 16, 4 * (16 + 6 * 8 + 8 * 16 + 6 * 16))
    assert scratch == 0


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_attention_costs_what_the_table_says(kv_heads):
    found = kernels(lambda: attention_step(kv_heads=kv_heads))
    price = table.flash_attention(2, 32, 4, kv_heads, 16, 2, causal=True)
    name = "_scaled_dot_product_flash_attention"
    assert found[name] == (price.forward, price.workspace)
    assert found[f"{name}_backward"] == (price.backward, price.backward_workspace)


def test_attention_over_another_length():
    layer = nn.Linear(16, 16).bfloat16()

    def build():
        q, k = torch.randn(1, 2, 8, 16).bfloat16(), torch.randn(1, 2, 24, 16).bfloat16()
        return (lambda q, k: F.scaled_dot_product_attention(layer(q), k, k).sum()), (q, k)

    (kernel,), _ = kernels(build)["_scaled_dot_product_flash_attention"]
    assert (kernel.rate, kernel.flops) == ("attention", 4 * 2 * 8 * 24 * 16)


def test_convolutions_and_their_gradients():
    found = kernels(nets.convnet)
    (first,), _ = found["conv1/convolution"]
    assert first.rate == "conv3x3"
    assert first.flops == 2 * (4 * 8 * 8) * (8 * 3 * 3 * 3)
    # The images need no gradient: weight and bias only.
    gradients, _ = found["conv1/convolution_backward"]
    assert [kernel.rate for kernel in gradients] == ["conv3x3", "memory"]
    assert gradients[0].flops == int(first.flops * table.CONV_GRADIENT_FACTOR)
    assert [k.rate for k in found["conv2/convolution_backward"][0]] == [
        "conv3x3", "conv3x3", "memory"
    ]
    strided = kernels(nets.skipnet)
    assert strided["down2/convolution"][0][0].rate == "conv"
    # A transposed convolution multiplies once for each pixel that comes in.
    assert strided["up2/convolution"][0][0].flops == 2 * (2 * 4 * 4) * (8 * 8 * 2 * 2)


def test_an_expanded_operand_is_read_once():
    layer = nn.Linear(4, 1, bias=False)
    found = kernels(lambda: (
        lambda x: (layer.weight.expand(8, 4) * x).sum(), torch.randn(8, 4)
    ))
    assert found["mul"][0] == stream(4 * (4 + 8 * 4 + 8 * 4))


def test_single_precision_runs_at_its_own_rate():
    hardware = find_hardware("a100-80gb")

    def build(dtype):
        model = nn.Sequential(nn.Linear(512, 512, bias=False), nn.Flatten(0)).to(dtype)
        return (lambda x: model(x).sum()), torch.randn(2048, 512, dtype=dtype)

    for dtype, device in ((torch.float32, for_fp32(hardware)), (torch.bfloat16, hardware)):
        profile = capture(lambda dtype=dtype: build(dtype), hardware=hardware)
        size = torch.empty(0, dtype=dtype).element_size()
        kernel = Kernel("gemm", 2 * 2048 * 512 * 512,
                        size * (2048 * 512 + 512 * 512 + 2048 * 512))
        assert profile.forward[0].duration_ns == duration_ns([kernel], device, Prices())


def test_an_unknown_operator_is_named_and_not_free():
    with torch.library._scoped_library("slackswap_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        library.impl("twice", torch.empty_like, "Meta")
        layer = nn.Linear(4, 4)

        def loss(x):
            y = layer(x)
            return (y + torch.ops.slackswap_test.twice(y.detach())).sum()

        profile = capture(lambda: (loss, torch.randn(8, 4)))
    assert profile.provenance["unpriced_operators"] == {"twice": 1}
    op = next(op for op in profile.forward if op.kind == "other")
    traffic = stream(2 * 4 * 8 * 4)
    assert op.duration_ns == duration_ns(traffic, find_hardware("a100-80gb"), Prices()) > 0


def test_prices_and_hardware_are_the_callers():
    slow = capture(nets.transformer, prices=Prices(launch_ns=50_000))
    fast = capture(nets.transformer, hardware="h100-sxm")
    assert min(op.duration_ns for op in slow.forward) >= 50_000
    assert fast.duration_ns < slow.duration_ns
    assert (slow.provenance["hardware"], fast.provenance["hardware"]) == (
        "a100-80gb", "h100-sxm"
    )
    assert slow.provenance["prices"]["launch_ns"] == 50_000


def attention_operator(build):
    with traced_step(build, device="fake") as traced:
        return [op.name for op in traced.lowered.forward if op.kind == "attention"] or [
            op.name for op in traced.lowered.forward if "softmax" in op.name
        ]


@pytest.mark.parametrize(
    ("options", "operator"),
    [
        ({}, "_scaled_dot_product_flash_attention"),
        ({"kv_heads": 2}, "_scaled_dot_product_flash_attention"),
        ({"head": 20}, "_scaled_dot_product_flash_attention"),
        ({"dtype": torch.float32}, "_scaled_dot_product_efficient_attention"),
        ({"causal": False, "mask": lambda: torch.ones(32, 32, dtype=torch.bool)},
         "_scaled_dot_product_efficient_attention"),
        ({"dtype": torch.float32, "kv_heads": 2}, "_safe_softmax"),
        ({"head": 272}, "_scaled_dot_product_efficient_attention"),
        ({"dtype": torch.float32, "head": 18}, "_safe_softmax"),
    ],
)
def test_attention_kernels_are_those_of_cuda(options, operator):
    assert attention_operator(lambda: attention_step(**options)) == [operator]


def test_dropout_saves_a_mask_of_a_byte_an_element():
    layer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))

    def saved(device):
        profile = capture(lambda: (lambda x: layer(x).sum(), torch.randn(4, 8)), device=device,
                          iterations=1, warmup=0)
        graph = profile.graph
        return sorted(graph.nbytes[graph.is_saved].tolist())

    # The layer's input is an input; the CPU saves its noise in full.
    assert saved("fake") == [4 * 8]
    assert saved("cpu") == [4 * 8 * 4]


def test_statistics_of_layer_norm_are_single_precision():
    profile = capture(nets.half_precision, device="fake")
    statistics = [t for t in profile.tensors if "native_layer_norm:" in t.name]
    assert {tensor.nbytes for tensor in statistics} == {2 * 16 * 4}


def test_the_scope_ends():
    ones = torch.ones(1000)
    with cuda_kernels():
        pass
    assert set(F.dropout(ones, 0.5).tolist()) == {0.0, 2.0}
    assert torch._C._get_mkldnn_enabled()
    q = torch.randn(1, 1, 4, 8)
    assert F.scaled_dot_product_attention(q, q, q).shape == q.shape


def test_values_made_from_constants_are_known():
    mode = FollowingFakeMode()
    with mode:
        steps = torch.arange(6)
        assert bool((torch.diff(steps) == 1).all())
        assert [rate.item() for rate in torch.linspace(0, 1, 3)] == [0.0, 0.5, 1.0]
        steps[2] = 9
        assert steps.sum().item() == 0 + 1 + 9 + 3 + 4 + 5
        steps.random_(3)
        with pytest.raises(DataDependentOutputException):
            steps.sum().item()
        with pytest.raises(DataDependentOutputException):
            torch.randn(3).sum().item()
        with pytest.raises(DataDependentOutputException):
            torch.empty(3).sum().item()


def test_values_are_followed_on_any_device():
    with FollowingFakeMode():
        steps = torch.arange(6, device="cuda")
        assert steps.device.type == "cuda"
        assert bool((torch.diff(steps) == 1).all())


def test_an_initialisation_that_looks_at_its_values():
    def build():
        layer = nn.Linear(4, 4)
        nn.init.trunc_normal_(layer.weight)
        return (lambda x: layer(x).sum()), torch.randn(2, 4)

    assert capture(build, device="fake").forward[0].kind == "gemm"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sgd", lambda ps: torch.optim.SGD(ps, lr=0.1)),
        ("momentum", lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9)),
        ("adam", lambda ps: torch.optim.Adam(ps)),
        ("adamw", lambda ps: torch.optim.AdamW(ps)),
    ],
)
def test_static_memory_is_what_the_optimizer_holds(name, make, dtype):
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)).to(dtype)
    model[0].bias.requires_grad_(False)
    optimizer = make([p for p in model.parameters() if p.requires_grad])
    model(torch.randn(4, 5, dtype=dtype)).sum().backward()
    optimizer.step()
    held = [*model.parameters(), *model.buffers()]
    held += [p.grad for p in model.parameters() if p.grad is not None]
    held += [
        value for state in optimizer.state.values() for key, value in state.items()
        if torch.is_tensor(value) and key != "step"
    ]
    assert static_bytes(model.parameters(), model.buffers(), find_optimizer(name)) == sum(
        tensor.numel() * tensor.element_size() for tensor in held
    )


def test_mixed_precision_adam_takes_sixteen_bytes_a_parameter():
    parameters = [nn.Parameter(torch.zeros(10, dtype=torch.bfloat16))]
    mixed = static_bytes(parameters, [], OPTIMIZERS["mixed-adam"])
    assert mixed == 10 * table.MIXED_ADAM_BYTES_PER_PARAMETER
    single = static_bytes([nn.Parameter(torch.zeros(10))], [], OPTIMIZERS["mixed-adam"])
    assert single == 10 * (4 + 4 + 4 + 4)
