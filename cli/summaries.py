"""A profile's summary for people."""

from __future__ import annotations

from collections.abc import Iterable

from slackswap.cli.output import heading, print_pairs, print_table
from slackswap.cli.scores import percent
from slackswap.profile import Profile
from slackswap.profiles.summary import ProfileSummary, RecomputePrice
from slackswap.quantities import format_bytes, format_ns

#: Layers listed one by one; more are told as a range.
_LAYERS = 6


def print_summary(summary: ProfileSummary, profile: Profile) -> None:
    """Print what a profile holds."""
    about = f": {summary.description}" if summary.description else ""
    heading(f"{summary.name} ({summary.source}){about}")
    static, peak = summary.static_bytes, summary.keep_all_peak_bytes
    device = ""
    if summary.device_bytes is not None:
        verdict = "fits" if summary.fits_device else "does not fit"
        device = f"; {verdict} {summary.hardware}'s {format_bytes(summary.device_bytes)}"
    print_pairs([
        ("ops", f"{summary.forward_ops} forward in {format_ns(summary.forward_ns)}, "
                f"{summary.backward_ops} backward in {format_ns(summary.backward_ns)}"),
        ("tensors", f"{summary.tensors}: saved {format_bytes(summary.saved_bytes)}, intermediate "
                    f"{format_bytes(summary.intermediate_bytes)}, input "
                    f"{format_bytes(summary.input_bytes)}"),
        ("memory", f"static {format_bytes(static)} + keep-everything peak {format_bytes(peak)} = "
                   f"{format_bytes(static + peak)}{device}"),
        ("link", f"{summary.hardware}'s takes out {format_bytes(summary.link_bytes)} during the "
                 f"forward pass: it can overlap {percent(summary.hideable_fraction)} of the saved "
                 f"bytes"),
        ("identity", summary.sha256),
        *_origin(profile),
    ])
    print()
    print_table(
        ("saved by kind", "tensors", "bytes", "share"),
        [
            (share.label, str(share.tensors), format_bytes(share.nbytes),
             percent(share.nbytes / summary.saved_bytes))
            for share in summary.saved_by_kind
        ],
        left=("saved by kind",),
    )
    _print_layers(summary)
    for title, prices in (
        ("cheapest to recompute", summary.cheapest()), ("dearest to recompute", summary.dearest())
    ):
        print()
        _print_prices(title, prices)
    if summary.assumptions:
        print()
        print_pairs([
            ("" if number else "assumed", assumption)
            for number, assumption in enumerate(summary.assumptions)
        ])


def _origin(profile: Profile) -> list[tuple[str, str]]:
    provenance = profile.provenance
    return [
        (key, str(provenance[key]))
        for key in ("times", "graph", "origin", "license")
        if isinstance(provenance.get(key), str)
    ]


def _print_layers(summary: ProfileSummary) -> None:
    """Print saved bytes by layer; neighbours of equal size stand in one row."""
    rows: list[tuple[str, str, int, int]] = []
    for share in summary.saved_by_layer:
        if rows and rows[-1][2:] == (share.tensors, share.nbytes):
            rows[-1] = (rows[-1][0], share.label, share.tensors, share.nbytes)
        else:
            rows.append((share.label, share.label, share.tensors, share.nbytes))
    hidden = len(rows) - 2 * _LAYERS
    cells = [
        (first if first == last else f"{first} to {last}, each", str(tensors), format_bytes(nbytes))
        for first, last, tensors, nbytes in rows
    ]
    if hidden > 0:
        cells = [*cells[:_LAYERS], (f"... {hidden} more ...", "", ""), *cells[-_LAYERS:]]
    print()
    print_table(("saved by layer", "tensors", "bytes"), cells, left=("saved by layer",))


def _print_prices(title: str, prices: Iterable[RecomputePrice]) -> None:
    print_table(
        (title, "kind", "ops", "bytes each", "time each", "µs per MB"),
        [
            (price.op, price.kind, str(price.ops), format_bytes(price.nbytes),
             "cannot run again" if price.closure_ns is None else format_ns(price.closure_ns),
             "-" if price.closure_ns is None else _dear(price.ns_per_mb / 1000))
            for price in prices
        ],
        left=("kind",), folding=(title,),
    )


def _dear(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"
