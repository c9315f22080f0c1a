"""The published JSON Schemas are those of the models, and agree with what the reader accepts."""

from __future__ import annotations

import json
from importlib import resources

import jsonschema
import pytest
from hypothesis import given, settings, strategies as st
from samples import hardware_document, plan_document, profile_document

from slackswap import Hardware, Plan, Profile, SlackSwapError, load_hardware, load_profile
from slackswap.schemas.documents import PUBLISHED, json_schema

FORMATS = {
    "profile-1.schema.json": (Profile, profile_document),
    "hardware-1.schema.json": (Hardware, hardware_document),
    "plan-1.schema.json": (Plan, plan_document),
}


def published(name: str) -> dict[str, object]:
    return json.loads((resources.files("slackswap.schemas") / name).read_text())


def accepted(kind, document) -> bool:
    try:
        kind.from_dict(document)
    except SlackSwapError:
        return False
    return True


def conforms(schema, document) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(document)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_file_is_what_the_model_says(name):
    assert published(name) == json_schema(PUBLISHED[name])
    jsonschema.Draft202012Validator.check_schema(published(name))


@pytest.mark.parametrize("name", FORMATS)
def test_the_specified_example_is_accepted_and_survives_a_round_trip(name):
    kind, example = FORMATS[name]
    assert conforms(published(name), example())
    read = kind.from_dict(example())
    assert kind.from_dict(read.to_dict()) == read
    assert conforms(published(name), read.to_dict())
    assert read.to_dict().items() >= {
        key: value for key, value in example().items()
        if key not in ("tensors", "forward", "backward")
    }.items()


def test_defaults_are_those_of_the_specification():
    profile = Profile.from_dict(profile_document())
    assert profile.to_dict()["tensors"][0]["allowed"] == ["keep", "swap", "recompute"]
    assert profile.forward[1].workspace == 0
    assert profile.forward[1].recomputable is True
    assert profile.forward[1].kind is None
    assert profile.backward[1].carried == 0
    short = {"schema": "slackswap.hardware/1", "name": "s", "d2h_bytes_per_s": 1,
             "h2d_bytes_per_s": 2}
    hardware = Hardware.from_dict(short)
    assert (hardware.latency_ns, hardware.full_duplex, hardware.host_bytes) == (0, True, None)
    plan = Plan.from_dict({"schema": "slackswap.plan/1", "actions": {}})
    assert plan == Plan()


def test_optional_keys_may_be_left_out():
    document = profile_document()
    for key in ("provenance", "static_bytes"):
        del document[key]
    for op in (*document["forward"], *document["backward"]):
        for key in ("layer", "kind", "workspace", "carried"):
            op.pop(key, None)
    assert conforms(published("profile-1.schema.json"), document)
    assert accepted(Profile, document)


REMOVED = [
    (name, key)
    for name, keys in (
        ("profile-1.schema.json",
         ("schema", "name", "source", "tensors", "forward", "backward")),
        ("hardware-1.schema.json", ("schema", "name", "d2h_bytes_per_s", "h2d_bytes_per_s")),
        ("plan-1.schema.json", ("schema", "actions")),
    )
    for key in keys
]


@pytest.mark.parametrize(("name", "key"), REMOVED)
def test_reader_and_schema_both_miss_a_required_key(name, key):
    kind, example = FORMATS[name]
    document = example()
    del document[key]
    assert not conforms(published(name), document)
    with pytest.raises(SlackSwapError, match=key):
        kind.from_dict(document)


@pytest.mark.parametrize("name", FORMATS)
def test_reader_and_schema_both_refuse_an_unknown_key(name):
    kind, example = FORMATS[name]
    document = {**example(), "comment": "mine"}
    assert not conforms(published(name), document)
    with pytest.raises(SlackSwapError, match="comment"):
        kind.from_dict(document)


def _places(value, path=()):
    """Every place in a document, containers included."""
    yield path
    items = value.items() if isinstance(value, dict) else (
        enumerate(value) if isinstance(value, list) else ()
    )
    for key, item in items:
        yield from _places(item, (*path, key))


def _with(document, path, value):
    if not path:
        return value
    target = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return document


WRONG = (None, True, -1, 0, 7, 2**60, 2**61, 1.5, "", "keep", "5", [], [0], [-1], {}, {"a": 1},
         {"h": "keep"}, ["keep"])


@settings(max_examples=600)
@given(st.data())
def test_reader_and_schema_agree_on_documents_with_one_value_replaced(data):
    name = data.draw(st.sampled_from(sorted(FORMATS)))
    kind, example = FORMATS[name]
    path = data.draw(st.sampled_from(sorted(_places(example()), key=repr)))
    document = _with(example(), path, data.draw(st.sampled_from(WRONG)))
    if accepted(kind, document):
        assert conforms(published(name), document)
    elif conforms(published(name), document):
        # What a schema cannot say: indices, order, names used twice, sums.
        assert name in ("profile-1.schema.json", "plan-1.schema.json")
        assert kind is not Plan, document


@pytest.mark.parametrize("name", ["bert-large", "vgg16"])
def test_library_profiles_conform(name):
    assert conforms(published("profile-1.schema.json"), load_profile(name).to_dict())


def test_catalogue_conforms():
    assert conforms(published("hardware-1.schema.json"), load_hardware("a100-80gb").to_dict())
