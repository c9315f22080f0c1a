"""The paper's claims, judged by results: vocabulary and the list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd

#: The abstract's four families of baselines; a family is as good as its best member.
ABSTRACT_BASELINES: Mapping[str, tuple[str, ...]] = {
    "vDNN": ("vdnn-all", "vdnn-conv", "vdnn-dyn"),
    "SuperNeurons": ("superneurons", "superneurons-ungated"),
    "SwapAdvisor": ("swapadvisor",),
    "block checkpointing": ("block-checkpointing",),
}

#: This project's own planners and searches: never a baseline of the paper's rule.
OURS = ("slackswap", "slackswap+", "genetic", "genetic-seeded", "milp", "enumerate")

#: Not baselines either: an ablation of the rule, or a plan that no budget below the peak admits.
NOT_BASELINES = ("keep-all",)

#: The models that the claims are about.
PAPER_MODELS = ("bert-large", "gpt2-xl", "llama-7b")


class Basis(StrEnum):
    """What a claim's verdict rests on here."""

    #: Arithmetic on the hardware catalogue, or true by definition of the planner.
    CONSTRUCTED = "constructed"
    #: A constant of the price table was fitted to it.
    FITTED = "fitted"
    #: Nothing here was fitted to it.
    TESTED = "tested"


class Verdict(StrEnum):
    """What the results say of a claim."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs"
    UNINFORMATIVE = "uninformative"
    NOT_TESTABLE = "not testable here"


@dataclass(frozen=True, slots=True)
class Finding:
    """What the results say of a claim under one set of circumstances.

    Attributes
    ----------
    verdict : Verdict
        The judgement.
    ours : str
        Our figures.
    why : str
        What a reader needs besides: why they differ, or what limits the judgement.
    """

    verdict: Verdict
    ours: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.verdict}: {self.why}" if self.why else str(self.verdict)


@dataclass(frozen=True, slots=True)
class Results:
    """What claims are judged by.

    Attributes
    ----------
    plans : pandas.DataFrame
        From `load_results`.
    facts : pandas.DataFrame
        From `load_facts`.
    """

    plans: pd.DataFrame
    facts: pd.DataFrame

    def variants(self) -> tuple[str, ...]:
        """Return the circumstances that there are results for, the plain ones first."""
        labels = dict.fromkeys([*self.plans["variant"], *self.facts["variant"]])
        return tuple(sorted(labels, key=lambda label: (label != "", list(labels).index(label))))

    def of_variant(self, variant: str) -> Results:
        """Return the results under one set of circumstances."""
        return Results(
            self.plans[self.plans["variant"] == variant],
            self.facts[self.facts["variant"] == variant],
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the paper's abstract, and how it is judged.

    Attributes
    ----------
    name : str
        Short name.
    paper : str
        What the paper says, in short.
    how : str
        How the verdict is computed.
    judge : callable
        Results under one set of circumstances to a finding.
    basis : Basis
        What the verdict rests on.
    sensitive : bool
        Whether it depends on prices, link or budget, so that variants are worth a row.
    """

    name: str
    paper: str
    how: str
    judge: Callable[[Results], Finding]
    basis: Basis = Basis.TESTED
    sensitive: bool = True


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with what the results say of it.

    Attributes
    ----------
    claim : Claim
        The claim.
    finding : Finding
        Under the plain circumstances.
    sensitivity : tuple of (str, Finding)
        Under each variant, by its label.
    """

    claim: Claim
    finding: Finding
    sensitivity: tuple[tuple[str, Finding], ...]

    @property
    def holds_in(self) -> tuple[int, int]:
        """Return in how many circumstances, the plain ones too, it is reproduced, of how many."""
        findings = [self.finding, *(finding for _, finding in self.sensitivity)]
        decided = [f for f in findings if f.verdict in (Verdict.REPRODUCED, Verdict.DIFFERS)]
        return sum(f.verdict is Verdict.REPRODUCED for f in decided), len(decided)


def family_of(planner: str, families: Mapping[str, Sequence[str]] = ABSTRACT_BASELINES) -> str:
    """Return the family a planner belongs to, or its own name."""
    return next((name for name, members in families.items() if planner in members), planner)
