"""How fast the compiled cost model is, beside the readable reference, and how it grows."""

from __future__ import annotations

import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scale import GROWTH_HARDWARE, HALF, Scale, layered, library_problem
from benchmarks.tables import VERDICT, Column, Goal, Row, Table, count, seconds, times, yes_or_no
from benchmarks.timing import best_of, fresh_process, once
from slackswap.cost_model import reference
from slackswap.cost_model.engine import warm_up
from slackswap.cost_model.scorer import RECOMPUTE, SWAP, Codes, Scorer
from slackswap.plan import Plan
from slackswap.planners.slackswap import SlackSwap
from slackswap.problem import Problem
from slackswap.profile import Profile
from slackswap.quantities import format_bytes
from slackswap.solving import solve

_PLANS_PER_S = Goal(15_000, at_least=True, show=count)
_RATIO = Goal(100, at_least=True, show=times)
_SEED = 13003
#: Share of the tensors whose action is drawn anew in each plan.
_CHANGED = 0.02
#: Plans come from this budget, so that most of them fit at half.
_TIGHTER = 0.45
_REFERENCE_PLANS = 3
#: The reference recomputes headrooms step by step, so its time grows with the square of the ops.
_REFERENCE_OPS = 3_000
#: Names that Linux gives the sizes of a process.
_RESIDENT, _LARGEST = "VmRSS:", "VmHWM:"


def tables(scale: Scale) -> Iterator[Table]:
    """Measure throughput, then growth."""
    warm_up()
    yield _throughput(scale)
    yield _growth(scale)


def plans_around(problem: Problem, number: int) -> Codes:
    """Return plans like those a search scores: around the rule's, a few tensors changed.

    Parameters
    ----------
    problem : Problem
        At the budget at which they will be scored.
    number : int
        How many; the same ones each time.

    Returns
    -------
    int8[number, tensors]
        Action codes; with budgets below a tenth more than the rule's least, most fit.
    """
    scorer, rng = Scorer(problem), np.random.default_rng(_SEED)
    tighter = solve(problem.with_budget(_TIGHTER), SlackSwap())
    found = tighter if tighter.plan is not None else solve(problem, SlackSwap())
    base = scorer.default if found.plan is None else scorer.encode(found.plan)
    free = scorer.graph.is_saved & scorer.allowed.all(axis=1)
    changed = free & (rng.random((number, len(base))) < _CHANGED)
    drawn = np.where(rng.random(changed.shape) < 0.5, SWAP, RECOMPUTE)
    return np.where(changed, drawn, base).astype(np.int8)


def _throughput(scale: Scale) -> Table:
    rows = []
    for name in scale.models:
        problem = library_problem(name)
        scorer, codes = Scorer(problem), plans_around(problem, scale.plans)
        fitting = codes[scorer.score(codes).feasible]
        chosen = fitting if len(fitting) else codes
        rate = _rate(scorer, chosen, scale.repeats, jobs=1)
        few = [scorer.decode(row) for row in chosen[:_REFERENCE_PLANS]]
        by_reference = _reference_s(problem, few, scale.repeats)
        row: dict[str, Any] = {
            "profile": name,
            "ops": scorer.graph.n_forward + scorer.graph.n_backward,
            "plans": len(chosen),
            "per_s": rate,
            "per_s_two_threads": _rate(scorer, chosen, scale.repeats, jobs=2),
            "reference_s": by_reference,
            "ratio": by_reference * rate,
        }
        rows.append({**row, "ratio_met": _RATIO.judged(row["ratio"])["met"],
                     **(_PLANS_PER_S.judged(rate) if name == "gpt2-xl" else {})})
    columns = (
        Column("profile", "profile", left=True), Column("ops", "ops", count),
        Column("per_s", "plans/s", count), *VERDICT,
        Column("per_s_two_threads", "2 threads", count),
        Column("reference_s", "reference", seconds), Column("ratio", "ratio", times),
        Column("ratio_met", f">= {_RATIO.limit}x", yes_or_no),
    )
    return Table("kernel", "Kernel: plans scored a second at f = 0.5, beside the reference",
                 columns, rows,
                 "Plans around the rule's, those that fit. Plans/s: on one core, by its processor "
                 "time; with 2 threads: by the wall clock. Reference: one plan. Ratio: time of the "
                 "reference over the kernel's.")


def _rate(scorer: Scorer, codes: Codes, repeats: int, *, jobs: int) -> float:
    # A core shared with other work is not a whole core: one thread is timed by what it used.
    clock = time.thread_time if jobs == 1 else time.perf_counter
    return len(codes) / best_of(repeats, lambda: scorer.score(codes, jobs=jobs), clock)


def _reference_s(problem: Problem, plans: list[Plan], repeats: int) -> float:
    def work() -> None:
        for plan in plans:
            reference.simulate(problem, plan)

    return best_of(repeats, work, time.thread_time) / len(plans)


def _growth(scale: Scale) -> Table:
    rows = [_fresh_growth(n_forward) for n_forward in scale.growth]
    columns = (
        Column("ops", "ops", count), Column("kernel_s", "kernel", seconds),
        Column("kernel_ns_per_op", "per op", lambda ns: f"{ns:.0f} ns"),
        Column("ratio", "reference", times), Column("profile_bytes", "profile", format_bytes),
        Column("arrays_bytes", "arrays", format_bytes),
        Column("scoring_bytes", "scoring", format_bytes),
        Column("bytes_per_op", "per op", format_bytes), *VERDICT,
    )
    return Table("kernel-growth", "Kernel on growing layered profiles: time and memory, one plan",
                 columns, rows,
                 "Ops of both passes; each size in a fresh process. Profile, arrays: traced "
                 "allocations; scoring: growth of the resident process. Reference: how many times "
                 "longer it takes.")


def _fresh_growth(n_forward: int) -> Row:
    _, output = fresh_process([sys.executable, "-m", "benchmarks.kernel", str(n_forward)])
    row: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return {**row, **(_RATIO.judged(row["ratio"]) if row["ratio"] else {})}


def measure_growth(n_forward: int, repeats: int = 3) -> Row:
    """Measure one size in this process, which should be fresh so that no memory is reused."""
    warm_up()

    def arrays(profile: Profile) -> Scorer:
        scorer = Scorer(Problem(profile, GROWTH_HARDWARE, HALF))
        scorer.score(np.empty((0, scorer.graph.n_tensors), dtype=np.int8))  # lays arrays out
        return scorer

    profile, profile_bytes = _traced(lambda: layered(n_forward))
    scorer, arrays_bytes = _traced(lambda: arrays(profile))
    codes = _third_each(scorer)
    before = _memory(_RESIDENT)
    scorer.score(codes)
    scoring_bytes = max(0, _memory(_LARGEST) - before)
    plan = solve(scorer.problem, SlackSwap()).plan
    codes = codes if plan is None else scorer.encode(plan)
    kernel_s = best_of(repeats, lambda: scorer.score(codes))
    reference_s = None
    if n_forward <= _REFERENCE_OPS:
        reference_s, _ = once(lambda: reference.simulate(scorer.problem, scorer.decode(codes)))
    ops = len(profile.forward) + len(profile.backward)
    return {
        "ops": ops, "kernel_s": kernel_s, "kernel_ns_per_op": kernel_s * 1e9 / ops,
        "reference_s": reference_s,
        "ratio": None if reference_s is None else reference_s / kernel_s,
        "profile_bytes": profile_bytes, "arrays_bytes": arrays_bytes,
        "scoring_bytes": scoring_bytes,
        "bytes_per_op": (profile_bytes + arrays_bytes + scoring_bytes) // ops,
    }


def _third_each(scorer: Scorer) -> Codes:
    """Keep, swap and recompute by turns, so that every part of the simulation has work."""
    codes = scorer.default.copy()
    saved = np.flatnonzero(scorer.graph.is_saved)
    codes[saved] = np.arange(len(saved)) % 3
    return codes


def _traced(make: Callable[[], Any]) -> tuple[Any, int]:
    tracemalloc.start()
    try:
        made = make()
        return made, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def _memory(field: str) -> int:
    """Return a size of this process in bytes; the largest one from where it is not told apart."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


if __name__ == "__main__":
    print(json.dumps(measure_growth(int(sys.argv[1]))))
