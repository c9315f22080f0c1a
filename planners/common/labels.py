"""Labels that a rule cannot do without: the kind and the layer of an op."""

from __future__ import annotations

from typing import Literal

from slackswap.errors import Skipped
from slackswap.planner import Report
from slackswap.profile import Profile

_FIXES = {
    "kind": "give each op a kind (conv, gemm, attention, norm, elementwise, residual, ...)",
    "layer": "give the ops of each block a layer number",
}


def require_labels(
    profile: Profile, rule: str, label: Literal["kind", "layer"], report: Report
) -> None:
    """Refuse a profile whose forward ops lack a label that a rule decides by.

    Where only some lack it, their number goes into the report as ``ops_without_kind``; ops outside
    all layers (an embedding, a head) are ordinary, so missing layers are not counted.

    Raises
    ------
    Skipped
        When no op has the label. Going on without would give a plan that is not the rule's.
    """
    if label == "kind":
        report_missing_kinds(profile, report)
    if all(getattr(op, label) is None for op in profile.forward):
        raise Skipped(
            f"{rule} decides by the {label} of each op, and no op of the profile has one",
            where=f"profile {profile.name!r}",
            fix=f"{_FIXES[label]}, or use a planner that needs none, such as slackswap",
        )


def report_missing_kinds(profile: Profile, report: Report) -> None:
    """Report how many forward ops have no kind, where any has none."""
    missing = sum(op.kind is None for op in profile.forward)
    if missing:
        report(ops_without_kind=missing)
