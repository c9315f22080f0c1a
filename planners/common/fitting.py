"""What rule planners share: permitted actions, and the smallest step of a rule that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Codes, Scorer
from slackswap.deadline import NO_DEADLINE, Deadline
from slackswap.errors import Infeasible
from slackswap.graph import Bools, Ints
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.result import Infeasibility

#: Plans scored in one call while looking for the first that fits.
_BATCH = 64

_FALLBACKS = {KEEP: (SWAP, RECOMPUTE), SWAP: (KEEP, RECOMPUTE), RECOMPUTE: (KEEP, SWAP)}


def permitted(scorer: Scorer, wanted: Codes) -> Codes:
    """Return the actions wanted, replaced where the problem does not permit them.

    A tensor is kept instead (else swapped, else recomputed) when its `allowed` lacks the action,
    when making it again would need an op that cannot run again, or when the host is full; the
    host fills in the order of writing.

    Parameters
    ----------
    scorer : Scorer
        The problem.
    wanted : int8[tensors]
        Codes; inputs are ignored.

    Raises
    ------
    Infeasible
        When a tensor is left without any action.
    """
    graph, allowed = scorer.graph, scorer.allowed
    codes = np.where(graph.is_input, KEEP, wanted).astype(np.int8)
    host_bytes = scorer.problem.hardware.host_bytes
    rows = np.arange(graph.n_tensors)
    if host_bytes is None and bool(graph.recomputable.all()) and allowed[rows, codes].all():
        return codes
    room = 2**62 if host_bytes is None else host_bytes
    remakable = np.zeros(graph.n_forward, dtype=np.bool_)
    for op in range(graph.n_forward):
        remakable[op] = graph.recomputable[op] and all(
            codes[t] != RECOMPUTE or remakable[graph.producer[t]]
            for t in graph.forward_reads[op].tolist()
        )
        for t in graph.forward_writes[op].tolist():
            for action in (codes[t], *_FALLBACKS[codes[t]]):
                possible = allowed[t, action] and (
                    (action == KEEP)
                    or (action == SWAP and graph.nbytes[t] <= room)
                    or (action == RECOMPUTE and (remakable[op] or not graph.is_saved[t]))
                )
                if possible:
                    codes[t] = action
                    break
            else:
                tensor = scorer.problem.profile.tensors[t]
                raise Infeasible(
                    f"{tensor.name!r} can neither stay, nor leave, nor be made again",
                    where=f"profile {scorer.problem.profile.name!r}",
                    fix="allow keep, or give the host more memory",
                )
            if codes[t] == SWAP:
                room -= int(graph.nbytes[t])
    return codes


def swappable(scorer: Scorer) -> Bools:
    """Return which saved tensors may be swapped."""
    result: Bools = scorer.graph.is_saved & scorer.allowed[:, SWAP]
    return result


def first_fitting(
    count: int,
    fits: Callable[[Sequence[int]], Bools],
    *,
    deadline: Deadline = NO_DEADLINE,
) -> int | None:
    """Return the smallest of the steps 0 .. `count` - 1 of a rule whose plan fits.

    Up to a few hundred steps are all tried. Of more, an even sample is, then the stretch before
    its first that fits, and so on: the smallest if a later step never takes more memory than an
    earlier one, and else one that fits.

    Parameters
    ----------
    count : int
        Number of steps, from the plan that changes least to the one that changes most.
    fits : callable
        Tells for some steps, ascending, which plans fit.
    deadline : Deadline
        After it the best step found so far is returned.
    """
    low, high, found = 0, count, None
    while low < high:
        width = high - low
        stride = 1 if width <= 8 * _BATCH else -(-width // _BATCH)
        steps = list(range(low + stride - 1, high, stride))
        if stride > 1 and steps[-1] != high - 1:
            steps.append(high - 1)
        hit = None
        for at in range(0, len(steps), _BATCH):
            if found is not None and deadline.passed:
                return found
            batch = steps[at : at + _BATCH]
            fitting = np.flatnonzero(fits(batch))
            if len(fitting):
                hit = batch[int(fitting[0])]
                break
        if hit is None:
            return found
        found = hit
        if stride == 1:
            return found
        low, high = max(low, hit - stride + 1), hit
    return found


def keep_more(
    scorer: Scorer, codes: Codes, groups: Sequence[Ints], *, deadline: Deadline = NO_DEADLINE
) -> Codes:
    """Keep recomputed tensors again, group by group, wherever the plan still fits.

    Parameters
    ----------
    scorer : Scorer
        The problem.
    codes : int8[tensors]
        A plan that fits.
    groups : sequence of int64 arrays
        Tensors that are kept together, the most wanted first; those not all recomputed are passed
        over.
    deadline : Deadline
        After it no more are tried.
    """
    waiting = [group for group in groups if (codes[group] == RECOMPUTE).all()]
    best, at, run = codes, 0, 1
    while at < len(waiting) and not deadline.passed:
        # Whole runs are tried at once, halved until they fit.
        batch = waiting[at : at + run]
        trial = best.copy()
        trial[np.concatenate(batch)] = KEEP
        trial = permitted(scorer, trial)
        if scorer.score(trial).feasible[0]:
            best, at, run = trial, at + len(batch), 2 * run
        elif len(batch) > 1:
            run = len(batch) // 2
        else:
            at += 1
    return best


def checked(problem: Problem, plan: Plan, rule: str) -> Plan:
    """Return the plan if it fits the budget.

    Raises
    ------
    Infeasible
        Naming the rule and where its plan runs out of memory.
    """
    scores = Scorer(problem).score_plans([plan])
    scores.check_valid()
    if scores.feasible[0]:
        return plan
    raise out_of_reach(problem, rule, scores.evaluation(0).infeasible)


def out_of_reach(
    problem: Problem, rule: str, stuck: Infeasibility | None = None
) -> Infeasible:
    """Return the error of a rule whose furthest plan does not fit."""
    place = "" if stuck is None else f": {stuck}"
    return Infeasible(
        f"{rule} cannot reach {problem.budget_bytes} bytes{place}",
        where=f"profile {problem.profile.name!r}",
        fix="raise the budget, or use a planner that may swap and recompute any tensor",
    )
