"""Results on disk: one file a cell, written whole or not at all."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slackswap import files
from slackswap.errors import InvalidFile, SlackSwapError, SlackSwapWarning
from slackswap.evaluation.run.record import Record
from slackswap.status import Status

_RESULT = re.compile(r"[0-9a-f]{32}\.json")


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of results.

    ``cells/KEY.json`` holds the result of a cell, ``plans/KEY.json.gz`` its plan. Both are
    written by atomic rename, the plan first, so whatever ends a run, each cell is there whole or
    not at all.

    Attributes
    ----------
    folder : Path
        Where.
    """

    folder: Path

    @property
    def cells(self) -> Path:
        """Folder of the results."""
        return self.folder / "cells"

    @property
    def plans(self) -> Path:
        """Folder of the plans."""
        return self.folder / "plans"

    def create(self) -> None:
        """Make the folders.

        Raises
        ------
        InvalidFile
            When that is not possible.
        """
        for folder in (self.cells, self.plans):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidFile(
                    f"cannot be made ({error.strerror or error})", where=str(folder),
                    fix="choose another --output folder",
                ) from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the store for one run, and clear what a killed run was just writing.

        Raises
        ------
        SlackSwapError
            When another run holds it.
        """
        self.create()
        with (self.folder / ".lock").open("w", encoding="utf-8") as handle:
            _lock(handle.fileno(), self.folder)
            for folder in (self.cells, self.plans):
                for leftover in folder.glob(".*"):
                    leftover.unlink(missing_ok=True)
            yield

    def write(self, record: Record) -> None:
        """Store a result, replacing an earlier one of the same cell.

        Raises
        ------
        InvalidFile
            When it cannot be written, such as on a full disk; nothing is half-written then.
        """
        if record.plan is not None:
            files.write_json(self.plan_path(record.key), dict(record.plan))
        files.write_json(self.cells / f"{record.key}.json", record.to_dict())

    def read(self, key: str) -> Record | None:
        """Return the result of a cell, or None; a damaged file is reported and taken as absent."""
        path = self.cells / f"{key}.json"
        return _read(path) if path.is_file() else None

    def plan_path(self, key: str) -> Path:
        """Return where a cell's plan lies, if it has one."""
        return self.plans / f"{key}.json.gz"

    def records(self) -> Iterator[Record]:
        """Yield all results, in the order of their keys.

        Raises
        ------
        InvalidFile
            When the folder holds no results at all.
        """
        if not self.cells.is_dir():
            raise InvalidFile("holds no results", where=str(self.folder),
                              fix="give the --output folder of `slackswap evaluate`")
        for path in sorted(self.cells.iterdir()):
            if _RESULT.fullmatch(path.name):
                record = _read(path)
                if record is not None:
                    yield record

    def read_document(self, name: str) -> Mapping[str, Any] | None:
        """Return a JSON document that lies beside the cells, or None."""
        path = self.folder / name
        return dict(files.read_json(path)) if path.is_file() else None

    def write_document(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a JSON document beside the cells."""
        files.write_json(self.folder / name, dict(document))


def merge(target: Store, sources: list[Store]) -> dict[str, int]:
    """Copy into `target` what it lacks: the union of the stores.

    Where two hold the same cell, one with an answer wins over one without, then the later one.

    Returns
    -------
    dict
        Numbers of cells: ``added``, ``replaced``, ``kept``.
    """
    counts = {"added": 0, "replaced": 0, "kept": 0}
    with target.writing():
        for source in sources:
            for record in source.records():
                present = target.read(record.key)
                if present is not None and _rank(present) >= _rank(record):
                    counts["kept"] += 1
                    continue
                plan = source.plan_path(record.key)
                if plan.is_file():
                    files.write_json(target.plan_path(record.key), files.read_json(plan))
                files.write_json(target.cells / f"{record.key}.json", record.to_dict())
                counts["added" if present is None else "replaced"] += 1
    return counts


def _rank(record: Record) -> tuple[bool, str]:
    answered = record.status not in (Status.ERROR, Status.TIMEOUT, Status.SKIPPED)
    return answered, record.circumstances.finished_at


def _read(path: Path) -> Record | None:
    try:
        return Record.from_dict(files.read_json(path))
    except SlackSwapError as error:
        warnings.warn(f"{path}: {error}; ignored", SlackSwapWarning, stacklevel=3)
        return None


def _lock(descriptor: int, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows; two runs then only repeat each other's work
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise SlackSwapError(
            "is in use by another run", where=str(folder),
            fix="wait for it to end, or choose another --output folder",
        ) from error
