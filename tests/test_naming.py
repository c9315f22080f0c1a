"""Which names are suggested for one that is not known."""

from __future__ import annotations

import pytest

from slackswap import SlackSwapError
from slackswap.naming import did_you_mean, near_names
from slackswap.profiles.library import hardware_names, load_hardware, profile_names, resolve_profile
from slackswap.registry import planner_names, resolve_planner


@pytest.mark.parametrize("known", [hardware_names(), profile_names(), planner_names()])
def test_the_beginning_of_a_name_stands_for_names_that_begin_so(known):
    for name in known:
        for length in range(2, len(name)):
            near = near_names(name[:length], known)
            assert near
            assert all(each.startswith(name[:length]) for each in near) or near == (name[:length],)


def test_h100_never_stands_for_v100():
    near = near_names("h100", hardware_names())
    assert near
    assert all(name.startswith("h100-") for name in near)
    assert near_names("h100", ("v100", "h100-sxm")) == ("h100-sxm",)


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("BERT_Large", ("bert-large", "bert-large-eager"), ("bert-large",)),
        ("slakswap", ("slackswap", "swapadvisor"), ("slackswap",)),
        ("conv", ("vdnn-all", "vdnn-conv"), ("vdnn-conv",)),
        ("b", ("bert", "bloom"), ()),
        ("", ("bert",), ()),
        ("zzz", ("bert",), ()),
        ("gpt", ("gpt-1", "gpt-2", "gpt-3", "gpt-4"), ("gpt-1", "gpt-2", "gpt-3")),
    ],
)
def test_what_is_near(name, known, near):
    assert near_names(name, known) == near


def test_the_words():
    assert did_you_mean("ab", ("abc",)) == " (did you mean 'abc'?)"
    assert did_you_mean("ab", ("abc", "abd")) == " (did you mean 'abc' or 'abd'?)"
    assert did_you_mean("ab", ("abc", "abd", "abe")) == " (did you mean 'abc', 'abd' or 'abe'?)"
    assert did_you_mean("zz", ("abc",)) == ""


@pytest.mark.parametrize(
    ("ask", "name", "meant"),
    [
        (load_hardware, "h100", "'h100-"),
        (resolve_profile, "bert", "'bert-large'"),
        (resolve_planner, "slack", "'slackswap'"),
    ],
)
def test_every_message_suggests_alike(ask, name, meant):
    with pytest.raises(SlackSwapError) as error:
        ask(name)
    assert f"did you mean {meant}" in error.value.what
