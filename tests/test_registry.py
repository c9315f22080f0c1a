"""Planners by name, class, function, module and file."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest

from slackswap import (
    Capabilities,
    InvalidPlanner,
    Plan,
    Planner,
    UnknownName,
    planner_names,
    register,
    resolve_planner,
    unregister,
)
from slackswap.registry import BUILT_IN, parameters_of


@dataclass(frozen=True, slots=True)
class Mine:
    """Keeps everything, with parameters to show."""

    name: ClassVar[str] = "mine"
    version: ClassVar[str] = "3"
    capabilities: ClassVar[Capabilities] = Capabilities(uses_swap=False)

    slots: int = 10
    mode: str = "fast"

    def plan(self, problem, *, rng, time_limit, report):
        return Plan()


@pytest.fixture(autouse=True)
def _forget():
    before = planner_names()
    yield
    for name in set(planner_names()) - set(before):
        unregister(name)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_planners_load_and_carry_the_name_they_are_known_by(name):
    planner = resolve_planner(name)
    assert planner.name == name
    assert isinstance(planner, Planner)
    assert isinstance(planner.capabilities, Capabilities)
    assert planner.version
    assert type(planner)() == planner
    assert type(planner).__doc__


def test_listing_names_imports_no_planner():
    code = (
        "import sys, slackswap; slackswap.planner_names();"
        "print([m for m in sys.modules if m.startswith(('slackswap.planners', "
        "'slackswap.search', 'numpy'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_class_registers_under_its_own_name():
    assert register(Mine) is Mine
    assert "mine" in planner_names()
    assert resolve_planner("mine") == Mine()


def test_a_function_registers_under_its_name_with_dashes_or_a_given_one():
    @register
    def keep_it(problem, *, rng, time_limit, report):
        return Plan()

    @register("other", version="7", capabilities=Capabilities(deterministic=False))
    def keep_too(problem, *, rng, time_limit, report):
        return Plan()

    assert resolve_planner("keep-it").name == "keep-it"
    other = resolve_planner("other")
    assert (other.version, other.capabilities.deterministic) == ("7", False)
    assert other.plan(None, rng=None, time_limit=None, report=None) == Plan()


def test_registering_again_replaces_and_forgetting_restores():
    @register("keep-all")
    def first(problem, *, rng, time_limit, report):
        return Plan()

    @register("keep-all")
    def second(problem, *, rng, time_limit, report):
        return Plan(offload_barriers=(1,))

    assert resolve_planner("keep-all").plan(None, rng=None, time_limit=None, report=None) == (
        Plan(offload_barriers=(1,))
    )
    unregister("keep-all")
    assert type(resolve_planner("keep-all")).__module__ == "slackswap.planners.trivial"
    unregister("keep-all")


def test_parameters_replace_fields():
    planner = resolve_planner(Mine, slots=3)
    assert (planner.slots, planner.mode) == (3, "fast")
    assert parameters_of(planner) == {"slots": 3, "mode": "fast"}
    assert resolve_planner(Mine(mode="slow"), slots=4) == Mine(4, "slow")
    with pytest.raises(InvalidPlanner, match="did you mean 'slots'") as caught:
        resolve_planner(Mine, slot=3)
    assert "slots, mode" in caught.value.fix


def test_a_function_has_no_parameters():
    def plan(problem, *, rng, time_limit, report):
        return Plan()

    with pytest.raises(InvalidPlanner, match="no parameter 'x'"):
        resolve_planner(plan, x=1)


def test_module_and_file(tmp_path, monkeypatch):
    source = (
        "from slackswap import Plan\n"
        "def plan_it(problem, *, rng, time_limit, report):\n    return Plan()\n"
    )
    (tmp_path / "some_module_of_mine.py").write_text(source)
    assert resolve_planner(f"{tmp_path}/some_module_of_mine.py:plan_it").name == "plan-it"
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve_planner("some_module_of_mine:plan_it").name == "plan-it"


def test_a_file_is_read_anew_and_two_of_one_name_stay_apart(tmp_path):
    body = "def plan(problem, *, rng, time_limit, report):\n    return {}\n"
    for folder, value in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p.py").write_text(body.format(value))
    a, b = (resolve_planner(f"{tmp_path}/{folder}/p.py:plan") for folder in ("a", "b"))
    assert [p.plan(None, rng=0, time_limit=0, report=0) for p in (a, b)] == [1, 2]
    (tmp_path / "a" / "p.py").write_text(body.format(33))
    changed = resolve_planner(f"{tmp_path}/a/p.py:plan")
    assert changed.plan(None, rng=0, time_limit=0, report=0) == 33


class _Lacking:
    name = "lacking"

    def plan(self, problem, *, rng, time_limit, report):
        return Plan()


class _WrongFlags(_Lacking):
    version = "1"
    capabilities = "all"


class _Demanding(_Lacking):
    version = "1"
    capabilities = Capabilities()

    def __init__(self, slots):
        self.slots = slots


class _OldSignature(_Lacking):
    version = "1"
    capabilities = Capabilities()

    def plan(self, problem):
        return Plan()


@pytest.mark.parametrize(
    ("target", "what"),
    [
        (_Lacking, "lacks version, capabilities"),
        (_WrongFlags, "not a slackswap.Capabilities"),
        (_Demanding, "cannot be made without arguments"),
        (_OldSignature, "does not take"),
        (lambda problem: Plan(), "does not take"),
        (5, "is not a planner"),
        ("no_such_module:Thing", "cannot be imported"),
        ("slackswap.planners.trivial:Nothing", "no 'Nothing'"),
        ("/no/such/file.py:Thing", "no file"),
    ],
)
def test_what_is_no_planner_says_why(target, what):
    with pytest.raises(InvalidPlanner) as caught:
        resolve_planner(target)
    assert what in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize("name", ["keepall", "slack-swap", "nothing-like-it", "", "a/b.py"])
def test_unknown_names_suggest_a_close_one(name):
    with pytest.raises(UnknownName) as caught:
        resolve_planner(name)
    if name in ("keepall", "slack-swap"):
        assert "did you mean" in str(caught.value)
    assert "planners list" in caught.value.fix


def test_a_file_with_a_fault_is_a_typed_error(tmp_path):
    (tmp_path / "bad.py").write_text("import nothing_of_the_kind\n")
    with pytest.raises(InvalidPlanner, match="nothing_of_the_kind"):
        resolve_planner(f"{tmp_path}/bad.py:X")
    (tmp_path / "worse.py").write_text("def f(:\n")
    with pytest.raises(InvalidPlanner, match="SyntaxError"):
        resolve_planner(f"{tmp_path}/worse.py:X")


def test_entry_points_of_other_packages(tmp_path, monkeypatch):
    info = tmp_path / "third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[slackswap.planners]\ntheirs = third_party_planner:Theirs\nbroken = not_there:X\n"
    )
    (tmp_path / "third_party_planner.py").write_text(
        "from slackswap import Capabilities, Plan\n"
        "class Theirs:\n"
        "    name, version, capabilities = 'theirs', '1', Capabilities()\n"
        "    def plan(self, problem, *, rng, time_limit, report):\n        return Plan()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert {"theirs", "broken"} <= set(planner_names())
    assert resolve_planner("theirs").name == "theirs"
    with pytest.raises(InvalidPlanner, match="entry point 'broken'"):
        resolve_planner("broken")
