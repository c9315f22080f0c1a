import random
from dataclasses import replace

import pytest
from bounding import KINDS, small_problem
from handmade import LINK, chain
from hypothesis import assume, given, settings, strategies as st

from slackswap import (
    Action,
    BackwardOp,
    ForwardOp,
    Problem,
    Profile,
    Status,
    Tensor,
    load_profile,
    simulate,
    solve,
)
from slackswap.cost_model.scorer import Scorer
from slackswap.profiles.generators.random_dag import Traits, random_profile
from slackswap.profiles.library import profile_hardware
from slackswap.search import least_budget, lower_bound
from slackswap.search.enumeration import Decisions, enumerate_plans
from slackswap.search.milp.memory import necessary_budget

seeds = st.integers(0, 2**32)
_STIFF = Traits(restricted=0.5, not_recomputable=0.4)


def _least_by_enumeration(problem):
    """The least budget that any plan fits; plans without barriers stay valid with more memory."""
    low, high = 0, 2 * problem.keep_all_peak_bytes + 500
    if not enumerate_plans(problem.with_budget(high)).feasible:
        return None
    while low + 1 < high:
        middle = (low + high) // 2
        if enumerate_plans(problem.with_budget(middle)).feasible:
            high = middle
        else:
            low = middle
    return high


@settings(max_examples=80)
@given(seeds)
def test_proven_true_shown_are_in_order(seed):
    rng = random.Random(seed)
    profile = random_profile(rng, rng.randint(2, 6), traits=rng.choice((*KINDS, _STIFF)))
    hardware = replace(
        LINK, latency_ns=rng.choice((0, 3)), full_duplex=rng.random() < 0.5,
        host_bytes=rng.choice((None, None, 0, 40)),
    )
    problem = Problem(profile, hardware)
    assume(Decisions.of(Scorer(problem)).count <= 250)
    answer, true = least_budget(problem), _least_by_enumeration(problem)
    assume(true is not None)
    assert answer.proven_bytes <= true
    assert answer.shown_bytes is not None
    assert true <= answer.shown_bytes
    assert simulate(problem.with_budget(answer.shown_bytes), answer.plan).feasible


def test_proof_and_plan_nearly_always_meet():
    met = answered = 0
    for seed in range(80):
        problem = small_problem(seed)
        if problem is None:
            continue
        answer = least_budget(problem)
        answered += 1
        met += answer.proven_bytes == answer.shown_bytes
    assert answered >= 40
    assert met >= 0.8 * answered


def test_what_binds_and_what_would_lower_it():
    # b0 needs 7 of input, 50 of workspace and v of 10; w, which may only be kept, waits beside it.
    profile = Profile(
        "tight", "random",
        (Tensor("x", 7), Tensor("w", 20, (Action.KEEP,)), Tensor("v", 10)),
        (ForwardOp("f0", 5, (0,), (1,)), ForwardOp("f1", 5, (1,), (2,))),
        (BackwardOp("b0", 5, (2,), workspace=50), BackwardOp("b1", 5, (1,))),
    )
    answer = least_budget(Problem(profile, LINK))
    assert answer.proven_bytes == answer.shown_bytes == 87
    assert answer.place == "backward op 0 (b0)"
    assert [(share.nbytes, share.what) for share in answer.shares] == [
        (50, "of workspace"),
        (20, "of tensors that may neither be swapped nor recomputed (w)"),
        (10, "of tensors in use at that op (v)"),
        (7, "of inputs"),
    ]
    text = answer.summary()
    assert "no plan fits less than 87 bytes" in text
    assert "allow one of both" in text
    assert answer.to_dict()["shares"][1]["nbytes"] == 20


def test_forward_ops_bind_too():
    profile = chain([10, 30, 10], backward_ns=1)
    answer = least_budget(Problem(profile, LINK))
    assert answer.place == "forward op 1 (f1)"
    assert answer.proven_bytes == answer.shown_bytes == 40


def test_inputs_alone():
    profile = Profile("inputs", "random", (Tensor("x", 9),), (), ())
    answer = least_budget(Problem(profile, LINK))
    assert answer.proven_bytes == answer.shown_bytes == 9
    assert answer.place == "the inputs"


def test_a_full_host_needs_more():
    # t0 and t1 cannot be made again and t2's op needs 20 by itself: of the 20 bytes that wait, the
    # host takes 10, so 30 are needed. What one op needs by itself does not see that.
    profile = chain([10, 10, 10, 10])
    profile = replace(
        profile, tensors=tuple(replace(t, allowed=(Action.KEEP, Action.SWAP))
                               for t in profile.tensors),
    )
    free, full = Problem(profile, LINK, 20), Problem(profile, replace(LINK, host_bytes=10), 20)
    assert necessary_budget(free) == 20
    assert necessary_budget(full) == 30
    answer = least_budget(full)
    assert answer.proven_bytes == answer.shown_bytes == 30
    bound = lower_bound(full)
    assert bound.status is Status.INFEASIBLE
    assert "at least 30 B" in bound.note


@pytest.mark.parametrize("name", ["bert-large", "resnet50"])
def test_deep_models(name):
    problem = Problem(load_profile(name), profile_hardware(name), 0.5)
    answer = least_budget(problem)
    assert answer.proven_bytes <= answer.shown_bytes <= 1.01 * answer.proven_bytes
    assert simulate(problem.with_budget(answer.shown_bytes), answer.plan).feasible
    below = problem.with_budget(answer.proven_bytes - 1)
    assert lower_bound(below).status is Status.INFEASIBLE
    assert solve(below, "milp").status is Status.INFEASIBLE
