"""Bad input of every kind ends in a typed error that names the place and a remedy.

Through the API and through the command line: exit code 2, no traceback, no file left behind.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from samples import hardware_document, plan_document, profile_document

from slackswap import (
    Hardware,
    InvalidBudget,
    InvalidFile,
    InvalidHardware,
    InvalidPlan,
    InvalidProfile,
    Plan,
    Problem,
    Profile,
    SlackSwapError,
    UnknownName,
    load_hardware,
    load_profile,
    simulate,
)
from slackswap.cli.main import main


@dataclass(frozen=True)
class Bad:
    """A damaged file, the error it ends in, and words that the message must hold."""

    name: str
    write: Callable[[Path], None]
    error: type[SlackSwapError]
    words: tuple[str, ...]


def changed(document: Callable[[], dict[str, Any]], **paths: Any) -> Callable[[Path], None]:
    """Write a document with some values replaced; `forward__0__reads` is a path."""

    def write(path: Path) -> None:
        made = document()
        for place, value in paths.items():
            *parents, last = [int(k) if k.isdigit() else k for k in place.split("__")]
            target: Any = made
            for key in parents:
                target = target[key]
            if value is DELETE:
                del target[last]
            else:
                target[last] = value
        path.write_text(json.dumps(made))

    return write


def text(content: str | bytes) -> Callable[[Path], None]:
    data = content.encode() if isinstance(content, str) else content
    return lambda path: path.write_bytes(data)


def bomb(path: Path) -> None:
    """10 GB of nested brackets: a hundred gzip members of 100 MB."""
    path.write_bytes(gzip.compress(b"[" * 100_000_000, compresslevel=1) * 100)


def profile_text() -> str:
    return json.dumps(profile_document())


DELETE = object()
P = profile_document

PROFILES = [
    Bad("unknown index in reads", changed(P, forward__0__reads=[7]), InvalidProfile,
        ("forward[0] (fc1)", "tensor 7", "only 3 tensors", "0 to 2")),
    Bad("unknown index in writes", changed(P, forward__1__writes=[3]), InvalidProfile,
        ("forward[1] (fc2)", "tensor 3")),
    Bad("unknown index in backward", changed(P, backward__0__reads=[1, 99]), InvalidProfile,
        ("backward[0] (fc2.bwd)", "tensor 99")),
    Bad("two writers", changed(P, forward__1__writes=[1]), InvalidProfile,
        ("forward[1] (fc2)", "tensor 1 (h)")),
    Bad("two writers, two ops", changed(P, forward__1__reads=[0], forward__1__writes=[1]),
        InvalidProfile, ("forward[1] (fc2)", "already writes", "forward[0]")),
    Bad("read before written", changed(P, forward__0__reads=[2]), InvalidProfile,
        ("forward[1] (fc2)", "tensor 2 (y)", "reads before")),
    Bad("reads what it writes", changed(P, forward__0__reads=[0, 1]), InvalidProfile,
        ("forward[0] (fc1)", "tensor 1 (h)")),
    Bad("one name twice", changed(P, tensors__1__name="x"), InvalidProfile,
        ("tensors[1]", "'x'", "tensors[0]")),
    Bad("negative size", changed(P, tensors__1__nbytes=-16), InvalidProfile,
        ("tensors[1].nbytes", "-16")),
    Bad("negative duration", changed(P, forward__0__duration_ns=-5), InvalidProfile,
        ("forward[0].duration_ns", "-5")),
    Bad("negative index", changed(P, forward__0__reads=[-1]), InvalidProfile,
        ("forward[0].reads[0]", "-1")),
    Bad("fractional duration", changed(P, forward__0__duration_ns=5.5), InvalidProfile,
        ("forward[0].duration_ns", "5.5", "whole")),
    Bad("text for a number", changed(P, tensors__0__nbytes="8"), InvalidProfile,
        ("tensors[0].nbytes", '"8"', "whole")),
    Bad("null for a number", changed(P, tensors__0__nbytes=None), InvalidProfile,
        ("tensors[0].nbytes", "null")),
    Bad("enormous size", changed(P, tensors__0__nbytes=10**30), InvalidProfile,
        ("tensors[0].nbytes", "2^60")),
    Bad("carried beyond workspace", changed(P, backward__0__carried=13), InvalidProfile,
        ("fc2.bwd", "carried (13)", "workspace (12)")),
    Bad("NaN", text(profile_text().replace('"nbytes": 8', '"nbytes": NaN', 1)), InvalidFile,
        ("NaN",)),
    Bad("infinity", text(profile_text().replace("5,", "Infinity,", 1)), InvalidFile,
        ("Infinity",)),
    Bad("wrong schema", changed(P, schema="slackswap.profile/2"), InvalidProfile,
        ("schema", "slackswap.profile/1", "slackswap.profile/2")),
    Bad("a plan for a profile", changed(plan_document), InvalidProfile, ("schema",)),
    Bad("no schema", changed(P, schema=DELETE), InvalidProfile, ("schema", "missing", "add it")),
    Bad("no tensors", changed(P, tensors=DELETE), InvalidProfile, ("tensors",)),
    Bad("misspelled key", changed(P, forward__0__duration=5), InvalidProfile,
        ("forward[0].duration", "spelling")),
    Bad("unknown action", changed(P, tensors__2__allowed=["drop"]), InvalidProfile,
        ("tensors[2].allowed[0]", '"drop"', "'keep', 'swap' or 'recompute'")),
    Bad("unknown source", changed(P, source="dreamt"), InvalidProfile, ("source", "dreamt")),
    Bad("a list", text("[1, 2]"), InvalidProfile, ("document", "a list", "an object")),
    Bad("a key twice", text('{"schema": 1, "schema": 2}'), InvalidFile, ("'schema' stands twice",)),
    Bad("not JSON", text("profile: two-layers\n"), InvalidFile, ("not JSON", "line 1")),
    Bad("cut short", text(profile_text()[:-40]), InvalidFile, ("not JSON",)),
    Bad("empty", text(""), InvalidFile, ("is empty",)),
    Bad("binary", text(bytes(range(256))), InvalidFile, ("not UTF-8",)),
    Bad("truncated gzip", text(gzip.compress(profile_text().encode())[:-20]), InvalidFile,
        ("gzip", "cut short")),
    Bad("damaged gzip", text(gzip.compress(profile_text().encode())[:30] + b"\0" * 300),
        InvalidFile, ("gzip", "damaged")),
    Bad("a million brackets", text("[" * 1_000_000), InvalidFile, ("nested too deeply",)),
    Bad("a million braces", text('{"a":' * 1_000_000), InvalidFile, ("nested too deeply",)),
    Bad("digits without end", text('{"schema": ' + "9" * 100_000 + "}"), InvalidFile, ("digits",)),
]

PLANS = [
    Bad("for another profile", changed(plan_document, profile_sha256="ab" * 32), InvalidPlan,
        ("abababababab", "two-layers", "made for")),
    Bad("recomputes what cannot run again", changed(plan_document, actions={"h": "recompute"}),
        InvalidPlan, ("fc1", "run again", "keep or swap", "(h)")),
    Bad("unknown tensor", changed(plan_document, actions={"q": "keep"}), InvalidPlan,
        ("actions", "'q'", "two-layers")),
    Bad("action not allowed", changed(plan_document, actions={"y": "recompute"}), InvalidPlan,
        ("'y'", "keep, swap")),
    Bad("moves an input", changed(plan_document, actions={"x": "swap"}), InvalidPlan,
        ("'x'", "input")),
    Bad("unknown action", changed(plan_document, actions={"h": "drop"}), InvalidPlan,
        ("actions.h", '"drop"')),
    Bad("gate out of range", changed(plan_document, prefetch_gates={"h": 5}), InvalidPlan,
        ("prefetch_gates['h']", "backward op 5", "0 to 1")),
    Bad("barrier out of range", changed(plan_document, offload_barriers=[2]), InvalidPlan,
        ("offload_barriers", "forward op 2", "0 to 1")),
    Bad("negative gate", changed(plan_document, offload_gates={"h": -1}), InvalidPlan,
        ("offload_gates.h", "-1")),
    Bad("malformed identity", changed(plan_document, profile_sha256="XYZ"), InvalidPlan,
        ("profile_sha256", "64 hexadecimal")),
    Bad("a profile for a plan", changed(P), InvalidPlan, ("schema",)),
    Bad("wrong schema", changed(plan_document, schema="slackswap.plan/9"), InvalidPlan,
        ("schema", "slackswap.plan/1")),
    Bad("not JSON", text("keep everything"), InvalidFile, ("not JSON",)),
]

H = hardware_document
HARDWARE = [
    Bad("no bandwidth", changed(H, d2h_bytes_per_s=0), InvalidHardware, ("d2h_bytes_per_s", "0")),
    Bad("negative latency", changed(H, latency_ns=-1), InvalidHardware, ("latency_ns", "-1")),
    Bad("fractional bandwidth", changed(H, h2d_bytes_per_s=2.5e10), InvalidHardware,
        ("h2d_bytes_per_s",)),
    Bad("missing bandwidth", changed(H, h2d_bytes_per_s=DELETE), InvalidHardware,
        ("h2d_bytes_per_s", "missing")),
    Bad("text for a flag", changed(H, full_duplex="yes"), InvalidHardware,
        ("full_duplex", "yes", "true or false")),
    Bad("misspelled key", changed(H, latency=5), InvalidHardware, ("latency", "spelling")),
]


def ids(cases):
    return [case.name for case in cases]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder with a sound profile, plan and hardware in it."""
    monkeypatch.chdir(tmp_path)
    profile = profile_document()
    profile["forward"][0]["recomputable"] = False
    Path("good.json").write_text(json.dumps(profile))
    Path("plan.json").write_text(json.dumps(plan_document()))
    Path("hardware.json").write_text(json.dumps(hardware_document()))
    return tmp_path


def check_error(error: SlackSwapError, bad: Bad) -> None:
    assert type(error) is bad.error
    assert error.exit_code == 2
    assert "bad.json" in error.where
    assert error.fix
    message = str(error)
    for word in bad.words:
        assert word.lower() in message.lower(), message
    assert len(message) < 500


def check_command(capsys, arguments: list[str], bad: Bad, *, files_before: set[str]) -> None:
    """Exit code 2, one message on standard error, with --json one object; nothing written."""
    for as_json in (False, True):
        assert main([*arguments, *(["--json"] if as_json else [])]) == 2
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        assert printed.err.startswith("error: ")
        assert "\n  fix: " in printed.err
        for word in ("bad.json", *bad.words):
            assert word in printed.err
        if as_json:
            document = json.loads(printed.out)
            assert document["status"] == "error"
            assert document["error"] == bad.error.__name__
            assert document["what"]
            assert document["where"]
            assert document["fix"]
        else:
            assert printed.out == ""
    assert {path.name for path in Path.cwd().iterdir()} == files_before


def test_the_sound_files_are_sound(here, capsys):
    """Else every check below would pass for the wrong reason."""
    assert main(["simulate", "good.json", "plan.json", "-b", "200%",
                 "--hardware", "hardware.json"]) == 0
    assert main(["plan", "good.json", "-b", "200%", "-p", "keep-all", "-o", "out.json"]) == 0
    assert Plan.load("out.json").profile_sha256 == Profile.load("good.json").sha256
    capsys.readouterr()


@pytest.mark.parametrize("bad", PROFILES, ids=ids(PROFILES))
def test_profiles_by_the_api(here, bad):
    bad.write(here / "bad.json")
    with pytest.raises(SlackSwapError) as caught:
        load_profile("bad.json")
    check_error(caught.value, bad)


@pytest.mark.parametrize("bad", PROFILES, ids=ids(PROFILES))
def test_profiles_by_the_command_line(here, capsys, bad):
    bad.write(here / "bad.json")
    before = {path.name for path in here.iterdir()}
    check_command(capsys, ["plan", "bad.json", "--budget", "50%", "-o", "out.json"], bad,
                  files_before=before)


@pytest.mark.parametrize(
    "arguments",
    [["simulate", "bad.json", "plan.json", "-b", "50%", "--trace", "trace.json"],
     ["compare", "bad.json", "-b", "50%", "-p", "keep-all"],
     ["bound", "bad.json", "-b", "50%"],
     ["profiles", "show", "bad.json", "--plot", "plot.html"],
     ["profiles", "export", "bad.json", "-o", "out.json"],
     ["profiles", "import", "bad.json", "--format", "profile", "-o", "out.json"]],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_every_command_that_reads_a_profile(here, capsys, arguments):
    bad = PROFILES[0]
    bad.write(here / "bad.json")
    before = {path.name for path in here.iterdir()}
    check_command(capsys, arguments, bad, files_before=before)


@pytest.mark.parametrize("bad", PLANS, ids=ids(PLANS))
def test_plans_by_the_api(here, bad):
    bad.write(here / "bad.json")
    problem = Problem(Profile.load("good.json"), load_hardware("a100-80gb"))
    with pytest.raises(SlackSwapError) as caught:
        simulate(problem, Plan.load("bad.json"))
    assert type(caught.value) is bad.error
    for word in bad.words:
        assert word.lower() in str(caught.value).lower()


@pytest.mark.parametrize("engine", ["kernel", "reference"])
@pytest.mark.parametrize("bad", PLANS, ids=ids(PLANS))
def test_plans_by_the_command_line(here, capsys, bad, engine):
    bad.write(here / "bad.json")
    before = {path.name for path in here.iterdir()}
    check_command(
        capsys, ["simulate", "good.json", "bad.json", "--budget", "200%", "--trace", "trace.json",
                 "--engine", engine], bad, files_before=before,
    )


@pytest.mark.parametrize("bad", HARDWARE, ids=ids(HARDWARE))
def test_hardware_by_the_api(here, bad):
    bad.write(here / "bad.json")
    with pytest.raises(SlackSwapError) as caught:
        load_hardware("bad.json")
    check_error(caught.value, bad)


@pytest.mark.parametrize("bad", HARDWARE, ids=ids(HARDWARE))
def test_hardware_by_the_command_line(here, capsys, bad):
    bad.write(here / "bad.json")
    before = {path.name for path in here.iterdir()}
    check_command(capsys, ["plan", "good.json", "-b", "50%", "--hardware", "bad.json",
                           "-o", "out.json"], bad, files_before=before)


@pytest.mark.slow
def test_ten_gigabytes_of_nested_brackets(here, capsys):
    bad = Bad("bomb", bomb, InvalidFile, ("more than 536,870,912 bytes", "decompression"))
    bad.write(here / "bad.json")
    assert (here / "bad.json").stat().st_size < 60_000_000
    with pytest.raises(SlackSwapError) as caught:
        Profile.load("bad.json")
    check_error(caught.value, bad)
    before = {path.name for path in here.iterdir()}
    check_command(capsys, ["profiles", "show", "bad.json"], bad, files_before=before)


@pytest.mark.parametrize(
    ("budget", "words"),
    [("half", "'half'"), ("-5GB", "'-5GB'"), ("0", "positive"), ("1", "1B or 100%"),
     ("5 parsec", "'parsec'"), ("", "''"), ("nan", "'nan'")],
)
def test_budgets(here, capsys, budget, words):
    with pytest.raises(InvalidBudget):
        Problem(Profile.load("good.json"), load_hardware("a100-80gb"), budget)
    for command in ("plan", "compare", "bound"):
        assert main([command, "good.json", f"--budget={budget}", "--json"]) == 2
        printed = capsys.readouterr()
        assert words in printed.err
        assert json.loads(printed.out)["error"] == "InvalidBudget"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "bert-lage", "-b", "50%"], ("bert-lage", "did you mean 'bert-large'")),
        (["plan", "no/such/file.json", "-b", "50%"], ("no/such/file.json", "library")),
        (["plan", ".", "-b", "50%"], ("cannot be read",)),
        (["plan", "good.json", "-b", "50%", "--hardware", "a100"], ("a100-80gb",)),
        (["plan", "good.json", "-b", "50%", "-p", "slackswop"], ("did you mean 'slackswap",)),
        (["plan", "good.json", "-b", "50%", "-p", "mine.py:Mine"], ("no file mine.py",)),
        (["plan", "good.json", "-b", "50%", "-p", "json:dump"], ("does not take",)),
        (["plan", "good.json", "-b", "50%", "--param", "slots"], ("NAME=VALUE",)),
        (["plan", "good.json", "-b", "50%", "--param", "slots=3"], ("no parameter 'slots'",)),
        (["plan", "good.json", "-b", "50%", "--bound", "best"], ("'best'", "lp")),
        (["plan", "good.json", "-b", "50%", "--time-limit", "0"], ("not a positive",)),
        (["compare", "good.json", "-b", "50%", "-p", "keep-all", "-p", "nope"], ("nope",)),
        (["simulate", "good.json", "none.json", "-b", "50%"], ("none.json",)),
        (["simulate", "good.json", "plan.json", "-b", "50%", "--engine", "fast"],
         ("'fast'", "kernel or reference")),
        (["bound", "good.json", "-b", "50%", "--method", "guess"], ("'guess'", "milp")),
        (["profiles", "export", "good.json", "--batch", "3"], ("batch",)),
        (["profiles", "import", "good.json", "--format", "excel"], ("'excel'", "aceso")),
        (["profiles", "import", "plan.json"], ("no known format",)),
        (["planners", "check", "nope"], ("nope",)),
        (["planners", "new", "not a name"], ("not a name",)),
        (["plan", "good.json"], ("--budget",)),
        (["plan"], ("PROFILE",)),
        (["plan", "good.json", "-b", "50%", "--what"], ("--what",)),
        (["no-such-command"], ("no-such-command",)),
        (["profiles", "no-such-command"], ("no-such-command",)),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_command_lines(here, capsys, arguments, words):
    before = {path.name for path in here.iterdir()}
    assert main([*arguments, "--json"]) == 2
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    assert "error: " in printed.err
    for word in words:
        assert word in printed.err
    assert json.loads(printed.out)["status"] == "error"
    assert {path.name for path in here.iterdir()} == before


def test_a_group_without_a_command_shows_what_there_is(capsys):
    assert main(["profiles"]) == 2
    printed = capsys.readouterr()
    assert "missing command" in printed.err
    assert "import" in printed.err
    assert printed.out == ""


def test_output_that_cannot_be_written(here, capsys):
    for arguments in (
        ["plan", "good.json", "-b", "200%", "-p", "keep-all", "-o", "no/such/folder/plan.json"],
        ["simulate", "good.json", "plan.json", "-b", "200%", "--trace", "no/such/folder/t.json"],
        ["profiles", "export", "good.json", "-o", "no/such/folder/p.json"],
    ):
        assert main(arguments) == 2
        assert "cannot be written" in capsys.readouterr().err
    assert not (here / "no").exists()


def test_the_typed_errors_are_what_the_api_says():
    with pytest.raises(UnknownName):
        load_profile("bert-lage")
    with pytest.raises(InvalidHardware):
        Hardware("h", 0, 1)
