"""What a plan does when, before any clock runs: the lists that every way of running it reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slackswap.cost_model.schedule import BackwardSchedule, backward_schedule, resolve_actions
from slackswap.graph import Ints
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.profile import Action


@dataclass(frozen=True, slots=True, eq=False)
class Timetable:
    """A plan as lists by forward op, by backward step and by swapped tensor.

    Attributes
    ----------
    problem, plan : Problem, Plan
        What is run; the budget is what the activations of the profile may take.
    actions : tuple of Action
        One a tensor.
    schedule : BackwardSchedule
        The steps of the backward pass.
    swapped : tuple of int
        Tensors that are copied out and back, earliest deadline first: the order of prefetches.
    joins : mapping of int to tuple of int
        Swapped tensors by the forward op after which they join the offload queue.
    forward_needs, forward_frees : tuple of int
        Bytes that each forward op takes at its start, and gives back at its end whatever the
        copies do.
    evictable : tuple of tuple of int
        Swapped tensors by their last forward use.
    step_needs, step_frees : tuple of int
        The same bytes of each backward step.
    gate_step : mapping of int to int
        First step at which a gated prefetch may start.
    barriers : frozenset of int
        Steps after which compute waits for the running prefetch.
    """

    problem: Problem
    plan: Plan
    actions: tuple[Action, ...]
    schedule: BackwardSchedule
    swapped: tuple[int, ...]
    joins: Mapping[int, tuple[int, ...]]
    forward_needs: tuple[int, ...]
    forward_frees: tuple[int, ...]
    evictable: tuple[tuple[int, ...], ...]
    step_needs: tuple[int, ...]
    step_frees: tuple[int, ...]
    gate_step: Mapping[int, int]
    barriers: frozenset[int]
    _before: Ints
    _highest: Ints

    @classmethod
    def of(cls, problem: Problem, plan: Plan) -> Timetable:
        """Lay a plan out.

        Raises
        ------
        InvalidPlan
            When it cannot be carried out on the problem, whatever the budget.
        """
        problem.check_plan(plan)
        profile, graph = problem.profile, problem.profile.graph
        actions = resolve_actions(profile, plan)
        schedule = backward_schedule(profile, actions)
        needed, steps = schedule.first_need, schedule.steps
        # A stored tensor that no step reads counts as dropped, and is not transferred.
        swapped = {t for t in needed if actions[t] is Action.SWAP}
        joins: dict[int, list[int]] = defaultdict(list)
        for t in sorted(swapped):
            producer = int(graph.producer[t])
            gated = plan.offload_gates.get(profile.tensors[t].name, producer)
            joins[max(producer, gated)].append(t)
        last_uses = [graph.last_uses[i].tolist() for i in range(graph.n_forward)]
        writes = [sum(profile.tensors[t].nbytes for t in step.writes) for step in steps]
        frees = [sum(profile.tensors[t].nbytes for t in dead) for dead in schedule.frees]
        before = np.zeros(len(steps) + 1, dtype=np.int64)
        np.cumsum(np.subtract(writes, frees), out=before[1:])
        workspaces = np.array([step.workspace for step in steps], dtype=np.int64)
        gates = {
            t: schedule.first_step[min(gate, steps[needed[t]].backward)]
            for t in swapped
            if (gate := plan.prefetch_gates.get(profile.tensors[t].name)) is not None
        }
        return cls(
            problem=problem,
            plan=plan,
            actions=actions,
            schedule=schedule,
            swapped=tuple(sorted(swapped, key=lambda t: (needed[t], t))),
            joins={i: tuple(tensors) for i, tensors in joins.items()},
            forward_needs=tuple(
                int(graph.forward_write_bytes[i]) + op.workspace
                for i, op in enumerate(profile.forward)
            ),
            forward_frees=tuple(
                op.workspace
                + sum(
                    profile.tensors[t].nbytes
                    for t in last_uses[i]
                    if actions[t] is Action.RECOMPUTE or t not in needed
                )
                for i, op in enumerate(profile.forward)
            ),
            evictable=tuple(tuple(t for t in uses if t in swapped) for uses in last_uses),
            step_needs=tuple(
                step.workspace + written for step, written in zip(steps, writes, strict=True)
            ),
            step_frees=tuple(
                step.workspace + freed for step, freed in zip(steps, frees, strict=True)
            ),
            gate_step=gates,
            barriers=frozenset(
                k for k, step in enumerate(steps)
                if step.forward is None and step.backward in plan.prefetch_barriers
            ),
            _before=before,
            _highest=before[:-1] + np.array(writes, dtype=np.int64) + workspaces,
        )

    def headroom(self, current: int, deadline: int) -> int:
        """Most bytes that steps `current` .. `deadline` reach above the state before them."""
        return int(self._highest[current : deadline + 1].max() - self._before[current])

    def level_before(self, step: int) -> int:
        """Growth of memory from the first step to the start of `step`, transfers left out."""
        return int(self._before[step])

    def nbytes(self, tensor: int) -> int:
        """Size of a tensor."""
        return self.problem.profile.tensors[tensor].nbytes
