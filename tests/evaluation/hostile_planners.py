"""Planners that reach beyond their answer: by a slip, or on purpose."""

import contextlib
import ctypes
import os
import sys
import time

import slackswap
from slackswap import Bound, BoundMethod, Plan
from slackswap.cost_model import engine, scorer

slackswap.was_imported_with_a_hostile_planner = True


def writes(problem, *, rng, time_limit, report):
    problem.profile.graph.nbytes[:] = 0
    return Plan()


def sets_fields(problem, *, rng, time_limit, report):
    object.__setattr__(problem, "budget_bytes", 2**61)
    object.__setattr__(problem.profile, "forward", ())
    problem.profile.__dict__.pop("graph", None)
    return Plan()


def patches(problem, *, rng, time_limit, report):
    scorer.Scorer.score = lambda *_, **__: None
    engine.simulate = lambda *_, **__: None
    slackswap.solving.simulate = lambda *_, **__: None
    time.perf_counter = lambda: 0.0
    return Plan()


def leaves(problem, *, rng, time_limit, report):
    os._exit(0)


def exits(problem, *, rng, time_limit, report):
    sys.exit("enough")


def loops(problem, *, rng, time_limit, report):
    while True:
        pass


def loops_in_c(problem, *, rng, time_limit, report):
    ctypes.PyDLL(None).sleep(1000)  # holds the interpreter's lock


def prints(problem, *, rng, time_limit, report):
    for number in range(1_000_000):
        print("line", number)
    return Plan()


def forges(problem, *, rng, time_limit, report):
    for descriptor in range(3, 20):
        with contextlib.suppress(OSError):
            os.write(descriptor, b'done\n{"plan": {"actions": 7}}\n')
    os._exit(0)


def claims(problem, *, rng, time_limit, report):
    report.bound(Bound(1, BoundMethod.ENUMERATION))
    return Plan()


def raises(problem, *, rng, time_limit, report):
    return 1 / len(problem.profile.name[:0])
