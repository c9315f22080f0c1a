"""What the guide says to type works, and its pictures are what the simulator draws."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from slackswap import registry
from slackswap.cli.main import main

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md"]
CONCEPTS = ("closure", "headroom", "slack", "streams")


def commands() -> list[str]:
    found = []
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
            found += re.findall(r"^\$ (slackswap .*)$", block, re.M)
    return sorted(set(found))


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)


def run(block: str, place: str) -> None:
    """Run a block as a script of its own: without this file's future imports."""
    exec(compile(block, place, "exec", dont_inherit=True), {"__name__": "guide"})


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("guide_draw", DOCS / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_guide_names_commands() -> None:
    assert len(commands()) >= 10


@pytest.mark.parametrize("line", commands())
def test_commands_are_understood(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    # --help stands last: a wrong command or option before it fails first.
    words = [word for word in shlex.split(line, comments=True)[1:] if word != "--version"]
    assert main([*words, "--help"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("page", ["plug-in.md", "first-plan.md", "../README.md"])
def test_python_of_the_guide_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {})
    found = blocks(page)
    assert found
    for number, block in enumerate(found):
        run(block, f"{page}, block {number}")


def test_planners_of_the_guide_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    from slackswap import Problem, load_hardware, load_profile, solve

    monkeypatch.setattr(registry, "_registered", {})
    for block in blocks("plug-in.md")[:2]:
        run(block, "plug-in.md")
    problem = Problem(load_profile("bert-large"), load_hardware("gh200-96gb"), "90%")
    for name in ("swap-the-first-half", "swap-first"):
        assert solve(problem, name).status.has_plan


@pytest.mark.parametrize("name", CONCEPTS)
def test_pictures_are_up_to_date(name: str, drawing: ModuleType) -> None:
    kept = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert drawing.CONCEPTS[name]().svg() == kept, f"run: python docs/draw.py {name}"


def test_the_readme_has_a_place_for_its_table() -> None:
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    before, _, rest = text.partition("<!-- table: begin -->\n")
    table, end, _ = rest.partition("<!-- table: end -->\n")
    assert before
    assert end
    rows = [line.count("|") for line in table.splitlines()]
    assert len(rows) > 5
    assert len(set(rows)) == 1


def test_all_concept_pictures_are_tested(drawing: ModuleType) -> None:
    assert set(drawing.CONCEPTS) == set(CONCEPTS)
    for name in (*drawing.CONCEPTS, *drawing.RESULTS):
        assert (DOCS / "pictures" / f"{name}.svg").is_file()


def documented() -> list[str]:
    """The names that the API reference lists."""
    return re.findall(
        r"^   (slackswap[\w.]+)$", (DOCS / "api.rst").read_text(encoding="utf-8"), re.M
    )


@pytest.mark.parametrize("name", documented())
def test_every_name_of_the_reference_exists(name: str) -> None:
    pkgutil.resolve_name(name)


def test_the_reference_has_every_name_that_the_notebooks_use() -> None:
    listed = {name.rpartition(".")[2] for name in documented()}
    used = set()
    for notebook in sorted((DOCS.parent / "notebooks").glob("*.py")):
        for node in ast.walk(ast.parse(notebook.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("slackswap"):
                used |= {alias.name for alias in node.names}
    assert len(used) > 20
    assert used <= listed, sorted(used - listed)


def test_every_page_is_linked_from_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        assert page.stem == "index" or re.search(rf"^{page.stem}$", index, re.M), page.name
