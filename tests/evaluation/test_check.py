"""The check kit: honest planners pass, and each planted fault is caught by the check for it."""

from __future__ import annotations

import subprocess
import sys
import unittest
from pathlib import Path

import pytest

from slackswap import InvalidPlanner, Plan, UnknownName, planner_names, resolve_planner, unregister
from slackswap.evaluation import CheckStatus, check_names, check_planner, run_checks
from slackswap.evaluation.check.rules import RULES
from slackswap.evaluation.check.template import write_planner

FAULTY = Path(__file__).with_name("faulty_planners.py")

CAUGHT_BY = {
    "MutatesArrays": "input-not-mutated",
    "MutatesProvenance": "input-not-mutated",
    "MutatesBudget": "input-not-mutated",
    "Overruns": "keeps-time-limit",
    "NeverReturns": "keeps-time-limit",
    "SeedsTheGlobalGenerator": "global-random-state-untouched",
    "DrawsFromNumpy": "global-random-state-untouched",
    "ExceedsMemory": "never-above-budget",
    "ReportsTooLargeAnIncumbent": "never-above-budget",
    "NeverSaysInfeasible": "says-infeasible",
    "GivesUpEasily": "ample-budget-costs-nothing",
    "SwapsForNothing": "ample-budget-costs-nothing",
    "ClaimsAFalseBound": "bound-below-optimum",
    "ClaimsNothingFits": "bound-below-optimum",
    "PromisesABound": "bound-below-optimum",
    "RemembersCalls": "same-seed-same-plan",
    "DependsOnTheSeed": "same-plan-for-every-seed",
    "DeniesSwapping": "declared-actions-only",
    "DeniesRecomputing": "declared-actions-only",
    "HoldsALambda": "picklable-under-spawn",
    "UnwritableParameter": "carries-provenance",
    "NamesAStranger": "valid-plan",
    "ReturnsNothing": "valid-plan",
    "FailsOnZeroBytes": "zero-bytes",
    "FailsOnOneOp": "single-op",
    "OffByOneByte": "one-byte-short",
    "DeniesItGetsSlower": "monotone-as-declared",
}

#: The timed check has a limit that planners meet with a wide margin, or miss by sleeping.
LIMIT = 0.05


def faulty(name: str) -> str:
    return f"{FAULTY}:{name}"


def outcome(target, check):
    (found,) = run_checks(target, [check], time_limit=LIMIT).outcomes
    return found


@pytest.mark.parametrize(("name", "check"), CAUGHT_BY.items())
def test_each_planted_fault_is_caught_by_its_check(name, check):
    found = outcome(faulty(name), check)
    assert found.status is CheckStatus.FAILED, found
    assert found.reason
    assert len(found.reason) < 500


@pytest.mark.parametrize("check", check_names())
def test_every_check_has_a_fault_that_it_catches(check):
    assert check in CAUGHT_BY.values()


@pytest.mark.parametrize("check", [name for name in check_names() if name != "keeps-time-limit"])
def test_the_honest_planner_they_start_from_passes(check):
    check_planner(faulty("Honest"), check)


def test_a_wide_time_limit_is_kept():
    check_planner(faulty("Honest"), "keeps-time-limit", time_limit=30)


def test_small_faults_leave_the_other_checks_alone():
    """A kit in which every check fails for every fault would name nothing."""
    untimed = [name for name in check_names() if name != "keeps-time-limit"]
    for name in ("MutatesBudget", "DrawsFromNumpy", "DependsOnTheSeed", "DeniesSwapping"):
        failed = run_checks(faulty(name), untimed).failed
        assert [found.name for found in failed] == [CAUGHT_BY[name]]


BUILT_IN = planner_names()
#: Searches that would walk through a whole small problem get less to do.
LESS = {"genetic": {"evaluations": 300}, "genetic-seeded": {"evaluations": 300}}


def built_in(name):
    if name == "pytorch-budget":
        pytest.importorskip("torch", reason="its solvers are PyTorch's")
    return resolve_planner(name, **LESS.get(name, {}))


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_planners_keep_the_quick_rules(name):
    checks = ["valid-plan", "carries-provenance", "never-above-budget", "says-infeasible",
              "single-op", "input-not-mutated", "global-random-state-untouched"]
    failed = run_checks(built_in(name), checks).failed
    assert not failed, failed


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_planners_keep_every_rule(name):
    # A limit long enough that what a busy machine adds is small beside it.
    assert check_planner(built_in(name), time_limit=5).passed


def test_one_that_never_returns_is_asked_once_and_the_rest_skipped():
    report = run_checks(faulty("NeverReturns"), ["keeps-time-limit", "valid-plan", "single-op"],
                        time_limit=LIMIT)
    assert [found.status for found in report.outcomes] == ["failed", "skipped", "skipped"]
    assert "did not return" in report.outcomes[0].reason
    assert "did not return" in report.outcomes[1].reason


def test_no_check_that_applies_is_no_pass():
    report = run_checks(faulty("DeclinesEverything"), time_limit=LIMIT)
    assert {found.status for found in report.outcomes} == {CheckStatus.SKIPPED}
    assert not report.passed
    assert all(found.reason for found in report.outcomes)
    with pytest.raises(AssertionError, match="no check ran"):
        check_planner(faulty("DeclinesEverything"), time_limit=LIMIT)


def test_a_lone_check_that_does_not_apply_skips_the_test():
    with pytest.raises(unittest.SkipTest, match="no bound"):
        check_planner(faulty("Honest"), "bound-below-optimum")


def test_failures_name_planner_check_and_reason():
    with pytest.raises(AssertionError) as caught:
        check_planner(faulty("MutatesArrays"), "input-not-mutated")
    assert str(caught.value).startswith("honest: input-not-mutated: changed problem.profile.graph")


def test_a_function_and_an_instance_can_be_checked():
    def everything_kept(problem, *, rng, time_limit, report):
        return Plan()

    assert outcome(everything_kept, "valid-plan").status is CheckStatus.PASSED
    assert outcome(everything_kept, "never-above-budget").status is CheckStatus.FAILED
    assert outcome(resolve_planner("slackswap"), "single-op").status is CheckStatus.PASSED


def test_what_cannot_be_checked_is_a_typed_error():
    with pytest.raises(UnknownName, match="no check is called 'tidy'"):
        run_checks("slackswap", ["tidy"])
    with pytest.raises(UnknownName):
        run_checks("no-such-planner")
    with pytest.raises(InvalidPlanner):
        run_checks("no_such_file.py:X")


def test_every_rule_says_what_it_checks():
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.promise
        assert not rule.promise.endswith(".")
        assert not rule.promise.startswith("Check")


def test_the_report_counts():
    report = run_checks(faulty("DeniesSwapping"), ["valid-plan", "declared-actions-only",
                                                   "monotone-as-declared"])
    assert report.summary() == "honest: 2 checks ran, 1 failed, 1 skipped"
    document = report.to_dict()
    assert (document["ran"], document["failed"], document["skipped"]) == (2, 1, 1)
    assert [check["status"] for check in document["checks"]] == ["passed", "failed", "skipped"]


# --------------------------------------------------------------------------- planners new


@pytest.fixture
def _forget_my_planner():
    yield
    unregister("my-planner")


@pytest.mark.usefixtures("_forget_my_planner")
def test_a_new_planner_keeps_every_rule(tmp_path):
    planner, test = write_planner("my-planner", tmp_path / "new" / "folder")
    assert (planner.name, test.name) == ("my_planner.py", "test_my_planner.py")
    untimed = [name for name in check_names() if name != "keeps-time-limit"]
    report = run_checks(f"{planner}:MyPlanner", untimed)
    assert report.passed, report.failed
    assert report.planner == "my-planner"


@pytest.mark.slow
def test_the_test_of_a_new_planner_runs_as_it_is(tmp_path):
    write_planner("my-planner", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_planner.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(check_names()) + 1 - 2} passed, 2 skipped" in done.stdout


@pytest.mark.parametrize(
    "name",
    ["", "my planner", "../x", "-x", "9lives", "a--b", "class", "keep-all", "é", "a/b", "x\n"],
)
def test_impossible_names_write_nothing(tmp_path, name):
    with pytest.raises(InvalidPlanner) as caught:
        write_planner(name, tmp_path / "folder")
    assert caught.value.fix
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "test_mine.py").write_text("precious")
    with pytest.raises(InvalidPlanner, match="there already"):
        write_planner("mine", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["test_mine.py"]
    assert (tmp_path / "test_mine.py").read_text() == "precious"
