from dataclasses import replace

import pytest
from handmade import LINK, actions_of, plan_of

from slackswap import (
    BackwardOp,
    ForwardOp,
    Problem,
    Profile,
    Status,
    Tensor,
    load_profile,
    simulate,
    solve,
)
from slackswap.profiles.library import profile_hardware
from slackswap.search.layer_window import LayerWindow


def two_layers(peak: int = 0) -> Profile:
    """Layer 0 saves p and q, 20 bytes each, and gives r (none); layer 1 saves s, 20 bytes.

    p takes 16 ns, q 4 ns, r 5 ns: layer 0 has 25 ns of forward time, its backward 60. Layer 1 takes
    40 ns forward, its last op `peak` bytes of scratch.
    """
    return Profile(
        "windows", "random",
        (Tensor("x", 0), Tensor("p", 20), Tensor("q", 20), Tensor("r", 0), Tensor("s", 20),
         Tensor("y", 0)),
        (
            ForwardOp("fp", 16, (0,), (1,), layer=0),
            ForwardOp("fq", 4, (0,), (2,), layer=0),
            ForwardOp("fr", 5, (1, 2), (3,), layer=0),
            ForwardOp("fs", 10, (3,), (4,), layer=1),
            ForwardOp("fy", 30, (4,), (5,), peak, layer=1),
        ),
        (
            BackwardOp("bs", 20, (4,), layer=1),
            BackwardOp("bp", 30, (1,), layer=0),
            BackwardOp("bq", 30, (2,), layer=0),
        ),
    )


def test_a_window_holds_one_copy_the_other_is_recomputed():
    # fy takes 40 of scratch beside p, q and s: 100. With 60 both p and q must go. Layer 0 has 25
    # ns: one copy of 20. By price a byte p (16 ns) is worth the link, q (4 ns) is made again. r
    # enters layer 1, and is stored for it.
    solution = plan_of(two_layers(40), 60, LayerWindow(window="own"))
    assert actions_of(solution) == {"p": "swap", "q": "recompute", "r": "keep"}
    assert solution.evaluation.recompute_ns == 4
    assert solution.plan.prefetch_gates == solution.plan.offload_gates == {}


def test_suffix_windows_are_the_time_after_a_layer():
    # After layer 0 there are 40 ns of forward time: both copies fit. Backward gives it only the 20
    # ns of layer 1 before it: one copy. With 40 ns there, both.
    profile = two_layers(40)
    solution = plan_of(profile, 60, LayerWindow(window="suffix"))
    assert actions_of(solution) == {"p": "swap", "q": "recompute", "r": "keep"}
    longer = replace(
        profile,
        backward=(BackwardOp("bs", 40, (4,), layer=1), *profile.backward[1:]),
    )
    assert actions_of(plan_of(longer, 60, LayerWindow(window="suffix"))) == {
        "p": "swap", "q": "swap", "r": "keep"
    }
    assert actions_of(plan_of(longer, 60, LayerWindow(window="own"))) == {
        "p": "swap", "q": "recompute", "r": "keep"
    }


def test_what_fits_is_left_alone_and_what_cannot_is_said():
    profile = two_layers(40)
    assert actions_of(plan_of(profile, 100, LayerWindow(window="own"))) == {}
    solution = solve(Problem(profile, LINK, 59), LayerWindow(window="own"))
    assert solution.status is Status.INFEASIBLE
    assert "layer windows" in solution.reason


@pytest.mark.parametrize("name", ["bert-large", "llama-7b", "resnet50"])
def test_offloads_stay_within_each_layers_window(name):
    profile, hardware = load_profile(name), profile_hardware(name)
    problem = Problem(profile, hardware, 0.6)
    plan = solve(problem, LayerWindow(window="own")).plan
    time_of, copies_of = {}, {}
    for op in profile.forward:
        time_of[op.layer] = time_of.get(op.layer, 0) + op.duration_ns
        for t in op.writes:
            if plan.actions.get(profile.tensors[t].name) == "swap":
                copy = hardware.d2h_ns(profile.tensors[t].nbytes)
                copies_of[op.layer] = copies_of.get(op.layer, 0) + copy
    assert copies_of
    assert all(copies_of[layer] <= time_of[layer] + 1 for layer in copies_of)
    assert simulate(problem, plan).feasible


def chain8() -> Problem:
    """Eight products in a row, each a layer, over a link that moves a tensor in about its time.

    Keeping all takes 8,628 bytes: x (100), the eight results (8,028) and 500 of scratch at the
    turn of the passes.
    """
    sizes = range(1000, 1008)
    profile = Profile(
        "chain8", "random",
        (Tensor("x", 100), *(Tensor(f"h{i}", size) for i, size in enumerate(sizes))),
        tuple(
            ForwardOp(f"f{i}", size, (i,), (i + 1,), layer=i, kind="gemm")
            for i, size in enumerate(sizes)
        ),
        tuple(
            BackwardOp(f"b{i}", 2 * size, (i, i + 1), 500, layer=i, kind="gemm")
            for i, size in reversed(list(enumerate(sizes)))
        ),
    )
    return Problem(profile, replace(LINK, latency_ns=100))


@pytest.mark.parametrize("window", ["own", "suffix"])
def test_what_fits_a_smaller_budget_fits_a_larger_one(window):
    # A tensor is 1e-6 GB: in such units the solver's absolute tolerance passed for a tensor.
    problem = chain8()
    assert problem.keep_all_peak_bytes == 8628
    fits = [
        solve(problem.with_budget(budget), LayerWindow(window=window)).status.has_plan
        for budget in (*range(3000, 8628, 331), *range(8600, 8628, 9), 8627)
    ]
    assert fits[-1]
    assert fits == sorted(fits)


@pytest.mark.parametrize("name", ["bert-large", "resnet50"])
def test_a_byte_less_than_keeping_all(name):
    problem = Problem(load_profile(name), profile_hardware(name))
    problem = problem.with_budget(problem.keep_all_peak_bytes - 1)
    solution = solve(problem, LayerWindow(window="own"))
    assert solution.status.has_plan, solution.reason
    assert solution.evaluation.throughput > 0.99
