"""A lower bound from dual values that rests on exact arithmetic alone."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from slackswap.search.milp.linear import LinearModel

#: Dual values are rounded to a multiple of 2^-40, which keeps the integers below short.
_DUAL_BITS = 40


def dual_bound(model: LinearModel, duals: NDArray[np.float64]) -> Fraction:
    """Lower bound on the model's optimum from any vector of dual values.

    For every y whose sign fits the finite side of each row, and every x within rows and boxes,
    ``cost @ x = (cost - A'y) @ x + y @ (A x)``, which is at least the sum over columns of the
    smaller of reduced cost times either box end, plus the sum over rows of y times the bound that
    its sign points to. Nothing is assumed of y: a bad one gives a weak bound, never a wrong one.

    Parameters
    ----------
    model : LinearModel
        With finite column bounds.
    duals : float64[rows]
        For instance from a solver, within its tolerances; those of the wrong sign are taken as 0.

    Returns
    -------
    fractions.Fraction
        In the model's unit of the objective, offset included.
    """
    y = np.where(np.isfinite(duals), np.round(np.ldexp(duals, _DUAL_BITS)), 0.0)
    y = np.where((y > 0) & np.isfinite(model.row_lower), y, np.where(
        (y < 0) & np.isfinite(model.row_upper), y, 0.0))
    weights = [int(value) for value in y.tolist()]  # times 2^40

    reduced: list[Fraction] = [Fraction(c) * 2**_DUAL_BITS for c in model.cost.tolist()]
    for row, column, value in zip(
        model.rows.tolist(), model.columns.tolist(), model.values.tolist(), strict=True
    ):
        if weights[row]:
            reduced[column] -= weights[row] * Fraction(value)
    total = Fraction(0)
    for weight, low, high in zip(
        weights, model.row_lower.tolist(), model.row_upper.tolist(), strict=True
    ):
        if weight:
            total += weight * Fraction(low if weight > 0 else high)
    for cost, low, high in zip(reduced, model.lower.tolist(), model.upper.tolist(), strict=True):
        if cost:
            total += cost * Fraction(low if cost > 0 else high)
    return total / Fraction(2**_DUAL_BITS) + Fraction(model.offset)
