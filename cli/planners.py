"""``slackswap planners``: list planners, start a new one, check one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackswap.cli.inputs import JsonOption

if TYPE_CHECKING:
    from slackswap.planner import Capabilities

app = typer.Typer(help="List planners, start a new one, check one.")


@app.command("list")
def list_planners(as_json: JsonOption = False) -> None:
    """List the planners known by name.

    Built-in ones first, then those of other packages.
    """
    from slackswap.cli.output import paragraph, print_json, print_table
    from slackswap.registry import planner_names

    rows = [_row(name) for name in planner_names()]
    if as_json:
        print_json({"status": "ok", "planners": rows})
        return
    print_table(
        ("planner", "actions", "promises", "what it does", "source", "readings"),
        [
            (row["name"], row["actions"], row["promises"], row["description"], row["source"],
             _readings(row["readings"]))
            for row in rows
        ],
        left=("planner", "actions"),
        folding=("promises", "what it does", "source", "readings"),
    )
    for text in (
        "Readings: values of a parameter that the source leaves open. Without a value the fastest "
        "plan of all of them counts.",
        "Also: --planner module:Name, --planner path/to/file.py:Name. One of your own: slackswap "
        "planners new NAME",
    ):
        print()
        paragraph(text)


def _row(name: str) -> dict[str, Any]:
    """Return what the list tells of one planner, also of one that cannot be loaded."""
    import inspect
    from dataclasses import asdict

    from slackswap.errors import SlackSwapError
    from slackswap.registry import parameters_of, resolve_planner

    try:
        planner = resolve_planner(name)
    except SlackSwapError as error:
        return {"name": name, "status": "error", "actions": "", "promises": "",
                "source": "", "readings": {}, "description": f"cannot be loaded: {error}"}
    made_of = getattr(planner, "function", type(planner))
    return {
        "name": name,
        "status": "ok",
        "version": planner.version,
        "capabilities": asdict(planner.capabilities),
        "parameters": parameters_of(planner),
        "actions": _actions(planner.capabilities),
        "promises": _promises(planner.capabilities),
        "source": getattr(planner, "source", ""),
        "readings": _open_choices(planner),
        "description": (inspect.getdoc(made_of) or "").split("\n\n")[0].replace("\n", " "),
    }


def _open_choices(planner: Any) -> dict[str, list[Any]]:
    """Return the values of each parameter that stands for all of them."""
    return {
        name: list(values)
        for name, values in getattr(planner, "choices", {}).items()
        if getattr(planner, name) is None
    }


def _readings(choices: dict[str, list[Any]]) -> str:
    return "; ".join(
        f"{name}: {', '.join(str(value) for value in values)}" for name, values in choices.items()
    )


def _actions(capabilities: Capabilities) -> str:
    words = {
        (True, True): "swap+recompute", (True, False): "swap", (False, True): "recompute",
        (False, False): "keep",
    }
    return words[capabilities.uses_swap, capabilities.uses_recompute]


def _promises(capabilities: Capabilities) -> str:
    words = (
        ("seeded", not capabilities.deterministic),
        ("anytime", capabilities.anytime),
        ("bound", capabilities.gives_bound),
        ("monotone", capabilities.monotone),
        ("any budget", not capabilities.uses_budget),
    )
    return ", ".join(word for word, holds in words if holds) or "-"


@app.command("new")
def new_planner(
    name: Annotated[str, typer.Argument(metavar="NAME", help="For instance my-planner.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Folder to write to.")
    ] = ".",
    as_json: JsonOption = False,
) -> None:
    """Write a planner that works, and its test."""
    import re

    from slackswap.cli.output import print_json
    from slackswap.evaluation.check.template import write_planner

    planner, test = write_planner(name, output)
    found = re.search(r"^class (\w+)", planner.read_text(encoding="utf-8"), re.MULTILINE)
    target = f"{planner}:{found[1] if found else name}"
    if as_json:
        print_json({"status": "ok", "planner": str(planner), "test": str(test), "target": target})
        return
    print(f"written: {planner}\n         {test}\n\nnext:")
    for command in (
        f"slackswap planners check {target}",
        f"slackswap compare bert-large --budget 50% --planner {target} --planner slackswap",
        f"pytest {test}",
    ):
        print(f"  {command}")


@app.command("check")
def check_planner_command(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET",
                       help="A name of `slackswap planners list`, module:Name, or "
                       "path/to/file.py:Name."),
    ],
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="NAME", help="Only this check; repeatable."),
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", metavar="SECONDS",
                     help="What the check of time limits gives the planner."),
    ] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the planner's randomness.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Check that a planner keeps the rules.

    It is asked about small problems of all shapes; what it answers, and what else it does, is
    looked at. Exit code 0: every check that applies passed. 2: one failed, or none applied.
    """
    from slackswap.cli.judged import check_seconds
    from slackswap.cli.output import Progress, print_json, print_table
    from slackswap.evaluation.check.kit import run_checks

    check_seconds(time_limit)
    with Progress(quiet=as_json) as progress:
        report = run_checks(target, check or None, seed=seed, time_limit=time_limit,
                            progress=lambda name: progress(f"{name} ..."))
    if as_json:
        print_json({"status": "ok" if report.passed else "error", **report.to_dict()})
    else:
        print_table(
            ("check", "", "what it checks, or why not"),
            [
                (outcome.name, str(outcome.status).upper() if outcome.status == "failed"
                 else str(outcome.status), outcome.reason or outcome.promise)
                for outcome in report.outcomes
            ],
            left=("check", ""), folding=("what it checks, or why not",),
        )
        print(f"\n{report.summary()}")
        if not report.passed and not report.failed:
            print("no check applied, which is no pass")
    if not report.passed:
        raise typer.Exit(2)
