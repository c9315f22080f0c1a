"""Two plans side by side: which changes there are, and what each is worth."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from drawing import random_case, random_plan
from hypothesis import assume, given, settings, strategies as st

from slackswap import (
    BackwardOp,
    ForwardOp,
    Hardware,
    InvalidFile,
    InvalidPlan,
    Plan,
    Problem,
    Profile,
    Tensor,
    simulate,
    solve,
)
from slackswap.evaluation import PlanComparison, compare
from slackswap.evaluation.comparison.differences import changed_tensors, role_of, stall_shifts
from slackswap.plan import PlannerInfo
from slackswap.profile import Action

seeds = st.integers(0, 2**40)


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Three tensors of 100 bytes on a link of a byte a nanosecond; room for two and scratch."""
    tensors = (Tensor("layer1.h", 100), Tensor("layer2.h", 100), Tensor("<b>", 100))
    forward = (
        ForwardOp("f1", 50, (), (0,)), ForwardOp("f2", 50, (0,), (1,)),
        ForwardOp("f3", 50, (1,), (2,)),
    )
    backward = (
        BackwardOp("b3", 60, (2,)), BackwardOp("b2", 60, (1,)), BackwardOp("b1", 60, (0,)),
    )
    return Problem(
        Profile("hand", "random", tensors, forward, backward), Hardware("toy", 10**9, 10**9), 200
    )


def test_a_change_is_worth_what_it_saves(problem: Problem) -> None:
    # Swapped, layer1.h leaves at 50 and is gone at 150: f3 cannot start at 100, as it needs room
    # for a third tensor, and waits until then. It ends at 200, b3 at 260. Only then there is room
    # for layer1.h to come back, until 360; b2 meanwhile ran until 320, so b1 waits 40 and ends at
    # 420. Recomputed, there is room at once: 150 + 60 + 60 + 50 + 60 = 380.
    result = compare(
        Plan({"layer1.h": "recompute"}), Plan({"layer1.h": "swap"}), problem, names=("R", "S")
    )
    assert [evaluation.iteration_ns for evaluation in result.evaluations] == [380, 420]
    (change,) = result.changes
    assert (change.role, change.tensors, change.nbytes) == ("layer1.h", ("layer1.h",), 100)
    assert (change.before.action, change.after.action) == ("recompute", "swap")
    assert (change.time_ns, change.stall_ns, change.recompute_ns) == (40, 90, -50)
    assert (change.moved_bytes, change.shortfall_bytes) == (100, 0)
    assert (change.waits_before_ns, change.waits_after_ns) == (0, 90)
    (group,) = result.groups
    assert group.stalls == result.stalls
    assert [(s.op, s.cause, s.tensors, s.before_ns, s.after_ns) for s in result.stalls] == [
        ("f3", "memory", ("layer1.h",), 0, 50), ("b1", "tensor", ("layer1.h",), 0, 40),
    ]
    assert result.summary().loc["iteration_ns"].tolist() == [380, 420, 40]
    assert result.to_frame().loc[0, "stall_ns"] == 90


def test_a_change_without_which_nothing_fits_says_so(problem: Problem) -> None:
    result = compare(Plan(), Plan({"layer1.h": "recompute"}), problem)
    assert not result.evaluations[0].feasible
    (change,) = result.changes
    assert change.time_ns is None
    assert change.shortfall_bytes == 100
    html = result._repr_html_()
    assert "needed: else 100 B short" in html
    assert "A does not fit: forward op 2 (f3) is 100 bytes short" in html
    assert result.summary().loc["iteration_ns", "A"] is None


def test_equal_plans_do_not_differ(problem: Problem) -> None:
    plan = Plan({"layer1.h": "recompute"})
    # What a plan does by default, it does as well as by an entry.
    result = compare(plan, plan.with_actions({"layer2.h": Action.KEEP}), problem)
    assert result.changes == result.groups == result.stalls == result.barriers == ()
    assert "Both plans do the same" in result._repr_html_()
    assert len(result.to_frame()) == 0


def test_gates_and_barriers_are_differences_where_they_act(problem: Problem) -> None:
    swap = Plan({"layer1.h": "swap", "layer2.h": "recompute"})
    gated = replace(swap, prefetch_gates={"layer1.h": 2, "layer2.h": 1}, offload_barriers=(0, 1))
    result = compare(swap, gated, problem)
    assert list(changed_tensors(problem, swap, gated)) == ["layer1.h"]
    assert str(result.changes[0].after) == "swap (back from 2)"
    assert result.barriers == ("Only B has offload barriers: 2 of them",)


def test_tensors_of_one_role_stand_together(problem: Problem) -> None:
    both = Plan({"layer1.h": "recompute", "layer2.h": "recompute"})
    (group,) = compare(Plan(), both, problem).groups
    assert (group.role, group.tensors, group.nbytes) == (
        "layer*.h", ("layer1.h", "layer2.h"), 200
    )
    assert role_of("embedding") == "embedding"
    assert role_of("h.3.mlp.2") == "h.*.mlp.2"


@settings(max_examples=150)
@given(seeds)
def test_figures_agree_with_the_referee(seed: int) -> None:
    case = random_case(seed)
    other = random_plan(random.Random(seed + 1), case.problem)
    try:
        case.problem.check_plan(other)
        result = compare(case.plan, other, case.problem)
    except InvalidPlan:
        assume(False)
        raise
    first, second = result.evaluations
    if first.feasible and second.feasible:
        assert first.stall_ns is not None
        assert second.stall_ns is not None
        assert sum(s.added_ns for s in stall_shifts(first, second)) == (
            second.stall_ns - first.stall_ns
        )
    changes, choices = result.changes, changed_tensors(case.problem, case.plan, other)
    assert [change.tensors[0] for change in changes] == list(choices)
    grouped = sorted(tensor for group in result.groups for tensor in group.tensors)
    assert grouped == sorted(choices)
    # Taken back together, all changes leave the first plan but for its barriers.
    barriers = (case.plan.offload_barriers, case.plan.prefetch_barriers)
    if len(changes) == 1 and barriers == (other.offload_barriers, other.prefetch_barriers):
        (change,) = changes
        if first.iteration_ns is not None and second.iteration_ns is not None:
            assert change.time_ns == second.iteration_ns - first.iteration_ns
        if first.infeasible is not None:
            assert change.shortfall_bytes == first.infeasible.shortfall_bytes


def test_solutions_bring_their_problem_and_names(problem: Problem) -> None:
    result = compare(solve(problem, "slackswap"), solve(problem, "recompute-all"))
    assert result.names == ("slackswap", "recompute-all")
    assert result.problem is problem
    info = PlannerInfo("hand")
    same = compare(Plan(planner=info), Plan(planner=info), problem)
    assert same.names == ("hand A", "hand B")


def test_what_cannot_be_compared_is_refused(problem: Problem) -> None:
    with pytest.raises(InvalidPlan, match="without a problem"):
        compare(Plan(), Plan())
    with pytest.raises(InvalidPlan, match="gave no plan"):
        compare(solve(problem.with_budget(1), "slackswap"), Plan())
    with pytest.raises(InvalidPlan, match="different problems"):
        compare(solve(problem, "slackswap"), solve(problem.with_budget(250), "slackswap"))
    with pytest.raises(InvalidPlan, match="does not have"):
        compare(Plan({"nobody": "keep"}), Plan(), problem)


def test_files(problem: Problem, tmp_path) -> None:
    result = compare(
        Plan({"<b>": "swap"}), Plan({"layer1.h": "recompute"}), problem, names=("<i>x", "y")
    )
    result.savefig(tmp_path / "two.svg")
    root = ElementTree.parse(tmp_path / "two.svg").getroot()
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text.startswith("<i>x: ") for text in texts if text)
    assert texts.count("compute") == 2
    with pytest.raises(InvalidFile, match="SVG"):
        result.savefig(tmp_path / "two.png")
    result.write_html(tmp_path / "two.html")
    page = (tmp_path / "two.html").read_text()
    assert "<title>&lt;i&gt;x and y</title>" in page
    assert "src=\"http" not in page
    body = result._repr_html_()
    assert "<b>" not in body
    assert "&lt;b&gt;" in body


def test_figure_shows_both_runs_on_one_axis(problem: Problem) -> None:
    result = compare(Plan({"layer1.h": "swap"}), Plan({"layer1.h": "recompute"}), problem)
    figure = result.figure()
    end = max(evaluation.iteration_ns or 0 for evaluation in result.evaluations)
    assert figure.layout.xaxis.range == pytest.approx((0, end / 1e6))
    names = [trace.name for trace in figure.data]
    assert {"recompute", "offload", "prefetch", "memory, A", "memory, B", "budget"} <= set(names)
    # The curve's highest point is the peak that the referee reports.
    for evaluation, trace in zip(
        result.evaluations, [t for t in figure.data if t.name.startswith("memory")], strict=True
    ):
        assert max(trace.y) * 1e9 == pytest.approx(evaluation.peak_bytes)


def test_the_export_stays_a_function() -> None:
    import slackswap.evaluation

    assert slackswap.evaluation.compare is compare
    assert slackswap.evaluation.PlanComparison is PlanComparison


def test_evaluations_come_from_the_referee(problem: Problem) -> None:
    plan = Plan({"layer1.h": "recompute"})
    result = compare(plan, plan, problem)
    assert result.evaluations[0] == simulate(problem, plan, timeline=True)
