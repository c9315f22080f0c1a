"""What the model needs of a problem: rates, roles, windows and memory that no plan can avoid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from slackswap.cost_model.scorer import Scorer
from slackswap.graph import Graph
from slackswap.problem import Problem
from slackswap.profile import ALL_ACTIONS, Action

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Link rates are rounded up to a multiple of this, so that a double holds them exactly.
RATE_STEP = Fraction(1, 2**20)

_KEEP, _SWAP, _RECOMPUTE = (ALL_ACTIONS.index(a) for a in (Action.KEEP, Action.SWAP,
                                                           Action.RECOMPUTE))


@dataclass(frozen=True, slots=True)
class Restriction:
    """Which plans a model is about.

    Attributes
    ----------
    allow_swap, allow_recompute : bool
        Whether plans may swap tensors, and recompute saved ones.
    """

    allow_swap: bool = True
    allow_recompute: bool = True


EVERY_PLAN = Restriction()


@dataclass(frozen=True, slots=True, eq=False)
class ModelData:
    """A problem as the model sees it. Tensors and ops are named by index.

    Attributes
    ----------
    problem : Problem
        What it was made of.
    restriction : Restriction
        Which plans the model is about.
    graph : Graph
        The profile.
    may_swap, may_drop, must_move : bool[tensors]
        Swapping is possible; recomputing (an intermediate: dropping) is; keeping is not.
    first_closure, last_closure : int64[forward ops]
        Earliest and latest backward op whose closure can contain the op; the number of backward
        ops, and -1, where none can.
    first_read, last_read : int64[tensors]
        The same for closures that read an intermediate; for a saved tensor the first and last
        backward op that reads it.
    d2h_rate, h2d_rate : float
        Most bytes per nanosecond that any transfer of a swappable tensor achieves, latency
        included; rounded up.
    forward_room, backward_room : int64[ops]
        Budget left for tensors that are past their forward use, or not yet needed by backward:
        the rest is taken by inputs, workspace and tensors in use. Negative where no plan fits.
    """

    problem: Problem
    restriction: Restriction
    graph: Graph
    may_swap: Bools
    may_drop: Bools
    must_move: Bools
    first_closure: Ints
    last_closure: Ints
    first_read: Ints
    last_read: Ints
    d2h_rate: float
    h2d_rate: float
    forward_room: Ints
    backward_room: Ints

    @classmethod
    def of(cls, problem: Problem, restriction: Restriction = EVERY_PLAN) -> ModelData:
        """Gather the data of a problem."""
        graph, hardware = problem.profile.graph, problem.hardware
        allowed = Scorer(problem).allowed
        can_rerun = np.append(graph.recomputable, False)[graph.producer]
        may_drop = allowed[:, _RECOMPUTE] & (graph.is_intermediate | can_rerun)
        if not restriction.allow_recompute:
            may_drop &= graph.is_intermediate
        first_closure, last_closure = _closure_windows(graph, may_drop)
        first_read, last_read = _read_windows(graph, first_closure, last_closure)
        written = ~graph.is_input
        may_swap = allowed[:, _SWAP] & written & (last_read >= 0) & restriction.allow_swap
        return cls(
            problem=problem,
            restriction=restriction,
            graph=graph,
            may_swap=may_swap,
            may_drop=may_drop,
            must_move=written & ~allowed[:, _KEEP],
            first_closure=first_closure,
            last_closure=last_closure,
            first_read=first_read,
            last_read=last_read,
            d2h_rate=_best_rate(graph.nbytes[may_swap], hardware.d2h_ns),
            h2d_rate=_best_rate(graph.nbytes[may_swap], hardware.h2d_ns),
            forward_room=problem.budget_bytes - graph.input_bytes - _forward_use(graph),
            backward_room=problem.budget_bytes - graph.input_bytes - _backward_use(graph),
        )

    @property
    def d2h_ns_per_byte(self) -> float:
        """Least time of a byte on its way to the host, rounded down."""
        return _least_time(self.d2h_rate)

    @property
    def h2d_ns_per_byte(self) -> float:
        """Least time of a byte on its way back, rounded down."""
        return _least_time(self.h2d_rate)

    @property
    def longest_rerun_ns(self) -> int:
        """Time of running once more every op that can run again."""
        return int(self.graph.forward_ns[self.last_closure >= 0].sum())

    @property
    def longest_wait_ns(self) -> int:
        """Upper end of the stalls' boxes: every transfer one after the other, and every rerun."""
        hardware = self.problem.hardware
        sizes = self.graph.nbytes[self.may_swap].tolist()
        transfers = sum(hardware.d2h_ns(size) + hardware.h2d_ns(size) for size in sizes)
        return transfers + self.longest_rerun_ns


def _closure_windows(graph: Graph, may_drop: Bools) -> tuple[Ints, Ints]:
    """Earliest and latest backward op whose closure can contain each forward op.

    A closure enters an op through an output that is missing. A saved output that may be dropped is
    missing no later than its first backward read; an intermediate whenever an op reads it that the
    closure contains. Readers come later in the forward pass, so one sweep backwards suffices.
    """
    never = graph.n_backward
    first = np.full(graph.n_forward, never, dtype=np.int64)
    last = np.full(graph.n_forward, -1, dtype=np.int64)
    readers = _readers(graph)
    for op in range(graph.n_forward - 1, -1, -1):
        if not graph.recomputable[op]:
            continue
        for t in graph.forward_writes[op].tolist():
            by_reader = [first[reader] for reader in readers[t] if last[reader] >= 0]
            if graph.is_saved[t] and may_drop[t]:
                need = graph.first_backward_read[t]
                first[op] = min(first[op], need, *by_reader)
                last[op] = max(last[op], need)
            elif not graph.is_saved[t] and may_drop[t] and by_reader:
                first[op] = min(first[op], *by_reader)
                last[op] = max(last[op], *(last[reader] for reader in readers[t]))
    return first, last


def _read_windows(graph: Graph, first_closure: Ints, last_closure: Ints) -> tuple[Ints, Ints]:
    """First and last backward op that reads a saved tensor, or whose closure can read another."""
    first = np.where(graph.is_saved, graph.first_backward_read, graph.n_backward)
    last = np.where(graph.is_saved, graph.last_backward_read, -1)
    owners, items = graph.forward_reads.owners(), graph.forward_reads.items
    other = graph.is_intermediate[items]
    np.minimum.at(first, items[other], first_closure[owners[other]])
    np.maximum.at(last, items[other], last_closure[owners[other]])
    return first.astype(np.int64), last.astype(np.int64)


def _readers(graph: Graph) -> list[list[int]]:
    readers: list[list[int]] = [[] for _ in range(graph.n_tensors)]
    for op, t in zip(
        graph.forward_reads.owners().tolist(), graph.forward_reads.items.tolist(), strict=True
    ):
        readers[t].append(op)
    return readers


def _best_rate(sizes: Ints, duration_of: Callable[[int], int]) -> float:
    """Largest bytes per nanosecond over transfers of these sizes, rounded up to `RATE_STEP`."""
    rates = [Fraction(size, duration_of(size)) for size in np.unique(sizes).tolist() if size]
    return float(ceil(max(rates, default=Fraction(0)) / RATE_STEP) * RATE_STEP)


def _least_time(rate: float) -> float:
    """Nanoseconds per byte at a rate, rounded down."""
    return float(np.nextafter(1 / rate, 0.0)) if rate else 0.0


def _forward_use(graph: Graph) -> Ints:
    """Bytes during each forward op of its workspace and of tensors still in forward use."""
    change = np.zeros(graph.n_forward + 1, dtype=np.int64)
    written = ~graph.is_input
    np.add.at(change, graph.producer[written], graph.nbytes[written])
    np.add.at(change, graph.last_forward_use[written] + 1, -graph.nbytes[written])
    return np.cumsum(change[: graph.n_forward]) + graph.forward_workspace


def _backward_use(graph: Graph) -> Ints:
    """Bytes during each backward op of its workspace and of saved tensors in backward use."""
    change = np.zeros(graph.n_backward + 1, dtype=np.int64)
    saved = graph.is_saved
    np.add.at(change, graph.first_backward_read[saved], graph.nbytes[saved])
    np.add.at(change, graph.last_backward_read[saved] + 1, -graph.nbytes[saved])
    return np.cumsum(change[: graph.n_backward]) + graph.backward_workspace
