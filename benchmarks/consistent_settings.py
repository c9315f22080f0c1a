"""Settings consistent with the figures of the paper's abstract, found again from a stated grid.

python -m benchmarks.consistent_settings
python -m benchmarks.consistent_settings --settings 300 --seed 1
python -m benchmarks.consistent_settings --all

The abstract names no device, batch, price or link. The grid below spans what a reader might take:
every combination of its axes is a setting. They are tried in an order drawn from the seed, as many
as asked for. For each claim the share of settings that satisfies it is printed, and the settings
that satisfy several at once. What comes out is *consistent with* the abstract; it says nothing of
which setting the authors used. A setting takes some seconds.

With ``--all`` the whole grid is searched: the share that can be overlapped, which is cheap, is
looked at everywhere, and the other claims where it is the abstract's.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice, product
from math import prod
from typing import Any

from slackswap import Problem, solve
from slackswap.errors import SlackSwapError
from slackswap.hardware import Hardware
from slackswap.planners.superneurons import SuperNeurons
from slackswap.profile import Profile
from slackswap.profiles.generators.prices import Prices
from slackswap.profiles.library import load_hardware, resolve_profile
from slackswap.profiles.overlap import hideable_fraction, hideable_in_forward
from slackswap.profiles.simplified import simplified_profile
from slackswap.registry import PlannerLike
from slackswap.search.swapadvisor import SwapAdvisor

#: By axis, the values that a reader might take. Their product is the grid.
GRID: Mapping[str, tuple[Any, ...]] = {
    "device": ("a100-40gb", "a100-80gb"),
    "link": (22e9, 24e9, 25e9, 26e9),
    "gemm": (0.50, 0.54, 0.58, 0.62, 0.66, 0.70),
    "attention": (0.50, 0.55, 0.60),
    "memory": (0.75, 0.80),
    "head": (True, False),
    "backward": (None, 2.0),
    "workspaces": (True, False),
    "bert": ("bert-large", "bert-large-eager"),
    "llama": ("llama-7b", "llama-7b-as-written"),
}

#: The abstract's families; SuperNeurons as its cache copies, which is not its fastest reading.
BASELINES: Mapping[str, PlannerLike] = {
    "block checkpointing": "block-checkpointing",
    "SuperNeurons": SuperNeurons(copy_at="failure", unread_checkpoints="joins"),
    "vDNN": "vdnn-dyn",
    # Belady's victims: its genetic search is worth at most 0.3 points, and seconds.
    "SwapAdvisor": SwapAdvisor(victims="belady"),
}
FASTEST: Mapping[str, PlannerLike] = {**BASELINES, "SuperNeurons": "superneurons"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of the grid."""

    device: str
    link: float
    gemm: float
    attention: float
    memory: float
    head: bool
    backward: float | None
    workspaces: bool
    bert: str
    llama: str

    def problems(self) -> list[Problem]:
        """Return the three models at half the activation memory."""
        return [
            Problem(profile, self._hardware(), "50%")
            for profile in map(self._profile, (self.bert, "gpt2-xl", self.llama))
        ]

    def _hardware(self) -> Hardware:
        hardware = load_hardware(self.device)
        return hardware.with_link(self.link / hardware.d2h_bytes_per_s)

    def _profile(self, name: str) -> Profile:
        return _profile(
            name, self.device, self.gemm, self.attention, self.memory, self.head, self.backward,
            self.workspaces,
        )

    def __str__(self) -> str:
        return ", ".join(f"{name} {getattr(self, name)}" for name in GRID)


@lru_cache(maxsize=64)
def _profile(
    name: str, device: str, gemm: float, attention: float, memory: float, head: bool,
    backward: float | None, workspaces: bool,
) -> Profile:
    prices = Prices(
        gemm_efficiency=gemm, attention_efficiency=attention, memory_efficiency=memory,
        with_head=head,
    )
    priced = resolve_profile(name, load_hardware(device), prices=prices)
    return simplified_profile(priced, backward=backward, workspaces=workspaces)


def overlappable(problems: Sequence[Problem]) -> bool:
    """Whether 11 to 38% of the saved bytes can be overlapped with the forward pass."""
    return _is_abstracts([
        hideable_fraction(problem.profile, problem.hardware, blocks_only=True)
        for problem in problems
    ])


def _is_abstracts(shares: Sequence[float]) -> bool:
    return (round(min(shares), 2), round(max(shares), 2)) == (0.11, 0.38)


def is_overlappable(setting: Setting) -> bool:
    """Return what `overlappable` says of a setting's problems, without building them again.

    Backward times, workspaces and the link change nothing in a forward pass and its saved bytes.
    """
    return _is_abstracts([
        setting.link / 1e9 * _forward_ns_a_byte(
            name, setting.device, setting.gemm, setting.attention, setting.memory, setting.head
        )
        for name in (setting.bert, "gpt2-xl", setting.llama)
    ])


@cache
def _forward_ns_a_byte(
    name: str, device: str, gemm: float, attention: float, memory: float, head: bool
) -> float:
    profile = _profile(name, device, gemm, attention, memory, head, None, True)
    found = hideable_in_forward(profile, load_hardware(device), blocks_only=True)
    return found.forward_ns / found.saved_bytes


def throughput(problems: Sequence[Problem]) -> bool:
    """Whether SlackSwap keeps 96 to 100% of unlimited throughput."""
    return min(round(_throughput(problem, "slackswap"), 2) for problem in problems) >= 0.96


def speedup(problems: Sequence[Problem]) -> bool:
    """Whether it is 1.10 to 1.11x the best of the four, SuperNeurons copying at failure."""
    return _ratio(problems, BASELINES) == (1.10, 1.11)


def speedup_of_fastest(problems: Sequence[Problem]) -> bool:
    """The same, SuperNeurons under its fastest reading."""
    return _ratio(problems, FASTEST) == (1.10, 1.11)


CLAIMS: Mapping[str, Callable[[Sequence[Problem]], bool]] = {
    "11 to 38% overlappable": overlappable,
    "96 to 100% of unlimited": throughput,
    "1.10 to 1.11x the four, SuperNeurons at failure": speedup,
    "1.10 to 1.11x the four, each at its fastest": speedup_of_fastest,
}

#: The claims whose ratio counts SuperNeurons copying at failure.
FIRST_THREE = tuple(CLAIMS)[:3]


def _throughput(problem: Problem, planner: PlannerLike) -> float:
    try:
        evaluation = solve(problem, planner).evaluation
    except SlackSwapError:
        return 0.0
    return evaluation.throughput or 0.0 if evaluation is not None else 0.0


def _ratio(problems: Sequence[Problem], baselines: Mapping[str, PlannerLike]) -> tuple[float, ...]:
    ratios = []
    for problem in problems:
        best = max(_throughput(problem, planner) for planner in baselines.values())
        ratios.append(_throughput(problem, "slackswap") / best if best else float("inf"))
    return round(min(ratios), 2), round(max(ratios), 2)


def settings(seed: int) -> Iterator[Setting]:
    """Yield all settings of the grid, in an order drawn from a seed."""
    points = list(product(*GRID.values()))
    random.Random(seed).shuffle(points)
    for point in points:
        yield Setting(**dict(zip(GRID, point, strict=True)))


def main(arguments: Sequence[str]) -> int:
    """Try settings, and tell what share satisfies each claim."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.consistent_settings", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--settings", type=int, default=200, help="how many to try (200)")
    parser.add_argument("--all", action="store_true", help="the whole grid, cheapest claim first")
    parser.add_argument("--seed", type=int, default=0, help="seed of their order (0)")
    options = parser.parse_args(arguments)
    satisfied: Counter[str] = Counter()
    tried = 0
    chosen = settings(options.seed)
    chosen = filter(is_overlappable, chosen) if options.all else islice(chosen, options.settings)
    for setting in chosen:
        tried += 1
        problems = setting.problems()
        held = [name for name, holds in CLAIMS.items() if holds(problems)]
        satisfied.update(held)
        if len(held) >= 2:
            print(f"{' and '.join(held)}: {setting}", flush=True)
        satisfied["all, SuperNeurons at failure"] += set(FIRST_THREE) <= set(held)
        satisfied["all, each at its fastest"] += set(CLAIMS) - {FIRST_THREE[2]} <= set(held)
    size = prod(map(len, GRID.values()))
    if options.all:
        print(f"{size:,} settings tried; of the {tried} that pass the first claim:")
    else:
        print(f"{tried} of {size:,} settings tried, seed {options.seed}")
    for name in (*CLAIMS, "all, SuperNeurons at failure", "all, each at its fastest"):
        print(f"{name}: {satisfied[name]} ({satisfied[name] / max(tried, 1):.1%})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
