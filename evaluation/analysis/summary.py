"""What a run found, as tables: the same on screen and in the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from slackswap.evaluation.analysis.claims import Judged, Verdict
from slackswap.evaluation.analysis.statistics import (
    PROBLEM,
    non_monotone_steps,
    ranking,
    unsolved_problems,
)
from slackswap.quantities import format_seconds

#: Problems that still fit side by side in 100 columns.
_SIDE_BY_SIDE = 5
#: Longest profile name in a heading.
_HEADING = 11

_BLANK = "-"
#: Heads the planners that were tried on other problems than those ranked.
_UNRANKED = "not ranked:"


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people.

    Attributes
    ----------
    title : str
        What it shows.
    columns : tuple of str
        Headings.
    rows : tuple of tuple of str
        Cells.
    left, folding : tuple of str
        Columns of text rather than figures: set left; and those that may break over lines.
    note : str
        What a reader must know to read it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: tuple[str, ...] = ()
    folding: tuple[str, ...] = ()
    note: str = ""


def ranking_table(plans: pd.DataFrame, *, reference: str = "slackswap") -> Table:
    """Rank planners over all plain problems, the best first."""
    plain = plans[plans["variant"] == ""]
    ranked = ranking(plain, reference=reference, rng=np.random.default_rng(0))
    steps = non_monotone_steps(plain)
    # One of the last two: both do not fit in 100 columns.
    columns = ["planner", "solved", "ratio", "w/t/l", "gap", "stall", "recomp", "planning",
               "slower" if steps else "link"]
    rows: list[tuple[str, ...]] = []
    for row in ranked.to_dict("records"):
        if not row["ranked"] and not any(cells[0] == _UNRANKED for cells in rows):
            rows.append((_UNRANKED, *[""] * (len(columns) - 1)))
        compared = not pd.isna(row["wins"])
        cells = [
            row["planner"], f"{row['solved']}/{row['tried']}", _ratio(row["ratio"]),
            f"{row['wins']:.0f}/{row['ties']:.0f}/{row['losses']:.0f}" if compared else _BLANK,
            _gap(row["gap"]), _percent(row["stall"]), _percent(row["recompute"]),
            _seconds(row["planning_s"]),
            str(steps.get(row["planner"], 0)) if steps else _percent(row["link"], 0),
        ]
        rows.append(tuple(cells))
    note = (
        f"ratio: geometric mean of throughput over that of {reference}; w/t/l: wins, ties, losses "
        "against it; both on the problems that both solved. gap: the largest certified gap to a "
        "proven bound. stall, recomp: share of the iteration. planning: warm, shifted geometric "
        "mean. "
    ) + (
        "slower: steps to a larger budget that made it slower." if steps
        else "link: share of the iteration that it is busy to the host."
    )
    if not ranked["ranked"].all():
        note += f" {_UNRANKED} tried on other problems than those above, so not ranked."
    return Table("Planners, by problems solved, then by ratio", tuple(columns),
                 tuple(rows), left=("planner",), note=note)


def throughput_table(plans: pd.DataFrame) -> Table | None:
    """Throughput by planner and problem; None when the problems do not fit side by side."""
    plain = plans[plans["variant"] == ""]
    problems = plain[PROBLEM].drop_duplicates().reset_index(drop=True)
    if problems.empty or len(problems) > _SIDE_BY_SIDE + 1:
        return None
    one_budget = problems["budget"].nunique() == 1
    order = list(ranking(plain, rng=np.random.default_rng(0))["planner"])
    headings = [
        _short(str(row.profile)) + ("" if one_budget else f"\n{row.budget}")
        for row in problems.itertuples(index=False)
    ]
    rows = []
    for planner in order:
        cells = [str(planner)]
        for row in problems.itertuples(index=False):
            mine = plain[(plain["problem"] == row.problem) & (plain["planner"] == planner)]
            cells.append(_throughput(mine))
        if any(cell not in (_BLANK, "skip") for cell in cells[1:]):
            rows.append(tuple(cells))
    ceilings = [
        _ceiling(plain[plain["problem"] == row.problem]) for row in problems.itertuples(index=False)
    ]
    if any(ceiling != _BLANK for ceiling in ceilings):
        rows.insert(0, ("no plan above", *ceilings))
    budget = f" at {problems['budget'].iloc[0]} of the keep-everything peak" if one_budget else ""
    return Table(
        f"Throughput{budget}", ("planner", *headings), tuple(rows), left=("planner",),
        note="Keep everything with unlimited memory is 100%.",
    )


def claims_table(judged: Sequence[Judged]) -> Table:
    """Lay the paper's claims out beside what the results say."""
    testable = [e for e in judged if e.finding.verdict is not Verdict.NOT_TESTABLE]
    rows = tuple(
        (entry.claim.paper, entry.finding.ours, str(entry.finding), _holds(entry))
        for entry in testable
    )
    note = ("holds in: circumstances (prices, link, head, duplex, budget) in which it is "
            "reproduced, of those in which it can be decided.")
    if len(testable) < len(judged):
        note += (f" {len(judged) - len(testable)} of the {len(judged)} claims cannot be tested by "
                 "these results; the suite `paper` has what they need.")
    return Table(
        "The paper's claims", ("the paper", "here", "verdict", "holds in"), rows,
        left=("holds in",), folding=("the paper", "here", "verdict"), note=note,
    )


def sensitivity_table(entry: Judged) -> Table:
    """Lay one claim out under every set of circumstances."""
    rows = [("as given", entry.finding.ours, str(entry.finding))]
    rows += [(label, finding.ours, str(finding)) for label, finding in entry.sensitivity]
    return Table(entry.claim.name, ("circumstances", "here", "verdict"), tuple(rows),
                 left=("circumstances",), folding=("here", "verdict"))


def failures_table(plans: pd.DataFrame) -> Table | None:
    """List cells that gave no plan for a reason other than the budget; None if there are none."""
    failed = plans[plans["status"].isin(("error", "timeout", "skipped"))]
    if failed.empty:
        return None
    grouped = failed.assign(reason=failed["reason"].fillna("")).groupby(
        ["planner", "status", "reason"], sort=True
    )
    rows = tuple(
        (str(planner), str(status), str(len(mine)), str(reason))
        for (planner, status, reason), mine in grouped
    )
    return Table("Cells without an answer", ("planner", "status", "cells", "reason"), rows,
                 left=("planner", "status"), folding=("reason",))


def notes(plans: pd.DataFrame) -> list[str]:
    """Say what limits the results: noise, cells run side by side, a violated bound."""
    found = []
    violated = sorted(set(plans.loc[plans["bound_violated"], "profile"].astype(str)))
    if violated:
        found.append(
            f"A lower bound lies above a simulated time on {', '.join(violated)}: this is a bug, "
            "and no gap is given there. Please report it."
        )
    unsolved = unsolved_problems(plans[plans["variant"] == ""])
    if len(unsolved):
        names = ", ".join(
            f"{row.profile} at {row.budget} on {row.hardware}" for row in unsolved.itertuples()
        )
        found.append(f"No planner solved {names}: counted against each that was asked.")
    found += [str(text) for text in plans["warning"].dropna().drop_duplicates() if text]
    contended = int(plans["contended"].sum())
    if contended:
        found.append(
            f"{contended} of {len(plans)} cells ran side by side: their plans count, their "
            "planning times do not."
        )
    alone = plans[~plans["contended"]]
    noisy = int(alone["noisy"].sum())
    if noisy:
        found.append(
            f"{noisy} of {len(alone)} cells that ran alone found the machine busy with something "
            "else: take their planning times with care."
        )
    disagreeing = unsteady_plans(plans)
    if disagreeing:
        found.append(
            f"{', '.join(disagreeing)} promised the same plan whatever the seed, but did not give "
            "it."
        )
    return found


def unsteady_plans(plans: pd.DataFrame) -> list[str]:
    """Return planners that promise to be deterministic, but whose times differ between tries."""
    promised = plans[plans["deterministic"].fillna(False) & plans["solved"]]
    tries = promised.groupby([*PROBLEM, "planner", "parameters"], dropna=False)["iteration_ns"]
    counts = tries.nunique()
    return sorted(set(counts[counts > 1].index.get_level_values("planner").astype(str)))


def _throughput(mine: pd.DataFrame) -> str:
    if mine.empty:
        return _BLANK
    solved = mine[mine["solved"]]
    if len(solved) == len(mine):
        return f"{float(solved['throughput'].median()):.1%}"
    status = str(mine["status"][~mine["solved"]].iloc[0])
    return {"infeasible": "no fit", "skipped": "skip", "timeout": "late"}.get(status, status)


def _ceiling(mine: pd.DataFrame) -> str:
    bounds = mine[mine["bound_ns"].notna()]
    if bounds.empty:
        return _BLANK
    return f"{float((bounds['keep_all_ns'] / bounds['bound_ns']).max()):.1%}"


def _holds(entry: Judged) -> str:
    if not entry.sensitivity:
        return _BLANK
    reproduced, decided = entry.holds_in
    return f"{reproduced} of {decided}"


def _short(name: str) -> str:
    return name if len(name) <= _HEADING else name[: _HEADING - 1] + "…"


def _percent(value: float | None, digits: int = 1) -> str:
    return _BLANK if value is None or pd.isna(value) else f"{value:.{digits}%}"


def _gap(value: float | None) -> str:
    return _percent(value, 2 if value is not None and value < 0.1 else 0)


def _ratio(value: float | None) -> str:
    return _BLANK if value is None or pd.isna(value) else f"{value:.3f}"


def _seconds(value: float | None) -> str:
    return _BLANK if value is None or pd.isna(value) else format_seconds(value)
