"""NeuSight's operator tables: what becomes an op, what is saved, and what is refused."""

import csv
import io
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from public_data import FOLDER, public_file

from slackswap import Plan, Problem, SlackSwapError, load_hardware, load_profile, simulate
from slackswap.analysis.layers import blocks_of, layers_of
from slackswap.errors import InvalidFile
from slackswap.profiles import import_profile
from slackswap.profiles.importers import detect_format
from slackswap.profiles.importers.neusight import neusight_profile
from slackswap.profiles.importers.neusight_ops import NodeSaves, operation_of

FIXTURE = Path(__file__).parent / "fixtures" / "neusight_small.csv"
ROWS = list(csv.reader(io.StringIO(FIXTURE.read_text())))
HEADER = ROWS[0]
SHIPPED = {
    "bert-large-h100": ("H100_80GB_HBM3_bert_large-train-512-8", 0.9243, 1.0562, 0.337),
    "gpt2-large-h100": ("H100_80GB_HBM3_gpt2_large-train-1024-4", 1.0144, 1.0328, 0.774),
    "gpt3-2.7b-h100": ("H100_80GB_HBM3_gpt3_27-train-2048-1", 1.0105, 1.0367, 2.652),
    "bert-large-a100": ("A100_80GB_PCIe_bert_large-train-512-8", 0.6539, 1.0306, 0.337),
    "gpt3-xl-a100": ("A100_80GB_PCIe_gpt3_xl-train-2048-1", 0.982, 0.9899, 2.880),
}
ALL = sorted((FOLDER / "neusight").glob("*.csv"))


def table(changes=(), rows=ROWS):
    """Return the small table as text, some cells changed: (name of the row, column, text)."""
    copy = [list(row) for row in rows]
    for name, column, text in changes:
        row = next(row for row in copy if row[-1] == name)
        row[HEADER.index(column)] = text
    stream = io.StringIO()
    csv.writer(stream).writerows(copy)
    return stream.getvalue()


def convert(*changes, layers=3, rows=ROWS, **options):
    return neusight_profile(table(changes, rows), file="t.csv", name="t", layers=layers, **options)


def reads(profile, name):
    op = next(op for op in profile.backward if op.name == f"{name}.bwd")
    return [profile.tensors[index].name for index in op.reads]


def written(profile, name):
    op = next(op for op in profile.forward if op.name == name)
    return {profile.tensors[index].name: profile.tensors[index].nbytes for index in op.writes}


def test_rows_become_ops_and_the_block_is_laid_out():
    profile = import_profile(FIXTURE)
    block = ["ln", "addmm", "contiguous", "gelu", "drop", "add"]
    assert [op.name for op in profile.forward] == [
        "ones", "emb", *(f"layer{n}.{op}" for n in (1, 2, 3) for op in block), "head",
    ]
    assert [op.layer for op in profile.forward] == [0, 0, *(n for n in (1, 2, 3) for _ in block), 4]
    # Without `ones`, which has no gradient.
    assert [op.name for op in profile.backward] == [
        f"{op.name}.bwd" for op in reversed(profile.forward) if op.name != "ones"
    ]
    assert profile.duration_ns == sum(
        # Rows that are ops, in nanoseconds: addmm is 4000.1 forward, 5000.2 backward.
        (1000, 2000 + 4000, 20_000 + 40_000,
         3 * (1100 + 1500 + 4000 + 5000 + 1300 + 0 + 1400 + 1500 + 1600 + 1700 + 1800 + 1900))
    )


def test_copies_of_the_block_are_chained_through_their_residual_stream():
    profile = import_profile(FIXTURE)
    for number, before in ((1, "emb"), (2, "layer1.add"), (3, "layer2.add")):
        op = next(op for op in profile.forward if op.name == f"layer{number}.add")
        names = [profile.tensors[index].name for index in op.reads]
        assert names == [before, f"layer{number}.drop"]
        assert op.kind == "residual"
    assert profile.tensors[profile.forward[-1].reads[0]].name == "layer3.add"


def test_backward_reads_what_autograd_saves():
    profile = import_profile(FIXTURE)
    assert reads(profile, "emb") == ["ids"]
    assert reads(profile, "layer2.ln") == ["layer1.add", "layer2.ln.statistics"]
    assert reads(profile, "layer2.addmm") == ["layer2.ln"]  # through the view; weights are static
    assert reads(profile, "layer2.contiguous") == []
    assert reads(profile, "layer2.gelu") == ["layer2.contiguous"]  # the second makes no copy
    assert reads(profile, "layer2.drop") == ["layer2.drop.mask"]
    assert reads(profile, "layer2.add") == []
    assert reads(profile, "head") == ["layer3.add"]
    # 8 rows of 8 numbers: two fp32 statistics a row, one byte of mask a number.
    assert written(profile, "layer2.ln") == {"layer2.ln": 256, "layer2.ln.statistics": 64}
    assert written(profile, "layer2.drop") == {"layer2.drop": 256, "layer2.drop.mask": 64}


def test_static_memory_counts_weights_by_their_shapes():
    # 100 tokens of width 8; norm 16, weight 64, bias 8 in each of three blocks; the head shares
    # the embedding's table.
    parameters = 800 + 3 * (16 + 64 + 8)
    profile = import_profile(FIXTURE)
    assert profile.provenance["parameters"] == parameters
    assert profile.static_bytes == parameters * 16  # weight, gradient, two moments in fp32
    assert convert(optimizer="sgd").static_bytes == parameters * 8
    # Frozen: neither gradients nor state; its input is needed no longer.
    frozen = convert(("addmm", "acc_latency", "0.0"))
    assert frozen.static_bytes == (parameters - 3 * 72) * 16 + 3 * 72 * 4
    assert reads(frozen, "layer2.addmm") == []


def test_the_measured_step_beside_the_table_is_a_check():
    provenance = import_profile(FIXTURE).provenance
    # Forward: 1000 + 2000 + 3 x 11200 + 20000 = 56600 of 100000 ns; backward 4000 + 3 x 11600 +
    # 40000 = 78800 of 200000.
    assert provenance["measured_step"] == {
        "forward_ns": 100_000, "backward_ns": 200_000,
        "predicted_over_measured": {"forward": 0.566, "backward": 0.394},
    }
    assert "0.566 of the measured forward and 0.394 of the measured backward" in provenance["times"]
    assert "measured_step" not in convert().provenance


@pytest.mark.parametrize(
    ("device", "model", "hardware"),
    [
        ("NVIDIA_H100_80GB_HBM3", "gpt2_large", "h100-sxm"),
        ("NVIDIA_A100-PCIE-40GB", "opt_13", "a100-40gb"),
        ("Tesla_V100-PCIE-32GB", "bert_large", "v100"),
        ("AMD_Instinct_MI250", "llama", "AMD_Instinct_MI250"),
        ("Nobody_9000", "net", "Nobody_9000"),
    ],
)
@pytest.mark.parametrize("place", ["{device}_{model}-train-512-8", "{device}/{model}-train-512-8"])
def test_device_and_model_are_read_from_the_name(tmp_path, device, model, hardware, place):
    path = tmp_path / (place.format(device=device, model=model) + ".csv")
    path.parent.mkdir(exist_ok=True)
    path.write_text(FIXTURE.read_text())
    path.with_suffix(".json").write_text('{"num_layer": 2}')
    provenance = import_profile(path).provenance
    assert (provenance["device_name"], provenance["model"]) == (device, model)
    assert (provenance["hardware"], provenance["layers"]) == (hardware, 2)
    assert (provenance["batch"], provenance["sequence"]) == (2, 4)


def test_a_table_of_the_whole_model_is_laid_out_once():
    profile = convert(layers=0)
    assert len(profile.forward) == 9
    assert [op.layer for op in profile.forward] == [0, 0, 1, 1, 1, 1, 1, 1, 2]


def test_results_in_a_tuple_are_one_op(tmp_path):
    stack = "{'nn_module_stack': OrderedDict([('h.0', <class 'm.Block'>)])}"
    extra = [
        ["call_function", "<built-in method topk of type>", "{add: None}", "(add, 2)", "{}", stack,
         "[[2, 4, 8]]", "[True]", "0.001", "0.002", "0.0", "(1,)", "", "topk"],
        ["call_function", "<built-in function getitem>", "{topk: None}", "(topk, 0)", "{}", stack,
         "[[1]]", "[True]", "0.0065", "0.0", "0.0", "(2, 4, 2)", "torch.float32", "values"],
        ["call_function", "<built-in function getitem>", "{topk: None}", "(topk, 1)", "{}", stack,
         "[[1]]", "[True]", "0.0065", "0.0", "0.0", "(2, 4, 2)", "torch.int64", "indices"],
        ["call_function", "<built-in method chunk of type>", "{values: None}", "(values, 2)", "{}",
         stack, "[[2, 4, 2]]", "[True]", "0.0065", "0.0", "0.0", "(1,)", "", "chunk"],
        ["call_function", "<built-in function getitem>", "{chunk: None}", "(chunk, 0)", "{}", stack,
         "[[1]]", "[True]", "0.0065", "0.0", "0.0", "(2, 4, 1)", "torch.float32", "half"],
        ["call_function", "<built-in function mystery>", "{half: None, indices: None}",
         "(half, indices)", "{}", stack, "[[2, 4, 1], [2, 4, 2]]", "[True, True]", "0.001", "0.001",
         "0.0", "(2, 4, 8)", "torch.float32", "odd"],
    ]
    head = [cell.replace("{add: None}", "{odd: None}").replace("(add,)", "(odd,)")
            for cell in ROWS[-2]]
    profile = convert(rows=[*ROWS[:-2], *extra, head, ROWS[-1]])
    assert written(profile, "layer1.topk") == {"layer1.values": 64, "layer1.indices": 128}
    assert reads(profile, "layer1.topk") == ["layer1.indices"]
    assert reads(profile, "layer1.odd") == ["layer1.values", "layer1.indices", "layer1.odd"]
    assert any("mystery" in text for text in profile.provenance["assumptions"])


@pytest.mark.parametrize(
    ("target", "kwargs", "dtype", "expected"),
    [  # product with itself, with a number, with a constant tensor; in place; a cast that stays
        ("<built-in function mul>|again, again", "{}", "torch.float32", ["layer1.contiguous"]),
        ("<built-in function mul>|again, 0.5", "{}", "torch.float32", []),
        ("<built-in function truediv>|again, 8.0", "{}", "torch.float32", []),
        ("<built-in function truediv>|0.5, again", "{}", "torch.float32", ["layer1.contiguous"]),
        ("<built-in method tanh of type>|again", "{}", "torch.float32", ["layer1.gelu"]),
        ("<built-in function neg>|again", "{}", "torch.float32", []),
    ],
)
def test_products_save_a_factor_whose_partner_has_a_gradient(target, kwargs, dtype, expected):
    target, _, arguments = target.partition("|")
    profile = convert(("gelu", "target", target), ("gelu", "_args", f"({arguments},)"),
                      ("gelu", "_kwargs", kwargs), ("gelu", "dtype", dtype))
    assert reads(profile, "layer1.gelu") == expected


def test_a_dropout_without_backward_time_is_off():
    profile = convert(("h_0_drop", "bw_latency", "0.0"))
    assert "layer1.drop" not in {op.name for op in profile.forward}
    assert reads(profile, "head") == ["layer3.add"]


BAD = [
    (("head", "fw_latency", "abc"), "line 18, column fw_latency", "abc"),
    (("head", "fw_latency", "-1.0"), "line 18, column fw_latency", "below zero"),
    (("head", "acc_latency", "nan"), "line 18, column acc_latency", "nan"),
    (("head", "bw_latency", "inf"), "line 18, column bw_latency", "inf"),
    (("head", "bw_latency", "1e14"), "line 18, column bw_latency", "beyond any step"),
    (("gelu", "_input_nodes", "{nobody: None}"), "line 14, column _args", "nobody"),
    (("gelu", "_input_nodes", "again"), "line 14, column _input_nodes", "list nodes"),
    (("gelu", "_args", "(None,)"), "line 14, column _args", "again"),
    (("gelu", "output_shape", "(8, -8)"), "line 14, column output_shape", "no shape"),
    (("gelu", "output_shape", "8x8"), "line 14, column output_shape", "no shape"),
    (("gelu", "output_shape", "(9, 8)"), "line 15, column input_shapes", "are not the shapes"),
    (("gelu", "input_shapes", "[[8, 9]]"), "line 14, column input_shapes", "are not the shapes"),
    (("gelu", "input_shapes", "[]"), "line 14, column input_shapes", "are not the shapes"),
    (("gelu", "input_contiguous", "[]"), "line 14, column input_contiguous", "truth value"),
    (("gelu", "input_contiguous", "[yes]"), "line 14, column input_contiguous", "truth value"),
    (("gelu", "dtype", "torch.float12"), "line 14, column dtype", "float12"),
    (("gelu", "op", "call"), "line 14, column op", "no kind of node"),
    (("gelu", "target", ""), "line 14, column target", "empty"),
    (("gelu", "Name", "again"), "line 14, column Name", "twice, first on line 13"),
    (("gelu", "Name", "a b"), "line 14, column Name", "not a name"),
]


@pytest.mark.parametrize(("change", "where", "what"), BAD)
def test_malformed_cells_are_refused_with_line_and_column(change, where, what):
    with pytest.raises(InvalidFile) as caught:
        convert(change)
    assert f"t.csv, {where}" in str(caught.value)
    assert what in str(caught.value)


def test_tables_that_are_no_training_step_are_refused():
    inference = [[*row[:9], "0", "0", *row[11:]] for row in ROWS[1:]]
    with pytest.raises(InvalidFile, match=r"line 2, column bw_latency.*inference"):
        convert(rows=[HEADER, *inference])
    with pytest.raises(InvalidFile, match=r"line 13, column _input_nodes.*no row before it"):
        convert(rows=[row for row in ROWS if row[-1] != "again"])
    with pytest.raises(InvalidFile, match="no node"):
        convert(rows=[HEADER])
    with pytest.raises(InvalidFile, match="column 'acc_latency' is absent"):
        convert(rows=[row[:10] + row[11:] for row in ROWS])
    with pytest.raises(InvalidFile, match=r"line 3.*has 13 cells"):
        convert(rows=[*ROWS[:2], ROWS[2][:13], *ROWS[3:]])
    plain = [[cell.replace("h.0", "h") for cell in row] for row in ROWS]
    with pytest.raises(InvalidFile, match="no block can occur 3 times"):
        convert(rows=plain)
    assert len(convert(rows=plain, layers=1).forward) == 9
    two = [[cell.replace("h.0", "h.1") for cell in row] if row[-1] == "add" else row
           for row in ROWS]
    with pytest.raises(InvalidFile, match="2 blocks of one list, for 3 layers"):
        convert(rows=two)
    with pytest.raises(InvalidFile, match=r"column _input_nodes.*cannot be chained"):
        convert(("emb", "bw_latency", "0.0"), ("emb", "acc_latency", "0.0"))


@pytest.mark.parametrize(
    ("document", "what"),
    [("{", "json"), ("[1]", "no JSON object"), ('{"num_layer": -1}', "num_layer is -1"),
     ('{"fw_latency": 3}', "num_layer is None"), ('{"num_layer": true}', "num_layer is True"),
     ('{"num_layer": 2, "fw_latency": "x"}', "fw_latency is")],
)
def test_what_stands_beside_a_table_is_checked(tmp_path, document, what):
    path = tmp_path / "t.csv"
    path.write_text(FIXTURE.read_text())
    path.with_suffix(".json").write_text(document)
    with pytest.raises(InvalidFile, match=what) as caught:
        import_profile(path)
    assert "t.json" in str(caught.value)


def test_the_number_of_layers_must_be_known(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(FIXTURE.read_text())
    with pytest.raises(SlackSwapError, match="number of layers is not known"):
        import_profile(path)
    assert import_profile(path, layers=2).provenance["layers"] == 2
    for wrong in (-1, True, 1.5, 10**6):
        with pytest.raises(SlackSwapError, match="layers is"):
            import_profile(path, layers=wrong)
    with pytest.raises(SlackSwapError, match="optimizer"):
        import_profile(path, layers=2, optimizer="best")
    with pytest.raises(InvalidFile, match=r"Import the \.csv"):
        import_profile(FIXTURE.with_suffix(".json"))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_cell_may_be_spoilt(data):
    row = data.draw(st.integers(1, len(ROWS) - 1))
    column = data.draw(st.sampled_from(HEADER))
    text = data.draw(st.text(max_size=12) | st.sampled_from(
        [cell for other in ROWS[1:] for cell in other]
    ))
    try:
        profile = convert((ROWS[row][-1], column, text))
    except SlackSwapError:
        return
    simulate(Problem(profile, load_hardware("a100-80gb")), Plan({}))


def test_operations_that_are_not_known_save_all():
    assert operation_of("mystery").saves is NodeSaves.ALL
    assert operation_of("mystery").guessed
    for name, saves in (("linear", NodeSaves.FACTORS), ("layernorm", NodeSaves.STATISTICS),
                        ("rmsnorm", NodeSaves.STATISTICS), ("log_softmax", NodeSaves.RESULT),
                        ("silu", NodeSaves.INPUTS), ("conv2d", NodeSaves.FACTORS)):
        assert operation_of(name).saves is saves


def test_the_format_is_recognised():
    assert detect_format(FIXTURE.read_text()).name == "neusight"


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_profiles_hold_the_measured_ratios(name):
    _, forward, backward, billions = SHIPPED[name]
    profile = load_profile(name)
    notes = profile.provenance
    assert notes["measured_step"]["predicted_over_measured"] == {
        "forward": forward, "backward": backward,
    }
    assert notes["parameters"] / 1e9 == pytest.approx(billions, abs=0.001)
    assert (notes["license"], "NeuSight" in notes["origin"]) == ("MIT", True)
    layers = layers_of(profile)
    assert [layers[n].number for n in blocks_of(profile, layers)] == list(
        range(1, notes["layers"] + 1)
    )


def test_a_bert_block_saves_what_the_published_formula_says():
    # sbh (34 + 5as/h) bytes in fp16 (Korthikanti 2022): 16 numbers a token and channel and two
    # masks, and for each score two numbers and a mask. In fp32 sbh (66 + 9as/h).
    profile = load_profile("bert-large-h100")
    saved = {index for op in profile.backward for index in op.reads}
    total = sum(profile.tensors[index].nbytes for op in profile.forward if op.layer == 7
                for index in op.writes if index in saved)
    s, b, h, a = 512, 8, 1024, 16
    statistics = 2 * (2 * 4 * s * b)
    assert total == 66 * s * b * h + 9 * a * s * s * b + statistics


@pytest.mark.parametrize("name", SHIPPED)
def test_public_tables_give_the_shipped_profiles(name):
    path = public_file(f"neusight/NVIDIA_{SHIPPED[name][0]}.csv")
    imported, shipped = import_profile(path, name=name), load_profile(name)
    assert (imported.tensors, imported.forward, imported.backward, imported.static_bytes) == (
        shipped.tensors, shipped.forward, shipped.backward, shipped.static_bytes
    )
    assert imported.provenance.items() <= shipped.provenance.items()


@pytest.mark.parametrize("path", ALL or [None], ids=lambda path: path.stem if path else "absent")
def test_times_are_those_of_the_rows_in_the_file(path):
    if path is None:
        public_file("neusight")
    layers = json.loads(path.with_suffix(".json").read_text())["num_layer"]
    profile = import_profile(path)
    # Views and rows without a tensor are no op; what is left is named by the row.
    views = {"view", "permute", "transpose", "expand", "unsqueeze", "split", "to", "type",
             "<built-in function getitem>"}
    expected: Counter[str] = Counter()
    with path.open(newline="") as stream:
        for row in csv.DictReader(stream):
            if not row["dtype"] or row["target"] in views or not float(row["fw_latency"]):
                continue
            in_block = any(f"'{path}.0'" in row["meta"] for path in
                           ("transformer.h", "bert.encoder.layer"))
            times = layers if in_block else 1
            expected["forward"] += times * round(float(row["fw_latency"]) * 1e6)
            backward = float(row["bw_latency"]) + float(row["acc_latency"])
            expected["backward"] += times * round(backward * 1e6)
    assert expected == {
        "forward": sum(op.duration_ns for op in profile.forward),
        "backward": sum(op.duration_ns for op in profile.backward),
    }
