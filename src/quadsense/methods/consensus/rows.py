"""What a reading costs, as the steps need it: value, conjugate and proximal point."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from quadsense.arrays import Vector

FIRM = 20.0
"""Penalty of a reading at an end of its interval, in units of that of one inside. Inside, a penalty
of the weight is best; at an end a larger one is, until the system of a step is ill-conditioned: 5,
20, 50 took 75, 25, 20 steps with 22 readings per unknown, and 35, 35, 35 over the cone."""


class RowTerm(Protocol):
    """A convex function of the readings, one term per row: ``sum_i phi_i(v_i)``."""

    @property
    def lift(self) -> Vector:
        """A vector, not negative, that can be added to every dual vector at a finite price."""

    @property
    def most(self) -> float:
        """The largest value of the sum over all readings that are allowed."""

    def penalty(self, v: Vector, share: float) -> Vector:
        """Penalties for a step, given the readings of the last one; 0 for rows that ask nothing."""

    def value(self, v: Vector) -> float:
        """``sum_i phi_i(v_i)`` for readings that are allowed, unchecked."""

    def conjugate(self, y: Vector, share: float = 0.0) -> float:
        """``sum_i phi_i*(y_i)``, with ends moved inwards by `share`."""

    def permitted(self, y: Vector) -> Vector:
        """The dual vector without the entries whose conjugate is infinite."""

    def outside(self, v: Vector) -> float:
        """How far a reading is from what is allowed at most, in half-widths of its interval."""

    def proximal(self, x: Vector, rho: Vector, share: float) -> Vector:
        """The minimizer of ``phi_i(v_i) + rho_i (v_i - x_i)^2``, with ends moved inwards.

        By `share`, in units of half an interval.
        """


@dataclass(frozen=True)
class SquaresWithin:
    """``phi_i(v) = w_i (v - b_i)^2`` for ``lo_i <= v <= hi_i``, and infinite outside.

    Attributes
    ----------
    w, b, lo, hi : arrays of shape (m,)
        b is 0 where w is 0. Intervals may be infinite, and equal.
    unit : array of shape (m,)
        Half the width of an interval; of one with one end what counts as that.
    typical : float
        The penalty of a row without a weight.
    """

    w: Vector
    b: Vector
    lo: Vector
    hi: Vector
    unit: Vector
    typical: float

    @property
    def lift(self) -> Vector:
        """The weights."""
        return self.w

    @cached_property
    def _equal(self) -> Any:
        return self.lo == self.hi

    @cached_property
    def _base(self) -> Vector:
        """Penalties of readings inside their intervals."""
        asks = (self.lo > -np.inf) | (self.hi < np.inf)
        return np.where(self.w > 0.0, self.w, np.where(asks, self.typical, 0.0))

    @cached_property
    def most(self) -> float:
        """The sum where every reading is at the end that is farther from b."""
        with np.errstate(invalid="ignore"):
            farthest = np.maximum(np.abs(self.hi - self.b), np.abs(self.b - self.lo))
            terms = np.where(self.w > 0.0, self.w * farthest * farthest, 0.0)
        return float(np.sum(terms))

    def ends(self, share: float) -> tuple[Vector, Vector]:
        """Intervals moved inwards."""
        inside = np.where(self._equal, 0.0, share * self.unit)
        return self.lo + inside, self.hi - inside

    def penalty(self, v: Vector, share: float) -> Vector:
        """The weight, and more than that where the reading is at an end."""
        lo, hi = self.ends(share)
        return self._base * np.where((v <= lo) | (v >= hi), FIRM, 1.0)

    def value(self, v: Vector) -> float:
        """``sum_i w_i (v_i - b_i)^2``."""
        return float(self.w @ (v - self.b) ** 2)

    def outside(self, v: Vector) -> float:
        """Of rows that are no equalities."""
        beyond = np.maximum(self.lo - v, v - self.hi)
        beyond = np.where((beyond > 0.0) & (self.unit > 0.0), beyond, 0.0)
        return float(np.max(beyond / np.where(beyond > 0.0, self.unit, 1.0), initial=0.0))

    def permitted(self, y: Vector) -> Vector:
        """0 where there is neither a weight nor the end that it leans on."""
        end = np.where(y > 0.0, self.hi, self.lo)
        return np.where((self.w > 0.0) | np.isfinite(end), y, 0.0)

    def conjugate(self, y: Vector, share: float = 0.0) -> float:
        """``y v - phi(v)`` at the v between the ends where that is largest."""
        priced = self.w > 0.0
        lo, hi = self.ends(share)
        v = np.where(y > 0.0, hi, np.where(y < 0.0, lo, self.b))
        v = np.where(priced, self.b + y / np.where(priced, 2.0 * self.w, 1.0), v)
        v = np.clip(v, lo, hi)
        v = np.where(np.isfinite(v), v, 0.0)  # y is 0 there
        away = v - self.b
        return float(np.sum(y * v - self.w * away * away))

    def proximal(self, x: Vector, rho: Vector, share: float) -> Vector:
        """The weighted mean of b and x, clipped; x itself where nothing is asked."""
        total = self.w + rho
        asks = total > 0.0
        mean = np.where(asks, (self.w * self.b + rho * x) / np.where(asks, total, 1.0), x)
        return np.clip(mean, *self.ends(share))
