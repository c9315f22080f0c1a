"""Measure how fast this machine copies, as the link of a model that runs on the CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch

from slackswap.hardware import Hardware
from slackswap.profiles.capture.link import LinkMeasurement, fit_hardware

#: Sizes that are copied, in bytes: from where latency rules to where bandwidth does.
SIZES = tuple(2**power for power in range(12, 25, 2))


def measure_copy_rate(sizes: Sequence[int] = SIZES, repeats: int = 5) -> Hardware:
    """Return a hardware whose link is this machine's copies from memory to memory.

    Both directions are the same copy, one thread each, so the link is full duplex.
    """
    taken: dict[int, int] = {}
    for size in sizes:
        source = torch.zeros(size, dtype=torch.uint8)
        target = torch.zeros(size, dtype=torch.uint8)
        times = []
        for _ in range(repeats + 1):
            start = time.perf_counter_ns()
            target.copy_(source)
            times.append(time.perf_counter_ns() - start)
        taken[size] = statistics.median_low(times[1:])
    return fit_hardware(LinkMeasurement(taken, taken, taken, taken), "this machine's memory")
