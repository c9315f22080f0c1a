"""Nothing that planners share can be written to by a slip, nor after it crossed a process."""

from __future__ import annotations

import copy
import pickle
import random
from dataclasses import fields

import numpy as np
import pytest

from slackswap import Plan, PlannerInfo, Problem
from slackswap.cost_model.scorer import Scorer
from slackswap.frozen import FrozenDict
from slackswap.graph import Rows
from slackswap.profiles.catalogue import DEFAULT_HARDWARE
from slackswap.profiles.generators.random_dag import layered_profile

PROFILE = layered_profile(40, random.Random(3))


@pytest.fixture(params=["as built", "pickled", "copied"])
def problem(request: pytest.FixtureRequest) -> Problem:
    made = Problem(PROFILE, DEFAULT_HARDWARE, 0.5)
    _ = made.profile.graph.keep_all_levels, made.profile.index_of
    if request.param == "pickled":
        made = pickle.loads(pickle.dumps(made))
    return copy.deepcopy(made) if request.param == "copied" else made


def _arrays(problem: Problem) -> dict[str, np.ndarray]:
    graph, scorer = problem.profile.graph, Scorer(problem)
    forward, backward = graph.keep_all_levels
    found = {"forward levels": forward, "backward levels": backward}
    for owner in (graph, *(v for v in vars(graph).values() if isinstance(v, Rows))):
        for spec in fields(owner):
            value = getattr(owner, spec.name)
            if isinstance(value, np.ndarray):
                found[f"{type(owner).__name__}.{spec.name} of {id(owner)}"] = value
    found |= {
        name: getattr(scorer, name) for name in ("allowed", "default", "d2h_ns", "h2d_ns")
    }
    found["a row"] = graph.backward_reads[len(graph.backward_reads) - 1]
    return found


def test_arrays_refuse_writes(problem: Problem) -> None:
    arrays = _arrays(problem)
    assert len(arrays) > 25
    for name, array in arrays.items():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        assert not array.flags.writeable, name


def test_mappings_refuse_writes(problem: Problem) -> None:
    plan = Plan({"a": "keep"}, {"a": 1}, (), {"a": 2}, (), PlannerInfo("p", parameters={"x": [1]}))
    assert plan.planner is not None
    profile = PROFILE.__class__.from_dict(
        {**PROFILE.to_dict(), "provenance": {"prices": {"a": [1, {"b": 2}]}}}
    )
    prices = profile.provenance["prices"]
    for mapping in (
        plan.actions, plan.offload_gates, plan.prefetch_gates, plan.planner.parameters,
        problem.profile.index_of, profile.provenance, prices, prices["a"][1],
    ):
        with pytest.raises(TypeError, match="read-only"):
            mapping["new"] = 1  # type: ignore[index]
    # As a document it is what was given.
    assert profile.to_dict()["provenance"] == {"prices": {"a": [1, {"b": 2}]}}
    assert plan.to_dict()["planner"]["parameters"] == {"x": [1]}


@pytest.mark.parametrize(
    "change",
    [lambda d: d.__setitem__("a", 1), lambda d: d.__delitem__("a"), lambda d: d.update(b=1),
     lambda d: d.pop("a"), lambda d: d.popitem(), lambda d: d.clear(),
     lambda d: d.setdefault("b", 1), lambda d: d.__ior__({"b": 1})],
)
def test_a_frozen_mapping_has_no_way_to_change(change) -> None:
    mapping = FrozenDict(a=1)
    with pytest.raises(TypeError):
        change(mapping)
    assert mapping == {"a": 1} == pickle.loads(pickle.dumps(mapping)) == copy.deepcopy(mapping)
    assert type(pickle.loads(pickle.dumps(mapping))) is FrozenDict
