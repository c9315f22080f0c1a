"""Made-up results, so that what is computed from results can be checked by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import pandas as pd

from slackswap.evaluation.analysis.frame import load_facts, load_results
from slackswap.evaluation.run.cell import Cell, CellKind
from slackswap.evaluation.run.record import Circumstances, Record
from slackswap.evaluation.run.sources import HardwareSource, ProfileSource
from slackswap.status import Status

UNLIMITED_NS = 1_000_000


def made_up(
    planner: str,
    profile: str = "bert-large",
    *,
    time: float | None = 1.25,
    status: Status | None = None,
    kind: CellKind = CellKind.PLAN,
    budget: str = "0.5",
    variant: str = "",
    hardware: str = "a100-80gb",
    seed: int = 0,
    repeat: int = 0,
    timeout_s: float = 60.0,
    contended: bool = False,
    figures: Mapping[str, Any] | None = None,
    finished_at: str = "2026-01-01T00:00:00+00:00",
) -> Record:
    """A result whose iteration takes `time` times the unlimited one; None did not fit."""
    cell = Cell(
        kind, planner, ProfileSource.of({"library": profile}), HardwareSource.of(hardware),
        budget=budget, seed=seed, repeat=repeat, timeout_s=timeout_s, variant=variant,
        alone=not contended,
    )
    status = status or (Status.INFEASIBLE if time is None else Status.FEASIBLE)
    problem = f"{profile} {hardware} {variant} {budget}"
    values: dict[str, Any] = {
        "hardware": hardware, "profile_source": "analytic", "keep_all_ns": UNLIMITED_NS,
        "budget_bytes": round(1000 * float(budget)), "budget_fraction": float(budget),
        "keep_all_peak_bytes": 1000, "static_bytes": 0, "planning_s": 0.01, "warm_up_s": 0.1,
        "planner_deterministic": True, "has_order": False,
    }
    if time is not None and kind is CellKind.PLAN:
        values |= {
            "iteration_ns": round(time * UNLIMITED_NS), "throughput": 1 / time,
            "stall_forward_ns": 0, "stall_backward_ns": 0, "recompute_ns": 0, "peak_bytes": 400,
            "offloaded_bytes": 10, "prefetched_bytes": 10, "d2h_utilisation": 0.3,
            "h2d_utilisation": 0.3, "saved_keep_bytes": 10, "saved_swap_bytes": 10,
            "saved_recompute_bytes": 10,
        }
    return Record(
        key=hashlib.md5(repr((planner, problem, seed, repeat, kind)).encode()).hexdigest(),
        problem_key=problem,
        cell=cell,
        identity={"version": "1", "cost_model": "1", "problem": {"profile_sha256": profile}},
        status=status,
        reason="" if status.has_plan else "because",
        figures=values | dict(figures or {}),
        circumstances=Circumstances(0.1, 0.01, contended, finished_at, {"python": "3"},
                                    {"processor": "p", "cores": 2}),
    )


def made_up_bound(profile: str = "bert-large", *, time: float = 1.2, gated: bool = True,
                  **options: Any) -> Record:
    """A bound at `time` times the unlimited iteration."""
    figures = {
        "bound_ns": round(time * UNLIMITED_NS), "bound_method": "lp", "bound_solver": "highs",
        "bound_status": "optimal", "bound_safe": True, "bound_tolerance": 0.0, "bound_s": 0.1,
        "bound_note": "", "bound_gated": gated,
    }
    return made_up("lp", profile, time=None, status=Status.OPTIMAL, kind=CellKind.BOUND,
                   figures=figures, **options)


def made_up_facts(profile: str, hardware: str, blocks: float, whole: float,
                  variant: str = "") -> Record:
    """Facts of a profile."""
    return made_up(
        "facts", profile, time=None, status=Status.OPTIMAL, kind=CellKind.FACTS, hardware=hardware,
        variant=variant, figures={"hideable_blocks": blocks, "hideable_whole": whole},
    )


def frame_of(*records: Record) -> pd.DataFrame:
    """The tidy table of made-up results."""
    return load_results(list(records))


def facts_of(*records: Record) -> pd.DataFrame:
    """The facts among made-up results."""
    return load_facts(list(records))
