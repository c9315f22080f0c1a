"""Figures of results. Each function returns a Plotly figure with ``write_html``.

Backgrounds are transparent and text takes the page's colour, so that a page may be light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from slackswap.evaluation.analysis.statistics import performance_profiles
from slackswap.evaluation.report.palette import (
    ACTION_COLOURS,
    BLUE,
    GREY,
    KIND_COLOURS,
    looks,
)

_CLEAR = "rgba(0,0,0,0)"
#: Legible on white and on near-black alike; pages replace it by their own.
_TEXT = "#808080"
_GRID = "rgba(128,128,128,0.25)"
_ROW_PX = 24
#: Added time up to which bars are drawn.
_LONGEST = 0.6
#: What ends a bar that is longer than drawn.
_BREAK = "⫽"
#: Lines drawn at first in a figure with one a planner.
_SHOWN = 9
#: Ratio up to which performance profiles are drawn at first.
_NEAR = 2.0


def ranking_figure(frame: pd.DataFrame) -> go.Figure:
    """Draw the throughput of every planner on one problem, with what the bound allows.

    Parameters
    ----------
    frame : pandas.DataFrame
        Rows of `load_results`, all of one problem.
    """
    solved = frame[frame["solved"]]
    best = (
        solved.assign(planner=solved["planner"].astype(str))
        .groupby("planner")
        .agg(throughput=("throughput", "median"), stall=("stall_ns", "median"),
             recompute=("recompute_ns", "median"), iteration=("iteration_ns", "median"))
        .sort_values("throughput", kind="stable")
    )
    names = list(best.index)
    unsolved = _unsolved(frame)
    share = 100 * best[["stall", "recompute"]].astype(float).div(
        best["iteration"].astype(float), axis=0
    )
    figure = go.Figure(
        go.Bar(
            y=names, x=best["throughput"].to_numpy(dtype=float), orientation="h",
            marker={"color": [BLUE if name.startswith("slackswap") else GREY for name in names]},
            # Inside the bars: beside them, figures would run into the line of the bound.
            text=[f"{value:.1%}" for value in best["throughput"]], textposition="auto",
            insidetextanchor="end", insidetextfont={"color": "white"}, textangle=0,
            customdata=share.to_numpy(),
            hovertemplate="%{y}: %{x:.2%}<br>stall %{customdata[0]:.1f}%, recompute "
                          "%{customdata[1]:.1f}% of the iteration<extra></extra>",
        )
    )
    _without_bars(figure, unsolved)
    ceiling = _ceiling(frame)
    if ceiling is not None:
        figure.add_vline(x=ceiling, line={"color": KIND_COLOURS["stall"], "dash": "dash"})
        figure.add_annotation(
            x=ceiling, y=1, yref="paper", yanchor="bottom", showarrow=False, xanchor="right",
            text=f"no plan can exceed {ceiling:.1%}", font={"color": KIND_COLOURS["stall"]},
        )
    styled(figure, height=90 + _ROW_PX * max(3, len(names) + len(unsolved)), legend=False)
    figure.update_xaxes(title="throughput",
                        tickformat=".0%", range=[0, 1.03])
    figure.update_yaxes(automargin=True, gridcolor=_CLEAR)
    figure.update_layout(margin={"t": 30})
    return figure


def time_figure(frame: pd.DataFrame) -> go.Figure:
    """Draw where each planner's iteration goes on one problem: recompute steps, stalls."""
    solved = frame[frame["solved"]]
    rows = (
        solved.assign(planner=solved["planner"].astype(str))
        .groupby("planner")[["keep_all_ns", "recompute_ns", "stall_ns", "iteration_ns"]]
        .median().astype(float).sort_values("iteration_ns", ascending=False, kind="stable")
    )
    added = (rows["recompute_ns"] + rows["stall_ns"]) / rows["keep_all_ns"]
    names = [f"{name}  +{share:.1%}" for name, share in added.items()]
    figure = go.Figure()
    for column, name in (("recompute_ns", "recompute"), ("stall_ns", "stall")):
        figure.add_bar(
            y=names, x=(rows[column] / rows["keep_all_ns"]).to_numpy(),
            orientation="h", name=name, marker={"color": KIND_COLOURS[name]},
            hovertemplate=f"%{{y}}: {name} %{{x:.2%}}<extra></extra>",
        )
    unsolved = _unsolved(frame)
    _without_bars(figure, unsolved)
    styled(figure, height=120 + _ROW_PX * max(3, len(rows) + len(unsolved)))
    figure.update_layout(barmode="stack")
    # The few that take far longer are cut off, with a mark; their labels say how long.
    longest = min(float(added.max()), _LONGEST) if len(added) else 1.0
    for name, share in zip(names, added, strict=True):
        if share > longest:
            figure.add_annotation(
                x=longest, y=name, text=_BREAK, showarrow=False, font={"size": 18, "color": _TEXT},
                bgcolor="white", borderpad=0,
            )
    figure.update_xaxes(title="time added to the iteration", tickformat=".0%",
                        range=[0, 1.02 * longest or 1.0])
    figure.update_yaxes(automargin=True, gridcolor=_CLEAR)
    return figure


def budget_figure(frame: pd.DataFrame) -> go.Figure:
    """Draw throughput against budget on one profile and hardware, the bound as frontier."""
    figure = go.Figure()
    rows = frame[frame["budget_fraction"].notna()]
    # Where nothing fits, a bound on the time of plans that do not exist is no frontier.
    fits = rows.groupby("budget_fraction")["solved"].transform("any")
    bound = rows[rows["bound_ns"].notna() & fits].groupby("budget_fraction").first()
    if len(bound):
        figure.add_scatter(
            x=bound.index.to_numpy(dtype=float),
            y=(bound["keep_all_ns"] / bound["bound_ns"]).to_numpy(dtype=float),
            mode="lines", name="no plan above", line={"color": GREY, "dash": "dot", "width": 2},
            hovertemplate="bound at %{x:.0%}: %{y:.2%}<extra></extra>",
        )
    style = looks(rows["planner"].astype(str))
    solved = rows[rows["solved"]]
    by_planner = solved["throughput"].groupby(solved["planner"].astype(str))
    # Those that fit at most budgets first, then the fastest.
    order = pd.DataFrame({"count": by_planner.size(), "mean": by_planner.mean()}).sort_values(
        ["count", "mean"], ascending=False, kind="stable"
    )
    for place, planner in enumerate(order.index):
        mine = solved[solved["planner"] == planner]
        line = mine.groupby("budget_fraction")["throughput"].median().sort_index()
        look = style[str(planner)]
        figure.add_scatter(
            x=line.index.to_numpy(dtype=float), y=line.to_numpy(dtype=float),
            mode="lines+markers", name=str(planner), visible=_visible(str(planner), place),
            line={"color": look.colour, "dash": look.dash, "width": look.width},
            marker={"symbol": look.mark, "size": 7},
            hovertemplate=f"{planner} at %{{x:.0%}}: %{{y:.2%}}<extra></extra>",
        )
    styled(figure, height=480)
    figure.update_xaxes(title="budget over the keep-everything peak", tickformat=".0%")
    figure.update_yaxes(title="throughput", tickformat=".0%")
    return figure


def map_figure(frame: pd.DataFrame, planner: str = "slackswap") -> go.Figure:
    """Draw where swapping pays: a plan's gain over the best plan that moves nothing.

    Parameters
    ----------
    frame : pandas.DataFrame
        Rows of `load_results`, all of one profile.
    planner : str
        Planner whose gain is shown.
    """
    solved = frame[frame["solved"] & frame["budget_fraction"].notna()]
    axes = ["hardware", "budget_fraction"]
    still = solved[solved["offloaded_bytes"] == 0].groupby(axes)["throughput"].max()
    mine = solved[solved["planner"] == planner].groupby(axes)["throughput"].median()
    gain = (mine / still - 1).astype(float).unstack("budget_fraction")
    # From the slowest link for its arithmetic to the fastest: by what it gains on average.
    gain = gain.loc[gain.mean(axis=1).sort_values(kind="stable").index]
    figure = go.Figure()
    if gain.notna().to_numpy().any():
        figure.add_heatmap(
            x=[f"{share:.0%}" for share in gain.columns], y=list(gain.index.astype(str)),
            z=gain.to_numpy(), colorscale="Cividis", zmin=0.0, showscale=False, xgap=2, ygap=2,
            texttemplate="%{z:.0%}", hoverongaps=False,
            hovertemplate="%{y} at %{x}: %{z:+.1%}<extra></extra>",
        )
    styled(figure, height=110 + 34 * max(2, len(gain)), legend=False)
    figure.update_xaxes(title="budget over the keep-everything peak", type="category")
    figure.update_yaxes(gridcolor=_CLEAR)
    return figure


def gap_figure(frame: pd.DataFrame) -> go.Figure:
    """Draw certified gap against planning time: one mark a planner and problem."""
    figure = go.Figure()
    rows = frame[frame["solved"] & frame["gap"].notna() & frame["planning_s"].notna()]
    style = looks(rows["planner"].astype(str))
    for planner, mine in rows.groupby(rows["planner"].astype(str)):
        look = style[str(planner)]
        labels = mine["profile"].astype(str) + " at " + mine["budget"].astype(str)
        figure.add_scatter(
            # Zero has no place on a logarithmic axis; below these nothing can be told apart.
            x=np.maximum(1e3 * mine["planning_s"].to_numpy(dtype=float), 0.01),
            y=np.maximum(mine["gap"].to_numpy(dtype=float), 1e-5),
            mode="markers", name=str(planner), text=labels,
            marker={"color": look.colour, "symbol": look.mark, "size": 10},
            hovertemplate=f"{planner}, %{{text}}<br>%{{x:.3g}} ms, gap %{{y:.3%}}<extra></extra>",
        )
    styled(figure, height=520)
    figure.update_xaxes(title="planning time (ms)", type="log", dtick=1)
    figure.update_yaxes(title="gap to the proven bound", type="log", tickformat=".3~%", dtick=1)
    return figure


def profile_figure(frame: pd.DataFrame, value: str = "iteration_ns") -> go.Figure:
    """Draw performance profiles: share of problems solved within a ratio of the best."""
    figure = go.Figure()
    profiles = [p for p in performance_profiles(frame, value) if p.solved]
    style = looks(profile.planner for profile in profiles)
    last = max((float(profile.ratios[-1]) for profile in profiles), default=1.0)
    for place, profile in enumerate(profiles):
        look = style[profile.planner]
        start = [] if profile.ratios[0] <= 1 else [1.0]
        figure.add_scatter(
            x=[*start, *profile.ratios, last * 1.02],
            y=[*([0.0] * len(start)), *profile.shares, profile.shares[-1]],
            mode="lines", line={"shape": "hv", "color": look.colour, "dash": look.dash,
                                "width": look.width},
            name=profile.planner, visible=_visible(profile.planner, place),
            hovertemplate=f"{profile.planner}: %{{y:.0%}} within %{{x:.3f}}x<extra></extra>",
        )
    styled(figure, height=480)
    what = "time of the best plan" if value == "iteration_ns" else "shortest planning time"
    figure.update_xaxes(title=f"within this many times the {what}", type="log")
    if value == "iteration_ns":
        # Where good planners differ; a double click shows the rest.
        figure.update_xaxes(range=[0, np.log10(max(min(last * 1.02, _NEAR), 1.01))])
    figure.update_yaxes(title="share of problems", tickformat=".0%", range=[0, 1.03])
    return figure


def action_figure(frame: pd.DataFrame) -> go.Figure:
    """Draw what each planner does with the saved bytes of one problem."""
    solved = frame[frame["solved"]]
    columns = {action: f"saved_{action}_bytes" for action in ACTION_COLOURS}
    rows = (
        solved.assign(planner=solved["planner"].astype(str))
        .groupby("planner")[[*columns.values(), "throughput"]].median().astype(float)
        .sort_values("throughput", kind="stable")
    )
    total = rows[list(columns.values())].sum(axis=1).replace(0.0, np.nan)
    figure = go.Figure()
    for action, column in columns.items():
        figure.add_bar(
            y=list(rows.index), x=(rows[column] / total).to_numpy(), orientation="h", name=action,
            marker={"color": ACTION_COLOURS[action]},
            hovertemplate=f"%{{y}}: {action} %{{x:.1%}}<extra></extra>",
        )
    unsolved = _unsolved(frame)
    _without_bars(figure, unsolved)
    styled(figure, height=120 + _ROW_PX * max(3, len(rows) + len(unsolved)))
    figure.update_layout(barmode="stack")
    figure.update_xaxes(title="share of the saved bytes", tickformat=".0%", range=[0, 1])
    figure.update_yaxes(automargin=True, gridcolor=_CLEAR)
    return figure


@dataclass(frozen=True, slots=True)
class Curve:
    """The incumbents of one search.

    Attributes
    ----------
    planner, problem : str
        Who searched, and where.
    points : sequence of (float, int)
        Seconds, and time of the plan found then in nanoseconds.
    bound_ns : int
        Lower bound on that problem.
    """

    planner: str
    problem: str
    points: Sequence[Sequence[float]]
    bound_ns: int


def search_figure(curves: Sequence[Curve]) -> go.Figure:
    """Draw how far above the bound the best plan found is, against seconds of search."""
    figure = go.Figure()
    style = looks(f"{curve.planner}, {curve.problem}" for curve in curves)
    for curve in curves:
        seconds = np.array([point[0] for point in curve.points], dtype=float)
        best = np.minimum.accumulate([point[1] for point in curve.points])
        name = f"{curve.planner}, {curve.problem}"
        look = style[name]
        figure.add_scatter(
            x=np.maximum(seconds, 1e-3), y=np.maximum(best / curve.bound_ns - 1, 1e-5),
            mode="lines+markers", name=name,
            line={"shape": "hv", "color": look.colour, "width": 1.8, "dash": look.dash},
            marker={"symbol": look.mark, "size": 5},
            hovertemplate=f"{name}: %{{y:.3%}} above the bound after %{{x:.2f}} s<extra></extra>",
        )
    styled(figure, height=480)
    figure.update_xaxes(title="seconds of search", type="log", dtick=1)
    figure.update_yaxes(title="above the bound", type="log", tickformat=".3~%", dtick=1)
    return figure


def _unsolved(frame: pd.DataFrame) -> dict[str, str]:
    """Return how those ended that have no plan for a problem, by planner."""
    rows = frame[frame["planner"].notna()]
    names = rows["planner"].astype(str)
    solved = set(names[rows["solved"]])
    return {
        name: str(status)
        for name, status in zip(names, rows["status"], strict=True)
        if name not in solved
    }


def _without_bars(figure: go.Figure, unsolved: Mapping[str, str]) -> None:
    """Give those without a plan their row, below the others, with a word in place of a bar."""
    if not unsolved:
        return
    figure.add_bar(
        y=list(unsolved), x=[0.0] * len(unsolved), orientation="h", text=list(unsolved.values()),
        textposition="outside", cliponaxis=False, showlegend=False, marker={"color": GREY},
        hovertemplate="%{y}: %{text}<extra></extra>",
    )
    others = [name for bars in figure.data[:-1] for name in bars.y]
    figure.update_yaxes(
        categoryorder="array", categoryarray=[*unsolved, *dict.fromkeys(others)]
    )


def _visible(planner: str, place: int) -> bool | str:
    """Show the best few and the paper's rule; the rest by a click on the legend."""
    return True if place < _SHOWN or planner == "slackswap" else "legendonly"


def _ceiling(frame: pd.DataFrame) -> float | None:
    rows = frame[frame["bound_ns"].notna()]
    if rows.empty:
        return None
    return float((rows["keep_all_ns"] / rows["bound_ns"]).astype(float).max())


def styled(figure: go.Figure, *, height: int, legend: bool = True) -> None:
    """Give a figure the look that all of them share; the height is in pixels."""
    axis: dict[str, Any] = {
        "gridcolor": _GRID, "zerolinecolor": _GRID, "linecolor": _GRID, "automargin": True,
        "title": {"standoff": 10},
    }
    figure.update_layout(
        template="none", height=height, paper_bgcolor=_CLEAR, plot_bgcolor=_CLEAR,
        font={"color": _TEXT, "size": 13, "family": "system-ui, sans-serif"},
        margin={"l": 10, "r": 16, "t": 16, "b": 10}, showlegend=legend,
        # Below the plot, a legend keeps the plot's width on a narrow screen.
        legend={"orientation": "h", "yanchor": "top", "y": -0.18, "x": 0, "xanchor": "left",
                "traceorder": "normal"},
        hoverlabel={"namelength": -1},
    )
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
