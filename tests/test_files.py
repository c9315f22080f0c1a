"""Reading strictly, writing whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import json
import stat

import pytest
from hypothesis import given, strategies as st

from slackswap import files
from slackswap.errors import InvalidFile, InvalidPlan, InvalidProfile

DOCUMENT = {"b": [1, 2.5, None, True], "a": {"ü": "✓"}}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner,
                                                                max_size=4),
    max_leaves=12,
)


def test_plain_and_compressed_hold_the_same(tmp_path):
    for name in ("a.json", "a.json.gz"):
        files.write_json(tmp_path / name, DOCUMENT)
        assert files.read_json(tmp_path / name) == DOCUMENT
    assert (tmp_path / "a.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    # Compression is known by content, so a renamed file opens too.
    (tmp_path / "a.json.gz").rename(tmp_path / "b.json")
    assert files.read_json(tmp_path / "b.json") == DOCUMENT


def test_equal_content_gives_equal_bytes(tmp_path):
    files.write_json(tmp_path / "one.gz", DOCUMENT)
    files.write_json(tmp_path / "two.gz", DOCUMENT)
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()


def test_a_byte_order_mark_is_no_obstacle(tmp_path):
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(DOCUMENT).encode())
    assert files.read_json(tmp_path / "a.json") == DOCUMENT


@given(json_values)
def test_canonical_bytes_do_not_depend_on_order_and_read_back(value):
    document = {"z": value, "a": 1}
    canonical = files.canonical_json(document)
    assert canonical == files.canonical_json(dict(reversed(document.items())))
    assert files.parse_json(canonical.decode(), where="text") == document
    assert canonical.startswith(b'{"a":1,"z":')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("x", "line 1"),
        ('{"a": 1,}', "line 1"),
        ('{\n"a": 1\n"b": 2}', "line 3, column 1"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "-Infinity"),
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ('{"x": {"a": 1, "b": 2, "a": 3}}', "'a' stands twice"),
        ("[" * 200_000, "nested"),
        ('{"a":' * 200_000, "nested"),
        ("1" * 5000, "number"),
        ("{'a': 1}", "line 1"),
        ('{"a": "\n"}', "line 1"),
    ],
)
def test_what_is_not_strict_json_is_refused_with_its_place(text, reason):
    with pytest.raises(InvalidFile) as caught:
        files.parse_json(text, where="profile.json")
    assert str(caught.value).startswith("profile.json: ")
    assert reason in str(caught.value)
    assert caught.value.fix
    assert len(str(caught.value)) < 300


@given(st.text(max_size=60))
def test_any_text_is_a_value_or_a_typed_error(text):
    # Anything but a typed error fails the test.
    with contextlib.suppress(InvalidFile):
        files.canonical_json(files.parse_json(text, where="text"))


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_a_typed_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    with contextlib.suppress(InvalidFile):
        files.canonical_json(files.read_json(path))


@pytest.mark.parametrize("keep", [3, 10, 15, -4, -1])
def test_truncated_gzip(tmp_path, keep):
    whole = gzip.compress(json.dumps(DOCUMENT).encode() * 50)
    (tmp_path / "a.gz").write_bytes(whole[:keep])
    with pytest.raises(InvalidFile, match="damaged or cut short"):
        files.read_bytes(tmp_path / "a.gz")


def test_flipped_bit_in_gzip(tmp_path):
    whole = bytearray(gzip.compress(bytes(range(200)) + json.dumps(DOCUMENT).encode()))
    whole[len(whole) // 2] ^= 4
    (tmp_path / "a.gz").write_bytes(whole)
    with pytest.raises(InvalidFile, match="damaged or cut short"):
        files.read_bytes(tmp_path / "a.gz")


def test_size_counts_after_decompression(tmp_path):
    bomb = gzip.compress(b"[" * 10_000_000)
    assert len(bomb) < 20_000
    (tmp_path / "bomb.gz").write_bytes(bomb)
    with pytest.raises(InvalidFile, match="more than 1,000,000 bytes"):
        files.read_text(tmp_path / "bomb.gz", max_bytes=1_000_000)
    (tmp_path / "exact").write_bytes(b"x" * 100)
    assert len(files.read_bytes(tmp_path / "exact", max_bytes=100)) == 100
    with pytest.raises(InvalidFile, match="more than 99 bytes"):
        files.read_bytes(tmp_path / "exact", max_bytes=99)


def test_missing_file_folder_and_text_that_is_none(tmp_path):
    with pytest.raises(InvalidFile, match="cannot be read"):
        files.read_bytes(tmp_path / "missing")
    with pytest.raises(InvalidFile, match="cannot be read"):
        files.read_bytes(tmp_path)
    (tmp_path / "latin").write_bytes(b"abc\xff")
    with pytest.raises(InvalidFile, match="byte 3"):
        files.read_text(tmp_path / "latin")


def test_documents_name_their_file_and_keep_the_kind_of_error(tmp_path):
    def parse(document):
        raise InvalidPlan("is wrong", where="actions", fix="mend it")

    files.write_json(tmp_path / "plan.json", {})
    with pytest.raises(InvalidPlan) as caught:
        files.load_document(tmp_path / "plan.json", parse)
    assert str(caught.value) == f"{tmp_path / 'plan.json'}: actions: is wrong. Mend it"


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    target = tmp_path / "a.json"
    files.write_json(target, {"old": 1})
    with pytest.raises(TypeError):
        files.write_json(target, {"new": object()})
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(target, {"new": float("nan")})
    with contextlib.suppress(RuntimeError), files.atomic_path(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert files.read_json(target) == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path):
    target = tmp_path / "a.json"
    files.write_text(target, "old")
    with files.atomic_path(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
        assert temporary.parent == target.parent
    assert target.read_text() == "new"


def test_written_files_have_ordinary_permissions(tmp_path):
    (tmp_path / "ordinary").write_text("x")
    files.write_text(tmp_path / "ours", "x")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ordinary", "ours")}
    assert len(modes) == 1


def test_an_unwritable_place_is_a_typed_error(tmp_path):
    with pytest.raises(InvalidFile, match="cannot be written"):
        files.write_text(tmp_path / "no" / "such" / "folder.json", "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidFile, match="cannot be written"):
        files.write_text(tmp_path / "folder", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_errors_survive_pickling():
    import pickle

    error = InvalidProfile("is wrong", where="here", fix="mend it")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is InvalidProfile
    assert (copy.what, copy.where, copy.fix, str(copy)) == (
        "is wrong", "here", "mend it", "here: is wrong. Mend it"
    )
