"""The stored result of one cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from slackswap.errors import InvalidFile
from slackswap.evaluation.run.cell import Cell, Identity
from slackswap.status import Status

SCHEMA = "slackswap.result/1"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """How a result came about: what may disturb a time, but not a score.

    Attributes
    ----------
    elapsed_s : float
        Time the whole cell took, with building the problem and scoring.
    reference_s : float or None
        Time of the fixed reference task, run in the same process right before.
    contended : bool
        Whether other cells ran at the same time.
    finished_at : str
        UTC, ISO 8601.
    versions, machine : mapping
        As in `slackswap.evaluation.run.environment`.
    """

    elapsed_s: float = 0.0
    reference_s: float | None = None
    contended: bool = False
    finished_at: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """What came of a cell.

    Attributes
    ----------
    key, problem_key : str
        Identity of the cell and of its problem.
    cell : Cell
        What was measured.
    identity : mapping
        What the key was made of: versions, parameters, hashes.
    status : Status
        How it ended.
    reason : str
        Why there is no result.
    figures : mapping
        Measured values: for a plan those of `Evaluation.to_dict` and the planner's, for a bound
        those of `Bound.to_dict`, for facts those of the profile.
    circumstances : Circumstances
        How it came about.
    plan : mapping or None
        The plan as a JSON object; kept in a file of its own by the store.
    """

    key: str
    problem_key: str
    cell: Cell
    identity: Mapping[str, Any]
    status: Status
    reason: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    circumstances: Circumstances = Circumstances()
    plan: Mapping[str, Any] | None = None

    @classmethod
    def failed(cls, cell: Cell, identity: Identity, status: Status, reason: str) -> Record:
        """Return the result of a cell that ended without figures."""
        return cls(identity.key, identity.problem_key, cell, identity.document, status, reason)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object, without the plan."""
        return {
            "schema": SCHEMA,
            "key": self.key,
            "problem_key": self.problem_key,
            "status": str(self.status),
            "reason": self.reason,
            "cell": self.cell.to_dict(),
            "identity": dict(self.identity),
            "figures": dict(self.figures),
            "circumstances": asdict(self.circumstances),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Record:
        """Return the record of a JSON object written by `to_dict`.

        Raises
        ------
        InvalidFile
            When it is something else.
        """
        try:
            if document["schema"] != SCHEMA:
                raise InvalidFile(
                    f"schema is {document['schema']!r}, not {SCHEMA!r}", where="result",
                    fix="run the cell again with this version",
                )
            return cls(
                key=document["key"],
                problem_key=document["problem_key"],
                cell=Cell.from_dict(document["cell"]),
                identity=document["identity"],
                status=Status(document["status"]),
                reason=document["reason"],
                figures=document["figures"],
                circumstances=Circumstances(**document["circumstances"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidFile(
                f"is not a result ({type(error).__name__}: {error})", where="result",
                fix="remove the file, and run the suite again",
            ) from error
