"""Bytes, times and budgets as people write and read them."""

from __future__ import annotations

import math
import operator
import re
from fractions import Fraction
from numbers import Real
from typing import SupportsIndex

from slackswap.errors import InvalidBudget, SlackSwapError

#: Stands for "no limit" where integer arithmetic needs a number.
UNLIMITED_BYTES = 2**62

_UNITS = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", start=1)},
    "KB": 1000,
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)},
}
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z%]*)\s*")
_FIX = "write bytes (20000000000, 20GB, 20GiB) or a fraction of the keep-everything peak (0.5, 50%)"

Budget = int | float | str


def is_integer(value: object) -> bool:
    """Whether a value is an integer of any kind, NumPy's among them; truth values are not."""
    # NumPy's truth value indexes, with a warning, so it is refused by its type's name.
    return isinstance(value, SupportsIndex) and type(value).__name__ not in ("bool", "bool_") \
        and getattr(value, "shape", ()) == ()


def as_integer(
    value: object, where: str, error: type[SlackSwapError], *, fix: str = "write an integer"
) -> int:
    """Return an integer of any kind as Python's; raise `error` for anything else."""
    try:
        if is_integer(value):
            return operator.index(value)  # type: ignore[arg-type]
    except Exception:  # an array, or an object that only seems to be a number
        pass
    raise error(f"{_shown(value)} is not an integer", where=where, fix=fix)


def as_number(
    value: object, where: str, error: type[SlackSwapError], *, fix: str = "write a number"
) -> float:
    """Return a real number of any kind as a float; raise `error` for anything else."""
    if is_integer(value) or isinstance(value, Real):
        try:
            if type(value) is not bool:
                return float(value)  # type: ignore[arg-type]
        except (OverflowError, TypeError, ValueError):
            pass
    raise error(f"{_shown(value)} is not a number", where=where, fix=fix)


def _shown(value: object) -> str:
    """Return a value for a message, shortened, whatever it is."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def parse_budget(budget: Budget) -> int | Fraction:
    """Understand a memory budget.

    Parameters
    ----------
    budget : int, float or str
        An integer is bytes. A float is a fraction of the keep-everything peak. A string is bytes
        with a unit (``20GB``, ``20GiB``), plain digits (bytes), a percentage (``50%``) or a
        decimal (``0.5``).

    Returns
    -------
    int or fractions.Fraction
        Bytes, or an exact fraction: ``0.3`` means 3/10, not its binary neighbour.

    Raises
    ------
    InvalidBudget
        When it is not positive, not finite, ambiguous, or not understood.
    """
    if isinstance(budget, bool):
        raise InvalidBudget("True and False are not budgets", where="budget", fix=_FIX)
    if isinstance(budget, str):
        return _parse_text(budget)
    if not math.isfinite(budget) or budget <= 0:
        raise InvalidBudget(f"{budget!r} is not a positive amount", where="budget", fix=_FIX)
    return _as_bytes(budget) if isinstance(budget, int) else Fraction(repr(float(budget)))


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
            raise InvalidBudget(f"unit {unit!r} is not known", where="budget",
                                fix=f"use one of {', '.join(_UNITS)} or %")
        return _as_bytes(math.floor(amount * _UNITS[unit]))
    if number == "1":
        raise InvalidBudget("'1' could mean one byte or the whole peak", where="budget",
                            fix="write 1B or 100%")
    return _as_bytes(int(number)) if number.isdigit() else amount


def _as_bytes(amount: int) -> int:
    if amount > UNLIMITED_BYTES:
        raise InvalidBudget(f"{amount} bytes is beyond any device", where="budget", fix=_FIX)
    return int(amount)


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
