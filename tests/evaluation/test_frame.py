"""The tidy table: figures, bounds and gaps as the rows promise."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from results_for_tests import UNLIMITED_NS, frame_of, made_up, made_up_bound

from slackswap.errors import SlackSwapError
from slackswap.evaluation.analysis.frame import COLUMNS, export, latest, load_results
from slackswap.evaluation.run.store import Store
from slackswap.status import Status


def test_columns_are_the_documented_ones() -> None:
    frame = frame_of(made_up("slackswap"))
    assert list(frame.columns) == list(COLUMNS)
    assert {str(kind) for kind in frame.dtypes} <= {"string", "Int64", "Float64", "boolean"}
    assert list(frame_of().columns) == list(COLUMNS)


def test_gap_is_to_the_strongest_bound_of_the_problem() -> None:
    frame = frame_of(
        made_up("slackswap", time=1.25), made_up_bound(time=1.1),
        made_up_bound(time=1.2, seed=1), made_up("other", "gpt2-xl", time=1.5),
    )
    mine = frame[frame["planner"] == "slackswap"].iloc[0]
    assert mine["bound_ns"] == round(1.2 * UNLIMITED_NS)
    assert mine["gap"] == pytest.approx(1.25 / 1.2 - 1)
    # Another problem has no bound here.
    assert frame[frame["planner"] == "other"]["gap"].isna().all()


def test_a_planners_own_bound_counts_for_all() -> None:
    own = {"bound_ns": round(1.24 * UNLIMITED_NS), "bound_method": "milp", "bound_safe": False,
           "bound_tolerance": 1e-6, "bound_status": "optimal", "bound_solver": "highs"}
    frame = frame_of(made_up("milp", figures=own), made_up("slackswap", time=1.3))
    assert set(frame["bound_method"]) == {"milp"}
    assert not frame["bound_safe"].any()
    # The solver is that of the planner which ran it, not of all that its bound judges.
    assert frame.set_index("planner")["solver"].isna().to_dict() == {
        "milp": False, "slackswap": True
    }


def test_a_bound_for_plans_without_gates_does_not_judge_those_with() -> None:
    frame = frame_of(
        made_up("plain", time=1.25), made_up("gated", time=1.21, figures={"has_order": True}),
        made_up_bound(time=1.25, gated=False), made_up_bound(time=1.1, gated=True, seed=1),
    ).set_index("planner")
    assert frame.loc["plain", "gap"] == 0
    assert frame.loc["plain", "status"] == "optimal"
    assert frame.loc["gated", "gap"] == pytest.approx(1.21 / 1.1 - 1)
    assert not frame["bound_violated"].any()


def test_a_violated_bound_is_flagged_and_no_gap_is_given() -> None:
    frame = frame_of(
        made_up("slackswap", time=1.25), made_up("milp", time=1.15), made_up_bound(time=1.2)
    )
    assert frame["bound_violated"].all()
    assert frame["gap"].isna().all()
    assert frame["bound_ns"].isna().all()


def test_a_late_or_missing_answer_has_no_figures() -> None:
    frame = frame_of(
        made_up("late", time=1.2, status=Status.TIMEOUT), made_up("none", time=None)
    )
    assert frame["iteration_ns"].isna().all()
    assert frame["throughput"].isna().all()
    assert not frame["solved"].any()


def test_noise_is_told_by_the_reference_task() -> None:
    from dataclasses import replace

    records = []
    for seed in range(20):
        record = made_up("slackswap", seed=seed)
        slow = 0.02 if seed == 7 else 0.01
        records.append(
            replace(record, circumstances=replace(record.circumstances, reference_s=slow))
        )
    frame = load_results(records)
    assert list(frame.loc[frame["noisy"], "seed"]) == [7]


def test_latest_drops_what_was_measured_before() -> None:
    old = made_up("slackswap", time=1.3, finished_at="2026-01-01T00:00:00+00:00")
    new = made_up("slackswap", time=1.2, finished_at="2026-02-01T00:00:00+00:00")
    rows = latest(frame_of(old, new, made_up("milp")))
    assert sorted(rows["planner"]) == ["milp", "slackswap"]
    assert rows.set_index("planner").loc["slackswap", "iteration_ns"] == 1.2 * UNLIMITED_NS


def test_results_load_from_a_folder(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.writing():
        store.write(made_up("slackswap"))
        store.write(made_up_bound())
    frame = load_results(tmp_path)
    assert len(frame) == 1
    assert frame["gap"].notna().all()
    assert load_results(str(tmp_path)).equals(frame)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_exported_tables_read_back(tmp_path: Path, kind: str) -> None:
    frame = frame_of(made_up("slackswap"), made_up("milp", time=None), made_up_bound())
    path = tmp_path / f"table.{kind}"
    export(frame, path)
    back = pd.read_csv(path) if kind == "csv" else pd.read_parquet(path)
    assert list(back.columns) == list(frame.columns)
    assert back["planner"].tolist() == frame["planner"].tolist()
    assert back["iteration_ns"].astype("Int64").equals(frame["iteration_ns"])


def test_other_formats_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(SlackSwapError, match="xlsx"):
        export(frame_of(made_up("slackswap")), tmp_path / "table.xlsx")
    assert not list(tmp_path.iterdir())


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch, tmp_path):
    from slackswap.evaluation.analysis import frame

    monkeypatch.setattr(frame, "find_spec", lambda name: None)
    with pytest.raises(SlackSwapError, match=r"slackswap\[parquet\]"):
        frame.export(pd.DataFrame({"a": [1]}), tmp_path / "out.parquet")
    assert not list(tmp_path.iterdir())
