"""Measuring one cell, inside a worker: nothing that goes wrong here escapes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np

from slackswap.cost_model.engine import warm_up
from slackswap.cost_model.scorer import Scorer
from slackswap.errors import Infeasible, PlannerFailed, Skipped, SlackSwapError, UnknownName
from slackswap.evaluation.run.cell import Cell, CellKind, Identity
from slackswap.evaluation.run.child import told
from slackswap.evaluation.run.environment import machine, versions
from slackswap.evaluation.run.isolated import solve_isolated
from slackswap.evaluation.run.record import Circumstances, Record
from slackswap.files import jsonable
from slackswap.problem import Problem
from slackswap.profile import Action
from slackswap.profiles.overlap import hideable_in_forward
from slackswap.solving import Solution
from slackswap.status import Status

#: Plans that the reference task scores.
_REFERENCE_PLANS = 400


def measure(cell: Cell, identity: Identity, *, contended: bool = False) -> Record:
    """Measure a cell.

    Parameters
    ----------
    cell : Cell
        What to measure.
    identity : Identity
        Its identity, found by `slackswap.evaluation.run.cell.identify`.
    contended : bool
        Whether other cells may be running at the same time.

    Returns
    -------
    Record
        Also when the planner fails: with status `error`, `infeasible` or `skipped` and the reason.
    """
    reference_s = reference_task()
    started = time.perf_counter()
    try:
        record = _MEASURES[cell.kind](cell, identity)
    except Skipped as error:
        record = Record.failed(cell, identity, Status.SKIPPED, str(error))
    except UnknownName as error:
        record = Record.failed(cell, identity, Status.SKIPPED, str(error))
    except Infeasible as error:
        record = Record.failed(cell, identity, Status.INFEASIBLE, str(error))
    except PlannerFailed as error:
        record = Record.failed(cell, identity, Status.ERROR, error.what)
    except SlackSwapError as error:
        record = Record.failed(cell, identity, Status.ERROR, f"{type(error).__name__}: {error}")
    except Exception as error:
        # Whatever a planner raises is its result, not the end of the run.
        record = Record.failed(cell, identity, Status.ERROR, told(error))
    return stamped(
        record,
        elapsed_s=time.perf_counter() - started,
        reference_s=reference_s,
        contended=contended,
    )


def stamped(record: Record, **circumstances: Any) -> Record:
    """Return a record that says how it came about."""
    return replace(
        record,
        circumstances=Circumstances(
            finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            versions=versions(),
            machine=machine(),
            **circumstances,
        ),
    )


def prepare_worker() -> None:
    """Load and compile what every cell needs, so that no cell pays for it."""
    warm_up()
    reference_task()


def reference_task() -> float:
    """Run the fixed reference task and return the seconds it took.

    Plain Python and the compiled kernel, some ten milliseconds of each: what planners are made of.
    On a quiet machine it always takes the same time.
    """
    scorer, codes = _reference_problem()
    started = time.perf_counter()
    total = 0
    for number in range(100_000):
        total += number & 7
    scorer.score(codes)
    return time.perf_counter() - started


@lru_cache(maxsize=1)
def _reference_problem() -> tuple[Scorer, np.ndarray[Any, np.dtype[np.int8]]]:
    import random

    from slackswap.profiles.catalogue import DEFAULT_HARDWARE
    from slackswap.profiles.generators.random_dag import layered_profile

    scorer = Scorer(Problem(layered_profile(200, random.Random(0)), DEFAULT_HARDWARE))
    codes = np.repeat(scorer.default[np.newaxis], _REFERENCE_PLANS, axis=0)
    scorer.score(codes[:1])
    return scorer, codes


def _measure_plan(cell: Cell, identity: Identity) -> Record:
    solution = solve_isolated(
        cell.problem(), cell.subject, seed=cell.seed, time_limit=cell.time_limit_s,
        patience_s=cell.timeout_s, threads=1, **cell.options,
    )
    figures = solution.to_dict()
    figures |= _problem_figures(solution.problem) | _plan_figures(solution)
    figures["planner_deterministic"] = solution.deterministic
    if solution.printed:
        figures["printed"] = solution.printed
    return Record(
        identity.key,
        identity.problem_key,
        cell,
        identity.document,
        solution.status,
        solution.reason,
        jsonable(figures),
        plan=None if solution.plan is None else solution.plan.to_dict(),
    )


def _plan_figures(solution: Solution) -> dict[str, Any]:
    """Return what the plan decides, in bytes, and how its search went."""
    if solution.plan is None:
        return {}
    profile, graph = solution.problem.profile, solution.problem.profile.graph
    saved = graph.is_saved
    sizes = dict.fromkeys(Action, 0)
    sizes[Action.KEEP] = int(graph.nbytes[saved].sum())
    for name, action in solution.plan.actions.items():
        index = profile.index_of[name]
        if saved[index] and action is not Action.KEEP:
            sizes[Action.KEEP] -= profile.tensors[index].nbytes
            sizes[action] += profile.tensors[index].nbytes
    search = [
        [when, score.iteration_ns]
        for when, score in solution.incumbent_evaluations()
        if score.feasible
    ]
    return {
        **{f"saved_{action}_bytes": nbytes for action, nbytes in sizes.items()},
        "has_order": solution.plan.has_order,
        "search": search,
    }


def _measure_bound(cell: Cell, identity: Identity) -> Record:
    from slackswap.search.bounds import lower_bound

    problem = cell.problem()
    bound = lower_bound(
        problem, cell.subject, time_limit=cell.time_limit_s, **cell.options
    )
    figures = {**bound.to_dict(), "bound_gated": bound.gated, **_problem_figures(problem)}
    return Record(
        identity.key, identity.problem_key, cell, identity.document, bound.status, "",
        jsonable(figures),
    )


def _measure_facts(cell: Cell, identity: Identity) -> Record:
    problem = cell.problem()
    profile, hardware = problem.profile, problem.hardware
    blocks = hideable_in_forward(profile, hardware, blocks_only=True)
    whole = hideable_in_forward(profile, hardware)
    figures = {
        **_problem_figures(problem),
        "forward_ops": len(profile.forward),
        "backward_ops": len(profile.backward),
        "tensors": len(profile.tensors),
        "forward_duration_ns": sum(op.duration_ns for op in profile.forward),
        "saved_bytes": whole.saved_bytes,
        "hideable_blocks": blocks.fraction,
        "hideable_whole": whole.fraction,
        "d2h_bytes_per_s": hardware.d2h_bytes_per_s,
        "h2d_bytes_per_s": hardware.h2d_bytes_per_s,
    }
    return Record(
        identity.key, identity.problem_key, cell, identity.document, Status.OPTIMAL, "",
        jsonable(figures),
    )


def _problem_figures(problem: Problem) -> dict[str, Any]:
    return {
        "hardware": problem.hardware.name,
        "profile_name": problem.profile.name,
        "profile_source": problem.profile.source,
        "budget_bytes": problem.budget_bytes if problem.is_limited else None,
        "budget_fraction": problem.fraction if problem.is_limited else None,
        "keep_all_peak_bytes": problem.keep_all_peak_bytes,
        "keep_all_ns": problem.profile.duration_ns,
        "static_bytes": problem.profile.static_bytes,
        "warning": problem.warning,
    }


_MEASURES: Mapping[CellKind, Any] = {
    CellKind.PLAN: _measure_plan,
    CellKind.BOUND: _measure_bound,
    CellKind.FACTS: _measure_facts,
}
