"""How much of the saved bytes the link can hide behind the forward pass."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

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


def repeated_layers(profile: Profile) -> frozenset[int]:
    """Return the layers that are blocks: those whose op kinds, in order, occur most often.

    Where no two layers are alike every layer is taken to be one. Ops without a layer belong to
    none.
    """
    kinds: dict[int, list[str | None]] = defaultdict(list)
    for op in profile.forward:
        if op.layer is not None:
            kinds[op.layer].append(op.kind)
    signatures = {layer: tuple(sequence) for layer, sequence in kinds.items()}
    counts = Counter(signatures.values())
    if not counts or max(counts.values()) == 1:
        return frozenset(signatures)
    # Ties go to the longer block: more of the network.
    commonest = max(counts, key=lambda signature: (counts[signature] * len(signature)))
    return frozenset(layer for layer, found in signatures.items() if found == commonest)


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
    layers = repeated_layers(profile) if blocks_only else frozenset()
    forward_ns = saved_bytes = 0
    for index, op in enumerate(profile.forward):
        if blocks_only and op.layer not in layers:
            continue
        forward_ns += op.duration_ns
        saved_bytes += sum(
            int(graph.nbytes[tensor])
            for tensor in graph.forward_writes[index]
            if graph.is_saved[tensor]
        )
    return Hideable(forward_ns, forward_ns * hardware.d2h_bytes_per_s // 10**9, saved_bytes)


def hideable_fraction(
    profile: Profile, hardware: Hardware, *, blocks_only: bool = False
) -> float:
    """Return link bytes in forward time over saved bytes; see `hideable_in_forward`."""
    return hideable_in_forward(profile, hardware, blocks_only=blocks_only).fraction
