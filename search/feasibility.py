"""When a budget is impossible: the least one that works, what binds there, what would lower it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.errors import Infeasible
from slackswap.plan import Plan
from slackswap.planners.common.fitting import permitted
from slackswap.planners.common.repair import repair
from slackswap.problem import Problem
from slackswap.quantities import format_bytes
from slackswap.result import Phase
from slackswap.search.milp.data import ModelData
from slackswap.search.milp.memory import OpNeed, necessary_budget, op_need

#: Budgets between what is proven and what is shown at which plans are repaired until they fit.
_REPAIRED_BUDGETS = 6
_REPAIR_ROUNDS = 24
#: Tensors named in an answer.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class NeedShare:
    """A part of the memory that an op needs.

    Attributes
    ----------
    what : str
        For people.
    nbytes : int
        Size.
    remedy : str
        What would lower it.
    """

    what: str
    nbytes: int
    remedy: str


@dataclass(frozen=True, slots=True)
class LeastBudget:
    """The least budget that any plan of a problem can meet.

    Attributes
    ----------
    proven_bytes : int
        No plan fits less.
    shown_bytes : int or None
        `plan` fits this; None when no plan was found at all.
    plan : Plan or None
        A plan that fits `shown_bytes`.
    phase, op_index, op : Phase, int, str
        Where memory binds: the op that needs most by itself (for the inputs alone: -1 and "").
    shares : tuple of NeedShare
        What its memory is taken by, the largest first.
    """

    proven_bytes: int
    shown_bytes: int | None
    plan: Plan | None
    phase: Phase
    op_index: int
    op: str
    shares: tuple[NeedShare, ...]

    @property
    def place(self) -> str:
        """Where memory binds, for people."""
        if self.phase is Phase.INPUTS:
            return "the inputs"
        return f"{self.phase} op {self.op_index} ({self.op})"

    def summary(self) -> str:
        """Return the answer as a few lines of text."""
        shown = (
            "no plan was found at any budget"
            if self.shown_bytes is None
            else f"a plan fits {self.shown_bytes} bytes ({format_bytes(self.shown_bytes)})"
        )
        lines = [
            f"no plan fits less than {self.proven_bytes} bytes "
            f"({format_bytes(self.proven_bytes)}); {shown}",
            f"memory binds at {self.place}:",
        ]
        lines += [
            f"  {format_bytes(share.nbytes)} {share.what}: {share.remedy}" for share in self.shares
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a JSON object, without the plan."""
        return {
            "proven_bytes": self.proven_bytes,
            "shown_bytes": self.shown_bytes,
            "phase": str(self.phase),
            "op_index": self.op_index,
            "op": self.op,
            "shares": [
                {"what": share.what, "nbytes": share.nbytes, "remedy": share.remedy}
                for share in self.shares
            ],
        }


def least_budget(problem: Problem, *, time_limit: float | None = None) -> LeastBudget:
    """Find the least budget that works for a profile on a hardware.

    Below stands a proof: what one op needs by itself, or more where the model's relaxation needs
    more. Above stands a plan that fits, by simulation.

    Parameters
    ----------
    problem : Problem
        Profile and hardware; its own budget does not matter.
    time_limit : float, optional
        Seconds, for the proof and for the search after it.
    """
    data = ModelData.of(problem)
    need = op_need(data)
    proven = necessary_budget(
        problem.with_budget(max(1, need.nbytes)), time_limit=time_limit
    )
    # The proof may take the limit; the search gets as long after it.
    shown, codes = _least_shown(problem, proven, Deadline.after(time_limit))
    profile = problem.profile
    names = {
        Phase.INPUTS: [""],
        Phase.FORWARD: [op.name for op in profile.forward],
        Phase.BACKWARD: [op.name for op in profile.backward],
    }[need.phase]
    return LeastBudget(
        proven_bytes=proven,
        shown_bytes=shown,
        plan=None if codes is None else Scorer(problem).decode(codes),
        phase=need.phase,
        op_index=need.op,
        op=names[need.op],
        shares=_shares(data, need),
    )


def _least_shown(
    problem: Problem, proven: int, deadline: Deadline
) -> tuple[int | None, Codes | None]:
    """Least budget found, and a plan that fits it: extreme plans, then repaired ones."""
    starts = _extreme_plans(problem)
    best: int | None = None
    codes: Codes | None = None
    for start in starts:
        least = _least_for(problem, start, proven, best)
        if least is not None:
            best, codes = least, start
    if best is None:
        return None, None
    low, high = proven, best
    for attempt in range(_REPAIRED_BUDGETS):
        if low >= high or deadline.passed:
            break
        # The proven budget itself often works, so it goes first.
        budget = low if attempt == 0 else (low + high) // 2
        fitting = _repaired(problem.with_budget(budget), starts)
        if fitting is None:
            low = budget + 1
        else:
            high, codes = budget, fitting
            least = _least_for(problem, fitting, proven, budget)
            high = budget if least is None else least
    return high, codes


def _extreme_plans(problem: Problem) -> list[Codes]:
    """Plans that move everything out, one way or the other."""
    scorer = Scorer(problem)
    saved = scorer.graph.is_saved
    plans: list[Codes] = []
    for wanted in (
        np.where(saved, SWAP, scorer.default),
        np.where(scorer.graph.is_input, KEEP, SWAP),
        np.where(saved, RECOMPUTE, scorer.default),
        scorer.default,
    ):
        try:
            codes = permitted(scorer, wanted.astype(np.int8))
        except Infeasible:
            continue
        if scorer.score(codes).valid[0] and not any((codes == plan).all() for plan in plans):
            plans.append(codes)
    return plans


def _least_for(problem: Problem, codes: Codes, low: int, below: int | None) -> int | None:
    """Least budget that a plan without barriers fits, by bisection; None unless less than `below`.

    A larger budget never hurts such a plan.
    """

    def fits(budget: int) -> bool:
        return bool(Scorer(problem.with_budget(budget)).score(codes).feasible[0])

    high = 2 * problem.keep_all_peak_bytes + int(problem.profile.graph.nbytes.sum()) + 1
    high += int(problem.profile.graph.forward_workspace.max(initial=0))
    if below is not None:
        high = below - 1
    if high < low or not fits(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _repaired(problem: Problem, starts: list[Codes]) -> Codes | None:
    scorer = Scorer(problem)
    for start in starts:
        if scorer.score(start).feasible[0]:
            return start
        fitting = repair(scorer, start, actions=(KEEP, SWAP, RECOMPUTE), rounds=_REPAIR_ROUNDS)
        if fitting is not None:
            return fitting
    return None


def _shares(data: ModelData, need: OpNeed) -> tuple[NeedShare, ...]:
    """Split up what the op needs by itself."""
    graph, profile = data.graph, data.problem.profile
    smaller = "a smaller batch or a shorter sequence lowers it"
    shares = [NeedShare("of inputs", graph.input_bytes, f"they always stay; {smaller}")]
    if need.phase is Phase.INPUTS:
        return tuple(shares)
    op = need.op
    stuck = graph.is_saved & ~data.may_swap & ~data.may_drop
    if need.phase is Phase.FORWARD:
        workspace = int(graph.forward_workspace[op])
        written = ~graph.is_input & (graph.producer <= op)
        in_use = written & (graph.last_forward_use >= op)
        idle = stuck & (graph.last_forward_use < op)
    else:
        workspace = int(graph.backward_workspace[op])
        begun = graph.is_saved & (graph.first_backward_read <= op)
        in_use = begun & (graph.last_backward_read >= op)
        idle = stuck & (graph.first_backward_read > op)
    shares.append(
        NeedShare("of workspace", workspace, f"an op that needs less scratch, or {smaller}")
    )
    largest = np.argsort(-graph.nbytes, kind="stable")
    for what, members, remedy in (
        ("in use at that op", in_use, f"finer ops use less at once; {smaller}"),
        ("that may neither be swapped nor recomputed", idle, "allow one of both"),
    ):
        named = [t for t in largest.tolist() if members[t] and graph.nbytes[t]][:_NAMED]
        if named:
            total = int(graph.nbytes[members].sum())
            names = ", ".join(profile.tensors[t].name for t in named)
            more = int((members & (graph.nbytes > 0)).sum()) - len(named)
            names += f" and {more} more" if more else ""
            shares.append(NeedShare(f"of tensors {what} ({names})", total, remedy))
    return tuple(
        sorted((share for share in shares if share.nbytes), key=lambda share: -share.nbytes)
    )
