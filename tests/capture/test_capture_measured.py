"""Measured captures, and the fit of the link."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch", reason="capture needs the torch extra")

import capture_nets as nets  # noqa: E402

from slackswap.errors import SlackSwapError  # noqa: E402
from slackswap.hardware import Hardware  # noqa: E402
from slackswap.profile import Profile  # noqa: E402
from slackswap.profiles.capture import capture  # noqa: E402
from slackswap.profiles.capture.link import LinkMeasurement, fit_hardware, fit_line  # noqa: E402
from slackswap.profiles.capture.measuring import WallClock, own_random_state  # noqa: E402


def test_a_measured_profile_says_how_it_was_measured():
    before = torch.get_rng_state()
    profile = capture(nets.convnet, device="cpu", iterations=3, warmup=1, optimizer="momentum",
                      name="small", description="a small net")
    assert torch.equal(torch.get_rng_state(), before)
    notes = profile.provenance
    assert (profile.name, profile.source, notes["description"]) == (
        "small", "measured", "a small net"
    )
    assert (notes["iterations"], notes["warmup"], notes["optimizer"]) == (3, 1, "momentum")
    assert notes["machine"]["threads"] == torch.get_num_threads()
    assert len(notes["forward_spread_ns"]) == len(profile.forward)
    assert len(notes["backward_spread_ns"]) == len(profile.backward)
    assert all(op.duration_ns > 0 for op in (*profile.forward, *profile.backward))
    assert notes["operators_ns"] == profile.duration_ns
    assert notes["plain_iteration_ns"] > 0
    assert Profile.from_dict(profile.to_dict()).sha256 == profile.sha256


def test_a_measurement_leaves_the_model_without_gradients():
    model, inputs = nets.convnet()
    weights = {name: value.clone() for name, value in model.named_parameters()}
    capture(lambda: (model, inputs), device="cpu", iterations=1, warmup=0)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, weights[name]) for name, value in model.named_parameters())


def test_the_clock_gives_each_operator_its_time_once():
    clock = WallClock()
    assert [clock.run(lambda value=value: value) for value in (1, 2)] == [1, 2]
    assert len(clock.read()) == 2
    assert clock.read() == []


def test_random_numbers_come_from_the_seed():
    with own_random_state(7):
        first = torch.randn(3)
    with own_random_state(7):
        assert torch.equal(torch.randn(3), first)


def times(latency, rate, sizes=(4096, 65536, 2**20, 2**24, 2**28), noise=0.0):
    rng = random.Random(1)
    return {
        size: round((latency + size * 1e9 / rate) * (1 + noise * rng.uniform(-1, 1)))
        for size in sizes
    }


def test_the_fit_finds_latency_and_bandwidth():
    line = fit_line(times(9_000, 25_000_000_000))
    assert line.latency_ns == pytest.approx(9_000, rel=1e-3)
    assert line.bytes_per_s == pytest.approx(25e9, rel=1e-3)
    noisy = fit_line(times(9_000, 25_000_000_000, noise=0.03))
    assert noisy.latency_ns == pytest.approx(9_000, rel=0.1)
    assert noisy.bytes_per_s == pytest.approx(25e9, rel=0.1)


def test_the_fit_refuses_what_has_no_slope():
    with pytest.raises(SlackSwapError, match="do not grow"):
        fit_line({4096: 1000, 65536: 900, 2**20: 800})
    with pytest.raises(SlackSwapError, match="two or more"):
        fit_line({4096: 1000})


@pytest.mark.parametrize(("both", "duplex"), [(24e9, True), (13e9, False)])
def test_the_fitted_hardware(both, duplex):
    base = Hardware("base", 1, 1, device_bytes=80 * 10**9, flops_per_s=10**14,
                    memory_bytes_per_s=10**12)
    measured = LinkMeasurement(
        times(8_000, 25_000_000_000), times(10_000, 26_000_000_000),
        times(8_000, round(both)), times(10_000, round(both)),
    )
    hardware = fit_hardware(measured, "mine", base)
    assert hardware.full_duplex is duplex
    assert hardware.latency_ns == pytest.approx(10_000, rel=1e-3)
    assert hardware.h2d_bytes_per_s == pytest.approx(26e9, rel=1e-3)
    assert (hardware.device_bytes, hardware.flops_per_s) == (80 * 10**9, 10**14)
