"""Small problems with tight budgets, for property tests of bounds."""

from __future__ import annotations

import random
from dataclasses import replace

from slackswap import Hardware, InvalidPlan, Plan, Problem
from slackswap.cost_model.schedule import backward_schedule, resolve_actions
from slackswap.cost_model.scorer import Scorer
from slackswap.profiles.generators.random_dag import (
    DEFAULT_TRAITS,
    UNRESTRICTED,
    Traits,
    random_profile,
)
from slackswap.search.enumeration import Decisions
from slackswap.search.milp.data import ModelData
from slackswap.search.milp.linear import LinearModel
from slackswap.search.milp.memory import op_need
from slackswap.search.milp.model import PlanModel

#: Chains in which little is saved, so that closures are deep and intermediates worth storing.
DEEP = Traits(restricted=0, not_recomputable=0, saves_input=0.35, saves_output=0.15, workspace=0.1,
              carried=0.1, locality=0.85, max_reads=2, extra_writes=0.1, max_ns=20)
#: Chains in which nearly everything is saved and little else takes memory.
SAVED = Traits(restricted=0, not_recomputable=0, saves_input=0.9, saves_output=0.1, workspace=0.05,
               carried=0.05, locality=0.95, max_reads=2, extra_writes=0.2, late_reads=0.02,
               max_ns=20)
#: Ops that write several tensors, few of them saved, which later ops read together.
WIDE = Traits(restricted=0, not_recomputable=0, saves_input=0.3, saves_output=0.15, workspace=0.1,
              carried=0.1, locality=0.6, max_reads=4, extra_writes=0.7, max_ns=20)
KINDS = (DEFAULT_TRAITS, UNRESTRICTED, DEEP, SAVED, WIDE)


def small_problem(seed: int, *, most_plans: int = 3000) -> Problem | None:
    """Draw a problem whose budget lies between what one op needs and the keep-everything peak.

    None when it has more plans than `most_plans`, which would take long to enumerate.
    """
    rng = random.Random(seed)
    profile = random_profile(rng, rng.randint(2, 8), traits=rng.choice(KINDS))
    problem = Problem(profile, _hardware(rng))
    least = op_need(ModelData.of(problem)).nbytes
    room = max(0, problem.keep_all_peak_bytes - least)
    problem = problem.with_budget(max(1, least + int(room * rng.random() ** 2)))
    decisions = Decisions.of(Scorer(problem))
    return problem if decisions.count <= most_plans else None


def tight_case(seed: int, *, n_forward: int = 14) -> tuple[Problem, Plan] | None:
    """Draw a profile and any plan of it, under the least budget that the plan fits, or a bit more.

    None when the plan cannot be carried out, or fits by luck only (its barriers help it).
    """
    rng = random.Random(seed)
    profile = random_profile(rng, rng.randint(2, n_forward), traits=rng.choice(KINDS))
    problem = Problem(profile, _hardware(rng))
    plan = _any_plan(rng, problem)
    try:
        problem.check_plan(plan)
        scores = Scorer(problem).score_plans([plan])
        scores.check_valid()
    except InvalidPlan:
        return None
    low, high = 0, max(1, scores.evaluation(0).peak_bytes or 1)
    while low + 1 < high:
        middle = (low + high) // 2
        if _fits(problem.with_budget(middle), plan):
            high = middle
        else:
            low = middle
    problem = problem.with_budget(high + rng.choice((0, 0, 0, 1, 5, 20)))
    return (problem, plan) if _fits(problem, plan) else None


def fixed_to(model: PlanModel, plan: Plan) -> LinearModel:
    """Return the model, without integrality, in which all decisions are those of a plan.

    Fails when one of them lies outside its box.
    """
    problem, variables = model.data.problem, model.variables
    graph = problem.profile.graph
    codes = Scorer(problem).encode(plan)
    schedule = backward_schedule(problem.profile, resolve_actions(problem.profile, plan))
    ran = {step.forward for step in schedule.steps}
    values: dict[int, bool] = {}
    for t in range(graph.n_tensors):
        if not graph.is_input[t]:
            needed = t in schedule.first_need
            values[int(variables.swap[t])] = codes[t] == 1 and needed
            values[int(variables.drop[t])] = codes[t] == 2 or not needed
    for op in range(graph.n_forward):
        values[int(variables.again[op])] = op in ran
    lower, upper = model.linear.lower.copy(), model.linear.upper.copy()
    for column, value in values.items():
        assert lower[column] <= value <= upper[column]
        lower[column] = upper[column] = value
    return replace(model.linear.relaxed(), lower=lower, upper=upper)


def _hardware(rng: random.Random) -> Hardware:
    return Hardware(
        "drawn",
        d2h_bytes_per_s=rng.randint(10**8, 3 * 10**9),
        h2d_bytes_per_s=rng.randint(10**8, 3 * 10**9),
        latency_ns=rng.choice((0, 0, 1, 5)),
        full_duplex=rng.random() < 0.6,
        host_bytes=rng.randint(20, 200) if rng.random() < 0.2 else None,
    )


def _any_plan(rng: random.Random, problem: Problem) -> Plan:
    profile, graph = problem.profile, problem.profile.graph
    weights = rng.choice(((1, 1, 1), (1, 1, 4), (1, 4, 1), (1, 3, 3), (0, 1, 3), (3, 1, 3)))
    share = dict(zip(("keep", "swap", "recompute"), weights, strict=True))
    actions = {}
    for t, tensor in enumerate(profile.tensors):
        if not graph.is_input[t] and tensor.allowed:
            actions[tensor.name] = rng.choices(
                tensor.allowed, [share[action] + 0.01 for action in tensor.allowed]
            )[0]
    if rng.random() < 0.6:
        return Plan(actions)
    names = [tensor.name for tensor in profile.tensors]
    n_forward, n_backward = graph.n_forward, graph.n_backward
    return Plan(
        actions,
        offload_gates={n: rng.randrange(n_forward) for n in names if rng.random() < 0.2},
        prefetch_gates={
            n: rng.randrange(n_backward) for n in names if n_backward and rng.random() < 0.2
        },
        offload_barriers=tuple(i for i in range(n_forward) if rng.random() < 0.1),
        prefetch_barriers=tuple(j for j in range(n_backward) if rng.random() < 0.1),
    )


def _fits(problem: Problem, plan: Plan) -> bool:
    return bool(Scorer(problem).score_plans([plan]).feasible[0])
