"""Checkpoints: the state of a search as JSON, from which it goes on bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slackswap import files
from slackswap.cost_model.scorer import Codes
from slackswap.errors import InvalidFile
from slackswap.problem import Problem
from slackswap.search.genetic.population import Grade, Individual
from slackswap.search.genetic.space import Space
from slackswap.search.genetic.state import Settings, State

SCHEMA = "slackswap.genetic-checkpoint/1"
#: Changes whenever the same seed may lead elsewhere.
SEARCH_VERSION = "1"

_Count = Annotated[int, Field(ge=0, le=2**62)]
_Genome = Annotated[str, Field(pattern="^[012]*$")]
_Key = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
_Word = Annotated[int, Field(ge=0, lt=2**32)]


class _Document(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Entry(_Document):
    genome: _Genome
    short_bytes: _Count
    time: _Count


class _StateDocument(_Document):
    schema_: Literal["slackswap.genetic-checkpoint/1"] = Field(alias="schema")
    identity: dict[str, Any]
    random_words: list[_Word] = Field(min_length=625, max_length=625)
    proposed: _Count
    population: list[_Entry] = Field(min_length=1)
    hall: list[_Entry] = Field(min_length=1)
    memo: dict[_Key, Annotated[list[_Count], Field(min_length=2, max_length=2)]]
    logbook: list[dict[str, int | None]]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file that holds the state of one search.

    Attributes
    ----------
    path : Path
        Where it is.
    identity : mapping
        What the course of the search depends on. A file of another identity is refused.
    """

    path: Path
    identity: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str],
        problem: Problem,
        settings: Settings,
        starts: Sequence[Codes],
        rng: random.Random,
    ) -> Checkpoint:
        """Describe a search that is about to begin."""
        version, words, _ = rng.getstate()
        tuned = asdict(settings)
        # Neither changes the course: they say how far it goes, and on how many threads.
        del tuned["evaluations"], tuned["jobs"]
        return cls(Path(path), {
            "version": SEARCH_VERSION,
            "profile_sha256": problem.profile.sha256,
            "hardware": problem.hardware.to_dict(),
            "budget_bytes": problem.budget_bytes,
            # As JSON has it: lists, not tuples.
            "settings": json.loads(json.dumps(tuned)),
            "seeds": [_digits(genome) for genome in starts],
            "random": hashlib.sha256(files.canonical_json([version, list(words)])).hexdigest(),
        })

    def load(self, space: Space) -> State | None:
        """Return the state in the file, or None when there is no file.

        Raises
        ------
        InvalidFile
            When it is not a checkpoint, or belongs to another search.
        """
        if not self.path.exists():
            return None
        return files.load_document(self.path, lambda document: self._restored(document, space))

    def save(self, state: State) -> None:
        """Write the state, whole or not at all.

        Raises
        ------
        InvalidFile
            When the place cannot be written.
        """
        _, words, _ = state.rng.getstate()
        files.write_text(self.path, json.dumps({
            "schema": SCHEMA,
            "identity": self.identity,
            "random_words": list(words),
            "proposed": state.proposed,
            "population": [_entry(individual) for individual in state.population],
            "hall": [_entry(individual) for individual in state.hall],
            "memo": {key.hex(): grade for key, grade in state.memo.items()},
            "logbook": [dict(record) for record in state.logbook],
        }, separators=(",", ":")) + "\n")

    def _restored(self, document: Any, space: Space) -> State:
        fields = _checked(document)
        for name, value in self.identity.items():
            if fields.identity.get(name) != value:
                raise InvalidFile(
                    f"belongs to another search: its {name} differs", where=f"identity.{name}",
                    fix="give another file, or remove this one to begin anew",
                )
        rng = _generator(fields.random_words)
        state = State(
            rng=rng,
            population=[_individual(entry, space) for entry in fields.population],
            memo={bytes.fromhex(key): (short, time) for key, (short, time) in fields.memo.items()},
            proposed=fields.proposed,
        )
        # Of equals the hall puts the later in front: worst first gives the same order again.
        state.hall.update([_individual(entry, space) for entry in reversed(fields.hall)])
        for record in fields.logbook:
            state.logbook.record(**record)
        return state


def _checked(document: Any) -> _StateDocument:
    try:
        return _StateDocument.model_validate(document)
    except ValidationError as failure:
        first = failure.errors(include_url=False)[0]
        raise InvalidFile(
            f"is no checkpoint of a genetic search: {first['msg'][0].lower()}{first['msg'][1:]}",
            where=".".join(str(part) for part in first["loc"]),
            fix="give another file, or remove this one to begin anew",
        ) from None


def _generator(words: Sequence[int]) -> random.Random:
    rng = random.Random()
    try:
        rng.setstate((3, tuple(words), None))
    except ValueError as error:
        raise InvalidFile(
            f"holds no state of a random generator ({error})", where="random_words",
            fix="remove the file to begin anew",
        ) from error
    return rng


def _digits(genome: Codes) -> str:
    return (genome + np.int8(ord("0"))).tobytes().decode("ascii")


def _entry(individual: Individual) -> dict[str, Any]:
    short, time = individual.grade
    return {"genome": _digits(individual.genome), "short_bytes": short, "time": time}


def _individual(entry: _Entry, space: Space) -> Individual:
    genome = np.frombuffer(entry.genome.encode("ascii"), dtype=np.int8) - np.int8(ord("0"))
    if len(genome) != len(space) or not space.holds(genome):
        raise InvalidFile(
            "holds a genome that this problem does not have", where="population",
            fix="remove the file to begin anew",
        )
    grade: Grade = (entry.short_bytes, entry.time)
    return Individual(genome, grade)
