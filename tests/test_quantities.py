"""Bytes, times and budgets as people write and read them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from slackswap import (
    BackwardOp,
    ForwardOp,
    Hardware,
    InvalidBudget,
    Plan,
    Problem,
    Profile,
    Tensor,
    load_profile,
    solve,
)
from slackswap.profiles.catalogue import DEFAULT_HARDWARE
from slackswap.quantities import (
    UNLIMITED_BYTES,
    format_bytes,
    format_ns,
    format_seconds,
    parse_budget,
)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("20GB", 20 * 10**9),
        ("20 GB", 20 * 10**9),
        ("20GiB", 20 * 2**30),
        ("1.5KiB", 1536),
        ("1kB", 1000),
        ("1KB", 1000),
        ("2TB", 2 * 10**12),
        ("8B", 8),
        ("20000000000", 20 * 10**9),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("50%", Fraction(1, 2)),
        ("33.3%", Fraction(333, 1000)),
        ("120%", Fraction(6, 5)),
        ("2e9B", 2 * 10**9),
        (" 50% ", Fraction(1, 2)),
        (7, 7),
        (0.3, Fraction(3, 10)),
        (1.0, Fraction(1)),
    ],
)
def test_what_people_write(text, amount):
    parsed = parse_budget(text)
    assert parsed == amount
    assert type(parsed) is type(amount)


@pytest.mark.parametrize(
    "text",
    ["", "half", "-1", "-5GB", "0", "0%", "0.0", "1", "5 gb", "5XB", "5GBs", "1e9999999",
     "0x10", "١GB", "5,000", "5_000", "1" * 41, "99999999999TB", "nan", "inf", "%", "GB", "1/2",
     "5GB\n6GB", 0, -1, 0.0, -0.5, float("nan"), float("inf"), True, False, 10**30],
)
def test_what_is_refused(text):
    with pytest.raises(InvalidBudget) as caught:
        parse_budget(text)
    assert caught.value.where == "budget"
    assert caught.value.fix
    assert len(str(caught.value)) < 300


def test_plain_one_is_ambiguous_and_says_how_to_be_clear():
    with pytest.raises(InvalidBudget, match="1B or 100%"):
        parse_budget("1")


@given(st.text(max_size=50))
def test_any_text_is_a_positive_amount_or_a_typed_error(text):
    try:
        amount = parse_budget(text)
    except InvalidBudget:
        return
    assert amount >= 0
    assert isinstance(amount, int | Fraction)


@given(st.floats(min_value=1e-9, max_value=1))
def test_a_fraction_means_its_decimal_digits(fraction):
    assert parse_budget(fraction) == Fraction(repr(fraction))


def test_fractions_are_of_the_keep_everything_peak_rounded_down():
    profile = load_profile("bert-large")
    peak = Problem(profile, DEFAULT_HARDWARE).keep_all_peak_bytes
    for fraction in (0.1, 0.3, 0.5, 0.9):
        exact = Fraction(repr(fraction)) * peak
        assert Problem(profile, DEFAULT_HARDWARE, fraction).budget_bytes == exact // 1
    assert Problem(profile, DEFAULT_HARDWARE, "100%").budget_bytes == peak
    assert Problem(profile, DEFAULT_HARDWARE).budget_bytes == UNLIMITED_BYTES
    assert not Problem(profile, DEFAULT_HARDWARE).is_limited
    assert Problem(profile, DEFAULT_HARDWARE, 0.5).fraction == pytest.approx(0.5, abs=1e-9)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1536, "1.54 kB"), (12_345_678_901, "12.3 GB"),
     (999_499, "999 kB"), (999_500, "1 MB"), (10**12, "1 TB"), (UNLIMITED_BYTES, "unlimited"),
     (10**18, "1000 PB")],
)
def test_bytes_for_people(amount, text):
    assert format_bytes(amount) == text


@pytest.mark.parametrize(
    ("duration", "text"),
    [(0, "0 ns"), (999, "999 ns"), (96_400_000, "96.4 ms"), (8_310, "8.31 µs"),
     (1_500_000_000, "1.5 s"), (4_000 * 10**9, "4000 s")],
)
def test_times_for_people(duration, text):
    assert format_ns(duration) == text
    assert format_seconds(duration / 1e9) == text


@given(st.integers(0, 2**61))
def test_three_digits_are_within_half_a_percent(amount):
    number, unit = format_bytes(amount).split()
    scale = 1000 ** ("B", "kB", "MB", "GB", "TB", "PB").index(unit)
    assert abs(float(number) * scale - amount) <= 0.005 * amount + 0.5


@given(nbytes=st.integers(0, 2**50), rate=st.integers(1, 2**45), latency=st.integers(0, 10**6))
def test_transfer_times_are_the_exact_ceiling(nbytes, rate, latency):
    hardware = Hardware("h", d2h_bytes_per_s=rate, h2d_bytes_per_s=2 * rate, latency_ns=latency)
    out = Fraction(nbytes * 10**9, rate)
    assert 0 <= hardware.d2h_ns(nbytes) - latency - out < 1
    assert 0 <= hardware.h2d_ns(nbytes) - latency - out / 2 < 1


@pytest.mark.parametrize(
    "amount",
    [np.int64(4 * 10**9), np.uint64(4 * 10**9), np.array(4 * 10**9), 4 * 10**9],
)
def test_integers_of_any_kind_are_bytes(amount):
    parsed = parse_budget(amount)
    assert (parsed, type(parsed)) == (4 * 10**9, int)
    assert parse_budget(np.uint8(200)) == 200


@pytest.mark.parametrize("share", [0.25, np.float64(0.25), np.float32(0.25), Fraction(1, 4)])
def test_floats_up_to_one_are_fractions(share):
    parsed = parse_budget(share)
    assert (parsed, type(parsed)) == (Fraction(1, 4), Fraction)


@pytest.mark.parametrize(
    "amount", [20e9, np.float64(20e9), 1.5, 1e300, Fraction(3, 2), *np.linspace(2e9, 4e9, 3)]
)
def test_a_float_above_one_is_refused(amount):
    with pytest.raises(InvalidBudget, match="above 1") as caught:
        parse_budget(amount)
    assert caught.value.fix


@pytest.mark.parametrize("amount", [np.True_, np.False_, np.array([1, 2]), None, [5], b"5GB", 1j,
                                    np.float64("nan"), object(), np.int64(-1)])
def test_what_is_no_amount_of_any_kind_is_refused(amount):
    with pytest.raises(InvalidBudget):
        parse_budget(amount)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("5e9", "5GB"), ("5.5e9", "5.5GB"), ("1.5", "percentage"), ("20gb", "did you mean 20GB?"),
        ("20G", "did you mean 20GB?"), ("20gib", "did you mean 20GiB?"), ("7Mi", "mean 7MiB?"),
        ("50", "50% or 50 bytes?"), ("100", "100% or 100 bytes?"), ("9K", "did you mean 9kB?"),
    ],
)
def test_what_may_have_been_meant_is_named(text, words):
    with pytest.raises(InvalidBudget) as caught:
        parse_budget(text)
    assert words in str(caught.value)


def test_scalars_of_numpy_are_taken_wherever_numbers_are():
    hardware = Hardware("h", np.int64(10), np.uint32(20), np.int8(3), np.True_)
    assert hardware == Hardware("h", 10, 20, 3, True)
    assert all(type(value) in (int, str, bool, type(None)) for value in hardware.to_dict().values())
    assert hardware.with_link(np.float32(2)).d2h_bytes_per_s == 20
    plan = Plan({"a": "swap"}, {"a": np.int64(1)}, (np.int8(0),), {"a": np.uint8(2)})
    assert plan == Plan({"a": "swap"}, {"a": 1}, (0,), {"a": 2})
    profile = Profile(
        "p", "random", [Tensor("a", np.int64(5))],
        [ForwardOp("f", np.int32(3), (), np.array([0]), np.uint8(1), np.int64(2))],
        [BackwardOp("b", np.int64(4), [np.int64(0)])], {"batch": np.int64(8)},
    )
    assert Profile.from_dict(profile.to_dict()) == profile
    problem = Problem(profile, DEFAULT_HARDWARE, np.int64(10**9))
    assert problem.budget_bytes == 10**9
    solution = solve(problem, "keep-all", seed=np.int64(7), time_limit=np.float32(5))
    assert (solution.planner.seed, type(solution.planner.seed)) == (7, int)
