"""How much of the saved bytes the link can hide behind the forward pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slackswap.analysis.layers import blocks_of, layers_of
from slackswap.hardware import Hardware
from slackswap.profile import Profile


@dataclass(frozen=True, slots=True)
class Hideable:
    """What leaves over the link during a forward pass, against what backward needs.

    Attributes
    ----------
    forward_ns : int
        Duration of the forward ops counted.
    link_bytes : int
        Bytes that the link takes out in that time, latency left aside.
    saved_bytes : int
        Bytes that these ops write and that some backward op reads.
    """

    forward_ns: int
    link_bytes: int
    saved_bytes: int

    @property
    def fraction(self) -> float:
        """Link bytes over saved bytes; above one, everything can be hidden."""
        return self.link_bytes / self.saved_bytes if self.saved_bytes else float("inf")


def hideable_in_forward(
    profile: Profile, hardware: Hardware, *, blocks_only: bool = False
) -> Hideable:
    """Return what the link of `hardware` can hide during the forward pass of `profile`.

    Parameters
    ----------
    profile : Profile
        The iteration.
    hardware : Hardware
        Its device-to-host rate counts.
    blocks_only : bool
        Count only the repeated blocks: leave embedding, head and loss out of both sides.
    """
    graph = profile.graph
    counted = np.ones(graph.n_forward, dtype=np.bool_)
    if blocks_only:
        layers = layers_of(profile)
        counted[:] = False
        for n in blocks_of(profile, layers):
            counted[layers[n].forward.start : layers[n].forward.stop] = True
    forward_ns = int(graph.forward_ns[counted].sum())
    saved_bytes = int(graph.bytes_by_op(graph.is_saved)[counted].sum())
    return Hideable(forward_ns, forward_ns * hardware.d2h_bytes_per_s // 10**9, saved_bytes)


def hideable_fraction(
    profile: Profile, hardware: Hardware, *, blocks_only: bool = False
) -> float:
    """Return link bytes in forward time over saved bytes; see `hideable_in_forward`."""
    return hideable_in_forward(profile, hardware, blocks_only=blocks_only).fraction
