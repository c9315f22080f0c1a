"""The objects that PyTorch's machinery calls; `slackswap.execution.adapters` makes them."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import Counter
from typing import Any

from torch import fx
from torch._inductor.custom_graph_pass import CustomKnapsackSolver, CustomRuntimeEstimator
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from slackswap.execution.projection import Call, numbered, project
from slackswap.plan import Plan
from slackswap.problem import Problem
from slackswap.profiles.capture.joint import is_backward
from slackswap.profiles.capture.kinds import operator_name


class CheckpointContexts:
    """A ``context_fn``: each call returns the contexts of one checkpointed step.

    Parameters
    ----------
    problem, plan : Problem, Plan
        The plan, and what it is for.
    """

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.projection = project(problem, plan)

    def __call__(self) -> Any:
        """Return the contexts of the forward pass and of its recomputation."""
        counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
        saves = self.projection.saves

        def policy(context: Any, operator: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
            name = operator_name(operator)
            count = counts[context.is_recompute]
            call = name, count[name]
            count[name] += 1
            if saves.get(call, False):
                return CheckpointPolicy.MUST_SAVE
            return CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)


class PlanSolver(CustomKnapsackSolver):  # type: ignore[misc]  # PyTorch is not type-checked
    """Saves what a plan keeps or swaps, of what the partitioner may choose.

    What it does not recognise - an operator that the compiler made - it leaves to be recomputed:
    of that no plan says that it is worth its memory.

    Parameters
    ----------
    problem, plan : Problem, Plan
        The plan, and what it is for.
    """

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.projection = project(problem, plan)
        self.unknown: list[str] = []
        self._identity = _identity(problem, plan)

    def __call__(
        self, memory: list[float], joint_graph: fx.Graph, max_memory: float, node_info: Any,
        all_recomputable_banned_nodes: list[fx.Node],
    ) -> tuple[list[int], list[int]]:
        """Return the places of the nodes to save, and of those to recompute."""
        calls = calls_in(joint_graph)
        saved: list[int] = []
        again: list[int] = []
        self.unknown = []
        for place, node in enumerate(all_recomputable_banned_nodes):
            keeps = self.projection.saves.get(calls.get(node, ("", -1)))
            if keeps is None:
                self.unknown.append(node.name)
            (saved if keeps else again).append(place)
        return saved, again

    def uuid(self) -> Any:
        """Tell plans apart in the compiler's cache."""
        return self._identity


class PlanEstimator(CustomRuntimeEstimator):  # type: ignore[misc]
    """Answers with the profile's times; for what it does not know, with their median.

    Parameters
    ----------
    problem, plan : Problem, Plan
        The plan, and what it is for.
    """

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self._times = project(problem, plan).times_ns
        self._median = float(statistics.median(self._times.values() or (0,)))
        self._identity = _identity(problem, plan)
        self._graph: fx.Graph | None = None
        self._calls: dict[fx.Node, Call] = {}

    def __call__(self, node: fx.Node) -> float:
        """Return nanoseconds."""
        if node.graph is not self._graph:
            self._graph, self._calls = node.graph, calls_in(node.graph)
        return float(self._times.get(self._calls.get(node, ("", -1)), self._median))

    def uuid(self) -> Any:
        """Tell plans apart in the compiler's cache."""
        return self._identity


def calls_in(graph: fx.Graph) -> dict[fx.Node, Call]:
    """Number the operator calls of a graph's forward part."""
    nodes = [n for n in graph.nodes if n.op == "call_function" and not is_backward(n)]
    return dict(zip(nodes, numbered(operator_name(n.target) for n in nodes), strict=True))


def _identity(problem: Problem, plan: Plan) -> str:
    text = json.dumps([problem.profile.sha256, plan.to_dict()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
