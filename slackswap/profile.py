"""A profile: one training iteration as tensors, forward ops and backward ops."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from slackswap import files
from slackswap.display import render
from slackswap.errors import InvalidProfile
from slackswap.frozen import FrozenDict, frozen, set_fields, thawed
from slackswap.quantities import (
    as_integer,
    as_items,
    as_mapping,
    as_text,
    as_truth,
    integer_of,
    shown,
)

if TYPE_CHECKING:
    from slackswap.graph import Graph

T = TypeVar("T")

SCHEMA = "slackswap.profile/1"

Source = Literal["measured", "traced", "analytic", "imported", "random"]
SOURCES: tuple[str, ...] = get_args(Source)

#: Sums of times and of sizes must stay exact in 64-bit integers, with room for recomputation.
MAX_TOTAL = 2**60


class Action(StrEnum):
    """What a plan does with a tensor between its forward and its backward use."""

    KEEP = "keep"
    SWAP = "swap"
    RECOMPUTE = "recompute"


ALL_ACTIONS = tuple(Action)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One storage written by a forward op or given as input; aliases and views are one tensor.

    Attributes
    ----------
    name : str
        Unique within the profile.
    nbytes : int
        Size in bytes.
    allowed : tuple of Action
        What a plan may do with it.
    """

    name: str
    nbytes: int
    allowed: tuple[Action, ...] = ALL_ACTIONS

    def __post_init__(self) -> None:
        set_fields(
            self, name=_label(self.name, "tensor"),
            nbytes=_count(self.nbytes, f"tensor {self.name!r}", "nbytes"),
        )
        try:
            chosen = {Action(action) for action in as_items(
                self.allowed, f"tensor {self.name!r}: allowed", InvalidProfile
            )}
        except (TypeError, ValueError) as error:
            raise InvalidProfile(
                f"allowed: {error}", where=f"tensor {self.name!r}",
                fix="use keep, swap and recompute only",
            ) from error
        set_fields(self, allowed=tuple(action for action in ALL_ACTIONS if action in chosen))


@dataclass(frozen=True, slots=True)
class ForwardOp:
    """One operation of the forward pass.

    Attributes
    ----------
    name : str
        For people.
    duration_ns : int
        Running time in nanoseconds.
    reads, writes : tuple of int
        Tensor indices; repeated ones count once.
    workspace : int
        Scratch bytes, held while the op runs.
    layer : int or None
        Layer the op belongs to.
    recomputable : bool
        Whether it may run again in the backward pass.
    kind : str or None
        For instance ``gemm``, ``attention``, ``norm``, ``elementwise``, ``dropout``, ``conv``,
        ``pool``, ``embedding``, ``loss``.
    """

    name: str
    duration_ns: int
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    workspace: int = 0
    layer: int | None = None
    recomputable: bool = True
    kind: str | None = None

    def __post_init__(self) -> None:
        place = f"forward op {_label(self.name, 'forward op')!r}"
        set_fields(
            self,
            layer=_layer(self.layer, place),
            kind=_kind(self.kind, place),
            recomputable=as_truth(self.recomputable, f"{place}: recomputable", InvalidProfile),
            duration_ns=_count(self.duration_ns, place, "duration_ns"),
            workspace=_count(self.workspace, place, "workspace"),
            reads=_indices(self.reads, place, "reads"),
            writes=_indices(self.writes, place, "writes"),
        )


@dataclass(frozen=True, slots=True)
class BackwardOp:
    """One operation of the backward pass.

    Attributes
    ----------
    name : str
        For people.
    duration_ns : int
        Running time in nanoseconds.
    reads : tuple of int
        Indices of the forward tensors it needs; repeated ones count once.
    workspace : int
        Bytes of activation gradients and scratch, held while the op runs.
    carried : int
        The part of `workspace` already alive on entry, which also weighs on the op's
        recompute steps.
    layer, kind
        As for `ForwardOp`.
    """

    name: str
    duration_ns: int
    reads: tuple[int, ...] = ()
    workspace: int = 0
    carried: int = 0
    layer: int | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        place = f"backward op {_label(self.name, 'backward op')!r}"
        set_fields(
            self,
            layer=_layer(self.layer, place),
            kind=_kind(self.kind, place),
            duration_ns=_count(self.duration_ns, place, "duration_ns"),
            workspace=_count(self.workspace, place, "workspace"),
            carried=_count(self.carried, place, "carried"),
            reads=_indices(self.reads, place, "reads"),
        )
        if self.carried > self.workspace:
            raise InvalidProfile(
                f"carried ({self.carried}) exceeds workspace ({self.workspace})", where=place,
                fix="workspace includes the carried bytes: raise it, or lower carried",
            )


@dataclass(frozen=True)
class Profile:
    """One measured or modelled training iteration.

    Parameters
    ----------
    name : str
        For people and for the library.
    source : str
        ``measured``, ``traced``, ``analytic``, ``imported`` or ``random``.
    tensors : sequence of Tensor
        One entry per storage.
    forward, backward : sequence of ForwardOp, BackwardOp
        In execution order.
    provenance : mapping
        Free-form, JSON-serialisable: model, batch, dtype, device, how times were obtained.
    static_bytes : int
        Weights, gradients and optimizer state; outside the activation budget.

    Raises
    ------
    InvalidProfile
        When a rule of the format is broken: an index out of range, two writers of a tensor, a read
        before the write, a name used twice, a negative size.
    """

    name: str
    source: Source
    tensors: tuple[Tensor, ...]
    forward: tuple[ForwardOp, ...]
    backward: tuple[BackwardOp, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    static_bytes: int = 0

    def __post_init__(self) -> None:
        set_fields(
            self,
            name=_label(self.name, "profile"),
            tensors=_all_of(self.tensors, Tensor, "tensors"),
            forward=_all_of(self.forward, ForwardOp, "forward"),
            backward=_all_of(self.backward, BackwardOp, "backward"),
            provenance=_frozen_provenance(self.provenance),
            static_bytes=_count(self.static_bytes, "profile", "static_bytes"),
        )
        if not isinstance(self.source, str) or self.source not in SOURCES:
            raise InvalidProfile(
                f"source {shown(self.source)} is not known", where="source",
                fix=f"use one of {', '.join(SOURCES)}",
            )
        for message in _broken_rules(self):
            raise message

    @cached_property
    def keep_all_peak_bytes(self) -> int:
        """Peak memory of the plan that keeps everything, with an unlimited budget."""
        forward, backward = self.graph.keep_all_levels
        return max(
            self.graph.input_bytes, int(forward.max(initial=0)), int(backward.max(initial=0))
        )

    @cached_property
    def graph(self) -> Graph:
        """The profile as flat integer arrays, built once."""
        from slackswap.graph import Graph

        return Graph.of(self)

    @cached_property
    def sha256(self) -> str:
        """Identity of the profile: SHA-256 of its canonical JSON, as hexadecimal digits."""
        return hashlib.sha256(files.canonical_json(self.to_dict())).hexdigest()

    @cached_property
    def index_of(self) -> Mapping[str, int]:
        """Tensor index by name."""
        return FrozenDict((tensor.name, index) for index, tensor in enumerate(self.tensors))

    @cached_property
    def duration_ns(self) -> int:
        """Time of one iteration that keeps everything: the sum of all durations."""
        return sum(op.duration_ns for op in self.forward) + sum(
            op.duration_ns for op in self.backward
        )

    def with_name(self, name: str) -> Profile:
        """Return a copy under another name."""
        return replace(self, name=name)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the schema, defaults filled in."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "source": self.source,
            "provenance": thawed(self.provenance),
            "static_bytes": self.static_bytes,
            "tensors": [
                {"name": t.name, "nbytes": t.nbytes, "allowed": [str(a) for a in t.allowed]}
                for t in self.tensors
            ],
            "forward": [
                {
                    "name": op.name,
                    "layer": op.layer,
                    "duration_ns": op.duration_ns,
                    "reads": list(op.reads),
                    "writes": list(op.writes),
                    "workspace": op.workspace,
                    "recomputable": op.recomputable,
                    "kind": op.kind,
                }
                for op in self.forward
            ],
            "backward": [
                {
                    "name": op.name,
                    "layer": op.layer,
                    "duration_ns": op.duration_ns,
                    "reads": list(op.reads),
                    "workspace": op.workspace,
                    "carried": op.carried,
                    "kind": op.kind,
                }
                for op in self.backward
            ],
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Profile:
        """Build a profile from the JSON object of the schema.

        Raises
        ------
        InvalidProfile
            Naming the field and what would fix it.
        """
        from slackswap.schemas.documents import ProfileDocument, validated

        fields = validated(ProfileDocument, document, InvalidProfile)
        return cls(
            name=fields.name,
            source=fields.source,
            provenance=fields.provenance,
            static_bytes=fields.static_bytes,
            tensors=tuple(
                Tensor(t.name, t.nbytes, tuple(Action(a) for a in t.allowed))
                for t in fields.tensors
            ),
            forward=tuple(ForwardOp(**_fields(op)) for op in fields.forward),
            backward=tuple(BackwardOp(**_fields(op)) for op in fields.backward),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a profile from a JSON file, plain or gzip-compressed."""
        return files.load_document(path, cls.from_dict)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile as JSON, whole or not at all; a name ending in ``.gz`` compresses."""
        files.write_json(path, self.to_dict())

    def _repr_html_(self) -> str:
        return render(self)


def _fields(document: Any) -> dict[str, Any]:
    # Not model_dump(): nested copies cost more than the validation itself.
    return {name: getattr(document, name) for name in type(document).model_fields}


def _count(value: object, place: str, name: str) -> int:
    count = value if type(value) is int else integer_of(value)
    if count is None:
        raise InvalidProfile(
            f"{name} is {shown(value)}, not an integer", where=place,
            fix="write whole nanoseconds and bytes",
        )
    if not 0 <= count <= MAX_TOTAL:
        raise InvalidProfile(
            f"{name} is {count}, outside 0 to 2^60", where=place,
            fix="check the unit: nanoseconds and bytes",
        )
    return count


def _indices(values: object, place: str, name: str) -> tuple[int, ...]:
    items = as_items(values, f"{place}: {name}", InvalidProfile)
    return tuple(dict.fromkeys(_count(value, place, name) for value in items))


def _label(value: object, place: str) -> str:
    return as_text(value, f"{place}: name", InvalidProfile)


def _layer(value: object, place: str) -> int | None:
    return None if value is None else as_integer(value, f"{place}: layer", InvalidProfile)


def _kind(value: object, place: str) -> str | None:
    return None if value is None else as_text(value, f"{place}: kind", InvalidProfile)


def _all_of(values: object, kind: type[T], place: str) -> tuple[T, ...]:
    items = as_items(values, place, InvalidProfile)
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            raise InvalidProfile(
                f"{shown(item)} is not a {kind.__name__}", where=f"{place}[{index}]",
                fix=f"list slackswap.{kind.__name__} objects",
            )
    return items


def _broken_rules(profile: Profile) -> Iterator[InvalidProfile]:
    """Yield the rules that a profile breaks, as errors; empty for a valid profile."""
    seen: dict[str, int] = {}
    for index, tensor in enumerate(profile.tensors):
        first = seen.setdefault(tensor.name, index)
        if first != index:
            yield InvalidProfile(
                f"name {tensor.name!r} is already that of tensors[{first}]",
                where=f"tensors[{index}]", fix="give each tensor a name of its own",
            )
    producer: dict[int, int] = {}
    first_reader: dict[int, int] = {}
    count = len(profile.tensors)
    for i, op in enumerate(profile.forward):
        place = f"forward[{i}] ({op.name})"
        for t in (*op.reads, *op.writes):
            if t >= count:
                yield _unknown_tensor(place, t, count)
        for t in op.reads:
            first_reader.setdefault(t, i)
        for t in op.writes:
            if t in producer:
                yield InvalidProfile(
                    f"writes tensor {t} ({_name(profile, t)}), which "
                    f"forward[{producer[t]}] already writes",
                    where=place, fix="give the second result a tensor of its own",
                )
            if t in first_reader:
                yield InvalidProfile(
                    f"writes tensor {t} ({_name(profile, t)}), which "
                    f"forward[{first_reader[t]}] reads before or while it is written",
                    where=place, fix="order the ops so that each tensor is written before use",
                )
            producer[t] = i
    for j, backward_op in enumerate(profile.backward):
        for t in backward_op.reads:
            if t >= count:
                yield _unknown_tensor(f"backward[{j}] ({backward_op.name})", t, count)
    for what, total in (
        ("durations", profile.duration_ns),
        ("tensor sizes", sum(tensor.nbytes for tensor in profile.tensors)),
    ):
        if total > MAX_TOTAL:
            yield InvalidProfile(
                f"the {what} add up to {total}, beyond 2^60", where="profile",
                fix="check the unit: nanoseconds and bytes",
            )


def _name(profile: Profile, tensor: int) -> str:
    return profile.tensors[tensor].name if tensor < len(profile.tensors) else "?"


def _unknown_tensor(place: str, tensor: int, count: int) -> InvalidProfile:
    return InvalidProfile(
        f"names tensor {tensor}, but there are only {count} tensors", where=place,
        fix=f"use indices 0 to {count - 1}" if count else "list the tensors first",
    )


def _frozen_provenance(provenance: object) -> Mapping[str, Any]:
    given = as_mapping(provenance, "provenance", InvalidProfile)
    try:
        result: Mapping[str, Any] = frozen(given)
        files.canonical_json(result)
    except (RecursionError, TypeError, ValueError) as error:
        raise InvalidProfile(
            f"cannot be written as JSON ({error})", where="provenance",
            fix="use finite numbers, strings, lists and objects only",
        ) from error
    return result
