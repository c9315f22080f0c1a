"""The genetic search itself: a loop of DEAP's parts around one kernel call a generation."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from deap import base

from slackswap.cost_model.scorer import Codes, Scorer
from slackswap.problem import Problem
from slackswap.search.genetic.checkpoint import Checkpoint
from slackswap.search.genetic.operators import (
    CROSSOVERS,
    MUTATIONS,
    cross,
    mutate,
    random_genome,
)
from slackswap.search.genetic.population import (
    Grade,
    Individual,
    distinct_best,
    grade_genomes,
)
from slackswap.search.genetic.space import Space
from slackswap.search.genetic.state import Settings, State

#: Known candidates drawn in a row until a generation is left as it is; one that then holds no new
#: candidate ends the search.
_PATIENCE = 100


class Stop(StrEnum):
    """Why a search ended."""

    EVALUATIONS = "evaluations"
    TIME = "time"
    OPTIMAL = "optimal"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found.

    Attributes
    ----------
    best : int8[tensors]
        Codes of the best candidate, for `Scorer`.
    grade : Grade
        Its bytes short (0: it fits) and its time in nanoseconds.
    candidates, proposed : int
        Unique candidates scored; candidates drawn, repeated ones included.
    stopped : Stop
        Why the search ended.
    logbook : tuple of dict
        Statistics of each generation.
    hall : tuple of (int8[tensors], Grade)
        The best candidates of different grades, best first.
    """

    best: Codes
    grade: Grade
    candidates: int
    proposed: int
    stopped: Stop
    logbook: tuple[dict[str, Any], ...]
    hall: tuple[tuple[Codes, Grade], ...]


def evolve(
    problem: Problem,
    settings: Settings,
    rng: random.Random,
    *,
    seeds: Sequence[Codes] = (),
    time_limit: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
    checkpoint: Path | None = None,
    checkpoint_every: int = 20,
    on_incumbent: Callable[[Codes, int], None] | None = None,
) -> Outcome:
    """Search for a fast plan that fits.

    Each generation draws new candidates from the population, scores those never seen before in one
    call of the kernel, and keeps the best of old and new. Unless the time limit ends the search,
    its result depends on the problem, the settings other than `jobs`, the seeds and `rng` alone.

    Parameters
    ----------
    problem : Problem
        What to plan for.
    settings : Settings
        How to search.
    rng : random.Random
        The only source of randomness.
    seeds : sequence of int8[tensors]
        Codes of valid plans to start from, as `Scorer.encode` gives them; without any the start
        is random. They are scored first, so the result is never worse.
    time_limit : float, optional
        Seconds. At least one generation is scored. One that would end too late, going by the one
        before it, is not begun.
    clock : callable
        Tells the time in seconds.
    checkpoint : Path, optional
        File to go on from when it exists, and to write the state to, every so many generations and
        at the end. A search that goes on from it ends as if it had never been interrupted; with
        more `evaluations` it goes on further.
    checkpoint_every : int
        Generations between two writings.
    on_incumbent : callable, optional
        Receives codes and time in nanoseconds of each generation's best that fits and is faster
        than those before.

    Raises
    ------
    Infeasible
        When a tensor allows no action.
    InvalidFile
        When the checkpoint is not one, belongs to another search, or cannot be written.
    """
    watch = _Watch(clock, time_limit)
    scorer = Scorer(problem)
    space = Space.of(scorer)
    starts = [space.genome(codes) for codes in seeds]
    store = None if checkpoint is None else Checkpoint.of(
        checkpoint, problem, settings, starts, rng
    )
    state = (store and store.load(space)) or State(rng)
    toolbox = _toolbox(scorer, space, settings, state.rng)
    written = len(state.logbook)
    whole = True  # no generation was cut short, so the state is one that a longer search has too
    told: Grade | None = None

    while True:
        if state.population and on_incumbent is not None:
            best = state.population[0]
            if best.grade[0] == 0 and best.grade != told:
                told = best.grade
                on_incumbent(space.codes([best.genome])[0], told[1])
        stopped = _reason_to_stop(state, settings, problem, space, watch)
        if stopped is not None:
            break
        room = settings.evaluations - len(state.memo)
        wanted = settings.offspring if state.population else settings.population
        late = len(state.logbook) - written >= checkpoint_every
        if store is not None and state.population and (late or room < wanted):
            store.save(state)
            written = len(state.logbook)
        candidates = _draw(state, toolbox, starts, wanted)
        whole = 0 < len(candidates) <= room
        if not candidates:
            stopped = Stop.EXHAUSTED
            break
        _advance(state, settings, toolbox, candidates[:room])

    if store is not None and whole:
        store.save(state)
    return _outcome(state, space, stopped)


class _Watch:
    """Tells whether the next generation would end in time, going by the last one."""

    def __init__(self, clock: Callable[[], float], limit: float | None) -> None:
        self._clock, self._limit = clock, limit
        self._began = self._last = clock()

    def is_late(self) -> bool:
        """Whether to stop; called once a generation."""
        now = self._clock()
        took, self._last = now - self._last, now
        return self._limit is not None and now - self._began + took > self._limit


def _toolbox(scorer: Scorer, space: Space, settings: Settings, rng: random.Random) -> base.Toolbox:
    toolbox = base.Toolbox()
    toolbox.register("random", random_genome, space, rng)
    toolbox.register("mutate", mutate, space=space, rng=rng,
                     mutations=[MUTATIONS[name] for name in settings.mutations])
    toolbox.register("mate", cross, space=space, rng=rng,
                     crossovers=[CROSSOVERS[name] for name in settings.crossovers])
    toolbox.register("parent", _parent, rng=rng)
    toolbox.register("vary", _vary, toolbox=toolbox, crossover=settings.crossover, rng=rng)
    toolbox.register("evaluate", grade_genomes, scorer=scorer, space=space, jobs=settings.jobs)
    # One call of the kernel for all of them.
    toolbox.register("map", lambda evaluate, genomes: evaluate(genomes))
    toolbox.register("select", distinct_best)
    return toolbox


def _parent(population: Sequence[Individual], *, rng: random.Random) -> Codes:
    """Copy the better of two at random; the population is in order, so the lower index wins."""
    count = len(population)
    return population[min(rng.randrange(count), rng.randrange(count))].genome.copy()


def _vary(
    population: Sequence[Individual], *, toolbox: base.Toolbox, crossover: float,
    rng: random.Random,
) -> Codes:
    """Make one child: of two parents, then at times changed, or of one, always changed."""
    child: Codes = toolbox.parent(population)
    crossed = rng.random() < crossover
    if crossed:
        toolbox.mate(child, toolbox.parent(population))
    if not crossed or rng.random() < 0.5:
        toolbox.mutate(child)
    return child


def _draw(
    state: State, toolbox: base.Toolbox, starts: Sequence[Codes], wanted: int
) -> list[Individual]:
    """Draw candidates never scored before: the first generation, or children of the population."""
    drawn: dict[bytes, Individual] = {}
    misses = 0
    # Seeds come first and all of them, however small the population.
    waiting = [] if state.population else list(reversed(starts))
    while waiting or (len(drawn) < wanted and misses < _PATIENCE):
        if waiting:
            genome = waiting.pop()
        else:
            genome = toolbox.vary(state.population) if state.population else toolbox.random()
        state.proposed += 1
        candidate = Individual(genome)
        if candidate.key in state.memo or candidate.key in drawn:
            misses += 1
        else:
            drawn[candidate.key] = candidate
            misses = 0
    return list(drawn.values())


def _advance(
    state: State, settings: Settings, toolbox: base.Toolbox, candidates: Sequence[Individual]
) -> None:
    """Score candidates, let the best of old and new survive, and write the logbook."""
    grades = toolbox.map(toolbox.evaluate, [candidate.genome for candidate in candidates])
    for candidate, grade in zip(candidates, grades, strict=True):
        candidate.grade = grade
        state.memo[candidate.key] = grade
    state.hall.update(candidates)
    state.population = toolbox.select([*state.population, *candidates], settings.population)
    state.logbook.record(**_statistics(state, grades))


def _statistics(state: State, grades: Sequence[Grade]) -> dict[str, Any]:
    """Figures of one generation: of its own candidates, then of the population it left."""
    times = [time for short, time in (one.grade for one in state.population) if short == 0]
    short, best_ns = state.population[0].grade
    return {
        "generation": len(state.logbook),
        "candidates": len(state.memo),
        "proposed": state.proposed,
        "fitting": sum(short == 0 for short, _ in grades),
        "survivors": len(state.population),
        "survivors_fitting": len(times),
        "best_ns": None if short else best_ns,
        "median_ns": times[len(times) // 2] if times else None,
        "worst_ns": times[-1] if times else None,
        "short_bytes": short,
    }


def _reason_to_stop(
    state: State, settings: Settings, problem: Problem, space: Space, watch: _Watch
) -> Stop | None:
    late = watch.is_late()
    if not state.population:
        return None
    if len(state.memo) >= settings.evaluations:
        return Stop.EVALUATIONS
    if state.population[0].grade == (0, problem.profile.duration_ns):
        return Stop.OPTIMAL
    if len(state.memo) == space.size:
        return Stop.EXHAUSTED
    return Stop.TIME if late else None


def _outcome(state: State, space: Space, stopped: Stop) -> Outcome:
    best = state.population[0]
    return Outcome(
        best=space.codes([best.genome])[0],
        grade=best.grade,
        candidates=len(state.memo),
        proposed=state.proposed,
        stopped=stopped,
        logbook=tuple(dict(record) for record in state.logbook),
        hall=tuple((space.codes([one.genome])[0], one.grade) for one in state.hall),
    )
