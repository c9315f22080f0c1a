import re

import pytest

from slackswap import Hardware, load_hardware
from slackswap.errors import InvalidHardware, UnknownName
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


@pytest.mark.parametrize("name", hardware_names())
def test_each_figure_says_what_it_rests_on(name):
    entry = device(name)
    stated = {
        field for field, value in entry.hardware.to_dict().items()
        if value is not None and field not in ("schema", "name", "full_duplex")
    }
    covered = [field for figure in entry.figures for field in figure.fields]
    assert len(covered) == len(set(covered))
    assert stated <= set(covered)
    for figure in entry.figures:
        assert figure.basis in ("measured", "vendor", "inferred")
        assert figure.source
        assert re.search(r"20\d\d", figure.date)


def test_links_of_newer_devices_are_as_measured():
    rates = {
        name: (found.h2d_bytes_per_s // 10**9, found.d2h_bytes_per_s // 10**9)
        for name in ("gh200", "gh200-quad", "gb200", "gb300", "gb300-quad")
        if (found := load_hardware(name))
    }
    assert rates == {"gh200": (375, 297), "gh200-quad": (415, 170), "gb200": (176, 176),
                     "gb300": (211, 193), "gb300-quad": (172, 183)}
    assert load_hardware("gh200").host_bytes == 480 * 10**9
    assert 5 <= load_hardware("a100-80gb-shared-host").d2h_bytes_per_s / 10**9 <= 6


def test_gpus_that_copy_at_once_share_the_root():
    alone = load_hardware("gb300")
    assert alone.sharing(1) == alone
    # 688 GB/s in and 732 out at the root: two or three GPUs have their own 211 and 193.
    assert [alone.sharing(k).h2d_bytes_per_s // 10**9 for k in (2, 3, 4, 8)] == [211, 211, 172, 86]
    assert [alone.sharing(k).d2h_bytes_per_s // 10**9 for k in (2, 3, 4, 8)] == [193, 193, 183, 91]
    four, quad = alone.sharing(4), load_hardware("gb300-quad")
    assert (four.d2h_bytes_per_s, four.h2d_bytes_per_s) == (
        quad.d2h_bytes_per_s, quad.h2d_bytes_per_s
    )
    assert four.name == "gb300 shared by 4"
    one_way = Hardware("toy", 10, 10, h2d_root_bytes_per_s=12)
    assert (one_way.sharing(3).d2h_bytes_per_s, one_way.sharing(3).h2d_bytes_per_s) == (10, 4)
    assert one_way.sharing(100).h2d_bytes_per_s == 1


@pytest.mark.parametrize("gpus", [0, -1, True, 1.5, "2"])
def test_only_a_number_of_gpus_can_share(gpus):
    with pytest.raises(InvalidHardware, match="cannot share"):
        load_hardware("gb300").sharing(gpus)


def test_sharing_a_root_that_nobody_measured_is_refused():
    with pytest.raises(InvalidHardware, match="no rate of its root"):
        load_hardware("a100-80gb").sharing(2)


def test_rates_of_the_root_are_left_out_where_they_are_not_known():
    assert not any("root" in key for key in load_hardware("a100-80gb").to_dict())
    assert load_hardware("gb300").to_dict()["h2d_root_bytes_per_s"] == 688 * 10**9


def test_fp32_without_tf32_needs_a_source():
    assert for_fp32(load_hardware("a100-80gb"), tf32=False).flops_per_s == 19_500_000_000_000
    with pytest.raises(InvalidHardware, match="without TF32"):
        for_fp32(load_hardware("gb200"), tf32=False)
