"""The sensing map on positive semidefinite matrices.

A positive semidefinite matrix is held as a factor ``X`` (n, k) with ``A = X X*``: such an A is
positive semidefinite whatever the rounding, and ``F(A)`` costs ``2 m n k`` flops.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lapack

from quadsense.arrays import or_there
from quadsense.core.intervals import EPS, Array, Real
from quadsense.device import algebra, scalar
from quadsense.measurements.sensing import Sensing
from quadsense.system.watch import eigen_flops, look


def project(F: Sensing, X: Array) -> Array:
    """Return P (m, k) with rows ``X* u_i``, so that ``F(X X*)_i = sum_j |P_ij|^2``.

    Where readings are sums of rows, those of the rows: see `Mixed`.
    """
    P = F.raw.times(X)
    return np.conj(P, out=P if P.flags.writeable else None) if F.is_complex else P


def squares(P: Array) -> Real:
    """Return the squared norm of each row."""
    return np.vecdot(P, P).real


def forward(F: Sensing, X: Array) -> Real:
    """Return ``F(X X*)``, (m,)."""
    return F.factored(X)


def forward_error(F: Sensing, X: Array) -> float:
    """Return a bound on the rounding error of every entry of ``forward(F, X)``.

    Notes
    -----
    An inner product of length n is off by at most ``gamma_n ||u|| ||x||`` [Higham 2002, 3.5], so a
    sum of k squares by ``(2 gamma_n + gamma_{k+2}) ||u||^2 ||X||_F^2`` to first order; complex
    arithmetic costs a factor below 3. Twice the sum covers the second order.
    """
    n, k = X.shape
    largest = float(np.max(F.masses, initial=0.0))
    length = 2 * n + k + 4 + F.sum_terms(12)
    growth = (3.0 if F.is_complex else 1.0) * length * EPS + 2.0 * F.rounding
    return float(2.0 * growth * largest * np.vdot(X, X).real)


@or_there(algebra.cholesky)
def cholesky(B: Array) -> Array | None:
    """Return L with ``B = L L*``, or None where B is not positive definite."""
    factor, info = (lapack.zpotrf if np.iscomplexobj(B) else lapack.dpotrf)(B, lower=1)
    # LAPACK may take a matrix with a NaN for definite.
    return factor if info == 0 and bool(np.all(np.isfinite(np.diagonal(factor)))) else None


def positive_part(B: Array) -> tuple[Array, Any]:
    """Return a factor of the positive part of a Hermitian B, and, where it is, half its square.

    A matrix that has a Cholesky factor is its own positive part, at a twentieth of the cost.
    """
    factor = cholesky(B)
    if factor is not None:
        return factor, 0.5 * scalar(np.vdot(B, B).real)
    look(eigen_flops(len(B)))
    values, vectors = np.linalg.eigh(B)
    first = len(values) - int(np.count_nonzero(values > 0))  # they come in order
    kept, columns = values[first:], vectors.T[first:].copy().T  # one after the other in memory
    return columns * np.sqrt(kept), 0.5 * scalar(np.sum(kept**2))
