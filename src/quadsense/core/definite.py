"""Symmetric matrices by Cholesky: solving, proofs of definiteness, numerical rank.

All of them keep and read the lower triangle in Fortran order only, as LAPACK does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpotrs, dpstrf

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)  # twice the unit roundoff

# Shares of the estimated eigenvalue for which a proof is tried.
_SHARES = (0.99, 0.9, 0.5, 0.1, 0.01)  # of the estimate: each try is a factorisation
# Steps of Lanczos on the inverse: its largest eigenvalue is found first.
_LANCZOS_STEPS = 16  # an estimate to some percent, which the factorisation then proves


def cholesky(G: Matrix) -> Matrix | None:
    """Return the lower factor of a copy of G, None where G is not positive definite."""
    factor, info = dpotrf(G, lower=1, clean=0, overwrite_a=0)
    return factor if info == 0 and np.all(np.isfinite(np.diagonal(factor))) else None


def solve(factor: Matrix, right: Matrix) -> Matrix:
    """Return ``G^-1 right`` from the factor of G."""
    x: Matrix = dpotrs(factor, right, lower=1)[0]
    return x.reshape(right.shape)


def smallest_eigenvalue(factor: Matrix, diagonal: Vector) -> float:
    """Estimate the smallest eigenvalue of ``D^-1/2 G D^-1/2``, D = diag(diagonal), from above.

    By Lanczos on the inverse, whose products need the factor of G only.
    """
    root = np.sqrt(diagonal)
    N = root.size
    v = np.random.default_rng(0).standard_normal(N)
    v /= float(np.linalg.norm(v))
    basis = np.empty((min(_LANCZOS_STEPS, N), N))
    T = np.zeros((len(basis), len(basis)))
    for i in range(len(basis)):
        basis[i] = v
        w = root * solve(factor, root * v)
        T[i, : i + 1] = basis[: i + 1] @ w
        for _ in range(2):  # once is not enough in floating point
            w -= (basis[: i + 1] @ w) @ basis[: i + 1]
        length = float(np.linalg.norm(w))
        if not length > EPS * T[0, 0]:
            T = T[: i + 1, : i + 1]
            break
        v = w / length
    largest = float(np.linalg.eigvalsh(T, UPLO="L")[-1])
    return 1.0 / largest if largest > 0.0 else 0.0


def proven_sigma(G: Matrix, factor: Matrix, diagonal: Vector, slip: float) -> float:
    """Return s for which ``G - s^2 diag(diagonal)`` is proven positive definite, or 0.

    Parameters
    ----------
    G : (N, N) array
        Its lower triangle counts.
    factor : (N, N) array
        Of G.
    diagonal : (N,) float64
        Positive.
    slip : float
        Bound on the rounding error of G and of a Cholesky factorisation of that size:
        completed on ``G - s^2 diag - 2 slip``, it proves the claim.
    """
    estimate = smallest_eigenvalue(factor, diagonal)
    shifted = G.copy(order="F")
    entries = shifted.reshape(-1, order="F")[:: len(G) + 1]
    own = np.diagonal(G)
    for share in _SHARES:
        if not share * estimate > 0.0:
            break
        entries[:] = own - (share * estimate * diagonal + 2.0 * slip)
        if cholesky(shifted) is not None:
            return float(np.sqrt(share * estimate))
    return 0.0


def numerical_rank(G: Matrix, slip: float, lower: int = 1) -> int:
    """Return the rank of a positive semidefinite G: pivots above ``slip``; G is overwritten."""
    _, _, rank, _ = dpstrf(G, tol=slip, lower=lower, overwrite_a=1)
    return int(rank)
