"""Print how far captures can be trusted: saved bytes against publications, times against a run.

A few minutes; ``--saved`` and ``--times`` do one part each.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from slackswap.profiles.capture import measuring, models
from slackswap.profiles.capture.assembly import number_layers
from slackswap.profiles.capture.session import traced_step

#: Model, attention, sequence x batch x hidden, published units, why the trace differs.
BLOCKS = (
    ("bert_large", "sdpa", 32 * 512 * 1024, 34, "log-sum-exp .0625, norm statistics .0156"),
    ("bert_large", "eager", 32 * 512 * 1024, 74, "norm statistics .0156"),
    ("gpt2_xl", "sdpa", 8 * 1024 * 1600, 58, "log-sum-exp .0625, norm statistics .01"),
    ("gpt2_xl", "eager", 8 * 1024 * 1600, 138, "norm statistics .01"),
    ("llama_7b", "sdpa", 4 * 2048 * 4096, 45.5, "log-sum-exp .03125, norm statistics .002"),
    ("llama3_8b", "sdpa", 2 * 4096 * 4096, 52,
     "keys and values stay 8 heads: less 3; log-sum-exp .03125, norm statistics .002"),
    ("vit_l", "sdpa", 64 * 197 * 1024, None, "BERT's block without its two dropout masks"),
)

#: Wall time is what a profile holds; processor time leaves out what other programs took.
CLOCKS = (("wall", time.perf_counter_ns), ("processor", time.thread_time_ns))


def print_saved() -> None:
    print("Saved bytes of a block, in units of sequence x batch x hidden")
    print(f"{'model':11} {'attention':9} {'traced':>9} {'hooks':>9} {'published':>9}  difference")
    for model, attention, unit, published, why in BLOCKS:
        three, two = (_model_bytes(model, attention, layers) for layers in (3, 2))
        traced, counted = ((more - less) / unit for more, less in zip(three, two, strict=True))
        print(f"{model:11} {attention:9} {traced:9.4f} {counted:9.4f} "
              f"{'-' if published is None else published:>9}  {why}")


def _model_bytes(model: str, attention: str, layers: int) -> tuple[int, int]:
    """Saved bytes of a model by its graph, and by autograd's hooks."""
    build = getattr(models, model)
    with traced_step(lambda: build(attention, layers=layers)) as traced:
        numbers = number_layers(op.path for op in traced.lowered.forward)
        assert max(numbers.values()) == layers - 1
        return traced.lowered.saved_bytes, traced.hook_bytes


def print_times(rounds: int) -> None:
    print("Operators one by one against a plain iteration, one CPU thread, milliseconds")
    print(f"{'model':10} {'clock':10} {'plain':>8} {'operators':>9} {'ratio':>6}")
    torch.set_num_threads(1)
    for name in ("gpt_small", "resnet18"):
        with traced_step(f"slackswap.profiles.capture.models:{name}", device="cpu") as traced:
            for label, now in CLOCKS:
                pairs = [_pair(traced, now) for _ in range(rounds + 1)][1:]
                plain, operators = (
                    statistics.median(column) for column in zip(*pairs, strict=True)
                )
                print(f"{name:10} {label:10} {plain / 1e6:8.1f} {operators / 1e6:9.1f} "
                      f"{operators / plain:6.3f}", flush=True)


class _Clock:
    """As `measuring.WallClock`, by any source of nanoseconds."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now, self._total = now, 0

    def run(self, operator: Callable[[], Any]) -> Any:
        start = self._now()
        result = operator()
        self._total += self._now() - start
        return result

    def read(self) -> list[int]:
        return [self._total]


def _pair(traced: Any, now: Callable[[], int]) -> tuple[int, int]:
    """Time of a plain iteration, and of the operators of the next."""
    subject, lowered = traced.subject, traced.lowered
    start = now()
    subject.step(*subject.tensors).backward()
    plain = now() - start
    for parameter in subject.step.parameters():
        parameter.grad = None
    return plain, measuring.instrumented_ns(subject, lowered, _Clock(now))[0]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--saved", action="store_true", help="saved bytes only")
    parser.add_argument("--times", action="store_true", help="times only")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of iterations")
    options = parser.parse_args(arguments)
    if not options.times:
        print_saved()
    if not options.saved:
        print_times(options.rounds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
