"""The small problems that the check kit asks planners about; each is made anew when asked for."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from slackswap.hardware import Hardware
from slackswap.problem import Problem
from slackswap.profile import Action, BackwardOp, ForwardOp, Profile, Tensor
from slackswap.profiles.generators.random_dag import (
    DEFAULT_TRAITS,
    UNRESTRICTED,
    Traits,
    layered_profile,
    random_hardware,
    random_profile,
)

_LINK = Hardware("check", d2h_bytes_per_s=10**9, h2d_bytes_per_s=10**9, latency_ns=1)
#: A link that moves one layer of `layered_profile` in about the time it takes.
_REAL_LINK = Hardware("check", d2h_bytes_per_s=25 * 10**9, h2d_bytes_per_s=25 * 10**9,
                      latency_ns=10_000)


@dataclass(frozen=True, slots=True)
class Case:
    """A problem by name.

    Attributes
    ----------
    name : str
        For messages.
    build : callable
        Makes the problem; equal every time, and never the same object.
    """

    name: str
    build: Callable[[], Problem]


def ordinary_cases() -> tuple[Case, ...]:
    """Return problems of all shapes with a budget that bites but that some plan meets."""
    cases = [
        _random(f"random-{seed}", seed, traits, fraction)
        for seed, traits, fraction in (
            (1, UNRESTRICTED, 0.9), (2, UNRESTRICTED, 0.75), (3, UNRESTRICTED, 0.6),
            (4, DEFAULT_TRAITS, 0.9), (5, DEFAULT_TRAITS, 0.75), (6, DEFAULT_TRAITS, 0.6),
        )
    ]
    half_duplex = replace(_LINK, full_duplex=False)
    cases += [
        Case("chain", lambda: Problem(_chain(8), _LINK, 0.6)),
        Case("chain-half-duplex", lambda: Problem(_chain(8), half_duplex, 0.6)),
        Case("chain-small-host", lambda: Problem(_chain(8), replace(_LINK, host_bytes=20), 0.6)),
        Case("chain-restricted", lambda: Problem(_restricted_chain(), _LINK, 0.8)),
        Case("layers", lambda: Problem(_layers(40), _REAL_LINK, 0.5)),
    ]
    return tuple(cases)


def repeated_cases() -> tuple[Case, ...]:
    """Return some of the ordinary ones, for rules that ask about each twice."""
    return ordinary_cases()[::2]


def ample_cases() -> tuple[Case, ...]:
    """Return problems in which everything can be kept."""
    return (
        Case("chain-unlimited", lambda: Problem(_chain(6), _LINK)),
        Case("chain-at-the-peak", lambda: Problem(_chain(6), _LINK, 1.0)),
        Case("layers-at-twice-the-peak", lambda: Problem(_layers(30), _REAL_LINK, "200%")),
        _random("random-at-the-peak", 7, UNRESTRICTED, 1.0),
        _random("random-unlimited", 8, DEFAULT_TRAITS, None),
    )


def impossible_cases() -> tuple[Case, ...]:
    """Return problems that no plan fits: a single op needs more than the budget."""
    return (
        Case("chain-in-one-byte", lambda: Problem(_chain(6), _LINK, 1)),
        Case("single-op-one-byte-short", lambda: _one_byte_less(Problem(_chain(1), _LINK))),
        Case("layers-in-one-byte", lambda: Problem(_layers(20), _REAL_LINK, 1)),
    )


def single_op_cases() -> tuple[Case, ...]:
    """Return the smallest profiles there are."""
    forward_only = Profile("forward-only", "random", (Tensor("x", 8),),
                           (ForwardOp("f", 5, (), (0,)),), ())
    no_writes = Profile("no-writes", "random", (Tensor("x", 8),),
                        (ForwardOp("f", 5, (0,), ()),), (BackwardOp("f.bwd", 5, (0,)),))
    return (
        Case("single-op", lambda: Problem(_chain(1), _LINK, 1.0)),
        Case("single-op-without-backward", lambda: Problem(forward_only, _LINK, 1.0)),
        Case("single-op-without-result", lambda: Problem(no_writes, _LINK, 1.0)),
    )


def zero_cases() -> tuple[Case, ...]:
    """Return profiles whose tensors have no bytes, or whose ops take no time."""
    return (
        Case("no-bytes-at-all", lambda: Problem(_chain(4, nbytes=0), _LINK, 1)),
        Case("some-without-bytes", lambda: _random_problem(9, Traits(zero_bytes=0.5), 0.8)),
        Case("ops-without-time", lambda: Problem(_chain(4, duration=0), _LINK, 0.8)),
    )


def one_byte_short_cases() -> tuple[Case, ...]:
    """Return problems in which everything could be kept but for one byte."""
    return (
        Case("chain-one-byte-short", lambda: _one_byte_less(Problem(_chain(6), _LINK))),
        Case("random-one-byte-short",
             lambda: _one_byte_less(_random_problem(3, UNRESTRICTED, None))),
        Case("layers-one-byte-short", lambda: _one_byte_less(Problem(_layers(30), _REAL_LINK))),
    )


def enumerable_cases() -> tuple[Case, ...]:
    """Return problems small enough that every plan can be tried."""
    return (
        Case("enumerable-chain", lambda: Problem(_chain(5), _LINK, 0.7)),
        *(_random(f"enumerable-{seed}", seed, UNRESTRICTED, 0.7, 5) for seed in (11, 12, 13, 14)),
    )


def budget_ladders() -> Mapping[str, tuple[Case, ...]]:
    """Return for some profiles the same problem at growing budgets."""
    fractions = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    return MappingProxyType({
        "chain": tuple(_at(_chain(8), _LINK, fraction) for fraction in fractions),
        "layers": tuple(_at(_layers(40), _REAL_LINK, fraction) for fraction in fractions),
    })


def long_case() -> Case:
    """Return a problem that gives a slow planner something to do."""
    return Case("long", lambda: Problem(_layers(1500), _REAL_LINK, 0.5))


def _chain(n: int, *, nbytes: int = 8, duration: int = 10) -> Profile:
    """Return one op after another, each of whose results backward needs."""
    return Profile(
        f"chain-{n}",
        "random",
        (Tensor("x", nbytes), *(Tensor(f"h{i}", nbytes + 4 * (i % 3)) for i in range(n))),
        tuple(ForwardOp(f"f{i}", duration, (i,), (i + 1,), layer=i, kind="gemm")
              for i in range(n)),
        tuple(BackwardOp(f"f{i}.bwd", 2 * duration, (i, i + 1), layer=i, kind="gemm")
              for i in reversed(range(n))),
    )


def _restricted_chain() -> Profile:
    """Return a chain in which some ops cannot run again and some tensors may not be moved."""
    chain = _chain(8)
    return replace(
        chain,
        tensors=tuple(
            replace(tensor, allowed=(Action.KEEP, Action.RECOMPUTE)) if index % 3 == 0 else tensor
            for index, tensor in enumerate(chain.tensors)
        ),
        forward=tuple(
            replace(op, recomputable=index % 4 != 1) for index, op in enumerate(chain.forward)
        ),
    )


def _at(profile: Profile, hardware: Hardware, fraction: float) -> Case:
    return Case(f"{profile.name}-at-{fraction:g}",
                lambda: Problem(replace(profile), hardware, fraction))


def _layers(n_forward: int) -> Profile:
    return layered_profile(n_forward, random.Random(17))


def _random(
    name: str, seed: int, traits: Traits, fraction: float | None, n_forward: int = 8
) -> Case:
    return Case(name, lambda: _random_problem(seed, traits, fraction, n_forward))


def _random_problem(
    seed: int, traits: Traits, fraction: float | None, n_forward: int = 8
) -> Problem:
    draw = random.Random(seed)
    profile = random_profile(draw, n_forward, traits=traits)
    return Problem(profile, random_hardware(draw), fraction)


def _one_byte_less(problem: Problem) -> Problem:
    return problem.with_budget(problem.keep_all_peak_bytes - 1)
