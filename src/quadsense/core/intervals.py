"""The intervals that values must lie in, as plain lower and upper ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.core.records import cached_property
from quadsense.device import scalar

Real = npt.NDArray[np.float64]
# float64 or complex128: a union of the two does not survive NumPy's own annotations.
Array = npt.NDArray[Any]
EPS = float(np.finfo(np.float64).eps)  # twice the unit roundoff: bounds with it are generous


@dataclass(frozen=True)
class Intervals:
    """One interval per measurement, ``lo_i <= F(A)_i <= hi_i``, with a unit to count its misses in.

    Attributes
    ----------
    lo, hi : ndarray, shape (m,)
        Ends; infinite where the measurement is bounded on one side only.
    width : ndarray, shape (m,)
        What a ratio of 1 means. A miss of the interval by ``v`` is the ratio ``1 + v/width``; for
        ``[b - delta, b + delta]`` and width delta this is ``|F(A) - b|/delta``.
    """

    lo: Real
    hi: Real
    width: Real

    @classmethod
    def around(cls, b: Real, delta: Real) -> Intervals:
        """Return the intervals ``[b - delta, b + delta]``."""
        return cls(b - delta, b + delta, delta)

    @classmethod
    def between(cls, lo: Real, hi: Real) -> Intervals:
        """Return ``[lo, hi]``; the width of a one-sided row is the median of the two-sided ones.

        Without any two-sided row it is 1% of the largest finite end (1 if that is 0).
        """
        half = 0.5 * (hi - lo)
        known = half[np.isfinite(half) & (half > 0)]
        ends = np.concatenate([lo[np.isfinite(lo)], hi[np.isfinite(hi)]])
        scale = 0.01 * float(np.max(np.abs(ends), initial=0.0)) or 1.0
        fill = float(np.median(known)) if known.size else scale
        return cls(lo, hi, np.where(np.isfinite(half) & (half > 0), half, fill))

    def widened(self, ratio: float | Real) -> Intervals:
        """Return the intervals that a matrix of this ratio just meets, in the same unit.

        There may be one ratio per row.
        """
        move = (ratio - 1.0) * self.width
        return Intervals(self.lo - move, self.hi + move, self.width)

    def target(self) -> Real | None:
        """Return the middles, or None when a row has none (it is one-sided)."""
        return self._middles

    @cached_property
    def _middles(self) -> Real | None:
        if not bool(np.all(np.isfinite(self.lo) & np.isfinite(self.hi))):
            return None
        return 0.5 * (self.lo + self.hi)

    def excess(self, values: Real) -> Real:
        """Return the signed miss: positive above hi, negative below lo, 0 inside."""
        return np.maximum(values - self.hi, 0.0) - np.maximum(self.lo - values, 0.0)

    def max_ratio(self, values: Real, error: float = 0.0) -> float:
        """Return the largest ratio when each value is known up to ``error``."""
        return float(self.worst(values, error))

    def worst(self, values: Real, error: float = 0.0) -> Any:
        """Return the same where the values are: a device is not waited for."""
        miss = np.maximum(values - self.hi, self.lo - values)
        return 1.0 + scalar(np.max((miss + error) / self.width))

    def support(self, y: Real) -> tuple[float, float]:
        """Return the largest ``y.v`` over v in the intervals, and a bound on its rounding error.

        It is ``y.b + sum |y_i| delta_i`` for ``[b - delta, b + delta]``. An infinite end that y
        presses on makes it infinite.
        """
        # 0 * inf is nan, so rows that y leaves alone are taken out first.
        rows = np.flatnonzero(y)
        terms = y[rows] * np.where(y[rows] > 0, self.hi[rows], self.lo[rows])
        error = (rows.size + 4) * EPS * float(np.sum(np.abs(terms)))
        return float(np.sum(terms)), error
