"""A working folder with a small profile in it, and a way to run commands in this process."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slackswap import Hardware
from slackswap.cli.main import main
from slackswap.profiles.generators.random_dag import layered_profile


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    layered_profile(40, random.Random(3), name="small").save("small.json")
    Hardware("lab", 10**10, 10**10, latency_ns=1000, device_bytes=10**9).save("lab.json")
    return tmp_path


@pytest.fixture
def cli(capsys):
    def run(*arguments: str) -> Result:
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Result(code, printed.out, printed.err)

    return run
