import re
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from public_data import public_file

from slackswap import Plan, Problem, SlackSwapError, load_hardware, simulate
from slackswap.errors import InvalidFile
from slackswap.profiles import import_profile
from slackswap.profiles.importers import FORMATS, detect_format
from slackswap.profiles.importers.gradients import GradientLevel, gradient_levels
from slackswap.profiles.importers.pipedream import pipedream_profile
from slackswap.profiles.importers.pipedream_layers import Saves, layer_kind

FIXTURE = Path(__file__).parent / "fixtures" / "small.graph.txt"
TEXT = FIXTURE.read_text()


@pytest.fixture(scope="module")
def profile():
    return import_profile(FIXTURE)


def convert(text, **options):
    return pipedream_profile(text, file="g.txt", name="g", **options)


def node(name, layer="Conv2d(1, 1)", nbytes=8, forward=1, backward=2):
    return (
        f"{name} -- {layer} -- forward_compute_time={forward}, backward_compute_time={backward}, "
        f"activation_size={nbytes}, parameter_size=0"
    )


def chain(*layers):
    """Return a graph of an input and these layers, one after the other."""
    nodes = [node("node0", "Input"), *(node(f"node{i}", x) for i, x in enumerate(layers, start=1))]
    return "\n".join([*nodes, *(f"\tnode{i} -- node{i + 1}" for i in range(len(layers)))])


def names(profile, indices):
    return [profile.tensors[index].name for index in indices]


def forward(profile):
    return {
        op.name: (op.kind, op.duration_ns, names(profile, op.reads), names(profile, op.writes))
        for op in profile.forward
    }


def test_layers_run_in_numbered_order_and_in_place_ones_share_an_op(profile):
    assert forward(profile) == {
        "node2+node3": ("conv", 2_500_000, ["node1"], ["node2"]),
        "node4": ("conv", 1_000_000, ["node2"], ["node4"]),
        "node5+node10+node11": ("residual", 500_000, ["node4", "node2"], ["node5"]),
        "node12": ("pool", 750_000, ["node5"], ["node12", "node12.indices"]),
        "node15": ("dropout", 100_000, ["node12"], ["node15", "node15.mask"]),
        "node16": ("other", 200_000, ["node15"], ["node16"]),
    }


def test_backward_reads_by_kind(profile):
    assert [(op.name, op.duration_ns, names(profile, op.reads)) for op in profile.backward] == [
        ("node16.bwd", 300_000, ["node15", "node16"]),
        ("node15.bwd", 50_000, ["node15.mask"]),
        ("node12.bwd", 750_000, ["node5", "node12.indices"]),
        ("node11.bwd", 250_000, ["node5"]),
        ("node10.bwd", 0, []),
        ("node5.bwd", 500_000, ["node4"]),
        ("node4.bwd", 2_000_000, ["node2"]),
        ("node3.bwd", 250_000, ["node2"]),
        ("node2.bwd", 4_000_000, ["node1"]),
    ]


def test_sizes(profile):
    assert {tensor.name: tensor.nbytes for tensor in profile.tensors} == {
        "node1": 1000, "node2": 4000, "node4": 4000, "node5": 4000, "node12": 1000,
        "node12.indices": 2000, "node15": 1000, "node15.mask": 250, "node16": 800,
    }
    assert profile.static_bytes == 3 * (160 + 64 + 32)
    assert profile.source == "imported"


def test_gradients_on_their_way_are_workspace(profile):
    levels = {op.name: (op.carried, op.workspace) for op in profile.backward}
    assert levels == {
        "node16.bwd": (800, 1800),
        "node15.bwd": (1000, 2000),
        "node12.bwd": (1000, 5000),
        "node11.bwd": (4000, 8000),
        "node10.bwd": (4000, 12_000),  # both summands receive a gradient
        "node5.bwd": (8000, 12_000),
        "node4.bwd": (8000, 12_000),  # the second gradient of node3, then added to the first
        "node3.bwd": (4000, 8000),
        "node2.bwd": (4000, 4000),  # the network's input receives none
    }


def test_options_change_masks_and_indices():
    half = convert(TEXT, element_bytes=2, pool_indices=False)
    assert half.tensors[half.index_of["node15.mask"]].nbytes == 500
    assert "node12.indices" not in half.index_of
    with pytest.raises(SlackSwapError, match="3 bytes is not possible"):
        convert(TEXT, element_bytes=3)


def test_provenance_tells_the_assumptions(profile):
    text = "\n".join(profile.provenance["assumptions"])
    for part in ("3 in-place layers", "9.5 ms of the input", "Gizmo", "no workspace", "int64"):
        assert part in text


def test_a_result_that_others_read_is_not_overwritten():
    text = "\n".join([
        chain("Conv2d(1, 1)", "ReLU(inplace)", "Conv2d(1, 1)"), node("node4", "Add"),
        "\tnode1 -- node4", "\tnode3 -- node4",
    ])
    profile = convert(text)
    assert forward(profile)["node2"][2:] == (["node1"], ["node2"])
    assert any("not to be in place" in line for line in profile.provenance["assumptions"])


def test_views_pass_through_in_chains_and_sizes_vanish():
    text = chain("Conv2d(1, 1)", "View(-1)", "Flatten", "Linear(4, 4)").replace(
        "View(-1) -- forward_compute_time=1", "View(-1) -- forward_compute_time=0"
    ).replace("Flatten -- forward_compute_time=1", "Flatten -- forward_compute_time=0")
    assert list(forward(convert(text))) == ["node1", "node4"]
    assert forward(convert(text))["node4"][2] == ["node1"]
    # A view that takes time copies.
    assert list(forward(convert(chain("Conv2d(1, 1)", "View(-1)")))) == ["node1", "node2"]


TUPLE = """\
node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=0.0, parameter_size=0.000
node2 -- LSTM(8, 16) -- forward_compute_time=1.500, backward_compute_time=2.500, activation_size=[4096.0; 512.0; 512.0], parameter_size=576.000
node3 -- __getitem__(0) -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=4096.0, parameter_size=0.000
node4 -- Dropout(p=0.2) -- forward_compute_time=0.100, backward_compute_time=0.100, activation_size=4096.0, parameter_size=0.000
node5 -- Linear(in_features=16, out_features=4, bias=True) -- forward_compute_time=0.100, backward_compute_time=0.100, activation_size=1024.0, parameter_size=64.000
\tnode1 -- node2
\tnode2 -- node3
\tnode3 -- node4
\tnode4 -- node5
"""  # noqa: E501  (a line of the format)


def test_an_item_of_a_tuple_is_no_memory_of_its_own():
    profile = convert(TUPLE)
    # The item is the first result of the LSTM. The other two, its last states, are never read.
    assert {tensor.name: tensor.nbytes for tensor in profile.tensors} == {
        "node1": 0, "node2:0": 4096, "node2:1": 512, "node2:2": 512,
        "node4": 4096, "node4.mask": 1024, "node5": 1024,
    }
    assert forward(profile)["node4"][2] == ["node2:0"]
    assert [(op.name, names(profile, op.reads)) for op in profile.backward] == [
        ("node5.bwd", ["node4"]),
        ("node4.bwd", ["node4.mask"]),
        ("node2.bwd", ["node1", "node2:0", "node2:1", "node2:2"]),
    ]
    # Saved: 5120 of the LSTM, whose kind is not known, the mask 1024, the linear layer's input
    # 4096: 10,240. The linear layer's result 1024 is not saved: 11,264 at the end of forward.
    # node5.bwd: 10,240 saved, the result's gradient 1024, and it makes that of node4: 15,360.
    # node4.bwd: 5120 and the mask saved, 4096 carried, and it makes the item's 4096: 14,336.
    # node2.bwd: 5120 saved and the item's gradient 4096: 9216.
    forward_levels, backward_levels = profile.graph.keep_all_levels
    assert forward_levels[-1] == 11_264
    assert list(backward_levels) == [15_360, 14_336, 9_216]
    assert profile.keep_all_peak_bytes == 15_360


def with_items(sizes, *items):
    """Return a tuple of these sizes, and a layer for each item, read by a linear layer."""
    lines = [node("node0", "Input"), node("node1", "LSTM(1, 1)", sizes, 0.0, 0.0),
             "\tnode0 -- node1"]
    for i, (source, index, size, *time) in enumerate(items, start=2):
        lines += [node(f"node{i}", f"__getitem__({index})", size, *(time or (0, 0))),
                  f"\t{source} -- node{i}"]
    last = len(items) + 2
    lines += [node(f"node{last}", "Linear(1, 1)"), f"\tnode{last - 1} -- node{last}"]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("sizes", "items", "read"),
    [
        ("[9; 5; 5]", [("node1", 0, 9)], ["node1:0"]),
        ("[5; 5; 5]", [("node1", 1, 5)], ["node1:1"]),
        ("[5; 5; 5]", [("node1", -1, 5)], ["node1:2"]),
        # (output, (hidden, cell)): the file lists the sizes flat.
        ("[9; 5; 5]", [("node1", 1, "[5; 5]")], ["node1:1", "node1:2"]),
        ("[9; 5; 5]", [("node1", 1, "[5; 5]"), ("node2", 1, 5)], ["node1:2"]),
        # ((first, second), output): item 1 is the third size.
        ("[5; 5; 9]", [("node1", 1, 9)], ["node1:2"]),
        # A part of a tensor is a view of it.
        ("9", [("node1", "slice(0, 1)", 4)], ["node1"]),
        ("[9; 5]", [("node1", 0, 7)], ["node1:0", "node1:1"]),
    ],
)
def test_items_are_found_by_number_and_size(sizes, items, read):
    profile = convert(with_items(sizes, *items))
    last = f"node{len(items) + 2}"
    assert list(forward(profile)) == ["node1", last]
    assert forward(profile)[last][2] == read
    unlike = any("that of no result" in line for line in profile.provenance["assumptions"])
    assert unlike == (items[0][2] == 7)


def test_the_time_of_taking_an_item_is_not_lost():
    profile = convert(with_items("[9; 5]", ("node1", 0, 9, 2, 3)))
    assert forward(profile)["node1"][1] == 2_000_000
    assert profile.backward[-1].duration_ns == 3_000_000
    # Of a tensor: gathering rows takes time and makes a copy, whose backward reads nothing.
    profile = convert(with_items("9", ("node1", "tensor", 4, 2, 3)))
    assert forward(profile)["node2"] == ("view", 2_000_000, ["node1"], ["node2"])
    assert [op.reads for op in profile.backward if op.name == "node2.bwd"] == [()]


def test_a_branch_the_loss_does_not_see_gets_no_gradient():
    ops = [(["x"], ["a"]), (["a"], ["unused"]), (["a"], ["b"])]
    sizes = {"x": 1, "a": 10, "unused": 100, "b": 1000}
    assert gradient_levels(ops, sizes, without_gradient={"x"}, roots=("b",)) == [
        GradientLevel(10, 10), GradientLevel(10, 10), GradientLevel(1000, 1010)
    ]


@pytest.mark.parametrize(
    ("description", "kind", "saves"),
    [
        ("Conv2d(3, 64, kernel_size=(3, 3))", "conv", Saves.INPUTS),
        ("Linear(in_features=4, out_features=2)", "gemm", Saves.INPUTS),
        ("BatchNorm2d(64)", "norm", Saves.INPUTS),
        ("LayerNorm((8,))", "norm", Saves.INPUTS),
        ("ReLU(inplace)", "elementwise", Saves.RESULT),
        ("LeakyReLU(0.1)", "elementwise", Saves.INPUTS),
        ("LogSoftmax()", "softmax", Saves.RESULT),
        ("AdaptiveAvgPool2d(1)", "pool", Saves.INPUTS),
        ("Concat(2)", "elementwise", Saves.NOTHING),
        ("LSTM(1024, 1024)", "other", Saves.ALL),
    ],
)
def test_kinds_of_layers(description, kind, saves):
    found = layer_kind(description)
    assert (found.kind, found.saves, found.guessed) == (kind, saves, kind == "other")


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "line 1", "no node"),
        ("hello", "line 1", "neither a node nor an edge"),
        ("node1 -- node2", "line 1", "neither a node nor an edge"),
        (f"{node('a')}\n\ta -- b", "line 2", "no node 'b'"),
        (f"{node('a')}\n{node('a')}", "line 2", "first on line 1"),
        (f"{node('a')}\n\ta -- a", "line 1", "waits for itself"),
        ("a -- Conv -- activation_size=1", "line 1", "no figures"),
        ("a -- Conv -- forward_compute_time=1", "line 1", "backward_compute_time is absent"),
        (node("a", forward="soon"), "line 1", "not a decimal number"),
        (node("a", backward=-2), "line 1", "below zero"),
        (node("a", nbytes="[1; x]"), "line 1", "not a decimal number"),
        (node("a", nbytes="nan"), "line 1", "not a decimal number"),
        (node("a", forward="1e17"), "line 1", "beyond any device"),
    ],
)
def test_malformed_graphs_name_line_and_reason(text, where, what):
    with pytest.raises(InvalidFile, match=re.escape(what)) as caught:
        convert(text)
    assert caught.value.where.endswith(where)
    assert caught.value.fix


def test_format_is_detected():
    assert detect_format(TEXT) is FORMATS["pipedream"]


LAYERS = st.sampled_from(
    ["Input", "Conv2d(1, 1)", "ReLU(inplace)", "Add(inplace)", "MaxPool2d(2)", "Dropout(p=0.5)",
     "View(-1)", "__getitem__(0)", "__getitem__(1)", "Size(0)", "BatchNorm2d(3)",
     "Gizmo -- 3", "Concat"]
)


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 8))
    size = st.sampled_from([0, 8, 24, "[8; 8]", "8.5"])
    nodes = [
        node(f"node{i}", draw(LAYERS), draw(size), draw(st.sampled_from([0, 1, 0.125])))
        for i in range(count)
    ]
    ends = st.integers(0, count - 1)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=12))
    return "\n".join(
        [*draw(st.permutations(nodes)),
         *(f"\tnode{min(a, b)} -- node{max(a, b)}" for a, b in edges if a != b)]
    )


@given(graphs())
@settings(max_examples=200)
def test_acyclic_graphs_give_profiles_that_can_be_simulated(text):
    profile = convert(text)
    problem = Problem(profile, load_hardware("v100"))
    evaluation = simulate(problem, Plan(), engine="reference")
    assert evaluation.iteration_ns == profile.duration_ns


@given(st.lists(st.tuples(st.integers(0, len(TEXT) - 1), st.text(max_size=3)), max_size=5))
def test_damaged_graphs_give_a_profile_or_a_typed_error(changes):
    text = TEXT
    for at, replacement in changes:
        text = text[:at] + replacement + text[at + 1 :]
    try:
        profile = convert(text)
    except SlackSwapError:
        return
    assert profile.source == "imported"


@given(st.text())
def test_any_text_gives_a_typed_error(text):
    with pytest.raises(SlackSwapError):
        convert(text)


@pytest.mark.parametrize(
    ("model", "ops", "parameters", "saved_mb", "saved_without_indices_mb"),
    # 128 images. Parameters of the published models; saved bytes an image as PyTorch saves them.
    [("vgg16", 23, 138_357_544, 73.2, 61.0), ("resnet50", 109, 25_557_032, 85.9, 84.3)],
)
def test_public_graphs(model, ops, parameters, saved_mb, saved_without_indices_mb):
    path = public_file(f"pipedream/{model}.graph.txt")
    for indices, expected in ((True, saved_mb), (False, saved_without_indices_mb)):
        profile = import_profile(path, pool_indices=indices)
        graph = profile.graph
        needed = graph.input_bytes + int(graph.nbytes[graph.is_saved].sum())
        assert needed / 128 / 1e6 == pytest.approx(expected, abs=0.05)
        assert profile.static_bytes == 12 * parameters
        assert len(profile.forward) == ops
