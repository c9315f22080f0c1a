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
# # Profile your model
#
# A profile is one training step: its tensors, its forward and backward operators, and their times.
# This notebook makes one from a PyTorch model in three ways - priced for a GPU you do not have,
# measured on this CPU, and written by hand from a table of your own - and plans for it.
#
# The cells that need PyTorch say so and do nothing where it is not installed
# (`pip install 'slackswap[torch]'`).

# %%
import importlib.util

import pandas as pd

from slackswap import Problem, load_hardware, solve
from slackswap.evaluation import compare
from slackswap.profiles import from_frame, profile_figure, summarise

HAVE_TORCH = importlib.util.find_spec("torch") is not None
if not HAVE_TORCH:
    print("PyTorch is not installed: the cells that capture a model are skipped.")

# %% [markdown]
# ## A model
#
# Capture wants a function that returns a model (or a loss function) and its example inputs. The
# model returns a loss. On the command line, with this function in `my_model.py`:
#
#     slackswap profiles capture my_model:build --device fake --hardware a100-80gb -o model.json

# %%
if HAVE_TORCH:
    import torch
    from torch import nn

    class Block(nn.Module):
        """A pre-norm transformer block with dropout."""

        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.dropout = nn.Dropout(0.1)

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (
                part.view(batch, length, self.heads, -1).transpose(1, 2)
                for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
            )
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
            return x + self.dropout(self.fc2(nn.functional.gelu(self.fc1(self.norm2(x)))))

    class Model(nn.Module):
        """A small language model that returns its loss."""

        def __init__(self, layers: int, width: int, heads: int, words: int = 4096) -> None:
            super().__init__()
            self.embedding = nn.Embedding(words, width)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.head = nn.Linear(width, words)

        def forward(self, tokens):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x)
            scores = self.head(x[:, :-1])
            return nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())

    def build_large():
        """Return a model for a GPU: in a fake capture it takes no memory."""
        return Model(4, 1024, 16).bfloat16(), (torch.randint(0, 4096, (16, 1024)),)

    def build_small():
        """Return a model that this CPU trains in milliseconds."""
        return Model(2, 128, 4), (torch.randint(0, 4096, (4, 128)),)


# %% [markdown]
# ## Priced for a GPU
#
# With `device="fake"` the model is traced without memory or arithmetic: what autograd saves is
# exact, and each operator is priced by its arithmetic and its bytes on the GPU of your choice.

# %%
a100 = load_hardware("a100-80gb")
if HAVE_TORCH:
    from slackswap.profiles.capture import capture

    large = capture(build_large, device="fake", hardware=a100, name="my-model")
    shown = large
else:
    shown = "skipped: no PyTorch"
shown

# %% [markdown]
# What does it hold? What can the link hide, and what is cheap to recompute?

# %%
if HAVE_TORCH:
    summary = summarise(large, a100)
    print(f"saved {summary.saved_bytes / 1e9:.2f} GB; the link can hide "
          f"{summary.hideable_fraction:.1%} of it in the forward pass")
    shown = pd.DataFrame([price.to_dict() for price in summary.cheapest(6)])
shown

# %%
if HAVE_TORCH:
    shown = profile_figure(large, a100)
shown

# %% [markdown]
# And the plan, at half the activation memory:

# %%
if HAVE_TORCH:
    problem = Problem(large, a100, "50%")
    shown = compare(solve(problem, "block-checkpointing"), solve(problem, "slackswap"))
shown

# %% [markdown]
# ## Measured
#
# With `device="cpu"` or `"cuda"` the step is run operator by operator, several times, and the
# medians are kept; on a GPU the link is measured too. The provenance says what was done.

# %%
if HAVE_TORCH:
    threads = torch.get_num_threads()
    small = capture(build_small, device="cpu", iterations=3, warmup=1, name="my-small-model")
    torch.set_num_threads(threads)
    shown = small
shown

# %% [markdown]
# ## From a table of your own
#
# Whatever you measured with, if you can write one row an operator, you have a profile.

# %%
operators = pd.DataFrame(
    [
        ("conv1", "conv", 900, 1800, "image:9633792", "a1:51380224", "image"),
        ("relu1", "elementwise", 60, 60, "a1", "r1:51380224", "r1"),
        ("conv2", "conv", 1400, 2800, "r1", "a2:25690112", "r1"),
        ("relu2", "elementwise", 30, 30, "a2", "r2:25690112", "r2"),
        ("conv3", "conv", 1300, 2600, "r2", "a3:25690112", "r2"),
        ("relu3", "elementwise", 30, 30, "a3", "r3:25690112", "r3"),
        ("loss", "loss", 20, 20, "r3", "loss:4", "r3"),
    ],
    columns=["name", "kind", "forward_us", "backward_us", "reads", "writes", "saved"],
)
operators

# %%
own = from_frame(operators, name="my-table", provenance={"description": "a table by hand"})
titan = load_hardware("titan-x")
compare(
    solve(Problem(own, titan, "90%"), "vdnn-all"),
    solve(Problem(own, titan, "90%"), "slackswap"),
)

# %% [markdown]
# Save a profile with `own.save("model.json")`; every command and every function takes the file
# where it takes a library name.
