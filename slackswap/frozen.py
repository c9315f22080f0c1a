"""Values that cannot be written to: profiles, problems and plans are shared by all planners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from numpy.typing import NDArray

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A", bound="NDArray[Any]")


class FrozenDict(dict[K, V]):
    """A dictionary that refuses changes; unlike a mapping proxy it pickles and prints as JSON."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this mapping is read-only: change a copy, as dict(...) makes it")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


def read_only(array: A) -> A:
    """Make an array refuse writes, and return it."""
    array.flags.writeable = False
    return array


def frozen(value: Any) -> Any:
    """Return a JSON value whose objects and lists, at any depth, cannot be changed."""
    if isinstance(value, Mapping):
        return FrozenDict((key, frozen(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(frozen(item) for item in value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()  # a scalar of NumPy
    return value


def thawed(value: Any) -> Any:
    """Return a frozen JSON value as new dictionaries and lists."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thawed(item) for item in value]
    return value


def frozen_view(array: A) -> A:
    """Return a view of an array that refuses writes; the array itself stays as it is."""
    return read_only(array.view())


def set_fields(instance: object, **values: Any) -> None:
    """Normalise fields of a frozen dataclass during its own construction."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)
