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
# # Where swapping pays
#
# Since the Titan X, arithmetic has grown far faster than the link to the host. What used to be just
# enough to hide everything now hides a part - unless the link is NVLink. This notebook walks the
# hardware catalogue from the Titan X to the GH200 and asks at each stop: what can the link hide,
# and what does using it gain over recomputing alone?

# %%
import pandas as pd
import plotly.graph_objects as go

from slackswap import Problem, load_hardware, load_profile, solve
from slackswap.profiles import find_profile, hideable_fraction
from slackswap.profiles.catalogue import compute_growth, find_device, link_growth
from slackswap.search.bounds import lower_bound

names = ["titan-x", "p100", "v100", "a100-40gb", "a100-80gb", "rtx4090", "h100-sxm", "h200",
         "gh200-96gb"]
devices = {name: find_device(name) for name in names}

# %% [markdown]
# ## Arithmetic against link

# %%
old = devices["titan-x"]
pd.DataFrame(
    {
        name: {
            "year": device.launch_year,
            "TFLOP/s": f"{device.hardware.flops_per_s / 1e12:,.0f} ({device.precision})",
            "link, GB/s": f"{device.hardware.d2h_bytes_per_s / 1e9:.0f}",
            "arithmetic since Titan X": f"{float(compute_growth(old, device)):.1f}x",
            "link since Titan X": f"{float(link_growth(old, device)):.1f}x",
        }
        for name, device in devices.items()
    }
).T

# %% [markdown]
# ## What the link can hide
#
# The same three models, priced for each device: bytes that the link takes out during the forward
# pass, over the bytes saved for the backward pass, in the transformer blocks.

# %%
models = ["bert-large", "gpt2-xl", "llama-7b"]
hideable = pd.DataFrame(
    {
        name: {
            model: hideable_fraction(
                find_profile(model, hardware=device.hardware), device.hardware, blocks_only=True
            )
            for model in models
        }
        for name, device in devices.items()
    }
).T
hideable.map("{:.0%}".format)

# %% [markdown]
# Above 100% the link could carry everything. The bar marks it.

# %%
figure = go.Figure()
for model in models:
    # Devices have no order and nothing between them: marks, not lines.
    figure.add_scatter(x=names, y=hideable[model], mode="markers", name=model,
                       marker={"size": 10})
figure.add_hline(y=1, line_dash="dash", annotation_text="everything")
figure.update_layout(
    template="plotly_white", height=420, margin={"t": 30},
    yaxis={"title": "hideable share of the saved bytes", "type": "log", "tickformat": ".0%"},
)
figure

# %% [markdown]
# ## What using it gains
#
# Half the activation memory on every device. SlackSwap with both means, with recomputing only, and
# with swapping only; each is a parameter of the planner. The last column is the bound: no plan gets
# more.

# %%
rows = []
for name, device in devices.items():
    profile = find_profile("bert-large", hardware=device.hardware)
    problem = Problem(profile, device.hardware, "50%")
    row = {"device": name}
    for label, parameters in (
        ("both", {}), ("recompute only", {"swap": False}), ("swap only", {"recompute": False}),
    ):
        found = solve(problem, "slackswap", **parameters)
        row[label] = found.evaluation.throughput if found.status.has_plan else None
    row["at most"] = profile.duration_ns / lower_bound(problem).value_ns
    rows.append(row)
gains = pd.DataFrame(rows).set_index("device")
gains.map("{:.1%}".format, na_action="ignore")

# %%
figure = go.Figure()
for label, mark in (("both", "circle"), ("recompute only", "square"), ("swap only", "diamond"),
                    ("at most", "line-ew-open")):
    figure.add_scatter(
        x=gains.index, y=gains[label].astype(float), mode="markers", name=label,
        marker={"symbol": mark, "size": 12, "line": {"width": 2}},
    )
figure.update_layout(
    template="plotly_white", height=420, margin={"t": 30},
    yaxis={"title": "throughput of BERT-Large at half the memory", "tickformat": ".0%"},
)
figure

# %% [markdown]
# ## How the answer moves with the budget
#
# On an A100: with little to save, the link alone does it. The tighter the budget, the more must be
# recomputed, but the link's share is never lost.

# %%
a100 = load_hardware("a100-80gb")
profile = load_profile("gpt2-xl")
rows = []
for percent in (90, 80, 70, 60, 50, 40, 30, 20):
    problem = Problem(profile, a100, f"{percent}%")
    row = {"budget": percent / 100}
    for planner in ("slackswap", "block-checkpointing", "swapadvisor"):
        found = solve(problem, planner)
        row[planner] = found.evaluation.throughput if found.status.has_plan else None
    rows.append(row)
sweep = pd.DataFrame(rows).set_index("budget")
sweep.map("{:.1%}".format, na_action="ignore")

# %% [markdown]
# ## What if the link were faster?
#
# `with_link` scales a hardware's link. At which factor does recomputing become unnecessary for
# Llama-7B at half the memory?

# %%
profile = load_profile("llama-7b")
rows = []
for factor in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0):
    found = solve(Problem(profile, a100.with_link(factor), "50%"), "slackswap")
    score = found.evaluation
    rows.append(
        {
            "link": f"x{factor:g}",
            "throughput": score.throughput,
            "recompute, ms": score.recompute_ns / 1e6,
            "stall, ms": score.stall_ns / 1e6,
            "link busy": score.d2h_utilisation,
        }
    )
pd.DataFrame(rows).set_index("link").round(3)
