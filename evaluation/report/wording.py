"""How figures are put into words in verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def listed(values: Mapping[str, float]) -> str:
    """Names with their shares."""
    return ", ".join(f"{name} {value:.1%}" for name, value in values.items())


def span(low: float, high: float) -> str:
    """A range of shares; one where both ends read the same."""
    same = f"{low:.0%}" == f"{high:.0%}"
    return f"{low:.0%}" if same else f"{low:.0%} to {high:.0%}"


def and_(names: Iterable[str]) -> str:
    """Names in order."""
    return ", ".join(sorted(names))


def also(note: str) -> str:
    """A remark to follow another; nothing for none."""
    return f"; {note}" if note else ""
