"""The report: one file, complete, and drawn without a fault in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from slackswap.evaluation.report.page import render_report, unpack_figure, write_report
from slackswap.evaluation.run.finished import Finished
from slackswap.evaluation.run.runner import Rerun
from slackswap.evaluation.run.session import run_suite
from slackswap.evaluation.run.suite import parse_suite

SUITE = """
title = "Small <suite>"
description = "For the report."
[[variants]]
label = "slow link"
hardware = { link = 0.5 }
[[group]]
name = "main"
profiles = [
  { generate = "layered", n_forward = 40, seed = 1, label = "layered" },
  { library = "bert-large", batch = 1, label = "bert-large" },
]
budgets = ["0.5", "0.7", "0.9"]
planners = ["keep-all", "swap-all", "block-checkpointing", "slackswap", "nonesuch"]
bounds = ["compute"]
[[group]]
name = "again"
profiles = [{ library = "bert-large", batch = 1, label = "bert-large" }]
planners = ["slackswap", "block-checkpointing"]
variants = "all"
"""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--virtual-time-budget=20000",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("results")
    return run_suite(parse_suite(SUITE, "small"), folder, jobs=0, rerun=Rerun.NOTHING)


@pytest.fixture(scope="module")
def html(finished: Finished) -> str:
    return render_report(finished)


def test_it_needs_nothing_from_elsewhere(html: str) -> None:
    page = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!\#)""", page)
    assert "@import" not in html
    assert not re.search(r"url\(\s*['\"]?http", page)


def test_names_are_escaped(html: str) -> None:
    assert "Small &lt;suite&gt;" in html
    assert "<suite>" not in html


def test_it_tells_what_was_found(html: str, finished: Finished) -> None:
    for entry in finished.claims:
        assert entry.finding.verdict.value in html
    for planner in ("swap-all", "block-checkpointing", "slackswap"):
        assert planner in html
    assert "nonesuch" in html, "cells without an answer are listed with the reason"
    assert finished.records[0].circumstances.machine["processor"] in html


def test_every_place_for_a_figure_has_one_and_every_figure_a_place(html: str) -> None:
    places = re.findall(r'data-figure="([^"]+)"', html)
    figures = re.findall(r'<script type="text/plain" id="data-([^"]+)">', html)
    assert sorted(places) == sorted(figures)
    kinds = {name.rstrip("-0123456789") for name in figures}
    assert {"throughput", "time", "actions", "budgets", "timeline", "gap", "profile"} <= kinds


def test_packed_figures_unpack(html: str) -> None:
    packed = dict(
        re.findall(r'<script type="text/plain" id="data-([^"]+)">([^<]+)</script>', html)
    )
    for text in packed.values():
        figure = unpack_figure(text)
        assert figure["data"]
        assert "layout" in figure


def test_it_is_written_whole(finished: Finished, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(finished, path)
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert [item.name for item in tmp_path.iterdir()] == ["report.html"]


def test_a_run_without_any_plan_still_has_a_report(tmp_path: Path) -> None:
    text = SUITE.replace('"0.5", "0.7", "0.9"', '"0.0001"')
    nothing = run_suite(parse_suite(text, "none").selected(budgets=["0.0001"]), tmp_path, jobs=0)
    assert not nothing.plans["solved"].any()
    assert "</html>" in render_report(nothing)


def _browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


@pytest.mark.slow
@pytest.mark.skipif(_browser() is None, reason=f"none of {', '.join(BROWSERS)} is installed")
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_draws_every_figure(finished: Finished, tmp_path: Path, width: int) -> None:
    browser = _browser()
    assert browser is not None
    path = tmp_path / "report.html"
    write_report(finished, path)
    done = subprocess.run(
        [browser, *FLAGS, f"--window-size={width},1000", f"--user-data-dir={tmp_path / 'profile'}",
         "--dump-dom", f"{path.as_uri()}#draw-all"],
        capture_output=True, text=True, timeout=120, check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    root = re.search(r"<html[^>]*>", done.stdout)
    assert root is not None
    state = dict(re.findall(r'data-(\w+)="([^"]*)"', root[0]))
    assert state["failed"] == "0", state["failures"]
    assert int(state["drawn"]) == int(state["figures"]) >= 7
    assert done.stdout.count('data-state="drawn"') == int(state["drawn"])
    assert done.stdout.count('class="main-svg"') >= int(state["drawn"])
    assert state["overflow"] == "0", "the page is wider than its window"
