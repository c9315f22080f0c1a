"""The setting of the suite paper-consistent is found again by the search over the stated grid."""

from benchmarks.consistent_settings import CLAIMS, FIRST_THREE, GRID, Setting, is_overlappable
from slackswap.evaluation.run.cell import CellKind
from slackswap.evaluation.run.suite import load_suite

FOUND = Setting(
    device="a100-40gb", link=25e9, gemm=0.58, attention=0.60, memory=0.75, head=False, backward=2.0,
    workspaces=False, bert="bert-large-eager", llama="llama-7b-as-written",
)


def test_it_is_on_the_grid_and_in_the_suite():
    assert all(getattr(FOUND, axis) in values for axis, values in GRID.items())
    cells = [
        cell for cell in load_suite("paper-consistent").cells()
        if cell.kind is CellKind.PLAN and cell.subject == "slackswap" and not cell.variant
    ]
    theirs = {cell.problem().profile.sha256: cell.problem() for cell in cells}
    for problem in FOUND.problems():
        same = theirs[problem.profile.sha256]
        assert same.budget_bytes == problem.budget_bytes
        assert same.hardware.d2h_bytes_per_s == problem.hardware.d2h_bytes_per_s


def test_all_holds_there_but_only_with_superneurons_at_failure():
    assert is_overlappable(FOUND)
    problems = FOUND.problems()
    held = [name for name, holds in CLAIMS.items() if holds(problems)]
    assert tuple(held) == FIRST_THREE
