"""Local search on whole plans in the referee: single changes, and pairs on small problems."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from slackswap.cost_model.scorer import Codes, Scorer
from slackswap.deadline import NO_DEADLINE, Deadline
from slackswap.search.enumeration import Decisions

_BATCH = 256
#: Pairs of changes are tried with at most so many decisions.
_PAIRS_UP_TO = 24


def polish(
    scorer: Scorer,
    codes: Codes,
    decisions: Decisions,
    *,
    evaluations: int,
    deadline: Deadline = NO_DEADLINE,
) -> tuple[Codes, int]:
    """Improve a plan that fits until no small change does.

    Parameters
    ----------
    scorer : Scorer
        The referee of the problem.
    codes : int8[tensors]
        A plan that fits.
    decisions : Decisions
        What may be changed.
    evaluations : int
        Most plans scored.
    deadline : Deadline
        After it no more are scored.

    Returns
    -------
    codes : int8[tensors]
        A plan no slower than the one given.
    evaluations : int
        Plans scored.
    """
    best = codes
    best_ns = int(scorer.score(codes).iteration_ns[0])
    spent, improved = 0, True
    while improved:
        improved = False
        for batch in _neighbours(best, decisions):
            if spent + len(batch) > evaluations or deadline.passed:
                return best, spent
            scores = scorer.score(batch)
            spent += len(batch)
            row = scores.best()
            if row is not None and scores.iteration_ns[row] < best_ns:
                best, best_ns = batch[row].copy(), int(scores.iteration_ns[row])
                improved = True
                break
    return best, spent


def _neighbours(codes: Codes, decisions: Decisions) -> Iterator[Codes]:
    """Yield plans that differ in one decision, then in two, some hundreds at a time."""
    changes = [
        (t, code)
        for t, options in zip(decisions.tensors, decisions.options, strict=True)
        for code in options.tolist()
        if code != codes[t]
    ]
    groups = [[change] for change in changes]
    if len(decisions.tensors) <= _PAIRS_UP_TO:
        groups += [list(pair) for pair in combinations(changes, 2) if pair[0][0] != pair[1][0]]
    for start in range(0, len(groups), _BATCH):
        part = groups[start : start + _BATCH]
        batch = np.repeat(codes[np.newaxis], len(part), axis=0)
        for row, group in zip(batch, part, strict=True):
            for t, code in group:
                row[t] = code
        yield batch
