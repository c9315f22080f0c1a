"""Small training steps of every architecture that people bring, for the independent count."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.checkpoint import checkpoint

ARCHITECTURES = []


def step(build):
    """Register a build function."""
    ARCHITECTURES.append(build)
    return build


class Net(nn.Module):
    """A model from its parts and a function of them."""

    def __init__(self, run, **parts):
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.run = run

    def forward(self, *inputs, **named):
        return self.run(self, *inputs, **named)


def rows(*shape):
    return torch.randn(*shape)


def classes(count, *shape):
    return torch.randint(0, count, shape)


@step
def torch_encoder():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    net = Net(lambda s, x: s.body(x).square().mean(), body=nn.TransformerEncoder(layer, 2))
    return net, rows(2, 8, 16)


@step
def torch_encoder_decoder():
    body = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
    return Net(lambda s, a, b: s.body(a, b).mean(), body=body), (rows(2, 6, 16), rows(2, 5, 16))


def attention(s, x):
    b, t, w = x.shape
    q, k, v = s.qkv(x).view(b, t, 3, 2, w // 2).permute(2, 0, 3, 1, 4)
    scores = (q @ k.transpose(-1, -2)).masked_fill(s.mask, -1e9)
    y = F.dropout(scores.softmax(-1), 0.1, s.training) @ v
    return s.out(y.transpose(1, 2).reshape(b, t, w))


@step
def causal_attention_by_hand():
    return Net(lambda s, x: attention(s, x).square().sum(), qkv=nn.Linear(8, 24),
               out=nn.Linear(8, 8), mask=torch.ones(6, 6).triu(1).bool()), rows(2, 6, 8)


@step
def tied_language_model():
    embed = nn.Embedding(20, 8)
    head = nn.Linear(8, 20, bias=False)
    head.weight = embed.weight

    def run(s, tokens):
        x = s.norm(s.embed(tokens))
        return F.cross_entropy(s.head(x).flatten(0, 1), tokens.flatten())

    return Net(run, embed=embed, head=head, norm=nn.LayerNorm(8)), classes(20, 2, 7)


@step
def gelu_mlp_dict_output():
    return Net(lambda s, x: {"logits": s.f(x), "loss": F.gelu(s.f(x)).mean()},
               f=nn.Linear(8, 8)), {"x": rows(4, 8)}


@step
def vanilla_rnn():
    return Net(lambda s, x: s.r(x)[0].mean(), r=nn.RNN(6, 5, batch_first=True)), rows(2, 4, 6)


def gru_two_layers():
    return Net(lambda s, x: s.r(x)[0].square().sum(), r=nn.GRU(6, 5, 2)), rows(4, 2, 6)


def bidirectional_gru():
    return Net(lambda s, x: s.r(x)[1].square().sum(), r=nn.GRU(6, 5, bidirectional=True)), rows(
        4, 2, 6)


@step
def lstm_cell_loop():
    def run(s, x):
        h = c = torch.zeros(2, 5)
        for part in x:
            h, c = s.cell(part, (h, c))
        return h.square().mean()

    return Net(run, cell=nn.LSTMCell(6, 5)), rows(3, 2, 6)


@step
def conv_batch_norm():
    body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3),
                         nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1))
    return Net(lambda s, x, y: F.cross_entropy(s.body(x).flatten(1), y), body=body), (
        rows(2, 3, 8, 8), classes(4, 2))


@step
def conv_group_norm():
    body = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.SiLU())
    return Net(lambda s, x: s.body(x).square().mean(), body=body), rows(2, 3, 9, 9)


@step
def depthwise_separable():
    body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.ReLU6(), nn.Conv2d(4, 8, 1),
                         nn.Hardswish())
    return Net(lambda s, x: s.body(x).mean(), body=body), rows(2, 4, 6, 6)


@step
def residual_block():
    return Net(lambda s, x: F.relu(s.b(F.relu(s.a(x))) + x).sum(), a=nn.Conv2d(4, 4, 3, padding=1),
               b=nn.Conv2d(4, 4, 3, padding=1)), rows(2, 4, 6, 6)


@step
def instance_norm_1d():
    body = nn.Sequential(nn.Conv1d(3, 6, 3), nn.InstanceNorm1d(6, affine=True), nn.ELU())
    return Net(lambda s, x: s.body(x).square().mean(), body=body), rows(2, 3, 10)


@step
def u_net():
    def run(s, x):
        a = F.relu(s.down(x))
        b = F.relu(s.deep(F.max_pool2d(a, 2)))
        c = torch.cat([s.up(b), a], 1)
        return F.mse_loss(s.out(c), x)

    return Net(run, down=nn.Conv2d(2, 4, 3, padding=1), deep=nn.Conv2d(4, 8, 3, padding=1),
               up=nn.ConvTranspose2d(8, 4, 2, stride=2), out=nn.Conv2d(8, 2, 1)), rows(2, 2, 8, 8)


@step
def volume_conv():
    return Net(lambda s, x: F.avg_pool3d(F.leaky_relu(s.c(x)), 2).sum(),
               c=nn.Conv3d(1, 2, 3)), rows(1, 1, 6, 6, 6)


@step
def siamese():
    def run(s, a, b, y):
        return F.cosine_embedding_loss(s.left(a), s.right(b), y)

    tower = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    return Net(run, left=tower, right=tower), (rows(3, 6), rows(3, 6), torch.ones(3))


@step
def one_block_twice():
    b = nn.Linear(6, 6)
    return Net(lambda s, x: s.body(x).sum(), body=nn.Sequential(b, nn.ReLU(), b)), rows(3, 6)


@step
def triplet():
    f = nn.Linear(6, 4)
    return Net(lambda s, a, b, c: F.triplet_margin_loss(s.f(a), s.f(b), s.f(c)), f=f), (
        rows(3, 6), rows(3, 6), rows(3, 6))


@step
def lora():
    base = nn.Linear(8, 8).requires_grad_(False)
    return Net(lambda s, x: F.gelu(s.base(x) + s.up(s.down(x)) * 2.0).mean(), base=base,
               down=nn.Linear(8, 2, bias=False), up=nn.Linear(2, 8, bias=False)), rows(4, 8)


@step
def frozen_backbone():
    back = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)).requires_grad_(False)
    return Net(lambda s, x: s.head(s.back(x)).square().mean(), back=back,
               head=nn.Linear(8, 2)), rows(4, 8)


@step
def mixture_of_experts_fixed_capacity():
    def run(s, x):
        gates = s.gate(x).softmax(-1)
        weight, chosen = gates.topk(3, dim=0)
        y = torch.zeros_like(x)
        for e, expert in enumerate(s.experts):
            part = expert(x[chosen[:, e]]) * weight[:, e : e + 1]
            y = y.index_add(0, chosen[:, e], part)
        return y.square().mean()

    return Net(run, gate=nn.Linear(6, 2), experts=nn.ModuleList(nn.Linear(6, 6) for _ in "ab")), (
        rows(5, 6))


@step
def soft_mixture():
    def run(s, x):
        weights = s.gate(x).softmax(-1)
        return sum(w[:, None] * e(x) for w, e in zip(weights.unbind(1), s.e, strict=True)).mean()

    experts = nn.ModuleList(nn.Linear(6, 6) for _ in "ab")
    return Net(run, gate=nn.Linear(6, 2), e=experts), rows(5, 6)


@step
def gather_rows():
    return Net(lambda s, x, i: s.f(x).gather(1, i).sum(), f=nn.Linear(6, 40)), (
        rows(4, 6), classes(40, 4, 2))


@step
def index_select_and_take():
    return Net(lambda s, x, i: s.f(x).index_select(0, i).mean() + s.f(x).take(i).sum(),
               f=nn.Linear(6, 20)), (rows(8, 6), classes(8, 2))


@step
def fourier_mixing():
    return Net(lambda s, x: s.g(torch.fft.fft2(s.f(x)).real).square().mean(), f=nn.Linear(8, 8),
               g=nn.Linear(8, 8)), rows(2, 8, 8)


@step
def real_fourier_filter():
    def run(s, x):
        return torch.fft.irfft(torch.fft.rfft(s.f(x), dim=1) * s.gain, n=8, dim=1).abs().mean()

    return Net(run, f=nn.Linear(8, 8), gain=nn.Parameter(torch.randn(5, 1))), rows(2, 8, 8)


@step
def sorting():
    return Net(lambda s, x: (s.f(x).sort(-1)[0] * torch.arange(12.0)).mean(),
               f=nn.Linear(6, 12)), rows(4, 6)


@step
def top_k():
    return Net(lambda s, x: s.f(x).topk(3)[0].exp().sum(), f=nn.Linear(6, 12)), rows(4, 6)


@step
def cumulative():
    return Net(lambda s, x: s.f(x).cumsum(1).tanh().mean() + s.f(x).cumprod(1).mean()
               + s.f(x).logcumsumexp(1).mean(), f=nn.Linear(6, 5)), rows(4, 6)


@step
def extremes():
    return Net(lambda s, x: s.f(x).max(1)[0].sum() + s.f(x).amax(0).sum() + s.f(x).min()
               + s.f(x).median(1)[0].sum(), f=nn.Linear(6, 30)), rows(4, 6)


@step
def embedding_bag():
    return Net(lambda s, i, o: s.e(i, o).square().mean(), e=nn.EmbeddingBag(10, 4)), (
        classes(10, 9), torch.tensor([0, 4, 7]))


@step
def pooling_with_indices():
    def run(s, x):
        y, where = F.max_pool2d(s.c(x), 2, return_indices=True)
        return F.max_unpool2d(y, where, 2).square().mean()

    return Net(run, c=nn.Conv2d(2, 3, 3, padding=1)), rows(2, 2, 8, 8)


@step
def dropouts():
    body = nn.Sequential(nn.Conv2d(2, 4, 1), nn.Dropout2d(0.3), nn.Dropout(0.2),
                         nn.AlphaDropout(0.1), nn.FeatureAlphaDropout(0.1))
    return Net(lambda s, x: s.body(x).square().mean(), body=body), rows(2, 2, 5, 5)


@step
def in_place_operations():
    def run(s, x):
        h = s.f(x)
        h.mul_(2).add_(1)
        h[:, 1:3] = 0.5
        h.clamp_(min=-1.0)
        return h.sigmoid_().mean()

    return Net(run, f=nn.Linear(6, 6)), rows(4, 6)


@step
def views_of_views():
    def run(s, x):
        a, b = s.f(x).t().reshape(2, 3, 4).unbind(0)
        return (a.expand(2, 3, 4) * b.squeeze()).permute(2, 0, 1).flatten(1).unfold(1, 2, 2).sum()

    return Net(run, f=nn.Linear(6, 6)), rows(4, 6)


@step
def bilinear_upsampling():
    return Net(lambda s, x: F.interpolate(s.c(x), scale_factor=2, mode="bilinear").square().mean(),
               c=nn.Conv2d(2, 3, 3)), rows(1, 2, 6, 6)


@step
def spatial_transformer():
    def run(s, x):
        theta = s.f(x.mean((2, 3))).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False).square().mean()

    return Net(run, f=nn.Linear(2, 6)), rows(2, 2, 5, 5)


@step
def padding_and_shifts():
    return Net(lambda s, x: (F.pad(s.c(x), (1, 1, 1, 1), mode="reflect").roll(1, 2).flip(3)
               * 2).square().mean(), c=nn.Conv2d(2, 3, 3)), rows(1, 2, 6, 6)


@step
def pixel_shuffle():
    return Net(lambda s, x: F.pixel_shuffle(F.prelu(s.c(x), s.a), 2).square().mean(),
               c=nn.Conv2d(2, 4, 3), a=nn.Parameter(torch.full((4,), 0.2))), rows(1, 2, 6, 6)


@step
def autocast_bf16():
    def run(s, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return s.b(F.relu(s.a(x))).float().square().mean()

    return Net(run, a=nn.Linear(8, 8), b=nn.Linear(8, 8)), rows(4, 8)


@step
def bf16_model():
    net = Net(lambda s, x: s.n(s.a(x)).square().mean(), a=nn.Linear(8, 8), n=nn.LayerNorm(8))
    return net.to(torch.bfloat16), rows(4, 8).to(torch.bfloat16)


@step
def buffers_and_constants():
    def run(s, x):
        s.seen += 1
        return (s.f(x) * s.scale + torch.arange(6.0)).square().mean()

    return Net(run, f=nn.Linear(6, 6), scale=torch.ones(6), seen=torch.zeros(())), rows(4, 6)


@step
def regression_losses():
    return Net(lambda s, x, y: F.smooth_l1_loss(s.f(x), y) + F.huber_loss(s.f(x), y)
               + F.l1_loss(s.f(x), y), f=nn.Linear(6, 3)), (rows(4, 6), rows(4, 3))


@step
def probability_losses():
    return Net(lambda s, x, y: F.kl_div(s.f(x).log_softmax(-1), y.softmax(-1), reduction="sum")
               + F.binary_cross_entropy_with_logits(s.f(x), y.sigmoid())
               + F.nll_loss(s.f(x).log_softmax(-1), y.argmax(-1)), f=nn.Linear(6, 3)), (
        rows(4, 6), rows(4, 3))


@step
def contrastive():
    def run(s, a, b):
        a, b = F.normalize(s.f(a), dim=-1), F.normalize(s.g(b), dim=-1)
        logits = a @ b.t() * s.scale.exp()
        return F.cross_entropy(logits, torch.arange(4)) + F.cross_entropy(
            logits.t(), torch.arange(4))

    return Net(run, f=nn.Linear(6, 5), g=nn.Linear(7, 5), scale=nn.Parameter(torch.ones(()))), (
        rows(4, 6), rows(4, 7))


@step
def teacher_and_student():
    student = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
    teacher = copy.deepcopy(student).requires_grad_(False)

    def run(s, x):
        with torch.no_grad():
            wanted = s.teacher(x).softmax(-1)
        return F.cross_entropy(s.student(x), wanted)

    return Net(run, student=student, teacher=teacher), rows(4, 6)


@step
def moving_average_teacher():
    student = nn.Linear(6, 6)
    teacher = copy.deepcopy(student).requires_grad_(False)

    def run(s, x):
        with torch.no_grad():
            for slow, fast in zip(s.teacher.parameters(), s.student.parameters(), strict=True):
                slow.mul_(0.9).add_(fast, alpha=0.1)
        return F.mse_loss(s.student(x), s.teacher(x))

    return Net(run, student=student, teacher=teacher), rows(4, 6)


@step
def variational_autoencoder():
    def run(s, x):
        mean, spread = s.encode(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (spread / 2).exp()
        divergence = (mean.square() + spread.exp() - 1 - spread).mean()
        return F.mse_loss(s.decode(z), x) + divergence

    return Net(run, encode=nn.Linear(6, 8), decode=nn.Linear(4, 6)), rows(4, 6)


@step
def gated_state_space():
    def run(s, x):
        u, gate = s.inner(x).chunk(2, -1)
        h, outputs = torch.zeros(2, 4), []
        for t in range(u.shape[1]):
            h = h * s.decay.sigmoid() + u[:, t]
            outputs.append(h)
        return (torch.stack(outputs, 1) * F.silu(gate)).square().mean()

    return Net(run, inner=nn.Linear(6, 8), decay=nn.Parameter(torch.zeros(4))), rows(2, 5, 6)


@step
def graph_convolution():
    def run(s, x, source, target):
        messages = s.f(x)[source]
        return torch.zeros(5, 4).scatter_add(
            0, target[:, None].expand_as(messages), messages).relu().sum()

    return Net(run, f=nn.Linear(6, 4)), (rows(5, 6), classes(5, 9), classes(5, 9))


@step
def weight_norms():
    body = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)), nn.Tanh())
    return Net(lambda s, x: s.body(x).square().mean(), body=body), rows(4, 6)


@step
def einsum_and_matrices():
    return Net(lambda s, x: torch.einsum("bij,bkj->bik", s.f(x), x).logsumexp(-1).var()
               + torch.linalg.norm(s.f(x)), f=nn.Linear(6, 6)), rows(2, 4, 6)


@step
def unused_parts():
    def run(s, x):
        s.a(x).exp().sum()  # leads nowhere
        return s.b(x).square().mean()

    return Net(run, a=nn.Linear(6, 6), b=nn.Linear(6, 6), c=nn.Linear(6, 6)), rows(4, 6)


def checkpointed(keep=False):
    """Traced as if it kept everything: eager execution without checkpoints is what is counted."""
    def run(s, x):
        for block in s.blocks:
            x = block(x) if keep else checkpoint(block, x, use_reentrant=False)
        return x.square().mean()

    blocks = nn.ModuleList(
        nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6)) for _ in "ab"
    )
    return Net(run, blocks=blocks), rows(3, 6)


#: PyTorch's composite GRU writes its gates in place into parts of one storage, all of which eager
#: execution then holds; in the graph each part has a storage of its own.
PARTS_WRITTEN_IN_PLACE = (gru_two_layers, bidirectional_gru)


def without_checkpoints():
    return checkpointed(keep=True)
