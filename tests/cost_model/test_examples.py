"""Small problems whose answer is worked out by hand beside them."""

from __future__ import annotations

import pytest

from slackswap import (
    BackwardOp,
    ForwardOp,
    Hardware,
    InvalidPlan,
    Plan,
    Problem,
    Profile,
    Tensor,
    simulate,
)

ENGINES = pytest.mark.parametrize("engine", ["kernel", "reference"])

#: One byte a nanosecond each way, no latency.
LINK = Hardware("toy", 10**9, 10**9)


def chain(**changes) -> Profile:
    """Two ops, 10 ns each; h (16 B) and y (8 B) saved; x (8 B) is the input."""
    fields = {
        "tensors": (Tensor("x", 8), Tensor("h", 16), Tensor("y", 8)),
        "forward": (ForwardOp("f1", 10, (0,), (1,)), ForwardOp("f2", 10, (1,), (2,))),
        "backward": (BackwardOp("b2", 20, (2,), 4), BackwardOp("b1", 20, (0, 1), 4)),
    }
    return Profile("chain", "random", **{**fields, **changes})


@ENGINES
def test_keep(engine):
    # Peak: x + h + y + workspace of b2 = 8 + 16 + 8 + 4.
    result = simulate(Problem(chain(), LINK), Plan(), engine)
    assert (result.iteration_ns, result.peak_bytes) == (60, 36)


@ENGINES
def test_recompute_runs_the_closure_right_before_its_reader(engine):
    # h is dropped after f2 and made again from x before b1: 10 ns more. Peak: during f2 the
    # memory is x + h + y = 32; b2 runs with x + y + 4; the recompute step with x + h; b1 with
    # x + h + 4.
    result = simulate(Problem(chain(), LINK), Plan({"h": "recompute"}), engine)
    assert (result.iteration_ns, result.recompute_ns, result.peak_bytes) == (70, 10, 32)


@ENGINES
def test_swap_makes_the_round_trip_in_the_shadow_of_compute(engine):
    # h is written at 10, copied 10..26; f2 reads it until 20, b2 runs 20..40. With no limit the
    # prefetch starts at 26 (offload over, and safe) and ends at 42: b1 waits 2 ns.
    result = simulate(Problem(chain(), LINK), Plan({"h": "swap"}), engine)
    assert (result.iteration_ns, result.stall_backward_ns) == (62, 2)
    assert (result.offloaded_bytes, result.d2h_busy_ns, result.h2d_busy_ns) == (16, 16, 16)


@ENGINES
def test_headroom_holds_a_prefetch_back(engine):
    # The same under 32 bytes: b2 needs x + h + y + 4 = 36, so it waits until h's copy ends at 26
    # and runs 26..46. Meanwhile memory without b2's own 4 is x + y = 16; bringing h back needs 16
    # more, and headroom for b2 and b1: b2 peaks at +4, then y is freed (-8) and b1 peaks at
    # -8 + 4, so headroom is 4: 16 + 16 + 4 = 36 > 32. At 46 b2 ends: 8 + 16 + 4 = 28 fits; the
    # prefetch runs 46..62 and b1 62..82. Stalls: 20..26 and 46..62.
    result = simulate(Problem(chain(), LINK, 32), Plan({"h": "swap"}), engine)
    assert (result.iteration_ns, result.stall_backward_ns, result.peak_bytes) == (82, 22, 32)


@ENGINES
def test_half_duplex_waits_for_the_offload_queue(engine):
    # y (8 B) joins at 20, and is copied 26..34 after h. Full duplex: h may come back at 26, but y
    # has the earlier deadline and leads the queue; y returns 34..42, h 42..58: b2 42..62, b1
    # 62..82. Half duplex changes nothing here, for y cannot return before its own offload ends.
    plan = Plan({"h": "swap", "y": "swap"})
    full = simulate(Problem(chain(), LINK), plan, engine)
    half = simulate(Problem(chain(), LINK.with_duplex(False)), plan, engine)
    assert full.iteration_ns == half.iteration_ns == 82
    # With a backward op that reads nothing first, f2's y is kept and only h and a late z swap:
    # under half duplex h may not return while z still goes out.
    late = chain(
        tensors=(Tensor("x", 8), Tensor("h", 4), Tensor("z", 40)),
        backward=(BackwardOp("b2", 20, ()), BackwardOp("b1", 20, (1,)), BackwardOp("b0", 9, (2,))),
    )
    # h: out 10..14; z: out 20..60. Full: h back 20..24 (backward starts at 20), z back 60..100,
    # b2 20..40, b1 40..60, b0 100..109. Half: h back 60..64, b1 64..84, z back 64..104, b0 ..113.
    plan = Plan({"h": "swap", "z": "swap"})
    assert simulate(Problem(late, LINK), plan, engine).iteration_ns == 109
    assert simulate(Problem(late, LINK.with_duplex(False)), plan, engine).iteration_ns == 113


@ENGINES
def test_offload_gate_and_barrier(engine):
    # Gated to f2, h is copied 20..36, comes back 36..52, and b1 waits from 40 to 52.
    gated = Plan({"h": "swap"}, offload_gates={"h": 1})
    assert simulate(Problem(chain(), LINK), gated, engine).iteration_ns == 72
    # A barrier after f2 waits for the copy that h joined after f1: 26, so backward starts at 26,
    # b2 26..46, prefetch 26..42, b1 46..66. Forward stall 6.
    barrier = Plan({"h": "swap"}, offload_barriers=(1,))
    result = simulate(Problem(chain(), LINK), barrier, engine)
    assert (result.iteration_ns, result.stall_forward_ns) == (66, 6)
    # A barrier after f1 itself does not wait for h, which joins only then.
    barrier = Plan({"h": "swap"}, offload_barriers=(0,))
    assert simulate(Problem(chain(), LINK), barrier, engine).iteration_ns == 62


@ENGINES
def test_prefetch_gate_and_barrier(engine):
    # Gated to b1, the prefetch starts when b1 is waited for, at 40: 40..56, b1 56..76.
    gated = Plan({"h": "swap"}, prefetch_gates={"h": 1})
    assert simulate(Problem(chain(), LINK), gated, engine).iteration_ns == 76
    # A barrier after b2 waits for the prefetch that runs 26..42; b1 needs it anyway.
    barrier = Plan({"h": "swap"}, prefetch_barriers=(0,))
    assert simulate(Problem(chain(), LINK), barrier, engine).iteration_ns == 62


@ENGINES
def test_transients_are_made_again_and_retained_outputs_are_not(engine):
    # a -> u (intermediate) -> b, c saved. Dropping b and c: each closure runs fu again (u is
    # transient), 3 ns + its own op. b is read by the first backward op, c by the second.
    profile = Profile(
        "fork",
        "random",
        (Tensor("a", 1), Tensor("u", 1), Tensor("b", 1), Tensor("c", 1)),
        (
            ForwardOp("fa", 2, (), (0,)),
            ForwardOp("fu", 3, (0,), (1,)),
            ForwardOp("fb", 5, (1,), (2,)),
            ForwardOp("fc", 7, (1,), (3,)),
        ),
        (BackwardOp("bc", 10, (3,)), BackwardOp("bb", 10, (2,)), BackwardOp("ba", 10, (0, 2))),
    )
    result = simulate(Problem(profile, LINK), Plan({"b": "recompute", "c": "recompute"}), engine)
    assert result.recompute_ns == (3 + 7) + (3 + 5)
    # Storing u makes both closures one op long.
    stored = Plan({"b": "recompute", "c": "recompute", "u": "keep"})
    assert simulate(Problem(profile, LINK), stored, engine).recompute_ns == 7 + 5


@ENGINES
def test_carried_gradients_weigh_on_recompute_steps(engine):
    # b1's workspace is 30, of which 30 are carried: the recompute step for h holds x + h + 30 =
    # 54, as b1 itself does. Without carried bytes the peak stays at b1's own 54; with a workspace
    # of f1 of 5 the recompute step rises to 59.
    def peak(carried, workspace):
        profile = chain(
            forward=(ForwardOp("f1", 10, (0,), (1,), workspace), ForwardOp("f2", 10, (1,), (2,))),
            backward=(BackwardOp("b2", 20, (2,), 4), BackwardOp("b1", 20, (0, 1), 30, carried)),
        )
        return simulate(Problem(profile, LINK), Plan({"h": "recompute"}), engine).peak_bytes

    assert (peak(0, 5), peak(30, 5)) == (54, 59)


@ENGINES
def test_infeasible_says_where_and_by_how_many_bytes(engine):
    # f2 needs x + h + y = 32; under 30 it lacks 2, and nothing is on its way out.
    result = simulate(Problem(chain(), LINK, 30), Plan(), engine)
    where = result.infeasible
    assert (where.phase, where.op, where.shortfall_bytes) == ("forward", "f2", 2)
    assert result.iteration_ns is None
    assert str(where) == "forward op 1 (f2) is 2 bytes short"
    # Swapping h cannot help f2, which reads it; b1's return is never reached.
    assert not simulate(Problem(chain(), LINK, 30), Plan({"h": "swap"}), engine).feasible
    # A return that cannot fit: 8 (x) + 16 (h) + 40 (b1) = 64 under 60.
    tight = chain(backward=(BackwardOp("b2", 20, (2,), 4), BackwardOp("b1", 20, (0, 1), 40)))
    where = simulate(Problem(tight, LINK, 60), Plan({"h": "swap"}), engine).infeasible
    assert (where.op, where.tensor, where.shortfall_bytes) == ("b1", "h", 4)
    assert str(where) == "bringing back 'h' for backward op 1 (b1) is 4 bytes short"


@ENGINES
def test_inputs_alone_can_exceed_the_budget(engine):
    profile = Profile("inputs", "random", (Tensor("x", 8),), (), ())
    where = simulate(Problem(profile, LINK, 5), Plan(), engine).infeasible
    assert (where.phase, where.shortfall_bytes) == ("inputs", 3)
    assert simulate(Problem(profile, LINK, 8), Plan(), engine).iteration_ns == 0


@ENGINES
def test_an_op_that_cannot_run_again_makes_the_plan_invalid(engine):
    profile = chain(
        forward=(
            ForwardOp("f1", 10, (0,), (1,), recomputable=False),
            ForwardOp("f2", 10, (1,), (2,)),
        )
    )
    with pytest.raises(InvalidPlan, match=r"backward\[1\] \(b1\): needs forward\[0\] \(f1\)"):
        simulate(Problem(profile, LINK), Plan({"h": "recompute"}), engine)


@ENGINES
def test_a_stored_tensor_that_no_step_reads_is_dropped_and_not_moved(engine):
    # u is an intermediate that no closure needs: swapping or keeping it changes nothing.
    profile = Profile(
        "unused",
        "random",
        (Tensor("u", 50), Tensor("y", 1)),
        (ForwardOp("fu", 1, (), (0,)), ForwardOp("fy", 1, (0,), (1,)), ForwardOp("fz", 1)),
        (BackwardOp("b", 1, (1,), 49),),
    )
    for action in ("keep", "swap"):
        result = simulate(Problem(profile, LINK, 51), Plan({"u": action}), engine)
        assert (result.iteration_ns, result.peak_bytes, result.offloaded_bytes) == (4, 51, 0)
