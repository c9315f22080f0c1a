"""The captures that are shipped: whole, honest, and made again bit for bit."""

from __future__ import annotations

from importlib import metadata, resources

import pytest

from slackswap.profile import Profile


def shipped():
    folder = resources.files("slackswap.profiles.data")
    found = sorted(
        item.name.removesuffix(".json.gz") for item in folder.iterdir()
        if item.name.endswith(".json.gz")
    )
    return [name for name in found if "-hf" in name or name.endswith("-cpu")]


def test_the_captures_are_shipped():
    models = ("bert-large", "gpt2-xl", "llama-7b", "llama3-8b", "vit-l")
    expected = {f"{model}-hf-{kernel}" for model in models for kernel in ("eager", "sdpa")}
    assert expected | {"resnet50-hf", "gpt-small-cpu", "resnet18-cpu"} <= set(shipped())


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_capture_is_whole(name):
    item = resources.files("slackswap.profiles.data") / f"{name}.json.gz"
    with resources.as_file(item) as path:
        profile = Profile.load(path)
        assert path.stat().st_size < 150_000
    notes = profile.provenance
    assert profile.name == name
    assert profile.source == ("measured" if name.endswith(("-cpu", "-cuda")) else "traced")
    assert notes["saved_bytes"] == notes["saved_bytes_by_hooks"]
    graph = profile.graph
    read = {t for op in profile.backward for t in op.reads}
    assert notes["saved_bytes"] == int(graph.nbytes[sorted(read)].sum())
    assert all(op.duration_ns > 0 for op in (*profile.forward, *profile.backward))
    assert notes.get("unpriced_operators", {}) == {}
    if profile.source == "measured":
        assert notes["machine"]["processor"]
        assert 0.85 <= notes["operators_ns"] / notes["plain_iteration_ns"] <= 1.15


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert-large-hf-sdpa", "resnet50-hf"])
def test_a_traced_capture_is_made_again_bit_for_bit(name):
    torch = pytest.importorskip("torch", reason="capture needs the torch extra")
    pytest.importorskip("transformers", reason="the shipped captures need transformers")
    from slackswap.profiles.capture import capture

    path = resources.files("slackswap.profiles.data") / f"{name}.json.gz"
    with resources.as_file(path) as file:
        old = Profile.load(file)
    notes = old.provenance
    versions = torch.__version__, metadata.version("transformers")
    if versions != (notes["torch"], notes["transformers"]):
        pytest.skip(f"made with PyTorch {notes['torch']}, transformers {notes['transformers']}")
    new = capture(notes["model"], device="fake", hardware=notes["hardware"], name=name,
                  optimizer=notes["optimizer"], description=notes["description"])
    assert new.sha256 == old.sha256
