"""Capture a training step: from a build function to a profile."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
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
from slackswap.profiles.capture.isolation import attributes_kept, values_kept
from slackswap.profiles.capture.joint import trace
from slackswap.profiles.capture.kinds import is_random
from slackswap.profiles.capture.link import LinkMeasurement, fit_hardware, measure_link
from slackswap.profiles.capture.lowered import LoweredGraph
from slackswap.profiles.capture.lowering import lower
from slackswap.profiles.capture.measuring import measure, own_random_state, with_real_sizes
from slackswap.profiles.capture.saved import SavedByHooks, saved_by_hooks
from slackswap.profiles.capture.static_memory import static_bytes
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
from slackswap.profiles.optimizers import find_optimizer

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
    by_hooks : SavedByHooks
        What autograd's own hooks found saved.
    """

    subject: Subject
    lowered: LoweredGraph
    by_hooks: SavedByHooks

    @property
    def hook_bytes(self) -> int:
        """Bytes that autograd's own hooks counted as saved."""
        return self.by_hooks.nbytes


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
        stack.enter_context(attributes_kept(subject.step))
        lowered = lower(trace(subject, mode))
        if device != "fake":
            changing = (*subject.step.buffers(), *_updated(subject, lowered), *subject.tensors)
            stack.enter_context(values_kept(changing, subject.step.parameters()))
            lowered = with_real_sizes(subject, lowered)
        with told_errors(label, "the forward pass fails"):
            by_hooks = saved_by_hooks(
                subject, mode if device == "fake" else None, lowered.joint.constants
            )
        yield Traced(subject, lowered, by_hooks)


def _updated(subject: Subject, lowered: LoweredGraph) -> list[torch.nn.Parameter]:
    """Parameters that the forward pass itself changes."""
    parameters = list(subject.step.parameters())
    targets = [node.meta["desc"].target for node, _ in lowered.joint.updates]
    return [parameters[int(name[1:])] for name in targets if name.startswith("p")]


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
        warnings.warn(_difference(traced), SlackSwapWarning, stacklevel=4)
    notes: dict[str, Any] = {
        "optimizer": optimizer,
        "saved_bytes": lowered.saved_bytes,
        "saved_bytes_by_hooks": traced.hook_bytes,
        "random_operators": sum(is_random(op.node.target) for op in lowered.forward),
    }
    held = [
        [node.name, lowered.storages[storage].name] for node in lowered.nodes
        for storage in node.held
    ]
    if held:
        notes["kept_for_shape"] = held
    return notes | times.notes


def _difference(traced: Traced) -> str:
    """Say which storages the graph and autograd's hooks do not have in common, and of which ops."""
    lowered, hooks = traced.lowered, traced.by_hooks
    graph = [(lowered.storages[s].nbytes, lowered.storages[s].name) for s in lowered.saved]
    parts = [
        f"the graph saves {lowered.saved_bytes:,} bytes, autograd's hooks count {hooks.nbytes:,}",
        *_surplus("by the hooks alone", hooks.storages, graph),
        *_surplus("by the graph alone", graph, hooks.storages),
    ]
    if hooks.checkpoints:
        parts.append(
            f"{hooks.checkpoints} checkpoints inside the model are traced as if they kept "
            "everything: leave them out, since what to recompute is the plan's question"
        )
    return "; ".join(parts)


def _surplus(
    title: str, storages: Iterable[tuple[int, str]], others: Iterable[tuple[int, str]]
) -> Iterator[str]:
    """Name the largest storages that have no counterpart of their size."""
    left = Counter(nbytes for nbytes, _ in others)
    found = []
    for nbytes, owner in sorted(storages, key=lambda item: -item[0]):
        left[nbytes] -= 1
        if left[nbytes] < 0:
            found.append(f"{nbytes:,} bytes of {owner or 'an unnamed operator'}")
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        yield f"{title}: {', '.join(found[:3])}{more}"


def _link_notes(link: LinkMeasurement, hardware: Hardware) -> dict[str, Any]:
    times = {
        direction: {str(size): taken for size, taken in column.items()}
        for direction, column in asdict(link).items()
    }
    return {"hardware": hardware.to_dict(), "times_ns": times}


def _default_name(label: str) -> str:
    """Return module and function; a function that is just called ``build`` adds nothing."""
    module, _, function = label.rpartition(":")
    names = [module.rpartition(".")[2], function.rpartition(".")[2]]
    words = "-".join(name for name in names if name and not (module and name == "build"))
    return re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-").lower() or "captured"
