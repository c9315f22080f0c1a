"""The variables of the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slackswap.search.milp.data import ModelData
from slackswap.search.milp.linear import BYTES, NS, PURE, ModelBuilder

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Variables:
    """Column indices of the model's variables.

    Attributes
    ----------
    swap, drop : int64[tensors]
        Whether a tensor is swapped; whether it is recomputed (an intermediate: dropped).
    again : int64[forward ops]
        Whether an op runs again.
    forward_stall : int64[forward ops]
        Nanoseconds that compute waits before the op.
    queue_before, queue_after : int64[forward ops]
        Bytes that wait for or are in offload when the op starts, and when it ends.
    stored : int64[forward ops]
        Bytes of tensors past their forward use that are kept, when the op starts.
    backward_stall : int64[backward ops]
        Nanoseconds that compute waits, or runs an op another time, before the backward op.
    rerun : int64[backward ops]
        Nanoseconds of first re-executions before the backward op, and after the previous one.
    reserve : int64[backward ops]
        Nanoseconds of re-executions that could have run by the backward op and did not.
    queue : int64[backward ops]
        Bytes that wait for or are in offload when the backward op starts.
    ahead : int64[backward ops]
        Bytes prefetched beyond what must be back when the backward op starts.
    due : int64[backward ops]
        Bytes of swapped tensors that need not be back yet when the backward op starts.
    due_intermediates : int64[backward ops]
        Their part that are intermediates.
    waiting : int64[backward ops]
        Bytes of kept tensors that backward does not need yet.
    extra : int64[0 or 1]
        Bytes by which the budget is exceeded, in a model that asks for the least budget.
    returned : int64[backward ops]
        Bytes of saved tensors that are back and not needed yet.
    """

    swap: Ints
    drop: Ints
    again: Ints
    forward_stall: Ints
    queue_before: Ints
    queue_after: Ints
    stored: Ints
    backward_stall: Ints
    rerun: Ints
    reserve: Ints
    queue: Ints
    ahead: Ints
    due: Ints
    due_intermediates: Ints
    waiting: Ints
    returned: Ints
    extra: Ints

    @classmethod
    def add(
        cls, builder: ModelBuilder, data: ModelData, *, elastic: bool = False
    ) -> Variables:
        """Add the variables to a model, each within a finite box that loses no plan.

        An `elastic` model may exceed the budget.
        """
        graph = data.graph
        n_tensors, n_forward, n_backward = graph.n_tensors, graph.n_forward, graph.n_backward
        written = ~graph.is_input
        total = float(graph.nbytes[written].sum())
        swappable = float(graph.nbytes[data.may_swap].sum())
        reruns, longest = float(data.longest_rerun_ns), float(data.longest_wait_ns)

        def decisions(name: str, count: int, upper: Bools, lower: Bools | int = 0) -> Ints:
            return builder.add_columns(name, count, lower=lower, upper=upper, unit=PURE,
                                       integer=True)

        def levels(name: str, count: int, upper: Ints | float, unit: int) -> Ints:
            return builder.add_columns(name, count, upper=upper, unit=unit)

        # Beyond the keep-everything peak nothing is gained.
        beyond = float(data.problem.keep_all_peak_bytes) if elastic else 0.0
        forward_room = total if elastic else np.minimum(data.forward_room, total)
        backward_room = total if elastic else np.minimum(data.backward_room, total)
        must_drop = written & graph.is_intermediate & (data.last_read < 0)
        return cls(
            swap=decisions("swap", n_tensors, data.may_swap),
            drop=decisions("drop", n_tensors, data.may_drop, must_drop),
            again=decisions("again", n_forward, data.last_closure >= 0),
            forward_stall=levels("forward_stall", n_forward, longest, NS),
            queue_before=levels("queue_before", n_forward, swappable, BYTES),
            queue_after=levels("queue_after", n_forward, swappable, BYTES),
            stored=levels("stored", n_forward, forward_room, BYTES),
            backward_stall=levels("backward_stall", n_backward, longest, NS),
            rerun=levels("rerun", n_backward, reruns, NS),
            reserve=levels("reserve", n_backward, reruns, NS),
            queue=levels("queue", n_backward, swappable, BYTES),
            ahead=levels("ahead", n_backward, swappable, BYTES),
            due=levels("due", n_backward, swappable, BYTES),
            due_intermediates=levels("due_intermediates", n_backward, swappable, BYTES),
            waiting=levels("waiting", n_backward, backward_room, BYTES),
            returned=levels("returned", n_backward, swappable, BYTES),
            extra=levels("extra", int(elastic), beyond, BYTES),
        )
