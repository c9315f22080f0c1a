"""``slackswap run``: a model trained under plans, from the command line."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="running a plan needs the torch extra")

from slackswap.cli.main import main  # noqa: E402
from slackswap.execution import trial as trials  # noqa: E402

MODEL = """
import torch
from torch import nn

def build():
    layers = [nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(32, 4))
    return lambda x: model(x).square().mean(), torch.randn(16, 8)
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "run_this_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)


def test_a_run_compares_predicted_with_measured(capsys):
    code = main(["run", "run_this_model:build", "--budget", "90%", "--steps", "2", "--link", "1GB",
                 "-p", "slackswap", "-p", "keep-all", "-p", "vdnn-all", "--trace", "t.json",
                 "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == 0
    assert answer["trials"]
    for trial in answer["trials"]:
        assert trial["bits_equal"]
        assert trial["keeps_budget"]
        assert trial["live_bytes"] <= answer["budget_bytes"]
        assert trial["measured"]["offloaded_bytes"] == trial["predicted"]["offloaded_bytes"]
        assert trial["measured"]["step_ns"] > 0
    assert "keep-all" in {entry["planner"] for entry in answer["without_plan"]}
    with open("t.json", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    titles = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert any("simulated" in title for title in titles)
    assert any("measured" in title for title in titles)
    copies = [e for e in events if e.get("cat") in ("offload", "prefetch")]
    assert all(e["args"]["bytes"] > 0 for e in copies)
    starts = [e["id"] for e in events if e["ph"] == "s"]
    assert sorted(starts) == sorted(e["id"] for e in events if e["ph"] == "f")
    assert bool(starts) == bool(copies)


def test_the_table_reads(capsys):
    assert main(["run", "run_this_model:build", "--budget", "unlimited", "--steps", "1",
                 "-p", "keep-all", "-p", "vdnn-all", "--order", "static"]) == 0
    out = capsys.readouterr().out
    assert "predicted" in out
    assert "to the bit" in out


def test_bits_that_differ_and_a_broken_budget_have_an_exit_code(capsys, monkeypatch):
    words = ["run", "run_this_model:build", "--budget", "unlimited", "--steps", "1", "-p",
             "keep-all"]
    monkeypatch.setattr(trials.Training, "first_difference", lambda *_: "the loss of step 1")
    assert main(words) == 4
    assert "the loss of step 1 differs" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(trials, "live_bytes", lambda *_: 2**62)
    assert main([*words[:3], "90%", *words[4:-1], "vdnn-all"]) == 4
    assert "ABOVE" in capsys.readouterr().err


def test_no_plan_and_bad_input(capsys):
    assert main(["run", "run_this_model:build", "--budget", "1%", "--steps", "1"]) == 3
    assert "no plan of slackswap" in capsys.readouterr().out
    assert main(["run", "run_this_model:build", "--budget", "50%", "--link", "half"]) == 2
    assert main(["run", "run_this_model:build", "--budget", "50%", "--link", "1GB", "--hardware",
                 "a100-80gb"]) == 2
    assert main(["run", "no_such_module:build", "--budget", "50%"]) == 2
