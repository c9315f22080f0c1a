"""One instant of the iteration, and what every plan has to do about its memory.

At an instant m, while some op runs, part of the memory is taken whatever the plan: inputs,
workspace, and the tensors in use. Every other tensor that is written before m and needed after it
is in memory at m, or was copied out before m and is copied back after it, or is made again after m.
``docs/lower-bounds.md`` derives from this what `slackswap.search.lagrangian.relaxation` computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from slackswap.cost_model.scorer import RECOMPUTE, SWAP, Scorer
from slackswap.graph import Bools, Graph, Ints
from slackswap.problem import Problem
from slackswap.result import Phase
from slackswap.search.milp.data import EVERY_PLAN, Restriction


@dataclass(frozen=True, slots=True, eq=False)
class Instant:
    """What is known of one instant, whatever the plan.

    Tensors are int64 arrays over all tensors; those outside `movable` and `storable` do not matter.

    Attributes
    ----------
    phase, op : Phase, int
        The instant lies in this op; forward op `n_forward` stands for the turn, after the forward
        pass and before the first backward step.
    room_bytes : int
        Budget less what is in memory under every plan. Negative: no plan fits.
    movable : bool[tensors]
        Saved tensors that may be elsewhere than in memory then.
    storable : bool[tensors]
        Intermediates that, to be read after the instant, must be stored or made again after it.
    due : int64[tensors]
        Backward op that reads a movable tensor first after the instant; elsewhere the number of
        backward ops.
    before_ns : int
        Time that computing alone takes before the instant.
    after_ns : int64[backward ops]
        Time that computing alone takes from the instant, or from the start of the backward pass if
        that is later, to the start of each backward op.
    first_due : int
        First backward op to count in `after_ns`: earlier ones start before the instant.
    """

    phase: Phase
    op: int
    room_bytes: int
    movable: Bools
    storable: Bools
    due: Ints
    before_ns: int
    after_ns: Ints
    first_due: int


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """A problem as the relaxation sees it; the instants of one problem share it.

    Attributes
    ----------
    problem : Problem
        What it was made of.
    graph : Graph
        Its profile.
    may_swap, may_recompute : bool[tensors]
        What the allowed actions permit.
    out_ns, back_ns : int64[tensors]
        Least time on the link each way: latency, and bytes over bandwidth rounded down. (Rounded
        down, a part of a tensor takes at least that part of it.)
    end_ns : int64[forward ops]
        When each forward op ends if compute never waits.
    free : bool
        Whether plans are covered that the simulator has no words for: that move a tensor between
        two reads in the same pass, or copy back in the forward pass.
    """

    problem: Problem
    graph: Graph
    may_swap: Bools
    may_recompute: Bools
    out_ns: Ints
    back_ns: Ints
    end_ns: Ints
    free: bool = False

    @classmethod
    def of(
        cls, problem: Problem, restriction: Restriction = EVERY_PLAN, *, free: bool = False
    ) -> Facts:
        """Read a problem; `restriction` bounds only plans that do not swap or not recompute."""
        scorer, graph = Scorer(problem), problem.profile.graph
        may_swap = scorer.allowed[:, SWAP] & ~graph.is_input & restriction.allow_swap
        # The default of an intermediate, to be dropped, is open to it whatever its `allowed`.
        may_recompute = graph.is_intermediate | (
            scorer.allowed[:, RECOMPUTE] & graph.is_saved & restriction.allow_recompute
        )
        hardware = problem.hardware
        sizes, place = np.unique(graph.nbytes, return_inverse=True)
        out, back = (
            # In Python integers: bytes x 10^9 overflows 64 bits above 9.2 GB.
            np.array([hardware.latency_ns + nbytes * 10**9 // rate for nbytes in sizes.tolist()],
                     dtype=np.int64)[place]
            for rate in (hardware.d2h_bytes_per_s, hardware.h2d_bytes_per_s)
        )
        return cls(
            problem, graph, may_swap, may_recompute, out, back, np.cumsum(graph.forward_ns), free
        )

    def instants(self) -> Iterator[Instant]:
        """Yield the instants at which memory is most likely to bind.

        In each pass, where keeping everything takes most, and where most of it is left when the
        link has copied out all that it can until then; and the turn.
        """
        graph = self.graph
        if not graph.n_backward:
            return
        forward, backward = graph.keep_all_levels
        rate = self.problem.hardware.d2h_bytes_per_s / 1e9
        before = np.cumsum(np.concatenate([[0], graph.forward_ns, graph.backward_ns]))
        carried = rate * before
        left = forward - carried[: graph.n_forward], backward - carried[graph.n_forward : -1]
        yield self.in_backward(int(backward.argmax()))
        yield self.in_forward(graph.n_forward)
        for op in dict.fromkeys((int(left[0].argmax()), int(forward.argmax()))):
            yield self.in_forward(op)
        if left[1].argmax() != backward.argmax():
            yield self.in_backward(int(left[1].argmax()))

    def in_backward(self, op: int) -> Instant:
        """Return the instant at which a backward op itself runs, after the closures before it."""
        graph = self.graph
        _, levels = graph.keep_all_levels
        # What was read before and is read again later need not be there now: it is in every plan,
        # but not in every schedule that drops or swaps a tensor twice.
        reads, reader = graph.backward_reads.items, graph.backward_reads.owners()
        due = np.full(graph.n_tensors, graph.n_backward, dtype=np.int64)
        later = reader > op
        np.minimum.at(due, reads[later], reader[later])
        movable = graph.is_saved & (due < graph.n_backward)
        movable[graph.backward_reads[op]] = False
        before = np.concatenate([[0], np.cumsum(graph.backward_ns)])[: graph.n_backward]
        return Instant(
            phase=Phase.BACKWARD,
            op=op,
            room_bytes=self._room(int(levels[op]) - int(graph.nbytes[movable].sum())),
            movable=movable,
            storable=graph.is_intermediate,
            due=np.where(movable, due, graph.n_backward),
            before_ns=int(graph.forward_ns.sum()) + int(before[op]),
            after_ns=before - before[op],
            first_due=op + 1,
        )

    def in_forward(self, op: int) -> Instant:
        """Return the instant at which a forward op starts; `n_forward` is the turn."""
        graph = self.graph
        in_use = (graph.producer <= op) & (graph.last_forward_use >= op) & ~graph.is_input
        if self.free and op < graph.n_forward:
            in_use[:] = False
            in_use[graph.forward_reads[op]] = in_use[graph.forward_writes[op]] = True
            in_use &= ~graph.is_input
        past = ~graph.is_input & (graph.producer < op) & ~in_use
        # Read again by a later forward op, so needed whatever the plan (with `free` alone).
        awaited = past & (graph.last_forward_use > op)
        to_turn = int(graph.forward_ns[op:].sum()) if self.free else 0
        needed = graph.input_bytes
        if op < graph.n_forward:
            needed += int(graph.nbytes[in_use].sum()) + int(graph.forward_workspace[op])
        return Instant(
            phase=Phase.FORWARD,
            op=op,
            room_bytes=self._room(needed),
            movable=(graph.is_saved | awaited) & past,
            storable=graph.is_intermediate & past & ~awaited,
            before_ns=int(graph.forward_ns[:op].sum()),
            after_ns=to_turn
            + np.concatenate([[0], np.cumsum(graph.backward_ns)])[: graph.n_backward],
            first_due=0,
            due=np.where(graph.is_saved & past, graph.first_backward_read, graph.n_backward),
        )

    def least_bytes(self) -> int:
        """Return what some op needs by itself if tensors may move between any two reads."""
        graph, most = self.graph, 0
        for reads, own in (
            (graph.forward_reads, graph.forward_workspace + graph.forward_write_bytes),
            (graph.backward_reads, graph.backward_workspace),
        ):
            needed = own.copy()
            items = reads.items
            np.add.at(needed, reads.owners(), np.where(graph.is_input, 0, graph.nbytes)[items])
            most = max(most, int(needed.max(initial=0)))
        return graph.input_bytes + most

    def at(self, phase: Phase, op: int) -> Instant:
        """Return the instant of an op of either pass."""
        return self.in_forward(op) if phase is Phase.FORWARD else self.in_backward(op)

    def _room(self, needed: int) -> int:
        return self.problem.budget_bytes - needed
