"""The relaxation at one instant for given multipliers: a minimum cut, in integers or in floats.

Multipliers, all of them at least 0, turn limits into costs: of memory at the instant (a byte), of
the link before it and after it (a nanosecond), of the host (a byte). For every plan, time is at
least computing, plus what the plan runs again after the instant, plus what compute waits; and the
limits hold. So with any multipliers

    time >= computing + least over plans of (runs again + multiplied use) - multiplied limits,

and the least over plans is at least the least over all choices, tensor by tensor, of what
`Instant` says must happen to it. `docs/lower-bounds.md` has the argument in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from slackswap.analysis.min_cut import lightest_closure
from slackswap.graph import Bools
from slackswap.result import Phase
from slackswap.search.lagrangian.instants import Facts, Instant

#: Total weight, in units, that a minimum cut may have; of int64 and with room for sums.
_MOST_UNITS = 2**60


@dataclass(frozen=True, slots=True)
class Multipliers:
    """Multipliers of the relaxed limits, in one unit of `1 / one`.

    Attributes
    ----------
    one : int or float
        What stands for 1.
    memory : int or float
        Of a byte of memory at the instant, in nanoseconds.
    out : mapping of int to int or float
        By forward op i: of a nanosecond of the link between the end of op i and the instant, for
        copies of tensors that op i or a later one writes. They sum to at most 1.
    back : mapping of int to int or float
        By backward op j: of a nanosecond of the link between the instant and the start of op j, for
        copies of tensors that op j or an earlier one reads next. They sum to at most 1.
    host : int or float
        Of a byte of host memory, in nanoseconds.
    """

    one: Any
    memory: Any
    out: Mapping[int, Any] = field(default_factory=dict)
    back: Mapping[int, Any] = field(default_factory=dict)
    host: Any = 0

    def exact(self, bits: int = 40) -> Multipliers:
        """Round to multiples of 2^-`bits`, downwards, so that sums stay within their limits."""
        one = 2**bits

        def rounded(value: Any) -> int:
            return max(0, int(Fraction(value) * one / Fraction(self.one)))

        return Multipliers(
            one, rounded(self.memory),
            {op: rounded(value) for op, value in self.out.items() if rounded(value)},
            {op: rounded(value) for op, value in self.back.items() if rounded(value)},
            rounded(self.host),
        )


@dataclass(frozen=True, slots=True, eq=False)
class CutChoice:
    """The best choice at some prices.

    Attributes
    ----------
    excess : int or float
        Lower bound on the time beyond computing, in units of `1 / Multipliers.one` nanoseconds.
    again : bool[forward ops]
        What runs again after the instant.
    kept, copied : bool[tensors]
        What is in memory at the instant, and what comes back over the link.
    """

    excess: Any
    again: Bools
    kept: Bools
    copied: Bools


class Relaxation:
    """The relaxation of a problem at one instant.

    Parameters
    ----------
    facts : Facts
        The problem.
    instant : Instant
        The instant.

    Attributes
    ----------
    rerun_ns : int
        Time of all forward ops, more than which nothing can run again once.
    """

    def __init__(self, facts: Facts, instant: Instant) -> None:
        graph = facts.graph
        self.facts, self.instant, self.graph = facts, instant, graph
        self.droppable = instant.movable & facts.may_recompute
        self.concerned = instant.movable | instant.storable
        # Nodes are the forward ops, then the intermediates that some op reads. An op that runs
        # again needs those that it reads to be there; the producer's own node comes with it.
        reads = graph.forward_reads
        through = instant.storable[reads.items]
        reader, read = reads.owners()[through], reads.items[through]
        self.nodes = np.unique(read)
        node_of = np.full(graph.n_tensors, -1, dtype=np.int64)
        node_of[self.nodes] = graph.n_forward + np.arange(len(self.nodes))
        self.tails = np.concatenate([reader, graph.producer[self.nodes]])
        self.heads = node_of[np.concatenate([read, self.nodes])]

    def check(self, prices: Multipliers) -> None:
        """Refuse prices for which the relaxation says nothing.

        Raises
        ------
        ValueError
            When a price is negative, the link's sum to more than 1, or one is charged at an op
            that does not count at this instant.
        """
        values = (prices.memory, prices.host, *prices.out.values(), *prices.back.values())
        if min(values) < 0 or prices.one <= 0:
            raise ValueError("a price is negative")
        if sum(prices.out.values()) > prices.one or sum(prices.back.values()) > prices.one:
            raise ValueError("the link's prices sum to more than 1 in one direction")
        for op in prices.out:
            if not 0 <= op < self.graph.n_forward or self.window_out_ns(op) < 0:
                raise ValueError(f"forward op {op} does not end before the instant")
        for op in prices.back:
            if not self.instant.first_due <= op < self.graph.n_backward:
                raise ValueError(f"backward op {op} does not start after the instant")
        host = self.facts.problem.hardware.host_bytes
        if prices.host and host is None:
            raise ValueError("the host is unlimited and has no price")

    def window_out_ns(self, op: int) -> int:
        """Time from the end of a forward op to the instant, if compute never waits."""
        return self.instant.before_ns - int(self.facts.end_ns[op])

    def solve(self, prices: Multipliers) -> CutChoice:
        """Find the best choice, in floats: quickly, and not proven."""
        return self._solve(prices, np.float64)

    def proven_ns(self, prices: Multipliers) -> int:
        """Return a proven lower bound on the time beyond computing, for exact prices.

        Integers alone are used: prices in their unit, and node weights rounded down to whole
        units of the cut, which can only lower the result.

        Raises
        ------
        ValueError
            When the prices are not exact or not valid; see `check`.
        """
        values = (prices.one, prices.memory, prices.host, *prices.out.values(),
                  *prices.back.values())
        if not all(isinstance(value, int) for value in values):
            raise ValueError("prices are not integers")
        self.check(prices)
        choice = self._solve(prices, object)
        return max(0, -int(-choice.excess // prices.one))

    def missing_bytes(self, memory: int, host: int) -> int:
        """Return by how much the budget must be exceeded, whatever is run again, to fit the host.

        Parameters
        ----------
        memory, host : int
            Exact prices of a byte of memory and of a byte of the host; any are valid, and their
            ratio decides how much is proven.
        """
        if memory <= 0:
            return 0
        choice = self._solve(Multipliers(0, memory, host=host), object)
        return max(0, -int(-choice.excess // memory))

    def _solve(self, prices: Multipliers, number: Any) -> CutChoice:
        facts, instant, graph = self.facts, self.instant, self.graph
        n_forward = graph.n_forward
        nbytes = graph.nbytes.astype(number)
        # What a tensor costs if it is in memory, or comes back over the link, whichever is less.
        cost = prices.memory * nbytes
        over_link = self._link_cost(prices, nbytes, number)
        by_link = facts.may_swap & self.concerned & (over_link < cost)
        cost[by_link] = over_link[by_link]
        cost[~self.concerned] = 0

        producer = graph.producer[self.nodes]
        weights = np.zeros(n_forward + len(self.nodes), dtype=number)
        weights[:n_forward] = graph.forward_ns.astype(number) * (
            prices.one - sum(prices.back.values())
        )
        np.subtract.at(weights, graph.producer[self.droppable], cost[self.droppable])
        np.subtract.at(weights, producer, cost[self.nodes])
        weights[n_forward:] = cost[self.nodes]
        again, stored, least = self._cut(weights)

        excess = least + cost[instant.movable].sum() - prices.memory * instant.room_bytes
        for op, price in prices.out.items():
            excess -= price * self.window_out_ns(op)
        for op, price in prices.back.items():
            excess -= price * int(instant.after_ns[op])
        if prices.host:
            excess -= prices.host * facts.problem.hardware.host_bytes

        there = instant.movable.copy()
        there[self.droppable] &= ~again[graph.producer[self.droppable]]
        there[self.nodes[stored & ~again[producer]]] = True
        return CutChoice(excess, again, there & ~by_link, there & by_link)

    def _link_cost(self, prices: Multipliers, nbytes: Any, number: Any) -> Any:
        """Cost of bringing each tensor back over the link: the prices of all rows it is in."""
        facts, graph = self.facts, self.graph
        out = np.zeros(graph.n_forward + 1, dtype=number)
        back = np.zeros(graph.n_backward + 1, dtype=number)
        for op, price in prices.out.items():
            out[op] += price
        for op, price in prices.back.items():
            back[op] += price
        out, back = np.cumsum(out), np.cumsum(back[::-1])[::-1]
        return (
            facts.out_ns.astype(number) * out[graph.producer]
            + facts.back_ns.astype(number) * back[self.instant.due]
            + prices.host * nbytes
        )

    def _cut(self, weights: Any) -> tuple[Bools, Bools, Any]:
        """Choose ops and intermediates of least weight; the weight is rounded down."""
        n_forward = self.graph.n_forward
        gain = -weights[weights < 0].sum() if len(weights) else 0
        exact = weights.dtype == object
        # The unit is a power of two, so that shifts and floats scale without error.
        bits = max(0, int(gain).bit_length() - _MOST_UNITS.bit_length() + 1) if exact else 0
        if exact:
            # Heavier than all gains together is never chosen: cap before the numbers leave int64.
            cap = int(gain) + 1
            units = np.array([min(w, cap) >> bits for w in weights.tolist()], dtype=np.int64)
            scale: Any = 1 << bits
            units = np.minimum(units, (cap >> bits) + 1)
        else:
            scale = 2.0 ** (int(np.frexp(max(gain, 1e-30))[1]) - 50)
            units = np.floor(np.minimum(weights, gain + scale) / scale).astype(np.int64)
        never = int(-units[units < 0].sum()) + 1
        units[:n_forward][~self.graph.recomputable] = never
        chosen, least = lightest_closure(units, self.tails, self.heads)
        return chosen[:n_forward], chosen[n_forward:], least * scale


def instant_name(instant: Instant, n_forward: int) -> str:
    """Say in words when an instant is."""
    if instant.phase is Phase.FORWARD:
        return "the turn" if instant.op == n_forward else f"forward op {instant.op}"
    return f"backward op {instant.op}"
