"""Capture a training step: from a build function to a profile."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import torch

from slackswap.errors import SlackSwapError, SlackSwapWarning
from slackswap.hardware import Hardware
from slackswap.profile import Profile, Source
from slackswap.profiles.capture.assembly import assemble
from slackswap.profiles.capture.cuda_dispatch import cuda_kernels, dispatch_note
from slackswap.profiles.capture.fake_mode import FollowingFakeMode
from slackswap.profiles.capture.fake_price import OperationTimes, price_graph
from slackswap.profiles.capture.joint import trace
from slackswap.profiles.capture.kinds import is_random
from slackswap.profiles.capture.link import LinkMeasurement, fit_hardware, measure_link
from slackswap.profiles.capture.lowered import LoweredGraph
from slackswap.profiles.capture.lowering import lower
from slackswap.profiles.capture.measuring import measure, own_random_state, with_real_sizes
from slackswap.profiles.capture.saved import saved_bytes
from slackswap.profiles.capture.static_memory import find_optimizer, static_bytes
from slackswap.profiles.capture.target import (
    Build,
    Subject,
    load_build,
    make_subject,
    told_errors,
)
from slackswap.profiles.catalogue import DEFAULT_HARDWARE
from slackswap.profiles.generators.prices import DEFAULT_PRICES, Prices
from slackswap.profiles.library import load_hardware

DEVICES = ("cpu", "cuda", "fake")


@dataclass(frozen=True, slots=True)
class Traced:
    """A training step with its graph, before it has times.

    Attributes
    ----------
    subject : Subject
        The step and its tensors, real or fake.
    lowered : LoweredGraph
        Its storages and operations.
    hook_bytes : int
        Bytes that autograd's own hooks counted as saved.
    """

    subject: Subject
    lowered: LoweredGraph
    hook_bytes: int


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured training step: its profile, and the graph that the profile describes.

    Attributes
    ----------
    profile : Profile
        ``profile.forward[i]`` is ``lowered.forward[i]``, ``profile.backward[j]`` is
        ``lowered.nodes[j]``, and a tensor has the name of its storage.
    subject : Subject
        The step and its tensors, real or fake.
    lowered : LoweredGraph
        Storages and operations.
    """

    profile: Profile
    subject: Subject
    lowered: LoweredGraph


def capture_step(
    target: str | Build,
    *,
    device: str,
    hardware: Hardware | str | None,
    optimizer: str,
    iterations: int,
    warmup: int,
    name: str | None,
    description: str | None,
    prices: Prices | None,
    seed: int,
) -> Captured:
    """Do the work of `slackswap.profiles.capture.capture`, where the arguments are explained."""
    if device not in DEVICES:
        raise SlackSwapError(
            f"{device!r} is not known", where="device", fix=f"use one of {', '.join(DEVICES)}"
        )
    if iterations < 1 or warmup < 0:
        raise SlackSwapError(
            f"{iterations} iterations after {warmup} of warm-up", where="iterations",
            fix="measure at least one",
        )
    state = find_optimizer(optimizer)
    chosen = load_hardware(hardware) if isinstance(hardware, str) else hardware
    label = target if isinstance(target, str) else getattr(target, "__qualname__", repr(target))
    build = load_build(target)
    with own_random_state(seed), _traced(build, label, device) as traced:
        subject, lowered = traced.subject, traced.lowered
        notes: dict[str, Any] = {"description": description} if description else {}
        notes |= _model_notes(subject, label, device)
        if device == "fake":
            chosen = chosen or DEFAULT_HARDWARE
            times = price_graph(lowered, chosen, prices or DEFAULT_PRICES)
            notes |= dispatch_note()
        else:
            times = measure(subject, lowered, iterations=iterations, warmup=warmup)
            if device == "cuda":
                link = measure_link()
                chosen = fit_hardware(link, torch.cuda.get_device_name(), chosen)
                notes["link"] = _link_notes(link, chosen)
        if chosen is not None:
            notes["hardware"] = chosen.name
        notes |= _graph_notes(traced, times, optimizer)
        fixed = [*subject.step.buffers(), *lowered.joint.constants]
        static = static_bytes(subject.step.parameters(), fixed, state)
    profile = assemble(
        lowered,
        times,
        name=name or _default_name(label),
        source=_source(device),
        static_bytes=static,
        provenance=notes,
    )
    return Captured(profile, subject, lowered)


@contextlib.contextmanager
def traced_step(
    target: str | Build, *, device: str = "fake", seed: int = 0
) -> Iterator[Traced]:
    """Trace a training step without measuring or pricing it, for checks of the graph itself."""
    label = target if isinstance(target, str) else "step"
    with own_random_state(seed), _traced(load_build(target), label, device) as traced:
        yield traced


@contextlib.contextmanager
def _traced(build: Build, label: str, device: str) -> Iterator[Traced]:
    with contextlib.ExitStack() as stack:
        if device == "fake":
            mode = FollowingFakeMode(cuda_results=True)
            stack.enter_context(cuda_kernels())
            with mode.building():
                subject = make_subject(build, label, torch.device("cpu"))
        else:
            mode = FollowingFakeMode()
            with _on(device):
                subject = make_subject(build, label, torch.device(device))
            stack.enter_context(_state_kept(subject))
        lowered = lower(trace(subject, mode))
        if device != "fake":
            lowered = with_real_sizes(subject, lowered)
        with told_errors(label, "the forward pass fails"):
            hook_bytes = saved_bytes(
                subject, mode if device == "fake" else None, lowered.joint.constants
            )
        yield Traced(subject, lowered, hook_bytes)


@contextlib.contextmanager
def _state_kept(subject: Subject) -> Iterator[None]:
    """Leave a model's buffers and gradients as they were, whatever runs in between."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in subject.step.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in subject.step.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient


@contextlib.contextmanager
def _on(device: str) -> Iterator[None]:
    if device == "cuda" and not torch.cuda.is_available():
        raise SlackSwapError(
            "there is no CUDA device", where="device",
            fix="use device cpu to measure here, or fake to price a catalogue GPU",
        )
    with torch.device(device):
        yield


def _source(device: str) -> Source:
    return "traced" if device == "fake" else "measured"


def _model_notes(subject: Subject, label: str, device: str) -> dict[str, Any]:
    dtypes: dict[str, int] = {}
    for parameter in subject.step.parameters():
        dtype = str(parameter.dtype).removeprefix("torch.")
        dtypes[dtype] = dtypes.get(dtype, 0) + parameter.numel()
    return {
        "model": label,
        "device": device,
        "dtype": max(dtypes, key=lambda dtype: dtypes[dtype]),
        "parameters": sum(dtypes.values()),
        "inputs": [
            f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
            for tensor in subject.tensors
        ],
        "torch": torch.__version__,
        **_library_versions(subject),
    }


def _library_versions(subject: Subject) -> dict[str, str]:
    """Versions of the installed packages that the model's classes come from."""
    packages = {type(module).__module__.partition(".")[0] for module in subject.step.modules()}
    found = {}
    for package in sorted(packages - {"torch", "slackswap"}):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _graph_notes(traced: Traced, times: OperationTimes, optimizer: str) -> dict[str, Any]:
    lowered = traced.lowered
    if lowered.saved_bytes != traced.hook_bytes:
        warnings.warn(
            f"the graph saves {lowered.saved_bytes:,} bytes, autograd's hooks count "
            f"{traced.hook_bytes:,}: the model behaves differently when it is traced "
            "(checkpoints inside the model are traced as if they kept everything)",
            SlackSwapWarning, stacklevel=4,
        )
    notes: dict[str, Any] = {
        "optimizer": optimizer,
        "saved_bytes": lowered.saved_bytes,
        "saved_bytes_by_hooks": traced.hook_bytes,
        "random_operators": sum(is_random(op.node.target) for op in lowered.forward),
    }
    return notes | times.notes


def _link_notes(link: LinkMeasurement, hardware: Hardware) -> dict[str, Any]:
    times = {
        direction: {str(size): taken for size, taken in column.items()}
        for direction, column in asdict(link).items()
    }
    return {"hardware": hardware.to_dict(), "times_ns": times}


def _default_name(label: str) -> str:
    tail = label.rpartition(":")[0] or label
    return re.sub(r"[^A-Za-z0-9]+", "-", tail.rpartition(".")[2]).strip("-").lower() or "captured"
