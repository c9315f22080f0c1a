"""Public measurements that some tests read where a copy is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
FOLDER = Path(os.environ.get("SLACKSWAP_PUBLIC_DATA", _BESIDE))


def public_file(name: str) -> Path:
    """Return a public file, or skip the test that asks for it."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"{name} is not in the folder of public data; set SLACKSWAP_PUBLIC_DATA")
    return path
