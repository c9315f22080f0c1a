"""Measures the table of the README and puts it there: ``python docs/readme_table.py``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slackswap import Problem, Solution, files, load_profile, solve
from slackswap.profiles import profile_hardware
from slackswap.search import class_ceilings

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"

PROFILES = ("bert-large", "gpt2-xl", "llama-7b", "gpt-neo-2.7b-a100", "opt-350m-a100")
PLANNERS = (
    "slackswap+", "slackswap", "capuchin", "layer-window", "superneurons", "pofo",
    "megatron-offload", "recompute-milp", "sac-ladder", "chen-greedy", "selective-checkpointing",
    "block-checkpointing", "swapadvisor", "g10", "flashneuron", "vdnn-dyn",
)
_OURS = ("slackswap+", "slackswap")


def measured_table() -> str:
    """Return the table in Markdown: throughput by planner and profile, and what is proven."""
    problems = [Problem(load_profile(name), profile_hardware(name), "50%") for name in PROFILES]
    ceilings = [class_ceilings(problem) for problem in problems]
    bounds = [ceiling.every_plan for ceiling in ceilings]
    rows: list[Sequence[str]] = [("", *PROFILES), ["---"] + ["---:"] * len(PROFILES)]
    for label, kind in (
        ("*no plan exceeds (proven)*", "every_plan"),
        ("*none that only recomputes*", "recompute_only"),
        ("*none that only swaps*", "swap_only"),
    ):
        most = [
            ceiling.throughput(problem.profile.duration_ns)[kind]
            for problem, ceiling in zip(problems, ceilings, strict=True)
        ]
        rows.append((label, *("*none fits*" if share is None else f"*{share:.1%}*"
                              for share in most)))
    gaps: list[Sequence[str]] = []
    for planner in PLANNERS:
        found = [solve(problem, planner, time_limit=60) for problem in problems]
        ours = planner in _OURS
        rows.append((f"**{planner}**" if ours else planner,
                     *(_throughput(solution, bold=ours) for solution in found)))
        if ours:
            gaps.append((
                f"gap of {planner}, at most",
                *(f"{100 * gap:.2f}%" if (gap := solution.gap_to(bound)) is not None else "-"
                  for solution, bound in zip(found, bounds, strict=True)),
            ))
    return "".join("| " + " | ".join(row) + " |\n" for row in (*rows, *gaps))


def _throughput(solution: Solution, *, bold: bool) -> str:
    score = solution.evaluation
    if not solution.status.has_plan or score is None or score.throughput is None:
        return "does not fit"
    return f"**{score.throughput:.1%}**" if bold else f"{score.throughput:.1%}"


def main() -> None:
    """Put a fresh table between the marks of the README."""
    text = README.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    files.write_text(README, head + BEGIN + measured_table() + END + tail)


if __name__ == "__main__":
    main()
