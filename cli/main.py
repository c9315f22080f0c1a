"""The entry point: finds the command, and turns every error into a message and an exit code."""

from __future__ import annotations

import codecs
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from slackswap.errors import SlackSwapError

#: Exit codes beside those of `SlackSwapError`.
BUG, INTERRUPTED = 1, 130

_CONTEXT = {"help_option_names": ["-h", "--help"]}
_DEBUG = "--debug"
_DEBUG_ENVIRONMENT = "SLACKSWAP_DEBUG"

_SHELLS = ("bash", "zsh", "fish", "powershell")
_COMPLETION = "--show-completion"
#: By this variable a shell asks for completions; its value says what for.
_COMPLETION_ENVIRONMENT = "_SLACKSWAP_COMPLETE"

#: Module and help line of each command. Modules are imported when their command runs, so that
#: ``slackswap --help`` is quick; each has a `typer.Typer` called ``app``.
COMMANDS = {
    "plan": ("slackswap.cli.plan", "Make a plan for a profile under a memory budget."),
    "simulate": ("slackswap.cli.simulate", "Score a plan file: simulate one iteration under it."),
    "compare": ("slackswap.cli.compare", "Rank planners on one profile and budget."),
    "run": ("slackswap.cli.run", "Train a model under a plan; compare with the prediction."),
    "bound": ("slackswap.cli.bound", "Prove how fast any plan can be at most."),
    "profiles": ("slackswap.cli.profiles", "List, show, export, import and capture profiles."),
    "hardware": ("slackswap.cli.hardware", "List and show devices with their host links."),
    "planners": ("slackswap.cli.planners", "List planners, start a new one, check one."),
    "evaluate": ("slackswap.cli.evaluate", "Run a suite: many planners, profiles and budgets."),
    "results": ("slackswap.cli.results", "Show, merge and export the results of suites."),
}


class LazyGroup(TyperGroup):
    """A group that knows its commands' names and help lines, and imports one to run it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, (_, line) in COMMANDS.items():
            self.commands[name] = TyperCommand(name=name, help=line)

    def resolve_command(
        self, ctx: Any, args: list[str]
    ) -> tuple[str | None, Any, list[str]]:
        """Replace the stand-in of a command by the command itself."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in COMMANDS:
            command = _loaded(name)
        return name, command, rest


def _loaded(name: str) -> Any:
    module = importlib.import_module(COMMANDS[name][0])
    part: typer.Typer = module.app
    # As the root does, wherever the module did not say.
    part.rich_markup_mode = None
    part._add_completion = False
    part.info.context_settings = _CONTEXT
    for registered in part.registered_commands:
        registered.context_settings = registered.context_settings or _CONTEXT
    command = get_command(part)
    command.name = name
    return command


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich panels double the time of --help
    context_settings=_CONTEXT,
)


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", help="Print the version."),
    debug: bool = typer.Option(
        False, _DEBUG, help=f"Show tracebacks; also by the variable {_DEBUG_ENVIRONMENT}."
    ),
    show_completion: str = typer.Option(
        None, _COMPLETION, metavar="SHELL",
        help=f"Print what completes commands in a shell ({', '.join(_SHELLS)}); for bash: "
        f'eval "$(slackswap {_COMPLETION} bash)".',
    ),
) -> None:
    """Plan which saved activations of a training step to keep, swap or recompute.

    Start with: slackswap plan bert-large --budget 50%

    Exit codes: 0 answered, 2 bad input or something it needs is missing, 3 no feasible plan (plan,
    compare, simulate, bound and run), 4 a run whose bits or memory are wrong, 130 interrupted, 1
    anything else that is wrong.
    """


def main(arguments: Sequence[str]) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str
        What follows ``slackswap`` on the command line.

    Returns
    -------
    int
        The exit code: 0 answered, 2 bad input, 3 no feasible plan, 4 a run whose bits or memory
        are wrong, 130 interrupted, 1 a bug.
    """
    words, debug = _without_debug(arguments)
    as_json = "--json" in words
    if words[:1] == [_COMPLETION]:
        return _complete(words[1:])
    if _COMPLETION_ENVIRONMENT in os.environ:
        return _answer_shell()
    if words == ["--version"]:
        from slackswap import __version__

        print(__version__)
        return 0
    try:
        code = get_command(app)(args=words or ["--help"], prog_name="slackswap",
                                standalone_mode=False)
    except SlackSwapError as error:
        if debug:
            raise
        return _failed(error, as_json)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except typer.TyperException as error:
        return _misused(error, as_json)
    except typer.Abort:
        code = INTERRUPTED
    except Exception as error:
        if debug:
            raise
        return _broken(error, as_json)
    if code == INTERRUPTED:
        _say("interrupted", "", as_json, kind="Interrupted")
    return int(code or 0)


def _complete(words: Sequence[str]) -> int:
    """Print the script by which a shell asks for completions; that of ``$SHELL`` without a name."""
    shell = words[0] if words else os.path.basename(os.environ.get("SHELL", ""))
    if shell not in _SHELLS:
        _say(f"{_COMPLETION}: {shell!r} is no shell that is known", f"use {', '.join(_SHELLS)}",
             False, kind="Usage")
        return SlackSwapError.exit_code
    os.environ[_COMPLETION_ENVIRONMENT] = f"source_{shell}"
    try:
        return _answer_shell()
    finally:
        del os.environ[_COMPLETION_ENVIRONMENT]


def _answer_shell() -> int:
    # Typer registers the shells it knows when it adds its own options; ours take their place.
    app._add_completion = True
    try:
        return int(get_command(app)(args=[], prog_name="slackswap") or 0)
    except SystemExit as left:
        return int(left.code or 0)
    finally:
        app._add_completion = False


def run() -> None:
    """Run the command line of this process and leave it with an exit code."""
    # So that `--planner my_module:Name` finds a module of this folder. Last, so that no file here
    # takes the place of an installed module.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    _keep_native_prints_off_output()
    _print_what_the_terminal_cannot()
    sys.exit(main(sys.argv[1:]))


#: ASCII for characters that our own texts use.
_SPELT_OUT = {"…": "...", "µ": "u", "×": "x", "–": "-", "—": "-", "→": "->", "≤": "<=", "≥": ">=",
              "─": "-", "√": "sqrt", "·": "*"}


def _print_what_the_terminal_cannot() -> None:
    """Spell out characters that standard output or standard error has no code for."""

    def spelt_out(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        missing = error.object[error.start : error.end]
        return "".join(_SPELT_OUT.get(each, "?") for each in missing), error.end

    codecs.register_error("slackswap", spelt_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="slackswap")


def _keep_native_prints_off_output() -> None:
    """Point file descriptor 1 at standard error, and `sys.stdout` at what it pointed at before.

    Solvers in C++ print debugging lines now and then, whatever their options say. They must not end
    up between the braces of ``--json``.
    """
    try:
        sys.stdout.flush()
        output = os.dup(1)
        os.dup2(2, 1)
    except (OSError, AttributeError):
        return  # one of the two is closed
    sys.stdout = open(  # noqa: SIM115
        output, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors,
        buffering=1 if sys.stdout.isatty() else -1,
    )


def _without_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    words = list(arguments)
    flags = words[: words.index("--")] if "--" in words else words
    wanted = _DEBUG in flags or os.environ.get(_DEBUG_ENVIRONMENT, "") not in ("", "0")
    if _DEBUG in flags:
        words.remove(_DEBUG)
    return words, wanted


def _failed(error: SlackSwapError, as_json: bool) -> int:
    place = f"{error.where}: " if error.where else ""
    _say(f"{place}{error.what}", error.fix, as_json, kind=type(error).__name__,
         status=_status(error), where=error.where, what=error.what)
    return error.exit_code


def _status(error: SlackSwapError) -> str:
    from slackswap.errors import Infeasible, Skipped

    if isinstance(error, Infeasible):
        return "infeasible"
    return "skipped" if isinstance(error, Skipped) else "error"


def _misused(error: typer.TyperException, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "slackswap"
    message = error.format_message().rstrip(".")
    if message == "Missing command" and context is not None:
        print(context.get_help(), end="\n\n", file=sys.stderr)
    _say(f"{message[:1].lower()}{message[1:]}", f"see `{path} --help`", as_json, kind="Usage")
    return error.exit_code


def _broken(error: Exception, as_json: bool) -> int:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    _say(
        f"unexpected {type(error).__name__}{place}: {error}",
        f"this is a bug in slackswap or in a planner; please report it with the output of the "
        f"same command and {_DEBUG}",
        as_json,
        kind=type(error).__name__,
    )
    return BUG


def _say(
    message: str, fix: str, as_json: bool, *, kind: str, status: str = "error", where: str = "",
    what: str | None = None,
) -> None:
    """Print an error: for people on standard error, and with --json as an object on output."""
    from slackswap.cli.output import note

    note(f"error: {message}")
    if fix:
        note(f"  fix: {fix}")
    if as_json:
        from slackswap.cli.output import print_json

        print_json({"status": status, "error": kind, "where": where,
                    "what": message if what is None else what, "fix": fix})


if __name__ == "__main__":
    run()
