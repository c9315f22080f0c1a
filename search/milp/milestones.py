"""What has run again by chosen backward ops, and the memory that it holds.

The running levels of the model know when a tensor is needed by backward itself, but not that an
op which runs again needs its own inputs, holds on to its outputs, or ends the wait of a stored
intermediate. At a *milestone*, a backward op where memory is tight, variables say so for each op.
One or two milestones are enough on deep models; a few hundred rows each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slackswap.search.milp.data import ModelData
from slackswap.search.milp.linear import BYTES, NS, PURE, ModelBuilder
from slackswap.search.milp.variables import Variables

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Milestone:
    """Column indices of one milestone's variables; -1 where there is none.

    Attributes
    ----------
    op : int
        The backward op.
    ran : int64[forward ops]
        Whether the op has run again by its backward step (the column of `Variables.again` where
        no closure after the milestone can contain the op).
    retained : int64[tensors]
        Whether a saved tensor that backward needs later only has been made again already.
    back : int64[tensors]
        Whether a swapped tensor that backward needs later only is already back for a closure.
    held : int64[tensors]
        Whether a kept intermediate is still waiting for a closure.
    """

    op: int
    ran: Ints
    retained: Ints
    back: Ints
    held: Ints

    @classmethod
    def add(
        cls, builder: ModelBuilder, data: ModelData, variables: Variables, op: int
    ) -> Milestone:
        """Add the variables of a milestone to a model."""
        graph = data.graph
        reachable = data.first_closure <= op
        over = reachable & (data.last_closure <= op)

        def flags(name: str, members: NDArray[np.bool_]) -> Ints:
            columns = np.full(len(members), -1, dtype=np.int64)
            columns[members] = builder.add_columns(
                f"{name}_{op}", int(members.sum()), upper=1.0, unit=PURE
            )
            return columns

        ran = flags("ran", reachable & ~over)
        ran[over] = variables.again[over]
        read = np.zeros(graph.n_tensors, dtype=np.bool_)
        read[graph.forward_reads.items[ran[graph.forward_reads.owners()] >= 0]] = True
        made = np.append(ran, -1)[graph.producer] >= 0
        later = graph.is_saved & (graph.first_backward_read > op)
        pending = graph.is_intermediate & (data.last_read > op)
        return cls(
            op=op,
            ran=ran,
            retained=flags("retained", later & data.may_drop & made),
            back=flags("back", (later | pending) & data.may_swap & read),
            held=flags("held", pending & (data.first_read <= op)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class MilestoneConstraints:
    """Adds the constraints of the milestones to a model."""

    builder: ModelBuilder
    data: ModelData
    variables: Variables
    milestones: tuple[Milestone, ...]

    def add_all(self) -> None:
        """Add every family at every milestone."""
        for milestone in self.milestones:
            self.needed_outputs_ran(milestone)
            self.closures_reach_back(milestone)
            self.nothing_ran_without_need(milestone)
            self.nothing_ran_for_nothing(milestone)
            self.remade_is_retained(milestone)
            self.read_is_here(milestone)
            self.unread_is_held(milestone)
            self.fetched_for_closures(milestone)
            self.memory(milestone)
            self.reruns_by_then(milestone)
        for earlier, later in zip(self.milestones, self.milestones[1:], strict=False):
            self.ran_stays_ran(earlier.ran, later.ran, f"{earlier.op}_{later.op}")
        for milestone in self.milestones[-1:]:
            self.ran_stays_ran(milestone.ran, self.variables.again, f"{milestone.op}_end")

    def needed_outputs_ran(self, milestone: Milestone) -> None:
        """State that an op ran by then when backward has needed a recomputed output of it."""
        graph = self.data.graph
        producer = np.append(milestone.ran, -1)[graph.producer]
        again = np.append(self.variables.again, -1)[graph.producer]
        due = (
            graph.is_saved & self.data.may_drop & (graph.first_backward_read <= milestone.op)
            & (producer >= 0) & (producer != again)
        )
        tensors = np.flatnonzero(due)
        rows = self._rows("needed_outputs_ran", milestone, len(tensors), lower=0.0)
        self.builder.put(rows, producer[tensors], 1.0)
        self.builder.put(rows, self.variables.drop[tensors], -1.0)

    def closures_reach_back(self, milestone: Milestone) -> None:
        """State that what ran had its missing inputs made by then."""
        graph, data = self.data.graph, self.data
        readers, items = graph.forward_reads.owners(), graph.forward_reads.items
        missing = (
            ~graph.is_input[items] & data.may_drop[items] & (milestone.ran[readers] >= 0)
            & ((graph.first_backward_read[items] > milestone.op) | graph.is_intermediate[items])
        )
        readers, items = readers[missing], items[missing]
        producers = milestone.ran[graph.producer[items]]
        rows = self._rows("closures_reach_back", milestone, len(items), lower=-1.0)
        self.builder.put(rows[producers >= 0], producers[producers >= 0], 1.0)
        self.builder.put(rows, milestone.ran[readers], -1.0)
        self.builder.put(rows, self.variables.drop[items], -1.0)

    def nothing_ran_without_need(self, milestone: Milestone) -> None:
        """State that an op ran only for an output needed by then, or read by an op that ran."""
        _, place = self._one_row_per_op(milestone, "nothing_ran_without_need")
        self._needed_by_then(milestone, place)
        pulled = self.data.may_drop & ~self._is_needed(milestone)
        self._pulled_by_readers(milestone, place, pulled, together=True)

    def nothing_ran_for_nothing(self, milestone: Milestone) -> None:
        """State the same with what an op leaves: an output retained, or read by an op that ran."""
        rows, place = self._one_row_per_op(milestone, "nothing_ran_for_nothing")
        self._needed_by_then(milestone, place)
        tensors = np.flatnonzero((milestone.retained >= 0) & (place >= 0))
        self.builder.put(place[tensors], milestone.retained[tensors], 1.0)
        graph, data, variables = self.data.graph, self.data, self.variables
        self._pulled_by_readers(milestone, place, graph.is_intermediate, together=False)
        # A stored intermediate that has been read is a need of its reader's, not of its producer's.
        read = np.flatnonzero(
            (place >= 0) & graph.is_intermediate & (data.last_read >= 0)
            & (data.first_read <= milestone.op)
        )
        self.builder.put(place[read], variables.drop[read], 1.0)
        pending = read[milestone.held[read] >= 0]
        self.builder.put(place[pending], milestone.held[pending], 1.0)
        self.builder.put(place[pending], variables.swap[pending], 1.0)
        back = pending[milestone.back[pending] >= 0]
        self.builder.put(place[back], milestone.back[back], -1.0)
        if len(rows):
            self.builder.shift(rows, np.bincount(place[read] - rows[0], minlength=len(rows)))

    def remade_is_retained(self, milestone: Milestone) -> None:
        """State that a recomputed saved tensor whose producer ran is in memory."""
        graph, variables = self.data.graph, self.variables
        tensors = np.flatnonzero(milestone.retained >= 0)
        rows = self._rows("remade_is_retained", milestone, len(tensors), lower=-1.0)
        self.builder.put(rows, milestone.retained[tensors], 1.0)
        self.builder.put(rows, milestone.ran[graph.producer[tensors]], -1.0)
        self.builder.put(rows, variables.drop[tensors], -1.0)
        for name, flag, decision in (
            ("retained_was_dropped", milestone.retained, variables.drop),
            ("back_was_swapped", milestone.back, variables.swap),
        ):
            tensors = np.flatnonzero(flag >= 0)
            rows = self._rows(name, milestone, len(tensors), upper=0.0)
            self.builder.put(rows, flag[tensors], 1.0)
            self.builder.put(rows, decision[tensors], -1.0)

    def read_is_here(self, milestone: Milestone) -> None:
        """State that a saved tensor that an op which ran has read is kept, retained or back."""
        graph, variables = self.data.graph, self.variables
        readers, items = graph.forward_reads.owners(), graph.forward_reads.items
        later = (
            graph.is_saved[items] & (graph.first_backward_read[items] > milestone.op)
            & (milestone.ran[readers] >= 0)
        )
        self._here(milestone, "read_is_here", readers[later], items[later])
        swapped = (
            graph.is_intermediate[items] & (milestone.back[items] >= 0)
            & (milestone.ran[readers] >= 0)
        )
        readers, items = readers[swapped], items[swapped]
        rows = self._rows("read_was_back", milestone, len(items), lower=-1.0)
        self.builder.put(rows, milestone.back[items], 1.0)
        self.builder.put(rows, milestone.ran[readers], -1.0)
        self.builder.put(rows, variables.swap[items], -1.0)

    def unread_is_held(self, milestone: Milestone) -> None:
        """State that a kept intermediate is in memory until an op that reads it has run."""
        graph, variables = self.data.graph, self.variables
        tensors = np.flatnonzero(milestone.held >= 0)
        rows = self._rows("unread_is_held", milestone, len(tensors), lower=1.0)
        row_of = np.full(graph.n_tensors, -1, dtype=np.int64)
        row_of[tensors] = rows
        self.builder.put(rows, milestone.held[tensors], 1.0)
        self.builder.put(rows, variables.swap[tensors], 1.0)
        self.builder.put(rows, variables.drop[tensors], 1.0)
        readers, items = graph.forward_reads.owners(), graph.forward_reads.items
        inside = (row_of[items] >= 0) & (milestone.ran[readers] >= 0)
        self.builder.put(row_of[items[inside]], milestone.ran[readers[inside]], 1.0)

    def fetched_for_closures(self, milestone: Milestone) -> None:
        """State that what is back for closures counts as prefetched ahead of backward's needs."""
        tensors = np.flatnonzero(milestone.back >= 0)
        row = self._rows("fetched_for_closures", milestone, 1, lower=0.0, unit=BYTES)
        self.builder.put(row, self.variables.ahead[[milestone.op]], 1.0)
        self._bytes(row, milestone.back, tensors, -1.0)

    def memory(self, milestone: Milestone) -> None:
        """State that all this fits beside what is in use."""
        data, graph, variables, op = self.data, self.data.graph, self.variables, milestone.op
        room = float(data.backward_room[op])
        most = 4.0 * graph.nbytes[~graph.is_input].sum()
        rows = self._rows("memory", milestone, 2, upper=min(room, most), unit=BYTES)
        for column in variables.extra:
            self.builder.put(rows, np.full(len(rows), column), -1.0)
        for row in rows:
            self.builder.put(row[np.newaxis], variables.waiting[[op]], 1.0)
            for flag in (milestone.retained, milestone.held):
                self._bytes(row[np.newaxis], flag, np.flatnonzero(flag >= 0), 1.0)
        self._bytes(rows[:1], milestone.back,
                    np.flatnonzero((milestone.back >= 0) & graph.is_saved), 1.0)
        self.builder.put(rows[1:], variables.queue[[op]], 1.0)
        self.builder.put(rows[1:], variables.returned[[op]], 1.0)

    def reruns_by_then(self, milestone: Milestone) -> None:
        """State that the time of re-executions by then is that of the ops that ran."""
        graph = self.data.graph
        ops = np.flatnonzero(milestone.ran >= 0)
        row = self._rows("reruns_by_then", milestone, 1, lower=0.0, upper=0.0, unit=NS)
        self.builder.put(row, self.variables.reserve[[milestone.op]], -1.0)
        rows = np.repeat(row, len(ops))
        self.builder.put(rows, self.variables.again[ops], graph.forward_ns[ops])
        self.builder.put(rows, milestone.ran[ops], -graph.forward_ns[ops])

    def ran_stays_ran(self, earlier: Ints, later: Ints, name: str) -> None:
        """State that what ran by a milestone ran by the next, and runs again at all."""
        ops = np.flatnonzero((earlier >= 0) & (earlier != later))
        rows = self.builder.add_rows(f"ran_stays_ran_{name}", len(ops), lower=0.0, unit=PURE)
        self.builder.put(rows, later[ops], 1.0)
        self.builder.put(rows, earlier[ops], -1.0)

    # ------------------------------------------------------------------ helpers

    def _is_needed(self, milestone: Milestone) -> Bools:
        graph = self.data.graph
        return graph.is_saved & (graph.first_backward_read <= milestone.op)

    def _one_row_per_op(self, milestone: Milestone, name: str) -> tuple[Ints, Ints]:
        """Add ``-ran >= 0`` for each op to be completed; return the rows, and those by tensor."""
        graph = self.data.graph
        ops = np.flatnonzero((milestone.ran >= 0) & (milestone.ran != self.variables.again))
        rows = self._rows(name, milestone, len(ops), lower=0.0)
        self.builder.put(rows, milestone.ran[ops], -1.0)
        row_of = np.full(graph.n_forward + 1, -1, dtype=np.int64)
        row_of[ops] = rows
        return rows, row_of[graph.producer]

    def _needed_by_then(self, milestone: Milestone, place: Ints) -> None:
        tensors = np.flatnonzero(
            (place >= 0) & self._is_needed(milestone) & self.data.may_drop
        )
        self.builder.put(place[tensors], self.variables.drop[tensors], 1.0)

    def _pulled_by_readers(
        self, milestone: Milestone, place: Ints, members: Bools, *, together: bool
    ) -> None:
        graph = self.data.graph
        readers, items = graph.forward_reads.owners(), graph.forward_reads.items
        pulls = (place[items] >= 0) & members[items] & (milestone.ran[readers] >= 0)
        # Together, two outputs read by one op make one need.
        pairs = np.stack([place[items[pulls]], milestone.ran[readers[pulls]]], axis=1)
        if together:
            pairs = np.unique(pairs, axis=0)
        self.builder.put(pairs[:, 0], pairs[:, 1], 1.0)

    def _here(self, milestone: Milestone, name: str, readers: Ints, items: Ints) -> None:
        variables = self.variables
        rows = self._rows(name, milestone, len(items), lower=-1.0)
        self.builder.put(rows, milestone.ran[readers], -1.0)
        self.builder.put(rows, variables.swap[items], -1.0)
        self.builder.put(rows, variables.drop[items], -1.0)
        for flag in (milestone.retained[items], milestone.back[items]):
            self.builder.put(rows[flag >= 0], flag[flag >= 0], 1.0)

    def _rows(
        self,
        name: str,
        milestone: Milestone,
        count: int,
        *,
        lower: float = -np.inf,
        upper: float = np.inf,
        unit: int = PURE,
    ) -> Ints:
        return self.builder.add_rows(
            f"{name}_{milestone.op}", count, lower=lower, upper=upper, unit=unit
        )

    def _bytes(self, row: Ints, flag: Ints, tensors: Ints, sign: float) -> None:
        self.builder.put(
            np.repeat(row, len(tensors)), flag[tensors], sign * self.data.graph.nbytes[tensors]
        )
