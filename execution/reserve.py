"""Memory that a step takes beyond what its profile counts, set aside from the budget."""

from __future__ import annotations

import torch

from slackswap.execution.program import Program
from slackswap.profiles.capture.lowered import LoweredGraph, tensors_of


def fixed_reserve(lowered: LoweredGraph) -> int:
    """Bytes that every plan takes beyond the profile.

    The loss that is handed to the caller, its gradient, and the new values of buffers, which stay
    apart until the forward pass is through.
    """
    values = dict.fromkeys(value for _, value in lowered.joint.updates)
    storages: dict[int, int] = {
        tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes()
        for node in values
        for tensor in tensors_of(node)
    }
    loss = tensors_of(lowered.joint.loss)[0]
    return sum(storages.values()) + 2 * int(loss.numel() * loss.element_size())


def reserve_of(program: Program, device: torch.device) -> int:
    """Bytes that a compiled plan takes beyond the profile.

    The fixed ones; the states of the random operations that run again, and one that is put aside
    in a replay; and what an op that runs again makes for nothing.
    """
    states = program.replayed + (1 if program.replayed else 0)
    return fixed_reserve(program.lowered) + states * state_bytes(device) + program.remade_bytes


def state_bytes(device: torch.device) -> int:
    """Device memory of one generator state; that of a GPU is kept on the host."""
    return int(torch.get_rng_state().nbytes) if device.type == "cpu" else 0
