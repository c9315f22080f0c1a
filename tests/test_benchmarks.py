"""Every benchmark runs, on small sizes; what it measures is not judged here."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
# At the end: the folders at the root must not hide what is installed.
sys.path.append(str(ROOT))

from benchmarks import __main__ as command  # noqa: E402
from benchmarks.kernel import plans_around  # noqa: E402
from benchmarks.quality import variants  # noqa: E402
from benchmarks.scale import Scale, layered, library_problem  # noqa: E402
from benchmarks.tables import VERDICT, WIDTH, Column, Goal, Table, print_table  # noqa: E402
from slackswap.cost_model.scorer import Scorer  # noqa: E402

SMALL = Scale(
    models=("opt-350m-a100",), measured=(), budgets=(0.8,), growth=(60, 120), chain=(64, 128),
    draws=1, held_out=(60,), small=12, repeats=1, plans=8, candidates=120, milp_time_limit=1.0,
    cold=False,
)
EXPECTED = {
    "startup": {"startup"},
    "kernel": {"kernel", "kernel-growth"},
    "planning": {"planning", "planning-growth", "planning-chain"},
    "quality": {"quality", "gaps", "gaps-layered", "small", "sensitivity"},
    "bounds": {"bounds", "bounds-growth"},
    "genetic": {"genetic", "genetic-operators"},
    "execution": {"execution", "execution-overhead"},
}


@cache
def tables_of(name: str) -> tuple[Table, ...]:
    return tuple(command.run([name], SMALL))


def test_every_benchmark_is_expected_here() -> None:
    assert set(EXPECTED) == set(command.BENCHMARKS)


@pytest.mark.parametrize("name", command.BENCHMARKS)
def test_yields_tables_with_rows_that_fit_the_page(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "execution":
        pytest.importorskip("torch", reason="running a plan needs the torch extra")
    tables = tables_of(name)
    assert {table.name for table in tables} == EXPECTED[name]
    for table in tables:
        assert table.rows
        known = {column.key for column in table.columns}
        assert all(known & set(row) for row in table.rows)
        json.dumps(table.to_dict(), allow_nan=False)
        print_table(table)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= WIDTH
        headings = " ".join(lines)
        for column in table.columns:
            assert column.heading in headings, "a heading was cut"


def test_certified_gaps_and_ratios_follow_from_the_figures() -> None:
    claims, gaps, _, _, sensitivity = tables_of("quality")
    (row,) = claims.rows
    assert row["ratio"] == row["throughput"] / row["checkpointing"]
    assert row["throughput"] <= row["ceiling"]
    assert [row["budget"] for row in gaps.rows] == [0.5, 0.5, 0.8, 0.8]
    rule, plus = gaps.rows[0]["gap"], gaps.rows[1]["gap"]
    assert 0 <= plus <= rule
    assert gaps.rows[0]["throughput"] == row["throughput"]
    plain = [row for row in sensitivity.rows if row["variant"] == "as it is"]
    assert [row["throughput"] for row in plain] == [row["throughput"] for row in claims.rows]


def test_variants_change_one_thing_each() -> None:
    found = dict(variants("gpt2-xl"))
    plain = found.pop("as it is")
    assert len(found) == 7
    for label, problem in found.items():
        changed = (
            problem.profile.sha256 != plain.profile.sha256,
            problem.hardware != plain.hardware,
            problem.profile is plain.profile and problem.budget_bytes != plain.budget_bytes,
        )
        assert sum(changed) == 1, label


def test_measured_profiles_have_no_other_prices() -> None:
    assert [label for label, _ in variants("opt-350m-a100")] == [
        "as it is", "link x0.8", "link x1.2", "half duplex", "budget -5%",
    ]


def test_kernel_is_fed_the_same_plans_each_time_and_many_fit() -> None:
    problem = library_problem("bert-large")
    codes = plans_around(problem, 50)
    assert (codes == plans_around(problem, 50)).all()
    assert len({row.tobytes() for row in codes}) > 40
    assert Scorer(problem).score(codes).feasible.sum() >= 10


def test_growing_profiles_are_drawn_anew_and_again() -> None:
    assert layered(100, 1) == layered(100, 1)
    assert layered(100, 1) != layered(100, 2)


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [
        (Goal(1.0), 1.0, True), (Goal(1.0), 1.5, False), (Goal(1.0), None, False),
        (Goal(1.0, at_least=True), 1.5, True), (Goal(1.0, at_least=True), 0.5, False),
    ],
)
def test_goal_judges(goal: Goal, value: float | None, met: bool) -> None:
    assert goal.judged(value)["met"] is met


def _table(*met: bool | None) -> Table:
    rows = [{"what": f"row {number}", "met": value} for number, value in enumerate(met)]
    return Table("t", "T", (Column("what", "what", left=True), *VERDICT), rows)


def test_missed_targets_are_found() -> None:
    table = _table(True, False, None)
    assert command.missed([table]) == [(table, 1)]


def test_command_prints_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in = ModuleType("benchmarks.kernel")
    stand_in.tables = lambda scale: iter([_table(True, False)])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchmarks.kernel", stand_in)
    file = tmp_path / "bench.json"
    assert command.main(["kernel", "--quick", "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "1 of 2 rows with a target meet it" in out
    assert "missed in t: row 1" in out
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["quick"] is True
    assert document["tables"][0]["rows"][1] == {"what": "row 1", "met": False}
    assert document["machine"]["cores"] >= 1


def test_command_rejects_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(["speed"])
    assert stop.value.code == 2
    assert "no benchmark is called 'speed'" in capsys.readouterr().err
