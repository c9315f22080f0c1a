"""SuperNeurons and SwapAdvisor: who leaves when an allocation fails."""

from dataclasses import replace
from random import Random

import pytest
from handmade import actions_of, chain, plan_of

from slackswap import (
    BackwardOp,
    ForwardOp,
    Problem,
    Profile,
    Tensor,
    load_hardware,
    load_profile,
    simulate,
    solve,
)
from slackswap.planners.superneurons import SuperNeurons, SuperNeuronsUngated, join_ops
from slackswap.profiles.generators.random_dag import random_problem
from slackswap.search.swapadvisor import SwapAdvisor

AT_FAILURE = SuperNeurons(prefetch_gate=True, copy_at="failure", unread_checkpoints="joins")
BELADY = SwapAdvisor(victims="belady")

# Products and norms in turn, and a loss. All tensors have 10 bytes, the input too.
NET = chain(
    [10] * 6, kinds=["gemm", "norm", "gemm", "norm", "gemm", "loss"], input_bytes=10
)


def test_superneurons_recomputes_norms_and_evicts_the_oldest_product():
    # t1 and t3 are written by norms: recomputed. t0, t2 and t4 are checkpoints. In use while op i
    # runs: f0 x, t0: 20; f1 30; f2 40, then t1 is dropped; f3 x, t0, t2, t3: 40; f4 50 > 45 fails.
    # Idle by then: t0, last read by f1 (t2 was read by f3 just before). It leaves when f4 cannot
    # start: its copy begins as f3 ends. Then f4 takes 40, and f5, with t3 dropped, 40.
    # Backward: b4 needs t3 from t2, b2 (number 3) needs t1 from t0: one checkpoint layer ahead of
    # b2 is b4 (number 1), for b3 is a norm.
    solution = plan_of(NET, 45, AT_FAILURE)
    assert actions_of(solution) == {"t0": "swap", "t1": "recompute", "t3": "recompute"}
    assert solution.plan.offload_gates == {"t0": 3}
    assert solution.plan.prefetch_gates == {"t0": 1}
    # The copy takes 10 ns, all of which f4 waits.
    assert solution.evaluation.stall_forward_ns == 10

    ungated = plan_of(NET, 45, SuperNeuronsUngated(copy_at="failure", unread_checkpoints="joins"))
    assert ungated.planner.name == "superneurons-ungated"
    assert ungated.plan.actions == solution.plan.actions
    assert ungated.plan.offload_gates == {"t0": 3}
    assert ungated.plan.prefetch_gates == {}


def test_superneurons_eager_copies_start_when_a_checkpoint_is_written():
    # The same victim as at failure, but t0 is out by the time f1 ends, at 20: f4, from 40 on,
    # waits for nothing.
    eager = plan_of(NET, 45, replace(AT_FAILURE, copy_at="eager"))
    assert actions_of(eager) == actions_of(plan_of(NET, 45, AT_FAILURE))
    assert eager.plan.offload_gates == {}
    assert eager.evaluation.stall_forward_ns == 0


def test_searched_victims_are_never_slower_than_belady_and_only_swapped():
    found = 0
    for seed in range(12):
        problem = random_problem(Random(seed), 10)
        belady = solve(problem, BELADY)
        searched = solve(problem, SwapAdvisor(victims="genetic", evaluations=200))
        assert belady.status.has_plan == searched.status.has_plan
        if belady.status.has_plan:
            found += 1
            assert searched.evaluation.iteration_ns <= belady.evaluation.iteration_ns
            graph, index_of = problem.profile.graph, problem.profile.index_of
            allowed = {t.name: t.allowed for t in problem.profile.tensors}
            assert not any(
                action == "recompute" and graph.is_saved[index_of[name]]
                for name, action in searched.plan.actions.items() if "keep" in allowed[name]
            )
    assert found > 3


def test_superneurons_leaves_a_net_alone_that_fits():
    # x and t0 .. t5: 70 bytes while f5 runs.
    assert actions_of(plan_of(NET, 70, AT_FAILURE)) == {}
    assert actions_of(plan_of(NET, 69, AT_FAILURE)) != {}


def test_superneurons_caches_a_join_that_only_segments_need():
    # p is a product, u its residual sum with the input, n a norm of u that f3 reads, and y what f3
    # makes. Backward reads y, then n; u is a join that only n's segment needs. While f4 runs there
    # are n, y and 20 of scratch: 50. With 45 n is recomputed: from u (10 ns), which then takes 10,
    # so 40 in all; or, with the join dropped, from x through f0, f1 and f2 (30 ns), which takes 30.
    profile = Profile(
        "join", "random",
        tuple(
            Tensor(name, size)
            for name, size in (("x", 0), ("p", 10), ("u", 10), ("n", 20), ("y", 10), ("z", 0))
        ),
        (
            ForwardOp("f0", 10, (0,), (1,), kind="gemm"),
            ForwardOp("f1", 10, (0, 1), (2,), kind="residual"),
            ForwardOp("f2", 10, (2,), (3,), kind="norm"),
            ForwardOp("f3", 10, (3,), (4,), kind="gemm"),
            ForwardOp("f4", 10, (4,), (5,), 20, kind="gemm"),
        ),
        (BackwardOp("b4", 20, (4,), kind="gemm"), BackwardOp("b3", 20, (3,), kind="gemm")),
    )
    cached = plan_of(profile, 45, AT_FAILURE)
    assert actions_of(cached) == {"n": "recompute", "u": "keep"}
    assert cached.evaluation.recompute_ns == 10
    dropped = plan_of(profile, 45, replace(AT_FAILURE, unread_checkpoints="none"))
    assert actions_of(dropped) == {"n": "recompute"}
    assert dropped.evaluation.recompute_ns == 30
    # The product p is no join; as a checkpoint of its own it is not needed once u is cached.
    assert actions_of(plan_of(profile, 45, replace(AT_FAILURE, unread_checkpoints="all"))) == (
        actions_of(cached)
    )
    # At 39 the join must leave for the host: it is the only one in the cache then.
    assert actions_of(plan_of(profile, 39, AT_FAILURE)) == {"n": "recompute", "u": "swap"}


def late_reader() -> Profile:
    """a is idle first and needed again first; b is idle later and needed last."""
    return Profile(
        "late", "random",
        tuple(Tensor(name, 10) for name in ("x", "a", "b", "c", "d")),
        (
            ForwardOp("f0", 10, (0,), (1,), kind="gemm"),
            ForwardOp("f1", 10, (1,), (2,), kind="gemm"),
            ForwardOp("f2", 10, (2,), (3,), kind="gemm"),
            ForwardOp("f3", 10, (3,), (4,), kind="gemm"),
        ),
        (
            BackwardOp("b3", 20, (3,), kind="gemm"),
            BackwardOp("b1", 20, (1,), kind="gemm"),
            BackwardOp("b2", 20, (2,), kind="gemm"),
        ),
    )


def test_least_recent_and_longest_to_next_use_differ():
    # x, a, b, c, d: 50 bytes while f3 runs; with 45 it fails. Idle are a (last read by f1) and b
    # (by f2). Least recently used is a; the longest time to its next use has b. f3 is number 3, so
    # a copy at failure begins as f2 ends: for b that is right after its use as well.
    profile = late_reader()
    recent = plan_of(profile, 45, AT_FAILURE)
    assert actions_of(recent) == {"a": "swap"}
    assert recent.plan.offload_gates == {"a": 2}
    belady = plan_of(profile, 45, BELADY)
    assert actions_of(belady) == {"b": "swap"}
    assert belady.plan.offload_gates == {"b": 2}
    assert belady.plan.prefetch_gates == {}


def test_swapadvisor_copies_after_use_or_at_failure():
    # All products: t0 is needed last and idle from the end of f1 on. x and t0 .. t3: 50 bytes
    # while f3 runs, 60 while f4 does: at 55 the latter fails.
    profile = chain([10] * 5, input_bytes=10)
    after_use = plan_of(profile, 55, BELADY)
    at_failure = plan_of(profile, 55, replace(BELADY, copy_at="failure"))
    assert actions_of(after_use) == actions_of(at_failure) == {"t0": "swap"}
    assert after_use.plan.offload_gates == {"t0": 1}
    assert at_failure.plan.offload_gates == {"t0": 3}
    # 10 ns of copy: hidden by f2 and f3, or waited for by f4.
    assert after_use.evaluation.stall_forward_ns == 0
    assert at_failure.evaluation.stall_forward_ns == 10


def test_what_backward_lacks_leaves_at_the_end_of_forward():
    # Forward takes 30 at most. b2 takes 20 of scratch on top of x, t0 and t1: 50. Of t0 and t1 the
    # former is not needed by b2: it leaves, with the number of forward ops as time of failure.
    profile = Profile(
        "scratch", "random",
        (Tensor("x", 0), *(Tensor(f"t{i}", 10) for i in range(3))),
        tuple(ForwardOp(f"f{i}", 10, (i,), (i + 1,), kind="gemm") for i in range(3)),
        (BackwardOp("b2", 20, (2,), 20), BackwardOp("b1", 20, (1,)), BackwardOp("b0", 20, (0,))),
    )
    solution = plan_of(profile, 35, replace(BELADY, copy_at="failure"))
    assert actions_of(solution) == {"t0": "swap"}
    assert solution.plan.offload_gates == {"t0": 2}


def test_evictions_do_not_depend_on_the_link():
    profile = load_profile("bert-large")
    hardware = load_hardware("a100-80gb")
    budget = Problem(profile, hardware, 0.5).budget_bytes
    for planner in (AT_FAILURE, BELADY, replace(BELADY, copy_at="failure")):
        plans = [
            solve(Problem(profile, hardware.with_link(factor), budget), planner).plan
            for factor in (0.25, 4.0)
        ]
        assert plans[0] == plans[1]


def test_a_victim_may_be_found_at_each_step_of_backward():
    # The plan that the walk calls feasible is so in the referee, under its own timing.
    found = 0
    for seed in range(60):
        problem = random_problem(Random(seed), 10)
        solution = solve(problem, BELADY)
        if solution.status.has_plan:
            found += 1
            assert simulate(problem, solution.plan).feasible
        else:
            # No reading of eviction hides a plan that swaps all it can and fits.
            assert not solve(problem, "swap-all").status.has_plan
    assert found > 20


@pytest.mark.parametrize("name", ["bert-large", "gpt2-xl-eager", "llama-7b-as-written", "resnet50"])
def test_joins_are_found_where_a_trace_does_not_name_them(name):
    profile = load_profile(name)
    unnamed = replace(
        profile,
        forward=tuple(
            replace(op, kind="elementwise") if op.kind == "residual" else op
            for op in profile.forward
        ),
    )
    named = join_ops(profile)
    assert named.any()
    found = join_ops(unnamed)
    # BERT adds the types of tokens to their embedding, which branches off from nothing; where
    # ResNet changes sizes the skip has a convolution of its own, and looks like a gate.
    missed = {profile.forward[op].name for op in (named & ~found).nonzero()[0]}
    assert missed <= {
        "embedding.types.sum", *(f"block{stage}_1.residual" for stage in (1, 2, 3, 4))
    }
    assert found.any()
    assert not (found & ~named).any()
