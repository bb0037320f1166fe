"""What a factored fit reads and never changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.methods.factor.choice import LIFT, rows_are_ample, takes_normal_equations

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Program:
    """What a factored fit reads and never changes.

    Attributes
    ----------
    U : (m, n) array, float64 or complex128
        Rows of unit norm.
    b, delta : (m,) float64
        Readings and tolerances (> 0).
    weight : (m,) float64
        ``(min(delta) / delta)**2``, the weight of a row in the loss.
    low : (m, n) array or None
        Single-precision copy for the inner products of the iterative step.
    inverse, root, pull : (m,) float64
        ``1 / delta``, ``2 sqrt(weight)`` and ``2 weight``.
    total, sharpest, steepest : float
        ``sum weight``, ``max 1/delta`` and ``max sqrt(|b|)/delta``.
    """

    U: Matrix
    b: Vector
    delta: Vector
    weight: Vector
    low: Matrix | None
    inverse: Vector
    root: Vector
    pull: Vector
    total: float
    sharpest: float
    steepest: float


def prepare(
    U: Matrix, b: Vector, delta: Vector, rank: int | None, *, low_precision: bool = True
) -> Program:
    """Collect what the fit reads.

    Parameters
    ----------
    U : (m, n) array, float64 or complex128
        Rows of unit norm.
    b, delta : (m,) float64
        Readings and tolerances (> 0), of moderate size: their squares are formed.
    rank : int or None
        Asked rank; None when it is to grow.
    low_precision : bool
        Whether a single-precision copy of U, half its size, may be made for the products
        of quasi-Newton steps; claims and refinement use double precision either way.
    """
    with np.errstate(under="ignore"):
        weight = (float(delta.min()) / delta) ** 2
        inverse = 1.0 / delta
        steepest = float(np.max(np.sqrt(np.abs(b)) * inverse))
        root = 2.0 * np.sqrt(weight)
    low: Matrix | None = None
    if low_precision and _takes_single_steps(U, rank or 1):
        low = U.astype(np.complex64 if np.iscomplexobj(U) else np.float32, order="C")
    return Program(
        U, b, delta, weight, low, inverse, root, 2.0 * weight, float(weight.sum()),
        float(inverse.max()), steepest,
    )  # fmt: skip


def _takes_single_steps(U: Matrix, rank: int) -> bool:
    """Whether quasi-Newton steps, or Gauss-Newton steps on ample rows, are to come."""
    return rows_are_ample(U, rank) or not takes_normal_equations(U, rank + LIFT)
