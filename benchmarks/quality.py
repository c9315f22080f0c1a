"""How good the plans are: the paper's claims, certified gaps, and what changes under doubt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.scale import HALF, PAPER_MODELS, Scale, library_problem
from benchmarks.tables import VERDICT, Column, Goal, Row, Table, fine_percent, percent, times
from slackswap.bound import Bound, BoundMethod
from slackswap.hardware import Hardware
from slackswap.problem import Problem
from slackswap.profile import Profile
from slackswap.profiles.generators.prices import DEFAULT_PRICES
from slackswap.profiles.library import find_profile, profile_hardware
from slackswap.profiles.overlap import hideable_fraction
from slackswap.search.bounds import lower_bound
from slackswap.solving import Solution, solve
from slackswap.status import Status

#: The paper's abstract: hideable fractions, smallest and largest stated; throughput at half.
_PAPER_HIDEABLE = dict(zip(PAPER_MODELS, (0.11, 0.16, 0.38), strict=True))
_PAPER_THROUGHPUT = "96 to 100%"
#: Largest certified gap at f = 0.5 and at other budgets.
_GAPS = {"slackswap": (0.005, 0.01), "slackswap+": (0.0015, 0.005)}
_EFFICIENCIES = (0.55, 0.65, 0.75)
_LINKS = (0.8, 1.2)
#: What an allocator may lose of the budget to rounding and fragmentation.
_SLACK = 0.05


def tables(scale: Scale) -> Iterator[Table]:
    """Compare with the paper, certify, and vary the assumptions."""
    yield _claims(scale)
    yield _gaps(scale)
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
                 "most: what the LP bound leaves to any plan. No throughput is a target.")


def _against_checkpointing(problem: Problem) -> dict[str, float | None]:
    mine = _throughput(solve(problem, "slackswap"))
    theirs = _throughput(solve(problem, "block-checkpointing"))
    bound = lower_bound(problem, BoundMethod.LP)
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
            bound = lower_bound(problem, BoundMethod.LP)
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
        Column("gap", "gap to LP", fine_percent), Column("status", "status", left=True), *VERDICT,
    )
    return Table("gaps", "Certified gaps to the LP bound", columns, rows,
                 "Where the bound proves that no plan fits there is nothing to judge.")


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
