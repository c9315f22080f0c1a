"""Two plans of one problem, side by side: what `compare` shows for ``--plan A --plan B``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from slackswap.errors import Infeasible, SlackSwapError

if TYPE_CHECKING:
    from slackswap.cli.scores import Answer
    from slackswap.evaluation.comparison.plans import PlanComparison
    from slackswap.problem import Problem

#: Tensors listed; the JSON object and the page have them all.
_LISTED = 20


def compare_plans(
    problem: Problem, paths: Sequence[str], *, html: str | None, as_json: bool
) -> None:
    """Print how two plan files differ, tensor by tensor, and write the page.

    Raises
    ------
    SlackSwapError
        When there are not two files, or a plan cannot be read or carried out.
    """
    from slackswap.cli.output import print_json
    from slackswap.evaluation.comparison.plans import compare
    from slackswap.plan import Plan

    if len(paths) != 2:
        raise SlackSwapError(
            f"{len(paths)} plan was given" if len(paths) == 1 else f"{len(paths)} plans were given",
            where="--plan", fix="give two: --plan A --plan B",
        )
    first, second = (Plan.load(path) for path in paths)
    compared = compare(first, second, problem, names=(paths[0], paths[1]))
    if html is not None:
        compared.write_html(html)
    if as_json:
        print_json({
            "status": "ok",
            "profile": problem.profile.name,
            "hardware": problem.hardware.name,
            "budget_bytes": problem.budget_bytes if problem.is_limited else None,
            "plans": [
                {"file": path, **evaluation.to_dict()}
                for path, evaluation in zip(paths, compared.evaluations, strict=True)
            ],
            "changes": _records(compared),
            "html": html,
        })
        return
    _print(compared, html)


def write_fastest(problem: Problem, answers: Sequence[Answer], html: str) -> None:
    """Write the page of the two fastest of ranked answers.

    Raises
    ------
    Infeasible
        When fewer than two planners have a plan that fits.
    """
    from slackswap.evaluation.comparison.plans import compare

    plans = [(answer.planner or "", answer.plan) for answer in answers
             if answer.fits and answer.plan is not None]
    if len(plans) < 2:
        raise Infeasible(
            f"two plans are needed, and {len(plans)} planners have one that fits", where="--html",
            fix="raise the budget or name other planners",
        )
    (name_a, plan_a), (name_b, plan_b) = plans[:2]
    compare(plan_a, plan_b, problem, names=(name_a, name_b)).write_html(html)


def _records(compared: PlanComparison) -> list[dict[str, object]]:
    import json

    return list(json.loads(compared.to_frame().to_json(orient="records")))


def _print(compared: PlanComparison, html: str | None) -> None:
    from slackswap.cli.output import heading, paragraph, print_pairs, print_table
    from slackswap.cli.scores import percent, problem_line
    from slackswap.quantities import format_bytes, format_ns

    heading(problem_line(compared.problem))
    print_pairs([
        (name, f"{percent(score.throughput)} of keeping everything: "
               f"{format_ns(score.iteration_ns or 0)}, peak {format_bytes(score.peak_bytes or 0)}"
         if score.feasible else f"does not fit: {score.infeasible}")
        for name, score in zip(compared.names, compared.evaluations, strict=True)
    ])
    changes = sorted(compared.changes, key=lambda c: (abs(c.time_ns or 0), c.nbytes), reverse=True)
    print()
    if not changes:
        print("both plans do the same with every tensor")
    else:
        print_table(
            ("tensor", "from", "to", "bytes", "time", "recompute"),
            [
                (change.tensors[0], str(change.before), str(change.after),
                 format_bytes(change.nbytes), _signed(change.time_ns), _signed(change.recompute_ns))
                for change in changes[:_LISTED]
            ],
            left=("from", "to"), folding=("tensor", "from", "to"),
        )
        hidden = len(changes) - _LISTED
        paragraph(
            (f"and {hidden} more, in --json and --html. " if hidden > 0 else "")
            + "time, recompute: the second plan's, less the same with this change taken back; - "
            "where that does not fit, or cannot be carried out."
        )
    if html is not None:
        print_pairs([("written", html)])


def _signed(figure: int | None) -> str:
    from slackswap.quantities import format_ns

    if figure is None:
        return "-"
    return f"{'-' if figure < 0 else '+'}{format_ns(abs(figure))}" if figure else "0"
