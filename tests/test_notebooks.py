"""Notebooks are kept twice: as text to read and review, and as ipynb to open. Both say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

jupytext = pytest.importorskip("jupytext", reason="the test extra holds jupytext")

FOLDER = Path(__file__).parents[1] / "notebooks"
SCRIPTS = sorted(FOLDER.glob("*.py"))


def test_all_notebooks_are_there() -> None:
    names = {path.stem for path in SCRIPTS}
    assert names == {path.stem for path in FOLDER.glob("*.ipynb")}
    assert names >= {
        "01_reproduce_the_paper", "02_plug_in_a_planner", "03_compare_plans",
        "04_profile_your_model", "05_where_swapping_pays",
        "06_run_a_plan",
    }


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_and_notebook_say_the_same(script: Path) -> None:
    text, notebook = jupytext.read(script), jupytext.read(script.with_suffix(".ipynb"))
    assert [(cell.cell_type, cell.source) for cell in text.cells] == [
        (cell.cell_type, cell.source) for cell in notebook.cells
    ], f"run: jupytext --update --to ipynb {script.relative_to(FOLDER.parent)}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_notebooks_hold_no_outputs(script: Path) -> None:
    for cell in jupytext.read(script.with_suffix(".ipynb")).cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_notebooks_start_with_a_title_and_run_on_any_kernel(script: Path) -> None:
    notebook = jupytext.read(script)
    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[0].source.startswith("# ")
    assert notebook.metadata["kernelspec"]["name"] == "python3"
