"""The entry point: help, exit codes, interruption, and what happens to a bug."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from slackswap import BoundViolated, Infeasible, Skipped, SolverFailed, __version__
from slackswap.cli import main as entry
from slackswap.cli.main import COMMANDS, main

PLAN = ("plan", "small.json", "--budget", "90%", "--bound", "none")


def failing(monkeypatch, error):
    def solve(*args, **kwargs):
        raise error

    monkeypatch.setattr("slackswap.evaluation.run.isolated.solve", solve)


def test_help_lists_every_command(cli):
    for arguments in ((), ("--help",), ("-h",)):
        result = cli(*arguments)
        assert result.code == 0
        for command, (_, line) in COMMANDS.items():
            assert command in result.out
            assert line in result.out
        assert "3 no feasible plan" in " ".join(result.out.split())
        assert result.err == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_in_one_style(cli, command):
    result = cli(command, "--help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: slackswap {command} ")
    assert "╭" not in result.out
    assert "--install-completion" not in result.out
    assert max(map(len, result.out.splitlines())) <= 100


def test_help_of_the_root_and_of_a_group_show_no_more_than_they_must(cli):
    assert "--batch" not in cli("profiles", "--help").out
    assert "--batch" in cli("profiles", "export", "--help").out


def test_version(cli):
    assert cli("--version").out.strip() == __version__


def test_a_mistyped_command_is_suggested(cli):
    result = cli("plna")
    assert result.code == 2
    assert "no such command 'plna'" in result.err
    assert "'plan'" in result.err


def test_the_installed_command_is_this_one():
    (script,) = entry_points(group="console_scripts", name="slackswap")
    assert script.load() is entry.run


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (Infeasible("no way", where="budget", fix="raise it"), 3, "infeasible"),
        (Skipped("no solver"), 2, "skipped"),
        (SolverFailed("the solver stopped"), 2, "error"),
        (BoundViolated("a bound is wrong"), 2, "error"),
    ],
)
def test_typed_errors_become_exit_codes_and_objects(here, cli, monkeypatch, error, code, status):
    failing(monkeypatch, error)
    result = cli(*PLAN, "--json")
    assert result.code == code == error.exit_code
    assert result.json["status"] == status
    assert result.json["what"] == error.what
    assert result.err.startswith("error: ")
    assert error.what in result.err


def test_an_interrupted_command_says_so_and_no_more(here, cli, monkeypatch):
    failing(monkeypatch, KeyboardInterrupt())
    result = cli(*PLAN)
    assert (result.code, result.out, result.err) == (130, "", "error: interrupted\n")
    assert cli(*PLAN, "--json").json["status"] == "error"


def test_a_bug_is_one_line_and_a_request(here, cli, monkeypatch):
    failing(monkeypatch, ZeroDivisionError("of zero"))
    result = cli(*PLAN, "--json")
    assert result.code == 1
    assert "Traceback" not in result.err
    assert "unexpected ZeroDivisionError" in result.err
    assert "report" in result.err
    assert "--debug" in result.err
    assert result.json["error"] == "ZeroDivisionError"


def test_debug_shows_the_traceback(here, monkeypatch):
    failing(monkeypatch, ZeroDivisionError("of zero"))
    with pytest.raises(ZeroDivisionError):
        main([*PLAN, "--debug"])
    with pytest.raises(ZeroDivisionError):
        main(["--debug", *PLAN])
    monkeypatch.setenv("SLACKSWAP_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(list(PLAN))
    monkeypatch.setenv("SLACKSWAP_DEBUG", "0")
    assert main(list(PLAN)) == 1


def test_run_leaves_with_the_code_of_the_command(here, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["slackswap", "plan", "small.json", "-b", "what"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as left:
        entry.run()
    assert left.value.code == 2
    assert "'what'" in capsys.readouterr().err


def test_a_closed_pipe_is_no_error(here):
    """As in `slackswap profiles list | head -1`."""
    done = subprocess.run(
        f"{sys.executable} -m slackswap.cli.main profiles list | head -1",
        shell=True, capture_output=True, text=True, check=False,
    )
    assert "name" in done.stdout
    assert "Traceback" not in done.stderr


def test_output_is_plain_where_it_is_not_a_terminal(here):
    done = subprocess.run(
        [sys.executable, "-m", "slackswap.cli.main", "compare", "small.json", "-b", "60%",
         "-p", "slackswap", "-p", "keep-all"],
        capture_output=True, text=True, check=True,
    )
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_one_object_and_nothing_else_on_standard_output(here):
    done = subprocess.run(
        [sys.executable, "-m", "slackswap.cli.main", "plan", "small.json", "-b", "60%", "--json"],
        capture_output=True, text=True, check=True,
    )
    assert json.loads(done.stdout)["profile"] == "small"


def test_what_native_code_prints_stays_off_standard_output(here):
    """As HiGHS does in SciPy, whatever its options say."""
    Path("chatty.py").write_text(
        "import os\nfrom slackswap import Plan\n"
        "def chat(problem, *, rng, time_limit, report):\n"
        "    os.write(1, b'debug line of a solver')\n    return Plan()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "slackswap.cli.main", "plan", "small.json", "-b", "100%", "--json",
         "-p", "chatty:chat"],
        capture_output=True, text=True, check=True,
    )
    assert json.loads(done.stdout)["planner"] == "chat"
    assert "debug line of a solver" in done.stderr


def test_a_module_of_this_folder_is_found_and_shadows_nothing(here):
    script = Path(sys.executable).with_name("slackswap")
    if not script.exists():
        pytest.skip("the command is not installed beside the interpreter")
    Path("own_module.py").write_text(
        "from slackswap import Plan\n"
        "def plan_it(problem, *, rng, time_limit, report):\n    return Plan()\n"
    )
    Path("json.py").write_text("raise SystemExit('shadowed')\n")
    done = subprocess.run(
        [str(script), "plan", "small.json", "-b", "100%", "-p", "own_module:plan_it", "--bound",
         "none"],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "plan-it" in done.stdout


def spawned(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "slackswap", *arguments], capture_output=True, text=True,
        env=os.environ | environment, check=False,
    )


def test_the_package_runs_as_a_module(here):
    done = spawned("--version")
    assert (done.returncode, done.stdout.strip()) == (0, __version__)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_shown(here, shell):
    done = spawned("--show-completion", shell)
    assert done.returncode == 0, done.stderr
    assert f"_SLACKSWAP_COMPLETE=complete_{shell}" in done.stdout
    assert spawned("--show-completion", SHELL=f"/bin/{shell}").stdout == done.stdout


def test_a_shell_nobody_knows_is_refused(cli):
    result = cli("--show-completion", "tcsh")
    assert result.code == 2
    assert "'tcsh'" in result.err


@pytest.mark.parametrize(
    ("line", "number", "completed"),
    [
        ("slackswap pl", 1, ["plan", "planners"]),
        ("slackswap profiles ex", 2, ["export"]),
        ("slackswap plan bert-large --bud", 3, ["--budget"]),
        ("slackswap profiles export --ba", 3, ["--batch"]),
        ("slackswap plan llama3", 2, ["llama3-8b", "llama3-8b-as-written"]),
        ("slackswap plan bert-large --planner chen", 4, ["chen-greedy", "chen-sqrt"]),
        ("slackswap plan bert-large --hardware h100-s", 4, ["h100-sxm"]),
    ],
)
def test_commands_options_and_names_are_completed(here, line, number, completed):
    done = spawned(COMP_WORDS=line, COMP_CWORD=str(number), _SLACKSWAP_COMPLETE="complete_bash")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[: len(completed)] == completed


def test_a_terminal_without_the_characters_is_no_error(here):
    done = spawned("profiles", "show", "bert-large", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "us per MB" in done.stdout
    assert done.stdout.isascii()
    wrong = spawned("plan", "…µ", "-b", "50%", "--json", PYTHONIOENCODING="ascii")
    assert wrong.returncode == 2
    assert "'...u'" in wrong.stderr
    assert "'…µ'" in json.loads(wrong.stdout)["what"]


def test_commands_that_exit_with_3_say_so_in_their_help_and_no_others_do(cli):
    for command, (module, _) in COMMANDS.items():
        source = Path(importlib.import_module(module).__file__ or "").read_text(encoding="utf-8")
        said = " ".join(cli(command, "--help").out.split())
        assert ("typer.Exit(3)" in source) == ("Exit code 3:" in said), command
