"""How good the plans are: the paper's claims, certified gaps, and what changes under doubt."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.scale import HALF, PAPER_MODELS, Scale, layered, library_problem, link
from benchmarks.tables import VERDICT, Column, Goal, Row, Table, fine_percent, percent, times
from slackswap.bound import Bound
from slackswap.hardware import Hardware
from slackswap.problem import Problem
from slackswap.profile import Profile
from slackswap.profiles.generators.prices import DEFAULT_PRICES
from slackswap.profiles.generators.random_dag import random_problem
from slackswap.profiles.library import find_profile, profile_hardware
from slackswap.profiles.overlap import hideable_fraction
from slackswap.search.bounds import lower_bound
from slackswap.search.enumeration import enumerate_plans
from slackswap.solving import Solution, solve
from slackswap.status import Status

#: The paper's abstract: hideable fractions, smallest and largest stated; throughput at half.
_PAPER_HIDEABLE = dict(zip(PAPER_MODELS, (0.11, 0.16, 0.38), strict=True))
_PAPER_THROUGHPUT = "96 to 100%"
#: Largest certified gap at f = 0.5 and at other budgets.
_GAPS = {"slackswap": (0.005, 0.01), "slackswap+": (0.0015, 0.005)}
#: Largest certified gap on layered profiles of random layers.
_LAYERED_GAPS = {"slackswap": 0.015, "slackswap+": 0.004}
#: The first draw of them, and the links.
_FIRST_DRAW, _LAYERED_LINKS = 100, (2, 8, 25)
#: Random problems: written tensors, and the first seed.
_SMALL_TENSORS, _FIRST_SEED = range(7, 13), 10_000
#: Largest excess over the fastest plan of all.
_SMALL_WORST = {"slackswap": 0.25, "slackswap+": 0.02}
_EFFICIENCIES = (0.55, 0.65, 0.75)
_LINKS = (0.8, 1.2)
#: What an allocator may lose of the budget to rounding and fragmentation.
_SLACK = 0.05


def tables(scale: Scale) -> Iterator[Table]:
    """Compare with the paper, certify, and vary the assumptions."""
    yield _claims(scale)
    yield _gaps(scale)
    yield _held_out(scale)
    yield _small(scale)
    if scale.sensitivity:
        yield _sensitivity(scale)


def _claims(scale: Scale) -> Table:
    rows = [
        {**_against_checkpointing(library_problem(name)), "profile": name,
         "paper_hideable": _PAPER_HIDEABLE.get(name),
         "paper_throughput": _PAPER_THROUGHPUT if name in _PAPER_HIDEABLE else None}
        for name in scale.profiles
    ]
    columns = (
        Column("profile", "profile", left=True), Column("hideable", "hideable", percent),
        Column("paper_hideable", "paper", percent), Column("throughput", "throughput", percent),
        Column("paper_throughput", "paper"), Column("ceiling", "at most", percent),
        Column("checkpointing", "block ckpt", percent), Column("ratio", "ratio", times),
    )
    return Table("quality", "The paper's claims at f = 0.5: SlackSwap and block checkpointing",
                 columns, rows,
                 "Hideable: link bytes in forward time over saved bytes, transformer blocks. At "
                 "most: what the bound leaves to any plan. No throughput is a target.")


def _against_checkpointing(problem: Problem) -> dict[str, float | None]:
    mine = _throughput(solve(problem, "slackswap"))
    theirs = _throughput(solve(problem, "block-checkpointing"))
    bound = lower_bound(problem)
    possible = bound.status is not Status.INFEASIBLE and bound.value_ns > 0
    return {
        "hideable": hideable_fraction(problem.profile, problem.hardware, blocks_only=True),
        "throughput": mine,
        "checkpointing": theirs,
        "ratio": None if mine is None or theirs is None else mine / theirs,
        "ceiling": problem.profile.duration_ns / bound.value_ns if possible else None,
    }


def _gaps(scale: Scale) -> Table:
    rows: list[Row] = []
    for name in scale.profiles:
        for fraction in sorted((HALF, *scale.budgets)):
            problem = library_problem(name, fraction)
            bound = lower_bound(problem)
            for planner, (at_half, elsewhere) in _GAPS.items():
                goal = Goal(at_half if fraction == HALF else elsewhere, show=_limit)
                solution = solve(problem, planner)
                rows.append({
                    "profile": name, "budget": fraction, "planner": planner,
                    "throughput": _throughput(solution), "status": str(solution.status),
                    **_judged_gap(goal, solution, bound),
                })
    columns = (
        Column("profile", "profile", left=True), Column("budget", "f"),
        Column("planner", "planner", left=True), Column("throughput", "throughput", percent),
        Column("gap", "gap", fine_percent), Column("status", "status", left=True), *VERDICT,
    )
    return Table("gaps", "Certified gaps", columns, rows,
                 "Where the bound proves that no plan fits there is nothing to judge.")


def _held_out(scale: Scale) -> Table:
    rows: list[Row] = []
    for ops in scale.held_out:
        for draw in range(_FIRST_DRAW, _FIRST_DRAW + scale.draws):
            for speed in _LAYERED_LINKS:
                problem = Problem(layered(ops, draw), link(speed), HALF)
                bound = lower_bound(problem)
                for planner, limit in _LAYERED_GAPS.items():
                    solution = solve(problem, planner)
                    rows.append({
                        "ops": ops, "draw": draw, "link": speed, "planner": planner,
                        "throughput": _throughput(solution), "status": str(solution.status),
                        **_judged_gap(Goal(limit, show=_limit), solution, bound),
                    })
    columns = (
        Column("ops", "ops"), Column("draw", "draw"), Column("link", "GB/s"),
        Column("planner", "planner", left=True), Column("throughput", "throughput", percent),
        Column("gap", "gap", fine_percent), Column("status", "status", left=True), *VERDICT,
    )
    return Table("gaps-layered", f"Certified gaps on layered profiles, f = {HALF}", columns, rows,
                 "Draws of the random layer that nothing was tuned on.")


def _small(scale: Scale) -> Table:
    excess: dict[str, list[float]] = {planner: [] for planner in _SMALL_WORST}
    for seed in range(_FIRST_SEED, _FIRST_SEED + scale.small):
        rng = random.Random(seed)
        problem = random_problem(rng, rng.randint(4, 10))
        written = len(problem.profile.tensors) - int(problem.profile.graph.is_input.sum())
        if written not in _SMALL_TENSORS:
            continue
        fastest = enumerate_plans(problem).iteration_ns
        if not fastest:
            continue
        for planner, found in excess.items():
            evaluation = solve(problem, planner).evaluation
            time = float("inf") if evaluation is None else evaluation.iteration_ns
            found.append(time / fastest - 1)
    rows: list[Row] = [
        {
            "planner": planner, "problems": len(found), "optimal": _share_of(found, 0.0),
            "mean": sum(found) / max(1, len(found)), "worst": max(found, default=0.0),
            **Goal(_SMALL_WORST[planner], show=_limit).judged(max(found, default=0.0)),
        }
        for planner, found in excess.items()
    ]
    columns = (
        Column("planner", "planner", left=True), Column("problems", "problems"),
        Column("optimal", "optimal", percent), Column("mean", "mean excess", fine_percent),
        Column("worst", "worst", fine_percent), *VERDICT,
    )
    return Table("small", "Random problems of 7 to 12 written tensors, against every plan",
                 columns, rows,
                 "`random_problem` with its default traits; those that some plan fits. Excess: "
                 "time over that of the fastest plan without gates, less one. Target: the worst.")


def _share_of(excess: list[float], most: float) -> float | None:
    return sum(value <= most for value in excess) / len(excess) if excess else None


def _judged_gap(goal: Goal, solution: Solution, bound: Bound) -> dict[str, object]:
    if bound.status is Status.INFEASIBLE:
        return {"gap": None, "status": "no plan fits (proven)"}
    gap = solution.gap_to(bound)
    return {"gap": gap, **goal.judged(gap)}


def _sensitivity(scale: Scale) -> Table:
    rows: list[Row] = []
    for name in scale.profiles:
        for label, problem in variants(name):
            rows.append({**_against_checkpointing(problem), "profile": name, "variant": label})
    columns = (
        Column("profile", "profile", left=True), Column("variant", "assumption", left=True),
        Column("hideable", "hideable", percent), Column("throughput", "throughput", percent),
        Column("ceiling", "at most", percent), Column("checkpointing", "block ckpt", percent),
        Column("ratio", "ratio", times),
    )
    return Table("sensitivity", "The same claims when an assumption changes, f = 0.5",
                 columns, rows,
                 f"As it is: GEMM efficiency {DEFAULT_PRICES.gemm_efficiency}, with embedding and "
                 "head, full duplex. Measured times have no prices to change.")


def variants(name: str) -> Iterator[tuple[str, Problem]]:
    """Yield a library profile at f = 0.5 as it is and with one assumption changed at a time."""
    hardware = profile_hardware(name)
    plain = library_problem(name)
    yield "as it is", plain
    if plain.profile.source == "analytic":
        for efficiency in _EFFICIENCIES:
            if efficiency != DEFAULT_PRICES.gemm_efficiency:
                priced = _priced(name, gemm_efficiency=efficiency)
                yield f"GEMM efficiency {efficiency}", _half(priced, hardware)
        yield "without embedding and head", _half(_priced(name, with_head=False), hardware)
    for factor in _LINKS:
        yield f"link x{factor}", _half(plain.profile, hardware.with_link(factor))
    yield "half duplex", _half(plain.profile, hardware.with_duplex(False))
    yield f"budget -{_SLACK:.0%}", plain.with_budget(round(plain.budget_bytes * (1 - _SLACK)))


def _priced(name: str, **changes: float | bool) -> Profile:
    profile = find_profile(name, prices=replace(DEFAULT_PRICES, **changes))  # type: ignore[arg-type]
    assert profile is not None, "an analytic profile of the library"
    return profile


def _half(profile: Profile, hardware: Hardware) -> Problem:
    return Problem(profile, hardware, HALF)


def _throughput(solution: Solution) -> float | None:
    return None if solution.evaluation is None else solution.evaluation.throughput


def _limit(value: float) -> str:
    return f"{value * 100:g}%"
