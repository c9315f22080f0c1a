"""Training steps to run plans of: what is hard to execute, in small."""

from __future__ import annotations

import capture_nets
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn


class LowRank(nn.Module):
    """A frozen linear layer and its trained low-rank update."""

    def __init__(self, width: int, rank: int = 2) -> None:
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width, bias=False)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return self.base(x) + 0.5 * self.up(self.down(self.drop(x)))


class Adapted(nn.Module):
    """LoRA: most weights are frozen, so little is saved of them."""

    def __init__(self, width: int = 24, depth: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, width).requires_grad_(False)
        self.layers = nn.ModuleList(LowRank(width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width).requires_grad_(False) for _ in range(depth))
        self.head = nn.Linear(width, 40).requires_grad_(False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + F.silu(layer(norm(x)))
        return F.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


class Experts(nn.Module):
    """A mixture of experts with fixed capacity: top-1 routing, dispatch by gather and scatter."""

    def __init__(self, width: int = 16, experts: int = 4, capacity: int = 12) -> None:
        super().__init__()
        self.route = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.2)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.2)
        self.capacity = capacity

    def forward(self, x):
        gates = self.route(x).softmax(-1)
        best, choice = gates.max(-1)
        place = F.one_hot(choice, gates.shape[-1]).cumsum(0).gather(1, choice[:, None])[:, 0] - 1
        kept = place < self.capacity
        slot = torch.where(kept, choice * self.capacity + place, choice.new_zeros(()))
        filled = x.new_zeros(gates.shape[-1] * self.capacity, x.shape[-1])
        filled = filled.index_add(0, slot, x * kept[:, None])
        mixed = F.gelu(torch.bmm(filled.view(gates.shape[-1], self.capacity, -1), self.up))
        out = torch.bmm(mixed, self.down).flatten(0, 1)[slot]
        return x + out * (best * kept)[:, None]


class ExpertNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.experts = nn.ModuleList(Experts() for _ in range(2))
        self.head = nn.Linear(16, 1)

    def forward(self, x, target):
        x = self.first(x)
        for layer in self.experts:
            x = layer(x)
        return F.mse_loss(self.head(x), target)


class Mixed(nn.Module):
    """bf16 autocast around a transformer block and a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = capture_nets.Transformer(width=16, depth=1, words=30)

    def forward(self, tokens):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(tokens, tokens)


class Twice(nn.Module):
    """One weight used twice in different layouts, one batch norm twice, a residual in place."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6) * 0.3)
        self.norm = nn.BatchNorm1d(6, momentum=None)
        self.noise = nn.Dropout(0.4)

    def forward(self, x):
        y = self.norm(x @ self.weight)
        z = self.norm(self.noise(y) @ self.weight.t())
        z += y
        return (F.rrelu(z, training=True) * torch.rand_like(z)).logsumexp(-1).sum()


def lora():
    return Adapted(), (torch.randint(0, 40, (3, 7)),)


def experts():
    return ExpertNet(), (torch.randn(20, 8), torch.randn(20, 1))


def mixed():
    return Mixed(), (torch.randint(0, 30, (2, 9)),)


def twice():
    return Twice(), (torch.randn(5, 6),)


#: By the names that the tests give them.
NETS = {
    "transformer": capture_nets.transformer,
    "convnet": capture_nets.convnet,
    "unet": capture_nets.skipnet,
    "lora": lora,
    "autocast": mixed,
    "experts": experts,
    "oddities": capture_nets.oddities,
    "counting": capture_nets.counting,
    "twice": twice,
}
