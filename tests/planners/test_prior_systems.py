"""What every prior system must do on any problem: a valid plan, or a reason why there is none."""

from dataclasses import replace
from random import Random

import pytest

from slackswap import (
    Action,
    Infeasible,
    Problem,
    Report,
    Status,
    load_profile,
    resolve_planner,
    simulate,
    solve,
)
from slackswap.planners.common.readings import WithReadings
from slackswap.profiles.generators.random_dag import Traits, random_problem
from slackswap.profiles.library import profile_hardware

SYSTEMS = (
    "aot-offload", "capuchin", "chen-greedy", "chen-sqrt", "dtr", "flashneuron", "g10",
    "largest-first", "layer-window", "megatron-offload", "on-demand", "pofo", "pytorch-budget",
    "recompute-milp", "sac-ladder", "selective-checkpointing", "ssdtrain", "superneurons",
    "superneurons-ungated", "swapadvisor", "vdnn++", "vdnn-all", "vdnn-conv", "vdnn-dyn",
)
#: Those whose decisions the paper bases on sizes and the order of ops alone.
BLIND_TO_THE_LINK = (
    "chen-greedy", "chen-sqrt", "flashneuron", "largest-first", "megatron-offload", "on-demand",
    "sac-ladder", "selective-checkpointing", "superneurons", "superneurons-ungated", "swapadvisor",
    "vdnn++", "vdnn-all", "vdnn-conv",
    "vdnn-dyn",
)
TRAITS = (
    Traits(),
    Traits(restricted=0.3, not_recomputable=0.2),
    Traits(zero_bytes=0.3, zero_ns=0.3, workspace=0.5, late_reads=0.3),
)


def skip_without_torch(name: str) -> None:
    if name == "pytorch-budget":
        pytest.importorskip("torch")


@pytest.mark.parametrize("name", SYSTEMS)
def test_random_problems_end_in_a_plan_or_a_reason(name):
    skip_without_torch(name)
    planner = resolve_planner(name)
    answered = 0
    for seed in range(12 if name in ("pytorch-budget", "recompute-milp") else 30):
        rng = Random(seed)
        problem = random_problem(rng, rng.randint(1, 16), traits=TRAITS[seed % 3])
        if seed % 4 == 0:
            hardware = replace(problem.hardware, host_bytes=rng.randint(0, 150))
            problem = Problem(problem.profile, hardware, problem.budget_bytes)
        if seed % 2:
            problem = problem.with_budget(problem.keep_all_peak_bytes)
        solution = solve(problem, planner)
        assert solution.status in (Status.FEASIBLE, Status.OPTIMAL, Status.INFEASIBLE)
        if not solution.status.has_plan:
            # The planner itself said so, and what would help; it did not hand out a bad plan.
            assert solution.plan is None
            assert "aise the budget" in solution.reason or "host" in solution.reason
            continue
        answered += 1
        actions = set(solution.plan.actions.values())
        assert planner.capabilities.uses_swap or Action.SWAP not in actions
        if not planner.capabilities.uses_recompute:
            graph = problem.profile.graph
            index_of = problem.profile.index_of
            assert not any(
                graph.is_saved[index_of[tensor]]
                and Action.KEEP in problem.profile.tensors[index_of[tensor]].allowed
                for tensor, action in solution.plan.actions.items()
                if action is Action.RECOMPUTE
            )
        assert solution.evaluation == simulate(problem, solution.plan, "reference") or (
            # The reference adds memory curve and timeline.
            replace(
                simulate(problem, solution.plan, "reference"), memory_curve=None, timeline=None
            )
            == solution.evaluation
        )
    assert answered


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("profile", ["bert-large-eager", "llama-7b-as-written", "resnet50"])
def test_networks(name, profile):
    skip_without_torch(name)
    if name == "recompute-milp" and profile != "resnet50":
        pytest.skip("takes many seconds; see tests/search/test_recompute_milp.py")
    problem = Problem(load_profile(profile), profile_hardware(profile), 0.7)
    parameters = {"relative_gap": 0.05} if name == "recompute-milp" else {}
    solution = solve(problem, name, **parameters)
    if name in ("vdnn-conv", "chen-sqrt", "ssdtrain", "megatron-offload"):
        assert solution.status in (Status.FEASIBLE, Status.INFEASIBLE)
    else:
        assert solution.status.has_plan, solution.reason
        if not resolve_planner(name).capabilities.deterministic:
            return
        again = solve(problem, name, seed=1, **parameters)
        assert again.plan.actions == solution.plan.actions
        assert again.plan.prefetch_gates == solution.plan.prefetch_gates


def blind_readings():
    for name in BLIND_TO_THE_LINK:
        planner = resolve_planner(name)
        found = planner.readings() if isinstance(planner, WithReadings) else {"": planner}
        for label, reading in found.items():
            if label != "victims=genetic":  # that one is scored by a simulator
                yield pytest.param(reading, id=f"{name} {label}")


@pytest.mark.parametrize("planner", blind_readings())
def test_rules_without_a_bandwidth_term_do_not_look_at_the_link(planner):
    profile, hardware = load_profile("gpt2-xl"), profile_hardware("gpt2-xl")
    budget = Problem(profile, hardware, 0.6).budget_bytes
    slower = replace(
        profile,
        forward=tuple(
            replace(op, duration_ns=3 * op.duration_ns + i) for i, op in enumerate(profile.forward)
        ),
    )
    plans = [
        solve(Problem(subject, hardware.with_link(factor), budget), planner).plan
        for subject, factor in ((profile, 1.0), (profile, 0.1), (slower, 5.0))
    ]
    if plans[0] is not None:
        fields = [
            (p.actions, p.offload_gates, p.offload_barriers, p.prefetch_gates, p.prefetch_barriers)
            for p in plans
        ]
        assert fields[0] == fields[1] == fields[2]
    else:
        assert plans[1] is plans[2] is None


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_limit_that_is_over_at_once_still_gets_an_answer(name):
    skip_without_torch(name)
    problem = Problem(load_profile("resnet50"), profile_hardware("resnet50"), 0.8)
    try:
        plan = resolve_planner(name).plan(
            problem, rng=Random(0), time_limit=1e-9, report=Report()
        )
    except Infeasible:
        return
    assert simulate(problem, plan).feasible


def test_unlimited_memory_needs_nothing():
    # Save for those that do the same whatever the budget.
    problem = Problem(load_profile("bert-large"), profile_hardware("bert-large"))
    for name in set(SYSTEMS) - {"chen-sqrt", "ssdtrain", "vdnn-all", "vdnn-conv", "pytorch-budget"}:
        assert solve(problem, name).evaluation.throughput == 1, name
