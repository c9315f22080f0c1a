import subprocess
import sys

import pytest

from slackswap import (
    BackwardOp,
    ForwardOp,
    Profile,
    SlackSwapError,
    Tensor,
    UnknownName,
    load_hardware,
    load_profile,
)
from slackswap.errors import InvalidFile
from slackswap.profiles import library
from slackswap.profiles.generators.prices import Prices
from slackswap.profiles.library import (
    find_profile,
    library_entries,
    library_entry,
    profile_hardware,
    profile_names,
)
from slackswap.profiles.overlap import hideable_fraction

ANALYTIC = [entry.name for entry in library_entries() if entry.source == "analytic"]
SHIPPED = [entry.name for entry in library_entries() if entry.source != "analytic"]


def test_the_promised_names_are_there():
    assert {
        "bert-large", "bert-large-eager", "gpt2-xl", "gpt2-xl-eager", "llama-7b",
        "llama-7b-eager", "llama3-8b", "vgg16", "resnet50",
    } <= set(profile_names())
    assert len(set(profile_names())) == len(profile_names())


@pytest.mark.parametrize("name", ANALYTIC)
def test_every_entry_builds_what_it_says(name):
    profile, entry = load_profile(name), library_entry(name)
    assert profile.name == name
    assert profile.source == entry.source
    assert profile.provenance["hardware"] == entry.hardware.name == profile_hardware(name).name
    assert str(profile.provenance["batch"]) in entry.description


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_file_opens_and_is_listed_truly(name):
    assert load_profile(name).source == library_entry(name).source


def test_sizes_of_the_three_models():
    sizes = {
        name: (load_profile(name).provenance["batch"], load_profile(name).provenance["sequence"])
        for name in ("bert-large", "gpt2-xl", "llama-7b")
    }
    assert sizes == {"bert-large": (32, 512), "gpt2-xl": (8, 1024), "llama-7b": (4, 2048)}
    assert profile_hardware("vgg16") == load_hardware("titan-x")
    assert profile_hardware("llama-7b") == load_hardware("a100-80gb")


def test_batch_sequence_hardware_and_prices_can_be_changed():
    usual = load_profile("bert-large")
    half = find_profile("bert-large", batch=16)
    assert half is not None
    assert half.provenance["batch"] == 16
    assert half.duration_ns < 0.6 * usual.duration_ns
    short = find_profile("bert-large", sequence=128)
    assert short is not None
    assert short.provenance["sequence"] == 128
    h100 = find_profile("bert-large", hardware=load_hardware("h100-sxm"))
    assert h100 is not None
    assert h100.provenance["hardware"] == "h100-sxm"
    assert h100.duration_ns < usual.duration_ns
    slow = find_profile("bert-large", prices=Prices(gemm_efficiency=0.55))
    assert slow is not None
    assert slow.duration_ns > usual.duration_ns
    vgg = find_profile("vgg16", batch=8)
    assert vgg is not None
    assert vgg.provenance["batch"] == 8


def test_what_cannot_be_changed_is_refused():
    with pytest.raises(SlackSwapError, match="no sequence"):
        find_profile("vgg16", sequence=8)
    with pytest.raises(SlackSwapError, match="512 positions"):
        find_profile("bert-large", sequence=1024)


def test_unknown_names():
    assert find_profile("bert-larg") is None
    with pytest.raises(UnknownName, match="bert-large"):
        load_profile("bert-larg")
    with pytest.raises(UnknownName):
        profile_hardware("bert-larg")


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A folder in place of the package's data."""
    monkeypatch.setattr(library.resources, "files", lambda _: tmp_path)
    return tmp_path


def small(**fields):
    return Profile(
        name="small", source="measured", tensors=(Tensor("x", 1), Tensor("y", 2)),
        forward=(ForwardOp("f", 3, (0,), (1,)),), backward=(BackwardOp("b", 4, (1,)),), **fields,
    )


def test_files_are_found_by_name_and_listed_from_their_head(shipped):
    # Words of the format inside strings must not mislead the reader of the head.
    provenance = {"note": '"source": "random"', "hardware": "a100-40gb", "model": "GPT-Neo-2.7B",
                  "batch": 4}
    profile = small(provenance=provenance)
    profile.save(shipped / "gpt-neo.json.gz")
    (shipped / "index.json").write_text("{}")
    assert profile_names()[-1] == "gpt-neo"
    entry = library_entry("gpt-neo")
    assert (entry.source, entry.hardware) == ("measured", load_hardware("a100-40gb"))
    assert entry.description == "GPT-Neo-2.7B, batch 4"
    assert load_profile("gpt-neo") == profile


@pytest.mark.parametrize("hardware", [None, 7, "a machine of my own"])
def test_file_for_unknown_hardware_is_planned_on_the_default(shipped, hardware):
    small(provenance={"hardware": hardware}).save(shipped / "own.json.gz")
    assert profile_hardware("own") == load_hardware("a100-80gb")


def test_file_keeps_its_sizes(shipped):
    small().save(shipped / "own.json.gz")
    with pytest.raises(SlackSwapError, match="cannot be changed"):
        find_profile("own", batch=3)


def test_file_of_another_kind_is_refused(shipped):
    import gzip

    (shipped / "odd.json.gz").write_bytes(gzip.compress(b'{"schema": "other"}'))
    with pytest.raises(InvalidFile, match="saved profile"):
        library_entry("odd")


def test_listing_builds_nothing():
    # In a fresh interpreter, since others may have built profiles in this one.
    code = (
        "import sys; from slackswap.profiles import library_entries; library_entries();"
        "print([m for m in sys.modules if m.startswith('slackswap.profiles.')"
        " and m.rpartition('.')[2] in ('transformer', 'convnet', 'tape')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_hideable_fraction_counts_saved_bytes_against_forward_time():
    hardware = load_hardware("a100-80gb")  # 25 bytes a nanosecond
    profile = Profile(
        "counted", "random",
        (Tensor("x", 10**6), Tensor("saved", 1000), Tensor("lost", 500)),
        (ForwardOp("f", 8, (0,), (1,)), ForwardOp("g", 12, (1,), (2,))),
        (BackwardOp("b", 1, (0, 1)),),
    )
    assert hideable_fraction(profile, hardware) == 25 * 20 / 1000
