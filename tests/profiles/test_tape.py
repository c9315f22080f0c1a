import pytest

from slackswap import Hardware
from slackswap.profiles.generators.prices import Price, Prices, stream
from slackswap.profiles.generators.tape import Tape

# One byte a nanosecond, so a kernel's traffic is its duration.
HARDWARE = Hardware("toy", 1, 1, flops_per_s=1, memory_bytes_per_s=10**9)
PRICES = Prices(memory_efficiency=1.0, launch_ns=0)


@pytest.fixture
def tape():
    tape = Tape(HARDWARE, PRICES)
    tape.begin(0, "net")
    return tape


def unary(tape, name, x, nbytes, *, scratch=0, **options):
    y = tape.tensor(name, nbytes)
    price = Price(stream(nbytes), stream(2 * nbytes), backward_workspace=scratch)
    tape.op(name, "elementwise", price, reads=(x,), writes=(y,), **options)
    return y


def backward(tape, root):
    profile = tape.profile("net", root=root, provenance={}, static_bytes=0)
    return [
        (op.name.removeprefix("net."), op.duration_ns, op.carried, op.workspace)
        for op in profile.backward
    ]


def test_chain_frees_each_gradient_when_it_is_used(tape):
    x = tape.tensor("x", 10, differentiable=False)
    a = unary(tape, "a", x, 20)
    b = unary(tape, "b", a, 30, scratch=5)
    c = unary(tape, "c", b, 40)
    assert backward(tape, c) == [
        ("c.bwd", 80, 40, 70),
        ("b.bwd", 60, 30, 55),
        ("a.bwd", 40, 20, 20),  # no gradient for the input
    ]


def test_second_reader_adds_its_gradient_in_place(tape):
    x = tape.tensor("x", 10)
    a = unary(tape, "a", x, 10)
    b = unary(tape, "b", a, 10)
    c = unary(tape, "c", a, 10)
    y = tape.tensor("y", 10)
    tape.op("y", "product", Price(stream(1), stream(1)), reads=(b, c), writes=(y,))
    assert backward(tape, y) == [
        ("y.bwd", 1, 10, 30),
        ("c.bwd", 20, 20, 30),  # b's gradient waits
        ("b.bwd", 20, 20, 30),  # and now the first gradient of a
        ("a.accumulate", 30, 20, 20),
        ("a.bwd", 20, 10, 20),
    ]


def test_shared_gradient_is_not_overwritten(tape):
    x = tape.tensor("x", 10)
    a = unary(tape, "a", x, 10)
    y = tape.tensor("y", 10)
    # A sum hands one storage to both: b's op runs while it still belongs to a as well.
    b = unary(tape, "b", a, 10)
    tape.op("y", "residual", Price(stream(1)), reads=(a, b), writes=(y,), passes_gradient=True)
    assert backward(tape, y) == [
        ("b.bwd", 20, 10, 20),
        ("a.accumulate", 30, 20, 20),  # b let go of it: in place
        ("a.bwd", 20, 10, 20),
    ]
    held = Tape(HARDWARE, PRICES)
    held.begin(0, "net")
    x = held.tensor("x", 10)
    a = unary(held, "a", x, 10)
    b = unary(held, "b", x, 10)
    s, t = held.tensor("s", 10), held.tensor("t", 10)
    held.op("s", "residual", Price(stream(1)), reads=(a, b), writes=(s,), passes_gradient=True)
    held.op("t", "residual", Price(stream(1)), reads=(s, a), writes=(t,), passes_gradient=True)
    # The gradient of t is that of s and of a, that of s is that of b: a's second must not be
    # added into what b still needs.
    assert backward(held, t)[0] == ("a.accumulate", 30, 10, 20)


def test_ops_without_gradient_leave_no_backward(tape):
    x = tape.tensor("x", 10)
    mask = tape.tensor("mask", 5, differentiable=False)
    tape.op("mask", "random", Price(stream(5)), writes=(mask,))
    y = tape.tensor("y", 10)
    tape.op("y", "dropout", Price(stream(1), stream(1)), reads=(x, mask), writes=(y,),
            saves=(mask,))
    unary(tape, "metric", y, 3)  # nothing flows back from it
    profile = tape.profile("net", root=y, provenance={}, static_bytes=0)
    assert [(op.name, op.reads) for op in profile.backward] == [("net.y.bwd", (mask,))]
