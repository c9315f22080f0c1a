import dataclasses

import pytest

from slackswap import Action, Hardware, Plan, Problem, SlackSwapError, load_profile, simulate
from slackswap.analysis.layers import blocks_of, layers_of
from slackswap.cost_model.schedule import backward_schedule, resolve_actions
from slackswap.profiles.catalogue import DEFAULT_HARDWARE, find_hardware
from slackswap.profiles.generators.prices import DEFAULT_PRICES, Prices
from slackswap.profiles.generators.transformer import (
    BERT_LARGE,
    GPT2_XL,
    LLAMA3_8B,
    LLAMA_7B,
    TransformerModel,
    transformer_profile,
)
from slackswap.profiles.overlap import hideable_in_forward

TINY = {
    "bert": TransformerModel("tiny", "bert", 3, 16, 2, 64, 50, positions=32),
    "gpt2": TransformerModel("tiny", "gpt2", 3, 16, 2, 64, 50, positions=32),
    "llama": TransformerModel("tiny", "llama", 3, 16, 4, 48, 50, kv_heads=2, dropout=False),
}


def tiny(family, **options):
    return transformer_profile(TINY[family], batch=2, sequence=8, **options)


@pytest.mark.parametrize(
    ("model", "batch", "sequence", "options", "units"),
    [
        (BERT_LARGE, 32, 512, {}, 34),
        (BERT_LARGE, 32, 512, {"fused": False}, 34),
        (BERT_LARGE, 32, 512, {"attention": "eager"}, 74),
        (GPT2_XL, 8, 1024, {}, 34),
        (GPT2_XL, 8, 1024, {"attention": "eager"}, 114),
        (GPT2_XL, 8, 1024, {"fused": False}, 58),
        (GPT2_XL, 8, 1024, {"attention": "eager", "fused": False}, 138),
        (LLAMA_7B, 4, 2048, {}, 37.5),
        (LLAMA_7B, 4, 2048, {"fused": False}, 45.5),
        # fp32 softmax and its bf16 copy: 6 bytes for each of heads x sequence / hidden = 16.
        (LLAMA_7B, 4, 2048, {"attention": "eager"}, 37.5 + 96),
        (LLAMA3_8B, 1, 4096, {"fused": False}, 52),
        # Without norms as written (8) and copies of shared keys and values (3).
        (LLAMA3_8B, 1, 4096, {}, 41),
    ],
)
def test_saved_bytes_of_a_block_are_those_of_the_published_formula(
    model, batch, sequence, options, units
):
    profile = transformer_profile(model, batch=batch, sequence=sequence, **options)
    tokens = batch * sequence
    # Kept for every token beside the activations: mean and inverse deviation of each of the two
    # norms (an RMS norm has no mean), and attention's log-sum-exp in one kernel.
    beside = 2 * 4 * (1 if model.family == "llama" else 2)
    beside += 4 * model.heads if options.get("attention") != "eager" else 0
    blocks = hideable_in_forward(profile, DEFAULT_HARDWARE, blocks_only=True)
    assert blocks.saved_bytes == model.layers * tokens * (units * model.hidden + beside)


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (BERT_LARGE, 335_174_458),
        (GPT2_XL, 1_557_611_200),
        (LLAMA_7B, 6_738_415_616),
        (LLAMA3_8B, 8_030_261_248),
    ],
)
def test_parameters_are_the_published_ones(model, parameters):
    assert model.parameters == parameters


def tensors_read_by(profile, name):
    op = next(op for op in (*profile.forward, *profile.backward) if op.name == name)
    return {profile.tensors[index].name for index in op.reads}


def test_backward_ops_read_exactly_what_they_need():
    profile = tiny("bert")
    needs = {
        "head.loss.bwd": {"head.log_softmax", "head.labels"},
        "layer2.norm2.bwd": {"layer2.residual2", "layer2.norm2.statistics"},
        "layer2.dropout2.bwd": {"layer2.dropout2.mask"},
        "layer2.fc2.bwd": {"layer2.gelu"},
        "layer2.gelu.bwd": {"layer2.fc1"},
        "layer2.fc1.bwd": {"layer2.norm1"},
        "layer2.projection.bwd": {"layer2.attention"},
        "layer2.attention.bwd": {
            "layer2.q", "layer2.k", "layer2.v", "layer2.attention", "layer2.attention.lse"
        },
        "layer2.v.bwd": {"layer1.norm2"},
        "layer2.norm1.accumulate": set(),
        "embedding.tokens.bwd": {"embedding.tokens.ids"},
    }
    assert {name: tensors_read_by(profile, name) for name in needs} == needs
    # Neither a mask nor a residual sum has an op of its own in backward.
    names = {op.name for op in profile.backward}
    assert not {"layer2.dropout1.mask.bwd", "layer2.residual1.bwd"} & names


def test_eager_attention_saves_softmax_mask_and_dropped_weights():
    profile = tiny("gpt2", attention="eager")
    assert tensors_read_by(profile, "layer1.attention.softmax.bwd") == {"layer1.attention.softmax"}
    assert tensors_read_by(profile, "layer1.attention.dropout.bwd") == {
        "layer1.attention.dropout.mask"
    }
    assert tensors_read_by(profile, "layer1.attention.context.bwd") == {
        "layer1.attention.dropout", "layer1.qkv"
    }
    assert tensors_read_by(profile, "layer1.attention.scores.bwd") == {"layer1.qkv"}


def closure(profile, *recomputed):
    """Names of the forward ops that run again when these tensors are recomputed."""
    plan = Plan(actions=dict.fromkeys(recomputed, Action.RECOMPUTE))
    steps = backward_schedule(profile, resolve_actions(profile, plan)).steps
    return [profile.forward[step.forward].name for step in steps if step.forward is not None]


def test_residual_sum_drags_its_projection_dropout_and_mask_along():
    assert closure(tiny("bert"), "layer2.residual1", "layer2.dropout1.mask") == [
        "layer2.projection", "layer2.dropout1.mask", "layer2.dropout1", "layer2.residual1"
    ]


def test_mask_alone_costs_its_random_number_op_only():
    assert closure(tiny("bert"), "layer2.dropout1.mask") == ["layer2.dropout1.mask"]


def test_residual_stream_as_written_reaches_back_to_the_embedding():
    # Only fp32 copies of it are saved, so no stored tensor stands in the way.
    profile = tiny("llama", fused=False)
    deep = closure(profile, "layer3.norm1.upcast")
    assert deep[0] == "embedding.tokens"
    assert deep[-1] == "layer3.norm1.upcast"
    assert closure(tiny("llama"), "layer2.residual2") == ["layer2.down", "layer2.residual2"]


@pytest.mark.parametrize("family", TINY)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("with_head", [True, False])
def test_every_variant_is_a_sound_profile(family, attention, fused, with_head):
    prices = Prices(with_head=with_head)
    profile = tiny(family, attention=attention, fused=fused, prices=prices)
    graph = profile.graph
    assert all(op.layer is not None and op.kind for op in (*profile.forward, *profile.backward))
    assert len({op.name for op in profile.forward}) == len(profile.forward)
    assert len({op.name for op in profile.backward}) == len(profile.backward)
    assert (graph.forward_ns > 0).all()
    assert (graph.backward_ns > 0).all()
    layers_found = layers_of(profile)
    assert [layers_found[n].number for n in blocks_of(profile)] == [1, 2, 3]
    layers = [op.layer for op in profile.forward]
    assert layers == sorted(layers)
    # Nothing is computed for nothing: what an op writes is read somewhere, the result aside.
    read = {index for op in (*profile.forward, *profile.backward) for index in op.reads}
    (result,) = (t.name for index, t in enumerate(profile.tensors) if index not in read)
    assert result.startswith("head.loss" if with_head else "layer3.")
    problem = Problem(profile, DEFAULT_HARDWARE)
    assert simulate(problem, Plan(actions={})).iteration_ns == profile.duration_ns


def test_blocks_alone_are_the_same_blocks():
    whole, blocks = tiny("gpt2"), tiny("gpt2", prices=Prices(with_head=False))

    def inside(profile):
        return [
            (op.name, op.duration_ns, op.workspace) for op in profile.forward
            if op.name.startswith("layer")
        ]

    assert inside(blocks) == inside(whole)
    assert {op.layer for op in blocks.forward} == {1, 2, 3}
    durations = {op.name: op.duration_ns for op in whole.backward}
    assert all(durations[op.name] == op.duration_ns for op in blocks.backward
               if op.name.startswith("layer"))


def test_logits_and_loss_are_in_fp32():
    profile = tiny("llama")
    sizes = {tensor.name: tensor.nbytes for tensor in profile.tensors}
    assert sizes["head.logits"] == 2 * 16 * 50
    assert sizes["head.log_softmax"] == 4 * 16 * 50
    saved = {profile.tensors[i].name for i in profile.graph.is_saved.nonzero()[0]}
    assert "head.log_softmax" in saved
    assert not {"head.logits", "head.logits.fp32"} & saved
    # While log-softmax is differentiated its result's and its input's gradient are alive.
    op = next(op for op in profile.backward if op.name == "head.log_softmax.bwd")
    assert (op.carried, op.workspace) == (4 * 16 * 50, 2 * 4 * 16 * 50)


def test_gradient_of_the_residual_stream_is_carried_through_a_block():
    profile = tiny("gpt2")
    stream = 2 * 2 * 8 * 16
    op = next(op for op in profile.backward if op.name == "layer2.fc1.bwd")
    # Alive on entry: the stream's gradient and the gradient of fc1's result, four times as wide.
    assert op.carried == stream + 4 * stream
    assert op.workspace == op.carried + stream


def test_grouped_heads_shrink_keys_and_values():
    profile = tiny("llama")
    sizes = {tensor.name: tensor.nbytes for tensor in profile.tensors}
    assert 2 * sizes["layer1.k.rotary"] == 2 * sizes["layer1.v"] == sizes["layer1.q.rotary"]
    repeated = tiny("llama", fused=False)
    sizes = {tensor.name: tensor.nbytes for tensor in repeated.tensors}
    assert sizes["layer1.k.repeat"] == sizes["layer1.q.rotary"]


def test_faster_hardware_is_faster_and_prices_matter():
    slow = load_profile("bert-large").duration_ns
    h100 = find_hardware("h100-sxm")
    fast = transformer_profile(BERT_LARGE, batch=32, sequence=512, hardware=h100).duration_ns
    assert slow / 4 < fast < slow / 1.5
    low = dataclasses.replace(DEFAULT_PRICES, gemm_efficiency=0.55)
    assert transformer_profile(
        BERT_LARGE, batch=32, sequence=512, prices=low
    ).duration_ns > slow


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "positive"),
        ({"sequence": 64}, "32 positions"),
        ({"attention": "magic"}, "sdpa or eager"),
        ({"hardware": Hardware("bare", 1, 1)}, "flops_per_s"),
    ],
)
def test_impossible_requests_are_refused(change, message):
    with pytest.raises(SlackSwapError, match=message):
        transformer_profile(TINY["bert"], **{"batch": 2, "sequence": 8, **change})


def test_impossible_models_are_refused():
    with pytest.raises(SlackSwapError, match="multiple"):
        TransformerModel("odd", "gpt2", 2, 10, 3, 40, 50)
