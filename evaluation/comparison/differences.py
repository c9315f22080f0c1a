"""What differs between two plans of one problem, tensor by tensor, and what each change is worth.

A change is judged by taking it back: the second plan is simulated again with the first plan's
choice for that tensor, and the difference is the change's. Changes interact, so these figures need
not add up to the difference between the plans.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from slackswap.cost_model.engine import simulate
from slackswap.cost_model.schedule import resolve_actions
from slackswap.cost_model.scorer import Scorer
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.profile import Action
from slackswap.result import Evaluation, EventKind

_NUMBER = re.compile(r"\d+")

#: Rows of `PlanComparison.summary`: label, field of `Evaluation`, unit.
FIGURES: tuple[tuple[str, str, str], ...] = (
    ("iteration", "iteration_ns", "ns"),
    ("throughput", "throughput", "share"),
    ("stall, forward", "stall_forward_ns", "ns"),
    ("stall, backward", "stall_backward_ns", "ns"),
    ("recompute", "recompute_ns", "ns"),
    ("peak", "peak_bytes", "bytes"),
    ("copied each way", "offloaded_bytes", "bytes"),
    ("link to host busy", "d2h_utilisation", "share"),
    ("link to device busy", "h2d_utilisation", "share"),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a plan does with one tensor.

    Attributes
    ----------
    action : Action
        By entry or by default.
    offload_gate, prefetch_gate : int or None
        Its gates, where it is swapped and has any.
    """

    action: Action
    offload_gate: int | None = None
    prefetch_gate: int | None = None

    def __str__(self) -> str:
        gates = [
            f"{word} {gate}"
            for word, gate in (("out after", self.offload_gate), ("back from", self.prefetch_gate))
            if gate is not None
        ]
        return f"{self.action} ({', '.join(gates)})" if gates else str(self.action)


@dataclass(frozen=True, slots=True)
class StallShift:
    """A wait of compute that is longer or shorter in one iteration than in another.

    Attributes
    ----------
    op : str
        Op that waits.
    cause : str
        ``memory``, ``tensor`` or ``barrier``.
    tensors : tuple of str
        Tensors whose transfers end the wait, in either iteration.
    before_ns, after_ns : int
        How long it waits.
    """

    op: str
    cause: str
    tensors: tuple[str, ...]
    before_ns: int
    after_ns: int

    @property
    def added_ns(self) -> int:
        """How much longer it waits; negative when shorter."""
        return self.after_ns - self.before_ns


@dataclass(frozen=True, slots=True)
class Change:
    """A tensor, or several of one role, that two plans treat differently.

    Attributes
    ----------
    role : str
        Name of the tensor; for several, with ``*`` for the number that differs.
    tensors : tuple of str
        Which.
    nbytes : int
        Their total size.
    before, after : Choice
        What the first and the second plan do (of several, with the first one).
    time_ns : int or None
        Time of the second plan minus its time with this change taken back: negative when the
        change makes it faster. None when either does not fit the budget, or cannot be carried out.
    stall_ns : int or None
        The same for the time that compute waits.
    recompute_ns : int or None
        The same for recompute time, whether it fits or not. None when it cannot be carried out.
    moved_bytes : int or None
        The same for bytes copied each way.
    shortfall_bytes : int
        How many bytes the second plan lacks with this change taken back; 0 when it fits.
    waits_before_ns, waits_after_ns : int
        Waits that a transfer of one of these tensors ended, under the first and the second plan.
    stalls : tuple of StallShift or None
        For groups: the waits this change causes or makes longer, and those it removes or makes
        shorter, greatest shift first. None where it was not asked for.
    """

    role: str
    tensors: tuple[str, ...]
    nbytes: int
    before: Choice
    after: Choice
    time_ns: int | None
    stall_ns: int | None
    recompute_ns: int | None
    moved_bytes: int | None
    shortfall_bytes: int
    waits_before_ns: int
    waits_after_ns: int
    stalls: tuple[StallShift, ...] | None = None


def changed_tensors(
    problem: Problem, before: Plan, after: Plan
) -> dict[str, tuple[Choice, Choice]]:
    """Return the tensors that two plans treat differently, in the order of the profile.

    What a plan does by default counts like what it names; gates count where they have an effect.
    """
    pairs = zip(
        problem.profile.tensors, _choices(problem, before), _choices(problem, after), strict=True
    )
    return {tensor.name: (a, b) for tensor, a, b in pairs if a != b}


def diff_by_tensor(
    problem: Problem, before: Plan, after: Plan, first: Evaluation, second: Evaluation
) -> tuple[Change, ...]:
    """Judge each changed tensor by itself.

    Parameters
    ----------
    problem : Problem
        What both plans are for.
    before, after : Plan
        The plans.
    first, second : Evaluation
        Their scores, with timelines.

    Returns
    -------
    tuple of Change
        In the order of the profile.
    """
    choices = changed_tensors(problem, before, after)
    return _judged(problem, before, after, first, second, [(name, (name,)) for name in choices])


def diff_by_role(
    problem: Problem, before: Plan, after: Plan, first: Evaluation, second: Evaluation,
    *, stalls: bool = True,
) -> tuple[Change, ...]:
    """Judge changed tensors of one role and one change together; the most bytes first.

    Tensors are of one role when their names differ in nothing but the first number in them. With
    `stalls`, each group is also simulated with a timeline, to tell which waits it is answerable
    for. Other parameters as for `diff_by_tensor`.
    """
    groups: dict[tuple[str, Action, Action], list[str]] = defaultdict(list)
    for name, (a, b) in changed_tensors(problem, before, after).items():
        groups[role_of(name), a.action, b.action].append(name)
    roles = [
        (role if len(names) > 1 else names[0], tuple(names))
        for (role, _, _), names in groups.items()
    ]
    judged = _judged(problem, before, after, first, second, roles)
    if stalls and second.feasible:
        judged = tuple(_with_stalls(problem, before, after, second, change) for change in judged)
    return tuple(sorted(judged, key=lambda change: -change.nbytes))


def stall_shifts(first: Evaluation, second: Evaluation) -> tuple[StallShift, ...]:
    """Return the waits that differ between two evaluations with timelines, greatest shift first."""
    before, after = _waits(first), _waits(second)
    found = []
    for op, cause in dict.fromkeys((*before, *after)):
        (names, earlier), (more_names, later) = (
            side.get((op, cause), (frozenset(), 0)) for side in (before, after)
        )
        found.append(StallShift(op, cause, tuple(sorted(names | more_names)), earlier, later))
    shifted = [shift for shift in found if shift.added_ns]
    return tuple(sorted(shifted, key=lambda shift: -abs(shift.added_ns)))


def role_of(name: str) -> str:
    """Return a name with ``*`` for its first number: what layers have in common."""
    return _NUMBER.sub("*", name, count=1)


def _choices(problem: Problem, plan: Plan) -> list[Choice]:
    found = []
    for tensor, action in zip(
        problem.profile.tensors, resolve_actions(problem.profile, plan), strict=True
    ):
        swapped = action is Action.SWAP
        found.append(Choice(
            action,
            plan.offload_gates.get(tensor.name) if swapped else None,
            plan.prefetch_gates.get(tensor.name) if swapped else None,
        ))
    return found


def _judged(
    problem: Problem, before: Plan, after: Plan, first: Evaluation, second: Evaluation,
    groups: Sequence[tuple[str, tuple[str, ...]]],
) -> tuple[Change, ...]:
    if not groups:
        return ()
    choices = changed_tensors(problem, before, after)
    without = [_taken_back(before, after, names) for _, names in groups]
    # The second plan itself is the last row: both sides of each difference by the same engine.
    scores = Scorer(problem).score_plans([*without, after])
    roomy = Scorer(problem.with_budget(None)).score_plans([*without, after])
    valid = scores.valid & roomy.valid
    with_it, with_it_roomy = scores.evaluation(len(without)), roomy.evaluation(len(without))
    index_of, tensors = problem.profile.index_of, problem.profile.tensors
    waits = _waits_by_tensor(first), _waits_by_tensor(second)
    found = []
    for row, (role, names) in enumerate(groups):
        bare, bare_roomy = Evaluation(feasible=False), Evaluation(feasible=False)
        if valid[row]:
            bare, bare_roomy = scores.evaluation(row), roomy.evaluation(row)
        found.append(Change(
            role=role,
            tensors=names,
            nbytes=sum(tensors[index_of[name]].nbytes for name in names),
            before=choices[names[0]][0],
            after=choices[names[0]][1],
            time_ns=_difference(with_it.iteration_ns, bare.iteration_ns),
            stall_ns=_difference(with_it.stall_ns, bare.stall_ns),
            recompute_ns=_difference(with_it_roomy.recompute_ns, bare_roomy.recompute_ns),
            moved_bytes=_difference(with_it_roomy.offloaded_bytes, bare_roomy.offloaded_bytes),
            shortfall_bytes=bare.infeasible.shortfall_bytes if bare.infeasible else 0,
            waits_before_ns=sum(waits[0].get(name, 0) for name in names),
            waits_after_ns=sum(waits[1].get(name, 0) for name in names),
        ))
    return tuple(found)


def _with_stalls(
    problem: Problem, before: Plan, after: Plan, second: Evaluation, change: Change
) -> Change:
    if change.time_ns is None:  # nothing to compare with: taken back, it does not fit
        return replace(change, stalls=())
    bare = simulate(problem, _taken_back(before, after, change.tensors), timeline=True)
    return replace(change, stalls=stall_shifts(bare, second))


def _taken_back(before: Plan, after: Plan, names: Iterable[str]) -> Plan:
    """Return the second plan with the first one's entries, and gaps, for some tensors."""
    chosen = tuple(names)

    def merged(ours: dict[str, int], theirs: dict[str, int]) -> dict[str, int]:
        kept = {name: value for name, value in ours.items() if name not in chosen}
        return kept | {name: theirs[name] for name in chosen if name in theirs}

    actions = {name: action for name, action in after.actions.items() if name not in chosen}
    actions |= {name: before.actions[name] for name in chosen if name in before.actions}
    return replace(
        after,
        actions=actions,
        offload_gates=merged(dict(after.offload_gates), dict(before.offload_gates)),
        prefetch_gates=merged(dict(after.prefetch_gates), dict(before.prefetch_gates)),
    )


def _waits(evaluation: Evaluation) -> dict[tuple[str, str], tuple[frozenset[str], int]]:
    """Sum waits by op and cause; with the tensors that ended them."""
    totals: dict[tuple[str, str], tuple[frozenset[str], int]] = {}
    for event in evaluation.timeline or ():
        if event.kind is EventKind.STALL:
            key = event.name, str(event.cause)
            names, total = totals.get(key, (frozenset(), 0))
            names |= {event.tensor} if event.tensor else set()
            totals[key] = names, total + event.end_ns - event.start_ns
    return totals


def _waits_by_tensor(evaluation: Evaluation) -> dict[str, int]:
    totals: dict[str, int] = defaultdict(int)
    for event in evaluation.timeline or ():
        if event.kind is EventKind.STALL and event.tensor is not None:
            totals[event.tensor] += event.end_ns - event.start_ns
    return totals


def _difference(with_it: int | None, without: int | None) -> int | None:
    return None if with_it is None or without is None else with_it - without
