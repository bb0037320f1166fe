"""Cholesky factors that precondition the double-precision iteration.

A float32 factorisation costs half of a float64 one and carries seven digits, which is mostly all
that a preconditioner needs. The small shift that keeps it positive definite leaves
``lambda/(lambda + shift)`` of each eigenvalue: 1 for all but the few near or below the shift.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, lapack

from quadsense.core.cholesky import add_to_diagonal, factor_upper, solve_upper
from quadsense.core.products import Float
from quadsense.device import waits
from quadsense.measurements.sensing import Sensing

# The first shift, in units of sqrt(size) times the precision, by which rounding perturbs the
# eigenvalues of a unit-diagonal matrix. A failed attempt costs a factorisation, a larger shift
# leaves more of the spectrum as it was.
_FIRST_SHIFT = 0.5
_SHIFT_GROWTH = 8.0
_EPS_SINGLE = float(np.finfo(np.float32).eps)
# Least over largest diagonal entry from which a factorisation needs no scaling.
_EVEN = 1e-2
# Order up to which double precision takes no longer.
_DOUBLE_ORDER = 128
# Squared pivots within this factor of the shift: eigenvalues that the factor does not resolve.
_UNRESOLVED = 30.0


@dataclass(frozen=True)
class CGFactor:
    """Cholesky factor of ``D (matrix) D + shift I``.

    Attributes
    ----------
    upper : (size, size) array
        The factor, in its upper triangle, in single or double precision.
    scale : (size,) array
        The diagonal of D, which makes that of the matrix one.
    shift : float
    """

    upper: Float
    scale: npt.NDArray[np.float64]
    shift: float

    @property
    def resolves(self) -> bool:
        """Whether all pivots stand clear of the shift."""
        return float(self.upper.diagonal().min()) ** 2 > _UNRESOLVED * self.shift

    def solve(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Apply the inverse of the factored matrix to x, of shape (size,)."""
        right = self.scale * x
        largest = np.abs(right).max(initial=0.0)
        largest = largest if largest > 0.0 else 1.0
        # Scaled, because x may be outside the range of single precision.
        y = solve_upper(self.upper, (right / largest).astype(self.upper.dtype))
        return self.scale * (largest * y.astype(np.float64))


def factor(upper: Float) -> CGFactor:
    """Scale to unit diagonal, shift and factor, with larger shifts until it succeeds.

    Parameters
    ----------
    upper : (size, size) array
        Upper triangle of a positive semidefinite matrix, in single or double precision and
        Fortran order. Overwritten.
    """
    diagonal = upper.diagonal().astype(np.float64)
    # An unknown that no row sees has a zero diagonal: any scale will do.
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    if bool((np.abs(scale - 1.0) < 1e-3).all()):
        scale = np.ones_like(scale)
    else:
        upper *= scale.astype(upper.dtype)
        upper *= scale.astype(upper.dtype)[:, None]
    added, shift = 0.0, _FIRST_SHIFT * float(np.finfo(upper.dtype).eps) * math.sqrt(len(upper))
    while True:
        add_to_diagonal(upper, shift - added)
        added = shift
        R, info = factor_upper(upper.copy(order="F"))
        if info == 0:
            return CGFactor(R, scale, shift)
        shift *= _SHIFT_GROWTH


def solve_once(F: Sensing, right: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
    """Solve ``K y = right`` in single precision, to no more than its digits.

    None where K is singular to them, or its diagonal so uneven that `factor` must scale it.

    Parameters
    ----------
    F : Sensing
    right : (m,) array
        Of size one.
    """
    K = F.gram_triangle(single=True, lower=True)
    if waits(K):  # quick enough by the factor itself
        return None
    diagonal = K.diagonal().copy()
    if float(diagonal.min()) <= _EVEN * float(diagonal.max()):
        return None
    step = len(K) + 1
    K.T.reshape(-1)[::step] += _FIRST_SHIFT * _EPS_SINGLE * math.sqrt(len(K))
    L, info = lapack.spotrf(K, lower=1, clean=0, overwrite_a=1)
    if info != 0:
        return None
    F.learn_rank(L.diagonal() / math.sqrt(float(diagonal.max())), len(K))
    # For one vector quicker than potrs, which is made for many.
    y = blas.strsv(L, right.astype(K.dtype), lower=1, overwrite_x=1)
    y = blas.strsv(L, y, lower=1, trans=1, overwrite_x=1)
    return np.asarray(y.astype(np.float64))


def factor_normal(F: Sensing) -> CGFactor:
    """Factor ``F* F`` (N by N, in the coordinates of `pack`).

    In single precision, and again in double where that leaves eigenvalues unresolved: a
    least-squares fit is wanted to its last direction, which the residual alone cannot show. In
    double precision at once where a factorization takes no time.
    """
    if F.unknowns <= _DOUBLE_ORDER:
        return factor(F.normal())
    first = factor(F.normal(dtype=np.float32))
    return first if first.resolves else factor(F.normal())
