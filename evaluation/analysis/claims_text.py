"""The claims and their verdicts as Markdown, for ``docs/claims.md`` and for pasting."""

from __future__ import annotations

from collections.abc import Sequence

from slackswap.errors import InvalidFile
from slackswap.evaluation.analysis.claims import Judged

#: Between these lines a document holds the claims of the latest run.
BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"


def claims_markdown(judged: Sequence[Judged]) -> str:
    """Return a table of the claims, then each claim with how it is judged and its sensitivity."""
    lines = [
        "| the paper | here | verdict | basis | holds in |",
        "| --- | --- | --- | --- | --- |",
    ]
    for entry in judged:
        reproduced, decided = entry.holds_in
        holds = f"{reproduced} of {decided}" if entry.sensitivity else "-"
        lines.append(
            _row(entry.claim.paper, entry.finding.ours, str(entry.finding),
                 str(entry.claim.basis), holds)
        )
    for entry in judged:
        lines += ["", f"### {entry.claim.name[:1].upper()}{entry.claim.name[1:]}", "",
                  f"*The paper:* {entry.claim.paper}. *Basis:* {entry.claim.basis}.", "",
                  entry.claim.how]
        if entry.sensitivity:
            lines += ["", "| circumstances | here | verdict |", "| --- | --- | --- |",
                      _row("as given", entry.finding.ours, str(entry.finding))]
            lines += [
                _row(label, finding.ours, str(finding)) for label, finding in entry.sensitivity
            ]
    return "\n".join(lines) + "\n"


def inserted(document: str, block: str, *, where: str) -> str:
    """Return a document with the text between the claims' marks replaced.

    Raises
    ------
    InvalidFile
        When it has no such marks.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InvalidFile("has no place for the claims", where=where,
                          fix=f"write the lines {BEGIN} and {END} where they belong")
    return f"{before}{BEGIN}\n\n{block}\n{END}{after}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
