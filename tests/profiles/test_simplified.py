"""Profiles made simpler than priced."""

import pytest

from slackswap import SlackSwapError, load_profile
from slackswap.profiles.simplified import simplified_profile


def test_backward_is_a_multiple_of_forward_and_shares_stay():
    profile = load_profile("bert-large")
    simple = simplified_profile(profile, backward=2.0)
    forward = sum(op.duration_ns for op in profile.forward)
    before = sum(op.duration_ns for op in profile.backward)
    after = sum(op.duration_ns for op in simple.backward)
    assert after == pytest.approx(2 * forward, abs=len(profile.backward))
    for old, new in zip(profile.backward, simple.backward, strict=True):
        assert new.duration_ns == pytest.approx(old.duration_ns * 2 * forward / before, abs=1)
    assert simple.forward == profile.forward
    assert simple.tensors == profile.tensors
    assert simple.sha256 != profile.sha256


def test_without_workspaces_what_is_saved_is_all_that_counts():
    simple = simplified_profile(load_profile("bert-large"), workspaces=False)
    assert not any(op.workspace for op in (*simple.forward, *simple.backward))
    assert not any(op.carried for op in simple.backward)


def test_nothing_asked_for_changes_nothing():
    profile = load_profile("bert-large")
    assert simplified_profile(profile) is profile
    assert simplified_profile(profile, backward=0) is profile
    with pytest.raises(SlackSwapError, match="cannot be made"):
        simplified_profile(profile, backward=-1.0)
