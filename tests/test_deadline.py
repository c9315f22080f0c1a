"""One way to say when a search should end."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from slackswap import deadline as module
from slackswap.deadline import NO_DEADLINE, SEARCH_SHARE, Deadline

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


def test_a_limit_leaves_a_share_for_what_follows(clock):
    deadline = Deadline.after(10)
    assert deadline.at == 100 + 10 * SEARCH_SHARE
    assert deadline.left_s == deadline.time_limit == 10 * SEARCH_SHARE
    clock[0] = deadline.at
    assert deadline.passed
    clock[0] += 5
    assert deadline.left_s == 0.0


def test_no_limit_never_passes(clock):
    clock[0] = 1e18
    assert not NO_DEADLINE.passed
    assert NO_DEADLINE.time_limit is None
    assert NO_DEADLINE.left_s == float("inf")
    assert Deadline.after(None) == NO_DEADLINE


def test_sooner_takes_the_earlier(clock):
    assert NO_DEADLINE.sooner(3).at == 103
    assert Deadline(101.0).sooner(3).at == 101


def test_planners_and_searches_keep_time_by_it_alone():
    """Durations are measured where they are reported; nobody else compares clock readings."""
    for folder in ("planners", "search"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Compare):
                    assert "perf_counter" not in ast.dump(node), f"{path}:{node.lineno}"
