"""The claims and their verdicts as Markdown, for ``docs/claims.md`` and for pasting."""

from __future__ import annotations

from collections.abc import Sequence

from slackswap.evaluation.claims import Judged


def claims_markdown(judged: Sequence[Judged]) -> str:
    """Return a table of the claims, then each claim with how it is judged and its sensitivity."""
    lines = [
        "| the paper | here | verdict | holds in |",
        "| --- | --- | --- | --- |",
    ]
    for entry in judged:
        reproduced, decided = entry.holds_in
        holds = f"{reproduced} of {decided}" if entry.sensitivity else "-"
        lines.append(
            _row(entry.claim.paper, entry.finding.ours, str(entry.finding), holds)
        )
    for entry in judged:
        lines += ["", f"## {entry.claim.name[:1].upper()}{entry.claim.name[1:]}", "",
                  f"*The paper:* {entry.claim.paper}.", "", entry.claim.how]
        if entry.sensitivity:
            lines += ["", "| circumstances | here | verdict |", "| --- | --- | --- |",
                      _row("as given", entry.finding.ours, str(entry.finding))]
            lines += [
                _row(label, finding.ours, str(finding)) for label, finding in entry.sensitivity
            ]
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
