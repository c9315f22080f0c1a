"""Measure the link between device and host, and fit it to latency and bandwidth.

The measurement needs a CUDA device and was written without one at hand; the fit is tested on
synthetic times.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from slackswap.errors import SlackSwapError
from slackswap.hardware import Hardware

#: Sizes that are copied, in bytes: from where latency rules to where bandwidth does.
SIZES = tuple(2**power for power in range(12, 29, 2))

#: Directions at once reach at least this share of their rates alone on a full-duplex link.
_FULL_DUPLEX_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class LineFit:
    """Time of a transfer as a straight line over its size.

    Attributes
    ----------
    latency_ns : int
        Fixed time.
    bytes_per_s : int
        Rate beyond it.
    """

    latency_ns: int
    bytes_per_s: int


@dataclass(frozen=True, slots=True)
class LinkMeasurement:
    """Median times in nanoseconds by size in bytes.

    Attributes
    ----------
    d2h, h2d : mapping from int to int
        One direction alone.
    d2h_both, h2d_both : mapping from int to int
        The same while the other direction copies as much.
    """

    d2h: Mapping[int, int]
    h2d: Mapping[int, int]
    d2h_both: Mapping[int, int]
    h2d_both: Mapping[int, int]


def fit_line(times: Mapping[int, int]) -> LineFit:
    """Fit latency and bandwidth to transfer times.

    Relative errors are minimised, so that small transfers settle the latency and large ones the
    bandwidth.

    Parameters
    ----------
    times : mapping from int to int
        Nanoseconds by bytes, for at least two sizes.

    Raises
    ------
    SlackSwapError
        When there are too few sizes, or the times do not grow with them.
    """
    if len(times) < 2:
        raise SlackSwapError(
            f"{len(times)} transfer sizes were measured", where="link", fix="measure two or more"
        )
    sizes = np.array(sorted(times), dtype=np.float64)
    taken = np.array([times[int(size)] for size in sizes], dtype=np.float64)
    rows = np.stack([np.ones_like(sizes), sizes], axis=1) / taken[:, None]
    (latency, per_byte), *_ = np.linalg.lstsq(rows, np.ones_like(sizes), rcond=None)
    if per_byte <= 0:
        raise SlackSwapError(
            "transfer times do not grow with their size", where="link",
            fix="measure on an idle machine, with larger sizes",
        )
    return LineFit(max(0, round(float(latency))), max(1, round(1e9 / float(per_byte))))


def fit_hardware(measured: LinkMeasurement, name: str, base: Hardware | None = None) -> Hardware:
    """Return a hardware with the measured link.

    Parameters
    ----------
    measured : LinkMeasurement
        Transfer times.
    name : str
        Of the result.
    base : Hardware, optional
        Where memory sizes and peak rates are taken from.
    """
    d2h, h2d = fit_line(measured.d2h), fit_line(measured.h2d)
    shares = [
        fit_line(both).bytes_per_s / alone.bytes_per_s
        for both, alone in ((measured.d2h_both, d2h), (measured.h2d_both, h2d))
    ]
    return Hardware(
        name=name,
        d2h_bytes_per_s=d2h.bytes_per_s,
        h2d_bytes_per_s=h2d.bytes_per_s,
        latency_ns=max(d2h.latency_ns, h2d.latency_ns),
        full_duplex=min(shares) >= _FULL_DUPLEX_SHARE,
        host_bytes=None if base is None else base.host_bytes,
        device_bytes=None if base is None else base.device_bytes,
        flops_per_s=None if base is None else base.flops_per_s,
        memory_bytes_per_s=None if base is None else base.memory_bytes_per_s,
    )


def measure_link(sizes: Sequence[int] = SIZES, repeats: int = 10) -> LinkMeasurement:
    """Time copies between pinned host memory and the current CUDA device.

    Raises
    ------
    SlackSwapError
        When there is no CUDA device.
    """
    if not torch.cuda.is_available():
        raise SlackSwapError(
            "there is no CUDA device", where="link",
            fix="name a hardware of the catalogue instead: --hardware a100-80gb",
        )
    alone: dict[str, dict[int, int]] = {"d2h": {}, "h2d": {}}
    both: dict[str, dict[int, int]] = {"d2h": {}, "h2d": {}}
    for size in sizes:
        copies = {direction: _Copy(direction, size) for direction in alone}
        for direction, copy in copies.items():
            alone[direction][size] = statistics.median_low(
                [_timed([copy])[0] for _ in range(repeats + 1)][1:]
            )
        pairs = [_timed(list(copies.values())) for _ in range(repeats + 1)][1:]
        for place, direction in enumerate(copies):
            both[direction][size] = statistics.median_low([pair[place] for pair in pairs])
    return LinkMeasurement(alone["d2h"], alone["h2d"], both["d2h"], both["h2d"])


class _Copy:
    """One asynchronous copy on a stream of its own."""

    def __init__(self, direction: str, size: int) -> None:
        device = torch.empty(size, dtype=torch.uint8, device="cuda")
        host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        self._pair = (host, device) if direction == "d2h" else (device, host)
        self._stream = torch.cuda.Stream()
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def launch(self) -> None:
        with torch.cuda.stream(self._stream):
            self._start.record()
            self._pair[0].copy_(self._pair[1], non_blocking=True)
            self._end.record()

    def elapsed_ns(self) -> int:
        elapsed_ms: float = self._start.elapsed_time(self._end)
        return round(elapsed_ms * 1e6)


def _timed(copies: Sequence[_Copy]) -> list[int]:
    torch.cuda.synchronize()
    for copy in copies:
        copy.launch()
    torch.cuda.synchronize()
    return [copy.elapsed_ns() for copy in copies]
