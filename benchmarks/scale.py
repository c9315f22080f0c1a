"""How much a run of the benchmarks measures, and on what."""

from __future__ import annotations

import random
from dataclasses import dataclass

from slackswap.hardware import Hardware
from slackswap.problem import Problem
from slackswap.profile import Profile
from slackswap.profiles.generators.random_dag import deep_chain_profile, layered_profile
from slackswap.profiles.library import load_profile, profile_hardware

#: The paper's three models, and two whose operator times were measured on an A100.
PAPER_MODELS = ("bert-large", "gpt2-xl", "llama-7b")
MEASURED = ("gpt-neo-2.7b-a100", "opt-350m-a100")

#: The budget of the paper's claims.
HALF = 0.5
#: The other budgets that have a target.
OTHER_BUDGETS = (0.3, 0.4, 0.65, 0.8)

#: Link of the growing profiles: a tenth of what would hide all they save, so that budgets bind.
GROWTH_HARDWARE = Hardware(
    "link of 2 GB/s", d2h_bytes_per_s=2 * 10**9, h2d_bytes_per_s=2 * 10**9, latency_ns=10_000
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of one run.

    Attributes
    ----------
    models, measured : tuple of str
        Library profiles.
    budgets : tuple of float
        Fractions beside 0.5 at which gaps are certified.
    growth, chain : tuple of int
        Forward ops of the growing profiles.
    draws : int
        Random layers, each of which makes a growing profile.
    held_out : tuple of int
        Forward ops of layered profiles of draws that nothing was tuned on.
    small : int
        Random problems small enough to enumerate.
    repeats : int
        Runs of which the best counts.
    plans : int
        Plans in a batch of the kernel.
    candidates : int
        Unique plans of the genetic search.
    sensitivity : bool
        Whether the claims are shown under changed assumptions too.
    milp_time_limit : float
        Seconds the MILP may take.
    cold : bool
        Whether a start with an empty compiler cache is measured too.
    """

    models: tuple[str, ...] = PAPER_MODELS
    measured: tuple[str, ...] = MEASURED
    budgets: tuple[float, ...] = OTHER_BUDGETS
    growth: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 100_000)
    chain: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000, 100_000)
    draws: int = 3
    held_out: tuple[int, ...] = (300, 1_000, 3_000)
    small: int = 2_000
    repeats: int = 5
    plans: int = 4_000
    candidates: int = 14_000
    sensitivity: bool = True
    milp_time_limit: float = 60.0
    cold: bool = True

    @property
    def profiles(self) -> tuple[str, ...]:
        """All library profiles measured."""
        return self.models + self.measured


FULL = Scale()
#: A few minutes less: fewer repeats, no changed assumptions, no long curves.
QUICK = Scale(
    budgets=(0.4, 0.8),
    growth=(1_000, 10_000, 100_000),
    chain=(1_000, 10_000),
    draws=1,
    held_out=(300,),
    small=200,
    repeats=2,
    plans=500,
    candidates=2_000,
    sensitivity=False,
    milp_time_limit=20.0,
)


def library_problem(name: str, budget: float | int | None = HALF) -> Problem:
    """Return a library profile on its own hardware."""
    return Problem(load_profile(name), profile_hardware(name), budget)


def layered(n_forward: int, draw: int = 0) -> Profile:
    """Return a growing profile of this size; the same for the same draw."""
    return layered_profile(n_forward, random.Random(draw))


def link(gigabytes_per_s: int) -> Hardware:
    """Return a link like that of the growing profiles, of another speed."""
    rate = gigabytes_per_s * 10**9
    return Hardware(f"link of {gigabytes_per_s} GB/s", rate, rate, latency_ns=10_000)


def chain(n_forward: int) -> Profile:
    """Return a chain whose closures pass through seven intermediates each."""
    return deep_chain_profile(n_forward, saved_every=8)
