"""Profiles: what makes one valid, and what follows from it."""

from __future__ import annotations

import copy
import pickle
import random
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from samples import profile_document

from slackswap import (
    Action,
    BackwardOp,
    ForwardOp,
    Hardware,
    InvalidHardware,
    InvalidProfile,
    Problem,
    Profile,
    Tensor,
)
from slackswap.profiles.generators.random_dag import random_profile

seeds = st.integers(0, 2**40)


def a_profile(**changes) -> Profile:
    parts = {
        "name": "p",
        "source": "random",
        "tensors": (Tensor("x", 8), Tensor("h", 16), Tensor("y", 8)),
        "forward": (ForwardOp("f1", 5, (0,), (1,)), ForwardOp("f2", 5, (1,), (2,))),
        "backward": (BackwardOp("b2", 10, (1, 2), workspace=12, carried=8),
                     BackwardOp("b1", 10, (0,))),
    }
    return Profile(**{**parts, **changes})


@given(seeds)
def test_documents_round_trip_and_identity_follows_content(seed):
    profile = random_profile(random.Random(seed), 6)
    copied = Profile.from_dict(copy.deepcopy(profile.to_dict()))
    assert copied == profile
    assert copied.sha256 == profile.sha256
    renamed = profile.with_name("other")
    assert renamed.sha256 != profile.sha256
    assert renamed.with_name(profile.name).sha256 == profile.sha256


@given(seeds)
def test_files_round_trip(tmp_path_factory, seed):
    path = tmp_path_factory.getbasetemp() / "profile.json.gz"
    profile = random_profile(random.Random(seed), 4)
    profile.save(path)
    assert Profile.load(path) == profile


def test_identity_is_that_of_the_canonical_bytes():
    """Computed from the specification alone: defaults filled in, keys sorted, no white space."""
    import hashlib
    import json

    document = profile_document()
    for tensor in document["tensors"]:
        tensor.setdefault("allowed", ["keep", "swap", "recompute"])
    for op in document["forward"]:
        for key, value in (("layer", None), ("kind", None), ("workspace", 0),
                           ("recomputable", True)):
            op.setdefault(key, value)
    for op in document["backward"]:
        for key, value in (("layer", None), ("kind", None), ("workspace", 0), ("carried", 0)):
            op.setdefault(key, value)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert Profile.from_dict(profile_document()).sha256 == (
        hashlib.sha256(text.encode()).hexdigest()
    )


def test_repeated_indices_count_once():
    forward = (ForwardOp("f1", 5, (0, 0), (1,)), ForwardOp("f2", 5, (1, 1), (2,)))
    profile = a_profile(forward=forward)
    assert profile.forward[0].reads == (0,)
    assert profile.sha256 == a_profile().sha256


def test_allowed_has_one_order():
    assert Tensor("t", 1, ("recompute", "keep", "keep")).allowed == (Action.KEEP, Action.RECOMPUTE)


def test_numbers_from_numpy_become_plain():
    tensor = Tensor("t", np.int64(3))
    assert type(tensor.nbytes) is int
    assert type(ForwardOp("f", np.int32(1), (np.int64(0),), ()).reads[0]) is int


@pytest.mark.parametrize(
    ("changes", "where", "what"),
    [
        ({"tensors": (Tensor("x", 8), Tensor("x", 16), Tensor("y", 8))}, "tensors[1]",
         "already that of tensors[0]"),
        ({"forward": (ForwardOp("f1", 5, (7,), (1,)),)}, "forward[0] (f1)", "tensor 7"),
        ({"forward": (ForwardOp("f1", 5, (), (3,)),)}, "forward[0] (f1)", "only 3 tensors"),
        ({"forward": (ForwardOp("f1", 5, (0,), (1,)), ForwardOp("f2", 5, (), (1,)))},
         "forward[1] (f2)", "already writes"),
        ({"forward": (ForwardOp("f1", 5, (1,), (2,)), ForwardOp("f2", 5, (), (1,)))},
         "forward[1] (f2)", "reads before"),
        ({"forward": (ForwardOp("f1", 5, (1,), (1,)),)}, "forward[0] (f1)", "while it is written"),
        ({"backward": (BackwardOp("b", 1, (9,)),)}, "backward[0] (b)", "tensor 9"),
        ({"source": "guessed"}, "source", "guessed"),
        ({"static_bytes": -1}, "profile", "static_bytes"),
        ({"static_bytes": 1.5}, "profile", "not an integer"),
        ({"provenance": {"x": float("nan")}}, "provenance", "JSON"),
        ({"provenance": {"x": object()}}, "provenance", "JSON"),
        ({"tensors": tuple(Tensor(f"t{i}", 2**59) for i in range(3))}, "profile", "2^60"),
    ],
)
def test_broken_rules_name_the_place_and_a_remedy(changes, where, what):
    with pytest.raises(InvalidProfile) as caught:
        a_profile(**changes)
    assert caught.value.where == where
    assert what in caught.value.what
    assert caught.value.fix


@pytest.mark.parametrize(
    "build",
    [
        lambda: Tensor("t", -1),
        lambda: Tensor("t", 1.0),
        lambda: Tensor("t", True),
        lambda: Tensor("t", None),
        lambda: Tensor("t", 2**60 + 1),
        lambda: Tensor("t", 1, ("drop",)),
        lambda: ForwardOp("f", -1),
        lambda: ForwardOp("f", float("nan")),
        lambda: ForwardOp("f", 1, (-1,)),
        lambda: ForwardOp("f", 1, (), (), workspace=-5),
        lambda: BackwardOp("b", 1, (), workspace=3, carried=4),
        lambda: BackwardOp("b", "5"),
    ],
)
def test_impossible_parts(build):
    with pytest.raises(InvalidProfile) as caught:
        build()
    assert caught.value.where
    assert caught.value.fix


def test_nothing_can_be_changed():
    profile = a_profile()
    for thing, field in ((profile, "name"), (profile.tensors[0], "nbytes"),
                         (profile.forward[0], "reads"), (profile.backward[0], "carried")):
        with pytest.raises(FrozenInstanceError):
            setattr(thing, field, None)


def test_a_callers_mapping_is_not_shared():
    provenance = {"model": "m"}
    profile = a_profile(provenance=provenance)
    before = profile.sha256
    provenance["model"] = "other"
    assert profile.provenance == {"model": "m"}
    assert profile.to_dict()["provenance"] is not profile.provenance
    assert replace(profile).sha256 == before


def test_roles_of_tensors():
    profile = a_profile(
        tensors=(Tensor("in", 1), Tensor("mid", 2), Tensor("saved", 4), Tensor("out", 8)),
        forward=(ForwardOp("f1", 5, (0,), (1,)), ForwardOp("f2", 5, (1,), (2, 3))),
        backward=(BackwardOp("b", 1, (0, 2)),),
    )
    graph = profile.graph
    assert graph.is_input.tolist() == [True, False, False, False]
    assert graph.is_saved.tolist() == [False, False, True, False]
    assert graph.is_intermediate.tolist() == [False, True, False, True]
    assert graph.producer.tolist() == [-1, 0, 1, 1]
    assert profile.index_of["saved"] == 2
    assert profile.duration_ns == 11


def test_profiles_survive_pickling_with_what_was_derived():
    profile = a_profile()
    _ = profile.graph
    copied = pickle.loads(pickle.dumps(profile))
    assert copied == profile
    assert copied.graph.nbytes.tolist() == profile.graph.nbytes.tolist()


@pytest.mark.parametrize(
    "changes",
    [{"d2h_bytes_per_s": 0}, {"h2d_bytes_per_s": -1}, {"latency_ns": -1}, {"latency_ns": 1.5},
     {"host_bytes": -1}, {"d2h_bytes_per_s": True}, {"h2d_bytes_per_s": None},
     {"d2h_bytes_per_s": 2**61}, {"flops_per_s": 0}, {"latency_ns": None}],
)
def test_impossible_hardware(changes):
    with pytest.raises(InvalidHardware) as caught:
        Hardware(**{"name": "h", "d2h_bytes_per_s": 1, "h2d_bytes_per_s": 1, **changes})
    assert next(iter(changes)) in caught.value.what


def test_hardware_variants():
    hardware = Hardware("h", 100, 50, latency_ns=7)
    faster = hardware.with_link(1.2)
    assert (faster.d2h_bytes_per_s, faster.h2d_bytes_per_s) == (120, 60)
    assert not hardware.with_duplex(False).full_duplex
    assert hardware.full_duplex
    assert Hardware.from_dict(hardware.to_dict()) == hardware


def test_problem_variants_leave_the_first_alone():
    problem = Problem(a_profile(), Hardware("h", 1, 1), 0.5)
    assert problem.with_budget(10).budget_bytes == 10
    assert problem.with_hardware(Hardware("g", 2, 2)).budget_bytes == problem.budget_bytes
    assert problem.fraction <= 0.5
