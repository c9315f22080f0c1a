"""``slackswap bound``: a proven lower bound on the time of every plan."""

from __future__ import annotations

from typing import Annotated

import typer

from slackswap.cli.inputs import (
    BudgetOption,
    HardwareOption,
    JsonOption,
    ProfileArgument,
    load_problem,
)

app = typer.Typer()


@app.command()
def bound_command(
    profile: ProfileArgument,
    budget: BudgetOption,
    method: Annotated[
        str,
        typer.Option(
            "--method", metavar="METHOD",
            help="compute (durations alone), lagrangian (exact arithmetic), lp (exact arithmetic, "
            "slower), milp (tighter, slower still, the solver's word), or enumerate (small "
            "profiles only).",
        ),
    ] = "lagrangian",
    hardware: HardwareOption = None,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", metavar="SECONDS",
                     help="Time for the solver; what is proven by then is printed."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Prove how fast any plan can be at most.

    For example: slackswap bound gpt2-xl --budget 50% --method milp --time-limit 60

    Exit code 3: it is proven that no plan fits.
    """
    from slackswap.cli.judged import check_seconds, least_beside, method_of
    from slackswap.cli.output import Progress, heading, print_json, print_pairs
    from slackswap.cli.scores import bound_line, percent, problem_line
    from slackswap.quantities import format_ns
    from slackswap.search.bounds import lower_bound
    from slackswap.status import Status

    chosen = method_of(method)
    check_seconds(time_limit)
    problem = load_problem(profile, budget, hardware)
    with Progress(quiet=as_json) as progress:
        progress(f"proving a lower bound ({chosen}) ...")
        bound = lower_bound(problem, chosen or "lagrangian", time_limit=time_limit)
        impossible = bound.status is Status.INFEASIBLE
        least = None
        if impossible:
            progress("looking for the least budget that works ...")
            least = least_beside(problem)
    keep_all_ns = problem.profile.duration_ns
    highest = keep_all_ns / bound.value_ns if bound.value_ns else 1.0
    if as_json:
        print_json({
            "profile": problem.profile.name,
            "profile_sha256": problem.profile.sha256,
            "hardware": problem.hardware.name,
            "status": str(bound.status),
            "warning": problem.warning,
            "budget_bytes": problem.budget_bytes if problem.is_limited else None,
            "keep_all_peak_bytes": problem.keep_all_peak_bytes,
            "keep_all_ns": keep_all_ns,
            **bound.to_dict(),
            "highest_throughput": None if impossible else highest,
            **(least.to_dict() if least else {"least_budget": None}),
        })
    else:
        heading(problem_line(problem))
        pairs = [("bound", bound_line(bound)), *(least.lines if least else ())]
        if not impossible:
            pairs += [
                ("that is", f"at most {percent(highest)} of the throughput of keeping everything "
                            f"({format_ns(keep_all_ns)})"),
                ("exactly", f"{bound.value_ns} ns"),
            ]
        if problem.warning:
            pairs.append(("warning", problem.warning))
        if not bound.gated:
            pairs.append(("holds for", "plans without gates and barriers"))
        print_pairs(pairs)
    if impossible:
        raise typer.Exit(3)
