"""What a factored fit reads and never changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing
from quadsense.methods.factor.choice import LIFT, rows_are_ample, takes_normal_equations

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Program:
    """What a factored fit reads and never changes.

    Attributes
    ----------
    F : Sensing
        Rows of unit norm.
    b, delta : (m,) float64
        Readings and tolerances (> 0).
    weight : (m,) float64
        ``(min(delta) / delta)**2``, the weight of a row in the loss.
    low : Sensing or None
        The rows in single precision, for the inner products of the iterative step.
    inverse, root, pull : (m,) float64
        ``1 / delta``, ``2 sqrt(weight)`` and ``2 weight``.
    total, sharpest, steepest : float
        ``sum weight``, ``max 1/delta`` and ``max sqrt(|b|)/delta``.
    """

    F: Sensing
    b: Vector
    delta: Vector
    weight: Vector
    low: Sensing | None
    inverse: Vector
    root: Vector
    pull: Vector
    total: float
    sharpest: float
    steepest: float

    @cached_property
    def rows(self) -> Matrix:
        """All rows, dense: for normal equations, which are for small problems."""
        return self.F.raw.rows()

    @cached_property
    def low_rows(self) -> Matrix:
        """The same in single precision."""
        return self.rows if self.low is None else self.low.rows()


def prepare(
    U: Matrix | Sensing,
    b: Vector,
    delta: Vector,
    rank: int | None,
    *,
    low_precision: bool = True,
) -> Program:
    """Collect what the fit reads.

    Parameters
    ----------
    U : Sensing, or (m, n) array
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
    F = Sensing.of(U)
    low: Sensing | None = None
    single = low_precision and not isinstance(F, Mixed)  # sums of rows may cancel
    if single and _takes_single_steps(F, rank or 1) and F.single is not F:
        low = F.single
    return Program(
        F, b, delta, weight, low, inverse, root, 2.0 * weight, float(weight.sum()),
        float(inverse.max()), steepest,
    )  # fmt: skip


def _takes_single_steps(F: Sensing, rank: int) -> bool:
    """Whether quasi-Newton steps, or Gauss-Newton steps on ample rows, are to come."""
    return rows_are_ample(F, rank) or not takes_normal_equations(F, rank + LIFT)
