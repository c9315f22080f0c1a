"""Cells: what names a result, and what does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slackswap.errors import SlackSwapError
from slackswap.evaluation.run.cell import Cell, CellKind, identify
from slackswap.evaluation.run.sources import (
    HardwareSource,
    ProfileSource,
    build_hardware,
    build_profile,
)

CHAIN = ProfileSource.of({"generate": "deep-chain", "n": 6})
CELL = Cell(CellKind.PLAN, "swap-all", CHAIN, budget="0.7")

PLANNER = """
from dataclasses import dataclass
from typing import ClassVar
from slackswap import Capabilities, Plan

@dataclass(frozen=True)
class Mine:
    weight: int = {weight}
    name: ClassVar[str] = "mine"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities()

    def plan(self, problem, *, rng, time_limit, report):
        return Plan({{}})  # {comment}
"""


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "keep-all"},
        {"profile": ProfileSource.of({"generate": "deep-chain", "n": 7})},
        {"hardware": HardwareSource.of({"link": 0.5})},
        {"hardware": HardwareSource.of({"full_duplex": False})},
        {"budget": "0.8"},
        {"budget_factor": "0.95"},
        {"seed": 1},
        {"repeat": 1},
        {"timeout_s": 10.0},
        {"kind": CellKind.FACTS, "subject": "facts"},
    ],
)
def test_what_may_change_a_result_changes_its_name(change: dict[str, object]) -> None:
    assert identify(replace(CELL, **change)).key != identify(CELL).key  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"variant": "a label"}, {"alone": False}])
def test_what_cannot_change_a_result_does_not(change: dict[str, object]) -> None:
    assert identify(replace(CELL, **change)).key == identify(CELL).key  # type: ignore[arg-type]


def test_two_descriptions_of_one_problem_share_their_results() -> None:
    peak = CELL.problem().keep_all_peak_bytes
    in_bytes = replace(CELL, budget=f"{peak * 7 // 10}B")
    assert identify(in_bytes).problem_key == identify(CELL).problem_key
    renamed = ProfileSource.of({"generate": "deep-chain", "n": 6, "label": "deep-chain-6"})
    assert identify(replace(CELL, profile=renamed)).key == identify(CELL).key


def test_a_cell_survives_storage() -> None:
    cell = replace(
        CELL, hardware=HardwareSource.of({"name": "h100-sxm", "link": 0.5}), seed=3,
        parameters='{"a":1}', variant="link -50%", budget_factor="0.95",
    )
    assert Cell.from_dict(cell.to_dict()) == cell


def test_an_edited_planner_file_is_another_planner(tmp_path: Path) -> None:
    keys = []
    for number, comment in enumerate(("first", "second")):
        path = tmp_path / f"v{number}" / "mine.py"
        path.parent.mkdir()
        path.write_text(PLANNER.format(weight=1, comment=comment), encoding="utf-8")
        identity = identify(replace(CELL, subject=f"{path}:Mine"))
        keys.append(identity.document["source"])
    assert keys[0] != keys[1]


def test_what_a_planner_imports_belongs_to_its_code() -> None:
    from slackswap.evaluation.run import code_identity

    read: list[str] = []
    original = code_identity._source
    try:
        code_identity._source = lambda name: read.append(name) or original(name)  # type: ignore
        code_identity.code_digest.__wrapped__("slackswap.search.slackswap_plus")
    finally:
        code_identity._source = original
    assert {"slackswap.search.slackswap_plus", "slackswap.planners.slackswap",
            "slackswap.analysis.closure"} <= set(read)
    assert not [name for name in read if name.startswith("slackswap.evaluation")]


def test_code_that_cannot_be_read_has_no_digest() -> None:
    from slackswap.evaluation.run.code_identity import code_digest

    assert code_digest("no.such.module") == ""
    assert code_digest("slackswap.planners.trivial") != code_digest("slackswap.planners.chen")


def test_a_planner_that_cannot_be_had_still_has_a_name() -> None:
    identity = identify(replace(CELL, subject="no-such-planner"))
    assert identity.key
    assert "unavailable" in identity.document["version"]


def test_budget_factor_is_exact() -> None:
    peak = CELL.problem().keep_all_peak_bytes
    assert replace(CELL, budget="0.5", budget_factor="0.95").problem().budget_bytes == (
        peak * 475 // 1000
    )


def test_unlimited_budget() -> None:
    assert not replace(CELL, budget="unlimited").problem().is_limited


def test_analytic_profiles_are_priced_for_the_hardware_that_is_named() -> None:
    source = ProfileSource.of({"library": "bert-large", "batch": 1})
    slow = build_profile(source, HardwareSource.of("titan-x"))
    fast = build_profile(source, HardwareSource.of("h100-sxm"))
    assert slow.duration_ns > 10 * fast.duration_ns
    # Changing the link alone changes no op.
    linked = HardwareSource.of({"name": "h100-sxm", "link": 0.5})
    assert build_profile(source, linked).sha256 == fast.sha256
    assert build_hardware(source, linked).d2h_bytes_per_s * 2 == (
        build_hardware(source, HardwareSource.of("h100-sxm")).d2h_bytes_per_s
    )


def test_prices_are_part_of_a_recipe() -> None:
    plain = ProfileSource.of({"library": "bert-large", "batch": 1})
    other = plain.changed({"prices": {"gemm_efficiency": 0.75}})
    own = HardwareSource()
    assert build_profile(other, own).duration_ns < build_profile(plain, own).duration_ns
    assert other.label == plain.label == "bert-large"


@pytest.mark.parametrize(
    "document",
    [{}, {"library": "bert-large", "file": "x.json"}, {"library": "bert-large", "colour": "red"},
     {"generate": "random", "batch": 3}],
)
def test_a_recipe_that_makes_no_sense_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(SlackSwapError):
        ProfileSource.of(document)


def test_unknown_generator_and_price_are_named() -> None:
    with pytest.raises(SlackSwapError, match="not a generator"):
        build_profile(ProfileSource.of({"generate": "spiral"}), HardwareSource())
    with pytest.raises(SlackSwapError, match="gold"):
        build_profile(
            ProfileSource.of({"library": "bert-large", "prices": {"gold": 1}}), HardwareSource()
        )
    with pytest.raises(SlackSwapError, match="speed"):
        HardwareSource.of({"speed": 3})
