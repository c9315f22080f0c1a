"""The Lagrangian bound: below every plan, near the LP, and evaluated by anyone from its prices."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction

import pytest

from slackswap import (
    BackwardOp,
    ForwardOp,
    Hardware,
    InvalidPlan,
    Plan,
    Problem,
    Profile,
    Skipped,
    Tensor,
    load_profile,
    simulate,
    solve,
)
from slackswap.bound import BoundMethod
from slackswap.profiles import layered_profile, random_problem
from slackswap.profiles.library import hardware_of
from slackswap.result import Phase
from slackswap.search import class_ceilings, lower_bound
from slackswap.search.enumeration import enumerate_plans, enumeration_bound
from slackswap.search.lagrangian.bound import (
    Certificate,
    PriceSearch,
    evaluate_certificate,
    lagrangian_bound,
)
from slackswap.search.lagrangian.instants import Facts
from slackswap.search.lagrangian.relaxation import Multipliers, Relaxation
from slackswap.search.milp.data import Restriction
from slackswap.status import Status

LINK = Hardware("link", 10**9, 10**9)  # a byte a nanosecond, each way


def two_tensors(first_ns: int = 100, second_ns: int = 100) -> Profile:
    """Two saved tensors of 100 bytes, written one after the other, read in reverse."""
    return Profile(
        "two", "random", (Tensor("a", 100), Tensor("b", 100)),
        (ForwardOp("f", first_ns, (), (0,)), ForwardOp("g", second_ns, (), (1,))),
        (BackwardOp("gb", 50, (1,)), BackwardOp("fb", 50, (0,))),
    )


def test_a_hand_worked_example():
    # Budget 100 of 200 bytes. When g starts, b takes all of it, so a is not in memory: it is copied
    # out in 100 ns after f, while compute waits, or f runs again later, 100 ns. So no plan beats
    # the 300 ns of computing by less than 100, and recomputing a reaches it.
    problem = Problem(two_tensors(), LINK, 100)
    bound = lagrangian_bound(problem)
    assert bound.value_ns == 400
    assert bound.safe
    assert bound.status is Status.OPTIMAL
    assert simulate(problem, Plan({"a": "recompute"})).iteration_ns == 400
    assert bound.certificate.phase is Phase.FORWARD


def test_prices_by_hand():
    # The same, priced by hand at the start of backward op 0: a byte of memory 1 ns, the link back
    # before op 1 at 1/2. a costs min(100 * 1, 100 * 1/2) = 50 unless f runs again, which costs
    # 100 * (1 - 1/2) = 50 ns. Less the room (0 bytes) and 1/2 * 50 ns of link: 50 - 25 = 25.
    facts = Facts.of(Problem(two_tensors(), LINK, 100))
    relaxation = Relaxation(facts, facts.in_backward(0))
    assert relaxation.proven_ns(Multipliers(2, 2, {}, {1: 1})) == 25


@pytest.mark.parametrize("seed", range(150))
def test_no_plan_is_faster(seed):
    """At every instant, against the fastest of all plans."""
    problem = random_problem(random.Random(seed), random.Random(seed).choice((3, 4, 5)))
    try:
        found = enumerate_plans(problem)
    except Skipped:
        pytest.skip("too many plans to try")
    if found.iteration_ns is None:
        return
    assert lagrangian_bound(problem).value_ns <= found.iteration_ns
    facts, graph = Facts.of(problem), problem.profile.graph
    instants = [facts.in_forward(op) for op in range(graph.n_forward + 1)]
    instants += [facts.in_backward(op) for op in range(graph.n_backward)]
    for instant in instants:
        relaxation = Relaxation(facts, instant)
        search = PriceSearch(relaxation)
        search.run()
        if search.best is not None:
            proven = problem.profile.duration_ns + relaxation.proven_ns(search.best.exact())
            assert proven <= found.iteration_ns, instant


@pytest.mark.parametrize("seed", range(120))
def test_any_prices_are_valid(seed):
    """The proof does not rest on good prices: arbitrary ones give a weak bound, never a wrong one.
    """
    rng = random.Random(seed)
    problem = random_problem(rng, 4)
    try:
        found = enumerate_plans(problem)
    except Skipped:
        pytest.skip("too many plans to try")
    if found.iteration_ns is None:
        return
    facts, graph = Facts.of(problem), problem.profile.graph
    one = 2**20
    for _ in range(10):
        phase = rng.choice((Phase.FORWARD, Phase.BACKWARD))
        op = rng.randrange(graph.n_forward + 1 if phase is Phase.FORWARD else graph.n_backward)
        instant = facts.at(phase, op)
        relaxation = Relaxation(facts, instant)
        outs = [i for i in range(graph.n_forward) if relaxation.window_out_ns(i) >= 0]
        backs = list(range(instant.first_due, graph.n_backward))
        prices = Multipliers(
            one, rng.randrange(10 * one),
            {i: rng.randrange(one // 3) for i in rng.sample(outs, min(3, len(outs)))},
            {j: rng.randrange(one // 3) for j in rng.sample(backs, min(3, len(backs)))},
        )
        bound = problem.profile.duration_ns + relaxation.proven_ns(prices)
        assert bound <= found.iteration_ns


@pytest.mark.parametrize("seed", range(150))
def test_gates_and_barriers_are_covered(seed):
    """Reordered transfers and waits are plans too."""
    rng = random.Random(seed)
    problem = random_problem(rng, rng.choice((4, 6, 12)))
    bound = lagrangian_bound(problem)
    profile = problem.profile
    swappable = [
        tensor.name for index, tensor in enumerate(profile.tensors)
        if not profile.graph.is_input[index] and "swap" in tensor.allowed
    ]
    for _ in range(40):
        actions = {name: "swap" for name in swappable if rng.random() < 0.5}
        backward, forward = range(len(profile.backward)), range(len(profile.forward))
        plan = Plan(
            actions,
            offload_gates={name: rng.choice(forward) for name in actions if rng.random() < 0.4},
            prefetch_gates={name: rng.choice(backward) for name in actions if rng.random() < 0.4},
            offload_barriers=tuple(i for i in forward if rng.random() < 0.1),
            prefetch_barriers=tuple(j for j in backward if rng.random() < 0.1),
        )
        try:
            score = simulate(problem, plan)
        except InvalidPlan:  # a random plan may ask for what cannot be
            continue
        if score.feasible:
            assert bound.value_ns <= score.iteration_ns


@pytest.mark.parametrize("seed", range(60))
def test_planners_on_larger_graphs_do_not_beat_it(seed):
    problem = random_problem(random.Random(1000 + seed), 40)
    bound = lagrangian_bound(problem)
    for planner in ("slackswap", "capuchin", "swapadvisor"):
        solution = solve(problem, planner)
        if solution.evaluation is not None and solution.evaluation.feasible:
            assert bound.value_ns <= solution.evaluation.iteration_ns


MODELS = ("bert-large", "gpt2-xl", "llama-7b", "gpt-neo-2.7b-a100", "opt-350m-a100", "resnet50")


@pytest.mark.parametrize("name", MODELS)
def test_is_within_a_thousandth_of_the_lp(name):
    profile = load_profile(name)
    problem = Problem(profile, hardware_of(profile), 0.5)
    assert lagrangian_bound(problem).value_ns >= 0.999 * lower_bound(problem, "lp").value_ns


@pytest.mark.parametrize(("draw", "rate"), [(12, 2), (13, 8)])
def test_is_within_a_thousandth_of_the_lp_on_layered_graphs(draw, rate):
    profile = layered_profile(200, random.Random(draw))
    hardware = Hardware("link", rate * 10**9, rate * 10**9, latency_ns=10_000)
    problem = Problem(profile, hardware, 0.5)
    assert lagrangian_bound(problem).value_ns >= 0.999 * lower_bound(problem, "lp").value_ns


def test_the_certificate_proves_the_bound_again():
    profile = load_profile("llama-7b")
    problem = Problem(profile, hardware_of(profile), 0.45)
    bound = lagrangian_bound(problem)
    document = json.loads(json.dumps(bound.certificate.to_dict()))
    again = Certificate.from_dict(document)
    assert again == bound.certificate
    assert evaluate_certificate(problem, again) == bound.value_ns > profile.duration_ns
    assert lagrangian_bound(problem).certificate == bound.certificate  # deterministic


def test_prices_that_prove_nothing_are_refused():
    problem = Problem(two_tensors(), LINK, 100)
    for prices, reason in (
        (Multipliers(2, -1), "negative"),
        (Multipliers(2, 1, {}, {1: 3}), "more than 1"),
        (Multipliers(2, 1, {0: 3}), "more than 1"),
        (Multipliers(2, 1, {}, {0: 1}), "does not start after"),
        (Multipliers(2, 1, {7: 1}), "does not end before"),
        (Multipliers(2, 1, host=1), "unlimited"),
        (Multipliers(1.0, 0.5), "not integers"),
    ):
        with pytest.raises(ValueError, match=reason):
            evaluate_certificate(problem, Certificate(Phase.BACKWARD, 0, prices))


def test_exact_prices_are_rounded_down():
    exact = Multipliers(1.0, 1 / 3, {0: 0.1, 1: 0.9}, {2: 2**-60}).exact()
    assert Fraction(exact.memory, exact.one) <= Fraction(1, 3)
    assert sum(exact.out.values()) <= exact.one
    assert exact.back == {}  # rounded to nothing


@pytest.mark.parametrize("seed", range(80))
def test_ceilings_by_class_hold_for_their_class(seed):
    problem = random_problem(random.Random(seed), 5)
    for swap, recompute in ((True, False), (False, True)):
        try:
            found = enumerate_plans(problem, allow_swap=swap, allow_recompute=recompute)
        except Skipped:
            pytest.skip("too many plans to try")
        exact = enumeration_bound(problem, found)
        bound = lagrangian_bound(
            problem, Restriction(allow_swap=swap, allow_recompute=recompute)
        )
        if exact.status is not Status.INFEASIBLE:
            assert bound.value_ns <= exact.value_ns


@pytest.mark.parametrize("seed", range(120))
def test_a_host_that_is_full_counts(seed):
    rng = random.Random(seed)
    problem = random_problem(rng, 5)
    host = rng.randrange(1, 2 + int(problem.profile.graph.nbytes.sum()))
    problem = problem.with_hardware(replace(problem.hardware, host_bytes=host))
    try:
        found = enumerate_plans(problem)
    except Skipped:
        pytest.skip("too many plans to try")
    if found.iteration_ns is not None:
        assert lagrangian_bound(problem).value_ns <= found.iteration_ns


def test_a_small_host_makes_the_bound_higher():
    # As worked above, but nothing may be swapped: a runs again, 100 ns.
    problem = Problem(two_tensors(), replace(LINK, host_bytes=0), 100)
    assert lagrangian_bound(problem).value_ns == 400


@pytest.mark.parametrize(
    ("profile", "value"),
    [
        (Profile("empty", "random", (), (), ()), 0),
        (Profile("forward", "random", (Tensor("a", 9),), (ForwardOp("f", 3, (), (0,)),), ()), 3),
        (Profile("unsaved", "random", (Tensor("a", 9),), (ForwardOp("f", 3, (), (0,)),),
                 (BackwardOp("b", 4, ()),)), 7),
    ],
)
def test_degenerate_profiles(profile, value):
    assert lagrangian_bound(Problem(profile, LINK)).value_ns == value


def test_a_budget_that_no_plan_meets_is_told():
    bound = lagrangian_bound(Problem(two_tensors(), LINK, 99))
    assert bound.status is Status.INFEASIBLE
    assert bound.method is BoundMethod.LAGRANGIAN
    assert "100 B" in bound.note


@pytest.mark.parametrize(
    ("name", "swap_only", "recompute_only"),
    [("bert-large", 0.290, 0.892), ("gpt2-xl", 0.445, 0.918), ("llama-7b", 0.870, 0.937)],
)
def test_ceilings_by_class_of_the_models(name, swap_only, recompute_only):
    """At half the memory swapping alone gets at most this far, and recomputing alone this far."""
    profile = load_profile(name)
    ceilings = class_ceilings(Problem(profile, hardware_of(profile), 0.5)).throughput(
        profile.duration_ns
    )
    assert ceilings["swap_only"] == pytest.approx(swap_only, abs=0.002)
    assert ceilings["recompute_only"] == pytest.approx(recompute_only, abs=0.002)
    assert ceilings["every_plan"] > max(ceilings["swap_only"], ceilings["recompute_only"])
