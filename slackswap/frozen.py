"""Frozen dataclasses that normalise their own fields while they are made."""

from __future__ import annotations

from typing import Any


def set_fields(instance: object, **values: Any) -> None:
    """Normalise fields of a frozen dataclass during its own construction."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)
