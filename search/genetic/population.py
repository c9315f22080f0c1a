"""Individuals of the search, and the grade that orders them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from deap import base

from slackswap.cost_model import kernel
from slackswap.cost_model.scorer import KEEP, SWAP, Codes, Ints, Scorer
from slackswap.search.genetic.space import Space

#: What a genome is worth, both to be small: bytes short, then time in ns. A plan that fits is no
#: byte short. For one that does not, the second figure is the number of ops it did not reach.
Grade = tuple[int, int]

#: More bytes than any plan can be short: the grade of one that needs an op to run again that
#: cannot.
_BEYOND_MEMORY = 2**61


class PlanFitness(base.Fitness):  # type: ignore[misc]
    """DEAP's fitness over a `Grade`; integers throughout, so comparisons are exact."""

    weights = (-1, -1)


class Individual:
    """A genome, its identity, and its fitness once scored.

    Attributes
    ----------
    genome : int8[genes]
        Action codes; never changed once the individual exists.
    key : bytes
        Digest of the genome: 16 bytes, so that the memory of what was scored stays small.
    fitness : PlanFitness
        Valid once scored.
    """

    __slots__ = ("fitness", "genome", "key")

    def __init__(self, genome: Codes, grade: Grade | None = None) -> None:
        self.genome = genome
        self.key = hashlib.blake2b(genome.tobytes(), digest_size=16).digest()
        self.fitness = PlanFitness(() if grade is None else grade)

    @property
    def grade(self) -> Grade:
        """The grade; only once scored."""
        # From wvalues: DEAP's own getter divides, which would make floats of nanoseconds.
        short, time = self.fitness.wvalues
        return -short, -time

    @grade.setter
    def grade(self, grade: Grade) -> None:
        self.fitness.values = grade

    def __deepcopy__(self, memo: Any) -> Individual:
        # Genomes are never changed, so the hall of fame may share them.
        return Individual(self.genome, self.grade if self.fitness.valid else None)


def grade_genomes(
    genomes: Sequence[Codes], *, scorer: Scorer, space: Space, jobs: int = 1
) -> list[Grade]:
    """Score genomes in one call of the kernel.

    The bytes short of a plan that gets stuck in the forward pass are those missing there, and
    those it would go on to keep; in the backward pass, those missing there; and what it swaps
    beyond the host's memory. So of two plans that do not fit, the one nearer to fitting wins.

    Parameters
    ----------
    genomes : sequence of int8[genes]
        Genomes of `space`.
    scorer : Scorer
        Scores plans of the problem.
    space : Space
        Its search space.
    jobs : int
        Threads; the grades do not depend on it.
    """
    codes = space.codes(genomes)
    scores = scorer.score(codes, jobs=jobs)
    graph = scorer.graph
    outcome, stuck = scores.table[:, kernel.OUTCOME], scores.table[:, kernel.STUCK_OP]

    short = np.where(outcome == kernel.FITS, 0, scores.shortfall_bytes)
    forward = np.flatnonzero(outcome == kernel.STUCK_FORWARD)
    to_come = (codes[forward] == KEEP) & (graph.producer > stuck[forward, np.newaxis])
    short[forward] += to_come @ graph.nbytes
    short[outcome == kernel.CANNOT_RUN_AGAIN] = _BEYOND_MEMORY
    host_bytes = scorer.problem.hardware.host_bytes
    if host_bytes is not None:
        short += np.maximum(0, (codes == SWAP) @ graph.nbytes - host_bytes)

    reached = _reached(outcome, stuck, graph.n_forward)
    ahead = graph.n_forward + graph.n_backward - reached
    time = np.where(outcome == kernel.FITS, scores.iteration_ns, ahead)
    return list(zip(short.tolist(), time.tolist(), strict=True))


def _reached(outcome: Ints, stuck: Ints, n_forward: int) -> Ints:
    """Ops that ran before each plan got stuck."""
    backward = (outcome == kernel.STUCK_BACKWARD) | (outcome == kernel.CANNOT_RUN_AGAIN)
    return np.maximum(0, np.where(backward, n_forward + stuck, stuck))


def distinct_best(individuals: Sequence[Individual], count: int) -> list[Individual]:
    """Return the best individuals of different grades, best first, the older of equals.

    Grades, not genomes, must differ: storing an intermediate that no closure reads gives another
    genome of the same plan, and such copies would fill a population.
    """
    ranked = sorted(individuals, key=lambda individual: individual.grade)
    best: list[Individual] = []
    for individual in ranked:
        if not best or individual.grade != best[-1].grade:
            best.append(individual)
            if len(best) == count:
                break
    return best
