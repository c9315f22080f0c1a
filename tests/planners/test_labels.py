"""Rules that decide by the kind or the layer of an op say when a profile lacks it."""

from dataclasses import replace

import pytest

from slackswap import Problem, Status, load_hardware, load_profile, solve
from slackswap.planners.superneurons import SuperNeurons
from slackswap.planners.vdnn import VDNNPlusPlus

A100 = load_hardware("a100-80gb")
KINDS_NEEDED = ["superneurons", "superneurons-ungated", "vdnn-conv", "selective-checkpointing"]


def without(profile, *labels, keep=0):
    """Return a profile whose ops have no such labels, but for the first `keep` of each pass."""
    def strip(ops):
        return tuple(
            op if i < keep else replace(op, **dict.fromkeys(labels)) for i, op in enumerate(ops)
        )

    return replace(
        profile, name="bare", forward=strip(profile.forward), backward=strip(profile.backward)
    )


@pytest.fixture(scope="module")
def net():
    return load_profile("bert-large")


def half(profile):
    problem = Problem(profile, A100)
    return Problem(profile, A100, problem.keep_all_peak_bytes // 2)


@pytest.mark.parametrize("planner", [*KINDS_NEEDED, VDNNPlusPlus(policy="conv")], ids=str)
def test_rules_about_kinds_refuse_a_profile_without_any(net, planner):
    solution = solve(half(without(net, "kind")), planner)
    assert solution.status is Status.SKIPPED
    assert "the kind of each op, and no op of the profile has one" in solution.reason
    assert "ive each op a kind" in solution.reason
    assert solve(half(net), planner).status is not Status.SKIPPED


def test_selective_checkpointing_needs_layers_too(net):
    solution = solve(half(without(net, "layer")), "selective-checkpointing")
    assert solution.status is Status.SKIPPED
    assert "the layer of each op" in solution.reason


@pytest.mark.parametrize("planner", ["superneurons", "selective-checkpointing"])
def test_what_fits_as_it_is_needs_no_labels(net, planner):
    bare = without(net, "kind", "layer")
    assert solve(Problem(bare, A100, bare.keep_all_peak_bytes), planner).plan is not None


@pytest.mark.parametrize("planner", [SuperNeurons(), "vdnn-dyn"], ids=str)
def test_ops_that_lack_a_kind_are_counted(net, planner):
    bare = without(net, "kind", keep=100)
    statistics = solve(half(bare), planner).statistics
    assert statistics["ops_without_kind"] == len(net.forward) - 100
    assert "ops_without_kind" not in solve(half(net), planner).statistics
