"""Statistics, against figures worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from results_for_tests import frame_of, made_up

from slackswap.evaluation.analysis.statistics import (
    bootstrap_interval,
    compare_planners,
    non_monotone_steps,
    per_problem,
    performance_profiles,
    ranking,
    shifted_geometric_mean,
    unsolved_problems,
)
from slackswap.evaluation.analysis.summary import (
    notes,
    ranking_table,
    throughput_table,
    unsteady_plans,
)
from slackswap.status import Status

MODELS = ("bert-large", "gpt2-xl", "llama-7b", "vgg16")


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _profile(frame, planner, value="iteration_ns"):  # type: ignore[no-untyped-def]
    return next(p for p in performance_profiles(frame, value) if p.planner == planner)


def _share_within(profile, ratio):  # type: ignore[no-untyped-def]
    place = np.searchsorted(profile.ratios, ratio, side="right") - 1
    return 0.0 if place < 0 else float(profile.shares[place])


def test_performance_profile_by_hand() -> None:
    # Ratios of b to the best: 2, 1, 1.5, and one problem it does not solve.
    frame = frame_of(
        *(made_up("a", m, time=t) for m, t in zip(MODELS, (1, 2, 1, 1), strict=True)),
        *(made_up("b", m, time=t) for m, t in zip(MODELS, (2, 1, 1.5, None), strict=True)),
    )
    a, b = _profile(frame, "a"), _profile(frame, "b")
    assert (_share_within(a, 1.0), _share_within(a, 2.0)) == (0.75, 1.0)
    assert _share_within(b, 1.0) == 0.25
    assert _share_within(b, 1.5) == 0.5
    # However far one looks, what it did not solve stays unsolved.
    assert _share_within(b, 1e9) == 0.75
    assert (b.solved, b.problems) == (3, 4)


def test_a_planner_that_solves_nothing_stays_at_zero() -> None:
    frame = frame_of(made_up("a"), made_up("b", time=None))
    assert _share_within(_profile(frame, "b"), 1e9) == 0


def test_skipped_problems_are_not_failures() -> None:
    frame = frame_of(
        made_up("a", "bert-large"), made_up("a", "gpt2-xl"), made_up("b", "bert-large"),
        made_up("b", "gpt2-xl", time=None, status=Status.SKIPPED),
    )
    profile = _profile(frame, "b")
    assert (profile.solved, profile.problems) == (1, 1)
    assert _share_within(profile, 1.0) == 1.0


def test_timeouts_are_censored_at_their_limit() -> None:
    # The Kaplan-Meier estimate: b is last seen unsolved at ratio 5 of one problem, and solves the
    # other two at ratios 2 and 10. At 2 one of three: 1/3. At 10 the one still at risk: 1.
    fast = [made_up("a", m, figures={"planning_s": 1.0}) for m in MODELS[:3]]
    slow = [
        made_up("b", MODELS[0], figures={"planning_s": 2.0}),
        made_up("b", MODELS[1], figures={"planning_s": 10.0}),
        made_up("b", MODELS[2], time=None, status=Status.TIMEOUT, timeout_s=5.0,
                figures={"planning_s": None}),
    ]
    profile = _profile(frame_of(*fast, *slow), "b", "planning_s")
    assert _share_within(profile, 2.0) == pytest.approx(1 / 3)
    assert _share_within(profile, 9.9) == pytest.approx(1 / 3)
    assert _share_within(profile, 10.0) == pytest.approx(1.0)


def test_a_problem_is_solved_only_with_every_seed() -> None:
    frame = frame_of(made_up("a", seed=0, time=1.2), made_up("a", seed=1, time=None),
                     made_up("b", seed=0, time=1.2), made_up("b", seed=1, time=1.4))
    table = per_problem(frame)
    assert table["a"].isna().all()
    assert table["b"].iloc[0] == 1_300_000


def test_shifted_geometric_mean_by_hand() -> None:
    assert shifted_geometric_mean([1.0, 4.0], 0.0) == pytest.approx(2.0)
    assert shifted_geometric_mean([0.0, 3.0], 1.0) == pytest.approx(1.0)
    assert math.isnan(shifted_geometric_mean([], 1.0))


def test_bootstrap_interval_covers_the_mean_and_is_reproducible() -> None:
    values = rng().normal(size=50)
    low, high = bootstrap_interval(values, np.random.default_rng(1))
    assert low < values.mean() < high
    assert (low, high) == bootstrap_interval(values, np.random.default_rng(1))
    # The standard error of the mean is about 1 / sqrt(50).
    assert high - low == pytest.approx(2 * 1.96 * values.std() / math.sqrt(50), rel=0.25)
    assert all(map(math.isnan, bootstrap_interval(np.array([1.0, 2.0]), rng())))
    assert bootstrap_interval(np.zeros(5), rng()) == (0.0, 0.0)


def test_comparison_uses_common_problems_only() -> None:
    frame = frame_of(
        *(made_up("base", m, time=t) for m, t in zip(MODELS, (1, 1, 1, None), strict=True)),
        *(made_up("b", m, time=t) for m, t in zip(MODELS, (2, 0.5, None, 1), strict=True)),
    )
    (entry,) = compare_planners(frame, "base", rng=rng())
    assert entry.common == 2
    assert entry.ratio == pytest.approx(1.0)  # half as fast once, twice as fast once
    assert (entry.wins, entry.ties, entry.losses) == (1, 0, 1)
    assert (entry.only_planner, entry.only_reference) == (1, 1)


def test_intervals_and_ratios_are_over_instances_not_over_cells_of_one() -> None:
    # One profile at three budgets, twice as fast; two others once each, as fast.
    cells = [("bert-large", b, 0.5) for b in ("0.4", "0.5", "0.6")]
    cells += [(m, "0.5", 1.0) for m in ("gpt2-xl", "llama-7b")]
    frame = frame_of(*(
        made_up(planner, model, budget=budget, time=time if planner == "b" else 1.0)
        for model, budget, time in cells for planner in ("base", "b")
    ))
    (entry,) = compare_planners(frame, "base", rng=rng())
    assert (entry.common, entry.instances) == (5, 3)
    assert entry.ratio == pytest.approx(2 ** (1 / 3))
    assert entry.low == pytest.approx(1.0)
    one = frame[frame["profile"] == "bert-large"]
    (alone,) = compare_planners(one, "base", rng=rng())
    assert alone.instances == 1
    assert math.isnan(alone.low)  # three cells of one model say nothing of others


def test_ties_are_within_a_thousandth() -> None:
    frame = frame_of(made_up("base", time=1.0), made_up("b", time=1.0009),
                     made_up("c", time=1.002))
    found = compare_planners(frame, "base", rng=rng())
    outcome = {e.planner: (e.wins, e.ties, e.losses) for e in found}
    assert outcome == {"b": (0, 1, 0), "c": (0, 0, 1)}


def test_ranking_puts_failures_behind_however_fast_the_rest_is() -> None:
    frame = frame_of(
        *(made_up("slackswap", m, time=1.5) for m in MODELS),
        *(made_up("lucky", m, time=t) for m, t in zip(MODELS, (1, 1, 1, None), strict=True)),
    )
    table = ranking(frame, rng=rng())
    assert list(table["planner"]) == ["slackswap", "lucky"]
    assert list(table["solved"]) == [4, 3]
    assert table.set_index("planner").loc["lucky", "ratio"] == pytest.approx(1.5)
    assert table.set_index("planner").loc["lucky", "throughput"] == pytest.approx(1.0)


def test_problems_that_nobody_solves_count_against_all_who_were_asked() -> None:
    frame = frame_of(
        made_up("slackswap", time=1.2), made_up("slackswap", "gpt2-xl", time=None),
        made_up("other", time=1.3), made_up("other", "gpt2-xl", time=None),
    )
    ranked = ranking(frame, rng=rng())
    assert ranked[["planner", "solved", "tried"]].values.tolist() == [
        ["slackswap", 1, 2], ["other", 1, 2]
    ]
    assert unsolved_problems(frame)["profile"].tolist() == ["gpt2-xl"]
    assert _profile(frame, "other").problems == 2
    assert _share_within(_profile(frame, "slackswap"), 1e6) == 0.5
    assert any("No planner solved gpt2-xl" in note for note in notes(frame))
    table = throughput_table(frame)
    assert table is not None
    assert len(table.columns) == 3


def test_only_planners_that_were_tried_on_the_same_problems_are_ranked() -> None:
    frame = frame_of(
        *(made_up(name, model) for name in ("slackswap", "other") for model in MODELS[:3]),
        made_up("few", MODELS[0], time=0.9),
        made_up("skips", MODELS[0], time=0.9),
        made_up("skips", MODELS[1], time=None, status=Status.SKIPPED),
    )
    ranked = ranking(frame, rng=rng())
    assert ranked["planner"].tolist() == ["other", "slackswap", "few", "skips"] or \
        ranked["planner"].tolist() == ["slackswap", "other", "few", "skips"]
    assert ranked["ranked"].tolist() == [True, True, False, False]
    table = ranking_table(frame)
    assert [row[0] for row in table.rows][2:] == ["not ranked:", "few", "skips"]
    assert "other problems" in table.note


def test_steps_to_a_larger_budget_that_made_it_slower_are_counted() -> None:
    times = {"steady": (1.5, 1.3, 1.3, 1.0), "jumpy": (1.5, 1.6, 1.2, 1.3)}
    frame = frame_of(
        *(made_up(name, budget=budget, time=time)
          for name, row in times.items()
          for budget, time in zip(("0.3", "0.4", "0.5", "0.6"), row, strict=True))
    )
    assert non_monotone_steps(frame) == {"steady": 0, "jumpy": 2}


def test_broken_promises_of_determinism_are_named() -> None:
    frame = frame_of(
        made_up("kept", seed=0), made_up("kept", seed=1), made_up("broken", seed=0),
        made_up("broken", seed=1, time=1.3),
        made_up("free", seed=0, figures={"planner_deterministic": False}),
        made_up("free", seed=1, time=1.3, figures={"planner_deterministic": False}),
    )
    assert unsteady_plans(frame) == ["broken"]
