"""Eigenvalues of a Hermitian matrix with a proved bound on their errors."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl
from scipy.linalg import lapack

from quadsense.arrays import Vector
from quadsense.proofs.rounding import frobenius, gamma
from quadsense.system.watch import look

FEW = 32
"""Order up to which what surrounds LAPACK takes as long as it does."""


class Spectrum(NamedTuple):
    """Ascending numbers, and a bound on ``||M - Q diag(values) Q*||_F`` for some unitary Q."""

    values: Vector
    error: float


def spectrum(M: npt.NDArray[Any]) -> Spectrum:
    """The eigenvalues of M, its lower triangle, whatever the routine that found them did.

    Notes
    -----
    The computed V is within ``w = ||V* V - I||`` of a unitary Q, and ``M Q - Q L`` is ``M V - V L``
    and ``2 w max(||M||, ||L||)`` at most. Both are formed here, with bounds on their rounding.
    """
    n = len(M)
    look(16.0 * float(n) ** 3)
    size = frobenius(M)
    if not (math.isfinite(size) and size > 0.0):
        return Spectrum(np.zeros(n), size if size == 0.0 else math.inf)
    values, V = _eigen(M)
    products = 4.0 * gamma(n + 8.0)  # complex ones included
    lengths = frobenius(V)
    off = frobenius(V.conj().T @ V - np.eye(n)) + products * lengths * lengths
    rest = frobenius(M @ V - V * values)
    largest = max(size, float(np.abs(values).max()))
    error = rest + 2.0 * products * largest * lengths + 2.0 * off * largest
    if not off < 0.5:
        return Spectrum(values, math.inf)
    return Spectrum(values, 1.01 * error + 1e-290)


def _eigen(M: npt.NDArray[Any]) -> tuple[Vector, npt.NDArray[Any]]:
    """Eigenvalues and vectors, of a small matrix without the calls that surround LAPACK."""
    if len(M) <= FEW:
        solve = lapack.zheevd if np.iscomplexobj(M) else lapack.dsyevd
        values, V, info = solve(M, lower=1)
        if info == 0:
            return values, V
    values, V = sl.eigh(M, check_finite=False)
    return values, V
