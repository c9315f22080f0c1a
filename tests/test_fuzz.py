"""Ten thousand random inputs through every public entry point: an answer or a `SlackSwapError`.

Each call is a valid one with some arguments, at any depth of a document, replaced by what does not
belong there. A failure names its number; the same number gives the same call again.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from samples import hardware_document, plan_document, profile_document

from slackswap import (
    BackwardOp,
    ForwardOp,
    Hardware,
    Plan,
    PlannerInfo,
    Problem,
    Profile,
    SlackSwapError,
    Tensor,
    load_hardware,
    load_profile,
    resolve_planner,
    simulate,
    simulate_many,
    solve,
)
from slackswap.cli.main import main
from slackswap.evaluation.run.child import decoded
from slackswap.quantities import parse_budget
from slackswap.search.bounds import lower_bound

CALLS, CHUNKS = 10_000, 20

PROFILE = Profile.from_dict(profile_document())
HARDWARE = Hardware.from_dict(hardware_document())
PLAN = Plan.from_dict(plan_document())


class Evil:
    """Refuses to be looked at."""

    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __repr__(self) -> str:
        raise RuntimeError("no words")

    __hash__ = None  # type: ignore[assignment]


def junk(rng: random.Random) -> Any:
    """Return a value of some kind, mostly one that does not belong anywhere."""
    number = rng.choice((0, 1, -1, 2, 3, 7, 10**6, 2**31, 2**60, 2**63, -(2**63), 10**30))
    word = "".join(rng.choice("a1.%:GBeE- \0é/\n{[\"'") for _ in range(rng.randrange(8)))
    return rng.choice((
        lambda: None, lambda: rng.random() < 0.5, lambda: number, lambda: float(number),
        rng.random, lambda: float("nan"), lambda: float("inf"), lambda: -float("inf"),
        lambda: word, lambda: word.encode(), lambda: [junk(rng) for _ in range(rng.randrange(3))],
        lambda: {word: junk(rng)}, lambda: {number: word}, lambda: (number, word), object, Evil,
        lambda: {number}, lambda: complex(1, 2), lambda: Fraction(number, 7),
        lambda: Decimal(number), lambda: np.float64(rng.random()), lambda: np.int8(number % 100),
        lambda: np.bool_(True), lambda: np.arange(3), lambda: np.array(5),
        lambda: np.float32("nan"),
        lambda: PLAN, lambda: PROFILE, lambda: HARDWARE, lambda: Plan, lambda: len,
        lambda: "50%", lambda: "5e9", lambda: "20gb", lambda: "keep", lambda: "bert-large",
        lambda: "slackswap", lambda: range(number % 5), lambda: iter([number]),
    ))()


def spoilt(value: Any, rng: random.Random) -> Any:
    """Return a value with one part of it, at any depth, replaced, removed or doubled."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        made = dict(value)
        key = rng.choice(list(made))
        choice = rng.random()
        if choice < 0.1:
            del made[key]
        elif choice < 0.15:
            made[junk_key(rng)] = made[key]
        else:
            made[key] = spoilt(made[key], rng)
        return made
    if isinstance(value, list) and value and rng.random() < 0.8:
        made_list = list(value)
        place = rng.randrange(len(made_list))
        made_list[place] = spoilt(made_list[place], rng)
        return made_list if rng.random() < 0.9 else made_list + made_list
    return junk(rng)


def junk_key(rng: random.Random) -> Any:
    found = junk(rng)
    try:
        hash(found)
    except Exception:
        return "key"
    return found


def call(function: Callable[..., Any], rng: random.Random, *given: Any, **named: Any) -> Any:
    """Call a function with one or two of its arguments replaced."""
    values = list(given)
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        place = rng.choice([*range(len(values)), *named])
        if isinstance(place, int):
            values[place] = junk(rng)
        else:
            named[place] = junk(rng)
    return function(*values, **named)


def answering(result: Any, rng: random.Random) -> Callable[..., Any]:
    """Return a planner that answers and reports something."""
    reported = [junk(rng) for _ in range(3)]
    kind = rng.randrange(5)

    def plan(problem: Any, *, rng: Any, time_limit: Any, report: Any) -> Any:
        if kind == 0:
            report.incumbent(reported[0])
        if kind == 1:
            report.bound(reported[1])
        if kind == 2:
            report(found=reported[2])
        return result

    return plan


def problem(rng: random.Random) -> Problem:
    return Problem(PROFILE, HARDWARE, rng.choice((None, 0.5, 1.0, 10)))


def documents(rng: random.Random) -> dict[str, Any]:
    """Return what a planner's own process would write."""
    return {
        "planner": {"name": "p", "version": "1", "parameters": {}, "seed": 0},
        "capabilities": {"deterministic": True}, "status": "feasible", "plan": plan_document(),
        "planning_s": 0.1, "warm_up_s": 0.1, "statistics": {}, "reason": "",
        "incumbents": [[0.1, plan_document()]],
        "bound": {
            "bound_ns": 1, "bound_method": "lp", "bound_solver": None, "bound_status": "optimal",
            "bound_safe": True, "bound_tolerance": 0.0, "bound_s": 0.0, "bound_note": "",
            "bound_gated": True,
        },
    }


ENTRIES: dict[str, Callable[[random.Random], Any]] = {
    "parse_budget": lambda r: parse_budget(junk(r)),
    "Problem": lambda r: call(Problem, r, PROFILE, HARDWARE, 0.5),
    "Problem.with_budget": lambda r: problem(r).with_budget(junk(r)),
    "Tensor": lambda r: call(Tensor, r, "t", 5, ("keep",)),
    "ForwardOp": lambda r: call(ForwardOp, r, "f", 5, (0,), (1,), workspace=1, layer=0,
                                recomputable=True, kind="gemm"),
    "BackwardOp": lambda r: call(BackwardOp, r, "b", 5, (0,), workspace=3, carried=1, layer=0,
                                 kind="gemm"),
    "Profile": lambda r: call(Profile, r, "p", "random", PROFILE.tensors, PROFILE.forward,
                              PROFILE.backward, provenance={}, static_bytes=0),
    "Profile.from_dict": lambda r: Profile.from_dict(spoilt(profile_document(), r)),
    "Profile.load": lambda r: Profile.load(junk(r)),
    "Hardware": lambda r: call(Hardware, r, "h", 10, 10, latency_ns=1, full_duplex=True,
                               host_bytes=5, device_bytes=5, flops_per_s=5, memory_bytes_per_s=5),
    "Hardware.from_dict": lambda r: Hardware.from_dict(spoilt(hardware_document(), r)),
    "Hardware.with_link": lambda r: HARDWARE.with_link(junk(r)),
    "Plan": lambda r: call(Plan, r, {"h": "keep"}, {"h": 0}, (0,), {"h": 1}, (1,), planner=None,
                           profile_sha256=None),
    "Plan.from_dict": lambda r: Plan.from_dict(spoilt(plan_document(), r)),
    "PlannerInfo": lambda r: call(PlannerInfo, r, "p", version="1", parameters={}, seed=1),
    "simulate": lambda r: call(simulate, r, problem(r), PLAN),
    "simulate a spoilt plan": lambda r: simulate(
        problem(r), Plan.from_dict(spoilt(plan_document(), r))
    ),
    "simulate_many": lambda r: call(simulate_many, r, problem(r), [PLAN, junk(r)]),
    "solve": lambda r: call(solve, r, problem(r), "keep-all", seed=1, time_limit=5.0),
    "solve, odd answers": lambda r: solve(
        problem(r), answering(r.choice((junk(r), Plan())), r), seed=1
    ),
    "an answer from elsewhere": lambda r: decoded(as_json(spoilt(documents(r), r))),
    "lower_bound": lambda r: call(lower_bound, r, problem(r), "compute", time_limit=1.0),
    "load_profile": lambda r: call(load_profile, r, "no-such-profile"),
    "load_hardware": lambda r: call(load_hardware, r, "a100-80gb"),
    "resolve_planner": lambda r: resolve_planner(junk(r)),
    "solve, a parameter": lambda r: solve(problem(r), answering(Plan(), r), depth=junk(r)),
}


def as_json(document: Any) -> bytes:
    try:
        return json.dumps(document, default=lambda value: type(value).__name__).encode()
    except (TypeError, ValueError):
        return b"{"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_an_answer_or_a_typed_error(chunk: int) -> None:
    names = list(ENTRIES)
    for number in range(chunk, CALLS, CHUNKS):
        rng = random.Random(number)
        name = names[number % len(names)]
        try:
            ENTRIES[name](rng)
        except SlackSwapError as error:
            said = str(error)
        except Exception as error:
            raise AssertionError(f"call {number} of {name}: {type(error).__name__}") from error
        else:
            said = "an answer"
        assert said, f"call {number} of {name} says nothing"


WORDS = [
    ["plan", "PROFILE", "-b", "JUNK", "-p", "keep-all", "--bound", "none"],
    ["plan", "JUNK", "-b", "50%", "-p", "keep-all", "--bound", "none"],
    ["plan", "PROFILE", "-b", "50%", "-p", "JUNK", "--bound", "none"],
    ["plan", "PROFILE", "-b", "50%", "--hardware", "JUNK", "-p", "keep-all", "--bound", "none"],
    ["bound", "PROFILE", "-b", "JUNK", "--method", "compute"],
    ["simulate", "PROFILE", "JUNK", "-b", "50%"],
    ["evaluate", "JUNK", "--dry-run"],
]


def test_the_command_line_ends_in_an_exit_code(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    PROFILE.save("PROFILE")
    for number in range(200):
        rng = random.Random(number)
        text = "".join(rng.choice("ab1.%GBeE_ é\n{[\"'") for _ in range(rng.randrange(9)))
        words = [text if word == "JUNK" else word for word in copy.copy(rng.choice(WORDS))]
        assert main(words) in (0, 2, 3), words
        assert "unexpected" not in capsys.readouterr().err, words
