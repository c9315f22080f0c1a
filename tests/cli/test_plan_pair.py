"""`compare --plan A --plan B`, `--html`, and what each class of plans can reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackswap import Action, Plan, Problem, Profile
from slackswap.evaluation.run.sources import HardwareSource, ProfileSource, build_profile
from slackswap.profiles.library import hardware_of
from slackswap.search.bounds import class_ceilings

BUDGET = "90%"


@pytest.fixture
def plans(here, cli):
    """Two plans of ``small.json``: that of SlackSwap within a budget, and keeping everything."""
    assert cli("plan", "small.json", "-b", BUDGET, "-o", "a.json", "--bound", "none").code == 0
    Plan().save("b.json")
    return "--plan", "a.json", "--plan", "b.json"


def test_two_plans_differ_by_the_tensors_that_they_treat_differently(cli, plans):
    document = cli("compare", "small.json", "-b", "100%", *plans, "--json").json
    profile, plan = Profile.load("small.json"), Plan.load("a.json")
    moved = {name for name, action in plan.actions.items() if action is not Action.KEEP}
    saved = {tensor.name for tensor in profile.tensors}
    assert moved
    assert {change["tensor"] for change in document["changes"]} == moved & saved
    assert all(change["after"] == "keep" for change in document["changes"])
    assert [each["file"] for each in document["plans"]] == ["a.json", "b.json"]


def test_two_plans_are_printed_and_written_as_one_page(cli, plans):
    result = cli("compare", "small.json", "-b", "100%", *plans, "--html", "page.html")
    assert result.code == 0, result.err
    assert "a.json" in result.out
    assert "recompute" in result.out
    page = Path("page.html").read_text(encoding="utf-8")
    assert "a.json" in page
    assert 'src="http' not in page


def test_the_same_plan_twice_has_no_differences(cli, plans):
    result = cli("compare", "small.json", "-b", "100%", "--plan", "b.json", "--plan", "b.json")
    assert "the same with every tensor" in result.out


@pytest.mark.parametrize("count", [1, 3])
def test_it_takes_two_plans(cli, plans, count):
    result = cli("compare", "small.json", "-b", "100%", *(("--plan", "b.json") * count))
    assert result.code == 2
    assert "give two" in result.err


def test_the_two_fastest_of_a_ranking_make_a_page(here, cli):
    asked = ("compare", "small.json", "-b", BUDGET, "-p", "slackswap", "-p", "chen-greedy",
             "--bound", "none", "--html", "page.html")
    assert cli(*asked).code == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert "chen-greedy" in page
    alone = cli("compare", "small.json", "-b", BUDGET, "-p", "slackswap", "--bound", "none",
                "--html", "page.html")
    assert alone.code == 3
    assert "two plans are needed" in alone.err


def test_what_each_class_of_plans_reaches_stands_beside_the_bound(here, cli):
    asked = ("compare", "small.json", "-b", "60%", "-p", "slackswap", "-p", "swap-all", "-p",
             "recompute-all")
    document = cli(*asked, "--json").json
    profile = Profile.load("small.json")
    problem = Problem(profile, hardware_of(profile), "60%")
    assert document["ceilings"] == pytest.approx(
        class_ceilings(problem).throughput(problem.profile.duration_ns)
    )
    said = cli(*asked).out
    assert "swapping alone" in said
    assert "recomputing alone" in said


def test_that_the_least_budget_was_not_found_is_said(here, cli, monkeypatch):
    from slackswap import SolverFailed

    def fails(*args, **kwargs):
        raise SolverFailed("the solver stopped")

    monkeypatch.setattr("slackswap.search.feasibility.least_budget", fails)
    asked = ("plan", "small.json", "-b", "1%", "--bound", "lp")
    assert "was not found: the solver stopped" in " ".join(cli(*asked).out.split())
    assert cli(*asked, "--json").json["least_budget_note"] == "the solver stopped"


def test_one_syntax_names_a_variant(here, cli):
    by_name = cli("profiles", "show", "llama-7b@batch=2,sequence=512", "--json").json
    by_option = cli("profiles", "show", "llama-7b", "--batch", "2", "--sequence", "512", "--json")
    assert by_name == by_option.json
    in_a_suite = ProfileSource.of("llama-7b@batch=2,sequence=512")
    assert in_a_suite.label == "llama-7b@batch=2,sequence=512"
    built = build_profile(in_a_suite, HardwareSource.of({"name": "a100-80gb"}))
    assert built.sha256 == by_name["sha256"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("llama-7b@", "'' is not a size"),
        ("llama-7b@bach=4", "did you mean 'batch'"),
        ("llama-7b@batch=4,batch=4", "given twice"),
        ("llama-7b@batch=0", "not a positive integer"),
        ("llama-7b@batch=-1", "not a positive integer"),
        ("llama-7b@batch=1.5", "not a positive integer"),
        ("llama-7b@batch", "not a positive integer"),
        ("lama-7b@batch=4", "did you mean 'llama-7b'"),
        ("small.json@batch=4", "cannot be changed in a file"),
        ("vgg16@sequence=4", "sequence"),
    ],
)
def test_a_variant_that_cannot_be_is_refused(here, cli, name, why):
    result = cli("plan", name, "-b", "50%")
    assert result.code == 2, result.out
    assert why in " ".join(result.err.split())  # long lines wrap
