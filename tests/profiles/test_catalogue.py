import pytest

from slackswap import Hardware, load_hardware
from slackswap.errors import UnknownName
from slackswap.profiles.catalogue import (
    DEFAULT_HARDWARE,
    compute_growth,
    find_device,
    find_hardware,
    for_fp32,
    hardware_names,
    link_growth,
)


def device(name):
    found = find_device(name)
    assert found is not None
    return found


def test_growth_of_compute_and_link_since_the_titan_x():
    old, new = device("titan-x"), device("h100-sxm")
    assert round(compute_growth(old, new)) == 141
    assert round(float(link_growth(old, new)), 1) == 3.9


def test_default_is_the_a100_with_its_measured_link():
    assert find_hardware("a100-80gb") == DEFAULT_HARDWARE
    assert DEFAULT_HARDWARE.d2h_bytes_per_s == DEFAULT_HARDWARE.h2d_bytes_per_s == 25 * 10**9
    # 25 GB in one second, after the latency.
    assert DEFAULT_HARDWARE.d2h_ns(25 * 10**9) == 10**9 + DEFAULT_HARDWARE.latency_ns


@pytest.mark.parametrize("name", hardware_names())
def test_no_measured_link_beats_its_theoretical_rate(name):
    entry = device(name)
    assert entry.name == name
    assert entry.hardware.d2h_bytes_per_s < entry.link_bytes_per_s
    assert entry.hardware.h2d_bytes_per_s < entry.link_bytes_per_s
    assert entry.source
    assert entry.link_source
    # Tensor cores are at least as fast as plain fp32.
    assert entry.fp32_flops_per_s <= entry.hardware.flops_per_s


@pytest.mark.parametrize("name", hardware_names())
def test_hardware_survives_its_file_format(name, tmp_path):
    hardware = load_hardware(name)
    hardware.save(tmp_path / "hardware.json")
    assert Hardware.load(tmp_path / "hardware.json") == hardware


def test_unknown_hardware_suggests_a_near_name():
    assert find_hardware("a100-80") is None
    with pytest.raises(UnknownName, match="a100-80gb"):
        load_hardware("a100-80")


def test_fp32_rate_follows_the_device_through_changes_of_its_link():
    a100 = load_hardware("a100-80gb")
    for changed in (a100, a100.with_link(0.8), a100.with_link(1.2).with_duplex(False)):
        assert for_fp32(changed).flops_per_s == 156 * 10**12
        assert for_fp32(changed).d2h_bytes_per_s == changed.d2h_bytes_per_s
    own = Hardware("my own", 1, 1, flops_per_s=5, memory_bytes_per_s=7)
    assert for_fp32(own) == own
