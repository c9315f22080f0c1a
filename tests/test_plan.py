"""Plans: what they may say, and what makes one impossible to carry out."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from drawing import random_case
from hypothesis import given, strategies as st
from samples import plan_document, profile_document

from slackswap import (
    Action,
    Hardware,
    InvalidPlan,
    Plan,
    PlannerInfo,
    Problem,
    Profile,
    simulate,
    simulate_many,
)

LINK = Hardware("toy", 10**9, 10**9)


def problem(**changes) -> Problem:
    profile = replace(Profile.from_dict(profile_document()), **changes)
    return Problem(profile, LINK)


@given(st.integers(0, 2**40))
def test_documents_round_trip(seed):
    plan = random_case(seed).plan
    assert Plan.from_dict(plan.to_dict()) == plan


def test_files_round_trip(tmp_path):
    plan = Plan.from_dict(plan_document()).with_planner(
        PlannerInfo("p", "2", {"slots": 200, "deep": {"x": [1, 2]}}, 7)
    )
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan


def test_values_are_normalised():
    plan = Plan({"h": "swap"}, offload_barriers=(3, 1, 3))
    assert plan.actions == {"h": Action.SWAP}
    assert plan.offload_barriers == (1, 3)
    assert plan.has_order
    assert not Plan({"h": "swap"}).has_order
    assert plan.with_actions({"y": "keep"}).actions == {"h": "swap", "y": "keep"}
    assert plan.actions == {"h": Action.SWAP}


def test_a_callers_mapping_is_not_shared():
    actions = {"h": Action.SWAP}
    plan = Plan(actions)
    actions["h"] = Action.KEEP
    assert plan.actions["h"] is Action.SWAP


@pytest.mark.parametrize(
    "build",
    [lambda: Plan({"h": "drop"}), lambda: Plan(offload_barriers=(1.5,)),
     lambda: Plan(prefetch_gates={"h": "2"}), lambda: Plan(offload_gates={"h": True})],
)
def test_impossible_parts(build):
    with pytest.raises(InvalidPlan) as caught:
        build()
    assert caught.value.fix


@pytest.mark.parametrize(
    ("plan", "where", "what"),
    [
        (Plan({"z": "keep"}), "actions", "'z'"),
        (Plan({"x": "swap"}), "actions", "swaps 'x', which is an input"),
        (Plan({"x": "recompute"}), "actions", "recomputes 'x', which is an input"),
        (Plan({"y": "recompute"}), "actions", "allows only keep, swap"),
        (Plan(offload_gates={"h": 2}), "offload_gates['h']", "forward op 2"),
        (Plan(offload_gates={"z": 0}), "offload_gates", "'z'"),
        (Plan(prefetch_gates={"h": 2}), "prefetch_gates['h']", "backward op 2"),
        (Plan(prefetch_gates={"h": -1}), "prefetch_gates['h']", "backward op -1"),
        (Plan(offload_barriers=(5,)), "offload_barriers", "only 2"),
        (Plan(prefetch_barriers=(2,)), "prefetch_barriers", "only 2"),
        (Plan(profile_sha256="0" * 64), "profile_sha256", "made for profile 000000000000"),
    ],
)
@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_plans_that_cannot_be_carried_out(plan, where, what, engine):
    with pytest.raises(InvalidPlan) as caught:
        simulate(problem(), plan, engine)
    assert caught.value.where == where
    assert what in caught.value.what
    assert caught.value.fix


def test_an_input_may_be_named_with_keep_and_gates_without_swaps_do_nothing():
    plain = simulate(problem(), Plan())
    assert simulate(problem(), Plan({"x": "keep"})) == plain
    assert simulate(problem(), Plan(prefetch_gates={"h": 1}, offload_gates={"y": 0})) == plain


def test_a_tensor_that_may_not_be_kept_must_be_named():
    tensors = problem().profile.tensors
    strict = problem(tensors=(tensors[0], replace(tensors[1], allowed=("swap",)), tensors[2]))
    with pytest.raises(InvalidPlan, match="keeps 'h' by not naming it"):
        simulate(strict, Plan())
    assert simulate(strict, Plan({"h": "swap"})).feasible


def test_the_host_holds_so_much_and_no_more():
    tight = problem().with_hardware(replace(LINK, host_bytes=24))
    assert simulate(tight, Plan({"h": "swap", "y": "swap"})).feasible
    tighter = problem().with_hardware(replace(LINK, host_bytes=23))
    with pytest.raises(InvalidPlan, match="1 more than the host's 23"):
        simulate(tighter, Plan({"h": "swap", "y": "swap"}))


@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_what_cannot_run_again_is_named_with_what_needs_it(engine):
    forward = problem().profile.forward
    stiff = problem(forward=(replace(forward[0], recomputable=False), forward[1]))
    with pytest.raises(InvalidPlan) as caught:
        simulate(stiff, Plan({"h": "recompute"}), engine)
    assert caught.value.where == "backward[0] (fc2.bwd)"
    assert "forward[0] (fc1)" in caught.value.what
    assert "h" in caught.value.fix


@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_in_a_batch_the_bad_plan_is_numbered(engine):
    with pytest.raises(InvalidPlan, match=r"plans\[1\]"):
        simulate_many(problem(), [Plan(), Plan({"z": "keep"})], engine)


def test_a_plan_for_this_profile_is_accepted_by_its_identity():
    here = problem()
    assert simulate(here, Plan(profile_sha256=here.profile.sha256)).feasible


def test_a_misspelled_name_in_a_large_profile_gives_a_short_message():
    case = random_case(3)
    name = f"{random.Random(1).random()}"
    with pytest.raises(InvalidPlan) as caught:
        simulate(case.problem, Plan({name: "keep"}))
    assert len(str(caught.value)) < 200
