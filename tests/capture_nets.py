"""Small training steps that between them do what models do to a graph."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed(self.norm2(x))


class Transformer(nn.Module):
    """Dropout, attention, tied embedding and head."""

    def __init__(self, width: int = 32, depth: int = 2, words: int = 50) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


class ConvNet(nn.Module):
    """Batch norm with running statistics, in-place activations, pooling with indices."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 16, 10)

    def forward(self, images, labels):
        x = F.relu(self.norm1(self.conv1(images)), inplace=True)
        x = F.relu(self.norm2(self.conv2(x)) + x, inplace=True)
        return F.cross_entropy(self.head(F.max_pool2d(x, 2).flatten(1)), labels)


class SkipNet(nn.Module):
    """A small U-Net: skips over the whole depth, upsampling, transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Conv2d(3, 4, 3, padding=1)
        self.down2 = nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.down3 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.up1 = nn.Conv2d(16, 4, 3, padding=1)
        self.out = nn.Conv2d(8, 3, 1)

    def forward(self, images):
        a = F.silu(self.down1(images))
        b = F.silu(self.down2(a))
        c = F.leaky_relu(self.down3(b))
        d = torch.cat([self.up2(c), b], 1)
        e = F.interpolate(F.softplus(self.up1(d)), scale_factor=2)
        return F.mse_loss(self.out(torch.cat([e, a], 1)), images)


class Recurrent(nn.Module):
    """A composite operator of many steps."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, num_layers=2, dropout=0.2, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0].square().mean()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Oddities(nn.Module):
    """Views, in-place writes, a custom function, a frozen weight, an unused one, a mask branch."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.unused = nn.Linear(6, 6)
        self.register_buffer("scale", torch.ones(6))
        self.ranks = torch.arange(6.0)  # neither parameter nor buffer

    def forward(self, x, mask):
        h = self.first(x)
        h[:, 0] = 0.0
        if mask.all():
            h = h.masked_fill(h > 1, 1.0)
        left, right = h.t().contiguous().chunk(2)
        h = torch.cat([left.sigmoid(), right.tanh()]).t() * self.scale
        h = self.frozen(Square.apply(h)) * self.ranks
        rates = torch.linspace(0, 1, 4)
        h = h * rates[2].item()
        return torch.logsumexp(h, -1).std() + h.cumsum(0).mean()


class Checkpointed(nn.Module):
    """Recomputes a part of itself in backward already."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        return self.head(checkpoint(self.inner, x, use_reentrant=False)).mean()


class Counting(nn.Module):
    """Uses the value of a buffer that it then changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("step", torch.zeros(()))

    def forward(self, x):
        x = self.layer(x) * (self.step + 1)
        self.step += 1
        return x.exp().sum()


def transformer():
    tokens = torch.randint(0, 50, (2, 16))
    return Transformer(), (tokens, tokens)


def convnet():
    return ConvNet(), {"images": torch.randn(4, 3, 8, 8), "labels": torch.randint(0, 10, (4,))}


def skipnet():
    return SkipNet(), torch.randn(2, 3, 16, 16)


def recurrent():
    return Recurrent(), torch.randn(2, 4, 6)


def oddities():
    return Oddities(), (torch.randn(4, 6), torch.ones(4, dtype=torch.bool))


def checkpointed():
    return Checkpointed(), torch.randn(3, 6)


def counting():
    return Counting(), torch.randn(3, 4)


def half_precision():
    """A 16-bit model, converted as users convert."""
    model, inputs = transformer()
    return model.to(torch.bfloat16), inputs


def autocast():
    """fp32 weights under CPU autocast: the 16-bit copies of the weights are saved."""
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1))

    def loss(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float().mean()

    return loss, torch.randn(4, 8)


#: Those that every device can trace as they run.
ALL = (transformer, convnet, skipnet, oddities, counting, half_precision, autocast)
