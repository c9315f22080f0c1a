"""What weights, gradients and an optimizer hold for each parameter, by the optimizer's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from slackswap.errors import SlackSwapError
from slackswap.naming import did_you_mean

_FP32 = 4


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

    def state_bytes(self, itemsize: int) -> int:
        """Bytes of state for one trained parameter of `itemsize` bytes."""
        copies = int(self.in_fp32 and itemsize < _FP32)
        return (self.moments + copies) * (_FP32 if self.in_fp32 else itemsize)

    def trained_bytes(self, itemsize: int) -> int:
        """Bytes of one trained parameter: itself, its gradient, and the state."""
        return 2 * itemsize + self.state_bytes(itemsize)


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
