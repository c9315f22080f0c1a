"""Captures that are refused, each with cause and advice, leave nothing behind."""

from __future__ import annotations

import copy
import random
import warnings

import pytest

torch = pytest.importorskip("torch", reason="capture needs the torch extra")

import torch.nn.functional as F  # noqa: E402, N812
from capture_architectures import torch_encoder  # noqa: E402
from torch import nn  # noqa: E402

from slackswap.errors import SlackSwapError  # noqa: E402
from slackswap.profiles.capture import capture  # noqa: E402
from slackswap.profiles.capture.session import _default_name, traced_step  # noqa: E402


def linear(out=8):
    return nn.Linear(8, out)


def boolean_mask(layer):
    return (lambda x: layer(x)[x > 0].sum()), torch.randn(4, 8)


def eager_experts(layer):
    def loss(x):
        rows = torch.where(layer(x).argmax(-1) == 0)[0]
        return layer(x[rows]).sum()

    return loss, torch.randn(4, 8)


def ctc(layer):
    def loss(x):
        return F.ctc_loss(
            layer(x).log_softmax(-1), torch.ones(2, 3, dtype=torch.long),
            torch.full((2,), 6), torch.full((2,), 3),
        )

    return loss, torch.randn(6, 2, 8)


def packed(layer):
    rnn = nn.LSTM(8, 8)

    def loss(x):
        batch = nn.utils.rnn.pack_padded_sequence(layer(x), torch.tensor([6, 3]))
        return rnn(batch)[0].data.sum()

    return loss, torch.randn(6, 2, 8)


def compiled_model(layer):
    return torch.compile(nn.Sequential(layer, nn.Flatten(0))), torch.randn(1, 8)


def compiled_part(layer):
    model = nn.Sequential(layer, nn.ReLU())
    model[0].compile()
    return (lambda x: model(x).sum()), torch.randn(4, 8)


def compiled_function(layer):
    inner = torch.compile(lambda x: x.exp() * 2)
    return (lambda x: inner(layer(x)).sum()), torch.randn(4, 8)


def flex(layer):
    from torch.nn.attention.flex_attention import flex_attention

    def loss(x):
        y = layer(x).view(1, 1, 128, 8)
        return flex_attention(y, y, y).sum()

    return loss, torch.randn(128, 8)


def nested_input(layer):
    batch = torch.nested.nested_tensor([torch.randn(2, 8), torch.randn(3, 8)])
    return (lambda x: layer(x).to_padded_tensor(0.0).sum()), batch


def nested_inside(layer):
    def loss(a, b):
        batch = torch.nested.as_nested_tensor([a, b], layout=torch.jagged)
        return layer(batch).values().sum()

    return loss, (torch.randn(2, 8), torch.randn(3, 8))


def own_backward(layer):
    def loss(x):
        y = layer(x).sum()
        y.backward()
        return y

    return loss, torch.randn(2, 8)


def grouped_product(layer):
    weight = torch.ones(2, 8, 8)

    def loss(x):
        return torch._grouped_mm(
            layer(x), weight, offs=torch.tensor([2, 4], dtype=torch.int32)).sum()

    return loss, torch.randn(4, 8)


def branch_on_activation(layer):
    return (lambda x: layer(x).sum() * (2 if layer(x).sum() > 0 else 1)), torch.randn(2, 8)


def failing_inside(layer):
    def loss(x):
        layer.stored = layer(x)
        raise KeyError("no such head")

    return loss, torch.randn(2, 8)


REFUSED = {
    boolean_mask: ("depends on the values of a tensor", "use torch.where or masked_fill"),
    eager_experts: ("depends on the values of a tensor", "use the batched experts"),
    ctc: ("the CTC loss reads its lengths", "another loss of the same logits"),
    packed: ("a packed sequence takes its sizes", "the padded batch"),
    compiled_model: ("the model is compiled", "before torch.compile"),
    compiled_part: ("the module '0' is compiled", "before torch.compile"),
    compiled_function: ("a part of the step is compiled", "before torch.compile"),
    flex: ("flex attention", "scaled_dot_product_attention"),
    nested_input: ("nested", "pad the sequences"),
    nested_inside: ("nested", "pad the sequences"),
    own_backward: ("calls backward", "return the loss"),
    grouped_product: ("grouped matrix product", "bfloat16"),
    branch_on_activation: ("depends on the value of a tensor", "leave out .item()"),
    failing_inside: ("KeyError", "by hand"),
}


def good():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1), nn.Flatten(0))
    return (lambda x: model(x).sum()), torch.randn(4, 8)


def states():
    return (
        torch.get_rng_state().tolist(), random.getstate(), torch.get_default_dtype(),
        torch.is_grad_enabled(), torch._C._len_torch_dispatch_stack(),
        torch._C._get_mkldnn_enabled(), torch.get_num_threads(),
        torch.is_autocast_enabled("cpu"), torch._C._len_torch_function_stack(),
    )


@pytest.mark.parametrize("device", ["cpu", "fake"])
@pytest.mark.parametrize("build", REFUSED, ids=lambda build: build.__name__)
def test_a_refusal_names_cause_and_cure_and_leaves_nothing_behind(build, device):
    cause, cure = REFUSED[build]
    layer = linear()  # there before the capture
    attributes, weight = set(vars(layer)), layer.weight.clone()
    before = states()
    with pytest.raises(SlackSwapError) as caught:
        capture(lambda: build(layer), device=device, iterations=1, warmup=0)
    assert cause in str(caught.value)
    assert cure in caught.value.fix
    assert states() == before
    assert set(vars(layer)) - {"_compiled_call_impl"} == attributes - {"_compiled_call_impl"}
    assert type(layer.weight) is nn.Parameter
    assert torch.equal(layer.weight, weight)
    assert layer.weight.grad is None
    layer._compiled_call_impl = None
    assert layer(torch.ones(2, 8)).sum().requires_grad
    with traced_step(good, device=device) as traced:
        assert traced.lowered.saved_bytes == traced.hook_bytes > 0


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = self.a

    def forward(self, x):
        return self.b(self.a(x)).sum()


@pytest.mark.parametrize("device", ["cpu", "fake"])
def test_one_module_under_two_attributes(device):
    model = Tower()
    weight = model.a.weight
    with traced_step(lambda: (model, torch.randn(2, 4)), device=device) as traced:
        # The input and what the second use reads: 2 x 4 numbers each.
        assert traced.lowered.saved_bytes == traced.hook_bytes == 64
        assert len(traced.lowered.joint.gradients) == 2
    assert model.a is model.b
    assert model.a.weight is weight
    model(torch.ones(1, 4)).backward()


def averaged():
    model = nn.Linear(4, 4)
    average = copy.deepcopy(model).requires_grad_(False)
    return (lambda x: (model(x) - average(x)).square().sum()), torch.randn(2, 4)


def test_a_copy_made_in_build():
    for _ in range(2):
        profile = capture(averaged, device="fake", optimizer="none")
        assert profile.static_bytes == 20 * 4 * 3  # two weights, one gradient
    # TransformerEncoder copies its layer.
    with traced_step(torch_encoder, device="fake") as traced:
        assert traced.lowered.saved_bytes == traced.hook_bytes


@pytest.mark.parametrize("device", ["cpu", "fake"])
def test_a_model_that_exists_already_is_left_as_it_was(device):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(0))
    images = torch.randn(2, 1, 5, 5)
    model(images).sum().backward()
    state = copy.deepcopy(model.state_dict())
    gradients = [parameter.grad for parameter in model.parameters()]
    values = [gradient.clone() for gradient in gradients]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # its weights are static, whoever made them
        capture(lambda: ((lambda x: model(x).sum()), images), device=device, iterations=1,
                warmup=0)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in state.items())
    assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
    assert all(torch.equal(g, v) for g, v in zip(gradients, values, strict=True))


def settings():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(3)
    torch._C._set_mkldnn_enabled(False)
    random.random()
    return good()


@pytest.mark.parametrize("device", ["cpu", "fake"])
def test_settings_of_the_build_function_end_with_the_capture(device):
    before = states()
    capture(settings, device=device, iterations=1, warmup=0)
    assert states() == before


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("models:gpt", "models-gpt"),
        ("my_pkg.models:bert_large", "models-bert-large"),
        ("my_step:build", "my-step"),
        ("zoo:Family.build", "zoo"),
        ("good", "good"),
        ("test.<locals>.loss", "loss"),
    ],
)
def test_captures_are_named_by_model(label, name):
    assert _default_name(label) == name
