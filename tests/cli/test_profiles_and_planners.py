"""`slackswap profiles` and `slackswap planners`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slackswap import (
    Profile,
    load_hardware,
    load_profile,
    planner_names,
    register,
    resolve_planner,
    unregister,
)
from slackswap.evaluation import check_names
from slackswap.profiles.library import library_entries, profile_names
from slackswap.profiles.summary import summarise


def test_the_list_names_everything_and_marks_its_origin(cli):
    people = cli("profiles", "list")
    assert people.code == 0
    rows = {line.split()[0]: line for line in people.out.splitlines() if line.strip()}
    for entry in library_entries():
        assert entry.source in rows[entry.name]
        assert entry.hardware.name in rows[entry.name]
    assert max(map(len, people.out.splitlines())) <= 100
    listed = cli("profiles", "list", "--json").json["profiles"]
    assert [row["name"] for row in listed] == list(profile_names())


@pytest.mark.parametrize("name", ["bert-large", "gpt-neo-2.7b-a100", "vgg16"])
def test_show_tells_what_a_person_has(cli, name):
    people = cli("profiles", "show", name)
    assert people.code == 0
    profile = load_profile(name)
    for words in (name, profile.source, "saved by kind", "saved by layer", "it can overlap",
                  "cheapest to recompute", "dearest to recompute", profile.sha256,
                  f"{len(profile.forward)} forward"):
        assert words in people.out
    assert max(map(len, people.out.splitlines())) <= 100
    document = cli("profiles", "show", name, "--json").json
    hardware = load_hardware(document["hardware"])
    expected = summarise(profile, hardware).to_dict()
    assert {key: document[key] for key in expected} == json.loads(json.dumps(expected))
    assert document["provenance"] == profile.to_dict()["provenance"]


def test_show_takes_sizes_and_hardware(cli):
    small = cli("profiles", "show", "bert-large", "--batch", "2", "--sequence", "64", "--json").json
    large = cli("profiles", "show", "bert-large", "--json").json
    assert small["saved_bytes"] < large["saved_bytes"]
    assert cli("profiles", "show", "bert-large", "--hardware", "h100-sxm",
               "--json").json["hardware"] == "h100-sxm"


def test_show_draws_a_plot(here, cli):
    result = cli("profiles", "show", "small.json", "--plot", "out.html")
    assert result.code == 0
    assert "out.html" in result.out
    page = Path("out.html").read_text()
    assert "<html" in page
    assert "<script src" not in page


def test_export_writes_what_was_asked_for(here, cli):
    result = cli("profiles", "export", "bert-large", "--batch", "2", "--sequence", "64",
                 "--hardware", "h100-sxm", "--name", "mini", "-o", "mini.json.gz")
    assert result.code == 0
    mini = Profile.load("mini.json.gz")
    assert mini.name == "mini"
    assert mini.provenance["batch"] == 2
    assert mini.provenance["hardware"] == "h100-sxm"
    assert cli("plan", "mini.json.gz", "-b", "60%", "--bound", "none",
               "--json").json["hardware"] == "h100-sxm"


def test_export_has_a_default_place_that_is_never_overwritten(here, cli):
    assert cli("profiles", "export", "vgg16").code == 0
    assert Profile.load("vgg16.json") == load_profile("vgg16")
    again = cli("profiles", "export", "vgg16", "--json")
    assert again.code == 2
    assert "vgg16.json: is there already" in again.err
    assert cli("profiles", "export", "vgg16", "-o", "vgg16.json").code == 0


def test_export_to_standard_output_is_the_profile_itself(cli):
    assert Profile.from_dict(cli("profiles", "export", "vgg16", "-o", "-").json) == (
        load_profile("vgg16")
    )


def test_a_name_cannot_choose_another_folder(here, cli):
    document = load_profile("vgg16").to_dict() | {"name": "../../etc/passwd"}
    Path("odd.json").write_text(json.dumps(document))
    result = cli("profiles", "import", "odd.json", "--format", "profile", "--name", "../x/y",
                 "--json")
    assert result.code == 0
    assert result.json["output"] == "x-y.json"
    assert Path("x-y.json").is_file()


def test_import_finds_the_format_and_takes_its_options(here, cli):
    formats = cli("profiles", "formats", "--json").json["formats"]
    assert {"aceso", "pipedream", "table", "profile"} <= {known["name"] for known in formats}
    assert "layers" in cli("profiles", "formats").out
    fixtures = Path(__file__).parent.parent / "profiles" / "fixtures"
    graphs = [path for path in fixtures.iterdir() if path.suffix == ".txt"]
    assert graphs
    for path in graphs:
        result = cli("profiles", "import", path, "-o", "graph.json", "--json")
        assert result.code == 0, result.err
        assert result.json["status"] == "ok"
        assert Profile.load("graph.json").source == "imported"
    wrong = cli("profiles", "import", graphs[0], "-o", "no.json", "--option", "colour=red")
    assert wrong.code == 2
    assert "'colour'" in wrong.err
    assert not Path("no.json").exists()


def test_capture_traces_a_model_of_ones_own(here, cli):
    pytest.importorskip("torch", reason="capturing needs PyTorch")
    Path("my_own_model.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))\n"
        "    def forward(self, x):\n"
        "        return self.body(x).square().mean()\n"
        "def build():\n    return Net(), (torch.randn(4, 8),)\n"
    )
    result = cli("profiles", "capture", "my_own_model:build", "--device", "fake", "--hardware",
                 "h100-sxm", "--name", "mine", "-o", "mine.json", "--json")
    assert result.code == 0, result.err
    assert Profile.load("mine.json").source == "traced"
    assert result.json["hardware"] == "h100-sxm"
    wrong = cli("profiles", "capture", "my_own_model:missing", "-o", "no.json")
    assert wrong.code == 2
    assert "missing" in wrong.err
    assert not Path("no.json").exists()


# --------------------------------------------------------------------------- planners


def test_every_planner_is_listed_with_what_it_does(cli):
    people = cli("planners", "list")
    assert people.code == 0
    assert max(map(len, people.out.splitlines())) <= 100
    rows = {row["name"]: row for row in cli("planners", "list", "--json").json["planners"]}
    assert set(rows) == set(planner_names())
    for name, row in rows.items():
        assert row["status"] == "ok", row
        assert row["description"], name
        assert row["version"] == resolve_planner(name).version
        assert name in people.out


def test_one_that_cannot_be_loaded_is_listed_with_the_reason(cli, monkeypatch):
    from slackswap import registry

    monkeypatch.setattr(
        registry, "BUILT_IN", {**registry.BUILT_IN, "gone": "slackswap.planners.gone:Gone"}
    )
    row = next(row for row in cli("planners", "list", "--json").json["planners"]
               if row["name"] == "gone")
    assert row["status"] == "error"
    assert "slackswap.planners.gone" in row["description"]
    assert cli("planners", "list").code == 0


def test_a_registered_planner_is_listed(cli):
    @register("from-a-notebook")
    def plan(problem, *, rng, time_limit, report):
        """Do nothing."""

    try:
        assert "from-a-notebook" in cli("planners", "list").out
    finally:
        unregister("from-a-notebook")


@pytest.fixture
def _forget():
    yield
    unregister("my-planner")


@pytest.mark.usefixtures("_forget")
def test_from_an_empty_folder_to_a_ranked_comparison(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    new = cli("planners", "new", "my-planner", "--json")
    assert new.code == 0
    target = new.json["target"]
    assert target == "my_planner.py:MyPlanner"
    checked = cli("planners", "check", target, "--time-limit", "30")
    assert checked.code == 0, checked.out
    compared = cli("compare", "bert-large", "-b", "70%", "-p", target, "-p", "slackswap",
                   "--bound", "none")
    assert compared.code == 0
    assert "my-planner" in compared.out
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".py") == [
        "my_planner.py", "test_my_planner.py"
    ]


@pytest.mark.usefixtures("_forget")
def test_new_says_what_to_do_next(tmp_path, cli):
    result = cli("planners", "new", "my-planner", "--output", tmp_path / "sub")
    for words in ("planners check", "compare bert-large", "pytest", "my_planner.py:MyPlanner"):
        assert words in result.out


FAULTY = Path(__file__).parent.parent / "evaluation" / "faulty_planners.py"
UNTIMED = [word for name in check_names() if name != "keeps-time-limit"
           for word in ("--check", name)]


def test_check_prints_how_many_ran_failed_and_were_skipped(cli):
    passed = cli("planners", "check", f"{FAULTY}:Honest", *UNTIMED)
    assert passed.code == 0
    assert f"{len(check_names()) - 3} checks ran, 0 failed, 2 skipped" in passed.out
    assert "it reports no bound" in passed.out
    assert max(map(len, passed.out.splitlines())) <= 100
    failed = cli("planners", "check", f"{FAULTY}:MutatesProvenance", "--check",
                 "input-not-mutated")
    assert failed.code == 2
    assert "FAILED" in failed.out
    assert "changed problem.profile" in failed.out
    document = cli("planners", "check", f"{FAULTY}:MutatesProvenance", "--check",
                   "input-not-mutated", "--json").json
    assert (document["status"], document["ran"], document["failed"]) == ("error", 1, 1)


def test_check_fails_when_nothing_applied(cli):
    result = cli("planners", "check", f"{FAULTY}:DeclinesEverything", *UNTIMED)
    assert result.code == 2
    assert "0 checks ran" in result.out
    assert "no check applied" in result.out


def test_the_help_of_import_lists_formats_and_their_options(cli):
    from slackswap.profiles.importers import FORMATS

    said = cli("profiles", "import", "--help").out
    for known in FORMATS.values():
        assert f"\n  {known.name} " in said
        for option in known.options:
            assert f"{option}=" in said
    assert "formats " not in cli("profiles", "--help").out
