"""Who may import whom, and what stays unimported until it is needed."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: Folder at the root, package it installs as, and floor; a module may import from its own room
#: and from lower floors.
ROOMS = {
    "slackswap": ("slackswap", 0),
    "profiles": ("slackswap.profiles", 1),
    "planners": ("slackswap.planners", 1),
    "search": ("slackswap.search", 2),
    "execution": ("slackswap.execution", 2),
    "evaluation": ("slackswap.evaluation", 3),
    "cli": ("slackswap.cli", 4),
}

HEAVY = ("numpy", "scipy", "pandas", "pyarrow", "numba", "llvmlite", "torch", "transformers",
         "ortools", "plotly", "pydantic", "deap", "pebble", "jinja2")


def sources() -> dict[str, Path]:
    """Every module of the package by its installed name."""
    found = {}
    for folder, (package, _) in ROOMS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join((package, *parts)).removesuffix(".__init__")
            found[name] = path
    return found


SOURCES = sources()


def room_of(module: str) -> str:
    """The package of the rooms that a module belongs to."""
    packages = sorted((package for package, _ in ROOMS.values()), key=len, reverse=True)
    return next(
        package for package in packages if module == package or module.startswith(f"{package}.")
    )


FLOOR_OF = dict(ROOMS.values())


def imported(name: str) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything a module imports, anywhere in it."""
    path = SOURCES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join((*anchor, base)).rstrip(".")
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield node.lineno, whole if whole in SOURCES else base


def fresh(code: str) -> object:
    """Run code in a new interpreter and return what it prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_the_rooms_are_all_found():
    assert len(SOURCES) > 60
    for package in FLOOR_OF:
        assert package in SOURCES


@pytest.mark.parametrize("name", SOURCES)
def test_imports_run_one_way(name):
    own = room_of(name)
    for line, target in imported(name):
        if target == "slackswap" or target.startswith("slackswap."):
            room = room_of(target)
            assert room == own or FLOOR_OF[room] < FLOOR_OF[own], (
                f"{SOURCES[name]}:{line} imports {target}: {own} stands on floor {FLOOR_OF[own]}, "
                f"{room} on floor {FLOOR_OF[room]}"
            )


@pytest.mark.parametrize("name", SOURCES)
def test_nothing_imports_a_room_by_its_folder(name):
    """From the root, `import planners` would give a second copy of each class."""
    folders = set(ROOMS) - {"slackswap"}
    for line, target in imported(name):
        assert target.split(".")[0] not in folders, f"{SOURCES[name]}:{line} imports {target}"


def test_the_rule_would_notice(monkeypatch, tmp_path):
    for text, bad in (
        ("def f():\n    from slackswap.planners.trivial import KeepAll\n", True),
        ("from slackswap import profiles\n", False),
        ("from . import catalogue\nfrom ..search import bounds\n", True),
        ("import slackswap.cli.main as m\n", True),
        ("from slackswap.profile import Profile\n", False),
    ):
        path = tmp_path / "x.py"
        path.write_text(text)
        monkeypatch.setitem(SOURCES, "slackswap.profiles.x", path)
        if bad:
            with pytest.raises(AssertionError, match="floor"):
                test_imports_run_one_way("slackswap.profiles.x")
        else:
            test_imports_run_one_way("slackswap.profiles.x")


PACKAGES = [name for name, path in SOURCES.items() if path.name == "__init__.py"]


@pytest.mark.parametrize("name", PACKAGES)
def test_public_names_exist_and_none_is_that_of_a_module(name):
    package = importlib.import_module(name)
    public = getattr(package, "__all__", ())
    assert len(set(public)) == len(public)
    for entry in public:
        value = getattr(package, entry)
        # The import system would put the module in the function's place.
        assert inspect.ismodule(value) or f"{name}.{entry}" not in SOURCES, entry
    assert set(public) <= set(dir(package))


@pytest.mark.parametrize("name", SOURCES)
def test_every_module_says_what_it_is(name):
    tree = ast.parse(SOURCES[name].read_text(encoding="utf-8"))
    text = ast.get_docstring(tree) or ""
    assert len(text) > 15, name


@pytest.mark.parametrize(
    "code",
    [
        "import slackswap",
        "import slackswap; slackswap.planner_names()",
        "import slackswap.planners, slackswap.search, slackswap.profiles, slackswap.evaluation",
        "import slackswap.execution",
        "import slackswap.cli.main",
    ],
)
def test_importing_stays_light(code):
    loaded = fresh(
        f"{code}\nimport json, sys\n"
        f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    assert loaded == []


#: Typer's own, to read parameters with.
PARSER = {"pydantic"}


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [(["--help"], set()), ([], set()), (["--version"], set()), (["plan"], PARSER),
     (["plna"], PARSER)],
)
def test_the_command_line_stays_light_until_it_works(arguments, allowed):
    loaded = fresh(
        "import contextlib, io, json, sys\n"
        "from slackswap.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):"
        f"\n    main({arguments})\n"
        f"print(json.dumps([name for name in {(*HEAVY, 'rich')} if name in sys.modules]))"
    )
    assert set(loaded) <= allowed


COMMANDS = ["plan", "simulate", "compare", "bound", "profiles", "planners", "evaluate", "results"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_imports_no_library(command):
    loaded = fresh(
        "import contextlib, io, json, sys\n"
        "from slackswap.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    assert main(['{command}', '--help']) == 0\n"
        f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    assert set(loaded) <= PARSER


def test_a_plan_needs_neither_torch_nor_pandas_nor_plotly():
    loaded = fresh(
        "import contextlib, io, json, sys\n"
        "from slackswap.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    assert main(['plan', 'bert-large', '--budget', '50%', '--bound', 'none']) == 0\n"
        "print(json.dumps([name for name in ('torch', 'pandas', 'plotly', 'deap') "
        "if name in sys.modules]))"
    )
    assert loaded == []


#: Import strings that may point upwards: the registry's table of planners, and what looks the
#: HTML renderer up. (Public names stand in ``__init__.pyi``, which imports nothing at run time.)
UPWARD_STRINGS = {"slackswap.registry", "slackswap.display", "slackswap.__main__"}


def import_strings(name: str) -> Iterator[tuple[int, str]]:
    """Line and module of every string in a module that names one of ours."""
    for node in ast.walk(ast.parse(SOURCES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if not re.fullmatch(r"slackswap(\.\w+)+(:\w+)?", node.value):
                continue
            target = node.value.partition(":")[0]
            while target and target not in SOURCES:
                target = target.rpartition(".")[0]
            if target and target != "slackswap":
                yield node.lineno, target


@pytest.mark.parametrize("name", sorted(set(SOURCES) - UPWARD_STRINGS))
def test_import_strings_run_one_way_too(name):
    own = room_of(name)
    for line, target in import_strings(name):
        room = room_of(target)
        assert room == own or FLOOR_OF[room] < FLOOR_OF[own], f"{SOURCES[name]}:{line}: {target}"


def test_every_file_of_planners_registers_a_planner():
    from slackswap.registry import BUILT_IN

    registered = {target.partition(":")[0] for target in BUILT_IN.values()}
    files = {f"slackswap.planners.{path.stem}" for path in (ROOT / "planners").glob("*.py")}
    assert files - registered == {"slackswap.planners.__init__"}


@pytest.mark.parametrize("name", SOURCES)
def test_no_private_name_crosses_a_module(name):
    for node in ast.walk(ast.parse(SOURCES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("slackswap"):
            for alias in node.names:
                private = alias.name.startswith("_") and not alias.name.startswith("__")
                assert not private, f"{SOURCES[name]}:{node.lineno} imports {alias.name}"


def runtime_imports(name: str) -> set[str]:
    """Modules of ours that a module imports when it runs, late imports included."""
    tree = ast.parse(SOURCES[name].read_text(encoding="utf-8"))
    skipped = {
        node for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found = set()
    for node in ast.walk(tree):
        if node in skipped or not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            target = whole if whole in SOURCES else node.module
            if target in SOURCES and target != name:
                found.add(target)
    return found


def test_there_are_no_circles():
    graph = {name: runtime_imports(name) for name in SOURCES}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name):], name))
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*path, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())




def test_public_class_names_are_unique():
    homes: dict[str, list[str]] = {}
    for name, path in SOURCES.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
