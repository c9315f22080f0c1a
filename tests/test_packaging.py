"""The wheel holds every module, and works from another folder than the sources."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from slackswap import __version__

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
FOLDERS = SETUPTOOLS["package-dir"]


def folder_of(package: str) -> Path:
    """Where the sources of an installed package stand."""
    for name in sorted(FOLDERS, key=len, reverse=True):
        if package == name or package.startswith(f"{name}."):
            return ROOT / FOLDERS[name] / package.removeprefix(name).lstrip(".").replace(".", "/")
    raise AssertionError(package)


def expected_files() -> set[str]:
    """Every file that the installed package must hold, by its path in the wheel."""
    suffixes = (".py", ".pyi", ".json", ".json.gz", ".toml", ".j2", ".css", ".js", "py.typed")
    found = set()
    for package, folder in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.name.endswith(suffixes) and "__pycache__" not in path.parts:
                inside = path.relative_to(ROOT / folder).as_posix()
                found.add(f"{package.replace('.', '/')}/{inside}")
    return found


def test_every_folder_with_modules_is_a_declared_package():
    declared = {folder_of(package) for package in SETUPTOOLS["packages"]}
    for folder in FOLDERS.values():
        for path in (ROOT / folder).rglob("*.py"):
            if "__pycache__" not in path.parts:
                assert path.parent in declared, f"{path.parent} is missing from [tool.setuptools]"
    for folder in declared:
        assert (folder / "__init__.py").is_file(), folder


def test_the_version_is_said_once_and_the_same():
    assert PYPROJECT["project"]["version"] == __version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build from a copy, so that no build folder is left beside the sources."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for folder in sorted(set(FOLDERS.values())):
        shutil.copytree(ROOT / folder, source / folder,
                        ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--no-index", "--wheel-dir", str(target), str(source)],
        capture_output=True, text=True, check=False,
    )
    if "setuptools" in done.stderr and "No module named" in done.stderr:
        pytest.skip("setuptools is not installed here, so no wheel can be built offline")
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """Install into a folder of its own, without the dependencies that are here already."""
    target = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target",
         str(target), str(wheel)],
        check=True,
    )
    return target


def run(installed: Path, folder: Path, *arguments: str) -> str:
    """Run Python in a folder with the installed wheel before everything else."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_holds_every_file_and_no_other(wheel):
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected_files()


@pytest.mark.slow
def test_the_wheel_declares_command_types_and_licence(wheel):
    archive = zipfile.ZipFile(wheel)
    about = {name.rpartition("/")[2]: archive.read(name).decode() for name in archive.namelist()
             if ".dist-info/" in name}
    assert "slackswap = slackswap.cli.main:run" in about["entry_points.txt"]
    assert "LICENSE" in about
    assert about["top_level.txt"].split() == ["slackswap"]
    assert "slackswap/py.typed" in archive.namelist()


@pytest.mark.slow
def test_every_module_can_be_imported_from_another_folder(installed, tmp_path):
    optional = {"torch": "slackswap.profiles.capture."}
    names = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in expected_files() if name.endswith(".py")
    )
    missing = json.loads(run(
        installed, tmp_path, "-c",
        "import importlib, json, sys\n"
        "missing = {}\n"
        f"for name in {names}:\n"
        "    try:\n"
        "        module = importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error:\n"
        "        missing[name] = error.name\n"
        "        continue\n"
        f"    assert module.__file__.startswith({str(installed)!r}), module.__file__\n"
        "print(json.dumps(missing))\n",
    ))
    for name, library in missing.items():
        assert library in optional, (name, library)
        assert name.startswith(optional[library]), (name, library)


@pytest.mark.slow
def test_the_installed_command_plans_scores_and_lists(installed, tmp_path):
    command = ("-m", "slackswap.cli.main")
    document = json.loads(run(installed, tmp_path, *command, "plan", "gpt-neo-2.7b-a100", "-b",
                              "60%", "--bound", "none", "-o", "plan.json", "--json"))
    assert document["feasible"]
    scored = json.loads(run(installed, tmp_path, *command, "simulate", "gpt-neo-2.7b-a100",
                            "plan.json", "-b", "60%", "--json"))
    assert scored["iteration_ns"] == document["iteration_ns"]
    assert "keep-all" in run(installed, tmp_path, *command, "planners", "list")


@pytest.mark.slow
def test_a_new_planner_works_against_the_installed_package(installed, tmp_path):
    command = ("-m", "slackswap.cli.main")
    run(installed, tmp_path, *command, "planners", "new", "my-planner")
    checked = run(installed, tmp_path, *command, "planners", "check", "my_planner.py:MyPlanner",
                  "--time-limit", "30")
    assert " 0 failed" in checked
