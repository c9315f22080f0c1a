import random

import numpy as np
import pytest

from slackswap import Action, SlackSwapError
from slackswap.profiles.generators.random_dag import (
    UNRESTRICTED,
    Traits,
    deep_chain_profile,
    layered_profile,
    random_hardware,
    random_problem,
    random_profile,
)


@pytest.fixture(scope="module")
def many():
    return [random_profile(random.Random(seed), 1 + seed % 15) for seed in range(300)]


def test_the_seed_fixes_the_result():
    assert random_problem(random.Random(3)) == random_problem(random.Random(3))
    assert random_problem(random.Random(3)) != random_problem(random.Random(4))
    first, second = (
        random_problem(np.random.default_rng(5), 6).profile.sha256 for _ in range(2)
    )
    assert first == second


def test_a_generator_that_goes_on_gives_other_results():
    for rng in (random.Random(1), np.random.default_rng(1)):
        assert random_profile(rng) != random_profile(rng)


@pytest.mark.parametrize(
    "found",
    [
        lambda p: any(t.nbytes == 0 for t in p.tensors),
        lambda p: any(op.duration_ns == 0 for op in p.forward),
        lambda p: any(op.duration_ns == 0 for op in p.backward),
        lambda p: any(len(op.writes) > 1 for op in p.forward),
        lambda p: any(len(op.reads) > 1 for op in p.forward),
        lambda p: any(not op.reads for op in p.forward),
        lambda p: any(not op.recomputable for op in p.forward),
        lambda p: any(op.workspace for op in p.forward),
        lambda p: any(op.carried for op in p.backward),
        lambda p: any(op.workspace > op.carried for op in p.backward),
        lambda p: any(Action.SWAP not in t.allowed for t in p.tensors),
        lambda p: any(Action.RECOMPUTE not in t.allowed for t in p.tensors),
        lambda p: p.graph.is_intermediate.any(),
        lambda p: p.graph.is_saved.any(),
        lambda p: p.graph.is_input.sum() > 1,
        # A saved tensor whose last forward use lies ops after its writing: a skip.
        lambda p: (p.graph.last_forward_use - p.graph.producer)[p.graph.producer >= 0].max() > 3,
        # Two backward ops read one tensor.
        lambda p: (p.graph.last_backward_read > p.graph.first_backward_read).any(),
        lambda p: 0 < len(p.backward) < len(p.forward),
    ],
)
def test_every_feature_occurs_often_enough(many, found):
    assert sum(bool(found(profile)) for profile in many) >= 15


def test_keeping_is_always_allowed(many):
    assert all(Action.KEEP in t.allowed for profile in many for t in profile.tensors)


def test_unrestricted_profiles_allow_every_action():
    for seed in range(50):
        profile = random_profile(random.Random(seed), traits=UNRESTRICTED)
        assert all(len(t.allowed) == 3 for t in profile.tensors)
        assert all(op.recomputable for op in profile.forward)


def test_full_locality_with_one_read_gives_short_reach():
    traits = Traits(locality=1.0, max_reads=1, extra_writes=0.0, inputs=1)
    profile = random_profile(random.Random(2), 30, traits=traits)
    producer = profile.graph.producer
    reach = [
        index - producer[t] for index, op in enumerate(profile.forward) for t in op.reads
    ]
    assert max(reach) <= 2


def test_hardware_comes_in_both_duplexes_with_unequal_directions():
    found = [random_hardware(random.Random(seed)) for seed in range(50)]
    assert {hardware.full_duplex for hardware in found} == {True, False}
    assert any(hardware.latency_ns for hardware in found)
    assert all(hardware.d2h_bytes_per_s != hardware.h2d_bytes_per_s for hardware in found)


def test_budgets_reach_from_a_third_of_the_peak_to_the_peak():
    problems = [random_problem(random.Random(seed), 10) for seed in range(100)]
    assert all(0.3 < problem.fraction <= 1 or problem.budget_bytes <= 3 for problem in problems)
    assert min(problem.fraction for problem in problems) < 0.45
    assert max(problem.fraction for problem in problems) > 0.9


@pytest.mark.parametrize("n_forward", [1, 7, 1000])
def test_layers_repeat(n_forward):
    profile = layered_profile(n_forward, random.Random(1), ops_per_layer=4)
    assert len(profile.forward) == len(profile.backward) == n_forward
    sizes = [tensor.nbytes for tensor in profile.tensors[1:]]
    assert sizes == (sizes[:4] * n_forward)[:n_forward]
    if n_forward == 1000:
        # The last op of a layer also reads the layer's input.
        assert profile.forward[7].reads == (7, 4)
        share = profile.graph.is_saved.mean()
        assert 0.45 < share < 0.55


def test_deep_chain_has_one_closure_as_long_as_wanted():
    profile = deep_chain_profile(100, saved_every=10)
    assert profile.graph.is_saved.sum() == 10
    assert profile.graph.is_intermediate.sum() == 90
    assert deep_chain_profile(100).graph.is_saved.sum() == 100


@pytest.mark.parametrize(
    "build",
    [
        lambda: random_profile(random.Random(0), 0),
        lambda: layered_profile(0, random.Random(0)),
        lambda: layered_profile(10, random.Random(0), ops_per_layer=1),
        lambda: deep_chain_profile(0),
        lambda: deep_chain_profile(5, saved_every=0),
    ],
)
def test_empty_profiles_are_refused(build):
    with pytest.raises(SlackSwapError):
        build()
