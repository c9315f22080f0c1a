"""`slackswap hardware`."""

from __future__ import annotations

import json

from slackswap import load_hardware
from slackswap.profiles import hardware_names
from slackswap.profiles.catalogue import find_device


def test_the_list_names_every_device(cli):
    people = cli("hardware", "list")
    rows = {line.split()[0]: line for line in people.out.splitlines() if line.strip()}
    for name in hardware_names():
        assert find_device(name).figure("h2d_bytes_per_s").basis in rows[name]
    assert max(map(len, people.out.splitlines())) <= 100
    listed = cli("hardware", "list", "--json").json["hardware"]
    assert [row["name"] for row in listed] == list(hardware_names())
    assert listed[0]["precision"] == "fp32"


def test_show_tells_what_each_figure_rests_on(cli):
    people = cli("hardware", "show", "gh200-quad")
    assert max(map(len, people.out.splitlines())) <= 100
    for words in ("415 GB/s", "170 GB/s", "measured", "vendor", "inferred", "2024 to 2026", "50%"):
        assert words in people.out
    document = cli("hardware", "show", "gb300", "--sharing", "4", "--json").json
    shared = load_hardware("gb300").sharing(4)
    assert document["hardware"] == json.loads(json.dumps(shared.to_dict()))
    figures = {row["field"]: row for row in document["figures"]}
    assert figures["h2d_bytes_per_s"]["value"] == 172 * 10**9
    assert "all four at once" in figures["h2d_bytes_per_s"]["source"]
    assert figures["flops_per_s"]["basis"] == "vendor"


def test_a_file_has_no_sources(cli, tmp_path):
    path = tmp_path / "mine.json"
    load_hardware("gb300").with_link(2).save(path)
    figures = cli("hardware", "show", str(path), "--json").json["figures"]
    assert {row["source"] for row in figures} == {""}


def test_what_cannot_be_shown_is_refused(cli):
    assert cli("hardware", "show", "gb30", "--json").json["error"] == "UnknownName"
    refused = cli("hardware", "show", "h100-sxm", "--sharing", "2")
    assert refused.code == 2
    assert "no rate of its root" in refused.err
