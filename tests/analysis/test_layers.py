"""One definition of layers and blocks, pinned on every profile of the library."""

from __future__ import annotations

import pytest

from slackswap import BackwardOp, ForwardOp, Problem, Profile, Tensor, load_hardware, load_profile
from slackswap.analysis.layers import blocks_of, last_of_layers, layer_numbers, layers_of
from slackswap.planners.block_checkpointing import BlockCheckpointing
from slackswap.profiles import profile_names
from slackswap.profiles.overlap import hideable_in_forward
from slackswap.solving import solve

#: Transformer layers by the model's configuration.
LAYERS = {"bert-large": 24, "gpt2-xl": 48, "llama-7b": 32, "llama3-8b": 32, "vit-l": 24,
          "gpt-neo-2.7b": 32, "opt-350m": 24, "gpt-small": 4, "gpt2-large": 36, "gpt3-2.7b": 32,
          "gpt3-xl": 24}

#: Layer numbers of the first and the last block of the convolutional networks.
#: vgg16: convolutions (0, 1, 3, ...) are the commonest; the last is layer 16, the pool after it
#: and the fully connected layers are outside, the pools between are inside.
#: resnet50: the plain bottleneck is the commonest (12 of 16). The first unit (layer 1) has a
#: projection and stands before the first plain one; the projections of later stages lie between.
#: resnet50-hf, resnet18-cpu: numbered by stage. No two stages of ResNet-50 are alike, so each of
#: the five numbers is a block; in ResNet-18 the stages 1 and 2 are.
CONVOLUTIONAL = {"vgg16": (17, 0, 16), "resnet50": (15, 2, 16), "resnet50-hf": (5, 0, 4),
                 "resnet18-cpu": (2, 1, 2)}


def chain(kinds: str, layers: list[int | None]) -> Profile:
    """One op a letter, each writing one tensor that backward reads."""
    count = len(kinds)
    return Profile(
        "chain", "random", tuple(Tensor(f"t{i}", 10) for i in range(count)),
        tuple(
            ForwardOp(f"f{i}", 1, (i - 1,) if i else (), (i,), layer=layers[i], kind=kinds[i])
            for i in range(count)
        ),
        tuple(BackwardOp(f"b{i}", 1, (i,), layer=layers[i]) for i in reversed(range(count))),
    )


@pytest.mark.parametrize("name", profile_names())
def test_blocks_of_every_shipped_profile(name):
    profile = load_profile(name)
    layers = layers_of(profile)
    blocks = blocks_of(profile, layers)
    numbers = [layers[n].number for n in blocks]
    if name in CONVOLUTIONAL:
        count, first, last = CONVOLUTIONAL[name]
        assert (len(blocks), numbers[0], numbers[-1]) == (count, first, last)
    else:
        family = next(prefix for prefix in LAYERS if name.startswith(prefix))
        assert len(blocks) == LAYERS[family]
    assert list(blocks) == list(range(blocks[0], blocks[-1] + 1))


@pytest.mark.parametrize("name", profile_names())
def test_all_users_divide_a_network_alike(name):
    """Block checkpointing reports as many blocks, and the overlap counts as many bytes."""
    profile, hardware = load_profile(name), load_hardware("a100-80gb")
    layers = layers_of(profile)
    inside = [op for n in blocks_of(profile, layers) for op in layers[n].forward]
    counted = hideable_in_forward(profile, hardware, blocks_only=True)
    assert counted.forward_ns == sum(profile.forward[op].duration_ns for op in inside)
    solution = solve(Problem(profile, hardware, 1.0), BlockCheckpointing())
    assert solution.statistics["of"] == len(blocks_of(profile))


def test_unnumbered_ops_at_the_ends_belong_to_no_block():
    profile = chain("exyxyxyh", [None, 0, 0, 1, None, 2, 2, None])
    assert layer_numbers(profile.forward) == [None, 0, 0, 1, 1, 2, 2, None]
    layers = layers_of(profile)
    assert [layer.number for layer in layers] == [None, 0, 1, 2, None]
    assert [list(layer.forward) for layer in layers] == [[0], [1, 2], [3, 4], [5, 6], [7]]
    assert blocks_of(profile) == (1, 2, 3)
    assert last_of_layers(profile.forward) == (0, 2, 4, 6, 7)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("abbbac", (1, 2, 3)),
        ("abab", (0, 1, 2)),  # a tie of equal length: the first found; b at 1 lies between
        ("abcde", (0, 1, 2, 3, 4)),  # nothing repeats
        ("", ()),
    ],
)
def test_blocks_of_small_networks(kinds, expected):
    assert blocks_of(chain(kinds, list(range(len(kinds))))) == expected


def test_a_tie_goes_to_the_longer_sequence():
    # Layers: c | ab | ab | c: both sequences occur twice, the longer one wins.
    assert blocks_of(chain("cababc", [0, 1, 1, 2, 2, 3])) == (1, 2)


def test_a_network_without_layer_numbers_has_no_blocks():
    profile = chain("abab", [None] * 4)
    assert blocks_of(profile) == ()
    assert [list(layer.forward) for layer in layers_of(profile)] == [[0], [1], [2], [3]]
