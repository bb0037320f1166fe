"""Proof that no positive semidefinite matrix fits, checked from the data alone.

If ``F*(y) >= 0`` then ``y.F(A) = <F*(y), A> >= 0`` for every ``A >= 0``; so when the largest value
of ``y.v`` over the intervals is negative, nothing positive semidefinite fits. In floating point
``F*(y) >= -e I`` only, and y is lifted along rows whose ``sum u_i u_i*`` is at least ``sigma I``:
``F*(y + (e/sigma) 1) >= 0`` holds without condition, and the sign is tested again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as sl

from quadsense.core.products import adjoint
from quadsense.methods.positive.maps import EPS, Array, Intervals, Real
from quadsense.watch import look


@dataclass(frozen=True)
class PsdCertificate:
    """What a vector y proves about all positive semidefinite matrices.

    Attributes
    ----------
    y : ndarray, shape (m,)
        The vector, lifted if that was needed and possible; largest entry about 1.
    lower_bound : float
        No positive semidefinite A has ``max_ratio`` below this. 0 when nothing is proved.
    trace_bound : float
        Every positive semidefinite A that fits has at least this trace; inf when none fits. It
        holds even where the rows do not span the space and y cannot be lifted.
    negative : float
        The proved ``e >= 0`` with ``F*(y) >= -e I`` before lifting.
    """

    y: Real
    lower_bound: float
    trace_bound: float
    negative: float

    @property
    def infeasible(self) -> bool:
        """Whether it is proved, without condition, that nothing fits."""
        return self.trace_bound == np.inf


def _cholesky_succeeds(S: Array) -> bool:
    try:
        sl.cholesky(S, check_finite=False)
    except sl.LinAlgError:
        return False
    return True


def smallest_eigenvalue_bound(U: Array, y: Real) -> float:
    """Return a proved lower bound on the smallest eigenvalue of ``F*(y)``.

    Notes
    -----
    A Cholesky factorisation of ``S - c I`` that runs to its end proves
    ``lambda_min(S) >= c - g trace(S - c I)``, ``g = gamma_{n+1}/(1 - gamma_{n+1})``
    [Rump 2006, Thm. 2.3]. Forming S is off by at most
    ``gamma_{m+3} sum |y_i| ||u_i||^2`` in norm. The eigenvalue routine only proposes c.
    """
    m, n = U.shape
    unit = (4.0 if np.iscomplexobj(U) else 1.0) * EPS
    weight = float(np.abs(y) @ np.vecdot(U, U).real) * (1.0 + (m + n) * unit)
    S = adjoint(U, y)
    formed = (m + 8) * unit * weight
    look(2.0 * float(n) ** 3)
    guess = float(sl.eigh(S, eigvals_only=True, subset_by_index=(0, 0), check_finite=False)[0])
    slack = 4.0 * (n + 2) * unit * max(weight, abs(guess))
    for _ in range(60):
        look()
        c = guess - slack
        shifted = S - c * np.eye(n)
        if _cholesky_succeeds(shifted):
            factored = 2.0 * (n + 2) * unit * max(0.0, float(np.trace(shifted).real))
            return float(c - factored - formed - 4.0 * EPS * abs(c))
        slack *= 2.0
    return float(-weight - formed)


def lift_floor(U: Array, intervals: Intervals) -> float:
    """Return a proved ``sigma >= 0`` with ``sum u_i u_i* >= sigma I`` over the rows bounded above.

    Only those rows may carry a larger y: an infinite upper end makes the support infinite.
    """
    return max(0.0, smallest_eigenvalue_bound(U, np.isfinite(intervals.hi).astype(np.float64)))


def certify(U: Array, intervals: Intervals, y: Real, floor: float | None = None) -> PsdCertificate:
    """Return what y proves, every number recomputed from the data with a rounding bound.

    Parameters
    ----------
    U : ndarray, shape (m, n)
        Rows.
    intervals : Intervals
        The intervals of the m measurements.
    y : ndarray, shape (m,)
        Any vector; entries that press on an infinite end are dropped first.
    floor : float, optional
        `lift_floor` of the same data, where it is known already.
    """
    usable = np.where(y > 0, np.isfinite(intervals.hi), np.isfinite(intervals.lo)) & np.isfinite(y)
    y = np.where(usable, y, 0.0)
    size = float(np.max(np.abs(y), initial=0.0))
    if size == 0.0:
        return PsdCertificate(y, 0.0, 0.0, 0.0)
    y = y / size
    # A sum of u_i u_i* with positive weights needs no proof.
    negative = 0.0 if np.all(y >= 0.0) else max(0.0, -smallest_eigenvalue_bound(U, y))
    value, error = intervals.support(y)
    if value + error >= 0.0:
        trace_bound = 0.0
    else:
        trace_bound = -(value + error) / negative * (1.0 - 4.0 * EPS) if negative else np.inf
    if negative:
        floor = lift_floor(U, intervals) if floor is None else floor
        if floor == 0.0:
            return PsdCertificate(y, 0.0, trace_bound, negative)
        lift = negative / floor * (1.0 + 8.0 * EPS) + 4.0 * EPS
        y = np.where(np.isfinite(intervals.hi), y + lift, y)
        value, error = intervals.support(y)
        if value + error < 0.0:
            trace_bound = np.inf
    above = value + error
    with np.errstate(invalid="ignore", over="ignore"):  # widths beyond float64 prove nothing
        cost = float(np.abs(y) @ intervals.width)
        bound = 1.0 - above / (cost * (1.0 + (len(y) + 4) * np.copysign(EPS, -above)))
    bound = bound - 4.0 * EPS * abs(bound) if np.isfinite(cost) and np.isfinite(above) else 0.0
    return PsdCertificate(y, max(0.0, bound), trace_bound, negative)
