"""The paper's rule: what it promises, a problem worked by hand, and its ablations."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from bounding import small_problem
from drawing import random_case
from hypothesis import given, settings, strategies as st

from slackswap import (
    Action,
    BackwardOp,
    ForwardOp,
    Hardware,
    Problem,
    Profile,
    Tensor,
    load_hardware,
    load_profile,
    simulate,
    solve,
)
from slackswap.analysis.quick_bounds import least_ns
from slackswap.cost_model.scorer import Scorer
from slackswap.deadline import NO_DEADLINE
from slackswap.planners.common.candidate_search import CandidateSearch
from slackswap.planners.common.candidates import Task
from slackswap.planners.common.link import admit_earliest, admit_per_layer
from slackswap.planners.slackswap import SlackSwap
from slackswap.profiles.generators.random_dag import (
    deep_chain_profile,
    layered_profile,
    random_profile,
)
from slackswap.search.bounds import lower_bound
from slackswap.search.enumeration import enumerate_plans

#: One byte a nanosecond each way.
LINK = Hardware("toy", 10**9, 10**9)


def three_prices() -> Problem:
    """Three saved tensors of 10 bytes; remaking a, b, c costs 10, 2 and 30 ns.

    A last op of 50 ns needs 30 bytes of workspace, and so does its backward op, so with a budget of
    40 bytes only one of the three may stay.
    """
    profile = Profile(
        "three prices",
        "random",
        (Tensor("a", 10), Tensor("b", 10), Tensor("c", 10)),
        (
            ForwardOp("fa", 10, (), (0,)),
            ForwardOp("fb", 2, (), (1,)),
            ForwardOp("fc", 30, (), (2,)),
            ForwardOp("top", 50, (), (), 30),
        ),
        (
            BackwardOp("top.b", 50, (), 30),
            BackwardOp("cb", 30, (2,)),
            BackwardOp("bb", 2, (1,)),
            BackwardOp("ab", 10, (0,)),
        ),
    )
    return Problem(profile, LINK, 40)


def test_the_cheapest_is_recomputed_and_the_link_takes_the_earliest_of_the_rest():
    # Two of the three must be away when `top` starts at 42. At 2 ns a byte one copy takes 20 ns:
    # a's would run 10..30, and a second one would end at 50, too late. So one is recomputed: b,
    # the cheapest by closure cost per byte (0.2). Of a and c, both dearer, a is written first and
    # needed last, so a gets the link, and c stays. Total: keep-everything time + 2.
    problem = three_prices().with_hardware(Hardware("half", 5 * 10**8, 5 * 10**8))
    solution = solve(problem, "slackswap")
    assert solution.plan.actions == {"a": "swap", "b": "recompute"}
    assert solution.evaluation.recompute_ns == 2
    assert solution.evaluation.stall_ns == 0


def test_nothing_is_recomputed_while_the_link_has_time():
    # At 1 ns a byte a's copy runs 10..20 and b's 20..30: both are away at 42.
    solution = solve(three_prices(), "slackswap")
    assert solution.plan.actions == {"a": "swap", "b": "swap"}
    assert solution.evaluation.throughput == 1.0


def test_without_time_on_the_link_the_two_cheapest_are_recomputed():
    # A link of 1 byte a microsecond moves nothing in time: b and a go, at 2 + 10 ns.
    problem = three_prices().with_hardware(Hardware("slow", 10**6, 10**6))
    solution = solve(problem, "slackswap")
    assert solution.plan.actions == {"a": "recompute", "b": "recompute"}
    assert solution.evaluation.recompute_ns == 12


@settings(max_examples=400)
@given(st.integers(0, 2**40))
def test_it_fits_or_says_that_it_cannot(seed):
    case = random_case(seed)
    solution = solve(case.problem, "slackswap")
    if solution.plan is None:
        assert str(solution.status) == "infeasible"
        assert solution.reason
    else:
        assert solution.evaluation.feasible
        assert not solution.plan.has_order


def test_it_finds_nearly_every_plan_that_trivial_planners_find():
    """On random problems it must not be infeasible where a one-line rule is not."""
    missed = []
    for seed in range(300):
        problem = random_case(seed).problem
        simple = [solve(problem, name) for name in ("keep-all", "recompute-all", "swap-all")]
        if solve(problem, "slackswap").plan is None and any(s.evaluation.feasible for s in simple):
            missed.append(seed)
    assert missed == []


def iteration_ns_at(problem, budget_bytes, name="slackswap"):
    """Time of a planner's plan at a budget; None where it has none."""
    evaluation = solve(problem.with_budget(budget_bytes), name).evaluation
    return None if evaluation is None else evaluation.iteration_ns


@pytest.mark.parametrize("name", ["bert-large", "gpt2-xl", "llama-7b", "opt-350m-a100",
                                  "llama3-8b-hf-eager", "resnet50-hf"])
def test_a_larger_budget_is_never_slower_on_models(name):
    problem = Problem(load_profile(name), load_hardware("a100-80gb"))
    budgets = [problem.keep_all_peak_bytes * percent // 100 for percent in range(30, 101, 3)]
    times = [iteration_ns_at(problem, budget) for budget in budgets]
    found = [time for time in times if time is not None]
    assert None not in times[len(times) - len(found):]
    assert found == sorted(found, reverse=True)


@settings(max_examples=250)
@given(st.integers(0, 2**40), st.integers(1, 19), st.integers(0, 2**40))
def test_a_larger_budget_is_never_slower(seed, rung, more):
    """From any rung of the ladder that it plans for, whether or not its plan there was repaired."""
    problem = random_case(seed).problem
    smaller = problem.keep_all_peak_bytes * rung // 20
    larger = smaller + more % (problem.keep_all_peak_bytes + 1)
    if smaller == 0:
        return
    at_smaller = iteration_ns_at(problem, smaller)
    if at_smaller is not None:
        at_larger = iteration_ns_at(problem, larger)
        assert at_larger is not None
        assert at_larger <= at_smaller


@settings(max_examples=150)
@given(st.integers(0, 2**40), st.integers(300, 999), st.integers(1, 400), st.sampled_from([
    {}, {"link_order": "dearest"}, {"link_windows": True}, {"closure_prices": False},
    {"swap": False}, {"store_intermediates": False}, {"checkpoints": False}, {"literal": True},
]))
def test_a_larger_budget_is_never_slower_where_the_rule_fits(seed, part, more, ablation):
    """From any budget at which the plan was not repaired, for every ablation without barriers."""
    problem = random_case(seed).problem
    smaller = problem.keep_all_peak_bytes * part // 1000
    if smaller == 0:
        return
    first = solve(problem.with_budget(smaller), "slackswap", **ablation)
    if first.plan is None or first.statistics["repaired"]:
        return
    second = solve(problem.with_budget(smaller + more), "slackswap", **ablation)
    assert second.evaluation.iteration_ns <= first.evaluation.iteration_ns


def search_of(problem: Problem) -> CandidateSearch:
    return CandidateSearch(Task(SlackSwap(), problem), NO_DEADLINE)


@settings(max_examples=150)
@given(st.integers(0, 2**40))
def test_nothing_that_was_left_out_is_faster(seed):
    """The search against scoring all candidates, from the lowest on each line that it found."""
    problem = random_case(seed).problem
    search = search_of(problem)
    search.run()
    assert not search.stopped
    fresh = search_of(problem)  # has no plan yet, so it leaves nothing out
    for line in fresh.lines():
        fresh.best.iteration_ns = 2**62
        lowest = fresh.lowest(line)
        if lowest is not None:
            plans = line.candidates.plans(line.counts[lowest:], line.shares[lowest:])
            scores = fresh.task.scorer.score(plans)
            best = scores.best()
            assert best is None or search.best.iteration_ns <= scores.iteration_ns[best]


@settings(max_examples=300)
@given(st.integers(0, 2**40))
def test_what_is_known_without_the_cost_model_is_true(seed):
    """No candidate is faster than `at_least_ns`, and none before `possible` fits."""
    search = search_of(random_case(seed).problem)
    for line in search.lines():
        scores = search.task.scorer.score(line.candidates.plans(line.counts, line.shares))
        assert not scores.feasible[: line.possible].any()
        fits = scores.feasible
        assert (scores.iteration_ns[fits] >= line.at_least_ns[fits]).all()


def must_go(host_bytes: int | None) -> Problem:
    """Three tensors of 10 bytes that may not stay."""
    names = ("a", "b", "c")
    leave = (Action.SWAP, Action.RECOMPUTE)
    return Problem(
        Profile(
            "must go", "random",
            tuple(Tensor(name, 10, allowed=leave) for name in names),
            tuple(ForwardOp(f"f{name}", 20, (), (at,)) for at, name in enumerate(names)),
            tuple(BackwardOp(f"b{name}", 20, (at,)) for at, name in reversed([*enumerate(names)])),
        ),
        replace(LINK, host_bytes=host_bytes), 100,
    )


def test_what_may_not_stay_is_recomputed_where_the_host_is_full():
    actions = solve(must_go(10), "slackswap").plan.actions
    assert sorted(actions.values()) == ["recompute", "recompute", "swap"]


def test_what_may_not_stay_is_not_swapped_without_swapping():
    actions = solve(must_go(None), "slackswap", swap=False).plan.actions
    assert set(actions.values()) == {"recompute"}


@pytest.mark.parametrize("name", ["slackswap", "slackswap+"])
def test_out_of_time_is_not_called_impossible(name):
    """ResNet-50 at a quarter of its memory fits, but not within a microsecond of planning."""
    problem = Problem(load_profile("resnet50-hf"), load_hardware("a100-80gb"), 0.25)
    solution = solve(problem, name, time_limit=1e-6)
    assert solution.plan is None
    assert "in time" in solution.reason


@pytest.mark.parametrize("name", ["slackswap", "slackswap+", "keep-all", "swap-all"])
@pytest.mark.parametrize(("budget", "fits"), [(5, False), (10, True)])
def test_a_profile_without_ops(name, budget, fits):
    profile = Profile("inputs only", "random", (Tensor("x", 10),), (), ())
    evaluation = solve(Problem(profile, LINK, budget), name).evaluation
    assert (evaluation is not None and evaluation.feasible) is fits


def test_a_budget_that_one_op_exceeds_is_refused_at_once():
    # BERT-Large's loss alone needs more than 30% of the peak.
    solution = solve(Problem(load_profile("bert-large"), load_hardware("a100-80gb"), 0.3),
                     "slackswap")
    assert solution.plan is None
    assert solution.statistics["evaluations"] == 0


@settings(max_examples=300)
@given(st.integers(0, 2**40))
def test_no_plan_is_faster_than_the_least_time(seed):
    problem = small_problem(seed)
    if problem is None:
        return
    least = least_ns(Scorer(problem))
    best = enumerate_plans(problem).iteration_ns
    if least is None:
        assert best is None
    elif best is not None:
        assert problem.profile.duration_ns <= least <= best


@pytest.mark.parametrize(
    ("ablation", "uses"),
    [
        ({"swap": False}, {"recompute"}),
        ({"recompute": False}, {"swap"}),
    ],
)
def test_ablations_that_take_an_action_away(ablation, uses):
    problem = Problem(load_profile("bert-large"), load_hardware("a100-80gb"), 0.8)
    solution = solve(problem, "slackswap", **ablation)
    assert set(solution.plan.actions.values()) == uses
    whole = solve(problem, "slackswap").evaluation.iteration_ns
    assert whole <= solution.evaluation.iteration_ns


@pytest.mark.parametrize("ablation", ["layer_barriers", "on_demand", "link_windows"])
def test_ablations_that_bind_the_link_are_not_faster(ablation):
    problem = Problem(load_profile("gpt2-xl"), load_hardware("a100-80gb"), 0.5)
    bound = solve(problem, "slackswap", **{ablation: True})
    free = solve(problem, "slackswap").evaluation.iteration_ns
    assert bound.evaluation.feasible
    assert bound.evaluation.iteration_ns > free
    assert bound.plan.has_order is (ablation != "link_windows")


def test_additive_prices_differ_where_a_closure_is_long():
    problem = Problem(load_profile("gpt2-xl"), load_hardware("a100-80gb"), 0.5)
    additive = solve(problem, "slackswap", closure_prices=False).evaluation
    closure = solve(problem, "slackswap").evaluation
    assert additive.iteration_ns > closure.iteration_ns


def test_intermediates_are_stored_where_closures_would_reach_back_to_the_embedding():
    problem = Problem(load_profile("llama-7b-as-written"), load_hardware("a100-80gb"), 0.3)
    stored = solve(problem, "slackswap")
    without = solve(problem, "slackswap", store_intermediates=False)
    assert stored.evaluation.iteration_ns <= without.evaluation.iteration_ns


def layered(n_forward: int, draw: int, fraction: float) -> Problem:
    link = Hardware("2 GB/s", 2 * 10**9, 2 * 10**9, latency_ns=10_000)
    return Problem(layered_profile(n_forward, random.Random(draw)), link, fraction)


@pytest.mark.parametrize(("draw", "fraction"), [(0, 0.5), (21, 0.35), (22, 0.6)])
def test_a_checkpoint_now_and_then_ends_the_chain_of_residuals(draw, fraction):
    """Without checkpoints the first closure brings back the residuals of every layer."""
    problem = layered(300, draw, fraction)
    least = lower_bound(problem).value_ns
    assert solve(problem, "slackswap").evaluation.iteration_ns < 1.015 * least
    chained = solve(problem, "slackswap", checkpoints=False).evaluation.iteration_ns
    assert solve(problem, "slackswap").evaluation.iteration_ns <= chained
    if draw == 0:
        assert chained > 1.05 * least


def test_a_larger_budget_is_never_slower_on_layered_profiles():
    problem = layered(120, 30, 1.0)
    budgets = [problem.keep_all_peak_bytes * percent // 100 for percent in range(20, 101, 2)]
    times = [iteration_ns_at(problem, budget) for budget in budgets]
    found = [time for time in times if time is not None]
    assert len(found) > 30
    assert None not in times[len(times) - len(found):]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("allowed", [(Action.KEEP, Action.SWAP), (Action.KEEP, Action.RECOMPUTE)])
@pytest.mark.parametrize("name", ["bert-large", "gpt2-xl", "llama-7b"])
def test_it_is_near_the_ceiling_where_one_action_is_not_allowed(name, allowed):
    """Ceilings of any plan that only swaps, and that only recomputes, at half the memory."""
    ceiling = {
        ("bert-large", Action.SWAP): 0.2909, ("bert-large", Action.RECOMPUTE): 0.8918,
        ("gpt2-xl", Action.SWAP): 0.4453, ("gpt2-xl", Action.RECOMPUTE): 0.9175,
        ("llama-7b", Action.SWAP): 0.8694, ("llama-7b", Action.RECOMPUTE): 0.9367,
    }[name, allowed[1]]
    profile = load_profile(name)
    only = replace(profile, tensors=tuple(replace(t, allowed=allowed) for t in profile.tensors))
    problem = Problem(only, load_hardware("a100-80gb"), 0.5)
    evaluation = solve(problem, "slackswap").evaluation
    assert 0.98 * ceiling < evaluation.throughput < ceiling + 1e-4


def test_the_literal_rule_is_an_ablation():
    problem = Problem(load_profile("gpt2-xl"), load_hardware("a100-80gb"), 0.5)
    literal = solve(problem, "slackswap", literal=True)
    assert literal.statistics["link_share"] in (0.0, 1.0)
    general = solve(problem, "slackswap").evaluation.iteration_ns
    assert general < literal.evaluation.iteration_ns


def test_equal_prices_along_a_chain_are_spread():
    """Dropping a run of a chain brings it all back at once: worse than twice the time."""
    chain = deep_chain_profile(96)
    problem = Problem(chain, load_hardware("a100-80gb").with_link(0.25), 0.35)
    gap = solve(problem, "slackswap").evaluation.iteration_ns / lower_bound(problem).value_ns - 1
    assert gap < 0.01


def test_the_way_back_is_a_budget_too():
    """Where it is four times slower than the way out, a full share out would stall backward."""
    hardware = replace(load_hardware("a100-80gb"), h2d_bytes_per_s=6 * 10**9)
    problem = Problem(load_profile("gpt2-xl"), hardware, 0.5)
    # The Lagrangian bound counts memory at one instant and is loose where the way back is short.
    least = lower_bound(problem, "lp").value_ns
    gap = solve(problem, "slackswap").evaluation.iteration_ns / least - 1
    assert gap < 0.01


@settings(max_examples=300)
@given(st.integers(0, 2**40), st.booleans())
def test_admitted_copies_end_in_time(seed, by_price):
    rng = random.Random(seed)
    graph = random_profile(rng, rng.randint(1, 14)).graph
    copies = graph.nbytes + rng.randint(0, 3)
    candidates = graph.is_saved & (np.array([rng.random() for _ in graph.nbytes]) < 0.8)
    until = rng.randint(0, int(graph.forward_ns.sum()) + 20)
    room = rng.choice((None, 100))
    priority = np.array([rng.randint(0, 9) for _ in graph.nbytes]) if by_price else None
    taken = admit_earliest(graph, candidates, copies, until, room, priority)
    assert not (taken & ~candidates).any()
    assert room is None or graph.nbytes[taken].sum() <= room
    written = np.cumsum(graph.forward_ns)
    link_free = 0
    for t in sorted(np.flatnonzero(taken), key=lambda t: (graph.producer[t], t)):
        link_free = max(link_free, written[graph.producer[t]]) + copies[t]
    assert link_free <= until or not taken.any()


def test_layer_windows_hold_each_layer_to_its_own_time():
    problem = three_prices()
    graph = problem.profile.graph
    layers = np.array([0, 0, 1, 1])
    copies = np.array([10, 10, 90])
    # Layer 0 lasts 12 ns: one copy of 10 fits, not two. Layer 1 lasts 80: 90 do not fit.
    taken = admit_per_layer(graph, graph.is_saved, copies, layers, None)
    assert taken.tolist() == [True, False, False]


def test_planning_is_deterministic():
    problem = Problem(load_profile("gpt2-xl"), load_hardware("a100-80gb"), 0.4)
    first, second = (solve(problem, "slackswap", seed=seed) for seed in (1, 2))
    assert first.plan.actions == second.plan.actions
    assert simulate(problem, first.plan, "reference").iteration_ns == (
        second.evaluation.iteration_ns
    )
