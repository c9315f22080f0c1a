"""A plan on what PyTorch's own machinery can name: an operator and its k-th call.

Neither selective checkpointing nor the memory-budget partitioner knows the tensors of a profile,
and neither copies to the host. So a plan loses something on the way: a swapped tensor is kept, and
the results of one op are kept or recomputed together. The projected plan is scored like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slackswap.cost_model.engine import simulate
from slackswap.cost_model.schedule import resolve_actions
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.profile import Action, Profile
from slackswap.quantities import format_bytes
from slackswap.result import Evaluation

#: Operator and number of its call in the forward pass, from 0: ``("addmm", 3)``.
Call = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Projection:
    """A plan by operator calls.

    Attributes
    ----------
    saves : mapping from (str, int) to bool
        Whether the results of a call are saved.
    times_ns : mapping from (str, int) to int
        How long a call takes.
    plan : Plan
        The plan that is left.
    before, after : Evaluation
        Scores of the plan and of what is left of it, without a budget.
    """

    saves: Mapping[Call, bool]
    times_ns: Mapping[Call, int]
    plan: Plan
    before: Evaluation
    after: Evaluation

    def __str__(self) -> str:
        assert self.before.peak_bytes is not None
        assert self.after.peak_bytes is not None
        assert self.before.iteration_ns is not None
        assert self.after.iteration_ns is not None
        more = self.after.peak_bytes - self.before.peak_bytes
        slower = self.after.iteration_ns / max(1, self.before.iteration_ns) - 1
        return (
            f"projected: peak {format_bytes(self.after.peak_bytes)} instead of "
            f"{format_bytes(self.before.peak_bytes)} ({'+' if more >= 0 else '-'}"
            f"{format_bytes(abs(more))}), time {slower:+.1%}"
        )


def calls_of(profile: Profile) -> list[Call]:
    """Return the call of each forward op of a captured profile.

    A captured op is called ``path/operator``, with ``#n`` behind it where names repeat.
    """
    return list(numbered(op.name.rpartition("/")[2].partition("#")[0] for op in profile.forward))


def numbered(operators: Iterator[str]) -> Iterator[Call]:
    """Number the calls of each operator."""
    seen: Counter[str] = Counter()
    for name in operators:
        yield name, seen[name]
        seen[name] += 1


def project(problem: Problem, plan: Plan) -> Projection:
    """Project a plan on operator calls, and score what is left of it.

    Parameters
    ----------
    problem : Problem
        With the captured profile that the plan is for.
    plan : Plan
        The plan.

    Raises
    ------
    InvalidPlan
        When the plan is not for this profile.
    """
    problem.check_plan(plan)
    profile = problem.profile
    actions = resolve_actions(profile, plan)
    saves, left = {}, {}
    for call, op in zip(calls_of(profile), profile.forward, strict=True):
        saves[call] = any(actions[t] is not Action.RECOMPUTE for t in op.writes)
        for t in op.writes:
            if saves[call]:
                left[profile.tensors[t].name] = Action.KEEP
            elif profile.graph.is_saved[t]:
                left[profile.tensors[t].name] = Action.RECOMPUTE
    # Results that nobody reads in backward are not saved, whatever the policy says.
    left = {
        name: action for name, action in left.items()
        if action in profile.tensors[profile.index_of[name]].allowed
    }
    unlimited = problem.with_budget(None)
    rest = Plan(left)
    return Projection(
        saves=saves,
        times_ns={
            call: op.duration_ns
            for call, op in zip(calls_of(profile), profile.forward, strict=True)
        },
        plan=rest,
        before=simulate(unlimited, plan),
        after=simulate(unlimited, rest),
    )
