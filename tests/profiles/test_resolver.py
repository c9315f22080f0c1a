"""One resolver: the command line and the suites mean the same problem by the same words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from slackswap import Hardware, Problem, SlackSwapError, load_profile
from slackswap.cli.inputs import load_inputs
from slackswap.evaluation.run.sources import (
    HardwareSource,
    ProfileSource,
    build_hardware,
    build_profile,
)
from slackswap.profiles.library import hardware_of, profile_names, resolve_profile


@pytest.fixture
def captured(tmp_path: Path) -> str:
    """A profile file that notes the link measured with it: a quarter of the catalogue's."""
    document = load_profile("gpt-small-cpu").to_dict()
    link = Hardware("measured", 6_250_000_000, 6_250_000_000, latency_ns=12_000)
    document["provenance"] = {"hardware": "a100-80gb", "link": {"hardware": link.to_dict()}}
    path = tmp_path / "captured.json"
    path.write_text(json.dumps(document))
    return str(path)


def suite_inputs(profile: str, hardware: str | None) -> Problem:
    sources = ProfileSource.of(profile), HardwareSource.of(hardware)
    return Problem(build_profile(*sources), build_hardware(*sources), 0.5)


@pytest.mark.parametrize("hardware", [None, "h100-sxm", "a100-80gb", "titan-x"])
@pytest.mark.parametrize("name", ["bert-large", "vgg16", "gpt-neo-2.7b-a100", "file"])
def test_command_line_and_suite_build_the_same_problem(name, hardware, captured):
    name = captured if name == "file" else name
    profile, device = load_inputs(name, hardware)
    problem = suite_inputs(name, hardware)
    assert problem.hardware == device
    assert problem.profile.sha256 == profile.sha256


def test_the_measured_link_of_a_file_is_honoured_everywhere(captured):
    assert load_inputs(captured, None)[1].d2h_bytes_per_s == 6_250_000_000
    assert suite_inputs(captured, None).hardware.d2h_bytes_per_s == 6_250_000_000


def test_a_hardware_without_rates_does_not_price(tmp_path):
    """It links another way; its arithmetic is unknown, so the profile keeps its own prices."""
    link = Hardware("link-only", 10**9, 10**9)
    path = tmp_path / "link.json"
    link.save(path)
    assert suite_inputs("bert-large", str(path)).profile == load_profile("bert-large")
    assert load_inputs("bert-large", str(path)) == (load_profile("bert-large"), link)


@pytest.mark.parametrize("name", profile_names())
def test_every_library_profile_knows_its_hardware(name):
    profile = load_profile(name)
    assert hardware_of(profile) == load_inputs(name, None)[1]
    assert hardware_of(replace(profile, provenance={})).name == "a100-80gb"


def test_sizes_of_a_file_cannot_be_changed(captured):
    with pytest.raises(SlackSwapError, match="batch cannot be changed in a file"):
        resolve_profile(captured, batch=3)
