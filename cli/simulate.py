"""``slackswap simulate``: score a plan file on a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slackswap.cli.inputs import (
    BoundOption,
    BudgetOption,
    HardwareOption,
    JsonOption,
    ProfileArgument,
    load_problem,
)

if TYPE_CHECKING:
    from slackswap.problem import Problem
    from slackswap.result import Evaluation

app = typer.Typer()


@app.command()
def simulate_command(
    profile: ProfileArgument,
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="A plan file.")],
    budget: BudgetOption,
    hardware: HardwareOption = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="ENGINE",
                     help="kernel (default) or reference; both give the same figures."),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option("--trace", metavar="FILE",
                     help="Write what each stream did as Chrome-trace JSON, for Perfetto."),
    ] = None,
    bound: BoundOption = "none",
    as_json: JsonOption = False,
) -> None:
    """Score a plan file: simulate one iteration under it.

    For example: slackswap simulate bert-large plan.json --budget 50% --trace timeline.json

    Exit code 3: the plan does not fit.
    """
    from slackswap import files
    from slackswap.cli.judged import bound_beside, method_of
    from slackswap.cli.output import note, print_json
    from slackswap.cli.scores import Answer, print_answer
    from slackswap.cost_model.engine import default_engine, simulate
    from slackswap.errors import InvalidPlan
    from slackswap.plan import Plan
    from slackswap.status import Status

    method = method_of(bound, allow_none=True)
    if trace is not None:
        files.check_writable(trace)
    chosen = default_engine(engine)  # type: ignore[arg-type]
    loaded = Plan.load(plan)
    problem = load_problem(profile, budget, hardware)
    contended = problem.hardware.contended
    try:
        evaluation = simulate(problem, loaded, chosen, timeline=trace is not None or contended)
    except InvalidPlan as error:
        fix = error.fix
        if error.where == "profile_sha256":
            fix += " and the --hardware it was made for, which prices analytic profiles"
        raise InvalidPlan(error.what, where=f"{plan}: {error.where}", fix=fix) from error
    found, why_not = bound_beside(problem, method)
    answer = Answer(
        problem=problem,
        planner=loaded.planner.name if loaded.planner else None,
        status=Status.FEASIBLE if evaluation.feasible else Status.INFEASIBLE,
        plan=loaded,
        evaluation=evaluation,
        bound=found,
        bound_note=why_not,
        reason="" if evaluation.feasible else f"it does not fit: {evaluation.infeasible}",
        more={"engine": chosen, **({"both_directions_ns": _both_ns(evaluation)} if contended
                                   else {})},
    )
    if trace is not None:
        from slackswap.evaluation.comparison.trace import chrome_trace

        title = f"{problem.profile.name}, {answer.planner or plan}"
        files.write_json(trace, chrome_trace(evaluation, title=title))
    if as_json:
        print_json(answer.to_dict())
    else:
        print_answer(answer, trace, _contention_lines(problem, evaluation) if contended else ())
    if loaded.profile_sha256 is None:
        note("note: the plan does not say which profile it was made for")
    if not evaluation.feasible:
        raise typer.Exit(3)


def _both_ns(evaluation: Evaluation) -> int | None:
    spans = evaluation.both_directions
    if spans is None or not evaluation.feasible:
        return None
    return sum(end - start for start, end in spans)


def _contention_lines(problem: Problem, evaluation: Evaluation) -> list[tuple[str, str]]:
    from slackswap.quantities import format_ns

    both = _both_ns(evaluation)
    if both is None:
        return []
    spans = evaluation.both_directions or ()
    out, back = (ppm / 10_000 for ppm in problem.hardware.contended_ppm)
    where = ""
    if spans:
        stretches = "1 stretch" if len(spans) == 1 else f"{len(spans)} stretches"
        where = (f" in {stretches} from {format_ns(spans[0][0])} to {format_ns(spans[-1][1])}, "
                 f"out at {out:g}%, back at {back:g}%")
    return [("both ways at once", f"{format_ns(both)}{where}")]
