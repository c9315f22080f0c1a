import random
from dataclasses import replace
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from bounding import fixed_to, small_problem, tight_case
from handmade import LINK, chain
from hypothesis import assume, given, settings, strategies as st

from slackswap import (
    BackwardOp,
    ForwardOp,
    Problem,
    Profile,
    Skipped,
    SolverFailed,
    Status,
    Tensor,
    load_profile,
    simulate,
    solve,
)
from slackswap.profiles.library import profile_hardware
from slackswap.search import bounds, lower_bound
from slackswap.search.bounds import linear_bound, tightened
from slackswap.search.enumeration import enumerate_plans
from slackswap.search.milp import solve as solving
from slackswap.search.milp.exact import dual_bound
from slackswap.search.milp.model import build_model
from slackswap.search.milp.solve import SolverName, own_message, solve_linear

seeds = st.integers(0, 2**32)


@pytest.fixture(params=["highs", "scip"])
def solver(request):
    return request.param


# ---------------------------------------------------------------------- the ladder


@settings(max_examples=1500)
@given(seeds)
def test_compute_lp_optimum_are_in_order(seed):
    problem = small_problem(seed)
    assume(problem is not None)
    best = enumerate_plans(problem)
    compute, bound = lower_bound(problem, "compute"), lower_bound(problem, "lp")
    assert compute.value_ns == problem.profile.duration_ns <= bound.value_ns
    assert bound.safe
    assert bound.gated
    if best.iteration_ns is None:
        return  # the relaxation may or may not see it
    assert bound.status is Status.OPTIMAL
    assert bound.value_ns <= best.iteration_ns


@settings(max_examples=400)
@given(seeds)
def test_milestones_everywhere_keep_the_order(seed):
    problem = small_problem(seed, most_plans=800)
    assume(problem is not None)
    best = enumerate_plans(problem)
    assume(best.iteration_ns is not None)
    plain = linear_bound(build_model(problem))
    ops = range(len(problem.profile.backward))
    tracked = linear_bound(build_model(problem, milestones=ops))
    # One nanosecond, because each is rounded up after a safe evaluation of its own duals.
    assert plain.value_ns <= tracked.value_ns + 1
    assert tracked.status is Status.OPTIMAL
    assert tracked.value_ns <= best.iteration_ns


@settings(max_examples=1500)
@given(seeds)
def test_every_plan_is_a_point_of_the_model(seed):
    # The strongest test of the relaxation: not only the best plan but any plan, gates and barriers
    # included, under the least memory it can run with, satisfies every row at its simulated time.
    case = tight_case(seed)
    assume(case is not None)
    problem, plan = case
    rng = random.Random(seed)
    ops = range(len(problem.profile.backward))
    milestones = ops if rng.random() < 0.6 else [op for op in ops if rng.random() < 0.3]
    model = build_model(problem, milestones=milestones)
    fixed = fixed_to(model, plan)
    answer = solve_linear(fixed, SolverName.HIGHS)
    assert answer.status is Status.OPTIMAL
    proven = ceil(dual_bound(fixed, answer.duals) * int(model.ns))
    assert proven <= simulate(problem, plan).iteration_ns


def test_holds_for_gated_and_barrier_plans_of_prior_systems():
    problem = Problem(load_profile("bert-large"), profile_hardware("bert-large"), 0.65)
    bound = lower_bound(problem, "lp")
    for planner in ("vdnn-all", "superneurons", "swapadvisor", "capuchin", "slackswap"):
        solution = solve(problem, planner)
        if solution.status.has_plan:
            assert solution.gap_to(bound) >= 0


# ---------------------------------------------------------------------- worked by hand


def test_one_recomputation_by_hand():
    # t0, t1, t2 of 10 bytes; keep-everything holds 30 while f2 writes t2 and all of b2, b1 need
    # t1, t0. t2 is read by nothing, so t0 and t1 are saved. Budget 20: when f2 starts, t0 must be
    # gone (t1 is read by f2), on a link that moves nothing in time: rerunning f0 costs 30 ns.
    profile = chain([10, 10, 10], forward_ns=[30, 40, 40], backward_ns=[20, 20, 20])
    problem = Problem(profile, LINK.with_link(1e-3), 20)
    bound = lower_bound(problem, "lp")
    assert bound.value_ns == profile.duration_ns + 30
    assert enumerate_plans(problem).iteration_ns == bound.value_ns


def test_one_hidden_transfer_by_hand():
    # The same with a link of one byte a nanosecond: t0 leaves while f1 runs, at no cost.
    profile = chain([10, 10, 10], forward_ns=[30, 40, 40], backward_ns=[20, 20, 20])
    assert lower_bound(Problem(profile, LINK, 20), "lp").value_ns == profile.duration_ns


def test_latency_counts():
    # t0 of 10 bytes takes 10 + 35 ns, 40 are hidden by f1: the fluid link moves 10 bytes in no
    # less than 45 ns, so 5 ns of stall or a share of rerunning f0 remain.
    profile = chain([10, 10, 10], forward_ns=[300, 40, 40], backward_ns=[200, 200, 200])
    problem = Problem(profile, replace(LINK, latency_ns=35), 20)
    assert lower_bound(problem, "lp").value_ns == profile.duration_ns + 5
    assert enumerate_plans(problem).iteration_ns == profile.duration_ns + 5


def test_half_duplex_shares_the_link():
    # x -> t0 -> t1 -> t2; f2 must not start beside t0, and b1 reads t0 again: both transfers have
    # to pass between f0's end and b0's start. Full duplex and half duplex agree here when there is
    # time enough, and half duplex is never below.
    profile = chain([40, 10, 10], forward_ns=[500, 10, 10], backward_ns=[10, 10, 10])
    full = lower_bound(Problem(profile, LINK, 50), "lp")
    half = lower_bound(Problem(profile, LINK.with_duplex(False), 50), "lp")
    assert full.value_ns <= half.value_ns
    assert half.value_ns <= enumerate_plans(
        Problem(profile, LINK.with_duplex(False), 50)
    ).iteration_ns


def test_milestones_see_held_intermediates():
    # f0 makes the intermediate u in 100 ns, f1 the saved t from it in 2, f2 the saved v from t.
    # While b0 runs, its workspace and v fill the budget, and the link moves nothing in time: t and
    # u must both be gone, and both f0 and f1 run again. The plain model may keep u: a closure of b0
    # could have read it, if v had been dropped. At the milestone it is seen that none has.
    sizes = {"x": 0, "u": 10, "t": 10, "v": 10}
    profile = Profile(
        "held", "random", tuple(Tensor(name, size) for name, size in sizes.items()),
        (ForwardOp("f0", 100, (0,), (1,)), ForwardOp("f1", 2, (1,), (2,)),
         ForwardOp("f2", 50, (2,), (3,))),
        (BackwardOp("b0", 200, (3,), workspace=90), BackwardOp("b1", 200, (2,))),
    )
    problem = Problem(profile, LINK.with_link(1e-4), 100)
    assert linear_bound(build_model(problem)).value_ns == profile.duration_ns + 2
    tracked = linear_bound(build_model(problem, milestones=[0]))
    assert tracked.value_ns == profile.duration_ns + 102
    assert enumerate_plans(problem).iteration_ns == tracked.value_ns
    assert lower_bound(problem, "lp").value_ns == tracked.value_ns


@pytest.mark.parametrize(
    "profile",
    [
        Profile("empty", "random", (), (), ()),
        Profile("inputs", "random", (Tensor("x", 3),), (), (BackwardOp("b", 4, (0,)),)),
        Profile("forward", "random", (Tensor("x", 3),), (ForwardOp("f", 2, (), (0,)),), ()),
        Profile("instant", "random", (Tensor("x", 0),), (ForwardOp("f", 0, (), (0,)),),
                (BackwardOp("b", 0, (0,)),)),
    ],
    ids=lambda profile: profile.name,
)
def test_degenerate_profiles(profile, solver):
    problem = Problem(profile, LINK, 10)
    for method in ("lp", "milp"):
        assert lower_bound(problem, method, solver=solver).value_ns == profile.duration_ns


def test_no_budget_no_cost(solver):
    problem = Problem(load_profile("bert-large"), profile_hardware("bert-large"))
    assert lower_bound(problem, solver=solver).value_ns == problem.profile.duration_ns


# ---------------------------------------------------------------------- deep models


def test_milestones_where_memory_binds():
    problem = Problem(load_profile("bert-large"), profile_hardware("bert-large"), 0.5)
    plain = linear_bound(build_model(problem))
    model, bound = tightened(problem)
    assert 1 <= len(model.milestones) <= 4
    assert bound.value_ns > plain.value_ns
    assert bound.value_ns <= solve(problem, "slackswap").evaluation.iteration_ns


def test_less_memory_never_lowers_the_bound():
    profile, hardware = load_profile("bert-large"), profile_hardware("bert-large")
    values = [
        linear_bound(build_model(Problem(profile, hardware, f), milestones=[1])).value_ns
        for f in (0.4, 0.5, 0.65, 0.8, 1.0)
    ]
    assert values == sorted(values, reverse=True)


def test_solvers_agree_on_a_deep_model(solver):
    problem = Problem(load_profile("bert-large"), profile_hardware("bert-large"), 0.5)
    bound = lower_bound(problem, solver=solver)
    assert bound.solver == {"highs": "highs", "scip": "glop"}[solver]
    assert bound.value_ns == pytest.approx(lower_bound(problem, "lp").value_ns, rel=1e-7)


def test_restricted_to_one_action():
    problem = Problem(load_profile("bert-large"), profile_hardware("bert-large"), 0.5)
    whole = lower_bound(problem, "lp")
    recompute_only = lower_bound(problem, allow_swap=False)
    swap_only = lower_bound(problem, allow_recompute=False)
    assert whole.value_ns <= min(recompute_only.value_ns, swap_only.value_ns)
    # Bytes that may not be recomputed must all pass the link, one way after the other.
    assert swap_only.value_ns > recompute_only.value_ns


# ---------------------------------------------------------------------- exact arithmetic


@settings(max_examples=200)
@given(seeds)
def test_any_duals_give_a_bound(seed):
    problem = small_problem(seed % 500, most_plans=10**9)
    model = build_model(problem).linear.relaxed()
    answer = solve_linear(model, SolverName.HIGHS)
    assume(answer.status is Status.OPTIMAL)
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=model.n_rows) * 10.0 ** rng.integers(-6, 3)
    for duals in (answer.duals + noise, noise, np.where(noise > 0, np.nan, np.inf)):
        assert float(dual_bound(model, duals)) <= answer.objective * (1 + 1e-6) + 1e-6


def test_scaling_changes_no_coefficient():
    problem = Problem(load_profile("bert-large"), profile_hardware("bert-large"), 0.5)
    model = build_model(problem, milestones=[1])
    scaled = model.linear
    back = scaled.scaled(ns=1 / model.ns, nbytes=1 / model.nbytes, objective=1 / model.ns)
    again = back.scaled(ns=model.ns, nbytes=model.nbytes, objective=model.ns)
    for name in ("values", "row_lower", "row_upper", "lower", "upper", "cost"):
        assert (getattr(scaled, name) == getattr(again, name)).all()
    # Natural units: nanoseconds cost 1, and tensors enter with their exact sizes.
    assert back.cost[model.variables.forward_stall].tolist() == [1.0] * len(problem.profile.forward)
    sizes = set(problem.profile.graph.nbytes.tolist())
    swap = set(model.variables.swap.tolist())
    entries = [
        abs(value)
        for row, column, value in zip(back.rows, back.columns, back.values, strict=True)
        if column in swap and back.row_unit[row] == 2
    ]
    assert entries
    assert all(Fraction(value) in sizes for value in entries)


def test_rates_are_never_below_the_best_transfer():
    problem = Problem(load_profile("gpt2-xl"), profile_hardware("gpt2-xl"), 0.5)
    data = build_model(problem).data
    sizes = problem.profile.graph.nbytes[data.may_swap]
    best = max(Fraction(int(b), problem.hardware.d2h_ns(int(b))) for b in set(sizes.tolist()))
    assert best <= Fraction(data.d2h_rate) <= best + Fraction(1, 2**20)
    assert Fraction(data.d2h_ns_per_byte) <= 1 / best


def test_sizes_beyond_exact_doubles_are_refused():
    profile = Profile("vast", "random", (Tensor("x", 2**50),), (ForwardOp("f", 1, (), (0,)),),
                      (BackwardOp("b", 1, (0,)),))
    with pytest.raises(Skipped, match="exceed"):
        lower_bound(Problem(profile, LINK, 2**51), "lp")


# ---------------------------------------------------------------------- solvers that fail


def test_the_solvers_own_message_is_shown():
    model = build_model(Problem(chain([1, 1]), LINK, 5)).linear
    broken = replace(model, lower=model.upper + 1)
    with pytest.raises(SolverFailed, match="lower_bound > upper_bound"):
        solve_linear(broken, SolverName.HIGHS)


def test_the_message_is_dug_out_of_the_context():
    outer = AttributeError("canonical_code")
    outer.__context__ = ValueError("what the solver said")
    assert own_message(outer) == "what the solver said"


def test_a_fallback_is_said_aloud(monkeypatch):
    honest = solving.solve_linear

    def broken_highs(model, solver, **options):
        if solver is SolverName.HIGHS:
            raise SolverFailed("highs failed: no licence")
        return honest(model, solver, **options)

    monkeypatch.setattr(solving, "solve_linear", broken_highs)
    problem = Problem(chain([10, 10, 10], forward_ns=[30, 40, 40]), LINK.with_link(1e-3), 20)
    bound = lower_bound(problem, solver="highs")
    assert bound.solver == "glop"
    assert "highs failed: no licence" in bound.note
    assert bound.value_ns == problem.profile.duration_ns + 30


def test_when_all_fail_each_is_quoted(monkeypatch):
    def broken(model, solver, **options):
        raise SolverFailed(f"{solver} is out of order")

    monkeypatch.setattr(solving, "solve_linear", broken)
    with pytest.raises(SolverFailed, match="highs is out of order; glop is out of order"):
        lower_bound(Problem(chain([10, 10, 10]), LINK, 20), "lp")


def test_without_duals_pure_compute_is_left(monkeypatch):
    honest = bounds.solve_with_fallback

    def stopped(*arguments, **options):
        answer = honest(*arguments, **options)
        return replace(answer, status=Status.TIMEOUT, duals=None, x=None)

    monkeypatch.setattr(bounds, "solve_with_fallback", stopped)
    profile = chain([10, 10, 10], forward_ns=[30, 40, 40])
    bound = lower_bound(Problem(profile, LINK.with_link(1e-3), 20), "lp")
    assert bound.value_ns == profile.duration_ns
    assert bound.status is Status.TIMEOUT
