"""What commands are given: profiles, hardware, budgets and planner parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackswap.errors import SlackSwapError

if TYPE_CHECKING:
    from slackswap.hardware import Hardware
    from slackswap.problem import Problem
    from slackswap.profile import Profile



def _beginning(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return what completes a word by one of `names`, which are asked for only then."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def _profiles() -> Iterable[str]:
    from slackswap.profiles.library import profile_names

    return profile_names()


def _planners() -> Iterable[str]:
    from slackswap.registry import planner_names

    return planner_names()


def _hardware() -> Iterable[str]:
    from slackswap.profiles.catalogue import hardware_names

    return hardware_names()


complete_profile = _beginning(_profiles)
complete_planner = _beginning(_planners)
complete_hardware = _beginning(_hardware)

ProfileArgument = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE", autocompletion=complete_profile,
        help="A name of `slackswap profiles list`, with other sizes as in "
        "llama-7b@batch=4,sequence=8192; or a file.",
    ),
]
BudgetOption = Annotated[
    str,
    typer.Option(
        "--budget", "-b", metavar="BUDGET",
        help="Memory for activations: 20GB, 20GiB, or a fraction of what keeping everything "
        "takes (0.5, 50%); or unlimited.",
    ),
]
HardwareOption = Annotated[
    str | None,
    typer.Option(
        "--hardware", metavar="NAME|FILE", autocompletion=complete_hardware,
        help="Device and host link; default: the one the profile is for. Analytic profiles of "
        "the library are priced for it.",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of the planner's randomness.")]
TimeLimitOption = Annotated[
    float | None,
    typer.Option("--time-limit", metavar="SECONDS", help="Time each planner may take."),
]
BoundOption = Annotated[
    str,
    typer.Option("--bound", metavar="METHOD",
                 help="Lower bound for the gap: lagrangian, lp, milp, compute or none."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def load_problem(profile: str, budget: str, hardware: str | None) -> Problem:
    """Return the problem that a command line names.

    Raises
    ------
    SlackSwapError
        When profile, hardware or budget cannot be had.
    """
    from slackswap.problem import Problem
    from slackswap.quantities import parse_budget

    amount = None if budget.lower() in ("unlimited", "none") else budget
    if amount is not None:
        parse_budget(amount)  # before the profile is built: a typing error answers at once
    found, device = load_inputs(profile, hardware)
    return Problem(found, device, amount)


def load_inputs(
    profile: str,
    hardware: str | None,
    *,
    batch: int | None = None,
    sequence: int | None = None,
) -> tuple[Profile, Hardware]:
    """Return the profile and the hardware that a command line names.

    An analytic profile of the library is priced for the hardware, if that states its rates.
    """
    from slackswap.profiles.library import hardware_of, load_hardware, resolve_profile

    chosen = None if hardware is None else load_hardware(hardware)
    found = resolve_profile(profile, chosen, batch=batch, sequence=sequence)
    return found, chosen or hardware_of(found)


def parse_parameters(assignments: Sequence[str], *, where: str = "--param") -> dict[str, Any]:
    """Read ``name=value`` pairs; a value that is not JSON is text.

    Raises
    ------
    SlackSwapError
        For what is no such pair, naming the option `where` it stands.
    """
    parameters: dict[str, Any] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise SlackSwapError(
                f"{text!r} is not NAME=VALUE", where=where, fix="write for instance seed=1"
            )
        try:
            parameters[name] = json.loads(value)
        except ValueError:
            parameters[name] = value
    return parameters
