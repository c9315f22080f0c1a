"""A comparison of two plans as HTML: tables in the page's own colours, and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from slackswap.evaluation.comparison.differences import FIGURES, Change, StallShift
from slackswap.quantities import format_bytes, format_ns

if TYPE_CHECKING:
    from slackswap.evaluation.comparison.plans import PlanComparison

#: Rows shown of each table; the objects hold all of them.
_MOST_STALLS, _MOST_GROUPS, _MOST_TENSORS = 8, 20, 60
_MOST_SHIFTS = 2

_LEFT = "text-align:left;padding:.15rem .7rem;vertical-align:top"
_RIGHT = "text-align:right;padding:.15rem .7rem;vertical-align:top;white-space:nowrap"
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
       background: Canvas; color: CanvasText; }}
table {{ border-collapse: collapse; margin: .4rem 0 1.2rem; }}
td, th {{ border-bottom: 1px solid color-mix(in srgb, CanvasText 15%, Canvas);
         vertical-align: top; }}
.scroll {{ overflow-x: auto; }}
</style></head><body><h1>{title}</h1>
{body}
</body></html>
"""


def comparison_html(comparison: PlanComparison, *, picture: str) -> str:
    """Return a comparison as an HTML fragment without scripts of its own.

    Parameters
    ----------
    comparison : PlanComparison
        What to show.
    picture : str
        HTML or SVG that stands between the figures and the changes.
    """
    names = comparison.names
    parts = [
        f"<div><strong>{escape(_title(comparison))}</strong>",
        _summary(comparison),
        picture,
        *(f"<p>{escape(sentence)}.</p>" for sentence in comparison.barriers),
    ]
    if comparison.stalls:
        parts += [
            "<p><strong>Stalls that differ</strong></p>",
            _table(
                ("op that waits", "for", names[0], names[1], "difference"),
                (_stall_row(shift) for shift in comparison.stalls[:_MOST_STALLS]),
                left=2, more=len(comparison.stalls) - _MOST_STALLS,
            ),
        ]
    parts += _changes(comparison)
    return "\n".join(parts) + "</div>"


def comparison_page(comparison: PlanComparison) -> str:
    """Return a comparison as a whole page with the live figure; it needs no network."""
    figure = comparison.figure().to_html(
        include_plotlyjs=True, full_html=False, div_id="timelines",
        config={"responsive": True, "displaylogo": False},
    )
    return _PAGE.format(
        title=escape(f"{comparison.names[0]} and {comparison.names[1]}"),
        body=comparison_html(comparison, picture=figure),
    )


def _title(comparison: PlanComparison) -> str:
    problem = comparison.problem
    budget = (
        f"within {format_bytes(problem.budget_bytes)}" if problem.is_limited else "without a limit"
    )
    return (f"From {comparison.names[0]} to {comparison.names[1]}: {problem.profile.name} on "
            f"{problem.hardware.name} {budget}")


def _summary(comparison: PlanComparison) -> str:
    rows = []
    for label, field, unit in FIGURES:
        first, second = (getattr(evaluation, field) for evaluation in comparison.evaluations)
        rows.append((label, _cell(first, unit), _cell(second, unit),
                     _difference(first, second, unit)))
    stuck = "".join(
        f"<p>{escape(name)} does not fit: {escape(str(evaluation.infeasible))}.</p>"
        for name, evaluation in zip(comparison.names, comparison.evaluations, strict=True)
        if not evaluation.feasible
    )
    return _table(("", *comparison.names, "difference"), rows, left=1) + stuck


def _changes(comparison: PlanComparison) -> Iterable[str]:
    if not comparison.groups:
        yield "<p>Both plans do the same with every tensor.</p>"
        return
    yield (
        "<p><strong>What changed, by role</strong>. Each figure is that of the second plan less "
        "that with this change taken back; different rows need not add up.</p>"
    )
    yield _table(
        ("tensors", "from", "to", "", "bytes", "time", "recompute", "copied",
         "stalls caused or removed"),
        (_change_row(change) for change in comparison.groups[:_MOST_GROUPS]),
        left=3, more=len(comparison.groups) - _MOST_GROUPS, last_left=True,
    )
    ranked = sorted(comparison.changes, key=_weight, reverse=True)
    yield f"<details><summary>Tensor by tensor: {len(ranked)} changed</summary>"
    yield _table(
        ("tensor", "from", "to", "bytes", "time", "recompute", "stall", "waits for it, before",
         "after"),
        (_tensor_row(change) for change in ranked[:_MOST_TENSORS]),
        left=3, more=len(ranked) - _MOST_TENSORS,
    )
    yield "</details>"


def _change_row(change: Change) -> Sequence[str]:
    return (
        change.role, str(change.before.action), str(change.after.action),
        f"× {len(change.tensors)}" if len(change.tensors) > 1 else "",
        format_bytes(change.nbytes), _time(change), _signed(change.recompute_ns, "ns"),
        _signed(change.moved_bytes, "bytes"), _shifts(change.stalls or ()),
    )


def _tensor_row(change: Change) -> Sequence[str]:
    return (
        change.tensors[0], str(change.before), str(change.after), format_bytes(change.nbytes),
        _time(change), _signed(change.recompute_ns, "ns"), _signed(change.stall_ns, "ns"),
        _cell(change.waits_before_ns, "ns"), _cell(change.waits_after_ns, "ns"),
    )


def _weight(change: Change) -> tuple[int, int]:
    return abs(change.time_ns or 0), change.nbytes


def _time(change: Change) -> str:
    if change.time_ns is not None:
        return _signed(change.time_ns, "ns")
    if change.shortfall_bytes:
        return f"needed: else {format_bytes(change.shortfall_bytes)} short"
    if change.moved_bytes is None:
        return "cannot be taken back alone"
    return "-"


def _shifts(shifts: Sequence[StallShift]) -> str:
    told = [
        f"{_verb(shift)} {_signed(shift.added_ns, 'ns')} of {shift.op} ({shift.cause})"
        for shift in shifts[:_MOST_SHIFTS]
    ]
    if len(shifts) > _MOST_SHIFTS:
        rest = sum(shift.added_ns for shift in shifts[_MOST_SHIFTS:])
        told.append(f"{len(shifts) - _MOST_SHIFTS} more, {_signed(rest, 'ns')} in all")
    return "; ".join(told)


def _verb(shift: StallShift) -> str:
    if shift.before_ns == 0:
        return "causes"
    if shift.after_ns == 0:
        return "removes"
    return "lengthens" if shift.added_ns > 0 else "shortens"


def _what(shift: StallShift) -> str:
    names = ", ".join(shift.tensors[:2]) + (" and others" if len(shift.tensors) > 2 else "")
    if shift.cause == "tensor" and names:
        return names
    return f"{shift.cause} ({names})" if names else shift.cause


def _stall_row(shift: StallShift) -> Sequence[str]:
    return (shift.op, _what(shift), _cell(shift.before_ns, "ns"), _cell(shift.after_ns, "ns"),
            _signed(shift.added_ns, "ns"))


def _cell(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "share":
        return f"{value:.1%}"
    return format_ns(int(value)) if unit == "ns" else format_bytes(int(value))


def _difference(first: float | None, second: float | None, unit: str) -> str:
    return "-" if first is None or second is None else _signed(second - first, unit)


def _signed(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "share":
        return f"{100 * value:+.1f} points".replace("-", "−")
    if value == 0:
        return "0"
    return ("+" if value > 0 else "−") + _cell(abs(value), unit)


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int, more: int = 0,
    last_left: bool = False,
) -> str:
    def style(column: int) -> str:
        return _LEFT if column < left or (last_left and column == len(columns) - 1) else _RIGHT

    head = "".join(
        f"<th style='{style(i)}'>{escape(name)}</th>" for i, name in enumerate(columns)
    )
    body = "".join(
        "<tr>" + "".join(
            f"<td style='{style(i)}'>{escape(cell)}</td>" for i, cell in enumerate(row)
        ) + "</tr>"
        for row in rows
    )
    note = f"<p><em>and {more} more</em></p>" if more > 0 else ""
    return (f"<div class='scroll' style='overflow-x:auto'><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table></div>{note}")
