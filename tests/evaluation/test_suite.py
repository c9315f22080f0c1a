"""Suites: what their files say, and what can be selected."""

from __future__ import annotations

import pytest

from slackswap import planner_names
from slackswap.bound import BoundMethod
from slackswap.errors import InvalidFile, SlackSwapError, UnknownName
from slackswap.evaluation.analysis.claims import ABSTRACT_BASELINES, PAPER_MODELS
from slackswap.evaluation.run.cell import CellKind, identify
from slackswap.evaluation.run.suite import load_suite, parse_suite, suite_names
from slackswap.profiles.library import profile_names

TEXT = """
title = "Two"
[[variants]]
label = "slow link"
hardware = { link = 0.5 }
[[variants]]
label = "cheap"
prices = { gemm_efficiency = 0.75 }
[[group]]
name = "main"
profiles = ["bert-large", { generate = "deep-chain", n = 6, label = "chain" }]
budgets = ["0.5", "20GB"]
planners = ["slackswap", { name = "genetic", timeout = 7, seeds = [1, 2] }]
bounds = ["lp"]
[[group]]
name = "again"
profiles = ["bert-large"]
planners = ["slackswap"]
variants = "all"
alone = false
"""


def test_the_suites_that_are_promised_exist() -> None:
    assert set(suite_names()) == {
        "smoke", "paper", "paper-consistent", "sweep", "hard", "all"
    }


@pytest.mark.parametrize(
    "name", ["smoke", "paper", "paper-consistent", "sweep", "hard", "all"]
)
def test_shipped_suites_name_what_exists(name: str) -> None:
    suite = load_suite(name)
    cells = suite.cells()
    assert suite.title
    assert suite.description
    assert len(cells) == len(set(cells))
    assert {c.subject for c in cells if c.kind is CellKind.PLAN} <= set(planner_names())
    assert {c.subject for c in cells if c.kind is CellKind.BOUND} <= set(BoundMethod)
    named = {c.profile.options["library"] for c in cells if "library" in c.profile.options}
    assert named <= set(profile_names())


def test_every_problem_of_a_shipped_suite_can_be_built() -> None:
    problems = {
        (c.profile, c.hardware): c for c in load_suite("all").cells() if not c.profile.priced
    }
    assert problems
    assert all(identify(cell).problem_key for cell in problems.values())


def test_the_paper_suite_has_what_the_claims_need() -> None:
    cells = load_suite("paper").cells()
    plain = [c for c in cells if c.variant == "" and c.budget == "0.5"]
    baselines = {name for members in ABSTRACT_BASELINES.values() for name in members}
    for model in PAPER_MODELS:
        subjects = {c.subject for c in plain if c.profile.label == model}
        ours = {"slackswap", "slackswap+", "genetic", "genetic-seeded"}
        assert baselines | ours | {"lagrangian"} <= subjects
    assert any(c.profile.label == "vgg16" and c.kind is CellKind.FACTS for c in cells)
    # One baseline of each kind of circumstance: prices, head, link, duplex, budget.
    assert len({c.variant for c in cells}) == 8


def test_timing_cells_come_first_and_alone() -> None:
    cells = load_suite("paper").cells()
    alone = [cell.alone for cell in cells]
    assert alone == sorted(alone, reverse=True)
    # The search is timed once, by its defaults; over seeds and counts only its plans matter.
    timed = [c for c in cells if c.subject == "genetic" and "evaluations" not in c.options]
    assert len(timed) == 3
    assert all(cell.alone for cell in timed)


def test_groups_multiply_out() -> None:
    suite = parse_suite(TEXT, "two")
    cells = suite.cells()
    main = [c for c in cells if c.variant == "" and c.kind is CellKind.PLAN]
    # Two profiles, two budgets; slackswap with one seed, genetic with two.
    assert len(main) == 2 * 2 * 3
    genetic = [c for c in main if c.subject == "genetic"]
    assert {c.seed for c in genetic} == {1, 2}
    assert {c.timeout_s for c in genetic} == {7.0}
    bounds = [c for c in cells if c.kind is CellKind.BOUND]
    assert len(bounds) == 4
    assert {c.variant for c in cells} == {"", "slow link", "cheap"}


def test_a_variant_of_prices_leaves_unpriced_profiles_out() -> None:
    text = TEXT.replace('name = "again"\nprofiles = ["bert-large"]',
                        'name = "again"\nprofiles = ["gpt-neo-2.7b-a100"]')
    cells = parse_suite(text, "two").cells()
    assert not [c for c in cells if c.variant == "cheap"]
    assert [c for c in cells if c.variant == "slow link"]


def test_selection_narrows_each_axis() -> None:
    suite = parse_suite(TEXT, "two").selected(
        profiles=["chain"], budgets=["0.5"], planners=["genetic"], seeds=[5], repeats=2,
        timeout_s=3.0,
    )
    plans = [c for c in suite.cells() if c.kind is CellKind.PLAN]
    assert {(c.profile.label, c.budget, c.subject, c.seed) for c in plans} == {
        ("chain", "0.5", "genetic", 5)
    }
    assert sorted(c.repeat for c in plans) == [0, 1]
    assert {c.timeout_s for c in plans} == {3.0}


def test_what_a_suite_lacks_joins_its_first_group() -> None:
    suite = parse_suite(TEXT, "two").selected(planners=["slackswap", "mine.py:Mine"])
    plans = [c for c in suite.cells() if c.kind is CellKind.PLAN]
    mine = [c for c in plans if c.subject == "mine.py:Mine"]
    assert len(mine) == 2 * 2
    assert {c.variant for c in mine} == {""}


def test_selecting_nothing_is_an_error() -> None:
    with pytest.raises(SlackSwapError, match="nothing"):
        parse_suite(TEXT.replace("[[group]]\nname = \"main\"", "[[group]]\nname = \"main\"", 1),
                    "two").selected(profiles=["chain"], planners=["slackswap"],
                                    budgets=["unlimited"], seeds=[]).selected(repeats=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "not TOML"),
        ("title = 'x'", "no group"),
        ("colour = 1", "no key 'colour'"),
        ("[[group]]\nprofile = ['bert-large']", "no key 'profile'"),
        ("[[group]]\nprofiles = ['bert-large']\nbudgets = ['half']", "half"),
        ("[[group]]\nprofiles = ['bert-large']\nvariants = ['x']", "variant 'x'"),
        ("[[group]]\nname = 'g'", "profiles"),
        ("[[group]]\nprofiles = ['bert-large']\nplanners = [{ nom = 'a' }]", "nom"),
    ],
)
def test_a_faulty_suite_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(InvalidFile, match=message):
        parse_suite(text, "faulty")


def test_an_unknown_suite_names_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="smoke"):
        load_suite("nonesuch")
