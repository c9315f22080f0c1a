"""Memory that a training step holds all the time: weights, gradients, optimizer state."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from slackswap.profiles.optimizers import Optimizer


def static_bytes(
    parameters: Iterable[torch.Tensor], buffers: Iterable[torch.Tensor], optimizer: Optimizer
) -> int:
    """Bytes of weights and buffers, gradients of what is trained, and optimizer state."""
    total = sum(map(_nbytes, buffers))
    for parameter in parameters:
        total += _nbytes(parameter)
        if parameter.requires_grad:
            state = optimizer.state_bytes(parameter.element_size())
            total += _nbytes(parameter) + int(parameter.numel()) * state
    return total


def _nbytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())
