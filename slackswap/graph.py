"""A profile as flat integer arrays: what the kernel, the planners and the bounds read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slackswap.frozen import read_only

if TYPE_CHECKING:
    from slackswap.profile import Profile

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A list of index lists: row i is ``items[start[i]:start[i + 1]]``, ascending."""

    start: Ints
    items: Ints

    def __post_init__(self) -> None:
        _make_read_only(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt(self)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Rows:
        """Build from index sequences; each row is sorted."""
        start = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=start[1:])
        items = np.fromiter(
            (index for row in rows for index in sorted(row)), dtype=np.int64, count=int(start[-1])
        )
        return cls(start, items)

    @classmethod
    def grouped(cls, group_of: Ints, count: int) -> Rows:
        """Group the indices of `group_of` by value 0 .. `count` - 1; negative ones are left out."""
        order = np.argsort(group_of, kind="stable")
        order = order[np.searchsorted(group_of[order], 0) :]
        start = np.searchsorted(group_of[order], np.arange(count + 1)).astype(np.int64)
        return cls(start, order.astype(np.int64))

    def __getitem__(self, row: int) -> Ints:
        return self.items[self.start[row] : self.start[row + 1]]

    def __len__(self) -> int:
        return len(self.start) - 1

    def owners(self) -> Ints:
        """Return the row of each item."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.start))


@dataclass(frozen=True, eq=False)
class Graph:
    """A profile as read-only arrays. Tensors, forward ops and backward ops are named by index.

    Attributes
    ----------
    nbytes : int64[tensors]
        Sizes.
    producer : int64[tensors]
        Forward op that writes the tensor; -1 for an input.
    is_input, is_saved : bool[tensors]
        No op writes it; some backward op reads it. What is neither is an intermediate.
    last_forward_use : int64[tensors]
        Last forward op that reads it, or writes it if none reads; -1 for an input none reads.
    first_backward_read, last_backward_read : int64[tensors]
        Backward ops; -1 when no backward op reads it.
    forward_ns, forward_workspace, forward_write_bytes : int64[forward ops]
        Durations, scratch, and the bytes of what each op writes.
    recomputable : bool[forward ops]
        Whether the op may run again.
    backward_ns, backward_workspace, carried : int64[backward ops]
        Durations, scratch, and its part alive on entry.
    forward_reads, forward_writes, backward_reads : Rows
        Tensors by op, ascending.
    last_uses : Rows
        Tensors by the forward op that uses them last; inputs left out.
    input_bytes : int
        Total size of the inputs.
    """

    nbytes: Ints
    producer: Ints
    is_input: Bools
    is_saved: Bools
    last_forward_use: Ints
    first_backward_read: Ints
    last_backward_read: Ints
    forward_ns: Ints
    forward_workspace: Ints
    forward_write_bytes: Ints
    recomputable: Bools
    backward_ns: Ints
    backward_workspace: Ints
    carried: Ints
    forward_reads: Rows
    forward_writes: Rows
    backward_reads: Rows
    last_uses: Rows
    input_bytes: int

    def __post_init__(self) -> None:
        _make_read_only(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt(self)

    @property
    def n_tensors(self) -> int:
        """Number of tensors."""
        return len(self.nbytes)

    @property
    def n_forward(self) -> int:
        """Number of forward ops."""
        return len(self.forward_ns)

    @property
    def n_backward(self) -> int:
        """Number of backward ops."""
        return len(self.backward_ns)

    @property
    def is_intermediate(self) -> Bools:
        """Tensors that a forward op writes and no backward op reads."""
        return ~self.is_input & ~self.is_saved

    @classmethod
    def of(cls, profile: Profile) -> Graph:
        """Lay a profile out as arrays."""
        nbytes = _ints([tensor.nbytes for tensor in profile.tensors])
        forward_reads = Rows.of([op.reads for op in profile.forward])
        forward_writes = Rows.of([op.writes for op in profile.forward])
        backward_reads = Rows.of([op.reads for op in profile.backward])
        n_tensors = len(nbytes)

        producer = np.full(n_tensors, -1, dtype=np.int64)
        producer[forward_writes.items] = forward_writes.owners()
        last_forward_use = producer.copy()
        np.maximum.at(last_forward_use, forward_reads.items, forward_reads.owners())
        first_backward_read = np.full(n_tensors, -1, dtype=np.int64)
        # Reversed, the earliest reader is written last and stays.
        first_backward_read[backward_reads.items[::-1]] = backward_reads.owners()[::-1]
        last_backward_read = np.full(n_tensors, -1, dtype=np.int64)
        np.maximum.at(last_backward_read, backward_reads.items, backward_reads.owners())
        is_input = producer < 0

        forward_write_bytes = np.zeros(len(profile.forward), dtype=np.int64)
        np.add.at(forward_write_bytes, forward_writes.owners(), nbytes[forward_writes.items])
        return cls(
            nbytes=nbytes,
            producer=producer,
            is_input=is_input,
            is_saved=~is_input & (first_backward_read >= 0),
            last_forward_use=last_forward_use,
            first_backward_read=first_backward_read,
            last_backward_read=last_backward_read,
            forward_ns=_ints([op.duration_ns for op in profile.forward]),
            forward_workspace=_ints([op.workspace for op in profile.forward]),
            forward_write_bytes=forward_write_bytes,
            recomputable=np.array([op.recomputable for op in profile.forward], dtype=np.bool_),
            backward_ns=_ints([op.duration_ns for op in profile.backward]),
            backward_workspace=_ints([op.workspace for op in profile.backward]),
            carried=_ints([op.carried for op in profile.backward]),
            forward_reads=forward_reads,
            forward_writes=forward_writes,
            backward_reads=backward_reads,
            last_uses=Rows.grouped(np.where(is_input, -1, last_forward_use), len(profile.forward)),
            input_bytes=int(nbytes[is_input].sum()),
        )

    def bytes_by_op(self, tensors: Bools) -> Ints:
        """Bytes of some tensors, none of them an input, by the forward op that writes them."""
        result = np.zeros(self.n_forward, dtype=np.int64)
        np.add.at(result, self.producer[tensors], self.nbytes[tensors])
        return result

    @cached_property
    def keep_all_levels(self) -> tuple[Ints, Ints]:
        """Memory while each op runs when every saved tensor is kept and none is moved.

        Returns
        -------
        forward, backward : int64[ops]
            Bytes in use during each forward and each backward op.
        """
        forward_change = self.forward_write_bytes.copy()
        dies_forward = self.is_intermediate
        after = np.zeros(self.n_forward + 1, dtype=np.int64)
        np.add.at(
            after, self.last_forward_use[dies_forward] + 1, self.nbytes[dies_forward]
        )
        forward_level = self.input_bytes + np.cumsum(forward_change - after[: self.n_forward])
        at_turn = self.input_bytes + int(self.nbytes[self.is_saved].sum())
        freed = np.zeros(self.n_backward + 1, dtype=np.int64)
        np.add.at(
            freed, self.last_backward_read[self.is_saved] + 1, self.nbytes[self.is_saved]
        )
        backward_level = at_turn - np.cumsum(freed[: self.n_backward])
        return (
            read_only(forward_level + self.forward_workspace),
            read_only(backward_level + self.backward_workspace),
        )


def _make_read_only(instance: Rows | Graph) -> None:
    """Planners share these arrays: one that writes to them is stopped at once."""
    for spec in fields(instance):
        value = getattr(instance, spec.name)
        if isinstance(value, np.ndarray):
            read_only(value)


def _rebuilt(instance: Rows | Graph) -> tuple[Any, ...]:
    # Arrays come out of a pickle writable, so a copy is built anew.
    return type(instance), tuple(getattr(instance, spec.name) for spec in fields(instance))


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)
