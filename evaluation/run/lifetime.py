"""How worker processes end: with their parent, and with what message."""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def die_with(parent: int) -> None:
    """Let the kernel end this process when its parent is killed (Linux only)."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    pr_set_pdeathsig = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it was killed before the request
        os._exit(1)


def epitaph(exit_code: int | None) -> str:
    """Return how a process ended, for people."""
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        hint = ", perhaps for lack of memory" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"
    return f"its process ended with exit code {exit_code}"
