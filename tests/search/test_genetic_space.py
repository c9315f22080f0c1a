"""Genes, their roles, and operators that leave genomes valid."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from drawing import random_case
from hypothesis import given, settings, strategies as st

from slackswap import (
    BackwardOp,
    ForwardOp,
    Hardware,
    Infeasible,
    Problem,
    Profile,
    Tensor,
    load_hardware,
    load_profile,
)
from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Scorer
from slackswap.search.genetic.operators import CROSSOVERS, MUTATIONS, random_genome
from slackswap.search.genetic.space import Space

SEEDS = st.integers(0, 2**40)
LINK = Hardware("toy", 10**9, 10**9)


def space_of(problem: Problem) -> Space | None:
    try:
        return Space.of(Scorer(problem))
    except Infeasible:
        return None


def chain_of(names, *, layers=None, kinds=None, allowed=None) -> Profile:
    """A chain of ops named like their results; op i's backward reads what it wrote."""
    count = len(names)
    return Profile(
        "chain", "random",
        tuple(Tensor(name, 10, **({"allowed": allowed[i]} if allowed else {}))
              for i, name in enumerate(names)),
        tuple(ForwardOp(name, 5, (i - 1,) if i else (), (i,),
                        layer=None if layers is None else layers[i],
                        kind="gemm" if kinds is None else kinds[i])
              for i, name in enumerate(names)),
        tuple(BackwardOp(f"b{i}", 5, (i,)) for i in reversed(range(count))),
    )


def roles_by_name(profile: Profile) -> set[tuple[str, ...]]:
    space = Space.of(Scorer(Problem(profile, LINK)))
    names = [profile.tensors[t].name for t in space.tensor]
    return {tuple(names[gene] for gene in role) for role in space.roles}


# ---------------------------------------------------------------------- roles


def test_roles_of_a_transformer_are_the_same_tensor_in_every_layer():
    profile = load_profile("bert-large")
    roles = roles_by_name(profile)
    for part in ("q", "attention.lse", "dropout1.mask", "dropout2.mask", "gelu", "residual2"):
        assert tuple(f"layer{layer}.{part}" for layer in range(1, 25)) in roles


def test_every_gene_has_one_role_and_one_site():
    space = Space.of(Scorer(Problem(load_profile("gpt2-xl"), load_hardware("a100-80gb"), 0.5)))
    assert sorted(np.concatenate(space.roles).tolist()) == list(range(len(space)))
    assert sorted(space.site[space.site >= 0].tolist()) == list(range(len(space)))
    for number, genes in enumerate(space.roles):
        assert (space.role[genes] == number).all()
        column = space.site[:, number]
        assert column[column >= 0].tolist() == genes.tolist()


def test_twins_are_of_about_the_same_size():
    space = Space.of(Scorer(random_case(11).problem))
    for gene, (begin, end) in enumerate(space.twins.tolist()):
        twins = set(space.by_size[begin:end].tolist())
        size = int(space.nbytes[gene])
        assert twins == {
            other for other, nbytes in enumerate(space.nbytes.tolist())
            if 0.8 * size <= nbytes <= 1.25 * size
        }
        assert gene in twins


def test_running_numbers_of_a_captured_graph_do_not_hide_the_roles():
    names = ["mm", "add", "mm_1", "add_1", "mm_2", "add_2", "mm_3", "add_3"]
    layers = [0, 0, 0, 0, 1, 1, 1, 1]
    assert roles_by_name(chain_of(names, layers=layers)) == {
        ("mm", "mm_2"), ("mm_1", "mm_3"), ("add", "add_2"), ("add_1", "add_3"),
    }


def test_layers_are_read_from_names_when_the_profile_gives_none():
    names = [f"h.{layer}.{part}" for layer in range(3) for part in ("attn", "mlp")]
    assert roles_by_name(chain_of(names)) == {
        ("h.0.attn", "h.1.attn", "h.2.attn"), ("h.0.mlp", "h.1.mlp", "h.2.mlp"),
    }


def test_numbers_that_count_tensors_are_not_layers():
    assert roles_by_name(chain_of(["t0", "t1", "t2", "t3"], kinds=["a", "b", "a", "b"])) == {
        ("t0", "t2"), ("t1", "t3"),
    }


# ---------------------------------------------------------------------- genes


def test_what_leaves_no_choice_is_no_gene():
    profile = Profile(
        "small", "random",
        (Tensor("x", 1), Tensor("kept", 8, ("keep",)), Tensor("free", 8),
         Tensor("aside", 8), Tensor("drawn", 8)),
        (ForwardOp("f0", 1, (0,), (1,)), ForwardOp("f1", 1, (1,), (2,)),
         ForwardOp("f2", 1, (2,), (3,)), ForwardOp("f3", 1, (2,), (4,), recomputable=False)),
        (BackwardOp("b", 1, (1, 2, 4)),),
    )
    space = Space.of(Scorer(Problem(profile, LINK)))
    # x is an input; no closure can need "aside", which nothing saved comes from.
    assert [profile.tensors[t].name for t in space.tensor] == ["free", "drawn"]
    assert space.choices == ((KEEP, SWAP, RECOMPUTE), (KEEP, SWAP))
    assert space.base[1] == KEEP
    assert space.base[3] == RECOMPUTE


def test_a_tensor_without_any_action_is_named():
    profile = chain_of(["a", "b"], allowed=[("recompute",), ("keep",)])
    stuck = replace(profile, forward=(replace(profile.forward[0], recomputable=False),
                                      profile.forward[1]))
    with pytest.raises(Infeasible, match="'a'"):
        Space.of(Scorer(Problem(stuck, LINK)))


@settings(max_examples=150)
@given(SEEDS)
def test_genomes_lose_nothing_of_a_plan(seed):
    case = random_case(seed, ordered=False)
    scorer, space = Scorer(case.problem), space_of(case.problem)
    codes = scorer.encode(case.plan)
    before = scorer.score(codes)
    if space is None:
        assert not before.valid[0]
        return
    if not before.valid[0]:
        return
    genome = space.genome(codes)
    assert space.holds(genome)
    after = scorer.score(space.codes([genome]))
    assert (after.table == before.table).all()


# ---------------------------------------------------------------------- operators


@pytest.mark.parametrize("name", MUTATIONS)
@settings(max_examples=60)
@given(seed=SEEDS)
def test_mutations_keep_genomes_valid(name, seed):
    space, rng = space_of(random_case(seed).problem), random.Random(seed)
    if space is None or not len(space):
        return
    genome = random_genome(space, rng)
    for _ in range(10):
        assert space.holds(genome)
        MUTATIONS[name](genome, space, rng)
    assert space.holds(genome)
    assert genome.dtype == np.int8


@pytest.mark.parametrize("name", CROSSOVERS)
@settings(max_examples=60)
@given(seed=SEEDS)
def test_crossovers_deal_out_the_parents_genes(name, seed):
    space, rng = space_of(random_case(seed).problem), random.Random(seed)
    if space is None or not len(space):
        return
    parents = [random_genome(space, rng) for _ in range(2)]
    first, second = (parent.copy() for parent in parents)
    CROSSOVERS[name](first, second, space, rng)
    straight = (first == parents[0]) & (second == parents[1])
    crossed = (first == parents[1]) & (second == parents[0])
    assert (straight | crossed).all()


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutations_change_something(name):
    space = Space.of(Scorer(Problem(load_profile("bert-large"), LINK)))
    rng = random.Random(0)
    changed = 0
    for _ in range(40):
        genome = random_genome(space, rng)
        before = genome.copy()
        MUTATIONS[name](genome, space, rng)
        changed += (genome != before).any()
    assert changed >= 20


@pytest.mark.parametrize("name", CROSSOVERS)
def test_crossovers_mix(name):
    space = Space.of(Scorer(Problem(load_profile("bert-large"), LINK)))
    rng = random.Random(0)
    mixed = 0
    for _ in range(40):
        parents = [random_genome(space, rng) for _ in range(2)]
        first, second = (parent.copy() for parent in parents)
        CROSSOVERS[name](first, second, space, rng)
        mixed += (first != parents[0]).any() and (first != parents[1]).any()
    assert mixed >= 35


def test_copying_a_layer_makes_layers_alike():
    space = Space.of(Scorer(Problem(load_profile("bert-large"), LINK)))
    rng = random.Random(3)
    genome = random_genome(space, rng)
    before = genome.copy()
    MUTATIONS["copy-layer"](genome, space, rng)
    patterns = [tuple(genome[row[row >= 0]]) for row in space.site[2:-2]]
    before_patterns = [tuple(before[row[row >= 0]]) for row in space.site[2:-2]]
    assert len(set(patterns)) < len(set(before_patterns))


def test_a_random_start_knows_no_price():
    profile = load_profile("bert-large")
    dearer = replace(
        profile, forward=tuple(replace(op, duration_ns=7) for op in profile.forward)
    )
    starts = [
        random_genome(Space.of(Scorer(Problem(p, LINK, 0.5))), random.Random(5))
        for p in (profile, dearer)
    ]
    assert (starts[0] == starts[1]).all()
    assert {KEEP, SWAP, RECOMPUTE} == set(starts[0].tolist())
