"""The genetic search as planners: from a random start, and from plans by rule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from slackswap.cost_model.engine import simulate
from slackswap.cost_model.schedule import backward_schedule, resolve_actions
from slackswap.cost_model.scorer import RECOMPUTE, Codes, Scorer
from slackswap.deadline import Deadline
from slackswap.errors import Infeasible, SlackSwapError
from slackswap.plan import Plan
from slackswap.planner import Capabilities, Report
from slackswap.problem import Problem
from slackswap.quantities import format_bytes
from slackswap.registry import resolve_planner

if TYPE_CHECKING:
    from slackswap.search.genetic.evolution import Outcome


@dataclass(frozen=True, slots=True)
class Genetic:
    """Genetic search from a random start: it knows no price, and asks no other planner.

    Parameters
    ----------
    evaluations : int
        Most unique candidates scored.
    population, offspring : int
        Survivors of a generation, and new candidates in each.
    crossover : float
        Share of offspring with two parents.
    jobs : int
        Threads of the kernel; the plan does not depend on it.
    checkpoint : str or None
        File to go on from when it exists, and to save the search to.
    """

    evaluations: int = 14_000
    population: int = 100
    offspring: int = 100
    crossover: float = 0.5
    jobs: int = 1
    checkpoint: str | None = None

    name: ClassVar[str] = "genetic"
    version: ClassVar[str] = "1"
    capabilities: ClassVar[Capabilities] = Capabilities(deterministic=False, anytime=True)

    def warm_up(self) -> None:
        """Import DEAP and what else the search needs."""
        from slackswap.search.genetic import evolution  # noqa: F401

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Search until a limit is reached, and return the best plan found."""
        report(mode="cold")
        scorer = Scorer(problem)
        outcome = _search(self, problem, rng, (), Deadline.after(time_limit), report, scorer)
        if outcome.grade[0]:
            raise _nothing_fits(outcome)
        return scorer.decode(without_idle(problem, outcome.best))


@dataclass(frozen=True, slots=True)
class GeneticSeeded(Genetic):
    """Genetic search that starts from other planners' plans, and is never worse than they are.

    Parameters
    ----------
    seeds : tuple of str
        Planners to ask. Those that are missing or have no plan that fits are reported and skipped.
    evaluations, population, offspring, crossover, jobs, checkpoint
        As for `Genetic`.
    """

    seeds: tuple[str, ...] = (
        "slackswap", "block-checkpointing", "selective-checkpointing", "chen-greedy", "capuchin",
        "superneurons-ungated", "largest-first",
    )

    name: ClassVar[str] = "genetic-seeded"

    def __post_init__(self) -> None:
        # A list, as JSON has it, is as good as a tuple; one name needs neither.
        given: object = self.seeds
        names = (given,) if isinstance(given, str) else tuple(self.seeds)
        object.__setattr__(self, "seeds", names)

    def warm_up(self) -> None:
        """Import what the search needs, and what the seeds' planners need."""
        Genetic.warm_up(self)
        for name in self.seeds:
            try:
                own = getattr(resolve_planner(name), "warm_up", None)
            except SlackSwapError:
                continue  # reported when planning
            if own is not None:
                own()

    def plan(
        self, problem: Problem, *, rng: random.Random, time_limit: float | None, report: Report
    ) -> Plan:
        """Ask the seeds' planners, then search from their plans."""
        deadline = Deadline.after(time_limit)
        scorer = Scorer(problem)
        plans, found = _ask(self.seeds, problem, rng, time_limit)
        report(mode="seeded", seeds=found)
        # A seed's gates and barriers are no part of a genome, so its plan may be the better one.
        best = min(plans, key=lambda entry: entry[1], default=None)
        if best is not None:
            report.incumbent(best[0])
        starts = [scorer.encode(plan) for plan, _ in plans]
        outcome = _search(self, problem, rng, starts, deadline, report, scorer)
        short, iteration_ns = outcome.grade
        if best is not None and (short or best[1] <= iteration_ns):
            return best[0]
        if short:
            raise _nothing_fits(outcome)
        return scorer.decode(without_idle(problem, outcome.best))


def without_idle(problem: Problem, codes: Codes) -> Codes:
    """Drop the stored intermediates that nothing would miss.

    The search leaves such genes behind: no step of the backward pass reads the tensor, which then
    counts as dropped anyway, nor does one run its producer again, which would write it again.

    Parameters
    ----------
    problem : Problem
        What the plan is for.
    codes : int8[tensors]
        A valid plan.
    """
    profile, graph = problem.profile, problem.profile.graph
    actions = resolve_actions(profile, Scorer(problem).decode(codes))
    schedule = backward_schedule(profile, actions)
    used = np.zeros(len(codes), dtype=np.bool_)
    used[list(schedule.first_need)] = True
    for op in {step.forward for step in schedule.steps if step.forward is not None}:
        used[graph.forward_writes[op]] = True
    tidy = codes.copy()
    tidy[graph.is_intermediate & ~used] = RECOMPUTE
    return tidy


def _search(
    planner: Genetic,
    problem: Problem,
    rng: random.Random,
    starts: Sequence[Codes],
    deadline: Deadline,
    report: Report,
    scorer: Scorer,
) -> Outcome:
    from slackswap.search.genetic.evolution import evolve
    from slackswap.search.genetic.state import Settings

    outcome = evolve(
        problem,
        Settings(
            planner.evaluations, planner.population, planner.offspring, planner.crossover,
            planner.jobs,
        ),
        rng,
        seeds=starts,
        time_limit=deadline.time_limit,
        checkpoint=None if planner.checkpoint is None else Path(planner.checkpoint),
        on_incumbent=lambda codes, _: report.incumbent(scorer.decode(codes)),
    )
    report(
        candidates=outcome.candidates,
        proposed=outcome.proposed,
        generations=len(outcome.logbook),
        stopped=str(outcome.stopped),
        hall_of_fame_ns=[time for _, (short, time) in outcome.hall if not short],
        logbook=_columns(outcome.logbook),
    )
    return outcome


def _ask(
    names: Sequence[str], problem: Problem, rng: random.Random, time_limit: float | None
) -> tuple[list[tuple[Plan, int]], dict[str, int | str]]:
    """Ask planners for plans: those that fit with their times, and by name the time or a reason."""
    deadline = Deadline.after(time_limit, share=0.5)
    plans: list[tuple[Plan, int]] = []
    found: dict[str, int | str] = {}
    for name in names:
        own = random.Random(rng.getrandbits(64))
        if deadline.passed:
            found[name] = "no time left to ask"
            continue
        try:
            plan = resolve_planner(name).plan(
                problem, rng=own, time_limit=deadline.time_limit, report=Report()
            )
            evaluation = simulate(problem, plan)
        except SlackSwapError as error:
            found[name] = str(error)
            continue
        if evaluation.iteration_ns is None:
            found[name] = f"its plan does not fit: {evaluation.infeasible}"
            continue
        plans.append((plan, evaluation.iteration_ns))
        found[name] = evaluation.iteration_ns
    return plans, found


def _columns(logbook: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Turn records into columns, which take a third of the room in a result file."""
    return {name: [record[name] for record in logbook] for name in (logbook[0] if logbook else ())}


def _nothing_fits(outcome: Outcome) -> Infeasible:
    return Infeasible(
        f"none of {outcome.candidates} candidates fits; the nearest is about "
        f"{format_bytes(outcome.grade[0])} short",
        where="genetic search",
        fix="raise the budget, search longer, or see `slackswap bound` for whether any plan fits",
    )
