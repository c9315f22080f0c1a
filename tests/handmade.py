"""Chains of ops small enough to work a planner's rule out by hand."""

from __future__ import annotations

from collections.abc import Sequence

from slackswap import BackwardOp, ForwardOp, Hardware, Problem, Profile, Tensor, solve

#: One byte a nanosecond each way, no latency.
LINK = Hardware("toy", 10**9, 10**9)


def chain(
    sizes: Sequence[int],
    *,
    forward_ns: int | Sequence[int] = 10,
    backward_ns: int | Sequence[int] = 20,
    kinds: Sequence[str] | str = "gemm",
    layers: Sequence[int] | None = None,
    input_bytes: int = 0,
) -> Profile:
    """Return ops f0, f1, ... in a row, whose backward ops need their inputs.

    Op i reads t(i-1), op 0 the input x, and writes t(i) of sizes[i] bytes. Backward op j undoes op
    n - 1 - j and reads what that op read; so every t but the last is saved.
    """
    count = len(sizes)
    forward_ns = [forward_ns] * count if isinstance(forward_ns, int) else forward_ns
    backward_ns = [backward_ns] * count if isinstance(backward_ns, int) else backward_ns
    kinds = [kinds] * count if isinstance(kinds, str) else kinds
    layer_of = [None] * count if layers is None else layers
    return Profile(
        "chain",
        "random",
        (Tensor("x", input_bytes), *(Tensor(f"t{i}", size) for i, size in enumerate(sizes))),
        tuple(
            ForwardOp(f"f{i}", forward_ns[i], (i,), (i + 1,), layer=layer_of[i], kind=kinds[i])
            for i in range(count)
        ),
        tuple(
            BackwardOp(f"b{i}", backward_ns[i], (i,), layer=layer_of[i], kind=kinds[i])
            for i in reversed(range(count))
        ),
    )


def plan_of(profile: Profile, budget: int | None, planner, hardware: Hardware = LINK, **parameters):
    """Return the solution of a planner on a profile, which must have a plan."""
    solution = solve(Problem(profile, hardware, budget), planner, **parameters)
    assert solution.status.has_plan, solution.reason
    return solution


def actions_of(solution) -> dict[str, str]:
    """Return the actions of a solution as plain strings."""
    return {name: str(action) for name, action in solution.plan.actions.items()}
