"""`slackswap plan` and `slackswap simulate`: the way from a profile to a scored plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from slackswap import (
    BackwardOp,
    ForwardOp,
    Hardware,
    Plan,
    Problem,
    Profile,
    Tensor,
    load_hardware,
    load_profile,
    simulate,
    solve,
)
from slackswap.quantities import format_bytes

EVALUATION = {
    "feasible", "iteration_ns", "forward_ns", "stall_forward_ns", "stall_backward_ns",
    "recompute_ns", "peak_bytes", "throughput", "offloaded_bytes", "prefetched_bytes",
    "d2h_utilisation", "h2d_utilisation", "infeasible",
}
BESIDE = {"profile", "planner", "status", "budget_bytes", "planning_s", "bound_ns", "gap"}


def small(budget=0.6, hardware="a100-80gb") -> Problem:
    return Problem(Profile.load("small.json"), load_hardware(hardware), budget)


def test_a_plan_is_made_shown_and_written(here, cli):
    result = cli("plan", "small.json", "--budget", "60%", "-o", "plan.json")
    assert result.code == 0
    problem, plan = small(), Plan.load("plan.json")
    expected = solve(problem, "slackswap")
    assert plan.actions == expected.plan.actions
    assert plan.planner.name == "slackswap"
    assert plan.profile_sha256 == problem.profile.sha256
    for words in ("throughput", "stalls", "recompute", "peak", "link", "actions", "planning",
                  "no plan takes less than", "written", "plan.json",
                  format_bytes(problem.budget_bytes)):
        assert words in result.out
    assert f"{100 * expected.evaluation.throughput:.1f}% of keeping everything" in result.out


def test_static_bytes_and_budget_stand_against_the_device(here, cli):
    result = cli("plan", "bert-large", "-b", "8GB", "--bound", "none")
    static = load_profile("bert-large").static_bytes
    line = next(line for line in result.out.splitlines() if "device" in line)
    assert f"static {format_bytes(static)} + budget 8 GB = {format_bytes(static + 8 * 10**9)}" in (
        line
    )
    assert "of 80 GB" in line
    assert "free" in line
    tight = cli("plan", "bert-large", "-b", "8GB", "--bound", "none", "-p", "keep-all",
                "--hardware", "v100").out
    assert "of 32 GB" in tight or "of 16 GB" in tight


def test_json_has_the_promised_keys_and_figures(here, cli):
    document = cli("plan", "small.json", "-b", "60%", "--json").json
    assert set(document) >= EVALUATION | BESIDE
    expected = solve(small(), "slackswap")
    for key in ("iteration_ns", "peak_bytes", "throughput", "recompute_ns"):
        assert document[key] == getattr(expected.evaluation, key)
    assert document["planner"] == "slackswap"
    assert document["budget_bytes"] == small().budget_bytes
    assert document["bound_ns"] <= document["iteration_ns"]
    assert document["gap"] == pytest.approx(document["iteration_ns"] / document["bound_ns"] - 1)
    assert Plan.from_dict(document["plan"]).actions == expected.plan.actions


def test_a_plan_without_bound_has_no_gap(here, cli):
    document = cli("plan", "small.json", "-b", "60%", "--bound", "none", "--json").json
    assert document["bound_ns"] is None
    assert document["gap"] is None
    assert "no plan takes" not in cli("plan", "small.json", "-b", "60%", "--bound", "none").out


def test_keeping_everything_is_proven_best_where_it_fits(here, cli):
    document = cli("plan", "small.json", "-b", "100%", "-p", "keep-all", "--json").json
    assert document["status"] == "optimal"
    assert document["gap"] == 0
    assert document["throughput"] == 1
    assert "no slower than the fastest plan" in cli(
        "plan", "small.json", "-b", "100%", "-p", "keep-all"
    ).out


def test_unlimited_memory(here, cli):
    document = cli("plan", "small.json", "-b", "unlimited", "-p", "keep-all", "--json").json
    assert document["budget_bytes"] is None
    assert document["throughput"] == 1
    assert "unlimited memory" in cli("plan", "small.json", "-b", "none", "-p", "keep-all").out


def test_no_plan_that_fits_is_an_answer_and_no_file(here, cli):
    result = cli("plan", "small.json", "-b", "60%", "-p", "keep-all", "-o", "plan.json")
    assert result.code == 3
    assert "B short" in result.out
    assert "plan.json was not written" in result.err
    assert not Path("plan.json").exists()
    document = cli("plan", "small.json", "-b", "60%", "-p", "keep-all", "--json").json
    assert document["status"] == "infeasible"
    assert document["feasible"] is False
    assert document["iteration_ns"] is None
    assert document["infeasible"]["shortfall_bytes"] > 0
    assert document["bound_ns"] > 0


def test_an_impossible_budget_is_proven_so(here, cli):
    result = cli("plan", "small.json", "-b", "1000B")
    assert result.code == 3
    assert "no plan fits, proven" in result.out
    assert "memory binds at" in result.out
    document = cli("plan", "small.json", "-b", "1000B", "--json").json
    assert document["status"] == "infeasible"
    least = document["least_budget"]
    assert 1000 < least["proven_bytes"] <= least["shown_bytes"]
    below = cli("bound", "small.json", "-b", f"{least['proven_bytes'] - 1}B", "--json")
    assert (below.code, below.json["status"]) == (3, "infeasible")


def test_planner_parameters_and_seed_reach_the_planner_and_the_plan(here, cli):
    Path("mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "from slackswap import Capabilities, Plan\n"
        "@dataclass(frozen=True)\n"
        "class Mine:\n"
        "    name: ClassVar[str] = 'mine'\n"
        "    version: ClassVar[str] = '1'\n"
        "    capabilities: ClassVar[Capabilities] = Capabilities()\n"
        "    slots: int = 1\n"
        "    mode: str = 'a'\n"
        "    def plan(self, problem, *, rng, time_limit, report):\n"
        "        report(drawn=rng.random(), limit=time_limit, slots=self.slots, mode=self.mode)\n"
        "        return Plan()\n"
    )
    document = cli("plan", "small.json", "-b", "100%", "-p", "mine.py:Mine", "--param", "slots=7",
                   "--param", "mode=slow", "--seed", "5", "--time-limit", "30", "--bound", "none",
                   "--json").json
    assert document["planner"] == "mine"
    assert document["parameters"] == {"slots": 7, "mode": "slow"}
    assert document["seed"] == 5
    drawn = document["statistics"].pop("drawn")
    assert document["statistics"] == {"limit": 30.0, "slots": 7, "mode": "slow"}
    other = cli("plan", "small.json", "-b", "100%", "-p", "mine.py:Mine", "--seed", "6", "--bound",
                "none", "--json").json
    assert other["statistics"]["drawn"] != drawn


def test_statistics_of_any_kind_can_be_printed(here, cli):
    Path("odd.py").write_text(
        "import numpy as np, pathlib\n"
        "from slackswap import Plan\n"
        "def odd(problem, *, rng, time_limit, report):\n"
        "    report(array=np.arange(2), scalar=np.float64(1.5), inf=float('inf'), "
        "path=pathlib.Path('x'), deep={1: (2, {3})})\n"
        "    return Plan()\n"
    )
    document = cli("plan", "small.json", "-b", "100%", "-p", "odd.py:odd", "--bound", "none",
                   "--json").json
    assert document["statistics"] == {
        "array": [0, 1], "scalar": 1.5, "inf": None, "path": "x", "deep": {"1": [2, [3]]}
    }


def test_hardware_by_file_and_by_name(here, cli):
    slow = cli("plan", "small.json", "-b", "60%", "-p", "swap-all", "--hardware", "lab.json",
               "--bound", "none", "--json").json
    fast = cli("plan", "small.json", "-b", "60%", "-p", "swap-all", "--bound", "none",
               "--json").json
    assert slow["hardware"] == "lab"
    assert fast["hardware"] == "a100-80gb"
    assert slow["iteration_ns"] > fast["iteration_ns"]


def test_an_analytic_profile_is_priced_for_the_hardware_named(here, cli):
    a100 = cli("plan", "bert-large", "-b", "60%", "--bound", "none", "--json").json
    h100 = cli("plan", "bert-large", "-b", "60%", "--bound", "none", "--hardware", "h100-sxm",
               "--json").json
    assert h100["profile_sha256"] != a100["profile_sha256"]
    assert h100["iteration_ns"] < a100["iteration_ns"]
    # A link alone says nothing of the times: the profile stays as it is.
    own = cli("plan", "bert-large", "-b", "60%", "--bound", "none", "--hardware", "lab.json",
              "--json").json
    assert own["profile_sha256"] == a100["profile_sha256"]


def test_a_captured_profile_brings_its_measured_link(here, cli):
    document = Profile.load("small.json").to_dict()
    measured = Hardware("measured-gpu", 3 * 10**9, 4 * 10**9)
    document["provenance"] = {"hardware": "h100-sxm", "link": {"hardware": measured.to_dict()}}
    Profile.from_dict(document).save("captured.json")
    arguments = ("-b", "100%", "-p", "keep-all", "--bound", "none", "--json")
    assert cli("plan", "captured.json", *arguments).json["hardware"] == "measured-gpu"
    document["provenance"]["link"] = {"hardware": {"nonsense": 1}}
    Profile.from_dict(document).save("captured.json")
    assert cli("plan", "captured.json", *arguments).json["hardware"] == "h100-sxm"


# --------------------------------------------------------------------------- simulate


@pytest.fixture
def planned(here, cli):
    assert cli("plan", "small.json", "-b", "60%", "-o", "plan.json").code == 0
    return here


@pytest.mark.parametrize("engine", [(), ("--engine", "kernel"), ("--engine", "reference")])
def test_a_plan_is_scored_the_same_by_both_engines(planned, cli, engine):
    result = cli("simulate", "small.json", "plan.json", "-b", "60%", *engine, "--json")
    assert result.code == 0
    document = result.json
    assert set(document) >= EVALUATION | BESIDE
    expected = simulate(small(), Plan.load("plan.json"))
    assert {key: document[key] for key in expected.to_dict()} == expected.to_dict()
    assert document["status"] == "feasible"
    assert document["planner"] == "slackswap"
    assert document["engine"] == (engine[1] if engine else "kernel")


def test_the_environment_may_choose_the_engine(planned, cli, monkeypatch):
    monkeypatch.setenv("SLACKSWAP_ENGINE", "python")
    arguments = ("simulate", "small.json", "plan.json", "-b", "60%", "--json")
    assert cli(*arguments).json["engine"] == "reference"
    monkeypatch.setenv("SLACKSWAP_ENGINE", "fortran")
    result = cli(*arguments)
    assert result.code == 2
    assert "fortran" in result.err


def test_simulate_shows_what_plan_showed(planned, cli):
    assert "throughput" in cli("simulate", "small.json", "plan.json", "-b", "60%").out
    document = cli("simulate", "small.json", "plan.json", "-b", "60%", "--bound", "lp",
                   "--json").json
    assert document["gap"] >= 0
    assert document["bound_method"] == "lp"


def test_a_plan_that_does_not_fit_says_where(planned, cli):
    result = cli("simulate", "small.json", "plan.json", "-b", "20%")
    assert result.code == 3
    assert "B short" in result.out
    document = cli("simulate", "small.json", "plan.json", "-b", "20%", "--json").json
    assert document["status"] == "infeasible"
    assert document["infeasible"]["op"]


@pytest.mark.parametrize("budget", ["60%", "20%"])
def test_a_trace_has_a_track_a_stream_and_a_memory_counter(planned, cli, budget):
    cli("simulate", "small.json", "plan.json", "-b", budget, "--trace", "timeline.json")
    events = json.loads(Path("timeline.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert len(names) == 3
    counters = [event for event in events if event["ph"] == "C"]
    assert counters
    assert all(isinstance(event["ts"], int | float) for event in events)
    if budget == "60%":
        score = simulate(small(), Plan.load("plan.json"))
        assert max(event["args"]["bytes"] for event in counters) == score.peak_bytes
        assert max(event["ts"] + event.get("dur", 0) for event in events) == pytest.approx(
            score.iteration_ns / 1000
        )


def test_a_plan_of_unknown_origin_is_scored_with_a_note(planned, cli):
    Plan().save("bare.json")
    result = cli("simulate", "small.json", "bare.json", "-b", "100%", "--json")
    assert result.code == 0
    assert result.json["planner"] is None
    assert "does not say" in result.err


def test_the_way_back_from_a_repriced_profile_is_told(here, cli):
    assert cli("plan", "bert-large", "-b", "60%", "--hardware", "h100-sxm", "--bound", "none",
               "-o", "p.json").code == 0
    result = cli("simulate", "bert-large", "p.json", "-b", "60%")
    assert result.code == 2
    assert "--hardware" in result.err
    assert cli("simulate", "bert-large", "p.json", "-b", "60%", "--hardware",
               "h100-sxm").code == 0


def test_simulate_and_the_trace_show_where_both_directions_ran(here, cli):
    # As worked out in tests/cost_model/test_contention.py: both run from 20 to 36 ns, at a half
    # and a quarter.
    profile = Profile(
        "three", "random", (Tensor("x", 8), Tensor("h", 4), Tensor("z", 40)),
        (ForwardOp("f1", 10, (0,), (1,)), ForwardOp("f2", 10, (1,), (2,))),
        (BackwardOp("b2", 20, ()), BackwardOp("b1", 20, (1,)), BackwardOp("b0", 9, (2,))),
    )
    profile.save("three.json")
    Plan({"h": "swap", "z": "swap"}).save("three-plan.json")
    hardware = Hardware("toy", 10**9, 10**9, d2h_contended_ppm=500_000, h2d_contended_ppm=250_000)
    hardware.save("toy.json")
    asked = ("simulate", "three.json", "three-plan.json", "-b", "unlimited", "--hardware")
    shown = " ".join(cli(*asked, "toy.json", "--trace", "trace.json").out.split())
    assert "both ways at once 16 ns in 1 stretch from 20 ns to 36 ns" in shown
    assert "out at 50%, back at 25%" in shown
    assert cli(*asked, "toy.json", "--json").json["both_directions_ns"] == 16
    trace = json.loads((here / "trace.json").read_text())["traceEvents"]
    (both,) = (event for event in trace if event.get("cat") == "link")
    assert (both["ts"], both["dur"]) == (0.02, 0.016)
    # Without contention both may run too; there is nothing to tell about it but in the trace.
    replace(hardware, d2h_contended_ppm=10**6, h2d_contended_ppm=10**6).save("free.json")
    assert "both ways at once" not in cli(*asked, "free.json").out


@pytest.mark.parametrize(
    ("place", "why"), [("missing/plan.json", "missing"), (".", "is a folder")]
)
@pytest.mark.parametrize(
    "command",
    [
        ("plan", "small.json", "-b", "90%", "-o"),
        ("simulate", "small.json", "kept.json", "-b", "100%", "--trace"),
        ("profiles", "export", "bert-large", "-o"),
    ],
)
def test_where_to_write_is_checked_before_the_work(here, cli, monkeypatch, command, place, why):
    import slackswap

    def never(*args, **kwargs):
        raise AssertionError("worked first")

    slackswap.Plan().save("kept.json")
    monkeypatch.setattr("slackswap.cli.inputs.load_inputs", never)
    result = cli(*command, place)
    assert result.code == 2
    assert why in result.err
    assert place in result.err
