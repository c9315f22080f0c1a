"""The time that any plan takes at least, by memory at the critical op alone.

Far looser than the bounds of `slackswap.search`, but found in microseconds: planners use it to
leave out budgets at which nothing can beat what they have.
"""

from __future__ import annotations

import numpy as np

from slackswap.analysis.memory import critical_op, least_levels, not_resident_at
from slackswap.cost_model.scorer import RECOMPUTE, SWAP, Scorer
from slackswap.graph import Ints


def least_ns(scorer: Scorer, budget_bytes: int | None = None) -> int | None:
    """Bound the time of every plan of a problem from below.

    What is missing at the critical op must be gone by then. A byte is dropped, and its op runs
    again after that op; or it is copied out, for which the link has the time until the op starts
    unless compute waits. The cheapest mixture, bytes taken as divisible, is the bound.

    Parameters
    ----------
    scorer : Scorer
        The problem in the cost model.
    budget_bytes : int, optional
        Another budget than the problem's own.

    Returns
    -------
    int or None
        Nanoseconds; None when some op, or the inputs, need more than the budget
        whatever is moved.
    """
    problem, graph, allowed = scorer.problem, scorer.graph, scorer.allowed
    budget = problem.budget_bytes if budget_bytes is None else budget_bytes
    movable = allowed[:, RECOMPUTE] | allowed[:, SWAP]
    if graph.input_bytes > budget:
        return None
    if least_levels(graph, movable).max(initial=0) > budget:
        return None
    critical = critical_op(graph)
    absent = not_resident_at(graph, critical)
    missing = critical.level_bytes - budget
    may_drop, may_swap = absent & allowed[:, RECOMPUTE], absent & allowed[:, SWAP]
    bytes_per_ns = problem.hardware.d2h_bytes_per_s / 1e9
    missing -= min(int(bytes_per_ns * critical.start_ns) + 1, int(graph.nbytes[may_swap].sum()))
    if missing <= 0:
        return problem.profile.duration_ns
    freed = graph.bytes_by_op(may_drop)
    again = np.flatnonzero(freed)
    extra = _cheapest_ns(graph.forward_ns[again], freed[again], missing, 1 / bytes_per_ns)
    # Rounded down, so that it stays a bound.
    return problem.profile.duration_ns + int(0.999999 * extra)


def _cheapest_ns(cost_ns: Ints, freed: Ints, missing: int, waiting_ns_per_byte: float) -> float:
    """Fill a demand with divisible items, cheapest per byte first, waiting where that is cheaper.

    What waiting could carry is not limited: that only lowers the result.
    """
    price = cost_ns / freed
    order = np.argsort(price, kind="stable")
    order = order[price[order] < waiting_ns_per_byte]
    taken = np.minimum(np.cumsum(freed[order]), missing)
    steps = np.diff(taken, prepend=0)
    rest = missing - int(steps.sum())
    return float((steps * price[order]).sum()) + rest * waiting_ns_per_byte
