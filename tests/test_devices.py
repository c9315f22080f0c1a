"""Times of one device and a link of another are told apart, in results and in the store."""

from __future__ import annotations

import pytest

from slackswap import Problem, load_hardware, load_profile, solve
from slackswap.devices import mixed_devices


@pytest.mark.parametrize(
    ("profile", "hardware", "words"),
    [
        ("bert-large", "a100-80gb", ""),
        ("bert-large", "h100-sxm", "those of a100-80gb, the link is that of h100-sxm"),
        ("gpt-small-cpu", "a100-80gb", "measured on a CPU"),
        ("opt-350m-a100", "a100-40gb", ""),
        ("opt-350m-a100", "a100-80gb", "those of a100-40gb"),
    ],
)
def test_which_mixtures_are_told(profile: str, hardware: str, words: str) -> None:
    problem = Problem(load_profile(profile), load_hardware(hardware))
    assert words in problem.warning
    assert bool(problem.warning) == bool(words)
    assert solve(problem, "keep-all").to_dict()["warning"] == problem.warning


def test_variants_of_the_device_are_what_is_asked_about() -> None:
    profile, hardware = load_profile("bert-large"), load_hardware("a100-80gb")
    assert mixed_devices(profile, hardware.with_link(0.5)) == ""
    assert mixed_devices(profile, hardware.with_duplex(False)) == ""
