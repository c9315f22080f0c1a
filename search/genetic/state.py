"""What a genetic search is told, and what it knows between two generations."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from deap import tools

from slackswap.errors import InvalidPlanner
from slackswap.search.genetic.operators import CROSSOVERS, MUTATIONS
from slackswap.search.genetic.population import Grade, Individual

#: Best candidates of different grades that are remembered.
HALL_OF_FAME = 10


@dataclass(frozen=True, slots=True)
class Settings:
    """How to search.

    Attributes
    ----------
    evaluations : int
        Most unique candidates scored.
    population : int
        Individuals that survive a generation.
    offspring : int
        New candidates a generation.
    crossover : float
        Share of offspring with two parents, from 0 to 1.
    jobs : int
        Threads of the kernel; the result does not depend on it.
    mutations, crossovers : tuple of str
        Operators in use, names of `operators.MUTATIONS` and `operators.CROSSOVERS`.
    """

    evaluations: int = 14_000
    population: int = 100
    offspring: int = 100
    crossover: float = 0.5
    jobs: int = 1
    mutations: tuple[str, ...] = tuple(MUTATIONS)
    crossovers: tuple[str, ...] = tuple(CROSSOVERS)

    def __post_init__(self) -> None:
        for name in ("evaluations", "population", "offspring", "jobs"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidPlanner(
                    f"{name} is {value!r}", where=name, fix="give an integer of at least 1"
                )
        share = self.crossover
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise InvalidPlanner(
                f"crossover is {share!r}", where="crossover", fix="give a share from 0 to 1"
            )
        for name, known in (("mutations", MUTATIONS), ("crossovers", CROSSOVERS)):
            chosen = getattr(self, name)
            if not chosen or not set(chosen) <= set(known):
                raise InvalidPlanner(
                    f"{name} is {chosen!r}", where=name, fix=f"choose from {', '.join(known)}"
                )


def new_hall() -> tools.HallOfFame:
    """Return an empty hall of fame that tells candidates apart by grade."""
    return tools.HallOfFame(HALL_OF_FAME, similar=_same_grade)


def _same_grade(first: Individual, second: Individual) -> bool:
    return first.grade == second.grade


@dataclass(slots=True)
class State:
    """All that a search knows between two generations; what a checkpoint holds.

    Attributes
    ----------
    rng : random.Random
        The only source of randomness.
    population : list of Individual
        Best first, of different grades.
    memo : dict of bytes to Grade
        Every candidate scored so far, by the key of its genome.
    hall : deap.tools.HallOfFame
        The best candidates of different grades.
    logbook : deap.tools.Logbook
        Statistics of each generation.
    proposed : int
        Candidates drawn so far, those seen before included.
    """

    rng: random.Random
    population: list[Individual] = field(default_factory=list)
    memo: dict[bytes, Grade] = field(default_factory=dict)
    hall: tools.HallOfFame = field(default_factory=new_hall)
    logbook: tools.Logbook = field(default_factory=tools.Logbook)
    proposed: int = 0
