"""Memory that a training step holds all the time: weights, gradients, optimizer state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

from slackswap.errors import SlackSwapError
from slackswap.naming import did_you_mean


@dataclass(frozen=True, slots=True)
class Optimizer:
    """State that an optimizer keeps for each trained parameter.

    Attributes
    ----------
    moments : int
        Tensors of the parameter's shape.
    in_fp32 : bool
        Whether they are fp32 whatever the parameter is, beside an fp32 copy of 16-bit parameters.
    """

    moments: int
    in_fp32: bool = False


OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {
        "none": Optimizer(0),
        "sgd": Optimizer(0),
        "momentum": Optimizer(1),
        "adam": Optimizer(2),
        "adamw": Optimizer(2),
        "mixed-adam": Optimizer(2, in_fp32=True),
    }
)


def find_optimizer(name: str) -> Optimizer:
    """Return the optimizer of this name.

    ``adam`` and ``adamw`` keep two moments in the number format of the parameter, as
    ``torch.optim`` does; ``mixed-adam`` keeps an fp32 copy of 16-bit weights and two fp32 moments.

    Raises
    ------
    SlackSwapError
        When there is none.
    """
    if name not in OPTIMIZERS:
        raise SlackSwapError(
            f"{name!r} is not known{did_you_mean(name, OPTIMIZERS)}", where="optimizer",
            fix=f"use one of {', '.join(OPTIMIZERS)}",
        )
    return OPTIMIZERS[name]


def static_bytes(
    parameters: Iterable[torch.Tensor], buffers: Iterable[torch.Tensor], optimizer: Optimizer
) -> int:
    """Bytes of weights and buffers, gradients of what is trained, and optimizer state."""
    total = sum(map(_nbytes, buffers))
    for parameter in parameters:
        nbytes = _nbytes(parameter)
        total += nbytes
        if not parameter.requires_grad:
            continue
        total += nbytes  # its gradient
        state = int(parameter.numel()) * 4 if optimizer.in_fp32 else nbytes
        copies = int(optimizer.in_fp32 and parameter.element_size() < 4)
        total += (optimizer.moments + copies) * state
    return total


def _nbytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())
