"""``slackswap evaluate`` and ``slackswap results`` on a small suite."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from slackswap.cli.main import main

SUITE = """
title = "Small"
description = "Two planners on a chain."
[[group]]
name = "main"
profiles = [{ generate = "deep-chain", n = 8, label = "chain" }]
budgets = ["0.8", "1.0"]
planners = ["swap-all", "block-checkpointing", "slackswap"]
bounds = ["compute"]
alone = false
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("suite") / "small.toml"
    path.write_text(SUITE, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def results(suite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results") / "small"
    assert main(["evaluate", str(suite), "--output", str(folder)]) == 0
    return folder


def test_a_dry_run_measures_and_writes_nothing(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    assert main(["evaluate", str(suite), "--output", str(folder), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "Small" in said
    assert "chain" in said
    assert "estimate" in said
    assert not folder.exists()


def test_the_summary_fits_a_hundred_columns_and_ends_with_the_report(
    suite: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(suite), "--output", str(results)]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[-1].split() == ["report:", str(results / "report.html")]
    assert max(len(line) for line in lines if str(results) not in line) <= 100
    assert "cells, last:" not in said.err, "everything was stored already"
    assert (results / "report.html").is_file()


def test_a_selection_and_its_json(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([
        "evaluate", str(suite), "--output", str(tmp_path / "r"), "-b", "1.0", "--planner",
        "slackswap", "--no-report", "--json", "--timeout", "30s", "-r", "2",
    ])
    answer = json.loads(capsys.readouterr().out)
    assert code == 0
    assert sum(answer["statuses"].values()) == 2
    assert answer["report"] is None
    assert {entry["verdict"] for entry in answer["claims"]} <= {
        "reproduced", "differs", "uninformative", "not testable here"
    }


def test_an_own_planner_joins_by_file(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from slackswap import Plan\n\n"
        "def mine(problem, *, rng, time_limit, report):\n    return Plan({})\n",
        encoding="utf-8",
    )
    code = main(["evaluate", str(suite), "--output", str(tmp_path / "r"), "--no-report", "-b",
                 "1.0", "--planner", f"{path}:mine", "--planner", "slackswap"])
    assert code == 0
    assert "mine.py:mine" in capsys.readouterr().out.replace("\n", "")


def test_an_error_or_no_answer_at_all_ends_with_code_1(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from slackswap import Plan, Skipped\n\n"
        "def fails(problem, *, rng, time_limit, report):\n    raise KeyError('x')\n\n"
        "def skips(problem, *, rng, time_limit, report):\n    raise Skipped('not here')\n",
        encoding="utf-8",
    )
    plain = ["evaluate", str(suite), "--no-report", "-b", "1.0", "--output"]
    erred = [*plain, str(tmp_path / "1"), "--planner", f"{path}:fails", "--planner", "slackswap"]
    assert main(erred) == 1
    assert "KeyError at mine.py:4" in capsys.readouterr().out.replace("\n", "")
    assert main([*plain, str(tmp_path / "2"), "--planner", f"{path}:skips"]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonesuch"], "there is no suite"),
        (["smoke", "--timeout", "soon"], "not a time"),
        (["smoke", "--rerun", "some"], "not known"),
        (["smoke", "-b", "a lot"], "not understood"),
        (["smoke", "--planner", "slakswap"], "did you mean 'slackswap'?"),
        (["smoke", "-p", "bert"], "did you mean 'bert-large'"),
        (["smoke", "--planner", "no_such.py:Mine"], "there is no file no_such.py"),
    ],
)
def test_bad_input_ends_with_code_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["evaluate", *arguments, "--output", str(tmp_path / "r"), "--dry-run"])
    assert code == 2
    assert message in " ".join(capsys.readouterr().err.split())  # long lines wrap


def test_results_are_shown_exported_and_merged(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "show", str(results)]) == 0
    assert "block-checkpointing" in capsys.readouterr().out
    assert main(["results", "show", str(results), "--claims"]) == 0
    assert capsys.readouterr().out.startswith("| the paper | here | verdict |")

    page = tmp_path / "page.md"
    page.write_text("before\n<!-- claims: begin -->\nstale words\n<!-- claims: end -->\nafter\n",
                    encoding="utf-8")
    for _ in range(2):  # a second time changes nothing
        assert main(["results", "show", str(results), "--claims", "--into", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "stale words" not in text
    assert text.count("| the paper | here |") == 1
    page.write_text("no marks", encoding="utf-8")
    assert main(["results", "show", str(results), "--into", str(page)]) == 2
    assert page.read_text(encoding="utf-8") == "no marks"
    capsys.readouterr()

    table = tmp_path / "table.csv"
    assert main(["results", "export", str(results), "--output", str(table)]) == 0
    assert len(pd.read_csv(table)) == 6
    other = tmp_path / "table"
    assert main(
        ["results", "export", str(results), "--output", str(other), "--format", "parquet"]
    ) == 0
    assert len(pd.read_parquet(other)) == 6

    merged = tmp_path / "merged"
    assert main(["results", "merge", str(results), str(results), "--output", str(merged)]) == 0
    assert main(["results", "export", str(merged), "--output", str(table)]) == 0
    assert len(pd.read_csv(table)) == 6
    assert len(list((merged / "plans").iterdir())) == len(list((results / "plans").iterdir()))


def test_a_folder_without_results_ends_with_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "show", str(tmp_path)]) == 2
    assert "no results" in capsys.readouterr().err


def test_a_dry_run_answers_programs(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(suite), "-o", str(tmp_path / "r"), "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (group,) = document["groups"]
    assert group["planners"] == ["swap-all", "block-checkpointing", "slackswap"]
    assert document["cells"] == document["to_run"] == group["cells"] == 9
    assert document["stored"] == 0


def test_results_answer_programs(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(*arguments: object) -> dict[str, object]:
        assert main(["results", *map(str, arguments), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["status"] == "ok"
        return dict(document)

    assert answer("show", results)["cells"] == 9
    assert answer("merge", results, "-o", tmp_path / "all")["added"] == 9
    exported = answer("export", results, "-o", tmp_path / "all.csv")
    frame = pd.read_csv(tmp_path / "all.csv")
    assert exported["rows"] == len(frame)
    assert exported["columns"] == list(frame.columns)


def test_results_and_its_commands_say_what_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["results", "--help"]) == 0
    said = capsys.readouterr().out
    for line in ("Show, merge and export the results of suites.", "Print the tables",
                 "Join stored results", "Write all results"):
        assert line in said
