"""Random profiles and problems: small ones for tests and hard suites, large ones for scaling.

Every generator draws from the generator it is given, so a seed fixes the result.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np

from slackswap.errors import SlackSwapError
from slackswap.hardware import WHOLE_PPM, Hardware
from slackswap.problem import Problem
from slackswap.profile import ALL_ACTIONS, Action, BackwardOp, ForwardOp, Profile, Tensor

#: A seeded source of randomness.
Generator = np.random.Generator | random.Random

_KINDS = ("gemm", "attention", "norm", "elementwise", "dropout", "conv", "pool", "residual")


@dataclass(frozen=True, slots=True)
class Traits:
    """What random profiles look like. Shares are probabilities from 0 to 1.

    Attributes
    ----------
    max_bytes, max_ns : int
        Largest tensor and longest op.
    locality : float
        Share of reads that go to one of the two latest tensors: 1 gives chains, 0 gives skips of
        any length.
    max_reads : int
        Most tensors a forward op reads; two or more make diamonds.
    extra_writes : float
        Share of ops that write more than one tensor.
    inputs : int
        Most input tensors.
    saves_input, saves_output : float
        Share of an op's reads, and of its writes, that its backward op needs.
    zero_bytes, zero_ns : float
        Share of tensors without size, and of ops without duration.
    workspace, carried : float
        Share of ops with scratch memory, and of backward ops with carried gradients.
    restricted : float
        Share of tensors that do not allow every action; keeping is always allowed.
    not_recomputable : float
        Share of forward ops that may not run again.
    late_reads : float
        Share of backward ops that also read a tensor of an op far from their own.
    """

    max_bytes: int = 64
    max_ns: int = 40
    locality: float = 0.7
    max_reads: int = 3
    extra_writes: float = 0.2
    inputs: int = 2
    saves_input: float = 0.5
    saves_output: float = 0.35
    zero_bytes: float = 0.05
    zero_ns: float = 0.05
    workspace: float = 0.4
    carried: float = 0.4
    restricted: float = 0.1
    not_recomputable: float = 0.1
    late_reads: float = 0.1


DEFAULT_TRAITS = Traits()
#: Every tensor may be kept, swapped or recomputed, so each action vector is a plan.
UNRESTRICTED = Traits(restricted=0.0, not_recomputable=0.0)


def random_profile(
    rng: Generator, n_forward: int = 8, *, traits: Traits = DEFAULT_TRAITS, name: str = "random"
) -> Profile:
    """Draw a profile: a DAG of forward ops, and a backward op for most of them in reverse order.

    Parameters
    ----------
    rng : numpy.random.Generator or random.Random
        Where randomness comes from.
    n_forward : int
        Forward ops.
    traits : Traits
        What it looks like.
    name : str
        Name of the profile.
    """
    if n_forward < 1:
        raise SlackSwapError(
            f"{n_forward} forward ops make no profile", where="n_forward", fix="ask for 1 or more"
        )
    draw = _python_rng(rng)
    tensors = [
        _tensor(draw, f"input{index}", traits) for index in range(draw.randint(1, traits.inputs))
    ]
    forward: list[ForwardOp] = []
    for index in range(n_forward):
        reads = _reads(draw, len(tensors), traits)
        first = len(tensors)
        count = 1 + (draw.random() < traits.extra_writes) * draw.randint(1, 2)
        tensors += [_tensor(draw, f"t{first + extra}", traits) for extra in range(count)]
        forward.append(
            ForwardOp(
                name=f"op{index}",
                duration_ns=_duration(draw, traits, traits.max_ns),
                reads=reads,
                writes=tuple(range(first, first + count)),
                workspace=_scratch(draw, traits.workspace, traits),
                layer=index // 3,
                recomputable=draw.random() >= traits.not_recomputable,
                kind=draw.choice(_KINDS),
            )
        )
    return Profile(name, "random", tuple(tensors), tuple(forward),
                   tuple(_backward(draw, forward, traits)))


def random_hardware(
    rng: Generator, *, max_bytes_per_s: int = 4 * 10**9, contended: bool = False
) -> Hardware:
    """Draw a hardware: each direction its own rate, either duplex, with and without latency.

    With `contended` it is full duplex, and the directions slow each other by drawn shares, down to
    a hundredth; one of the two may be slowed alone.
    """
    draw = _python_rng(rng)
    hardware = Hardware(
        name="random",
        d2h_bytes_per_s=draw.randint(10**8, max_bytes_per_s),
        h2d_bytes_per_s=draw.randint(10**8, max_bytes_per_s),
        latency_ns=draw.choice((0, 0, 1, 5)),
        full_duplex=draw.random() < 0.6,
    )
    if not contended:
        return hardware
    return replace(
        hardware, full_duplex=True,
        d2h_contended_ppm=_contended_ppm(draw), h2d_contended_ppm=_contended_ppm(draw),
    )


def _contended_ppm(draw: random.Random) -> int:
    kind = draw.random()
    if kind < 0.3:
        return draw.choice((10_000, 480_000, 960_000, 999_999, WHOLE_PPM))
    # Half of the rest below a tenth, where one transfer is slowed by many others.
    return draw.randint(10_000, 100_000 if kind < 0.65 else WHOLE_PPM)


def random_problem(
    rng: Generator, n_forward: int = 8, *, traits: Traits = DEFAULT_TRAITS
) -> Problem:
    """Draw a profile, a hardware, and a budget from a third of the keep-everything peak to it."""
    draw = _python_rng(rng)
    profile = random_profile(draw, n_forward, traits=traits)
    hardware = random_hardware(draw)
    peak = profile.keep_all_peak_bytes
    return Problem(profile, hardware, max(1, draw.randint(peak // 3, peak)))


def layered_profile(
    n_forward: int, rng: Generator, *, ops_per_layer: int = 10, name: str | None = None
) -> Profile:
    """Return a deep network of equal layers of random ops, for scaling measurements.

    In a layer each op reads its predecessor and the last one also the layer's input, as a residual
    block does; every other result is saved. The first layer is drawn, the others repeat it.

    Parameters
    ----------
    n_forward : int
        Forward ops; 100,000 take about a second.
    rng : numpy.random.Generator or random.Random
        Where sizes and durations come from.
    ops_per_layer : int
        Forward ops in a layer, at least 2.
    name : str, optional
        Name of the profile.
    """
    if ops_per_layer < 2 or n_forward < 1:
        raise SlackSwapError(
            f"{n_forward} ops in layers of {ops_per_layer} make no layered profile",
            where="n_forward", fix="ask for 1 or more ops, and 2 or more in a layer",
        )
    draw = _python_rng(rng)
    sizes = [draw.randint(2**20, 2**24) for _ in range(ops_per_layer)]
    durations = [draw.randint(20_000, 400_000) for _ in range(ops_per_layer)]
    tensors = [Tensor("input", sizes[-1])]
    forward: list[ForwardOp] = []
    for index in range(n_forward):
        layer, role = divmod(index, ops_per_layer)
        tensors.append(Tensor(f"layer{layer}.t{role}", sizes[role]))
        skip = (layer * ops_per_layer,) if role == ops_per_layer - 1 else ()
        forward.append(
            ForwardOp(f"layer{layer}.op{role}", durations[role], (index, *skip), (index + 1,),
                      layer=layer, kind="residual" if skip else "gemm")
        )
    backward = [
        # An op needs its input when that is saved: every other result, and the layer's input.
        BackwardOp(f"{op.name}.bwd", 2 * op.duration_ns,
                   (index,) if index % ops_per_layer % 2 == 0 else (),
                   workspace=sizes[index % ops_per_layer], layer=op.layer, kind=op.kind)
        for index, op in reversed(list(enumerate(forward)))
    ]
    return Profile(name or f"layered-{n_forward}", "random", tuple(tensors), tuple(forward),
                   tuple(backward))


def deep_chain_profile(
    n: int, *, saved_every: int | None = None, name: str | None = None
) -> Profile:
    """Return one chain of `n` equal ops: the deepest closures a profile can have.

    Parameters
    ----------
    n : int
        Forward ops.
    saved_every : int, optional
        Only every so-many-th result is read by backward; what lies between are intermediates,
        through which a closure must pass. None: all results are.
    name : str, optional
        Name of the profile.
    """
    step = 1 if saved_every is None else saved_every
    if n < 1 or step < 1:
        raise SlackSwapError(
            f"{n} ops saved every {step} make no chain", where="n", fix="ask for 1 or more of each"
        )
    size, duration = 2**22, 100_000
    tensors = tuple(Tensor(f"t{index}", size) for index in range(n + 1))
    forward = tuple(
        ForwardOp(f"op{index}", duration, (index,), (index + 1,), layer=index, kind="gemm")
        for index in range(n)
    )
    backward = tuple(
        BackwardOp(f"op{index}.bwd", 2 * duration,
                   (index + 1,) if (index + 1) % step == 0 else (), workspace=size, layer=index,
                   kind="gemm")
        for index in reversed(range(n))
    )
    return Profile(name or f"chain-{n}", "random", tensors, forward, backward)


def _python_rng(rng: Generator) -> random.Random:
    # One draw seeds the standard generator, so that both kinds serve and both stay untouched
    # otherwise.
    return rng if isinstance(rng, random.Random) else random.Random(int(rng.integers(2**63)))


def _tensor(draw: random.Random, name: str, traits: Traits) -> Tensor:
    # The square makes a few tensors large and many small, as in real models.
    nbytes = 1 + int(traits.max_bytes * draw.random() ** 2)
    if draw.random() < traits.zero_bytes:
        nbytes = 0
    allowed = ALL_ACTIONS
    if draw.random() < traits.restricted:
        allowed = draw.choice(
            ((Action.KEEP,), (Action.KEEP, Action.SWAP), (Action.KEEP, Action.RECOMPUTE))
        )
    return Tensor(name, nbytes, allowed)


def _reads(draw: random.Random, count: int, traits: Traits) -> tuple[int, ...]:
    reads = [
        draw.randrange(max(0, count - 2), count)
        if draw.random() < traits.locality
        else draw.randrange(count)
        for _ in range(draw.randint(0 if draw.random() < 0.1 else 1, traits.max_reads))
    ]
    return tuple(dict.fromkeys(reads))


def _duration(draw: random.Random, traits: Traits, longest: int) -> int:
    return 0 if draw.random() < traits.zero_ns else draw.randint(1, longest)


def _scratch(draw: random.Random, share: float, traits: Traits) -> int:
    return draw.randint(1, traits.max_bytes) if draw.random() < share else 0


def _backward(
    draw: random.Random, forward: list[ForwardOp], traits: Traits
) -> list[BackwardOp]:
    ops: list[BackwardOp] = []
    for index in reversed(range(len(forward))):
        op = forward[index]
        if draw.random() < 0.1:  # nothing differentiable
            continue
        reads = [tensor for tensor in op.reads if draw.random() < traits.saves_input]
        reads += [tensor for tensor in op.writes if draw.random() < traits.saves_output]
        if draw.random() < traits.late_reads:
            reads += draw.choice(forward).writes
        carried = _scratch(draw, traits.carried, traits)
        ops.append(
            BackwardOp(
                name=f"{op.name}.bwd",
                duration_ns=_duration(draw, traits, 2 * traits.max_ns),
                reads=tuple(reads),
                workspace=carried + _scratch(draw, traits.workspace, traits),
                carried=carried,
                layer=op.layer,
                kind=op.kind,
            )
        )
    return ops
