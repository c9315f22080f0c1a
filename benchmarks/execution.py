"""Plans that run: bits, bytes and times of training steps, predicted and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.scale import Scale
from benchmarks.tables import Column, Goal, Row, Table, yes_or_no
from slackswap.hardware import Hardware
from slackswap.quantities import format_bytes, format_ns

#: Half a gigabyte a second: of the order of what hides some, not all, of these models' tensors.
LINK = Hardware("emulated 500 MB/s", 5 * 10**8, 5 * 10**8, 20_000)
PLANNERS = ("slackswap", "keep-all", "recompute-all", "swap-all", "block-checkpointing", "capuchin")
BUDGETS = (1.0, 0.6)
#: Keeping everything may take this much longer than eager execution.
_OVERHEAD = Goal(1.05, show=lambda ratio: f"{ratio:.2f}")
COLUMNS = (
    Column("model", "model", left=True), Column("budget", "budget", lambda f: f"{f:.0%}"),
    Column("planner", "planner", left=True), Column("bits", "bits equal", yes_or_no),
    Column("kept", "budget kept", yes_or_no), Column("live_bytes", "alive", format_bytes),
    Column("predicted_ns", "predicted", format_ns), Column("measured_ns", "measured", format_ns),
    Column("off", "off", lambda share: f"{share:+.1%}"),
)


def transformer() -> tuple[Any, Any]:
    """Return a transformer with dropout and a tied head, small enough for a CPU."""
    import torch
    from torch import nn

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self, width: int = 128, depth: int = 3, words: int = 512) -> None:
            super().__init__()
            self.embed = nn.Embedding(words, width)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
                for _ in range(depth)
            )
            self.head = nn.Linear(width, words, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: Any) -> Any:
            x = self.embed(tokens)
            for layer in self.layers:
                x = layer(x)
            return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())

    return Model(), (torch.randint(0, 512, (8, 64)),)


def convnet() -> tuple[Any, Any]:
    """Return a convolutional net with batch norm, small enough for a CPU."""
    import torch
    from torch import nn

    layers: list[Any] = []
    for before, after in ((3, 32), (32, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    labels = torch.randint(0, 10, (8,))
    return (
        lambda images: nn.functional.cross_entropy(model(images), labels.to(images.device)),
        torch.randn(8, 3, 32, 32),
    )


def tables(scale: Scale) -> Iterator[Table]:
    """Train each model under each planner's plan."""
    full = scale.repeats > 1
    models = {"transformer": transformer, "convnet": convnet} if full else {"convnet": convnet}
    rows = [
        row for name, build in models.items()
        for row in measured(
            name, build, PLANNERS if full else PLANNERS[:2], BUDGETS if full else BUDGETS[:1],
            steps=3 * scale.repeats, hardware=LINK,
        )
    ]
    yield Table(
        "execution", "Plans run in PyTorch, on this CPU with an emulated link", COLUMNS, rows,
        "Medians over training steps with AdamW. Bits: losses, gradients and weights against the "
        "plain model. Alive: peak of the storage log. A copy takes the cores that compute needs, "
        "so times of plans that swap are off on a CPU.",
    )
    yield Table(
        "execution-overhead", "Keeping everything, beside eager execution",
        (Column("model", "model", left=True), Column("plain_ns", "eager", format_ns),
         Column("measured_ns", "planned", format_ns),
         Column("ratio", "ratio", lambda ratio: f"{ratio:.3f}"), Column("target", "target"),
         Column("met", "met", yes_or_no)),
        [overhead(name, build, repeats=max(2, scale.repeats)) for name, build in models.items()],
        "Best of several alternating steps.",
    )


def measured(
    name: str, build: Callable[[], Any], planners: Sequence[str], budgets: Sequence[float],
    *, steps: int, hardware: Hardware | None, device: str = "cpu",
) -> list[Row]:
    """Return a row for each budget and planner that has a plan for it."""
    from slackswap.execution.running import run_planners

    rows: list[Row] = []
    for budget in budgets:
        run = run_planners(
            build, planners, budget=budget, steps=steps, hardware=hardware, device=device,
            iterations=max(2, steps // 2),
        )
        for trial in run.trials:
            predicted, taken = trial.report.predicted.step_ns, trial.report.measured.step_ns
            rows.append({
                "model": name, "budget": budget, "planner": trial.report.planner,
                "bits": trial.difference is None, "kept": trial.keeps_budget,
                "live_bytes": trial.live_bytes, "predicted_ns": predicted, "measured_ns": taken,
                "plain_ns": trial.plain_ns, "off": taken / predicted - 1,
            })
    return rows


def overhead(name: str, build: Callable[[], Any], *, repeats: int) -> Row:
    """Time the plain model and the keep-everything plan by turns; the best of each counts."""
    import time

    import torch

    from slackswap.execution.building import plan_and_compile
    from slackswap.execution.module import PlannedStep
    from slackswap.execution.threads import ThreadLink
    from slackswap.problem import Problem
    from slackswap.profiles.capture.session import capture_step

    captured = capture_step(
        build, device="cpu", hardware=None, optimizer="none", iterations=1, warmup=0, name=name,
        description=None, prices=None, seed=0,
    )
    subject = captured.subject
    planned = plan_and_compile(
        captured, Problem(captured.profile, LINK, None), "keep-all", torch.device("cpu")
    )
    step = PlannedStep(captured, planned, ThreadLink())
    args, kwargs = subject.step.arguments_of(subject.tensors)

    def timed(call: Callable[[], Any]) -> int:
        started = time.perf_counter_ns()
        call().backward()
        taken = time.perf_counter_ns() - started
        subject.step.zero_grad()
        return taken

    pairs = [
        (timed(lambda: subject.step(*subject.tensors)), timed(lambda: step(*args, **kwargs)))
        for _ in range(1 + 5 * repeats)
    ]
    plain, ours = (min(column) for column in zip(*pairs[1:], strict=True))
    ratio = ours / plain
    return {"model": name, "plain_ns": plain, "measured_ns": ours, "ratio": ratio,
            **_OVERHEAD.judged(ratio)}
