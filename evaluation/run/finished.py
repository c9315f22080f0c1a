"""A finished run, loaded once for everything that tells of it: screen, report, claims file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from slackswap.evaluation.analysis.claim_rules import judge_claims
from slackswap.evaluation.analysis.claims import Judged
from slackswap.evaluation.analysis.frame import latest, load_facts, load_results
from slackswap.evaluation.run.record import Record
from slackswap.evaluation.run.store import Store

#: What the last run of a store was about: its suite, and which of the cells belong to it.
LAST_RUN = "suite.json"


@dataclass(frozen=True)
class Finished:
    """The results of a store that belong together.

    Attributes
    ----------
    store : Store
        Where they lie.
    title, description : str
        Of the suite.
    records : tuple of Record
        Results of the last run, those it found stored included. In a store without a last run, as
        after a merge, the latest of each cell.
    """

    store: Store
    title: str
    description: str
    records: tuple[Record, ...]

    @cached_property
    def plans(self) -> pd.DataFrame:
        """Tidy table of plans."""
        return latest(load_results(self.records))

    @cached_property
    def facts(self) -> pd.DataFrame:
        """Tidy table of profiles."""
        return load_facts(self.records)

    @cached_property
    def claims(self) -> tuple[Judged, ...]:
        """The paper's claims, judged."""
        return judge_claims(self.plans, self.facts)


def load_finished(store: Store) -> Finished:
    """Load a store's last run, or all of it.

    Raises
    ------
    InvalidFile
        When the folder holds no results.
    """
    last: Mapping[str, Any] = store.read_document(LAST_RUN) or {}
    records = tuple(store.records())
    if "keys" in last:
        keys = frozenset(last["keys"])
        records = tuple(record for record in records if record.key in keys)
    return Finished(
        store, last.get("title", store.folder.name), last.get("description", ""), records
    )
