"""Comparing planners over many problems, without averaging failures away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Relative difference in time up to which two plans tie.
TIE = 1e-3

#: What one problem and one try are told apart by.
PROBLEM = ["profile", "hardware", "variant", "budget", "problem"]


@dataclass(frozen=True, slots=True)
class PerformanceProfile:
    """A performance profile (Dolan and More, 2002): share of problems solved within a ratio.

    Attributes
    ----------
    planner : str
        Planner.
    ratios : float[points]
        Ascending ratios to the best planner of each problem; starts at 1.
    shares : float[points]
        Share of the problems it was asked that the planner solves within that ratio. One that it
        did not solve never counts.
    solved, problems : int
        Problems solved, and problems it was asked, those that nobody solved among them.
    """

    planner: str
    ratios: Floats
    shares: Floats
    solved: int
    problems: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two planners on the problems that both solved.

    Attributes
    ----------
    planner, reference : str
        Who is compared with whom.
    ratio : float
        Geometric mean over instances of throughput over the reference's, each instance by the
        mean of its problems; NaN without a common problem.
    low, high : float
        Its 95% bootstrap interval over instances, which profiles are: budgets, links and prices of
        one profile are not independent samples. NaN below three instances in common.
    common, only_planner, only_reference : int
        Problems solved by both, and by one alone.
    wins, ties, losses : int
        Among the common ones, by simulated time; a tie is a difference of at most `TIE`.
    instances : int
        Profiles among the common problems.
    """

    planner: str
    reference: str
    ratio: float
    low: float
    high: float
    common: int
    only_planner: int
    only_reference: int
    wins: int
    ties: int
    losses: int
    instances: int


def per_problem(frame: pd.DataFrame, value: str = "iteration_ns") -> pd.DataFrame:
    """Return one row a problem, one column a planner: the median over seeds and repeats.

    A planner that solved a problem with some seeds only has not solved it.
    """
    table = frame.assign(_value=frame[value].astype("Float64"))
    grouped = table.groupby([*PROBLEM, "planner"], observed=True, dropna=False)
    median = grouped["_value"].median()
    median[~grouped["solved"].all().astype(bool)] = pd.NA
    return median.unstack("planner")


def performance_profiles(
    frame: pd.DataFrame, value: str = "iteration_ns", *, planners: Sequence[str] = ()
) -> list[PerformanceProfile]:
    """Return the performance profile of each planner.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `load_results`.
    value : str
        ``iteration_ns`` compares plans, ``planning_s`` compares planners.
    planners : sequence of str
        Which; all by default.

    Returns
    -------
    list of Profile
        Best first. For ``planning_s`` a timeout is right-censored at the limit it ran into: it may
        have answered at any later ratio. What was not solved at all is censored at the largest.
    """
    from scipy.stats import CensoredData, ecdf

    times = per_problem(frame, value)
    chosen = [name for name in (planners or times.columns) if name in times.columns]
    values = times[chosen].to_numpy(dtype=float, na_value=np.nan)
    # A problem that nobody solved stays: it counts against all who were asked.
    best = np.where(np.isnan(values), inf, values).min(axis=1, initial=inf)
    # A duration of zero is as good as the smallest clock tick.
    floor = np.maximum(best, np.finfo(float).tiny)
    ratios = np.maximum(values, floor[:, np.newaxis]) / floor[:, np.newaxis]
    tried = _tried(frame, times[chosen])
    censored_at = _censored_ratios(frame, times[chosen], floor, value, ratios)
    found = []
    for column, planner in enumerate(chosen):
        mine = ratios[tried[:, column], column]
        solved = ~np.isnan(mine)
        if not len(mine):
            continue
        if not solved.any():
            found.append(
                PerformanceProfile(planner, np.array([1.0]), np.array([0.0]), 0, len(mine))
            )
            continue
        limits = censored_at[tried[:, column], column]
        data = CensoredData(uncensored=mine[solved], right=limits[~solved])
        cdf = ecdf(data).cdf
        found.append(
            PerformanceProfile(
                planner, np.asarray(cdf.quantiles, dtype=float),
                np.asarray(cdf.probabilities, dtype=float), int(solved.sum()), len(mine),
            )
        )
    end = max((profile.ratios[-1] for profile in found), default=1.0) * 10
    return sorted(found, key=lambda profile: -_area(profile, end))


def compare_planners(
    frame: pd.DataFrame,
    reference: str,
    *,
    rng: np.random.Generator,
    tie: float = TIE,
    planners: Sequence[str] = (),
) -> list[Comparison]:
    """Compare planners with one of them, each on the problems that both solved.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `load_results`.
    reference : str
        Planner that the others are compared with.
    rng : numpy.random.Generator
        For the bootstrap.
    tie : float
        Relative difference in time below which two plans tie.
    planners : sequence of str
        Which; all but the reference by default.

    Returns
    -------
    list of Comparison
        Best ratio first; planners without a common problem last.
    """
    times = per_problem(frame)
    if reference not in times.columns:
        return []
    base = times[reference]
    found = []
    for planner in planners or [name for name in times.columns if name != reference]:
        if planner not in times.columns:
            continue
        mine = times[planner]
        both = (mine.notna() & base.notna()).to_numpy(dtype=bool)
        # Throughput over throughput is time under time.
        logs = np.log(
            base[both].to_numpy(dtype=float) / mine[both].to_numpy(dtype=float)
        )
        # Cells of one profile rise and fall together: an instance counts once, by its mean.
        instances = pd.Series(logs).groupby(
            times.index.get_level_values("profile")[both].to_numpy(dtype=str)
        ).mean()
        low, high = bootstrap_interval(instances.to_numpy(dtype=float), rng)
        found.append(
            Comparison(
                planner=planner,
                reference=reference,
                ratio=float(np.exp(instances.mean())) if len(logs) else float("nan"),
                low=float(np.exp(low)),
                high=float(np.exp(high)),
                common=int(both.sum()),
                only_planner=int((mine.notna() & base.isna()).sum()),
                only_reference=int((mine.isna() & base.notna()).sum()),
                wins=int((logs > tie).sum()),
                ties=int((np.abs(logs) <= tie).sum()),
                losses=int((logs < -tie).sum()),
                instances=len(instances),
            )
        )
    return sorted(found, key=lambda c: (not c.common, -c.ratio if c.common else 0.0, c.planner))


def shifted_geometric_mean(values: Sequence[float] | Floats, shift: float) -> float:
    """Geometric mean of ``value + shift``, less the shift; NaN for no values.

    The shift keeps tiny values, which are mostly noise, from ruling the mean.
    """
    array = np.asarray(values, dtype=float)
    if not len(array):
        return float("nan")
    return float(np.exp(np.log(array + shift).mean()) - shift)


def bootstrap_interval(
    values: Floats, rng: np.random.Generator, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean; NaN below three values."""
    from scipy.stats import bootstrap

    if len(values) < 3:
        return float("nan"), float("nan")
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    interval = bootstrap(
        (values,), np.mean, confidence_level=confidence, method="percentile", rng=rng
    ).confidence_interval
    return float(interval.low), float(interval.high)


def ranking(
    frame: pd.DataFrame,
    *,
    rng: np.random.Generator,
    reference: str = "slackswap",
    shift_s: float = 0.01,
) -> pd.DataFrame:
    """Return one row a planner, the best first.

    Parameters
    ----------
    frame : pandas.DataFrame
        From `load_results`.
    reference : str
        Planner that ratios are taken to.
    rng : numpy.random.Generator
        For the bootstrap of the ratios.
    shift_s : float
        Shift of the geometric mean of planning times.

    Returns
    -------
    pandas.DataFrame
        ``planner``, ``ranked``, ``solved`` and ``tried`` (problems), ``ratio``, ``low``, ``high``,
        ``wins``, ``ties``, ``losses`` against the reference on common problems; over the problems
        it solved, ``throughput`` (geometric mean), ``worst`` (smallest throughput), ``gap``
        (largest certified), ``stall``, ``recompute`` (mean shares of the iteration), ``link`` (mean
        utilisation to the host), ``planning_s`` (shifted geometric mean). A planner was tried on
        every problem that it was asked and did not skip, whoever else solved it. Those that solved
        fewer come later, whatever their ratio. Only planners that were tried on the same problems
        are ranked: the largest such group; the others follow by name.
    """
    against = {entry.planner: entry for entry in compare_planners(frame, reference, rng=rng)}
    rows = []
    asked: dict[str, frozenset[Any]] = {}
    for planner, mine in frame[frame["status"] != "skipped"].groupby("planner"):
        tried = mine.groupby(PROBLEM, dropna=False)["solved"].all()
        asked[str(planner)] = frozenset(tried.index)
        row: dict[str, Any] = {"planner": planner, "solved": int(tried.sum()), "tried": len(tried)}
        row["ratio"] = 1.0 if planner == reference else np.nan
        if planner in against:
            entry = against[str(planner)]
            row |= {"ratio": entry.ratio, "low": entry.low, "high": entry.high,
                    "wins": entry.wins, "ties": entry.ties, "losses": entry.losses}
        rows.append(row | _means(mine[mine["solved"].astype(bool)], shift_s))
    columns = ["planner", "ranked", "solved", "tried", "ratio", "low", "high", "wins", "ties",
               "losses", "throughput", "worst", "gap", "stall", "recompute", "link", "planning_s"]
    table = pd.DataFrame(rows, columns=columns)
    groups = list(asked.values())
    main = max(groups, key=lambda group: (groups.count(group), len(group)), default=frozenset())
    table["ranked"] = [asked[str(planner)] == main for planner in table["planner"]]
    ranked = table[table["ranked"]].sort_values(
        ["solved", "ratio", "throughput"], ascending=False, kind="stable"
    )
    return pd.concat(
        [ranked, table[~table["ranked"]].sort_values("planner")], ignore_index=True
    )


def unsolved_problems(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the problems that no planner solved, one row each, by the columns of `PROBLEM`."""
    solved = frame.groupby(PROBLEM, dropna=False)["solved"].transform("any").astype(bool)
    return frame.loc[~solved, PROBLEM].drop_duplicates(ignore_index=True)


def _means(solved: pd.DataFrame, shift_s: float) -> dict[str, float]:
    if solved.empty:
        return {}
    time = solved["iteration_ns"].astype(float)
    return {
        "throughput": float(np.exp(np.log(solved["throughput"].astype(float)).mean())),
        "worst": float(solved["throughput"].min()),
        "gap": float(solved["gap"].max()) if solved["gap"].notna().any() else float("nan"),
        "stall": float((solved["stall_ns"] / time).mean()),
        "recompute": float((solved["recompute_ns"] / time).mean()),
        "link": float(solved["d2h_utilisation"].mean()),
        "planning_s": shifted_geometric_mean(
            solved["planning_s"].to_numpy(dtype=float), shift_s
        ),
    }


def _tried(frame: pd.DataFrame, times: pd.DataFrame) -> NDArray[np.bool_]:
    """Tell which planner was tried on which problem; one that was skipped was not."""
    counted = frame[frame["status"] != "skipped"]
    counts = counted.groupby([*PROBLEM, "planner"], dropna=False).size().unstack("planner")
    found = counts.reindex(index=times.index, columns=times.columns).notna().to_numpy(dtype=bool)
    return np.asarray(found, dtype=np.bool_)


def _censored_ratios(
    frame: pd.DataFrame, times: pd.DataFrame, floor: Floats, value: str, ratios: Floats
) -> Floats:
    """Ratio from which on nothing is known of a planner that did not solve a problem."""
    largest = np.nanmax(ratios, initial=1.0) * (1 + 1e-9)
    censored = np.full(ratios.shape, largest)
    if value != "planning_s":
        return censored
    late = frame[frame["status"] == "timeout"]
    limits = late.groupby([*PROBLEM, "planner"], dropna=False)["timeout_s"].max()
    rows = {key: number for number, key in enumerate(times.index)}
    columns = {name: number for number, name in enumerate(times.columns)}
    for key, limit in limits.items():
        assert isinstance(key, tuple)
        row, column = rows.get(key[:-1]), columns.get(key[-1])
        if row is not None and column is not None:
            censored[row, column] = max(1.0, float(str(limit)) / floor[row])
    return censored


def _area(profile: PerformanceProfile, end: float) -> float:
    """Area under a performance profile over log-ratio, up to `end`: larger is better."""
    edges = np.log(np.append(profile.ratios, end))
    return float((np.diff(edges) * profile.shares).sum())


def non_monotone_steps(frame: pd.DataFrame) -> dict[str, int]:
    """Count by planner the steps to a larger budget that made its plan slower.

    Returns
    -------
    dict of str to int
        Empty where no profile was planned at several budgets.
    """
    axis = [name for name in PROBLEM if name not in ("budget", "problem")]
    solved = frame[frame["solved"] & frame["budget_bytes"].notna()]
    median = solved.groupby([*axis, "planner", "budget_bytes"], dropna=False)["iteration_ns"]
    steps: dict[str, int] = {}
    for key, times in median.median().groupby(level=[*axis, "planner"], dropna=False):
        if len(times) > 1:
            slower = int((np.diff(times.to_numpy(dtype=float)) > 0).sum())
            planner = str(tuple(key)[-1])  # type: ignore[arg-type]
            steps[planner] = steps.get(planner, 0) + slower
    return steps
