"""The constraint families of the model, one method each.

Each one relaxes a rule of the simulator; ``docs/lower-bounds.md`` gives the argument for each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slackswap.search.milp.data import ModelData
from slackswap.search.milp.linear import BYTES, NS, PURE, ModelBuilder
from slackswap.search.milp.variables import Variables

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Constraints:
    """Adds the constraints of a problem to a model."""

    builder: ModelBuilder
    data: ModelData
    variables: Variables

    def add_all(self) -> None:
        """Add every family."""
        self.one_action()
        self.host_memory()
        self.outputs_run_again()
        self.closures_reach_back()
        self.runs_for_missing()
        self.kept_are_read()
        self.offloads_drain()
        self.offloads_join()
        self.stored_accumulate()
        self.forward_memory()
        self.offloads_drain_in_backward()
        self.prefetches_meet_deadlines()
        self.round_trips()
        self.half_duplex()
        self.due_shrink()
        self.waiting_shrink()
        self.saved_return()
        self.backward_memory()
        self.reruns_add_up()
        self.elastic_room()

    # ------------------------------------------------------------------ actions

    def one_action(self) -> None:
        """State that a tensor is kept, swapped or dropped, and not kept where that is forbidden."""
        written = np.flatnonzero(~self.data.graph.is_input)
        rows = self.builder.add_rows(
            "one_action", len(written), lower=self.data.must_move[written], upper=1.0, unit=PURE
        )
        self.builder.put(rows, self.variables.swap[written], 1.0)
        self.builder.put(rows, self.variables.drop[written], 1.0)

    def host_memory(self) -> None:
        """State that swapped tensors fit the host's pinned memory."""
        limit = self.data.problem.hardware.host_bytes
        if limit is None:
            return
        swappable = np.flatnonzero(self.data.may_swap)
        nbytes = self.data.graph.nbytes[swappable]
        row = self.builder.add_rows("host_memory", 1, upper=min(limit, int(nbytes.sum())),
                                    unit=BYTES)
        self.builder.put(np.repeat(row, len(swappable)), self.variables.swap[swappable], nbytes)

    def outputs_run_again(self) -> None:
        """State that an op runs again when a saved output of it is recomputed."""
        graph = self.data.graph
        saved = np.flatnonzero(graph.is_saved & self.data.may_drop)
        rows = self.builder.add_rows("outputs_run_again", len(saved), lower=0.0, unit=PURE)
        self.builder.put(rows, self.variables.again[graph.producer[saved]], 1.0)
        self.builder.put(rows, self.variables.drop[saved], -1.0)

    def closures_reach_back(self) -> None:
        """State that an op that runs again has the dropped intermediates it reads made again."""
        graph = self.data.graph
        readers, items = graph.forward_reads.owners(), graph.forward_reads.items
        reached = graph.is_intermediate[items] & (self.data.last_closure[readers] >= 0)
        readers, items = readers[reached], items[reached]
        rows = self.builder.add_rows("closures_reach_back", len(items), lower=-1.0, unit=PURE)
        self.builder.put(rows, self.variables.again[graph.producer[items]], 1.0)
        self.builder.put(rows, self.variables.again[readers], -1.0)
        self.builder.put(rows, self.variables.drop[items], -1.0)

    def runs_for_missing(self) -> None:
        """State that an op runs again only when one of its outputs is dropped."""
        graph, data = self.data.graph, self.data
        ops = np.flatnonzero(data.last_closure >= 0)
        row_of = np.full(graph.n_forward, -1, dtype=np.int64)
        row_of[ops] = self.builder.add_rows("runs_for_missing", len(ops), lower=0.0, unit=PURE)
        self.builder.put(row_of[ops], self.variables.again[ops], -1.0)
        outputs = np.flatnonzero(data.may_drop & (np.append(row_of, -1)[graph.producer] >= 0))
        self.builder.put(row_of[graph.producer[outputs]], self.variables.drop[outputs], 1.0)

    def kept_are_read(self) -> None:
        """State that an intermediate is stored only for an op that reads it and runs again."""
        graph, data = self.data.graph, self.data
        tensors = np.flatnonzero(graph.is_intermediate & (data.last_read >= 0))
        row_of = np.full(graph.n_tensors, -1, dtype=np.int64)
        row_of[tensors] = self.builder.add_rows("kept_are_read", len(tensors), lower=1.0, unit=PURE)
        self.builder.put(row_of[tensors], self.variables.drop[tensors], 1.0)
        readers, items = graph.forward_reads.owners(), graph.forward_reads.items
        inside = (row_of[items] >= 0) & (data.last_closure[readers] >= 0)
        self.builder.put(row_of[items[inside]], self.variables.again[readers[inside]], 1.0)

    # ------------------------------------------------------------------ forward pass

    def offloads_drain(self) -> None:
        """Let the offload queue shrink, while a forward op runs, by what the link can move."""
        data, variables = self.data, self.variables
        rows = self.builder.add_rows(
            "offloads_drain", data.graph.n_forward,
            lower=-_at_most(data.d2h_rate, data.graph.forward_ns), unit=BYTES,
        )
        self.builder.put(rows, variables.queue_after, 1.0)
        self.builder.put(rows, variables.queue_before, -1.0)

    def offloads_join(self) -> None:
        """Let what an op wrote join the queue at its end; the link works on through the stall."""
        data, variables = self.data, self.variables
        count = data.graph.n_forward
        rows = self.builder.add_rows("offloads_join", count, lower=0.0, unit=BYTES)
        self.builder.put(rows, variables.queue_before, 1.0)
        self.builder.put(rows, variables.forward_stall, data.d2h_rate)
        self.builder.put(rows[1:], variables.queue_after[:-1], -1.0)
        swapped = np.flatnonzero(data.may_swap & (data.graph.producer < count - 1))
        self._move(rows, data.graph.producer[swapped] + 1, variables.swap, swapped, -1.0)

    def stored_accumulate(self) -> None:
        """Add up the kept tensors that are past their forward use."""
        graph, variables = self.data.graph, self.variables
        rows = self.builder.add_rows("stored_accumulate", graph.n_forward, lower=0.0, upper=0.0,
                                     unit=BYTES)
        self.builder.put(rows, variables.stored, 1.0)
        self.builder.put(rows[1:], variables.stored[:-1], -1.0)
        past = np.flatnonzero(~graph.is_input & (graph.last_forward_use < graph.n_forward - 1))
        # nbytes x (1 - swap - drop), its constant part below.
        self._keep(rows, graph.last_forward_use[past] + 1, past)

    def forward_memory(self) -> None:
        """Fit what is kept, and what is not offloaded yet, beside what a forward op uses."""
        data, graph, variables = self.data, self.data.graph, self.variables
        most = 2.0 * graph.nbytes[~graph.is_input].sum()
        rows = self.builder.add_rows(
            "forward_memory", graph.n_forward, upper=np.minimum(data.forward_room, most), unit=BYTES
        )
        self._may_exceed(rows)
        self.builder.put(rows, variables.stored, 1.0)
        self.builder.put(rows, variables.queue_before, 1.0)
        # A tensor still in use counts as such, in the queue or not.
        swapped = np.flatnonzero(data.may_swap)
        spans = graph.last_forward_use[swapped] - graph.producer[swapped]
        tensors = np.repeat(swapped, spans)
        ops = graph.producer[tensors] + 1 + _within(spans)
        self._move(rows, ops, variables.swap, tensors, -1.0)

    # ------------------------------------------------------------------ backward pass

    def offloads_drain_in_backward(self) -> None:
        """Let the offload queue go on draining during backward steps and stalls."""
        data, graph, variables = self.data, self.data.graph, self.variables
        durations = np.concatenate(([0], graph.backward_ns))[: graph.n_backward]
        rows = self.builder.add_rows("offloads_drain_in_backward", graph.n_backward,
                                     lower=-_at_most(data.d2h_rate, durations), unit=BYTES)
        self.builder.put(rows, variables.queue, 1.0)
        self.builder.put(rows[1:], variables.queue[:-1], -1.0)
        self.builder.put(rows, variables.backward_stall, data.d2h_rate)
        self.builder.put(rows, variables.rerun, data.d2h_rate)
        if graph.n_forward and graph.n_backward:
            self.builder.put(rows[:1], variables.queue_after[-1:], -1.0)
            latest = np.flatnonzero(data.may_swap & (graph.producer == graph.n_forward - 1))
            self._move(rows, np.zeros_like(latest), variables.swap, latest, -1.0)

    def prefetches_meet_deadlines(self) -> None:
        """Bring swapped tensors back by the op that needs them, no faster than the link."""
        data, graph, variables = self.data, self.data.graph, self.variables
        durations = np.concatenate(([0], graph.backward_ns))[: graph.n_backward]
        rows = self.builder.add_rows("prefetches_meet_deadlines", graph.n_backward,
                                     upper=_at_most(data.h2d_rate, durations), unit=BYTES)
        self.builder.put(rows, variables.ahead, 1.0)
        self.builder.put(rows[1:], variables.ahead[:-1], -1.0)
        self.builder.put(rows, variables.backward_stall, -data.h2d_rate)
        self.builder.put(rows, variables.rerun, -data.h2d_rate)
        swapped = np.flatnonzero(data.may_swap)
        self._move(rows, self._deadline(swapped), variables.swap, swapped, 1.0)

    def round_trips(self) -> None:
        """Prefetch nothing that has not been offloaded."""
        variables = self.variables
        rows = self.builder.add_rows("round_trips", self.data.graph.n_backward, upper=0.0,
                                     unit=BYTES)
        self.builder.put(rows, variables.queue, 1.0)
        self.builder.put(rows, variables.ahead, 1.0)
        self.builder.put(rows, variables.due, -1.0)

    def half_duplex(self) -> None:
        """Share the time between both directions of a half-duplex link."""
        data, graph, variables = self.data, self.data.graph, self.variables
        if data.problem.hardware.full_duplex or not (graph.n_forward and graph.n_backward):
            return
        count = graph.n_backward
        rows = self.builder.add_rows(
            "half_duplex", count, upper=np.concatenate(([0], graph.backward_ns[:-1])), unit=NS
        )
        self.builder.put(rows, variables.backward_stall, -1.0)
        self.builder.put(rows, variables.rerun, -1.0)
        out, back = data.d2h_ns_per_byte, data.h2d_ns_per_byte
        self.builder.put(rows, variables.queue, -out)
        self.builder.put(rows[1:], variables.queue[:-1], out)
        self.builder.put(rows[:1], variables.queue_after[-1:], out)
        self.builder.put(rows, variables.ahead, back)
        self.builder.put(rows[1:], variables.ahead[:-1], -back)
        swapped = np.flatnonzero(data.may_swap)
        latest = swapped[graph.producer[swapped] == graph.n_forward - 1]
        # These products may be rounded; downwards they only loosen the row.
        for tensors, places, time in (
            (latest, np.zeros_like(latest), out), (swapped, self._deadline(swapped), back),
        ):
            self.builder.put(rows[places], variables.swap[tensors],
                             np.nextafter(time * graph.nbytes[tensors], 0.0))

    def due_shrink(self) -> None:
        """Count a swapped tensor as due until the backward op that needs it."""
        data, graph, variables = self.data, self.data.graph, self.variables
        for name, level, members in (
            ("due", variables.due, data.may_swap),
            ("due_intermediates", variables.due_intermediates,
             data.may_swap & graph.is_intermediate),
        ):
            rows = self.builder.add_rows(f"{name}_shrink", graph.n_backward, lower=0.0, upper=0.0,
                                         unit=BYTES)
            self.builder.put(rows, level, 1.0)
            self.builder.put(rows[:-1], level[1:], -1.0)
            swapped = np.flatnonzero(members)
            swapped = swapped[self._deadline(swapped) > 0]
            self._move(rows, self._deadline(swapped) - 1, variables.swap, swapped, -1.0)

    def waiting_shrink(self) -> None:
        """Count a kept tensor as waiting until the backward op that may need it first."""
        data, graph, variables = self.data, self.data.graph, self.variables
        rows = self.builder.add_rows("waiting_shrink", graph.n_backward, lower=0.0, upper=0.0,
                                     unit=BYTES)
        self.builder.put(rows, variables.waiting, 1.0)
        self.builder.put(rows[:-1], variables.waiting[1:], -1.0)
        # The closure that reads an intermediate first may be done with it before its backward
        # step; a saved tensor is in use there, and counted as such.
        kept = np.flatnonzero(~graph.is_input & (data.last_read >= 0) & (data.first_read > 0))
        self._keep(rows, data.first_read[kept] - 1, kept)

    def saved_return(self) -> None:
        """Count what is back early as saved tensors in memory, but for intermediates still due.

        An intermediate that is back may have been read and freed already. One that is not offloaded
        yet cannot: it makes the round trip first, so the queue counts in full.
        """
        variables = self.variables
        rows = self.builder.add_rows("saved_return", self.data.graph.n_backward, lower=0.0,
                                     unit=BYTES)
        self.builder.put(rows, variables.returned, 1.0)
        self.builder.put(rows, variables.ahead, -1.0)
        self.builder.put(rows, variables.due_intermediates, 1.0)

    def backward_memory(self) -> None:
        """Fit what waits, and what is not away, beside what a backward op uses."""
        data, graph, variables = self.data, self.data.graph, self.variables
        most = 3.0 * graph.nbytes[~graph.is_input].sum()
        rows = self.builder.add_rows("backward_memory", graph.n_backward,
                                     upper=np.minimum(data.backward_room, most), unit=BYTES)
        self._may_exceed(rows)
        self.builder.put(rows, variables.waiting, 1.0)
        self.builder.put(rows, variables.queue, 1.0)
        self.builder.put(rows, variables.returned, 1.0)

    def reruns_add_up(self) -> None:
        """Let re-executions run no earlier than the first closure that can contain them."""
        data, graph, variables = self.data, self.data.graph, self.variables
        rows = self.builder.add_rows("reruns_add_up", graph.n_backward, lower=0.0, upper=0.0,
                                     unit=NS)
        self.builder.put(rows, variables.reserve, 1.0)
        self.builder.put(rows[1:], variables.reserve[:-1], -1.0)
        self.builder.put(rows, variables.rerun, 1.0)
        ops = np.flatnonzero(data.last_closure >= 0)
        begins = rows[data.first_closure[ops]]
        self.builder.put(begins, variables.again[ops], -graph.forward_ns[ops])

    def elastic_room(self) -> None:
        """Fit what is kept by itself, where the budget may be exceeded and no box says so."""
        data, variables = self.data, self.variables
        if not len(variables.extra):
            return
        most = float(data.graph.nbytes[~data.graph.is_input].sum())
        for name, level, room in (
            ("stored_room", variables.stored, data.forward_room),
            ("waiting_room", variables.waiting, data.backward_room),
        ):
            rows = self.builder.add_rows(name, len(level), upper=np.minimum(room, most),
                                         unit=BYTES)
            self._may_exceed(rows)
            self.builder.put(rows, level, 1.0)

    # ------------------------------------------------------------------ helpers

    def _may_exceed(self, rows: Ints) -> None:
        """Let rows of memory be exceeded by the extra budget of an elastic model."""
        for column in self.variables.extra:
            self.builder.put(rows, np.full(len(rows), column), -1.0)

    def _deadline(self, tensors: Ints) -> Ints:
        """Backward op by whose start a swapped tensor must be back."""
        graph, data = self.data.graph, self.data
        return np.where(graph.is_saved, data.first_read, data.last_read)[tensors]

    def _move(self, rows: Ints, places: Ints, columns: Ints, tensors: Ints, factor: float) -> None:
        """Enter ``factor x nbytes x column`` of each tensor into the row at its place."""
        self.builder.put(rows[places], columns[tensors], factor * self.data.graph.nbytes[tensors])

    def _keep(self, rows: Ints, places: Ints, tensors: Ints) -> None:
        """Take ``nbytes x (1 - swap - drop)`` of each tensor off the row at its place."""
        variables = self.variables
        self._move(rows, places, variables.swap, tensors, 1.0)
        self._move(rows, places, variables.drop, tensors, 1.0)
        constant = np.bincount(places, weights=self.data.graph.nbytes[tensors],
                               minlength=len(rows))
        self.builder.shift(rows, constant)


def _at_most(rate: float, durations: Ints) -> Floats:
    """Bytes that a link can move, rounded up."""
    most: Floats = np.nextafter(rate * durations, np.inf)
    return most


def _within(lengths: Ints) -> Ints:
    """0 .. length - 1 for each length in turn."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
