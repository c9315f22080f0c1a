"""``slackswap run``: train a model under plans, and compare predicted with measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackswap.cli.inputs import BudgetOption, JsonOption, SeedOption

if TYPE_CHECKING:
    from slackswap.execution.running import Run
    from slackswap.execution.trial import Trial
    from slackswap.hardware import Hardware

app = typer.Typer()

#: Exit code when bits differ from the plain model's, or memory went above the budget.
PROMISE_BROKEN = 4


@app.command()
def run_command(
    target: Annotated[
        str,
        typer.Argument(metavar="MODULE:FUNCTION",
                       help="A function that returns a model or loss function, and example "
                       "inputs."),
    ],
    budget: BudgetOption,
    planner: Annotated[
        list[str] | None,
        typer.Option("--planner", "-p", metavar="PLANNER",
                     help="Whose plan to run, as for `slackswap plan`; repeatable. Default: "
                     "slackswap."),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps to time.")] = 20,
    link: Annotated[
        str | None,
        typer.Option("--link", metavar="RATE",
                     help="Plan for a link of so many bytes a second each way (500MB), and hold "
                     "copies to it. Default: this machine's copies, measured."),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", metavar="NAME|FILE",
                     help="The same with the link of a hardware; not together with --link."),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="cpu or cuda.")
    ] = "cpu",
    order: Annotated[
        str | None,
        typer.Option("--order", metavar="ORDER",
                     help="live: copies start by the simulator's rules, asked at every event. "
                     "static: waits are fixed beforehand (always on cuda)."),
    ] = None,
    seed: SeedOption = 0,
    trace: Annotated[
        str | None,
        typer.Option("--trace", metavar="FILE",
                     help="Write the last step of the fastest plan beside its simulation as "
                     "Chrome-trace JSON, for Perfetto."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model under a plan and compare what the simulator said with what happened.

    Loss, gradients and the trained weights are compared with the plain model's, bit for bit. Needs
    the torch extra: pip install 'slackswap[torch]'. Exit code 3: no plan fits. Exit
    code 4: bits differ, or memory went above the budget.

    For example: slackswap run my_model:build --budget 50% --planner slackswap --steps 20
    """
    from slackswap.cli.output import Progress, note, print_json
    from slackswap.errors import Skipped
    from slackswap.quantities import parse_budget

    amount = None if budget.lower() in ("unlimited", "none") else budget
    if amount is not None:
        parse_budget(amount)
    emulated = _emulated(link, hardware)
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise Skipped(
            "PyTorch is not installed", where="run", fix="pip install 'slackswap[torch]'"
        ) from error
    from slackswap.execution.running import run_planners

    with Progress(quiet=as_json) as progress:
        progress("capturing and running")
        run = run_planners(
            target, planner or ["slackswap"], budget=amount, steps=steps, hardware=emulated,
            order=order, device=device, seed=seed,
        )
    if trace is not None and run.trials:
        _write_trace(trace, run.trials[0], run.problem.profile.name)
    if as_json:
        print_json(_document(run, steps))
    else:
        _print(run, trace if run.trials else None)
    broken = [trial for trial in run.trials if not trial.keeps_budget or trial.difference]
    for trial in broken:
        note(f"{trial.report.planner}: {_verdict(trial)}")
    if broken:
        raise typer.Exit(PROMISE_BROKEN)
    if not run.trials:
        raise typer.Exit(3)


def _emulated(link: str | None, hardware: str | None) -> Hardware | None:
    from fractions import Fraction

    from slackswap.errors import InvalidHardware
    from slackswap.hardware import Hardware
    from slackswap.profiles.library import load_hardware
    from slackswap.quantities import parse_budget

    if hardware is not None:
        if link is not None:
            raise InvalidHardware(
                "--link and --hardware both name a link", where="run", fix="give one of them"
            )
        return load_hardware(hardware)
    if link is None:
        return None
    rate = parse_budget(link)
    if isinstance(rate, Fraction):
        raise InvalidHardware(
            f"{link!r} is a share, not a rate", where="--link", fix="write for instance 500MB"
        )
    return Hardware(f"{link}/s emulated", rate, rate, 10_000)


def _document(run: Run, steps: int) -> dict[str, Any]:
    problem = run.problem
    return {
        "status": "ok" if run.trials else "infeasible",
        "profile": problem.profile.name,
        "hardware": problem.hardware.to_dict(),
        "budget_bytes": problem.budget_bytes if problem.is_limited else None,
        "steps": steps,
        "trials": [trial.to_dict() for trial in run.trials],
        "without_plan": [
            {"planner": planner, "reason": reason} for planner, reason in run.without_plan
        ],
    }


def _print(run: Run, trace: str | None) -> None:
    from slackswap.cli.output import heading, print_pairs, print_table
    from slackswap.quantities import format_bytes, format_ns

    problem = run.problem
    hardware = problem.hardware
    print_pairs([
        ("model", f"{problem.profile.name}: {len(problem.profile.forward)} forward and "
                  f"{len(problem.profile.backward)} backward ops"),
        ("budget", f"{format_bytes(problem.budget_bytes)} ({problem.fraction:.0%} of keeping "
                   "everything)" if problem.is_limited else "unlimited"),
        ("link", f"{hardware.name}: {format_bytes(hardware.d2h_bytes_per_s)}/s out, "
                 f"{format_bytes(hardware.h2d_bytes_per_s)}/s back"),
    ])
    for trial in run.trials:
        print()
        heading(trial.report.planner)
        print_table(("", "predicted", "measured", "off"), trial.report.rows(), left=("",))
        print_pairs([
            ("", f"{format_ns(trial.plain_ns)} a step for the plain model; medians of "
                 f"{trial.report.steps} steps"),
            ("", f"{format_bytes(trial.live_bytes)} alive at most by the storage log, "
                 f"{format_bytes(trial.report.reserved_bytes)} of the budget set aside"),
            ("", _verdict(trial)),
        ])
    if len(run.trials) > 1:
        print()
        heading("Ranked by measured throughput")
        print_table(
            ("planner", "simulated", "measured", "bits", "budget"),
            [
                (trial.report.planner, f"{trial.predicted_throughput:.3f}",
                 f"{trial.measured_throughput:.3f}",
                 "equal" if trial.difference is None else "DIFFER",
                 "kept" if trial.keeps_budget else "BROKEN")
                for trial in run.trials
            ],
            left=("planner",),
        )
    for planner, reason in run.without_plan:
        print(f"\nno plan of {planner}: {reason}")
    if trace is not None:
        print(f"\ntimeline written to {trace}")


def _verdict(trial: Trial) -> str:
    bits = (
        "loss, gradients and weights equal the plain model's to the bit"
        if trial.difference is None
        else f"{trial.difference} differs from the plain model's"
    )
    return f"{bits}; memory {'kept to' if trial.keeps_budget else 'went ABOVE'} the budget"


def _write_trace(path: str, trial: Trial, name: str) -> None:
    from slackswap import files
    from slackswap.evaluation.comparison.trace import Track, trace_beside

    log = trial.logs[-1]
    profile = trial.planned.problem.profile
    prediction = trial.planned.prediction
    title = f"{name}, {trial.report.planner}"
    files.write_json(
        path,
        trace_beside(
            [
                Track(f"{title}: simulated", prediction.timeline or (),
                      prediction.memory_curve or ()),
                Track(f"{title}: measured", log.on_one_clock(), log.curve_on_one_clock()),
            ],
            profile,
        ),
    )
