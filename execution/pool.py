"""Host memory for swapped tensors: one piece, taken once, that never grows."""

from __future__ import annotations

import torch

from slackswap.execution.errors import ExecutionFailed
from slackswap.execution.timetable import Timetable

#: Each tensor starts at a multiple of this, so that copies are aligned for every device.
ALIGNMENT = 512


class HostPool:
    """A place in host memory for every swapped tensor of a plan.

    All of them are on the host at once when the backward pass starts, so nothing is shared.

    Parameters
    ----------
    timetable : Timetable
        Which tensors are swapped.
    pinned : bool
        Whether a GPU copies to it: the memory is then page-locked.

    Raises
    ------
    ExecutionFailed
        When the host does not give that much.
    """

    def __init__(self, timetable: Timetable, *, pinned: bool) -> None:
        places: dict[int, int] = {}
        total = 0
        for tensor in timetable.swapped:
            places[tensor] = total
            total += -(-timetable.nbytes(tensor) // ALIGNMENT) * ALIGNMENT
        try:
            self.memory = torch.empty(total, dtype=torch.uint8, pin_memory=pinned)
            if not pinned:
                self.memory.fill_(0)  # so that the system hands the pages out now, not in a copy
        except (RuntimeError, MemoryError) as error:
            raise ExecutionFailed(
                f"the host does not give {total:,} bytes for swapped tensors", where="host pool",
                fix="state host_bytes of the hardware, and plan again",
            ) from error
        self._slots = {
            tensor: self.memory[place : place + timetable.nbytes(tensor)]
            for tensor, place in places.items()
        }

    def __getitem__(self, tensor: int) -> torch.Tensor:
        """Return the bytes of a tensor on the host."""
        return self._slots[tensor]

    @property
    def nbytes(self) -> int:
        """Size of the whole."""
        return int(self.memory.nbytes)
