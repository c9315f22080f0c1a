"""Compare the results of two git revisions, bit for bit.

python -m benchmarks.compare_revisions HEAD~1 HEAD
python -m benchmarks.compare_revisions v0.1.0 HEAD --problems 200 --planner slackswap

Each revision is checked out into a temporary worktree and asked the same questions: every problem
and planner of suite ``smoke``, and random problems under several planners. Plans, times and all
other figures of the cost model must be equal; what is not is listed, and the exit code is 1. Run it
over a change that should move nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

#: Folders that install below `slackswap`; those that a revision lacks are passed over.
ROOMS = ("planners", "search", "execution", "profiles", "evaluation", "cli")

#: Planners asked about random problems: by rule, by search, swapping, recomputing, with barriers.
PLANNERS = ("keep-all", "recompute-all", "swap-all", "slackswap", "slackswap+", "capuchin",
            "superneurons", "swapadvisor", "vdnn-all", "vdnn++", "chen-greedy", "largest-first")

#: Runs inside a revision, so it uses only names that all revisions have. Plain dictionaries go out.
PROBE = '''
import json, random, sys
from slackswap import Problem, SlackSwapError, load_hardware, load_profile, simulate, solve
from slackswap.evaluation import load_suite
from slackswap.profiles import random_problem

count, planners = int(sys.argv[1]), sys.argv[2].split(",")

def answer(problem, planner):
    try:
        solution = solve(problem, planner)
    except SlackSwapError as error:
        return {"error": type(error).__name__}
    if solution.plan is None:
        return {"status": str(solution.status)}
    plan = solution.plan.to_dict()
    plan.pop("planner", None)
    return {"status": str(solution.status), "plan": plan, **solution.evaluation.to_dict(),
            "reference": simulate(problem, solution.plan, "reference").to_dict()}

def tell(question, found):
    print(json.dumps([question, found]), flush=True)

seen = set()
for cell in load_suite("smoke").cells():
    if str(cell.kind) != "plan" or cell.subject in ("genetic", "milp"):
        continue
    problem = cell.problem()
    question = f"smoke: {problem.profile.name} {problem.budget_bytes} {cell.subject}"
    if question not in seen:
        seen.add(question)
        tell(question, answer(problem, cell.subject))
for seed in range(count):
    problem = random_problem(random.Random(seed))
    for planner in planners:
        tell(f"random {seed}: {planner}", answer(problem, planner))
'''


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Check a revision out and yield a folder from which its `slackswap` can be imported."""
    with tempfile.TemporaryDirectory() as folder:
        tree, links = Path(folder, "tree"), Path(folder, "links", "slackswap")
        git("worktree", "add", "--quiet", "--detach", str(tree), revision)
        try:
            links.mkdir(parents=True)
            for entry in (tree / "slackswap").iterdir():
                (links / entry.name).symlink_to(entry)
            for room in ROOMS:
                if (tree / room).is_dir():
                    (links / room).symlink_to(tree / room)
            yield links.parent
        finally:
            git("worktree", "remove", "--force", str(tree))


def git(*arguments: str) -> None:
    """Run git in this repository."""
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True)


def answers(revision: str, problems: int, planners: Sequence[str]) -> dict[str, Any]:
    """Return what a revision answers, by question."""
    with checked_out(revision) as folder:
        done = subprocess.run(
            # -P: the current folder must not come before the checked-out package.
            [sys.executable, "-P", "-c", PROBE, str(problems), ",".join(planners)],
            env={**os.environ, "PYTHONPATH": str(folder)}, cwd=folder, check=False,
            capture_output=True, text=True,
        )
    if done.returncode:
        raise SystemExit(f"{revision} does not run:\n{done.stderr[-2000:]}")
    return dict(json.loads(line) for line in done.stdout.splitlines())


def main(arguments: Sequence[str]) -> int:
    """Compare two revisions; return 1 if any answer differs."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare_revisions", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", help="a git revision")
    parser.add_argument("new", help="another")
    parser.add_argument("--problems", type=int, default=1000, help="random problems (1000)")
    parser.add_argument("--planner", action="append", metavar="NAME",
                        help="planner asked about them; repeatable")
    options = parser.parse_args(arguments)
    planners = options.planner or PLANNERS
    old, new = (answers(revision, options.problems, planners)
                for revision in (options.old, options.new))
    differing = [question for question in {**old, **new} if old.get(question) != new.get(question)]
    for question in differing[:20]:
        before, after = (found.get(question) or {} for found in (old, new))
        fields = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        print(f"{question}: {', '.join(fields)} differ ({before.get('iteration_ns')} ns, "
              f"then {after.get('iteration_ns')} ns)")
    print(f"{len(old)} questions, {len(differing)} answers differ")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
