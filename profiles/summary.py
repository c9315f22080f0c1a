"""What a profile holds, for people: sizes, what the link can hide, what recomputing costs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slackswap.graph import Graph, Ints
from slackswap.hardware import Hardware
from slackswap.profile import Profile
from slackswap.profiles.overlap import hideable_in_forward

_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class SavedShare:
    """Saved tensors that have a kind or a layer in common.

    Attributes
    ----------
    label : str
        Kind of the op that writes them, or its layer; ``-`` where the profile does not say.
    tensors : int
        How many.
    nbytes : int
        Their total size.
    """

    label: str
    tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class RecomputePrice:
    """What it costs to make saved tensors again instead of keeping them.

    Every other saved tensor is taken to be there; intermediates are not, so the ops that make them
    run again too. Ops that differ in nothing but the first number in their names stand together.

    Attributes
    ----------
    op : str
        Forward op that writes the tensors; for several, its name with ``*`` for that number.
    kind : str
        Kind of the op, ``-`` where the profile does not say.
    ops : int
        How many such ops there are.
    nbytes : int
        Saved bytes that one of them writes.
    closure_ns : int or None
        Time to run one of them again, with the ops it needs; None when one of those cannot run
        again.
    """

    op: str
    kind: str
    ops: int
    nbytes: int
    closure_ns: int | None

    @property
    def ns_per_mb(self) -> float:
        """Nanoseconds a megabyte saved; infinite when it cannot be made again."""
        if self.closure_ns is None:
            return float("inf")
        return self.closure_ns / self.nbytes * 1e6

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "op": self.op,
            "kind": self.kind,
            "ops": self.ops,
            "nbytes": self.nbytes,
            "closure_ns": self.closure_ns,
            "ns_per_mb": None if self.closure_ns is None else self.ns_per_mb,
        }


@dataclass(frozen=True, slots=True)
class ProfileSummary:
    """A profile at a glance, on one hardware.

    Attributes
    ----------
    name, source, sha256 : str
        As in the profile.
    description : str
        One line from its provenance; empty when there is none.
    hardware : str
        Name of the hardware whose link counts.
    forward_ops, backward_ops, tensors : int
        Counts.
    forward_ns, backward_ns : int
        Sums of durations.
    static_bytes, input_bytes : int
        Weights and their like; tensors that are always there.
    saved_bytes, intermediate_bytes : int
        Written by forward ops and read by backward ops; written and not read.
    keep_all_peak_bytes : int
        Peak when everything is kept: what a budget of 100% means.
    device_bytes : int or None
        Memory of the device, to hold static bytes and budget.
    link_bytes : int
        What the link takes out during the forward pass.
    saved_by_kind, saved_by_layer : tuple of SavedShare
        Saved bytes by kind, largest first, and by layer, in order.
    prices : tuple of RecomputePrice
        Cheapest byte first; together they cover all saved bytes.
    assumptions : tuple of str
        What the profile's maker assumed.
    """

    name: str
    source: str
    sha256: str
    description: str
    hardware: str
    forward_ops: int
    backward_ops: int
    tensors: int
    forward_ns: int
    backward_ns: int
    static_bytes: int
    input_bytes: int
    saved_bytes: int
    intermediate_bytes: int
    keep_all_peak_bytes: int
    device_bytes: int | None
    link_bytes: int
    saved_by_kind: tuple[SavedShare, ...]
    saved_by_layer: tuple[SavedShare, ...]
    prices: tuple[RecomputePrice, ...]
    assumptions: tuple[str, ...]

    @property
    def hideable_bytes(self) -> int:
        """Saved bytes that the link can take out during the forward pass."""
        return min(self.link_bytes, self.saved_bytes)

    @property
    def hideable_fraction(self) -> float:
        """`hideable_bytes` over saved bytes; 1 when nothing is saved."""
        return self.hideable_bytes / self.saved_bytes if self.saved_bytes else 1.0

    @property
    def fits_device(self) -> bool | None:
        """Whether static bytes and the keep-everything peak fit the device together."""
        if self.device_bytes is None:
            return None
        return self.static_bytes + self.keep_all_peak_bytes <= self.device_bytes

    def cheapest(self, count: int = 5) -> tuple[RecomputePrice, ...]:
        """Return the saved tensors whose bytes are the cheapest to make again."""
        return self.prices[:count]

    def dearest(self, count: int = 5) -> tuple[RecomputePrice, ...]:
        """Return the saved tensors whose bytes are the dearest to make again, dearest first.

        Those that hold less than a thousandth of the saved bytes are left out: a few statistics
        are always dear, and never matter.
        """
        least = self.saved_bytes / 1000
        matter = [price for price in self.prices if price.ops * price.nbytes >= least]
        return tuple(matter[::-1][:count])

    def to_dict(self, *, count: int = 5) -> dict[str, Any]:
        """Return a JSON object with `count` of the cheapest and of the dearest tensors."""
        plain = (
            "name", "source", "sha256", "description", "hardware", "forward_ops", "backward_ops",
            "tensors", "forward_ns", "backward_ns", "static_bytes", "input_bytes", "saved_bytes",
            "intermediate_bytes", "keep_all_peak_bytes", "device_bytes", "link_bytes",
            "hideable_bytes", "hideable_fraction", "fits_device",
        )
        return {
            **{name: getattr(self, name) for name in plain},
            "saved_by_kind": [_share_dict(share) for share in self.saved_by_kind],
            "saved_by_layer": [_share_dict(share) for share in self.saved_by_layer],
            "cheapest": [price.to_dict() for price in self.cheapest(count)],
            "dearest": [price.to_dict() for price in self.dearest(count)],
            "assumptions": list(self.assumptions),
        }


def summarise(profile: Profile, hardware: Hardware) -> ProfileSummary:
    """Return what a person wants to know of a profile before planning for it.

    Parameters
    ----------
    profile : Profile
        The iteration.
    hardware : Hardware
        Its device-to-host rate and its memory count.
    """
    graph = profile.graph
    written = ~graph.is_input
    provenance = profile.provenance
    assumptions = provenance.get("assumptions", ())
    return ProfileSummary(
        name=profile.name,
        source=profile.source,
        sha256=profile.sha256,
        description=str(provenance.get("description", "")),
        hardware=hardware.name,
        forward_ops=graph.n_forward,
        backward_ops=graph.n_backward,
        tensors=graph.n_tensors,
        forward_ns=int(graph.forward_ns.sum()),
        backward_ns=int(graph.backward_ns.sum()),
        static_bytes=profile.static_bytes,
        input_bytes=graph.input_bytes,
        saved_bytes=int(graph.nbytes[graph.is_saved].sum()),
        intermediate_bytes=int(graph.nbytes[written & ~graph.is_saved].sum()),
        keep_all_peak_bytes=profile.keep_all_peak_bytes,
        device_bytes=hardware.device_bytes,
        link_bytes=hideable_in_forward(profile, hardware).link_bytes,
        saved_by_kind=_by_kind(profile),
        saved_by_layer=_by_layer(profile),
        prices=recompute_prices(profile),
        assumptions=tuple(map(str, assumptions)) if isinstance(assumptions, tuple) else (),
    )


def recompute_prices(profile: Profile) -> tuple[RecomputePrice, ...]:
    """Return the price of recomputing each op's saved tensors, cheapest byte first.

    Tensors without bytes are left out: they cost nothing to keep.
    """
    graph = profile.graph
    saved_bytes = graph.bytes_by_op(graph.is_saved)
    times = closure_times(graph)
    groups: dict[tuple[str, str, int, int | None], list[str]] = {}
    for index in np.flatnonzero(saved_bytes):
        op = profile.forward[index]
        pattern = _DIGITS.sub("*", op.name, count=1)
        key = (pattern, op.kind or "-", int(saved_bytes[index]), times[index])
        groups.setdefault(key, []).append(op.name)
    prices = (
        RecomputePrice(names[0] if len(names) == 1 else pattern, kind, len(names), nbytes, time)
        for (pattern, kind, nbytes, time), names in groups.items()
    )
    return tuple(sorted(prices, key=lambda price: (price.ns_per_mb, price.op)))


def closure_times(graph: Graph) -> list[int | None]:
    """Return the time to run each forward op again from inputs and saved tensors.

    Returns
    -------
    list of int or None
        Nanoseconds by forward op, each op on the way counted once; None when one of them cannot
        run again.

    Notes
    -----
    Each closure is a bit mask over the ops, dropped when no later op can need it. Two closures
    that meet are mostly apart, or one within the other, and then their sum is at hand: so a long
    chain of intermediates costs a few word operations an op, not a walk back to its start.
    """
    durations, is_stored = graph.forward_ns, graph.is_input | graph.is_saved
    masks: dict[int, int] = {}
    times: list[int | None] = []
    for op in range(graph.n_forward):
        mask = 1 << op
        time: int | None = int(durations[op]) if graph.recomputable[op] else None
        reads = graph.forward_reads[op]
        for parent in dict.fromkeys(graph.producer[reads[~is_stored[reads]]].tolist()):
            above, common = times[parent], mask & masks[parent]
            if time is None or above is None:
                time = None
            elif common == mask:
                time = above
            elif common != masks[parent]:
                time += above - _weight(common, durations)
            mask |= masks[parent]
        masks[op] = mask
        times.append(time)
        # Once its last intermediate is used up, no closure passes through an op.
        for tensor in graph.last_uses[op]:
            writer = int(graph.producer[tensor])
            writes = graph.forward_writes[writer]
            if (graph.last_forward_use[writes[~is_stored[writes]]] <= op).all():
                masks.pop(writer, None)
    return times


def _weight(mask: int, durations: Ints) -> int:
    """Sum of the durations of the ops in a mask."""
    if not mask:
        return 0
    packed = np.frombuffer(mask.to_bytes(-(-mask.bit_length() // 8), "little"), dtype=np.uint8)
    return int(durations[np.flatnonzero(np.unpackbits(packed, bitorder="little"))].sum())


def _by_kind(profile: Profile) -> tuple[SavedShare, ...]:
    graph = profile.graph
    shares = _shares(
        (profile.forward[graph.producer[tensor]].kind or "-", int(graph.nbytes[tensor]))
        for tensor in np.flatnonzero(graph.is_saved)
    )
    return tuple(sorted(shares, key=lambda share: (-share.nbytes, share.label)))


def _by_layer(profile: Profile) -> tuple[SavedShare, ...]:
    graph = profile.graph
    layers = {
        int(tensor): profile.forward[graph.producer[tensor]].layer
        for tensor in np.flatnonzero(graph.is_saved)
    }
    order = sorted(layers, key=lambda tensor: (layers[tensor] is None, layers[tensor] or 0))
    return _shares(
        ("-" if layers[tensor] is None else str(layers[tensor]), int(graph.nbytes[tensor]))
        for tensor in order
    )


def _shares(labelled: Iterable[tuple[str, int]]) -> tuple[SavedShare, ...]:
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for label, nbytes in labelled:
        counts[label] += 1
        totals[label] += nbytes
    return tuple(SavedShare(label, counts[label], totals[label]) for label in counts)


def _share_dict(share: SavedShare) -> dict[str, Any]:
    return {"label": share.label, "tensors": share.tensors, "nbytes": share.nbytes}
