# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Plug in a planner
#
# A planner is one function: it gets a problem and returns a plan. The framework scores the plan,
# times the planner, and puts it beside all others. This notebook writes one, ranks it, improves it,
# has it checked, and runs it through a suite.

# %%
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from slackswap import (
    Capabilities,
    Infeasible,
    Problem,
    load_hardware,
    load_profile,
    register,
    solve,
)
from slackswap.cost_model.scorer import RECOMPUTE, SWAP, Scorer
from slackswap.evaluation import compare, load_suite, run_checks, run_suite

# %% [markdown]
# ## Fifteen lines
#
# An idea: swap what is written first, as much as the link takes out during the forward pass; then
# recompute what is cheapest a byte, until the plan fits. `Scorer` scores many plans at once, as
# arrays of action codes: one row a plan, one column a tensor.

# %%
@register
def first_out(problem, *, rng, time_limit, report):
    """Swap the earliest tensors, recompute the cheapest of the rest."""
    scorer, graph = Scorer(problem), problem.profile.graph
    saved = np.flatnonzero(graph.is_saved & scorer.allowed[:, SWAP] & scorer.allowed[:, RECOMPUTE])
    hidden = saved[np.cumsum(scorer.d2h_ns[saved]) <= graph.forward_ns.sum()]
    rest = np.setdiff1d(saved, hidden)
    price = graph.forward_ns[graph.producer[rest]] / np.maximum(1, graph.nbytes[rest])
    rest = rest[np.argsort(price, kind="stable")]
    codes = np.tile(scorer.default, (101, 1))
    codes[:, hidden] = SWAP
    for row in range(101):  # recompute 0% to 100% of the rest
        codes[row, rest[: len(rest) * row // 100]] = RECOMPUTE
    best = scorer.score(codes).best()
    if best is None:
        raise Infeasible(f"no share of it fits {problem.budget_bytes} bytes")
    report(recomputed_share=best / 100)
    return scorer.decode(codes[best])


# %% [markdown]
# It is known by its name now, dashes for underscores:

# %%
problem = Problem(load_profile("llama-7b"), load_hardware("a100-80gb"), "50%")
mine = solve(problem, "first-out")
mine

# %% [markdown]
# ## Rank it

# %%
def ranked(problem, planners):
    """Return a table of planners, fastest plan first."""
    rows = []
    for planner in planners:
        found = solve(problem, planner)
        score = found.evaluation
        fits = found.status.has_plan
        rows.append({
            "planner": found.planner.name,
            "throughput": score.throughput if fits else None,
            "stall, ms": score.stall_ns / 1e6 if fits else None,
            "recompute, ms": score.recompute_ns / 1e6 if fits else None,
            "planning, ms": 1e3 * found.planning_s,
            "why not": found.reason,
        })
    table = pd.DataFrame(rows).convert_dtypes()
    return table.sort_values("throughput", ascending=False, na_position="last").round(3)


rivals = ["slackswap", "block-checkpointing", "capuchin", "largest-first", "swap-all"]
ranked(problem, ["first-out", *rivals])

# %% [markdown]
# ## See what the best one does differently
#
# `compare` shows both timelines, and what each difference is worth: it takes the change back and
# simulates again.

# %%
compare(mine, solve(problem, "slackswap"))

# %% [markdown]
# ## Give it a parameter
#
# A planner can be a frozen dataclass. Its fields are its parameters, and results tell them apart.
# Here the share of the link's time to use is one. `@register` again replaces what the name stood
# for, so a cell can be run as often as you like.

# %%
@register
@dataclass(frozen=True, slots=True)
class FirstOut:
    """Swap the earliest tensors, recompute the cheapest of the rest."""

    name: ClassVar[str] = "first-out"
    version: ClassVar[str] = "2"
    capabilities: ClassVar[Capabilities] = Capabilities()

    link_share: float = 0.9

    def plan(self, problem, *, rng, time_limit, report):
        scorer, graph = Scorer(problem), problem.profile.graph
        free = graph.is_saved & scorer.allowed[:, SWAP] & scorer.allowed[:, RECOMPUTE]
        saved = np.flatnonzero(free)
        link_ns = self.link_share * graph.forward_ns.sum()
        hidden = saved[np.cumsum(scorer.d2h_ns[saved]) <= link_ns]
        rest = np.setdiff1d(saved, hidden)
        price = graph.forward_ns[graph.producer[rest]] / np.maximum(1, graph.nbytes[rest])
        rest = rest[np.argsort(price, kind="stable")]
        codes = np.tile(scorer.default, (101, 1))
        codes[:, hidden] = SWAP
        for row in range(101):
            codes[row, rest[: len(rest) * row // 100]] = RECOMPUTE
        # Keeping everything is a plan too, where there is room for it.
        codes = np.vstack([scorer.default, codes])
        best = scorer.score(codes).best()
        if best is None:
            raise Infeasible(f"no share of it fits {problem.budget_bytes} bytes")
        return scorer.decode(codes[best])


pd.Series(
    {
        share: solve(problem, "first-out", link_share=share).evaluation.throughput
        for share in (0.0, 0.3, 0.6, 0.9, 1.2)
    },
    name="throughput by link_share",
).map("{:.2%}".format).to_frame()

# %% [markdown]
# ## Have it checked
#
# Comparisons rest on rules: same seed same plan, never above the budget, no touching of global
# random state, and more. Each check has a name; on the command line it is
# `slackswap planners check my_planner.py:FirstOut`.
#
# A class that lives in a notebook cannot be sent to another process, so that check is skipped here.
# So are those of promises that this planner does not make.

# %%
report = run_checks(FirstOut)
print(report.summary())
pd.DataFrame([outcome.to_dict() for outcome in report.outcomes])[["name", "status", "reason"]]

# %% [markdown]
# ## Move it to a file
#
# `slackswap planners new` writes a planner that works, and its test. Any command takes
# `path/to/file.py:Name` where it takes a planner's name.

# %%
folder = tempfile.TemporaryDirectory()


def slackswap(*arguments):
    """Run the command line in the folder, and print what it prints."""
    # Notebooks ask for colour, which would make the command think that it writes to a terminal.
    plain = {name: value for name, value in os.environ.items() if "COLOR" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "slackswap.cli.main", *arguments],
        cwd=folder.name, env=plain, capture_output=True, text=True, check=False,
    )
    print(done.stdout + done.stderr)
    assert done.returncode == 0, done.returncode


slackswap("planners", "new", "my-planner")
sorted(path.name for path in Path(folder.name).iterdir())

# %%
slackswap(
    "compare", "bert-large", "--budget", "70%", "--planner", "my_planner.py:MyPlanner",
    "--planner", "slackswap", "--planner", "block-checkpointing",
)

# %% [markdown]
# ## Run it through a suite
#
# On the command line: `slackswap evaluate smoke --planner my_planner.py:MyPlanner`. From Python, in
# this process, with the planner that this notebook registered:

# %%
smoke = load_suite("smoke").selected(
    profiles=["resnet50", "bert-large, batch 4"], planners=["first-out", "slackswap"]
)
finished = run_suite(smoke, Path(folder.name) / "results", jobs=0)
finished.plans[["profile", "budget", "planner", "status", "throughput", "gap"]].sort_values(
    ["profile", "budget"]
).round(4)

# %%
folder.cleanup()
