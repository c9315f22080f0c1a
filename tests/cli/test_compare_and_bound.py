"""`slackswap compare` and `slackswap bound`."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackswap import Problem, Profile, load_hardware, planner_names
from slackswap.search.bounds import lower_bound


def small(budget=0.6) -> Problem:
    return Problem(Profile.load("small.json"), load_hardware("a100-80gb"), budget)


PLANNERS = ("-p", "swap-all", "-p", "slackswap", "-p", "keep-all", "-p", "block-checkpointing")


def test_planners_are_ranked_by_time(here, cli):
    document = cli("compare", "small.json", "-b", "60%", *PLANNERS, "--json").json
    results = document["results"]
    times = [row["iteration_ns"] for row in results if row["feasible"]]
    assert times == sorted(times)
    assert len(results) == 4
    assert not results[-1]["feasible"]
    assert results[-1]["status"] == "infeasible"
    assert results[-1]["reason"]
    best = {key: value for key, value in document.items() if key not in ("results", "ceilings")}
    assert best == results[0]
    assert {row["bound_ns"] for row in results} == {document["bound_ns"]}
    assert all(row["gap"] >= 0 for row in results if row["feasible"])


def test_ceilings_by_class_stand_beside_the_bound(here, cli):
    document = cli("compare", "small.json", "-b", "60%", "-p", "slackswap", "--json").json
    ceilings, best = document["ceilings"], document["throughput"]
    assert set(ceilings) == {"swap_only", "recompute_only", "every_plan"}
    assert ceilings["every_plan"] >= best
    assert all(value is None or value <= ceilings["every_plan"] for value in ceilings.values())
    out = cli("compare", "small.json", "-b", "60%", "-p", "slackswap").out
    assert "swapping alone" in out
    assert "recomputing alone" in out


def test_the_table_says_the_same_in_a_hundred_columns(here, cli):
    result = cli("compare", "small.json", "-b", "60%", *PLANNERS)
    assert result.code == 0
    lines = result.out.splitlines()
    assert max(map(len, lines)) <= 100
    heading = next(line for line in lines if line.startswith("planner"))
    for column in ("throughput", "stall", "recompute", "out/back", "peak", "planning", "gap"):
        assert column in heading
    ranked = [row["planner"] for row in
              cli("compare", "small.json", "-b", "60%", *PLANNERS, "--json").json["results"]]
    assert [line.split()[0] for line in lines if line.split()[:1] in
            ([name] for name in ranked)] == ranked
    assert any(line.startswith("keep-all") and "infeasible" in line for line in lines)
    assert result.err == ""


def test_all_planners_there_are_by_default(here, cli):
    document = cli("compare", "small.json", "-b", "70%", "--time-limit", "2", "--json").json
    assert {row["planner"] for row in document["results"]} == set(planner_names())
    assert {row["status"] for row in document["results"]} <= {
        "optimal", "feasible", "infeasible", "skipped", "timeout"
    }, [row for row in document["results"] if row["status"] == "error"]


def test_one_planners_fault_is_its_row(here, cli):
    Path("mine.py").write_text(
        "from slackswap import Plan, Skipped\n"
        "def faulty(problem, *, rng, time_limit, report):\n    return 1 / 0\n"
        "def invalid(problem, *, rng, time_limit, report):\n    return Plan({'zz': 'keep'})\n"
        "def idle(problem, *, rng, time_limit, report):\n    raise Skipped('needs [a licence]')\n"
    )
    arguments = ("compare", "small.json", "-b", "60%", "-p", "mine.py:faulty", "-p", "slackswap",
                 "-p", "mine.py:invalid", "-p", "mine.py:idle", "--bound", "none")
    rows = {row["planner"]: row for row in cli(*arguments, "--json").json["results"]}
    assert rows["slackswap"]["feasible"]
    assert rows["mine.py:faulty"]["status"] == "error"
    assert "ZeroDivisionError" in rows["mine.py:faulty"]["reason"]
    assert rows["mine.py:invalid"]["status"] == "error"
    assert "'zz'" in rows["mine.py:invalid"]["reason"]
    assert rows["idle"]["status"] == "skipped"
    people = cli(*arguments)
    assert people.code == 0
    assert "needs [a licence]" in people.out


def test_no_planner_with_a_plan_is_exit_code_three(here, cli):
    result = cli("compare", "small.json", "-b", "1000B", "-p", "slackswap", "-p", "keep-all")
    assert result.code == 3
    assert "no plan fits, proven" in result.out
    document = cli("compare", "small.json", "-b", "1000B", "-p", "keep-all", "--json").json
    assert document["status"] == "infeasible"
    assert document["least_budget"]["proven_bytes"] > 1000
    assert "memory binds at" in result.out


def test_a_planner_named_twice_is_asked_once(here, cli):
    document = cli("compare", "small.json", "-b", "60%", "-p", "slackswap", "-p", "slackswap",
                   "--bound", "none", "--json").json
    assert len(document["results"]) == 1


# --------------------------------------------------------------------------- bound


@pytest.mark.parametrize("method", ["compute", "lagrangian", "lp", "milp"])
def test_bounds_are_those_of_the_api(here, cli, method):
    result = cli("bound", "small.json", "-b", "60%", "--method", method, "--json")
    assert result.code == 0
    document = result.json
    expected = lower_bound(small(), method)
    assert document["bound_ns"] == expected.value_ns
    assert document["bound_method"] == method
    assert document["status"] == str(expected.status)
    assert document["budget_bytes"] == small().budget_bytes
    assert document["highest_throughput"] <= 1
    people = cli("bound", "small.json", "-b", "60%", "--method", method).out
    assert f"{expected.value_ns} ns" in people
    assert "no plan takes less than" in people


def test_the_lagrangian_is_the_default_and_exact(here, cli):
    document = cli("bound", "small.json", "-b", "60%", "--json").json
    assert document["bound_method"] == "lagrangian"
    assert document["bound_safe"] is True


def test_small_profiles_can_be_enumerated_and_others_say_so(here, cli):
    from samples import profile_document

    Profile.from_dict(profile_document()).save("tiny.json")
    result = cli("bound", "tiny.json", "-b", "100%", "--method", "enumerate", "--json")
    assert result.code == 0
    assert result.json["bound_method"] == "enumeration"
    assert result.json["bound_ns"] == 30
    assert "without gates" in cli("bound", "tiny.json", "-b", "100%", "--method", "enumerate").out
    large = cli("bound", "small.json", "-b", "60%", "--method", "enumerate", "--json")
    assert large.code == 2
    assert large.json["status"] == "skipped"


def test_a_budget_that_nothing_fits_is_an_answer(here, cli):
    result = cli("bound", "small.json", "-b", "1000B")
    assert result.code == 3
    assert "no plan fits, proven" in result.out
    document = cli("bound", "small.json", "-b", "1000B", "--json").json
    assert document["status"] == "infeasible"
    assert document["highest_throughput"] is None
    assert document["least_budget"]["proven_bytes"] > 1000
    assert "memory binds at" in result.out
