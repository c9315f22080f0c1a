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
# # Compare plans
#
# Why is one plan faster than another? `compare(plan_a, plan_b)` shows both iterations on one time
# axis, and what each difference costs or saves, and which stall it caused or removed.

# %%
import tempfile
from pathlib import Path

from slackswap import Action, Plan, Problem, load_hardware, load_profile, simulate, solve
from slackswap.evaluation import compare, gantt_figure, stalls_by_tensor, write_trace

problem = Problem(load_profile("bert-large"), load_hardware("a100-80gb"), "50%")
problem

# %% [markdown]
# ## Checkpointing against SlackSwap
#
# Checkpointing leaves both directions of the link idle; SlackSwap spends them, and recomputes less.
# The table below the picture groups tensors by role: `layer*.gelu` is that tensor in several of the
# layers.

# %%
checkpointing = solve(problem, "block-checkpointing")
slackswap = solve(problem, "slackswap")
comparison = compare(checkpointing, slackswap)
comparison

# %% [markdown]
# The same live: zoom, hide streams, point at a stretch. Every figure is a Plotly figure, and
# `write_html` writes it as a page of its own; `savefig` of a comparison writes a still SVG picture.

# %%
comparison.figure()

# %%
folder = tempfile.TemporaryDirectory()
comparison.write_html(Path(folder.name) / "comparison.html")
comparison.savefig(Path(folder.name) / "comparison.svg")
sorted(path.name for path in Path(folder.name).iterdir())

# %% [markdown]
# ## Tensor by tensor
#
# One row for each tensor that the plans treat differently. `time_ns` is the second plan's time less
# its time with this one change taken back; it is missing where the plan would not fit without the
# change, and `shortfall_bytes` says by how much.

# %%
changes = comparison.to_frame()
changes.sort_values("time_ns").head(10)

# %%
changes.groupby(["before", "after"])[["nbytes", "recompute_ns", "moved_bytes"]].sum()

# %% [markdown]
# ## A plan that stalls
#
# vDNN makes compute wait at the end of every layer until its copies are out, and back.

# %%
vdnn = solve(problem, "vdnn-all")
waiting = compare(slackswap, vdnn)
waiting.summary()

# %%
waiting.barriers, waiting.stalls[:3]

# %% [markdown]
# What do the barriers alone cost? The same actions without them:

# %%
free = Plan(vdnn.plan.actions)
compare(vdnn.plan, free, problem, names=("with barriers", "without")).summary()

# %% [markdown]
# The stalls that are left, by the tensor that compute waited for:

# %%
score = simulate(problem, free, timeline=True)
[(stall.cause, stall.tensor, stall.total_ns) for stall in stalls_by_tensor(score)[:5]]

# %%
gantt_figure(problem, score)

# %% [markdown]
# ## A change of your own
#
# Plans are values: change one, and see what comes of it. Here the last layers' attention outputs,
# written late, are swapped too. Their copies queue behind all others and must be back first.

# %%
late = {f"layer{layer}.attention": Action.SWAP for layer in (22, 23, 24)}
edited = slackswap.plan.with_actions(late)
compare(slackswap.plan, edited, problem, names=("as planned", "late swaps too"))

# %% [markdown]
# ## In Perfetto
#
# `write_trace` writes Chrome-trace JSON: one track a stream, and memory. Open it at
# <https://ui.perfetto.dev>.

# %%
write_trace(Path(folder.name) / "timeline.json", problem, slackswap.plan)

# %%
folder.cleanup()
