"""One figure of a profile: what is saved, when memory is used, what recomputing costs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from slackswap import files
from slackswap.errors import Skipped
from slackswap.hardware import Hardware
from slackswap.profile import Profile
from slackswap.profiles.summary import ProfileSummary, summarise
from slackswap.quantities import format_bytes, format_ns

if TYPE_CHECKING:
    import plotly.graph_objects as go

_GB = 1e9
#: Figures stay light: above this many points the memory curve shows the largest level of each run.
_MOST_POINTS = 4000
# Okabe and Ito's palette, which colour-blind readers can tell apart.
_COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#999999",
    "#000000",
)


def profile_figure(profile: Profile, hardware: Hardware) -> go.Figure:
    """Draw a profile.

    Parameters
    ----------
    profile : Profile
        The iteration.
    hardware : Hardware
        Its link and its memory are drawn in.

    Returns
    -------
    plotly.graph_objects.Figure
        Three panels: saved bytes by layer and kind; memory over time when everything is kept; and
        the price of recomputing, cheapest byte first, with the share that the link can hide.

    Raises
    ------
    Skipped
        When plotly is not installed.
    """
    try:
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots
    except ImportError as error:
        raise Skipped(
            "plotly is not installed", where="plot", fix="install it: pip install plotly"
        ) from error
    summary = summarise(profile, hardware)
    figure = make_subplots(
        rows=3,
        cols=1,
        vertical_spacing=0.11,
        subplot_titles=(
            f"Saved by layer: {format_bytes(summary.saved_bytes)} in all",
            "Memory when everything is kept: peak "
            f"{format_bytes(summary.keep_all_peak_bytes)}, static "
            f"{format_bytes(summary.static_bytes)} apart",
            "Recomputing, cheapest byte first: the link can hide "
            f"{summary.hideable_fraction:.1%} of the saved bytes",
        ),
    )
    for trace in _saved_by_layer(go, profile):
        figure.add_trace(trace, row=1, col=1)
    figure.add_trace(_memory(go, profile), row=2, col=1)
    figure.add_trace(_prices(go, summary), row=3, col=1)
    kept = summary.saved_bytes - summary.hideable_bytes
    figure.add_vrect(
        x0=kept / _GB, x1=summary.saved_bytes / _GB, fillcolor=_COLOURS[2], opacity=0.2,
        line_width=0, row=3, col=1,
        annotation_text="as much as the link can hide", annotation_position="top left",
    )
    figure.update_layout(
        title=_escape(f"{profile.name} on {hardware.name}")
        + (f"<br><sup>{_escape(summary.description)}</sup>" if summary.description else ""),
        barmode="stack",
        template="plotly_white",
        height=1150,
        legend_title_text="written by",
    )
    figure.update_xaxes(
        title_text="layer", type="category", categoryorder="array",
        categoryarray=[share.label for share in summary.saved_by_layer], row=1, col=1,
    )
    figure.update_yaxes(title_text="GB", row=1, col=1)
    figure.update_xaxes(title_text="time, ms", row=2, col=1)
    figure.update_yaxes(title_text="GB", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title_text="saved bytes, GB", row=3, col=1)
    figure.update_yaxes(title_text="µs per MB", type="log", row=3, col=1)
    return figure


def write_profile_plot(
    profile: Profile, hardware: Hardware, path: str | os.PathLike[str]
) -> None:
    """Write the figure as one HTML file that needs no network; errors as in `profile_figure`.

    Raises
    ------
    InvalidFile
        When the place cannot be written.
    """
    figure = profile_figure(profile, hardware)
    files.write_text(path, figure.to_html(include_plotlyjs=True, div_id="profile"))


def _saved_by_layer(go: Any, profile: Profile) -> list[go.Bar]:
    graph = profile.graph
    bars: dict[str, dict[str, int]] = {}
    for tensor in np.flatnonzero(graph.is_saved):
        op = profile.forward[graph.producer[tensor]]
        layer = "-" if op.layer is None else str(op.layer)
        kind = bars.setdefault(op.kind or "-", {})
        kind[layer] = kind.get(layer, 0) + int(graph.nbytes[tensor])
    largest_first = sorted(bars, key=lambda kind: (-sum(bars[kind].values()), kind))
    return [
        go.Bar(
            name=_escape(kind),
            x=list(bars[kind]),
            y=[nbytes / _GB for nbytes in bars[kind].values()],
            marker_color=_COLOURS[rank % len(_COLOURS)],
            customdata=[format_bytes(nbytes) for nbytes in bars[kind].values()],
            hovertemplate="layer %{x}: %{customdata}",
        )
        for rank, kind in enumerate(largest_first)
    ]


def _memory(go: Any, profile: Profile) -> go.Scatter:
    graph = profile.graph
    levels = np.concatenate(graph.keep_all_levels)
    ends = np.cumsum(np.concatenate((graph.forward_ns, graph.backward_ns)))
    starts = np.concatenate(([0], ends[:-1]))
    names = [op.name for op in profile.forward] + [op.name for op in profile.backward]
    if len(levels) > _MOST_POINTS:
        size = -(-len(levels) // _MOST_POINTS)
        groups = [range(at, min(at + size, len(levels))) for at in range(0, len(levels), size)]
        highest = [group[int(np.argmax(levels[group.start : group.stop]))] for group in groups]
        starts = starts[[group.start for group in groups]]
        levels, names = levels[highest], [names[index] for index in highest]
    return go.Scatter(
        x=[float(start) / 1e6 for start in starts] + [float(ends[-1]) / 1e6 if len(ends) else 0.0],
        y=[float(level) / _GB for level in levels] + [graph.input_bytes / _GB],
        customdata=[*map(_escape, names), "end"],
        hovertemplate="%{customdata}: %{y:.3f} GB",
        mode="lines",
        line={"shape": "hv", "color": _COLOURS[0]},
        fill="tozeroy",
        showlegend=False,
    )


def _prices(go: Any, summary: ProfileSummary) -> go.Scatter:
    x, y, labels, reached = [0.0], [], [], 0
    for price in summary.prices:
        if price.closure_ns is None:  # cannot run again, so it has no price
            continue
        reached += price.ops * price.nbytes
        x.append(reached / _GB)
        # A price of nothing has no place on a logarithmic axis.
        y.append(max(price.ns_per_mb, 1e-3) / 1e3)
        labels.append(
            f"{_escape(price.op)}: {format_ns(price.closure_ns)} for {format_bytes(price.nbytes)}"
            + (f", {price.ops} times" if price.ops > 1 else "")
        )
    return go.Scatter(
        x=x,
        y=[*y, y[-1]] if y else [],
        customdata=[*labels, labels[-1]] if labels else [],
        hovertemplate="%{customdata}",
        mode="lines",
        line={"shape": "hv", "color": _COLOURS[3]},
        showlegend=False,
    )


def _escape(text: str) -> str:
    """Names come from files: they must not become markup in the page."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
