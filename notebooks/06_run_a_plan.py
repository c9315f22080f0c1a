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
# # Run a plan
#
# From a model to a training step under half its activation memory: capture, plan, compile, train,
# and compare what the simulator predicted with what happened.
#
# The cells that need PyTorch say so and do nothing where it is not installed
# (`pip install 'slackswap[torch]'`).

# %%
import importlib.util

import pandas as pd

from slackswap import Hardware

HAVE_TORCH = importlib.util.find_spec("torch") is not None
if not HAVE_TORCH:
    print("PyTorch is not installed: the cells that run a model are skipped.")

# %% [markdown]
# ## A model
#
# Three transformer layers with dropout, and a head that shares the embedding's weight. It is small,
# because here the CPU is the device: a copy "to the host" is a copy in the same memory.

# %%
if HAVE_TORCH:
    import torch
    from torch import nn

    torch.set_num_threads(1)  # so that copy threads and operators do not fight for the cores
    torch.manual_seed(0)

    class Model(nn.Module):
        """A small language model that returns its loss."""

        def __init__(self, width: int = 64, depth: int = 3, words: int = 256) -> None:
            super().__init__()
            self.embed = nn.Embedding(words, width)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
                for _ in range(depth)
            )
            self.head = nn.Linear(width, words, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            x = self.embed(tokens)
            for layer in self.layers:
                x = layer(x)
            return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())

    model = Model()
    batches = [torch.randint(0, 256, (4, 32)) for _ in range(6)]

# %% [markdown]
# ## Compile it for half the memory
#
# `compile` captures the step, measures its operators, plans, and returns a module that shares the
# model's parameters. A link of 200 MB/s is planned for, and copies are held to it.

# %%
link = Hardware("200 MB/s", 2 * 10**8, 2 * 10**8, 10_000)
if HAVE_TORCH:
    from slackswap.execution import compile

    step = compile(
        model, (batches[0],), budget="50%", planner="slackswap", hardware=link,
        emulate_link=True, iterations=2,
    )
    print(f"budget {step.planned.problem.budget_bytes:,} bytes, "
          f"{step.planned.reserved_bytes:,} of them set aside")
    shown = pd.Series([str(action) for action in step.planned.plan.actions.values()]).value_counts()
else:
    shown = "skipped: no PyTorch"
shown

# %% [markdown]
# ## Train
#
# An ordinary loop. The same loop with the plain model, from the same start and with the same random
# numbers, gives the same losses and weights, to the bit.

# %%
if HAVE_TORCH:
    import copy

    start = copy.deepcopy(model.state_dict())

    def train(call):
        """Train six steps and return the losses and the weights."""
        model.load_state_dict(start)
        torch.manual_seed(1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for tokens in batches:
            loss = call(tokens)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses, copy.deepcopy(model.state_dict())

    plain_losses, plain_weights = train(model)
    losses, weights = train(step)
    assert losses == plain_losses
    assert all(torch.equal(weights[name], plain_weights[name]) for name in weights)
    shown = losses

shown

# %% [markdown]
# ## Predicted against measured
#
# Bytes are exact promises. Times on a shared CPU are not: a copy takes the cores that compute
# needs.

# %%
if HAVE_TORCH:
    report = step.report()
    assert report.measured.peak_bytes <= report.budget_bytes
    shown = pd.DataFrame(report.rows(), columns=["", "predicted", "measured", "off"]).set_index("")
shown

# %% [markdown]
# The same as a picture: what each stream did, simulated above and measured below.

# %%
if HAVE_TORCH:
    import plotly.graph_objects as go

    figure = go.Figure()
    colours = {"forward": "#4c78a8", "backward": "#72b7b2", "recompute": "#eeca3b",
               "stall": "#e45756", "offload": "#b279a2", "prefetch": "#ff9da6"}
    runs = {"measured": step.last.on_one_clock(), "simulated": step.planned.prediction.timeline}
    for run, events in runs.items():
        for kind, colour in colours.items():
            chosen = [event for event in events if event.kind == kind]
            figure.add_bar(
                y=[f"{run} {event.stream}" for event in chosen], orientation="h", name=kind,
                base=[event.start_ns / 1e6 for event in chosen], marker_color=colour,
                x=[(event.end_ns - event.start_ns) / 1e6 for event in chosen],
                hovertext=[event.name for event in chosen], showlegend=run == "simulated",
            )
    figure.update_layout(barmode="overlay", xaxis_title="ms", height=360)
    shown = figure
shown

# %% [markdown]
# ## Without this executor
#
# PyTorch's selective checkpointing takes the plan too. It knows operators, not tensors, and does
# not copy to the host: a swapped tensor is kept. What that costs is scored.

# %%
if HAVE_TORCH:
    from torch.utils.checkpoint import checkpoint

    from slackswap.execution import as_checkpoint_policy

    policy = as_checkpoint_policy(step.planned.problem, step.planned.plan)
    checkpoint(model, batches[0], use_reentrant=False, context_fn=policy).backward()
    shown = str(policy.projection)
shown

# %% [markdown]
# On the command line, with a function `build` in `my_model.py` that returns the model and its
# inputs:
#
#     slackswap run my_model:build --budget 50% --planner slackswap --planner capuchin --steps 20
