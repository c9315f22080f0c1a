import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from slackswap import Action, Profile, SlackSwapError
from slackswap.errors import InvalidFile, InvalidProfile
from slackswap.profiles import from_frame, import_profile
from slackswap.profiles.importers import FORMATS, detect_format
from slackswap.profiles.importers.table import table_profile

FIXTURE = Path(__file__).parent / "fixtures" / "table_small.csv"
TEXT = FIXTURE.read_text()

TWO_LAYERS = {
    "schema": "slackswap.profile/1", "name": "table", "source": "imported",
    "provenance": {"format": "table"}, "static_bytes": 0,
    "tensors": [{"name": "x", "nbytes": 8}, {"name": "h", "nbytes": 16},
                {"name": "y", "nbytes": 8}],
    "forward": [
        {"name": "fc1", "layer": 0, "duration_ns": 5000, "reads": [0], "writes": [1],
         "kind": "gemm"},
        {"name": "fc2", "layer": 1, "duration_ns": 5500, "reads": [1], "writes": [2],
         "kind": "gemm"},
    ],
    "backward": [
        {"name": "fc2.bwd", "layer": 1, "duration_ns": 10_000, "reads": [1, 2], "workspace": 12,
         "carried": 8, "kind": "gemm"},
        {"name": "fc1.bwd", "layer": 0, "duration_ns": 10_000, "reads": [0], "kind": "gemm"},
    ],
}


@pytest.fixture
def ops():
    return pd.DataFrame({
        "name": ["fc1", "fc2"], "layer": [0, 1], "kind": "gemm", "forward_us": [5, 5.5],
        "backward_us": [10, 10], "reads": ["x:8", "h"], "writes": ["h:16", "y:8"],
        "saved": ["x", "h y"], "backward_workspace": [np.nan, 12], "carried": [None, 8],
    })


@pytest.fixture
def backward():
    return pd.DataFrame({
        "name": ["fc2.bwd", "fc1.bwd"], "layer": [1, 0], "kind": "gemm",
        "duration_ms": [0.01, 0.01], "reads": [["h", "y"], ["x"]], "workspace": [12, 0],
        "carried": [8, 0],
    })


def convert(text, **options):
    return table_profile(text, file="t.csv", name="t", **options)


def test_one_frame_gives_forward_and_backward(ops):
    assert from_frame(ops) == Profile.from_dict(TWO_LAYERS)


def test_backward_and_sizes_may_have_frames_of_their_own(ops, backward):
    forward = ops[["name", "layer", "kind", "forward_us"]].assign(
        reads=[["x"], ["h"]], writes=["h", "y"]
    )
    sizes = {"x": 8, "h": 16, "y": 8}
    assert from_frame(forward, backward, sizes) == Profile.from_dict(TWO_LAYERS)
    table = pd.DataFrame({"name": ["y", "h", "x"], "nbytes": [8, 16, 8],
                          "allowed": ["keep swap", None, None]})
    profile = from_frame(forward, backward, table, name="mine", source="measured", static_bytes=7)
    assert profile.tensors[2].allowed == (Action.KEEP, Action.SWAP)
    assert (profile.name, profile.source, profile.static_bytes) == ("mine", "measured", 7)


def test_a_csv_file_gives_the_same(tmp_path, ops):
    path = tmp_path / "two.csv"
    ops.to_csv(path, index=False)
    profile = import_profile(path, name="table")
    expected = from_frame(ops)
    assert profile.tensors == expected.tensors
    assert (profile.forward, profile.backward) == (expected.forward, expected.backward)


def test_the_fixture():
    profile = import_profile(FIXTURE)
    assert detect_format(TEXT) is FORMATS["table"]
    assert [tensor.name for tensor in profile.tensors] == ["ids", "x", "n", "s", "y", "l"]
    assert [(op.duration_ns, op.recomputable) for op in profile.forward] == [
        (1500, True), (250, True), (4000, False), (1000, True)
    ]
    assert [(op.workspace, op.carried) for op in profile.backward] == [
        (260, 4), (320, 256), (128, 64), (64, 64)
    ]


@pytest.mark.parametrize("unit", ["ns", "us", "ms"])
def test_units(unit):
    profile = convert(f"name,forward_{unit},reads,writes\nop,0.5,,y:1")
    assert profile.forward[0].duration_ns == {"ns": 0, "us": 500, "ms": 500_000}[unit]


def test_an_op_without_a_backward_duration_has_no_backward_op():
    profile = convert("name,forward_ns,backward_ns,reads,writes\na,1,,,y:1\nb,1,5,y,z:1")
    assert [op.name for op in profile.backward] == ["b.bwd"]


def test_names_may_hold_colons():
    profile = convert("name,forward_ns,reads,writes\na,1,,aten::add:16\nb,1,aten::add,q:1")
    assert profile.tensors[0].name == "aten::add"


@pytest.mark.parametrize(
    ("column", "values", "what"),
    [
        ("forward_us", [1, -1], "outside 0"),
        ("forward_us", [1, float("inf")], "not finite"),
        ("forward_us", [1, np.nan], "is empty"),
        ("forward_us", [1, "1 ms"], "not a decimal number"),
        ("forward_us", [1, True], "not a number"),
        ("forward_us", [1, 1e30], "outside 0"),
        ("layer", [0, 0.5], "not whole"),
        ("name", ["a", " "], "no name"),
        ("reads", ["x:8", 3], "not a list of names"),
        ("reads", ["x:8", [3]], "not a list of names"),
        ("reads", ["x:8", "q"], "'q' has no size"),
        ("reads", ["x:8", "h:17"], "17 bytes here and 16 elsewhere"),
        ("reads", ["x:8", f"h:{9**30}"], "too large"),
        ("writes", ["h:16", "h y:8"], "already writes"),
        ("backward_us", [10, None], "no backward duration"),
        ("carried", [0, 13], "exceeds workspace"),
        ("colour", ["red", "green"], "'colour' is not known"),
        ("forward_ns", [1, 1], "2 columns of forward durations"),
    ],
)
def test_frames_name_what_is_wrong(ops, column, values, what):
    with pytest.raises(InvalidProfile, match=re.escape(what)) as caught:
        from_frame(ops.assign(**{column: values}))
    assert caught.value.fix


def test_frames_name_the_row(ops):
    with pytest.raises(InvalidProfile) as caught:
        from_frame(ops.assign(forward_us=[1, "x"], name=["a", "b"]).set_axis(["one", "two"]))
    assert caught.value.where == "forward row two"


def test_tensor_tables_are_checked(ops):
    for sizes, what in (
        ({"x": 8, "q": 1}, "'q' is in no op"),
        ({"x": 9}, "8 bytes here and 9 elsewhere"),
        (pd.DataFrame({"name": ["x", "x"], "nbytes": [8, 8]}), "stands there twice"),
        (pd.DataFrame({"name": ["x"], "nbytes": [None]}), "needs a name and its bytes"),
        (pd.DataFrame({"name": ["x"]}), "needs a name and its bytes"),
        (pd.DataFrame({"name": ["x"], "nbytes": [8], "allowed": ["burn"]}), "burn"),
    ):
        with pytest.raises(InvalidProfile, match=re.escape(what)):
            from_frame(ops, tensors=sizes)


def test_a_backward_table_leaves_no_room_for_backward_columns(ops, backward):
    with pytest.raises(InvalidProfile, match="'backward_us' is not known"):
        from_frame(ops, backward)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("name,writes", "line 1", "0 columns of forward durations"),
        ("name,name,forward_ns", "line 1", "'name' stands there twice"),
        ("forward_ns,writes", "line 1", "'name' is absent"),
        ("name,forward_ns,writes\na,1", "line 2", "2 cells"),
        ("name,forward_ns,writes\na,1,y:1\nb,,z:1", "line 3", "is empty"),
        ('name,forward_ns,writes\na,1,y:1\n"b,1,z:1', "line 3", "not CSV"),
        ("name,forward_ns,reads\na,1,y", "line 2", "'y' has no size"),
    ],
)
def test_malformed_tables_name_line_and_reason(text, where, what):
    with pytest.raises(InvalidFile, match=re.escape(what)) as caught:
        convert(text)
    assert caught.value.where.endswith(where)


def test_a_bad_source_is_a_typed_error():
    with pytest.raises(InvalidProfile, match="'guessed' is not known"):
        import_profile(FIXTURE, source="guessed")


CELL = st.one_of(
    st.sampled_from(["", "0", "1", "-1", "1.5", "nan", "x:8", "n s", "y:256", "q:", ":3", "true"]),
    st.text(max_size=5),
)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 11), CELL), min_size=1, max_size=5))
@settings(max_examples=200)
def test_changed_cells_give_a_profile_or_a_typed_error(changes):
    rows = [line.split(",") for line in TEXT.splitlines()]
    for row, column, cell in changes:
        rows[row][column] = cell
    try:
        profile = convert("\n".join(",".join(row) for row in rows))
    except SlackSwapError:
        return
    assert len(profile.forward) == 4


VALUE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.binary(max_size=3), st.complex_numbers(), st.dates(),
    st.lists(st.one_of(st.text(max_size=3), st.integers()), max_size=3),
    st.decimals(allow_nan=False), st.just(pd.NaT), st.just(np.int64(3)), st.just(pd.NA),
)


@given(
    st.sampled_from(["name", "layer", "kind", "forward_us", "backward_us", "reads", "writes",
                     "saved", "workspace", "carried", "recomputable", "colour"]),
    VALUE,
    VALUE,
)
@settings(max_examples=200)
def test_any_values_in_a_frame_give_a_profile_or_a_typed_error(column, first, second):
    frame = pd.DataFrame({"name": ["a", "b"], "forward_us": [1, 2], "reads": ["x:8", "h"],
                          "writes": ["h:16", "y:8"], "backward_us": [1, 2]})
    frame[column] = pd.Series([first, second], dtype=object)
    try:
        profile = from_frame(frame)
    except SlackSwapError:
        return
    assert len(profile.forward) == 2


@given(st.text())
def test_any_text_gives_a_typed_error(text):
    with pytest.raises(SlackSwapError):
        convert(text)


def test_tables_need_no_pandas():
    code = (
        "import sys; from slackswap.profiles import import_profile; "
        f"import_profile({str(FIXTURE)!r}); print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_table_of_a_header_alone_is_refused():
    with pytest.raises(InvalidFile, match="a header and no ops") as caught:
        table_profile("name,forward_ns,backward_ns,writes\n", file="t.csv", name="t")
    assert caught.value.where.endswith("line 1")
