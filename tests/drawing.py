"""Random problems and plans for property tests, each fixed by one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from slackswap import Action, InvalidPlan, Plan, Problem
from slackswap.profiles.generators.random_dag import (
    DEFAULT_TRAITS,
    Traits,
    random_hardware,
    random_profile,
)


@dataclass(frozen=True)
class Case:
    problem: Problem
    plan: Plan


def random_case(
    seed: int, *, traits: Traits = DEFAULT_TRAITS, ordered: bool = True, contended: bool = False
) -> Case:
    """Draw a problem and a plan that passes `Problem.check_plan`, budgets from tight to ample."""
    rng = random.Random(seed)
    profile = random_profile(rng, rng.randint(1, 14), traits=traits)
    budget = rng.choice((None, 0.5, 0.65, 0.8, 0.9, 1.0, "110%", "130%"))
    hardware = random_hardware(rng, contended=contended)
    if rng.random() < 0.3:
        hardware = replace(hardware, host_bytes=rng.randint(0, 300))
    problem = Problem(profile, hardware, budget)
    if problem.keep_all_peak_bytes == 0:
        problem = problem.with_budget(None)
    while True:
        plan = random_plan(rng, problem, ordered=ordered)
        try:
            problem.check_plan(plan)
        except InvalidPlan:
            continue  # swaps more than the host holds
        return Case(problem, plan)


def random_plan(
    rng: random.Random, problem: Problem, *, ordered: bool = True, swap_bias: float = 0.0
) -> Plan:
    """Draw allowed actions for most tensors, and gates and barriers of both kinds."""
    profile, graph = problem.profile, problem.profile.graph
    weights = {action: rng.random() for action in Action}
    weights[Action.SWAP] += swap_bias
    actions = {}
    for index, tensor in enumerate(profile.tensors):
        if graph.is_input[index] or not tensor.allowed:
            continue
        if Action.KEEP not in tensor.allowed or rng.random() < 0.75:
            options = tensor.allowed
            actions[tensor.name] = rng.choices(options, [weights[a] + 0.01 for a in options])[0]
    if not ordered or rng.random() < 0.4:
        return Plan(actions)
    names = [tensor.name for tensor in profile.tensors]
    n_forward, n_backward = graph.n_forward, graph.n_backward
    gate_share, barrier_share = rng.random() * 0.6, rng.random() * 0.6
    return Plan(
        actions,
        offload_gates={
            name: rng.randrange(n_forward) for name in names if rng.random() < gate_share
        },
        prefetch_gates={
            name: rng.randrange(n_backward)
            for name in names
            if n_backward and rng.random() < gate_share
        },
        offload_barriers=tuple(i for i in range(n_forward) if rng.random() < barrier_share),
        prefetch_barriers=tuple(j for j in range(n_backward) if rng.random() < barrier_share),
    )
