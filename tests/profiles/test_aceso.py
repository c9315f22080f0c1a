import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from public_data import public_file

from slackswap import Plan, Problem, SlackSwapError, load_hardware, load_profile, simulate
from slackswap.errors import InvalidFile
from slackswap.profiles import import_profile
from slackswap.profiles.importers import FORMATS, detect_format
from slackswap.profiles.importers.aceso import aceso_profile

FIXTURE = Path(__file__).parent / "fixtures" / "aceso_small.csv"
TEXT = FIXTURE.read_text()
MIB = 2**20

# What the fixture was written for.
BATCH, SEQUENCE, HIDDEN, HEADS, FFN, VOCABULARY, PADDED = 2, 512, 512, 8, 2048, 1000, 1024
TOKENS = BATCH * SEQUENCE
ROW = 2 * TOKENS * HIDDEN


@pytest.fixture(scope="module")
def profile():
    return import_profile(FIXTURE, layers=3)


def convert(text, **options):
    return aceso_profile(text, file="t.csv", name="t", **{"layers": 2, **options})


def edited(op, column, value):
    """Return the fixture with one cell changed."""
    lines = TEXT.splitlines()
    header = lines[0].split(",")
    for index, line in enumerate(lines):
        cells = line.split(",")
        if cells[0] == op:
            cells[header.index(column)] = value
            lines[index] = ",".join(cells)
    return "\n".join(lines)


def names(profile, indices):
    return {profile.tensors[index].name for index in indices}


def op(profile, name):
    return next(op for op in (*profile.forward, *profile.backward) if op.name == name)


def test_dimensions_are_worked_out_from_sizes(profile):
    found = {
        key: profile.provenance[key]
        for key in ("batch", "sequence", "hidden", "heads", "ffn", "vocabulary",
                    "padded_vocabulary", "layers", "dtype")
    }
    assert found == {
        "batch": BATCH, "sequence": SEQUENCE, "hidden": HIDDEN, "heads": HEADS, "ffn": FFN,
        "vocabulary": VOCABULARY, "padded_vocabulary": PADDED, "layers": 3, "dtype": "16-bit",
    }
    assert profile.source == "imported"
    assert profile.provenance["format"] == "aceso"


def test_layers_are_repeated(profile):
    assert len(profile.forward) == len(profile.backward) == 1 + 3 * 13 + 2
    assert [op.layer for op in profile.forward] == [0] + [1] * 13 + [2] * 13 + [3] * 13 + [4] * 2


def test_times_are_those_of_the_table(profile):
    assert op(profile, "layer2.1st-layernorm").duration_ns == 5125
    assert op(profile, "layer3.attention-score.bwd").duration_ns == 19_000
    per_layer = [
        op.duration_ns for op in profile.forward if op.layer == 2
    ], [op.duration_ns for op in profile.backward if op.layer == 2]
    assert (sum(per_layer[0]), sum(per_layer[1])) == (161_375, 209_000)
    assert profile.duration_ns == 3 * (161_375 + 209_000) + 30_500 + 90_000 + 34_000 + 100_000


def test_a_layer_saves_what_eager_attention_saves(profile):
    """Korthikanti 2022: sbh (34 + 5as/h) bytes a layer, and here two fp32 statistics a norm."""
    graph = profile.graph
    saved = {
        profile.tensors[i].name: profile.tensors[i].nbytes for i in graph.is_saved.nonzero()[0]
    }
    layer = sum(size for name, size in saved.items() if name.startswith("layer2."))
    assert layer == TOKENS * HIDDEN * 34 + 5 * HEADS * SEQUENCE * TOKENS + 2 * 8 * TOKENS
    assert saved["head.softmax"] == 4 * TOKENS * PADDED
    assert saved["head.targets"] == 9 * TOKENS


def test_backward_reads_follow_the_op_names(profile):
    assert {
        name: names(profile, op(profile, f"layer2.{name}.bwd").reads)
        for name in ("1st-layernorm", "attention-context", "attention-dropout", "MLP-gelu")
    } == {
        "1st-layernorm": {"layer1.residual2", "layer2.norm1.statistics"},
        "attention-context": {"layer2.attention.dropout", "layer2.v"},
        "attention-dropout": {"layer2.attention.dropout.mask"},
        "MLP-gelu": {"layer2.fc1"},
    }
    intermediates = names(profile, profile.graph.is_intermediate.nonzero()[0])
    assert {name for name in intermediates if name.startswith("layer2.")} == {
        "layer2.attention.scores", "layer2.projection", "layer2.fc2",
    }


def test_carried_gradients_are_the_tables_output_sizes(profile):
    """The profiler counts all that passes an op; in backward these are the gradients on their way.

    Biases pass as well, but their gradients are the parameters'.
    """
    outputs = {}
    for line in TEXT.splitlines()[1:]:
        name, *cells = line.split(",")
        outputs[name] = float(cells[3])
    for backward in profile.backward:
        name = re.sub(r"^(layer2|head)\.(.*)\.bwd$", r"\2", backward.name)
        label = next((key for key in (name, f"enc-{name}") if key in outputs), None)
        if label and label != "gpt-post-process":
            assert backward.carried == pytest.approx(outputs[label] * MIB, abs=0.005 * MIB)
    assert op(profile, "head.gpt-post-process.bwd").carried == 4 * TOKENS


def test_reserved_memory_is_workspace(profile):
    assert op(profile, "layer1.attention-score").workspace == 8 * MIB
    assert op(profile, "layer1.attention-dropout.bwd").workspace == 32 * MIB
    # The backward run of the head reserved nothing: it used again what its forward run gave back.
    assert op(profile, "head.gpt-post-process.bwd").workspace == 2 * MIB


def test_activations_beyond_the_name_are_one_more_saved_tensor():
    profile = convert(edited("enc-MLP-gelu", "activations", "6.000"))
    gelu = op(profile, "layer1.MLP-gelu")
    extra = names(profile, gelu.writes) - {"layer1.gelu"}
    assert extra == {"layer1.MLP-gelu.rest"}
    assert profile.tensors[profile.index_of["layer1.MLP-gelu.rest"]].nbytes == 2 * MIB
    assert extra < names(profile, op(profile, "layer1.MLP-gelu.bwd").reads)
    assert any("enc-MLP-gelu left" in line for line in profile.provenance["assumptions"])


def test_one_sequence_needs_no_copy_before_the_final_norm():
    with_copy, without = convert(TEXT), convert(edited("final-layernorm", "activations", "1.008"))
    assert "head.norm.input" in with_copy.index_of
    assert "head.norm.input" not in without.index_of
    assert "layer2.residual2" in names(without, op(without, "head.final-layernorm.bwd").reads)


def test_weight_gradients_are_added_on_request():
    plain, added = convert(TEXT), convert(TEXT, weight_gradients=True)
    extra = {
        a.name: a.duration_ns - p.duration_ns
        for p, a in zip(plain.backward, added.backward, strict=True)
        if a.duration_ns != p.duration_ns
    }
    assert extra == {
        **{
            f"layer{layer}.{name}.bwd": forward
            for layer in (1, 2)
            for name, forward in (("attention-qkv", 20_000), ("attention-dense", 8000),
                                  ("MLP-GEMM-1", 25_000), ("MLP-GEMM-2", 24_000))
        },
        "head.gpt-post-process.bwd": 25_000 * PADDED // FFN,
    }
    assert plain.provenance["assumptions"] != added.provenance["assumptions"]


def test_the_profile_can_be_simulated(profile):
    problem = Problem(profile, load_hardware("a100-40gb"))
    assert simulate(problem, Plan()).iteration_ns == profile.duration_ns


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "line 1", "'op_name' is absent"),
        (TEXT.splitlines()[0], "line 1", "without 'encoder-embedding'"),
        (edited("enc-MLP-gelu", "forward-compute", "fast"), "line 13", "not a decimal number"),
        (edited("enc-MLP-gelu", "forward-compute", "-1"), "line 13", "below zero"),
        (edited("enc-MLP-gelu", "weights", "nan"), "line 13", "not a decimal number"),
        (edited("enc-MLP-gelu", "input_size", "1e99"), "line 13", "beyond any device"),
        (edited("enc-MLP-gelu", "op_name", "enc-MLP-swish"), "line 13", "is not known"),
        (edited("enc-MLP-gelu", "op_name", "enc-MLP-GEMM-1"), "line 13", "first on line 12"),
        (edited("enc-MLP-gelu", "bwd_reserved", "1,2"), "line 13", "10 cells"),
        (edited("enc-MLP-gelu", "bwd_reserved", '"1'), "line 13", "is not CSV"),
        (edited("enc-MLP-gelu", "activations", "3.000"), "line 13", "not 4,194,304"),
        (edited("enc-attention-qkv", "weights", "0.500"), "line 4", "weights are"),
        (edited("enc-attention-dense", "weights", "0"), "line 9", "leave nothing"),
        (edited("enc-attention-softmax", "activations", "7.500"), "line 6", "does not fit"),
        (edited("enc-attention-dropout", "activations", "8.000"), "line 7", "leave nothing"),
        (edited("encoder-embedding", "weights", "0.977"), "line 2", "positions"),
        (edited("enc-attention-softmax", "activations", "8.1"), "line 6", "not 8,388,608"),
        (edited("gpt-post-process", "activations", "40.000"), "line 17", "words"),
    ],
)
def test_malformed_tables_name_line_and_reason(text, where, what):
    with pytest.raises(InvalidFile, match=re.escape(what)) as caught:
        convert(text)
    assert caught.value.where.endswith(where)
    assert caught.value.fix


def test_an_op_that_the_profiler_could_not_run_is_refused():
    failed = edited("enc-MLP-gelu", "forward-compute", "10000000.000").replace(
        "5.004,5.000,0.000,4.000", "5.004,5.000,0.000,10000000.000"
    )
    with pytest.raises(InvalidFile, match="could not run 'enc-MLP-gelu'"):
        convert(failed)


@pytest.mark.parametrize("layers", [0, -1, 10_001, True, 2.0, "12"])
def test_impossible_numbers_of_layers(layers):
    with pytest.raises(SlackSwapError, match="not possible"):
        convert(TEXT, layers=layers)


def test_the_number_of_layers_must_be_known():
    with pytest.raises(SlackSwapError, match="does not say how many") as caught:
        convert(TEXT, layers=None)
    assert "layers=24" in caught.value.fix
    known = aceso_profile(TEXT, file="a/A100-40_OPT-350_mbs2.csv", name="t")
    assert (known.provenance["layers"], known.provenance["hardware"]) == (24, "a100-40gb")


def test_format_is_detected_and_options_are_checked(tmp_path):
    assert detect_format(TEXT) is FORMATS["aceso"]
    packed = tmp_path / "opt-350.csv.gz"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    assert import_profile(packed).name == "opt-350"
    assert import_profile(packed, name="mine").name == "mine"
    with pytest.raises(SlackSwapError, match="no option 'colour'") as caught:
        import_profile(packed, colour="red")
    assert "layers" in caught.value.fix
    with pytest.raises(SlackSwapError, match="'xml' is not known"):
        import_profile(packed, format="xml")
    cut, prose = tmp_path / "cut.csv.gz", tmp_path / "prose.txt"
    cut.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(InvalidFile, match="damaged"):
        import_profile(cut)
    prose.write_text("Once upon a time")
    with pytest.raises(InvalidFile, match="no known format"):
        import_profile(prose)


def test_files_have_a_size_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("slackswap.profiles.importers.reading.MAX_BYTES", 1000)
    with pytest.raises(InvalidFile, match="more than 1,000 bytes"):
        import_profile(FIXTURE, layers=1)


CELL = st.one_of(
    st.sampled_from(["", "0", "0.001", "1e18", "999999999999999999", "-1", "nan", "1.5", "\x00"]),
    st.floats(0, 1e6).map("{:.3f}".format),
    st.text(max_size=5),
)


@given(
    st.lists(st.tuples(st.integers(0, 16), st.integers(0, 8), CELL), min_size=1, max_size=6),
    st.integers(1, 3),
)
@settings(max_examples=200)
def test_changed_cells_give_a_profile_or_a_typed_error(changes, layers):
    rows = [line.split(",") for line in TEXT.splitlines()]
    for row, column, cell in changes:
        rows[row][column] = cell
    try:
        profile = convert("\n".join(",".join(row) for row in rows), layers=layers)
    except SlackSwapError:
        return
    assert len(profile.forward) == 3 + 13 * layers


@given(st.text())
def test_any_text_gives_a_typed_error(text):
    with pytest.raises(SlackSwapError):
        convert(text)


@pytest.mark.parametrize(
    ("file", "name", "expected"),
    [
        ("A100-40_GPT-Neo-2.7_mbs4_tp1.csv", "gpt-neo-2.7b-a100", (32, 2560, 32, 2048, 4, 10240)),
        ("A100-40_OPT-350_mbs4_tp1.csv", "opt-350m-a100", (24, 1024, 16, 2048, 4, 4096)),
    ],
)
def test_public_tables_give_the_shipped_profiles(file, name, expected):
    imported, shipped = import_profile(public_file(f"aceso/{file}"), name=name), load_profile(name)
    provenance = imported.provenance
    assert expected == tuple(
        provenance[key] for key in ("layers", "hidden", "heads", "sequence", "batch", "ffn")
    )
    assert (imported.tensors, imported.forward, imported.backward, imported.static_bytes) == (
        shipped.tensors, shipped.forward, shipped.backward, shipped.static_bytes
    )
    assert provenance.items() <= shipped.provenance.items()


@pytest.mark.parametrize("name", ["gpt-neo-2.7b-a100", "opt-350m-a100"])
def test_shipped_profiles_say_what_is_measured_and_what_inferred(name):
    provenance = load_profile(name).provenance
    assert provenance["license"] == "MIT"
    assert "eth-easl/sailor" in provenance["origin"]
    assert provenance["times"].startswith("measured")
    assert provenance["graph"].startswith("inferred")
    assert provenance["hardware"] == "a100-40gb"
