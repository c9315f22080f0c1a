"""``slackswap plan``: ask one planner for a plan, show its score, write it to a file."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from slackswap.cli.inputs import (
    BoundOption,
    BudgetOption,
    HardwareOption,
    JsonOption,
    ProfileArgument,
    SeedOption,
    TimeLimitOption,
    complete_planner,
    load_problem,
    parse_parameters,
)

app = typer.Typer()


@app.command()
def plan_command(
    profile: ProfileArgument,
    budget: BudgetOption,
    planner: Annotated[
        str,
        typer.Option(
            "--planner", "-p", metavar="PLANNER", autocompletion=complete_planner,
            help="A name of `slackswap planners list`, module:Name, or path/to/file.py:Name.",
        ),
    ] = "slackswap",
    hardware: HardwareOption = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the plan here.")
    ] = None,
    seed: SeedOption = 0,
    time_limit: TimeLimitOption = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE",
                     help="A parameter of the planner; repeatable."),
    ] = None,
    bound: BoundOption = "lagrangian",
    as_json: JsonOption = False,
) -> None:
    """Make a plan for a profile under a memory budget.

    For example: slackswap plan bert-large --budget 50% -o plan.json

    Exit code 3: no plan fits.
    """
    from slackswap import files
    from slackswap.cli.judged import (
        bound_beside,
        check_seconds,
        least_beside,
        method_of,
        tighter,
    )
    from slackswap.cli.output import Progress, note, print_json
    from slackswap.cli.scores import Answer, print_answer
    from slackswap.evaluation.run.isolated import solve_isolated

    method = method_of(bound, allow_none=True)
    if output is not None:
        files.check_writable(output)
    check_seconds(time_limit)
    parameters = parse_parameters(param or ())
    problem = load_problem(profile, budget, hardware)
    with Progress(quiet=as_json) as progress:
        progress(f"{planner} is planning ...")
        solution = solve_isolated(
            problem, planner, seed=seed, time_limit=time_limit, **parameters
        )
        progress(f"proving a lower bound ({method}) ...")
        found, why_not = bound_beside(problem, method)
        answer = Answer.of(solution, tighter(found, solution.bound), why_not)
        least = None
        if not answer.fits and (solution.plan is None or answer.impossible):
            progress("looking for the least budget that works ...")
            least = least_beside(problem)

    if solution.printed:
        note(f"{solution.planner.name} printed:\n{solution.printed.rstrip()}")
    written = None
    if output is not None and solution.plan is not None and answer.fits:
        replace(solution.plan, profile_sha256=problem.profile.sha256).save(output)
        written = output
    if as_json:
        document = answer.to_dict(with_plan=True)
        if not answer.fits:
            document |= least.to_dict() if least else {"least_budget": None}
        print_json(document)
    else:
        print_answer(answer, written, least.lines if least else ())
    if not answer.fits:
        if output is not None:
            note(f"no plan fits, so {output} was not written")
        raise typer.Exit(3)
