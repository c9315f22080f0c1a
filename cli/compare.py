"""``slackswap compare``: rank planners on one problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackswap.cli.inputs import (
    BoundOption,
    BudgetOption,
    HardwareOption,
    JsonOption,
    ProfileArgument,
    SeedOption,
    complete_planner,
    load_problem,
)

if TYPE_CHECKING:
    from slackswap.bound import Bound
    from slackswap.cli.scores import Answer
    from slackswap.problem import Problem

app = typer.Typer()


@app.command()
def compare_command(
    profile: ProfileArgument,
    budget: BudgetOption,
    planner: Annotated[
        list[str] | None,
        typer.Option(
            "--planner", "-p", metavar="PLANNER", autocompletion=complete_planner,
            help="Planner to rank, as for `slackswap plan`; repeatable. Default: all there are.",
        ),
    ] = None,
    hardware: HardwareOption = None,
    seed: SeedOption = 0,
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="SECONDS", help="Time each planner may take.")
    ] = 10.0,
    bound: BoundOption = "lagrangian",
    plan: Annotated[
        list[str] | None,
        typer.Option("--plan", metavar="FILE",
                     help="Twice: show two plan files by tensor instead of ranking planners."),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE",
                     help="Write a page with the timelines and differences of the two plans, or of "
                     "the two fastest; it needs no network."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Rank planners on one profile and budget, fastest plan first; or compare two plans.

    For example: slackswap compare gpt2-xl --budget 50% --planner slackswap --planner my.py:Mine

    Or: slackswap compare gpt2-xl --budget 50% --plan before.json --plan after.json

    Exit code 3: no plan fits.
    """
    from slackswap import files
    from slackswap.cli.judged import (
        bound_beside,
        check_seconds,
        classes_beside,
        least_beside,
        method_of,
    )
    from slackswap.cli.output import Progress, print_json
    from slackswap.evaluation.run.isolated import describe
    from slackswap.registry import planner_names

    method = method_of(bound, allow_none=True)
    check_seconds(time_limit)
    if html is not None:
        files.check_writable(html)
    if plan:
        from slackswap.cli.plan_pair import compare_plans

        compare_plans(load_problem(profile, budget, hardware), plan, html=html, as_json=as_json)
        return
    for name in planner or ():
        describe(name)  # a wrong name answers at once, not after the other planners
    problem = load_problem(profile, budget, hardware)
    with Progress(quiet=as_json) as progress:
        progress(f"proving a lower bound ({method}) ...")
        found, why_not = bound_beside(problem, method)
        answers = []
        names = tuple(dict.fromkeys(planner or planner_names()))
        for number, name in enumerate(names, start=1):
            progress(f"planner {number} of {len(names)}: {name} ...")
            answers.append(_ask(problem, name, seed, time_limit, found, why_not))
        answers = ranked(answers)
        classes, why_no_classes = None, ""
        if found is not None:
            progress("proving what each class of plans can reach ...")
            classes, why_no_classes = classes_beside(problem)
        least = None
        if not answers[0].fits:
            progress("looking for the least budget that works ...")
            least = least_beside(problem)
    if html is not None:
        from slackswap.cli.plan_pair import write_fastest

        write_fastest(problem, answers, html)
    if as_json:
        document = _document(answers)
        document["ceilings"] = classes
        if why_no_classes:
            document["ceilings_note"] = why_no_classes
        if least is not None:
            document |= least.to_dict()
        print_json(document)
    else:
        _print(problem, answers, [
            *_bound_lines(found, why_not), *_class_lines(classes, why_no_classes),
            *(least.lines if least else ()),
        ])
    if not answers[0].fits:
        raise typer.Exit(3)


def ranked(answers: Sequence[Answer]) -> list[Answer]:
    """Return answers by time, those without a plan that fits last; equals keep their order."""
    return sorted(
        answers,
        key=lambda answer: (
            not answer.fits,
            answer.evaluation.iteration_ns or 0 if answer.evaluation and answer.fits else 0,
        ),
    )


def _ask(
    problem: Problem, name: str, seed: int, time_limit: float, bound: Bound | None, why_not: str
) -> Answer:
    """Ask one planner; whatever it does wrong becomes its row, not the end of the others."""
    from slackswap.cli.judged import tighter
    from slackswap.cli.scores import Answer
    from slackswap.errors import PlannerFailed, Skipped, SlackSwapError
    from slackswap.evaluation.run.isolated import solve_isolated
    from slackswap.status import Status

    try:
        solution = solve_isolated(problem, name, seed=seed, time_limit=time_limit)
        return Answer.of(solution, tighter(bound, solution.bound), why_not)
    except Skipped as error:
        status, reason = Status.SKIPPED, str(error)
    except PlannerFailed as error:
        status, reason = Status.ERROR, error.what
    except SlackSwapError as error:
        status, reason = Status.ERROR, str(error)
    except Exception as error:
        status, reason = Status.ERROR, f"{type(error).__name__}: {error}"
    return Answer(problem, name, status, None, None, bound, why_not, reason)


def _document(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the best answer's object, with those of all planners below ``results``."""
    return {**answers[0].to_dict(), "results": [answer.to_dict() for answer in answers]}


def _bound_lines(bound: Bound | None, why_not: str) -> list[tuple[str, str]]:
    from slackswap.cli.scores import bound_line

    if bound is not None:
        return [("bound", bound_line(bound))]
    return [("bound", f"none: {why_not}")] if why_not else []


def _class_lines(
    ceilings: dict[str, float | None] | None, why_not: str
) -> list[tuple[str, str]]:
    """Say how far plans that only swap, and plans that only recompute, can get."""
    from slackswap.cli.scores import percent

    if ceilings is None:
        return [("classes", f"their ceilings are not known: {why_not}")] if why_not else []
    lines = []
    for name, label in (("swap_only", "swapping alone"), ("recompute_only", "recomputing alone")):
        ceiling = ceilings[name]
        lines.append((label, "no plan fits" if ceiling is None else f"at most {percent(ceiling)}"))
    return lines


def _print(
    problem: Problem, answers: Sequence[Answer], more: Sequence[tuple[str, str]]
) -> None:
    from slackswap.cli.output import heading, paragraph, print_pairs, print_table
    from slackswap.cli.scores import device_line, problem_line
    from slackswap.quantities import format_ns

    heading(problem_line(problem))
    pairs = [("keeping everything", format_ns(problem.profile.duration_ns) + " an iteration")]
    pairs += more
    pairs.append(("device", device_line(problem)))
    if problem.warning:
        pairs.append(("warning", problem.warning))
    print_pairs(pairs)
    print()
    fitting = [answer for answer in answers if answer.fits]
    if fitting:
        with_readings = any(_slowest(answer) for answer in fitting)
        print_table(
            ("planner", "throughput", *(("slowest reading",) if with_readings else ()), "stall",
             "recompute", "out/back", "peak", "planning", "gap"),
            [_row(answer, with_readings=with_readings) for answer in fitting],
            folding=("planner",),
        )
        if with_readings:
            paragraph("slowest reading: a rule that can be read in several ways counts with its "
                      "fastest plan")
        paragraph("out/back: share of the time that each direction of the link is busy")
    others = answers[len(fitting) :]
    if others:
        if fitting:
            print()
        print_table(
            ("without a plan", "status", "reason"),
            [(answer.planner or "", str(answer.status), answer.reason) for answer in others],
            left=("status",), folding=("without a plan", "reason"),
        )


def _slowest(answer: Answer) -> str:
    """Return the throughput of a planner's slowest reading; empty without several."""
    from slackswap.cli.scores import percent
    from slackswap.planners.common.readings import slowest_reading

    slowest = slowest_reading(answer.more.get("statistics", {}))
    return percent(answer.problem.profile.duration_ns / slowest[1]) if slowest else ""


def _row(answer: Answer, *, with_readings: bool) -> tuple[str, ...]:
    from slackswap.cli.scores import percent
    from slackswap.quantities import format_bytes, format_ns, format_seconds

    score = answer.evaluation
    assert score is not None
    late = " (late)" if answer.status == "timeout" else ""
    return (
        f"{answer.planner}{late}",
        percent(score.throughput),
        *((_slowest(answer),) if with_readings else ()),
        format_ns(score.stall_ns or 0),
        format_ns(score.recompute_ns or 0),
        f"{100 * (score.d2h_utilisation or 0):.0f}/{100 * (score.h2d_utilisation or 0):.0f}%",
        format_bytes(score.peak_bytes or 0),
        format_seconds(answer.planning_s or 0),
        "-" if answer.gap is None else percent(answer.gap),
    )
