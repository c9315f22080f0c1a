"""The tensors of one iteration: computed by generated code, moved by a link."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from slackswap.execution.emission import StepFunction, emit_step
from slackswap.execution.errors import ExecutionFailed
from slackswap.execution.pool import HostPool
from slackswap.execution.program import Program
from slackswap.execution.timetable import Timetable

#: Told of every storage that a copy makes: operators are seen without help.
StorageListener = Callable[[torch.UntypedStorage], None]


@dataclass(frozen=True, slots=True, eq=False)
class Executable:
    """A program as functions, made once for all iterations.

    Attributes
    ----------
    timetable, program : Timetable, Program
        What it was made from.
    device : torch.device
        Where it runs.
    forward, steps : tuple of StepFunction
        By forward op and by backward step.
    turn, end : StepFunction
        After the last of each.
    """

    timetable: Timetable
    program: Program
    device: torch.device
    forward: tuple[StepFunction, ...]
    turn: StepFunction
    steps: tuple[StepFunction, ...]
    end: StepFunction

    @classmethod
    def of(cls, timetable: Timetable, program: Program, device: torch.device) -> Executable:
        """Generate the functions."""

        def emitted(instructions: Any) -> StepFunction:
            return emit_step(instructions, program.slots, device)

        return cls(
            timetable, program, device, tuple(map(emitted, program.forward)),
            emitted(program.turn), tuple(map(emitted, program.steps)), emitted(program.end),
        )


@dataclass(frozen=True, slots=True)
class _View:
    """How a value lies in its storage."""

    slot: int
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


class IterationValues:
    """The environment of one iteration; serves a link as its tensors.

    Parameters
    ----------
    executable : Executable
        What runs.
    arguments : mapping from fx.Node to torch.Tensor
        Parameters, buffers, inputs and constants.
    pool : HostPool
        Where swapped tensors go.
    listener : callable, optional
        Told of every storage that a prefetch makes.
    """

    def __init__(
        self, executable: Executable, arguments: Mapping[fx.Node, torch.Tensor], pool: HostPool,
        listener: StorageListener | None = None,
    ) -> None:
        self._executable, self._pool, self._listener = executable, pool, listener
        program = executable.program
        self._slots = program.slots
        self._environment: list[Any] = [None] * (len(program.slots) + 1)
        self._states: dict[int, torch.Tensor] = {}
        self._views: dict[int, list[_View]] = {}
        for node, value in arguments.items():
            self._environment[self._slots[node]] = value

    # ---------------------------------------------------------------- computation

    def forward(self, op: int) -> None:
        """Run a forward op."""
        self._executable.forward[op](self._environment, self._states)

    def turn(self) -> torch.Tensor:
        """Give the buffers their new values and return the loss."""
        program, environment = self._executable.program, self._environment
        self._executable.turn(environment, self._states)
        for buffer, value in program.lowered.joint.updates:
            environment[self._slots[buffer]].copy_(environment[self._slots[value]])
        for node in program.drops_after_updates:
            environment[self._slots[node]] = None
        loss: torch.Tensor = environment[-1]
        environment[-1] = None
        return loss

    def start_backward(self, tangent: torch.Tensor) -> None:
        """Take the gradient of the loss."""
        node = self._executable.program.lowered.joint.tangent
        if node is not None:
            self._environment[self._slots[node]] = tangent

    def step(self, step: int) -> None:
        """Run a backward step."""
        self._executable.steps[step](self._environment, self._states)

    def end(self) -> list[torch.Tensor]:
        """Return the gradients, and give back everything else."""
        self._executable.end(self._environment, self._states)
        gradients = self._executable.program.lowered.joint.gradients
        result = [self._environment[self._slots[node]] for node in gradients]
        self.drop()
        return result

    def drop(self) -> None:
        """Give back all tensors; copies that still run find nothing to move."""
        self._environment = [None] * len(self._environment)
        self._states.clear()
        self._views.clear()

    # ---------------------------------------------------------------- copies

    def source(self, tensor: int) -> torch.UntypedStorage | None:
        """Return the storage that a tensor lies in now; None if nothing will read it again."""
        for node in self._executable.program.nodes_of.get(tensor, ()):
            value = self._environment[self._slots[node]]
            if value is not None:
                storage: torch.UntypedStorage = value.untyped_storage()
                expected = self._executable.timetable.nbytes(tensor)
                if storage.nbytes() != expected:
                    raise ExecutionFailed(
                        f"{self._name(tensor)} takes {storage.nbytes():,} bytes, the profile says "
                        f"{expected:,}", where="execution", fix="capture the model again",
                    )
                return storage
        return None

    def offload(self, tensor: int, source: torch.UntypedStorage | None) -> None:
        """Copy a tensor to the host."""
        if source is not None:
            self._pool[tensor].copy_(bytes_of(source), non_blocking=True)

    def evict(self, tensor: int) -> None:
        """Forget every value that lies in a tensor, and note how it did."""
        views = self._views.setdefault(tensor, [])
        for node in self._executable.program.nodes_of.get(tensor, ()):
            slot = self._slots[node]
            value = self._environment[slot]
            if value is not None:
                views.append(
                    _View(slot, value.dtype, value.size(), value.stride(), value.storage_offset())
                )
                self._environment[slot] = None

    def allocate(self, tensor: int) -> torch.UntypedStorage | None:
        """Take device memory for a tensor that comes back; None if no value lies in it."""
        if not self._views.get(tensor):
            return None
        storage = torch.UntypedStorage(
            self._executable.timetable.nbytes(tensor), device=self._executable.device
        )
        if self._listener is not None:
            self._listener(storage)
        return storage

    def fill(self, tensor: int, memory: torch.UntypedStorage | None) -> None:
        """Copy a tensor from the host."""
        if memory is not None:
            bytes_of(memory).copy_(self._pool[tensor], non_blocking=True)

    def prefetch(self, tensor: int) -> torch.UntypedStorage | None:
        """Take device memory for a tensor and copy it from the host."""
        memory = self.allocate(tensor)
        self.fill(tensor, memory)
        return memory

    def restore(self, tensor: int, memory: torch.UntypedStorage | None) -> None:
        """Let the values that lay in a tensor lie in `memory`."""
        for view in self._views.pop(tensor, ()):
            self._environment[view.slot] = torch.empty(
                0, dtype=view.dtype, device=self._executable.device
            ).set_(memory, view.offset, view.size, view.stride)

    def _name(self, tensor: int) -> str:
        return self._executable.timetable.problem.profile.tensors[tensor].name


def bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a storage as a tensor of bytes."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(
        storage, 0, (storage.nbytes(),), (1,)
    )


def same_bits(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Whether two lists of tensors agree in shape, number format and every bit."""
    return len(first) == len(second) and all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and torch.equal(
            a.detach().contiguous().reshape(-1).view(torch.uint8),
            b.detach().contiguous().reshape(-1).view(torch.uint8),
        )
        for a, b in zip(first, second, strict=True)
    )
