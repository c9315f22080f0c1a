"""Local search on whole plans in the cost model: small changes until none helps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import comb

import numpy as np

from slackswap.cost_model.scorer import Codes, Scorer, Scores
from slackswap.deadline import NO_DEADLINE, Deadline
from slackswap.search.enumeration import Decisions

#: Plans scored in one call.
BATCH = 96
#: Changes of several tensors at once are tried as long as there are no more than this many.
_JOINT_CHANGES = 10_000
#: Time of what does not fit.
NEVER = int(np.iinfo(np.int64).max)

#: A change of a plan: tensors and the codes they get.
Change = tuple[tuple[int, int], ...]


@dataclass(slots=True, eq=False)
class Incumbent:
    """The best plan so far.

    Attributes
    ----------
    scorer : Scorer
        The problem in the cost model.
    deadline : Deadline
        When to stop.
    most : int
        Plans scored at most.
    on_better : callable, optional
        Told of each better plan.
    codes : int8[tensors] or None
        The plan; None while none fits.
    iteration_ns : int
        Its time.
    evaluations : int
        Plans scored, each once.
    """

    scorer: Scorer
    deadline: Deadline = NO_DEADLINE
    most: int = NEVER
    on_better: Callable[[Codes], None] | None = None
    codes: Codes | None = None
    iteration_ns: int = NEVER
    evaluations: int = 0

    @property
    def plan(self) -> Codes:
        """The plan's codes, where one is known to fit."""
        assert self.codes is not None, "improving starts from a plan that fits"
        return self.codes

    @property
    def stopped(self) -> bool:
        """Whether time is up or enough plans have been scored."""
        return self.evaluations >= self.most or self.deadline.passed

    def offer(self, plans: Codes) -> Scores:
        """Score plans and keep the best of them if it beats the best so far."""
        scores = self.scorer.score(plans)
        self.evaluations += len(scores.table)
        row = scores.best()
        if row is not None and scores.iteration_ns[row] < self.iteration_ns:
            self.codes = np.atleast_2d(plans)[row].copy()
            self.iteration_ns = int(scores.iteration_ns[row])
            if self.on_better is not None:
                self.on_better(self.codes)
        return scores

    def try_changes(self, changes: Sequence[Change]) -> bool:
        """Score changes of the plan, then together those that help; tell if any did."""
        before, start = self.iteration_ns, self.plan
        scores = self.offer(changed(start, changes))
        if self.iteration_ns < before:
            self.join(start, changes, scores, before)
        return self.iteration_ns < before

    def join(
        self, start: Codes, changes: Sequence[Change], scores: Scores, before: int
    ) -> None:
        """Add up the changes of a plan that help by themselves, the most helpful first.

        Only as far as they touch different tensors. Equal layers often want the same change.
        """
        times = np.where(scores.feasible, scores.iteration_ns, NEVER)
        helpful = np.argsort(times, kind="stable")[: int((times < before).sum())]
        joint, touched, plans = start.copy(), set[int](), []
        for row in helpful.tolist():
            change = changes[row]
            if touched.isdisjoint(t for t, _ in change):
                touched.update(t for t, _ in change)
                for t, code in change:
                    joint[t] = code
                plans.append(joint.copy())
        if len(plans) > 1:
            self.offer(np.array(plans[1:]))


def descend(best: Incumbent, changes: Sequence[Change]) -> bool:
    """Try changes in turn, round and round, until none of them helps.

    Returns
    -------
    bool
        Whether all were tried on the final plan; False when stopped before.
    """
    at, idle = 0, 0
    while idle < len(changes):
        if best.stopped:
            return False
        count = min(BATCH, len(changes) - idle)
        batch = [changes[(at + step) % len(changes)] for step in range(count)]
        at = (at + count) % len(changes)
        new = [change for change in batch if any(best.plan[t] != code for t, code in change)]
        idle = 0 if new and best.try_changes(new) else idle + count
    return True


def single_changes(decisions: Decisions) -> list[Change]:
    """Every action that one tensor may be given."""
    return [
        ((t, int(code)),)
        for t, codes in zip(decisions.tensors, decisions.options, strict=True)
        for code in codes
    ]


def joint_changes(decisions: Decisions) -> Iterator[Change]:
    """Yield the actions of several tensors at once, pairs first, while there are not too many."""
    options = list(zip(decisions.tensors, decisions.options, strict=True))
    total = 0
    for size in range(2, len(options) + 1):
        total += comb(len(options), size) * 2**size
        if total > _JOINT_CHANGES:
            return
        for group in combinations(options, size):
            for codes in product(*(codes.tolist() for _, codes in group)):
                yield tuple((t, code) for (t, _), code in zip(group, codes, strict=True))


def polish(
    scorer: Scorer,
    codes: Codes,
    decisions: Decisions,
    *,
    evaluations: int,
    deadline: Deadline = NO_DEADLINE,
) -> tuple[Codes, int]:
    """Improve a plan that fits until no small change does.

    Small is one tensor, and as many at once as give some thousand changes.

    Parameters
    ----------
    scorer : Scorer
        The problem in the cost model.
    codes : int8[tensors]
        A plan that fits.
    decisions : Decisions
        What may be changed.
    evaluations : int
        Most plans scored, give or take a batch.
    deadline : Deadline
        After it no more are scored.

    Returns
    -------
    codes : int8[tensors]
        A plan no slower than the one given.
    evaluations : int
        Plans scored.
    """
    best = Incumbent(scorer, deadline, evaluations)
    best.offer(codes)
    improve_fully(best, decisions)
    return best.plan, best.evaluations


def improve_fully(
    best: Incumbent, decisions: Decisions, useless: Collection[Change] = ()
) -> bool:
    """Descend by changes of one tensor, then of several, until neither helps.

    Parameters
    ----------
    best : Incumbent
        The plan to improve.
    decisions : Decisions
        What may be changed.
    useless : collection of Change
        Changes known not to help the plan as it is.

    Returns
    -------
    bool
        Whether it is certain that no change of one tensor helps.
    """
    singles = single_changes(decisions)
    before = best.iteration_ns
    if descend(best, [change for change in singles if change not in useless]):
        if best.iteration_ns == before and not _improved_jointly(best, decisions):
            return not best.stopped
        while descend(best, singles):
            if not _improved_jointly(best, decisions):
                return not best.stopped
    return False


def _improved_jointly(best: Incumbent, decisions: Decisions) -> bool:
    batch: list[Change] = []
    for change in joint_changes(decisions):
        if all(best.plan[t] != code for t, code in change):
            batch.append(change)
        if len(batch) == 4 * BATCH:
            if best.stopped:
                return False
            if best.try_changes(batch):
                return True
            batch = []
    return bool(batch) and not best.stopped and best.try_changes(batch)


def changed(codes: Codes, changes: Sequence[Change]) -> Codes:
    """Return a plan's codes with each of some changes made, one row a change."""
    plans = np.repeat(codes[np.newaxis], len(changes), axis=0)
    rows = np.repeat(np.arange(len(changes)), [len(change) for change in changes])
    flat = [entry for change in changes for entry in change]
    if flat:
        tensors, actions = np.array(flat).T
        plans[rows, tensors] = actions
    return plans
