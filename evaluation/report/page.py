"""The report: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from slackswap import files
from slackswap.cost_model.engine import simulate
from slackswap.errors import SlackSwapError
from slackswap.evaluation.analysis.frame import COLUMNS
from slackswap.evaluation.analysis.statistics import PROBLEM
from slackswap.evaluation.analysis.summary import (
    Table,
    failures_table,
    notes,
    ranking_table,
    sensitivity_table,
    throughput_table,
)
from slackswap.evaluation.comparison.gantt import gantt_figure
from slackswap.evaluation.comparison.stalls import stalls_by_tensor
from slackswap.evaluation.report import figures
from slackswap.evaluation.run.finished import Finished
from slackswap.evaluation.run.record import Record
from slackswap.plan import Plan
from slackswap.quantities import format_bytes, format_ns

#: Most plans drawn as timelines; the rest are one `slackswap simulate --trace` away.
MAX_TIMELINES = 160
#: Tensors listed by the stall they cause.
_WORST_STALLS = 12
#: Searches drawn in one figure.
_MOST_CURVES = 16
_HALF = 0.5


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """One entry of a menu: which figure it shows."""

    group: str
    label: str
    figure: str


def write_report(finished: Finished, path: str | os.PathLike[str]) -> None:
    """Write the report of a run, whole or not at all.

    Parameters
    ----------
    finished : Finished
        What to tell of.
    path : path-like
        The HTML file.
    """
    files.write_text(path, render_report(finished))


def render_report(finished: Finished) -> str:
    """Return the report of a run as HTML."""
    from jinja2 import Environment, PackageLoader, select_autoescape

    environment = Environment(
        loader=PackageLoader("slackswap.evaluation", "templates"), trim_blocks=True,
        lstrip_blocks=True, autoescape=select_autoescape(default=True, default_for_string=True),
    )
    plans = finished.plans
    drawings: dict[str, str] = {}
    timelines, stalls, undrawn = _timelines(finished, drawings)
    context: dict[str, Any] = {
        "title": finished.title,
        "description": finished.description,
        "counts": _counts(finished),
        "notes": [*notes(plans), *undrawn],
        "claims": [
            {"entry": entry, "table": sensitivity_table(entry)} for entry in finished.claims
        ],
        "throughput": throughput_table(plans),
        "ranking": ranking_table(plans),
        "failures": failures_table(plans),
        "problems": _problem_figures(plans, drawings),
        "budgets": _budget_figures(plans, drawings),
        "maps": _map_figures(plans, drawings),
        "overview": _overview_figures(finished, drawings),
        "timelines": timelines,
        "stalls": stalls,
        "environments": _environments(finished.records),
        "columns": [(name, meaning) for name, (_, meaning) in COLUMNS.items()],
        "drawings": drawings,
        "plotly": _plotly_source(),
        "script": _template("report.js"),
        "style": _template("report.css"),
    }
    return environment.get_template("report.html.j2").render(context)


def _problem_figures(plans: pd.DataFrame, drawings: dict[str, str]) -> list[dict[str, Any]]:
    """Three figures for each plain problem that some planner solved."""
    found = []
    plain = plans[(plans["variant"] == "") & plans["solved"]]
    for number, (key, mine) in enumerate(_by_problem(plain)):
        # Rows without a plan carry the bound as well.
        rows = plans[(plans["variant"] == "") & (plans["problem"] == key["problem"])]
        names = {}
        for kind, draw in (("throughput", figures.ranking_figure), ("time", figures.time_figure),
                           ("actions", figures.action_figure)):
            names[kind] = f"{kind}-{number}"
            drawings[names[kind]] = pack_figure(draw(rows))
        label = _problem_label(key, mine)
        found.append({"label": label, "anchor": anchor(label), "figures": names})
    return found


def anchor(label: str) -> str:
    """Return the part of an address that leads to a problem: letters, digits and hyphens."""
    return "problem-" + re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")


def _budget_figures(plans: pd.DataFrame, drawings: dict[str, str]) -> list[MenuEntry]:
    found = []
    plain = plans[plans["variant"] == ""]
    solved = plain[plain["solved"]]
    keys = solved[["profile", "hardware"]].drop_duplicates()
    for number, (profile, hardware) in enumerate(keys.itertuples(index=False)):
        rows = plain[(plain["profile"] == profile) & (plain["hardware"] == hardware)]
        if rows["budget_fraction"].nunique() < 2:
            continue
        name = f"budgets-{number}"
        drawings[name] = pack_figure(figures.budget_figure(rows))
        found.append(MenuEntry("", f"{profile} on {hardware}", name))
    return found


def _map_figures(plans: pd.DataFrame, drawings: dict[str, str]) -> list[MenuEntry]:
    """Draw one map for each profile that was planned on several kinds of hardware."""
    found = []
    solved = plans[(plans["variant"] == "") & plans["solved"]]
    for number, (profile, rows) in enumerate(solved.groupby("profile", sort=False)):
        if rows["hardware"].nunique() < 2:
            continue
        figure = figures.map_figure(rows)
        if figure.data:
            name = f"map-{number}"
            drawings[name] = pack_figure(figure)
            found.append(MenuEntry("", str(profile), name))
    return found


def _overview_figures(finished: Finished, drawings: dict[str, str]) -> dict[str, str]:
    plain = finished.plans[finished.plans["variant"] == ""]
    found: dict[str, str] = {}

    def add(name: str, figure: go.Figure) -> None:
        if figure.data:
            drawings[name] = pack_figure(figure)
            found[name] = name

    add("gap", figures.gap_figure(plain))
    add("profile", figures.profile_figure(plain))
    alone = plain[~plain["contended"]]
    add("planning", figures.profile_figure(alone, "planning_s"))
    curves = _curves(finished, plain)
    if curves:
        add("search", figures.search_figure(curves))
    return found


def _curves(finished: Finished, plain: pd.DataFrame) -> list[figures.Curve]:
    """Return how searches went, at the budget nearest to half, where there is a bound."""
    rows = plain[plain["solved"] & plain["bound_ns"].notna() & (plain["seed"] == 0)]
    distance = (rows["budget_fraction"] - _HALF).abs()
    rows = rows[distance == distance.groupby([rows["profile"], rows["hardware"]]).transform("min")]
    points = {record.key: record.figures.get("search", ()) for record in finished.records}
    return [
        figures.Curve(
            str(row.planner), str(row.profile), points[str(row.key)],
            round(float(str(row.bound_ns))),
        )
        for row in rows.itertuples(index=False)
        if len(points[str(row.key)]) > 1
    ][:_MOST_CURVES]


def _timelines(
    finished: Finished, drawings: dict[str, str]
) -> tuple[list[MenuEntry], dict[str, Table], list[str]]:
    """Draw the plans at the budget nearest to half, the best of each problem first.

    The last of the three says which could not be drawn, and why.
    """
    plans = finished.plans
    rows = plans[(plans["variant"] == "") & plans["solved"]].copy()
    rows["distance"] = (rows["budget_fraction"] - _HALF).abs().astype(float).fillna(_HALF)
    place = ["profile", "hardware"]
    nearest = rows.groupby(place, dropna=False)["distance"].transform("min")
    rows = rows[rows["distance"] == nearest]
    rows = rows.drop_duplicates([*place, "budget", "planner"])
    rows = rows.sort_values([*place, "throughput"], ascending=[True, True, False], kind="stable")
    by_key = {record.key: record for record in finished.records}
    choices: list[MenuEntry] = []
    stalls: dict[str, Table] = {}
    undrawn: list[str] = []
    for row in rows.head(MAX_TIMELINES).itertuples(index=False):
        name = f"timeline-{len(choices)}"
        try:
            drawn = _timeline(finished, by_key[str(row.key)])
        except SlackSwapError as error:
            # The profile has changed since, or is not here: its figures stand, its picture cannot.
            undrawn.append(
                f"the plan of {row.planner} for {row.profile} at {row.budget} is not drawn: {error}"
            )
            continue
        if drawn is None:
            continue
        drawings[name], stalls[name] = drawn
        choices.append(
            MenuEntry(
                f"{row.profile} on {row.hardware} at {row.budget}",
                f"{row.planner} ({row.throughput:.1%})", name,
            )
        )
    return choices, stalls, undrawn


def _timeline(finished: Finished, record: Record) -> tuple[str, Table] | None:
    path = finished.store.plan_path(record.key)
    if not path.is_file():
        return None
    problem = record.cell.problem()
    evaluation = simulate(problem, Plan.load(path), timeline=True)
    total = evaluation.iteration_ns or 1
    rows = tuple(
        (
            stall.tensor or _BLANK, stall.cause, format_ns(stall.total_ns),
            f"{stall.total_ns / total:.2%}", ", ".join(stall.ops[:3])
            + (f" and {len(stall.ops) - 3} more" if len(stall.ops) > 3 else ""),
        )
        for stall in stalls_by_tensor(evaluation)[:_WORST_STALLS]
    )
    table = Table(
        "Where the stalls come from", ("tensor", "waits for", "time", "of iteration", "ops"), rows,
        left=("tensor", "waits for"), folding=("ops",),
        note="" if rows else "This plan never stalls.",
    )
    return pack_figure(gantt_figure(problem, evaluation)), table


_BLANK = "-"


def pack_figure(figure: go.Figure) -> str:
    """Return a figure as compressed JSON in base64, which the page unpacks when it is shown."""
    text = figure.to_json(validate=False)
    assert text is not None
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def unpack_figure(packed: str) -> dict[str, Any]:
    """Return the figure of `pack_figure` as a JSON object."""
    figure: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return figure


def _by_problem(rows: pd.DataFrame) -> Iterable[tuple[dict[str, Any], pd.DataFrame]]:
    for key, mine in rows.groupby(PROBLEM, dropna=False, sort=False):
        yield dict(zip(PROBLEM, key, strict=True)), mine


def _problem_label(key: Mapping[str, Any], rows: pd.DataFrame) -> str:
    nbytes = rows["budget_bytes"].iloc[0]
    amount = "" if pd.isna(nbytes) else f" ({format_bytes(int(nbytes))})"
    return f"{key['profile']} on {key['hardware']} at {key['budget']}{amount}"


def _counts(finished: Finished) -> list[tuple[str, str]]:
    plans = finished.plans
    statuses = plans["status"].value_counts()
    times = plans["finished_at"].dropna()
    if times.empty:
        return []
    first, last = (time[:16].replace("T", " ") for time in (times.min(), times.max()))
    return [
        ("plans", f"{len(plans)}: " + ", ".join(f"{n} {s}" for s, n in statuses.items())),
        ("planners", str(plans["planner"].nunique())),
        ("problems", str(plans.groupby(PROBLEM, dropna=False).ngroups)),
        ("measured", f"{first} to {last} UTC"),
    ]


def _environments(records: Iterable[Record]) -> list[Mapping[str, Any]]:
    """Return the distinct machines and versions, most cells first."""
    counts: dict[str, int] = {}
    for record in records:
        shown = {**record.circumstances.machine, **record.circumstances.versions}
        text = json.dumps(shown)
        counts[text] = counts.get(text, 0) + 1
    return [
        {"cells": count, **_readable(json.loads(text))}
        for text, count in sorted(counts.items(), key=lambda item: -item[1])
    ]


def _readable(shown: dict[str, Any]) -> dict[str, Any]:
    if isinstance(shown.get("memory_bytes"), int):
        shown["memory_bytes"] = format_bytes(shown["memory_bytes"])
    return {name.replace("_", " ").replace("memory bytes", "memory"): value
            for name, value in shown.items()}


def _plotly_source() -> str:
    from plotly.offline import get_plotlyjs

    # A script element ends at the first closing tag, wherever it stands.
    source: str = get_plotlyjs()
    return source.replace("</script", "<\\/script")


def _template(name: str) -> str:
    return (resources.files("slackswap.evaluation.templates") / name).read_text(encoding="utf-8")
