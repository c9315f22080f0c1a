"""Where the stalls of a plan come from, tensor by tensor."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from slackswap.errors import SlackSwapError
from slackswap.result import Evaluation, EventKind


@dataclass(frozen=True, slots=True)
class Stall:
    """Time that compute waited, by what for.

    Attributes
    ----------
    cause : str
        ``memory``, ``tensor`` or ``barrier``.
    tensor : str or None
        Tensor whose transfer ended the wait, if one did.
    ops : tuple of str
        Ops that waited, in order.
    total_ns : int
        How long in all.
    """

    cause: str
    tensor: str | None
    ops: tuple[str, ...]
    total_ns: int


def stalls_by_tensor(evaluation: Evaluation) -> tuple[Stall, ...]:
    """Return the stalls of an evaluation with a timeline, the longest first.

    Raises
    ------
    SlackSwapError
        When the evaluation carries no timeline.
    """
    if evaluation.timeline is None:
        raise SlackSwapError(
            "carries no timeline", where="evaluation",
            fix="score the plan with simulate(problem, plan, timeline=True)",
        )
    waits: dict[tuple[str, str | None], list[tuple[str, int]]] = defaultdict(list)
    for event in evaluation.timeline:
        if event.kind is EventKind.STALL:
            waits[str(event.cause), event.tensor].append(
                (event.name, event.end_ns - event.start_ns)
            )
    found = [
        Stall(cause, tensor, tuple(dict.fromkeys(op for op, _ in entries)),
              sum(length for _, length in entries))
        for (cause, tensor), entries in waits.items()
    ]
    return tuple(sorted(found, key=lambda stall: -stall.total_ns))
