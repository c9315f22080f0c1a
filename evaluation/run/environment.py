"""What a result was measured with: versions and the machine, without naming either's owner."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import slackswap

#: Packages whose version may change a result or a time.
PACKAGES = ("numpy", "numba", "scipy", "ortools", "deap", "pebble", "torch")


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of this package, Python, and what both rest on; absent ones are left out."""
    found = {"slackswap": slackswap.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@lru_cache(maxsize=1)
def machine() -> dict[str, Any]:
    """Processor, cores, memory and system; no host or user name."""
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "memory_bytes": _memory_bytes(),
        "system": f"{platform.system()} {platform.machine()}",
        "python_build": platform.python_implementation(),
    }


def usable_cores() -> int:
    """Cores this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
