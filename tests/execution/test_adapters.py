"""Plans in the hands of PyTorch's own machinery."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="running a plan needs the torch extra")

from execution_runs import LINK, captured_net  # noqa: E402
from torch import nn  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch._functorch import config as functorch_config  # noqa: E402
from torch._functorch.partitioners import min_cut_rematerialization_partition  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from slackswap import Plan, Problem  # noqa: E402
from slackswap.execution import as_checkpoint_policy, as_knapsack_solver  # noqa: E402
from slackswap.execution.projection import calls_of  # noqa: E402
from slackswap.profiles.capture.kinds import operator_name  # noqa: E402


class Runs(TorchDispatchMode):
    """Counts what is really run."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen[operator_name(func)] += 1
        return func(*args, **(kwargs or {}))


def transformer_and_plan(kept: str):
    """A plan that keeps the results of one operator and recomputes whatever else it may."""
    captured = captured_net("transformer")
    profile = captured.profile
    names = {
        profile.tensors[t].name: "keep" if call[0] == kept else "recompute"
        for call, op in zip(calls_of(profile), profile.forward, strict=True) for t in op.writes
        if profile.graph.is_saved[t] or call[0] == kept
    }
    names = {n: a for n, a in names.items() if a in profile.tensors[profile.index_of[n]].allowed}
    return captured, Problem(profile, LINK, None), Plan(names)


def gradients(module, call):
    torch.manual_seed(4)
    call().backward()
    found = [p.grad for p in module.parameters()]
    module.zero_grad()
    return found


@pytest.mark.parametrize("kept", ["addmm", "gelu"])
def test_selective_checkpointing_runs_again_what_the_plan_does_not_keep(kept):
    captured, problem, plan = transformer_and_plan(kept)
    module, tensors = captured.subject.step, captured.subject.tensors
    policy = as_checkpoint_policy(problem, plan)
    with Runs() as runs:
        plain = gradients(module, lambda: module(*tensors))
    with Runs() as again:
        ours = gradients(
            module, lambda: checkpoint(module, *tensors, use_reentrant=False, context_fn=policy)
        )
    assert all(torch.equal(a, b) for a, b in zip(plain, ours, strict=True))
    calls = sum(call[0] == kept for call in calls_of(problem.profile))
    assert calls > 0
    assert again.seen[kept] == runs.seen[kept]
    other = "gelu" if kept == "addmm" else "addmm"
    assert again.seen[other] > runs.seen[other]
    assert policy.projection.after == policy.projection.before
    assert "time +0.0%" in str(policy.projection)


def test_what_a_projection_loses_is_scored():
    captured = captured_net("transformer")
    profile = captured.profile
    problem = Problem(profile, LINK, None)
    saved = profile.graph.is_saved
    plan = Plan({t.name: "swap" for i, t in enumerate(profile.tensors) if saved[i]})
    projection = as_checkpoint_policy(problem, plan).projection
    # Swapped tensors are kept: no copies, no stalls, and the memory of keeping everything.
    assert projection.after.offloaded_bytes == 0 < projection.before.offloaded_bytes
    assert projection.after.peak_bytes > projection.before.peak_bytes
    assert projection.after.iteration_ns <= projection.before.iteration_ns
    assert "instead of" in str(projection)


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.sigmoid(layer(x)).mm(x.t()).softmax(-1).mm(x)
        return x.square().mean()


@pytest.mark.parametrize("kept", ["addmm", "mm"])  # what the partitioner may choose of
def test_torch_compile_saves_what_the_plan_keeps(kept):
    from slackswap.profiles.capture import capture

    torch._dynamo.reset()
    model, x = Chain(), torch.randn(12, 8)
    profile = capture(lambda: (model, (x,)), device="cpu", iterations=1, warmup=0)
    problem = Problem(profile, LINK, None)
    plan = Plan({
        profile.tensors[t].name: "keep" if call[0] == kept else "recompute"
        for call, op in zip(calls_of(profile), profile.forward, strict=True) for t in op.writes
        if profile.graph.is_saved[t] or call[0] == kept
    })
    solver, estimator = as_knapsack_solver(problem, plan)
    asked, graphs = [], []

    class Watched(type(solver)):
        def __call__(self, memory, graph, budget, info, nodes):
            chosen = super().__call__(memory, graph, budget, info, nodes)
            asked.append({nodes[i].name: i in chosen[0] for i in range(len(nodes))})
            graphs.append([estimator(node) for node in nodes])
            return chosen

    solver.__class__ = Watched
    backend = aot_autograd(
        fw_compiler=lambda module, _inputs: module.forward,
        bw_compiler=lambda module, _inputs: module.forward,
        partition_fn=min_cut_rematerialization_partition,
    )
    with functorch_config.patch(
        activation_memory_budget=0.5, activation_memory_budget_solver=solver,
        activation_memory_budget_runtime_estimator=estimator,
    ):
        torch.compile(model, backend=backend, fullgraph=True)(x).backward()
    ours = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).backward()
    assert all(
        torch.allclose(p.grad, g, rtol=1e-5, atol=1e-7)
        for p, g in zip(model.parameters(), ours, strict=True)
    )
    assert asked
    assert not solver.unknown
    for chosen in asked:
        assert any(name.startswith(kept) for name in chosen)
        for name, saved in chosen.items():
            assert saved == name.startswith(kept)
    times = {float(op.duration_ns) for op in profile.forward}
    assert all(time in times for row in graphs for time in row)
    assert solver.uuid() == estimator.uuid() != as_knapsack_solver(problem, Plan())[0].uuid()
