"""Making a plan fit: single changes, scored by the cost model, until it does."""

from __future__ import annotations

import numpy as np

from slackswap.cost_model.scorer import KEEP, RECOMPUTE, SWAP, Codes, Scorer, Scores
from slackswap.deadline import NO_DEADLINE, Deadline
from slackswap.graph import Ints

#: Tensors tried in one round, largest first.
_ROUND = 96


def repair(
    scorer: Scorer,
    codes: Codes,
    *,
    actions: tuple[np.int8, ...],
    rounds: int = 64,
    deadline: Deadline = NO_DEADLINE,
) -> Codes | None:
    """Change one tensor at a time until a plan fits.

    Each round scores every single change of the largest tensors and takes the one that gets
    furthest through the iteration, then the one with the fewest bytes missing.

    Parameters
    ----------
    scorer : Scorer
        Scores plans of the problem.
    codes : int8[tensors]
        A plan that does not fit.
    actions : tuple of int8
        Actions that may be given to a tensor.
    rounds : int
        Most changes made.
    deadline : Deadline
        After it no more changes are made.

    Returns
    -------
    int8[tensors] or None
        A plan that fits, or None when no single change helps any more.
    """
    by_size = np.argsort(-scorer.graph.nbytes, kind="stable")
    current = codes
    reached = progress(scorer.score(current))[0]
    for _ in range(rounds):
        if deadline.passed:
            return None
        neighbours = _neighbours(scorer, current, by_size, actions)
        if not len(neighbours):
            return None
        scores = scorer.score(neighbours)
        best = scores.best()
        if best is not None:
            fitting: Codes = neighbours[best]
            return fitting
        steps = progress(scores)
        order = np.lexsort((-steps[:, 1], -steps[:, 0]))
        if tuple(steps[order[0]]) <= tuple(reached):
            return None
        reached, current = steps[order[0]], neighbours[order[0]]
    return None


def progress(scores: Scores) -> Ints:
    """How far each plan gets.

    Returns
    -------
    int64[plans, 2]
        Ops passed before it gets stuck (invalid plans: -1), and minus the bytes then missing.
    """
    from slackswap.cost_model import kernel

    outcome = scores.table[:, kernel.OUTCOME]
    stuck = scores.table[:, kernel.STUCK_OP]
    n_forward = scores.problem.profile.graph.n_forward
    passed = np.where(outcome == kernel.STUCK_BACKWARD, n_forward + stuck, stuck)
    passed = np.where(outcome == kernel.FITS, np.iinfo(np.int64).max, passed)
    passed = np.where(scores.valid, passed, -1)
    return np.stack([passed, -scores.shortfall_bytes], axis=1)


def _neighbours(
    scorer: Scorer, codes: Codes, by_size: Ints, actions: tuple[np.int8, ...]
) -> Codes:
    """Every allowed change of one tensor, for the largest tensors that have any."""
    changes: list[Codes] = []
    tried = 0
    for t in by_size.tolist():
        options = [a for a in actions if a != codes[t] and scorer.allowed[t, a]]
        tried += bool(options)
        for action in options:
            changed = codes.copy()
            changed[t] = action
            changes.append(changed)
        if tried == _ROUND:
            break
    return np.array(changes, dtype=np.int8).reshape(-1, len(codes))


def permitted_actions(*, swap: bool, recompute: bool) -> tuple[np.int8, ...]:
    """Return the action codes of a rule that may swap, recompute, both or neither."""
    return (KEEP, *((SWAP,) if swap else ()), *((RECOMPUTE,) if recompute else ()))
