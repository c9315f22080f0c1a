"""Roofline: a kernel takes what its arithmetic or its memory traffic takes, whichever is more."""

from __future__ import annotations

from collections.abc import Iterable

from slackswap.errors import InvalidHardware
from slackswap.hardware import Hardware
from slackswap.profiles.generators.prices import Kernel, Prices


def kernel_ns(kernel: Kernel, hardware: Hardware, prices: Prices) -> int:
    """Duration of one kernel in nanoseconds.

    Raises
    ------
    InvalidHardware
        When the hardware states no arithmetic rate or no memory bandwidth.
    """
    flops_per_s, bytes_per_s = _rates(hardware)
    seconds = max(
        kernel.flops / (flops_per_s * prices.efficiency(kernel.rate)),
        kernel.nbytes / (bytes_per_s * prices.memory_efficiency),
    )
    # IEEE division and multiplication round alike everywhere, so this is the same integer on
    # every platform.
    return prices.launch_ns + round(seconds * 1e9)


def duration_ns(kernels: Iterable[Kernel], hardware: Hardware, prices: Prices) -> int:
    """Duration of kernels launched one after the other, in nanoseconds."""
    return sum(kernel_ns(kernel, hardware, prices) for kernel in kernels)


def _rates(hardware: Hardware) -> tuple[int, int]:
    if hardware.flops_per_s is None or hardware.memory_bytes_per_s is None:
        raise InvalidHardware(
            "states no flops_per_s or no memory_bytes_per_s, so nothing can be priced on it",
            where=f"hardware {hardware.name!r}", fix="give both, or choose one of the catalogue",
        )
    return hardware.flops_per_s, hardware.memory_bytes_per_s
