import sys

import pytest
from handmade import LINK, actions_of, chain, plan_of

from slackswap import BackwardOp, ForwardOp, Problem, Profile, Status, Tensor, solve
from slackswap.planners.pytorch_budget import PyTorchBudget

# Three saved tensors of 40, 30 and 30 bytes: t0, t2 and t4, made in 50, 40 and 41 ns. Between them
# and behind them are ops of 10 ns whose results have no size. While f4 runs all three are in use or
# kept, 100 in all; t4 itself is written then, so only t0 and t2 relieve it. Ops are layers of their
# own, so the model is one region.
SIZES, TIMES = [40, 0, 30, 0, 30, 0, 0], [50, 10, 40, 10, 41, 10, 10]
NET = chain(SIZES, forward_ns=TIMES)


def test_without_torch_it_is_skipped(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._functorch._activation_checkpointing", None)
    solution = solve(Problem(NET, LINK, 80), PyTorchBudget())
    assert solution.status is Status.SKIPPED
    assert "slackswap[torch]" in solution.reason


@pytest.mark.parametrize("solver", ["greedy", "dp", "ilp"])
class TestSolvers:
    @pytest.fixture(autouse=True)
    def _torch(self):
        pytest.importorskip("torch")

    def test_all_is_kept_at_a_budget_of_one(self, solver):
        solution = plan_of(NET, 100, PyTorchBudget(solver))
        assert actions_of(solution) == {}
        assert solution.statistics["memory_budget"] == 1

    def test_the_knapsack_keeps_the_most_time(self, solver):
        # Weights .4, .3, .3; worths 50, 40, 41. Just below a budget of 1 the best that fits is t0
        # and t4, .7 and 91: t2 goes. Greedy goes by worth a weight, 125, 133 and 137: t4 and t2
        # come first, and t0 does not fit any more.
        solution = plan_of(NET, 90, PyTorchBudget(solver))
        assert set(solution.plan.actions) == ({"t0"} if solver == "greedy" else {"t2"})
        assert solution.statistics["memory_budget"] == 319 / 320

    def test_what_enters_a_block_is_kept(self, solver):
        # The same chain in two blocks: t2 enters the second, and is no item. Of t0 and t4, weights
        # 4/7 and 3/7, a budget of 4/7 or more keeps t0, which is worth more; but without t4, which
        # does not relieve f4, it does not fit. Below 4/7, that is from 182/320 on down, only t4 is
        # kept, and it fits. Greedy keeps t4 first at any budget.
        profile = chain(SIZES, forward_ns=TIMES, layers=[0, 0, 0, 1, 1, 1, 1])
        solution = plan_of(profile, 90, PyTorchBudget(solver, region="block"))
        assert set(solution.plan.actions) == {"t0"}
        expected = 319 if solver == "greedy" else 182
        assert solution.statistics["memory_budget"] == expected / 320


def test_an_op_is_priced_by_its_own_time_alone():
    # While fz runs a, b and 10 of scratch are 70. b is made of u, which has no size and is dropped:
    # making b again takes fu and fb, 85 ns. The knapsack sees fb's 40 alone, and so drops b rather
    # than a, which takes 50.
    pytest.importorskip("torch")
    profile = Profile(
        "own-time", "random",
        (Tensor("x", 0), Tensor("a", 30), Tensor("u", 0), Tensor("b", 30), Tensor("y", 0),
         Tensor("z", 0)),
        (
            ForwardOp("fa", 50, (0,), (1,)),
            ForwardOp("fu", 45, (0,), (2,)),
            ForwardOp("fb", 40, (2,), (3,)),
            ForwardOp("fy", 10, (1, 3), (4,)),
            ForwardOp("fz", 10, (4,), (5,), 10),
        ),
        (BackwardOp("by", 20, (1, 3)),),
    )
    solution = plan_of(profile, 60, PyTorchBudget("dp"))
    assert actions_of(solution) == {"b": "recompute"}
    assert solution.evaluation.recompute_ns == 85
