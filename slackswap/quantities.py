"""Bytes, times and budgets as people write and read them."""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections.abc import Mapping
from fractions import Fraction
from numbers import Real
from typing import Any, SupportsIndex

from slackswap.errors import InvalidBudget, SlackSwapError

#: Stands for "no limit" where integer arithmetic needs a number.
UNLIMITED_BYTES = 2**62

_UNITS = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", start=1)},
    "KB": 1000,
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)},
}
#: What is often written for a unit: ``gb``, ``G``, ``gib``, ``Gi``.
_MEANT = {
    text.lower(): unit for unit in _UNITS if unit != "KB" for text in (unit, unit.removesuffix("B"))
    if text
}
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z%]*)\s*")
_FIX = "write bytes (20000000000, 20GB, 20GiB) or a fraction of the keep-everything peak (0.5, 50%)"
#: Up to this, digits alone are more likely meant as a percentage.
_PERCENT = 100

Budget = SupportsIndex | Real | float | str


def as_integer(
    value: object, where: str, error: type[SlackSwapError], *, fix: str = "write a whole number"
) -> int:
    """Return an integer as `integer_of` understands it.

    Raises
    ------
    SlackSwapError
        Of type `error`, for anything else.
    """
    if type(value) is int:
        return value
    found = integer_of(value)
    if found is None:
        raise error(f"{shown(value)} is not an integer", where=where, fix=fix)
    return found


def as_number(
    value: object, where: str, error: type[SlackSwapError], *, fix: str = "write a number"
) -> float:
    """Return a real number of any kind, NumPy's among them, as a float.

    Raises
    ------
    SlackSwapError
        Of type `error`, for anything else; truth values and text are no numbers.
    """
    found = integer_of(value)
    if found is not None or (isinstance(value, Real) and not _is_truth(value)):
        with contextlib.suppress(OverflowError, TypeError, ValueError):
            return float(value if found is None else found)  # type: ignore[arg-type]
    raise error(f"{shown(value)} is not a number", where=where, fix=fix)


def as_text(value: object, where: str, error: type[SlackSwapError]) -> str:
    """Return text; raise `error` for anything else."""
    if not isinstance(value, str):
        raise error(f"{shown(value)} is not text", where=where, fix="write a string")
    return value


def as_truth(value: object, where: str, error: type[SlackSwapError]) -> bool:
    """Return a truth value, Python's or NumPy's; raise `error` for anything else."""
    if not _is_truth(value):
        raise error(f"{shown(value)} is not true or false", where=where, fix="write True or False")
    return bool(value)


def as_items(value: object, where: str, error: type[SlackSwapError]) -> tuple[Any, ...]:
    """Return the items of a sequence or another iterable; raise `error` for anything else."""
    if not isinstance(value, str | bytes):
        with contextlib.suppress(TypeError):
            return tuple(value)  # type: ignore[arg-type]
    raise error(f"{shown(value)} is not a list", where=where, fix="write a list or a tuple")


def as_mapping(value: object, where: str, error: type[SlackSwapError]) -> Mapping[Any, Any]:
    """Return a mapping; raise `error` for anything else."""
    if not isinstance(value, Mapping):
        raise error(f"{shown(value)} is not a mapping", where=where, fix="write a dictionary")
    return value


def shown(value: object) -> str:
    """Return a value for a message, shortened, whatever it is."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def integer_of(value: object) -> int | None:
    """Return an integer of any kind, NumPy's among them, as Python's; None for anything else.

    This is the one definition of an integer: truth values and floats are none.
    """
    try:
        return None if _is_truth(value) else operator.index(value)  # type: ignore[arg-type]
    except Exception:  # also what an object that only looks like a number raises
        return None


def _is_truth(value: object) -> bool:
    # NumPy's is not Python's, and this module does without NumPy.
    return type(value).__name__ in ("bool", "bool_")


def parse_budget(budget: Budget) -> int | Fraction:
    """Understand a memory budget.

    Parameters
    ----------
    budget : int, float or str
        An integer of any kind is bytes. A float is a fraction of the keep-everything peak, above 0
        and up to 1. A string is bytes with a unit (``20GB``, ``20GiB``), plain digits above 100
        (bytes), a percentage (``50%``) or a decimal up to 1 (``0.5``).

    Returns
    -------
    int or fractions.Fraction
        Bytes, or an exact fraction: ``0.3`` means 3/10, not its binary neighbour.

    Raises
    ------
    InvalidBudget
        When it is not positive, not finite, ambiguous, or not understood.
    """
    if isinstance(budget, str):
        return _parse_text(budget)
    if _is_truth(budget):
        raise InvalidBudget("True and False are not budgets", where="budget", fix=_FIX)
    count = integer_of(budget)
    if count is not None:
        if count <= 0:
            raise InvalidBudget(f"{count} is not a positive amount", where="budget", fix=_FIX)
        return _as_bytes(count)
    number = as_number(budget, "budget", InvalidBudget, fix=_FIX)
    if not math.isfinite(number) or number <= 0:
        raise InvalidBudget(f"{number!r} is not a positive amount", where="budget", fix=_FIX)
    if number > 1:
        raise InvalidBudget(
            f"{number!r} is a float above 1, which is no fraction of the keep-everything peak",
            where="budget",
            fix=f"write {number:.0%} as text for more than the peak; bytes are an integer or "
            f"text with a unit ({_with_unit(number)!r})",
        )
    return budget if isinstance(budget, Fraction) else Fraction(repr(number))


def _parse_text(text: str) -> int | Fraction:
    match = _QUANTITY.fullmatch(text)
    if match is None or len(text) > 40:
        raise InvalidBudget(f"{text[:40]!r} is not understood", where="budget", fix=_FIX)
    number, unit = match.groups()
    if len(number.partition("e")[2] or number.partition("E")[2]) > 3:
        raise InvalidBudget(f"{text!r} has too large an exponent", where="budget", fix=_FIX)
    amount = Fraction(number)
    if amount <= 0:
        raise InvalidBudget(f"{text!r} is not a positive amount", where="budget", fix=_FIX)
    if unit == "%":
        return amount / 100
    if unit:
        if unit not in _UNITS:
            meant = _MEANT.get(unit.lower())
            raise InvalidBudget(
                f"unit {unit!r} is not known"
                + (f" (did you mean {number}{meant}?)" if meant else ""),
                where="budget",
                fix=f"write {number}{meant}" if meant else f"use one of {', '.join(_UNITS)} or %",
            )
        return _as_bytes(math.floor(amount * _UNITS[unit]))
    if number.isdigit():
        if amount == 1:
            raise InvalidBudget("'1' could mean one byte or the whole peak", where="budget",
                                fix="write 1B or 100%")
        if amount <= _PERCENT:
            raise InvalidBudget(f"{number}% or {number} bytes?", where="budget",
                                fix=f"write {number}% or {number}B")
        return _as_bytes(int(number))
    if amount > 1:
        raise InvalidBudget(
            f"{number!r} has no unit, and is above 1, so no fraction of the keep-everything peak",
            where="budget",
            fix=f"write {_with_unit(amount)} for bytes, or a percentage",
        )
    return amount


def _as_bytes(amount: int) -> int:
    if amount > UNLIMITED_BYTES:
        raise InvalidBudget(f"{_with_unit(amount)} is beyond any device", where="budget", fix=_FIX)
    return int(amount)


def _with_unit(amount: Fraction | float) -> str:
    """Return bytes in the largest decimal unit that is at most the amount: ``5GB``."""
    try:
        whole = float(amount)
    except OverflowError:
        return "that"
    unit = max((u for u in _UNITS if _UNITS[u] <= max(1, whole) and "i" not in u and u != "KB"),
               key=_UNITS.__getitem__)
    return f"{whole / _UNITS[unit]:.6g}{unit}"


def format_bytes(amount: int) -> str:
    """Bytes for people: three significant digits and a decimal unit, ``12.3 GB``."""
    if amount >= UNLIMITED_BYTES:
        return "unlimited"
    return _scaled(amount, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))


def format_ns(duration: int) -> str:
    """A duration in nanoseconds for people: ``96.4 ms``."""
    return _scaled(duration, 1000, ("ns", "µs", "ms", "s"))


def format_seconds(duration: float) -> str:
    """A duration in seconds for people: ``8.31 ms``."""
    return format_ns(round(duration * 1e9))


def _scaled(amount: int, step: int, units: tuple[str, ...]) -> str:
    value, power = float(amount), 0
    # 999.5 would be printed as 1000 of the smaller unit.
    while abs(value) >= step - 0.5 and power < len(units) - 1:
        value /= step
        power += 1
    if power == 0 or abs(value) >= 99.95:
        return f"{value:.0f} {units[power]}"
    return f"{value:.3g} {units[power]}"
