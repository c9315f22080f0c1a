"""Results as one tidy table: a row a planner's cell, with the bound of its problem beside it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from slackswap import files
from slackswap.bound import Bound, BoundMethod, certified_gap, status_with_gap
from slackswap.errors import BoundViolated, InvalidFile, SlackSwapError
from slackswap.evaluation.run.cell import CellKind
from slackswap.evaluation.run.record import Record
from slackswap.evaluation.run.store import Store
from slackswap.planners.common.readings import slowest_reading
from slackswap.status import Status

#: Columns of `load_results`: name, pandas type, meaning.
COLUMNS: Mapping[str, tuple[str, str]] = {
    "key": ("string", "identity of the cell: name of its file"),
    "problem": ("string", "identity of profile, hardware and budget; empty if they cannot be had"),
    "profile": ("string", "what the suite calls the profile"),
    "profile_source": ("string", "measured, traced, analytic, imported or random"),
    "profile_sha256": ("string", "identity of the profile"),
    "hardware": ("string", "hardware planned on"),
    "variant": ("string", "what differs from the plain case; empty for the plain case"),
    "budget": ("string", "budget as the suite writes it"),
    "budget_bytes": ("Int64", "budget in bytes; missing when unlimited"),
    "budget_fraction": ("Float64", "budget over the keep-everything peak"),
    "keep_all_peak_bytes": ("Int64", "peak of the keep-everything plan"),
    "keep_all_ns": ("Int64", "time of the keep-everything plan, memory unlimited"),
    "static_bytes": ("Int64", "weights, gradients, optimizer state"),
    "planner": ("string", "planner"),
    "planner_version": ("string", "its version"),
    "parameters": ("string", "its parameters, as JSON"),
    "deterministic": ("boolean", "whether it promises not to depend on the seed"),
    "seed": ("Int64", "seed of its randomness"),
    "repeat": ("Int64", "number of the repetition"),
    "status": ("string", "optimal, feasible, timeout, infeasible, error or skipped"),
    "reason": ("string", "why there is no plan"),
    "solved": ("boolean", "whether a plan that fits came in time"),
    "iteration_ns": ("Int64", "simulated time of one iteration"),
    "throughput": ("Float64", "keep_all_ns over iteration_ns"),
    "stall_forward_ns": ("Int64", "time that compute waited in the forward pass"),
    "stall_backward_ns": ("Int64", "the same in the backward pass"),
    "stall_ns": ("Int64", "both"),
    "recompute_ns": ("Int64", "time of recompute steps"),
    "peak_bytes": ("Int64", "most memory in use"),
    "offloaded_bytes": ("Int64", "bytes copied to the host"),
    "prefetched_bytes": ("Int64", "bytes copied back"),
    "d2h_utilisation": ("Float64", "share of the iteration that the link to the host was busy"),
    "h2d_utilisation": ("Float64", "the same for the other direction"),
    "saved_keep_bytes": ("Int64", "saved bytes that the plan keeps"),
    "saved_swap_bytes": ("Int64", "saved bytes that it swaps"),
    "saved_recompute_bytes": ("Int64", "saved bytes that it recomputes"),
    "has_order": ("boolean", "whether the plan has gates or barriers"),
    "planning_s": ("Float64", "time the planner searched"),
    "warm_up_s": ("Float64", "time before: imports, compilation, laying out arrays"),
    "candidates": ("Int64", "unique candidates a search scored"),
    "reading": ("string", "reading of the planner's rule that gave the plan, of several tried"),
    "readings": ("string", "what came of each reading, as JSON: nanoseconds, or why it has none"),
    "slowest_reading": ("string", "the one with the slowest plan"),
    "slowest_reading_ns": ("Int64", "simulated time of that plan"),
    "solver": ("string", "solver that the planner itself ran, if any"),
    "bound_ns": ("Int64", "strongest lower bound on this problem"),
    "bound_method": ("string", "how it was proven"),
    "bound_solver": ("string", "solver that ran"),
    "bound_status": ("string", "optimal when the bound's own problem was solved to the end"),
    "bound_safe": ("boolean", "whether it rests on exact arithmetic alone"),
    "gap": ("Float64", "certified: iteration_ns / bound_ns - 1"),
    "bound_violated": ("boolean", "a bound lay above a simulated time: a bug; no gap is given"),
    "warning": ("string", "what keeps the problem from being one device's; empty if nothing"),
    "contended": ("boolean", "whether other cells ran at the same time"),
    "reference_s": ("Float64", "time of the fixed reference task right before"),
    "noisy": ("boolean", "reference_s is far above what this machine needs when quiet"),
    "timeout_s": ("Float64", "limit of the cell"),
    "elapsed_s": ("Float64", "time of the whole cell"),
    "finished_at": ("string", "UTC"),
    "cost_model": ("string", "version of the cost model"),
    "slackswap": ("string", "version of this package"),
    "python": ("string", "version of Python"),
    "processor": ("string", "processor"),
    "cores": ("Int64", "cores the run could use"),
}

#: A cell is noisy when its reference task took this many times the machine's quiet time.
NOISE = 1.3
_QUIET_QUANTILE = 0.1

_FIGURES = (
    "profile_source", "hardware", "budget_bytes", "budget_fraction", "keep_all_peak_bytes",
    "keep_all_ns", "static_bytes", "iteration_ns", "throughput", "stall_forward_ns",
    "stall_backward_ns", "recompute_ns", "peak_bytes", "offloaded_bytes", "prefetched_bytes",
    "d2h_utilisation", "h2d_utilisation", "saved_keep_bytes", "saved_swap_bytes",
    "saved_recompute_bytes", "has_order", "planning_s", "warm_up_s", "warning",
)
#: Statistics under which searches report how many unique candidates they scored.
_CANDIDATES = ("unique_candidates", "unique", "candidates")


def load_results(path: str | os.PathLike[str] | Iterable[Record]) -> pd.DataFrame:
    """Load stored results as a tidy table.

    Parameters
    ----------
    path : path-like or iterable of Record
        The ``--output`` folder of ``slackswap evaluate``, or records.

    Returns
    -------
    pandas.DataFrame
        One row a planner's cell, columns as in `COLUMNS`, in the order of suite labels. Figures
        are missing where no plan fits; such rows must not be averaged away.

    Raises
    ------
    InvalidFile
        When the folder holds no results.
    """
    records = list(path if isinstance(path, Iterable) and not isinstance(path, str)
                   else Store(Path(path)).records())
    bounds = strongest_bounds(records)
    rows = [_row(record, bounds) for record in records if record.cell.kind is CellKind.PLAN]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    frame = frame.astype({name: kind for name, (kind, _) in COLUMNS.items()})
    frame["noisy"] = _noisy(frame)
    violated = set(frame.loc[frame["bound_violated"], "problem"])
    frame["bound_violated"] = frame["problem"].isin(violated).astype("boolean")
    frame.loc[frame["bound_violated"], ["bound_ns", "gap"]] = pd.NA
    return frame.sort_values(
        ["profile", "hardware", "variant", "budget", "planner", "seed", "repeat"],
        kind="stable", ignore_index=True,
    )


def latest(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the latest row of each problem, planner with parameters, seed and repetition.

    A store that outlived an edit of a planner holds its rows from before and after.
    """
    same = ["problem", "profile", "hardware", "variant", "budget", "planner", "parameters", "seed",
            "repeat"]
    last = frame.sort_values("finished_at", kind="stable").drop_duplicates(same, keep="last")
    return frame.loc[sorted(last.index)].reset_index(drop=True)


def load_facts(path: str | os.PathLike[str] | Iterable[Record]) -> pd.DataFrame:
    """Load what the suite found about profiles: sizes, and what the link can hide.

    Returns
    -------
    pandas.DataFrame
        One row a profile, hardware and variant: ``profile``, ``hardware``, ``variant`` and the
        figures of the cells of kind ``facts``.
    """
    records = (path if isinstance(path, Iterable) and not isinstance(path, str)
               else Store(Path(path)).records())
    rows = [
        {"profile": record.cell.profile.label, "variant": record.cell.variant,
         **record.figures}
        for record in records
        if record.cell.kind is CellKind.FACTS and record.figures
    ]
    columns = ["profile", "hardware", "variant", "hideable_blocks", "hideable_whole",
               "d2h_bytes_per_s", "h2d_bytes_per_s", "forward_duration_ns", "saved_bytes",
               "keep_all_ns", "keep_all_peak_bytes", "profile_source", "forward_ops", "tensors"]
    return pd.DataFrame(rows, columns=columns)


def strongest_bounds(records: Iterable[Record]) -> dict[str, tuple[Bound, Bound]]:
    """Return the strongest bounds by problem: for plans with gates or barriers, and for others.

    Bounds come from the suite's bound cells and from planners that prove one.
    """
    found: dict[str, tuple[Bound, Bound]] = {}
    for record in records:
        bound = _bound_of(record)
        if bound is None or not record.problem_key:
            continue
        gated, plain = found.get(record.problem_key, (None, None))
        if bound.gated and (gated is None or bound.value_ns > gated.value_ns):
            gated = bound
        if plain is None or bound.value_ns > plain.value_ns:
            plain = bound
        # Compute time bounds every plan, so a problem with any bound has one for gated plans too.
        found[record.problem_key] = (gated or _compute_bound(record), plain)
    return found


def export(frame: pd.DataFrame, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write a table as CSV or Parquet, whole or not at all.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `load_results`.
    path : path-like
        The file.
    format : {"csv", "parquet"}, optional
        Otherwise the file's suffix decides.

    Raises
    ------
    SlackSwapError
        When the format is neither, or Parquet is asked for and pyarrow is not installed.
    """
    kind = format or Path(path).suffix.removeprefix(".")
    if kind not in ("csv", "parquet"):
        raise SlackSwapError(f"format {kind!r} is not known", where="export",
                             fix="use csv or parquet")
    if kind == "parquet" and find_spec("pyarrow") is None:
        raise SlackSwapError("Parquet needs pyarrow, which is not installed", where="export",
                             fix="pip install 'slackswap[parquet]', or use csv")
    with files.atomic_path(path) as temporary:
        if kind == "csv":
            frame.to_csv(temporary, index=False)
        else:
            frame.to_parquet(temporary, index=False)


def _row(record: Record, bounds: Mapping[str, tuple[Bound, Bound]]) -> dict[str, Any]:
    cell, figures = record.cell, record.figures
    circumstances, identity = record.circumstances, record.identity
    solved = record.status.has_plan
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {name: figures.get(name) for name in _FIGURES}
    if not solved:  # an answer that came too late is no answer
        row |= dict.fromkeys(("iteration_ns", "throughput"))
    row |= {
        "key": record.key,
        "problem": record.problem_key,
        "profile": cell.profile.label,
        "profile_sha256": identity.get("problem", {}).get("profile_sha256"),
        "hardware": figures.get("hardware") or cell.hardware.options.get("name", ""),
        "variant": cell.variant,
        "budget": cell.budget,
        "planner": cell.subject_label,
        "planner_version": identity.get("version"),
        "parameters": files.canonical_json(
            identity.get("all_parameters", cell.options)
        ).decode(),
        "deterministic": figures.get("planner_deterministic"),
        "seed": cell.seed,
        "repeat": cell.repeat,
        "status": str(record.status),
        "reason": record.reason,
        "solved": solved,
        "contended": circumstances.contended,
        "reference_s": circumstances.reference_s,
        "timeout_s": cell.timeout_s,
        "elapsed_s": circumstances.elapsed_s,
        "finished_at": circumstances.finished_at,
        "cost_model": identity.get("cost_model"),
        "slackswap": circumstances.versions.get("slackswap"),
        "python": circumstances.versions.get("python"),
        "processor": circumstances.machine.get("processor"),
        "cores": circumstances.machine.get("cores"),
        "bound_violated": False,
    }
    statistics = figures.get("statistics") or {}
    row["candidates"] = next(
        (statistics[name] for name in _CANDIDATES if isinstance(statistics.get(name), int)), None
    )
    row["reading"] = statistics.get("reading")
    if "readings" in statistics:
        row["readings"] = files.canonical_json(statistics["readings"]).decode()
    if slowest := slowest_reading(statistics):
        row["slowest_reading"], row["slowest_reading_ns"] = slowest
    # A planner that proves a bound says there by which solver.
    row["solver"] = statistics.get("solver") or figures.get("bound_solver")
    if row["stall_forward_ns"] is not None:
        row["stall_ns"] = row["stall_forward_ns"] + row["stall_backward_ns"]
    if record.problem_key in bounds:
        row |= _judged(row, bounds[record.problem_key])
    return row


def _judged(row: Mapping[str, Any], bounds: tuple[Bound, Bound]) -> dict[str, Any]:
    gated, plain = bounds
    bound = gated if row["has_order"] else plain
    columns = {
        "bound_ns": bound.value_ns,
        "bound_method": str(bound.method),
        "bound_solver": bound.solver,
        "bound_status": str(bound.status),
        "bound_safe": bound.safe,
    }
    if row["iteration_ns"] is None:
        return columns
    try:
        gap = certified_gap(row["iteration_ns"], bound)
    except BoundViolated:
        return {**columns, "bound_violated": True}
    status = status_with_gap(Status(row["status"]), gap)
    return {**columns, "gap": gap, "status": str(status)}


def _bound_of(record: Record) -> Bound | None:
    figures = record.figures
    if record.cell.kind is CellKind.FACTS or figures.get("bound_ns") is None:
        return None
    return Bound(
        value_ns=figures["bound_ns"],
        method=BoundMethod(figures["bound_method"]),
        solver=figures.get("bound_solver"),
        status=Status(figures.get("bound_status", "optimal")),
        safe=figures.get("bound_safe", True),
        tolerance=figures.get("bound_tolerance", 0.0),
        runtime_s=figures.get("bound_s", 0.0),
        gated=figures.get("bound_gated", figures["bound_method"] != BoundMethod.ENUMERATION),
        note=figures.get("bound_note", ""),
    )


def _compute_bound(record: Record) -> Bound:
    if record.figures.get("keep_all_ns") is None:
        raise InvalidFile("lacks keep_all_ns", where=f"result {record.key}",
                          fix="remove the file, and run the suite again")
    return Bound(record.figures["keep_all_ns"], BoundMethod.COMPUTE)


def _noisy(frame: pd.DataFrame) -> pd.Series[bool]:
    """Compare each reference time with the quiet times of its machine, runs alone apart."""
    keys = [frame["processor"].fillna(""), frame["python"].fillna("")]
    quiet = frame["reference_s"].groupby(keys).transform(
        lambda times: times.quantile(_QUIET_QUANTILE)
    )
    noisy: pd.Series[bool] = (frame["reference_s"] > NOISE * quiet).fillna(False).astype("boolean")
    return noisy
