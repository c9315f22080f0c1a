"""Where compiled functions are kept, and that the compiler says when it runs."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from slackswap import __version__, compiling

ROOT = Path(__file__).resolve().parents[2]

_FUNCTION = '''
from slackswap.compiling import compiled

@compiled
def twice(a):
    return 2 * a
'''
_CALL = "import slackswap_sample; print(slackswap_sample.twice({number}))"


@pytest.mark.parametrize(("platform", "environment", "expected"), [
    ("linux", {"HOME": "/home/ada"}, "/home/ada/.cache"),
    ("linux", {"HOME": "/home/ada", "XDG_CACHE_HOME": "/fast"}, "/fast"),
    ("linux", {"HOME": "/home/ada", "XDG_CACHE_HOME": "relative"}, "/home/ada/.cache"),
    ("darwin", {"HOME": "/Users/ada", "XDG_CACHE_HOME": "/fast"}, "/Users/ada/Library/Caches"),
    ("win32", {"USERPROFILE": "/Users/ada"}, "/Users/ada/AppData/Local"),
    ("win32", {"USERPROFILE": "/Users/ada", "LOCALAPPDATA": "/local"}, "/local"),
    ("linux", {}, None),
])
def test_the_platform_says_where_caches_are(platform, environment, expected):
    assert compiling.user_cache(environment, platform) == (expected and Path(expected))


@pytest.fixture
def project(tmp_path):
    """Two folders with the same module in them, and a home."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "slackswap_sample.py").write_text(_FUNCTION)
    (tmp_path / "home").mkdir()
    return tmp_path


def call(project: Path, checkout: str, number: int = 3, **environment: str) -> str:
    variables = {
        "PYTHONPATH": str(project / checkout), "PATH": "/usr/bin:/bin",
        "HOME": str(project / "home"), **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", _CALL.format(number=number)], env=variables, check=True,
        capture_output=True, text=True, cwd=project,
    )
    assert done.stderr == ""  # not a terminal
    return done.stdout.strip()


def kept(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.nbi"))


@pytest.mark.skipif(sys.platform != "linux", reason="the folder is named by the platform")
def test_results_lie_in_the_users_cache_apart_by_checkout_and_not_beside_the_source(project):
    assert call(project, "one") == "6"
    assert call(project, "two") == "6"
    cache = project / "home" / ".cache" / "slackswap" / f"compiled-{__version__}"
    assert len(kept(cache)) == 2
    assert len({index.parent for index in kept(cache)}) == 2
    assert not kept(project / "one")
    # A changed source is compiled anew.
    source = project / "one" / "slackswap_sample.py"
    source.write_text(_FUNCTION.replace("2 *", "3 *"))
    assert call(project, "one") == "9"
    assert call(project, "two") == "6"


@pytest.mark.skipif(sys.platform != "linux", reason="the folder is named by the platform")
def test_the_users_own_choice_is_respected(project):
    chosen = project / "chosen"
    assert call(project, "one", NUMBA_CACHE_DIR=str(chosen)) == "6"
    assert len(kept(chosen)) == 1
    assert not kept(project / "home")


@pytest.mark.skipif(sys.platform != "linux", reason="the folder is named by the platform")
def test_without_a_folder_to_write_to_nothing_is_kept(project):
    blocked = project / "file"
    blocked.write_text("no folder")
    assert call(project, "one", XDG_CACHE_HOME=str(blocked)) == "6"
    assert not kept(project)


def test_other_packages_functions_are_left_alone():
    from numba import config, njit

    found = config.CACHE_DIR

    @compiling.compiled
    def thrice(a):
        return 3 * a

    assert found == config.CACHE_DIR
    assert thrice(2) == njit(lambda a: 3 * a)(2) == 6


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_compiler_says_once_on_a_terminal_that_it_runs(monkeypatch):
    started = type("Started", (), {"data": {"dispatcher": compiling_of("slackswap.some")}})
    foreign = type("Started", (), {"data": {"dispatcher": compiling_of("theirs")}})
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    announcement = compiling.Announcement()
    announcement.on_start(foreign)
    assert terminal.getvalue() == ""
    announcement.on_start(started)
    announcement.on_start(started)
    assert terminal.getvalue().startswith("compiling the cost model")
    assert terminal.getvalue().count("\n") == 1
    silent = io.StringIO()
    monkeypatch.setattr(sys, "stderr", silent)
    compiling.Announcement().on_start(started)
    assert silent.getvalue() == ""


def compiling_of(module: str):
    def function():
        pass

    function.__module__ = module
    return type("Dispatcher", (), {"py_func": function})
