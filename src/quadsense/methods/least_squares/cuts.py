"""Least squares over the cone and within intervals by cuts, for few unknowns.

In coordinates in which the normal matrix is the identity the problem is to find the nearest point
to least squares without cone and intervals. A matrix with a negative eigenvalue of eigenvector q is
cut off by ``q* A q >= 0``, which is one more row for the active set. Where few eigenvalues become
zero some rounds of cuts bring A into the cone to some digits, and show its rank and which intervals
are active; the rest is for Newton's method (see `face`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from quadsense.arrays import Vector
from quadsense.methods.active_set import nearest_within
from quadsense.methods.least_squares.bounds import Rows
from quadsense.methods.least_squares.program import SquaresProgram

Array = npt.NDArray[Any]

MAX_UNKNOWNS = 100
"""Unknowns up to which cuts take less time than steps of other methods."""

MAX_FEATURES = 100_000
"""Entries of all rows, packed, up to which they do."""

MAX_NEGATIVE = 2
"""Negative eigenvalues without the cone up to which cuts are tried: with more, the curvature of its
boundary takes many of them."""

COSTLY = 1e-6
"""Cost without the cone, in units of that of A = 0, below which the dual matrix of the cuts lacks
the digits of a proof."""

INWARDS = 1e-6
"""Half-widths by which readings are kept inside their intervals: A is projected to the cone in the
end, which moves them."""

OUTSIDE = 1e-10
"""Norm of the negative part of A, relative to the norm of A, that is left to that projection."""


class CutMinimizer(NamedTuple):
    """A factor X of A, and the rows at their bounds with their multipliers."""

    X: Array
    rows: Rows
    mu: Vector


def minimizer(program: SquaresProgram, R: Array, least: Vector) -> CutMinimizer | None:
    """Return about the minimizer over the cone and within intervals; None if cuts find none.

    Parameters
    ----------
    program : SquaresProgram
    R : ndarray of shape (N, N)
        Upper Cholesky factor of ``H + alpha I``.
    least : ndarray of shape (N,)
        The minimizer without cone and intervals.
    """
    cone, F = program.cone, program.F
    if not _is_served(program, R) or np.count_nonzero(cone.eigenvalues(least) < 0.0) > MAX_NEGATIVE:
        return None
    lo, hi, G = program.lo, program.hi, F.features()
    inverse, info = lapack.dtrtri(R)
    values, cost = G @ least, program.cost
    if info != 0 or float(cost.w @ (values - cost.b) ** 2) <= COSTLY * program.nothing:
        return None
    half = np.minimum(0.5 * (hi - lo), 1.0)
    lo, hi = lo + INWARDS * half - values, hi - INWARDS * half - values
    enough = min(OUTSIDE, 0.5 * INWARDS * float(half.min()))

    def cuts(v: Vector) -> tuple[Array, Vector] | None:
        x = least + inverse @ v
        eigenvalues, V = cone.eigen(x)
        negative = eigenvalues < 0.0
        size = max(float(np.linalg.norm(eigenvalues)), 1.0)
        if float(np.linalg.norm(eigenvalues[negative])) <= enough * size:
            return None
        q = V[:, negative].T
        rows = cone.pack(q[:, :, None] * q[:, None, :].conj())
        return rows @ inverse, -rows @ least

    found = nearest_within(G @ inverse, lo, hi, np.zeros(least.size), 0.5 * INWARDS * half, cuts)
    if found is None:
        return None
    v, u = found
    values, V = cone.eigen(least + inverse @ v)
    rank = int(np.count_nonzero(values > abs(float(values[0])))) if values[0] < 0.0 else cone.n
    if rank == 0:
        return None
    rows = np.flatnonzero(u[: F.m])
    return CutMinimizer(V[:, -rank:] * np.sqrt(values[-rank:]), rows, -2.0 * u[rows])


def _is_served(program: SquaresProgram, R: Array) -> bool:
    """Return whether the problem is small, and has neither equalities nor a fixed trace."""
    cone, F = program.cone, program.F
    small = cone.size <= MAX_UNKNOWNS and F.m * cone.size <= MAX_FEATURES
    plain = isinstance(R, np.ndarray) and R.dtype == np.float64
    return small and plain and cone.trace is None and bool((program.lo < program.hi).all())
