"""The store: whole files or none, unions, one run at a time."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from results_for_tests import made_up

from slackswap.errors import InvalidFile, SlackSwapError, SlackSwapWarning
from slackswap.evaluation.run.record import Record
from slackswap.evaluation.run.store import Store, merge
from slackswap.status import Status


def _store(folder: Path, *records: Record) -> Store:
    store = Store(folder)
    with store.writing():
        for record in records:
            store.write(record)
    return store


def test_a_record_survives_storage(tmp_path: Path) -> None:
    record = made_up("slackswap")
    store = _store(tmp_path, record)
    assert store.read(record.key) == record
    assert list(store.records()) == [record]


def test_a_plan_lies_beside_its_record(tmp_path: Path) -> None:
    record = replace(made_up("slackswap"), plan={"schema": "slackswap.plan/1", "actions": {}})
    store = _store(tmp_path, record)
    assert store.plan_path(record.key).is_file()
    assert store.read(record.key) == replace(record, plan=None)


def test_a_full_disk_loses_nothing_that_was_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = made_up("slackswap"), made_up("milp")
    store = _store(tmp_path, first)
    before = sorted(path.name for path in store.cells.iterdir())

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with store.writing(), pytest.raises(InvalidFile, match="No space left"):
        store.write(second)
    assert sorted(path.name for path in store.cells.iterdir()) == before
    assert store.read(first.key) == first


def test_what_a_killed_run_was_writing_is_cleared(tmp_path: Path) -> None:
    store = _store(tmp_path, made_up("slackswap"))
    leftover = store.cells / ".0123.json.abcd"
    leftover.write_text('{"half', encoding="utf-8")
    assert len(list(store.records())) == 1
    with store.writing():
        assert not leftover.exists()


def test_two_runs_cannot_hold_one_store(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.writing(), pytest.raises(SlackSwapError, match="in use"), store.writing():
        pass
    with store.writing():
        pass


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "other/1"}', '{"schema": 3}'])
def test_a_damaged_file_is_reported_and_left_out(tmp_path: Path, text: str) -> None:
    record = made_up("slackswap")
    store = _store(tmp_path, record)
    (store.cells / f"{record.key}.json").write_text(text, encoding="utf-8")
    with pytest.warns(SlackSwapWarning, match=record.key):
        assert store.read(record.key) is None


def test_merging_is_a_union(tmp_path: Path) -> None:
    a, b, c = made_up("slackswap"), made_up("milp"), made_up("genetic")
    one, two = _store(tmp_path / "one", a, b), _store(tmp_path / "two", b, c)
    target = Store(tmp_path / "all")
    assert merge(target, [one, two]) == {"added": 3, "replaced": 0, "kept": 1}
    assert {record.key for record in target.records()} == {a.key, b.key, c.key}
    # Again, and the other way round: nothing changes.
    assert merge(target, [two, one]) == {"added": 0, "replaced": 0, "kept": 4}


def test_merging_prefers_an_answer_then_the_later_one(tmp_path: Path) -> None:
    good = made_up("slackswap", finished_at="2026-01-01T00:00:00+00:00")
    late = made_up("slackswap", time=None, status=Status.TIMEOUT,
                   finished_at="2026-02-01T00:00:00+00:00")
    later = made_up("slackswap", time=1.1, finished_at="2026-03-01T00:00:00+00:00")
    target = _store(tmp_path / "target", late)
    merge(target, [_store(tmp_path / "good", good)])
    assert target.read(good.key) == good
    merge(target, [_store(tmp_path / "late", late), _store(tmp_path / "later", later)])
    assert target.read(good.key) == later


def test_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="no results"):
        list(Store(tmp_path).records())
