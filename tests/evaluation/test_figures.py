"""Figures show the figures of the table they are given."""

from __future__ import annotations

import pytest
from results_for_tests import frame_of, made_up, made_up_bound

from slackswap.evaluation.report import figures
from slackswap.evaluation.report.palette import looks


def _trace(figure, name):  # type: ignore[no-untyped-def]
    return next(trace for trace in figure.data if trace.name == name)


def test_ranking_is_sorted_and_names_the_ceiling() -> None:
    frame = frame_of(made_up("slackswap", time=1.25), made_up("a", time=2.0),
                     made_up("b", time=None), made_up_bound(time=1.2))
    figure = figures.ranking_figure(frame)
    bars, without = figure.data
    assert (list(without.y), list(without.text)) == (["b"], ["infeasible"])
    assert figure.layout.yaxis.categoryarray == ("b", "a", "slackswap")
    # Plotly draws the first bar at the bottom.
    assert list(bars.y) == ["a", "slackswap"]
    assert list(bars.x) == pytest.approx([0.5, 0.8])
    assert figure.layout.annotations[0].text == "no plan can exceed 83.3%"


def test_time_figure_says_how_much_is_added() -> None:
    parts = {"recompute_ns": 150_000, "stall_forward_ns": 60_000, "stall_backward_ns": 40_000}
    figure = figures.time_figure(frame_of(made_up("slackswap", time=1.25, figures=parts)))
    assert list(_trace(figure, "recompute").x) == pytest.approx([0.15])
    assert list(_trace(figure, "stall").x) == pytest.approx([0.1])
    assert list(_trace(figure, "stall").y) == ["slackswap  +25.0%"]


def test_actions_add_up_to_the_whole() -> None:
    figure = figures.action_figure(frame_of(made_up("slackswap")))
    assert {trace.name for trace in figure.data} == {"keep", "swap", "recompute"}
    assert sum(trace.x[0] for trace in figure.data) == pytest.approx(1.0)


def test_the_frontier_ends_where_nothing_fits() -> None:
    frame = frame_of(
        made_up("a", budget="0.3", time=None), made_up_bound(budget="0.3", time=1.0),
        made_up("a", budget="0.5", time=1.25), made_up_bound(budget="0.5", time=1.2),
        made_up("a", budget="0.7", time=1.1), made_up_bound(budget="0.7", time=1.1),
    )
    figure = figures.budget_figure(frame)
    frontier = _trace(figure, "no plan above")
    assert list(frontier.x) == [0.5, 0.7]
    assert list(frontier.y) == pytest.approx([1 / 1.2, 1 / 1.1])
    assert list(_trace(figure, "a").y) == pytest.approx([0.8, 1 / 1.1])


def test_the_map_compares_with_the_best_plan_that_moves_nothing() -> None:
    still = {"offloaded_bytes": 0}
    frame = frame_of(
        made_up("slackswap", time=1.0, hardware="h100-sxm"),
        made_up("chen-sqrt", time=1.5, hardware="h100-sxm", figures=still),
        made_up("block-checkpointing", time=1.2, hardware="h100-sxm", figures=still),
        made_up("capuchin", time=0.9, hardware="h100-sxm"),
        made_up("slackswap", time=1.0, hardware="titan-x"),
        made_up("block-checkpointing", time=1.5, hardware="titan-x", figures=still),
    )
    (heat,) = figures.map_figure(frame).data
    assert list(heat.y) == ["h100-sxm", "titan-x"]
    assert [row[0] for row in heat.z] == pytest.approx([0.2, 0.5])


def test_a_map_of_nothing_is_empty() -> None:
    assert not figures.map_figure(frame_of(made_up("slackswap"))).data


def test_gap_figure_leaves_out_what_has_no_gap() -> None:
    frame = frame_of(made_up("a", time=1.25), made_up_bound(time=1.2), made_up("b", "gpt2-xl"))
    (marks,) = figures.gap_figure(frame).data
    assert marks.name == "a"
    assert list(marks.y) == pytest.approx([1.25 / 1.2 - 1])
    assert list(marks.x) == pytest.approx([10.0])


def test_search_figure_never_rises() -> None:
    curve = figures.Curve("genetic", "bert-large", [(0.1, 130), (0.2, 140), (0.5, 110)], 100)
    (line,) = figures.search_figure([curve]).data
    assert list(line.y) == pytest.approx([0.3, 0.3, 0.1])


def test_only_the_best_lines_are_drawn_at_first() -> None:
    names = [f"planner-{n}" for n in range(15)]
    frame = frame_of(
        *(made_up(name, time=1.1 + n / 100) for n, name in enumerate(names)),
        made_up("slackswap", time=3.0),
    )
    shown = {t.name for t in figures.profile_figure(frame).data if t.visible is True}
    assert "slackswap" in shown
    assert "planner-0" in shown
    assert "planner-14" not in shown


def test_planners_look_different_and_the_same_everywhere() -> None:
    names = [f"planner-{n}" for n in range(20)] + ["slackswap", "slackswap+"]
    style = looks(names)
    assert len({(s.colour, s.mark, s.dash) for s in style.values()}) == len(style)
    assert looks(["slackswap"])["slackswap"] == style["slackswap"]


def test_bars_that_are_cut_off_end_in_a_mark() -> None:
    long = {"recompute_ns": 1_000_000, "stall_forward_ns": 0, "stall_backward_ns": 0}
    short = {"recompute_ns": 100_000, "stall_forward_ns": 0, "stall_backward_ns": 0}
    figure = figures.time_figure(frame_of(
        made_up("slow", time=2.0, figures=long), made_up("fast", time=1.1, figures=short),
        made_up("never", time=None),
    ))
    (mark,) = figure.layout.annotations
    assert mark.y == "slow  +100.0%"
    assert mark.x <= figure.layout.xaxis.range[1]
    assert "never" in figure.layout.yaxis.categoryarray


def test_any_two_lines_differ_in_colour_or_dash() -> None:
    from slackswap.evaluation.report.palette import looks

    styles = looks([f"planner-{number}" for number in range(40)])
    assert len({(look.colour, look.dash) for look in styles.values()}) == len(styles)
