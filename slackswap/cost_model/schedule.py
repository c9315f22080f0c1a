"""The static part of the cost model: which steps the backward pass consists of.

It depends on the actions alone, not on time. Written for reading; the kernel has its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from slackswap.errors import InvalidPlan
from slackswap.plan import Plan
from slackswap.profile import Action, Profile


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the backward pass: a backward op, or a forward op that runs again for it.

    Attributes
    ----------
    backward : int
        The backward op, or the one it serves.
    forward : int or None
        The forward op that runs again; None in a backward step.
    duration_ns, workspace : int
        Time, and scratch bytes held while it runs.
    reads : tuple of int
        Tensors it reads.
    writes : tuple of int
        Tensors it allocates, retained and transient.
    """

    backward: int
    forward: int | None
    duration_ns: int
    workspace: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BackwardSchedule:
    """All steps of the backward pass.

    Attributes
    ----------
    steps : tuple of Step
        In execution order.
    first_step : tuple of int
        First step of each backward op.
    first_need, last_need : dict of int to int
        First and last step that reads a tensor, for the tensors that any step reads.
    frees : tuple of tuple of int
        Tensors freed at the end of each step.
    """

    steps: tuple[Step, ...]
    first_step: tuple[int, ...]
    first_need: dict[int, int]
    last_need: dict[int, int]
    frees: tuple[tuple[int, ...], ...]


def resolve_actions(profile: Profile, plan: Plan) -> tuple[Action, ...]:
    """Return the action of every tensor: the plan's, or the default of its role."""
    named = {profile.index_of[name]: action for name, action in plan.actions.items()}
    is_intermediate = profile.graph.is_intermediate
    return tuple(
        named.get(tensor, Action.RECOMPUTE if is_intermediate[tensor] else Action.KEEP)
        for tensor in range(len(profile.tensors))
    )


def backward_schedule(profile: Profile, actions: Sequence[Action]) -> BackwardSchedule:
    """Build the steps of the backward pass.

    Parameters
    ----------
    profile : Profile
        The iteration.
    actions : sequence of Action
        One per tensor; `Action.KEEP` for inputs.

    Raises
    ------
    InvalidPlan
        When an op that cannot run again would have to.
    """
    graph = profile.graph
    stored = {t for t, action in enumerate(actions) if action is not Action.RECOMPUTE}
    available = set(stored)
    steps: list[Step] = []
    first_step: list[int] = []
    transients: list[tuple[int, int]] = []  # (step at whose end it is freed, tensor)

    for j, op in enumerate(profile.backward):
        first_step.append(len(steps))
        closure = _closure(profile, op.reads, available)
        for i in closure:
            if not profile.forward[i].recomputable:
                raise cannot_run_again(profile, i, j)
        last_reader: dict[int, int] = {}
        retained: set[int] = set()
        for i in closure:
            again = profile.forward[i]
            number = len(steps)
            last_reader.update(dict.fromkeys(again.reads, number))
            writes = tuple(t for t in again.writes if t not in available)
            for t in writes:
                if graph.is_saved[t] and graph.last_backward_read[t] >= j:
                    retained.add(t)
                else:
                    last_reader[t] = number
            steps.append(
                Step(j, i, again.duration_ns, again.workspace + op.carried, again.reads, writes)
            )
        made = {t for step in steps[first_step[j] :] for t in step.writes}
        transients += [(last_reader[t], t) for t in made - retained]
        available |= retained
        steps.append(Step(j, None, op.duration_ns, op.workspace, op.reads, ()))

    first_need: dict[int, int] = {}
    last_need: dict[int, int] = {}
    for number, step in enumerate(steps):
        for t in step.reads:
            first_need.setdefault(t, number)
            last_need[t] = number
    frees: list[list[int]] = [[] for _ in steps]
    for number, t in transients:
        frees[number].append(t)
    for t, number in last_need.items():
        if t in available and not graph.is_input[t]:
            frees[number].append(t)
    return BackwardSchedule(
        tuple(steps), tuple(first_step), first_need, last_need, tuple(map(tuple, frees))
    )


def cannot_run_again(profile: Profile, forward: int, backward: int) -> InvalidPlan:
    """Return the error of a plan in which a backward op needs such a forward op again."""
    op = profile.forward[forward]
    written = ", ".join(profile.tensors[t].name for t in op.writes)
    return InvalidPlan(
        f"needs forward[{forward}] ({op.name}) to run again, which it cannot",
        where=f"backward[{backward}] ({profile.backward[backward].name})",
        fix=f"keep or swap what it writes ({written})",
    )


def _closure(profile: Profile, wanted: Sequence[int], available: Collection[int]) -> list[int]:
    """Forward ops that must run again so that every wanted tensor is available, in order."""
    producer = profile.graph.producer
    closure: set[int] = set()
    missing = [t for t in wanted if t not in available]
    while missing:
        op = int(producer[missing.pop()])
        if op not in closure:
            closure.add(op)
            missing += [t for t in profile.forward[op].reads if t not in available]
    return sorted(closure)
