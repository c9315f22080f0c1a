"""What notebooks show."""

from __future__ import annotations

import pytest

from slackswap import Evaluation, Hardware, Plan, Problem, Profile, simulate, solve
from slackswap.evaluation.report.render import render
from slackswap.plan import PlannerInfo
from slackswap.profiles.catalogue import DEFAULT_HARDWARE
from slackswap.profiles.generators.random_dag import deep_chain_profile


@pytest.fixture(scope="module")
def profile() -> Profile:
    return deep_chain_profile(8, name="chain <8>")


@pytest.fixture(scope="module")
def problem(profile: Profile) -> Problem:
    return Problem(profile, DEFAULT_HARDWARE, "0.7")


def test_objects_render_themselves(profile: Profile, problem: Problem) -> None:
    plan = Plan({"t1": "swap", "t2": "recompute"}, planner=PlannerInfo("hand", "1", {"a": 2}, 3))
    solution = solve(problem, "swap-all")
    for value in (profile, problem, plan, simulate(problem, plan), solution):
        html = value._repr_html_()
        assert html == render(value)
        assert html.count("<tr>") >= 1
        assert html.count("<table>") == html.count("</table>") == 1


def test_names_are_escaped(profile: Profile) -> None:
    assert "chain &lt;8&gt;" in render(profile)
    assert "<8>" not in render(profile)


def test_figures_are_those_of_the_object(problem: Problem) -> None:
    solution = solve(problem, "swap-all")
    assert solution.evaluation is not None
    if solution.evaluation.throughput is not None:
        assert f"{solution.evaluation.throughput:.2%}" in render(solution)
    assert "29.4 MB" in render(problem) or "MB" in render(problem)
    assert "1 swap" in render(Plan({"t1": "swap"}))


def test_what_does_not_fit_says_why(problem: Problem) -> None:
    html = render(simulate(problem.with_budget("0.5"), Plan({})))
    assert "no:" in html
    assert "short" in html
    assert "there is no plan" in render(Evaluation(feasible=False))


def test_anything_else_is_escaped_text() -> None:
    assert render("<b>") == "<pre>&#x27;&lt;b&gt;&#x27;</pre>"
    assert "half" in render(Hardware("h", 10, 10, full_duplex=False))
