"""The sensing map on positive semidefinite matrices, and the intervals its values must lie in.

A positive semidefinite matrix is held as a factor ``X`` (n, k) with ``A = X X*``: such an A is
positive semidefinite whatever the rounding, and ``F(A)`` costs ``2 m n k`` flops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from quadsense.core.products import times
from quadsense.watch import look

Real = npt.NDArray[np.float64]
# float64 or complex128: a union of the two does not survive NumPy's own annotations.
Array = npt.NDArray[Any]
EPS = float(np.finfo(np.float64).eps)  # twice the unit roundoff: bounds with it are generous


@dataclass(frozen=True)
class Intervals:
    """One interval a measurement, ``lo_i <= F(A)_i <= hi_i``, with a unit to count its misses in.

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

        There may be one ratio a row.
        """
        move = (ratio - 1.0) * self.width
        return Intervals(self.lo - move, self.hi + move, self.width)

    def target(self) -> Real | None:
        """Return the middles, or None when a row has none (it is one-sided)."""
        if not bool(np.all(np.isfinite(self.lo) & np.isfinite(self.hi))):
            return None
        return 0.5 * (self.lo + self.hi)

    def excess(self, values: Real) -> Real:
        """Return the signed miss: positive above hi, negative below lo, 0 inside."""
        return np.maximum(values - self.hi, 0.0) - np.maximum(self.lo - values, 0.0)

    def max_ratio(self, values: Real, error: float = 0.0) -> float:
        """Return the largest ratio when each value is known up to ``error``."""
        miss = np.maximum(values - self.hi, self.lo - values)
        return 1.0 + float(np.max((miss + error) / self.width))

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


def project(U: Array, X: Array) -> Array:
    """Return P (m, k) with rows ``X* u_i``, so that ``F(X X*)_i = sum_j |P_ij|^2``."""
    return times(U, X.conj())


def squares(P: Array) -> Real:
    """Return the squared norm of each row."""
    return np.asarray(np.vecdot(P, P).real)


def forward(U: Array, X: Array) -> Real:
    """Return ``F(X X*)``, (m,)."""
    return squares(project(U, X))


def forward_error(U: Array, X: Array) -> float:
    """Return a bound on the rounding error of every entry of ``forward(U, X)``.

    Notes
    -----
    An inner product of length n is off by at most ``gamma_n ||u|| ||x||`` [Higham 2002, 3.5], so a
    sum of k squares by ``(2 gamma_n + gamma_{k+2}) ||u||^2 ||X||_F^2`` to first order; complex
    arithmetic costs a factor below 3. Twice the sum covers the second order.
    """
    n, k = X.shape
    largest = float(np.max(np.vecdot(U, U).real, initial=0.0))
    growth = (3.0 if np.iscomplexobj(U) else 1.0) * (2 * n + k + 4) * EPS
    return float(2.0 * growth * largest * np.vdot(X, X).real)


def cholesky(B: Array) -> Array | None:
    """Return L with ``B = L L*``, or None where B is not positive definite."""
    factor, info = (lapack.zpotrf if np.iscomplexobj(B) else lapack.dpotrf)(B, lower=1)
    # LAPACK may take a matrix with a NaN for definite.
    return factor if info == 0 and bool(np.all(np.isfinite(np.diagonal(factor)))) else None


def positive_part(B: Array) -> tuple[Array, float]:
    """Return a factor of the positive part of a Hermitian B, and half its squared norm.

    A matrix that has a Cholesky factor is its own positive part, at a twentieth of the cost.
    """
    factor = cholesky(B)
    if factor is not None:
        return factor, 0.5 * float(np.vdot(B, B).real)
    look(10.0 * float(len(B)) ** 3)
    values, vectors = np.linalg.eigh(B)
    keep = values > 0
    return vectors[:, keep] * np.sqrt(values[keep]), 0.5 * float(np.sum(values[keep] ** 2))
