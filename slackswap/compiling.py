"""The compiler of numba: where it keeps its results, and that it says when it runs.

Every module with compiled functions takes its decorators from here.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
from numba import config
from numba.core import event

from slackswap import __version__

#: The interpreter lock is not needed; integer division needs no check for zero.
_OPTIONS: Mapping[str, Any] = {"nogil": True, "error_model": "numpy"}
#: Without numba's run time, which counts references to every array that a call passes, atomically:
#: with the fifty arrays of the kernel that takes microseconds.
_BARE: Mapping[str, Any] = {**_OPTIONS, "_nrt": False}
_OURS = "slackswap."


def compiled(function: Callable[..., Any], options: Mapping[str, Any] = _OPTIONS) -> Any:
    """Compile a function that Python calls, on first use, and keep the result for later processes.

    Callees are compiled into the result and must stand in the same file: numba compiles again when
    the file of the function changes, but does not look at the files of its callees.
    """
    found = config.CACHE_DIR
    if found:  # the user's own choice, by NUMBA_CACHE_DIR
        return numba.njit(cache=True, **options)(function)
    folder = cache_folder()
    if folder is None:
        return numba.njit(**options)(function)
    # Set only meanwhile: other packages' functions are none of our business.
    config.CACHE_DIR = str(folder)
    try:
        return numba.njit(cache=True, **options)(function)
    finally:
        config.CACHE_DIR = found


def compiled_bare(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls and that allocates nothing; see `compiled`."""
    return compiled(function, _BARE)


def compiled_part(function: Callable[..., Any]) -> Any:
    """Compile a function that only compiled ones of its file call, and that allocates nothing."""
    return numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_BARE)(function)


@lru_cache(maxsize=1)
def cache_folder() -> Path | None:
    """Return the user's folder for compiled functions; None where there is none to write to.

    It is named by version. Inside, numba names a folder by the path of the source, which keeps two
    checkouts apart, and compiles again when the source's content differs.
    """
    base = user_cache(os.environ, sys.platform)
    if base is None:
        return None
    folder = base / "slackswap" / f"compiled-{__version__}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return None
    return folder


def user_cache(environment: Mapping[str, str], platform: str) -> Path | None:
    """Return where the platform keeps a user's caches; None without a home."""
    if platform == "win32":
        named = environment.get("LOCALAPPDATA")
    elif platform != "darwin":
        named = environment.get("XDG_CACHE_HOME")
    else:
        named = None
    if named and Path(named).is_absolute():
        return Path(named)
    home = environment.get("USERPROFILE" if platform == "win32" else "HOME")
    if not home or not Path(home).is_absolute():
        return None
    below = {"win32": "AppData/Local", "darwin": "Library/Caches"}.get(platform, ".cache")
    return Path(home) / below


class Announcement(event.Listener):  # type: ignore[misc]
    """Says once, on a terminal, that the compiler runs."""

    def __init__(self) -> None:
        self.silent = False

    def on_start(self, event: Any) -> None:
        """Say it, when the first function of this package is compiled."""
        if self.silent or not event.data["dispatcher"].py_func.__module__.startswith(_OURS):
            return
        self.silent = True
        # A worker's main process has compiled already, or speaks for it.
        if sys.stderr.isatty() and multiprocessing.parent_process() is None:
            kept = "once" if config.CACHE_DIR or cache_folder() else "for this run only: no cache"
            print(f"compiling the cost model, some seconds ({kept})", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """Do nothing: the next line is the answer."""


event.register("numba:compile", Announcement())
