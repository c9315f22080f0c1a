"""Tensors and ops by name, put together into a profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slackswap.errors import InvalidProfile
from slackswap.profile import ALL_ACTIONS, BackwardOp, ForwardOp, Profile, Source, Tensor


class ProfileBuilder:
    """Collects tensors and ops in execution order; ops name tensors, not indices."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._index: dict[str, int] = {}
        self._forward: list[ForwardOp] = []
        self._backward: list[BackwardOp] = []

    def tensor(self, name: str, nbytes: int, allowed: Iterable[str] = ALL_ACTIONS) -> str:
        """Declare a storage and return its name; it is an input unless an op writes it.

        Raises
        ------
        InvalidProfile
            When the name is taken.
        """
        if name in self._index:
            raise InvalidProfile(
                f"tensor {name!r} is there twice", where="tensors",
                fix="give each tensor a name of its own",
            )
        self._index[name] = len(self._tensors)
        self._tensors.append(Tensor(name, nbytes, tuple(allowed)))  # type: ignore[arg-type]
        return name

    def forward(
        self, name: str, duration_ns: int, *, reads: Sequence[str], writes: Sequence[str],
        **options: Any,
    ) -> None:
        """Append a forward op; `options` are further fields of `ForwardOp`."""
        self._forward.append(
            ForwardOp(name, duration_ns, self._indices(reads), self._indices(writes), **options)
        )

    def backward(
        self, name: str, duration_ns: int, *, reads: Sequence[str], **options: Any
    ) -> None:
        """Append a backward op; `options` are further fields of `BackwardOp`."""
        self._backward.append(BackwardOp(name, duration_ns, self._indices(reads), **options))

    def profile(
        self, name: str, *, source: Source, provenance: Mapping[str, Any], static_bytes: int
    ) -> Profile:
        """Return the profile of what was collected."""
        return Profile(
            name, source, tuple(self._tensors), tuple(self._forward), tuple(self._backward),
            provenance, static_bytes,
        )

    def _indices(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(self._index[name] for name in names)
