"""Symmetric and Hermitian matrices: definiteness, numerical rank and eigenvalues, proved.

Definiteness is proved by Cholesky factorizations, which keep and read the upper triangle in Fortran
order only. Eigenvalues come with a bound on their errors, whatever routine found them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl
from scipy.linalg import lapack
from scipy.linalg.lapack import dpotrs, dpstrf

from quadsense.arrays import Vector
from quadsense.core.cholesky import factor_upper
from quadsense.core.intervals import EPS
from quadsense.core.matrix import EIGENVALUE_ERROR, FactorForm, SensedMatrix
from quadsense.core.sums import sum_error
from quadsense.proofs.rounding import COMPLEX, OF_NORMS, PRODUCT_UNDERFLOW, frobenius
from quadsense.system.watch import look

# --- by Cholesky -----------------------------------------------------------------------------

Matrix = npt.NDArray[Any]

SIGMA_SHARES = (0.99, 0.9, 0.5, 0.1, 0.01)
"""Shares of an estimated eigenvalue that are tried to be proved, each by a factorization."""

HELD_BYTES = 24
"""Bytes per entry of a matrix, its factor and a shifted copy."""

MAX_GRAM_ROWS = 4000
"""Rows up to which their Gram matrix is worth a factorization (m^3/3 flops)."""

LANCZOS_STEPS = 16
"""Steps on the inverse that estimate its largest eigenvalue to some percent."""

EIGEN_FLOPS = 16.0
"""Flops of an eigendecomposition over the cube of the order, about."""


def cholesky(G: Matrix, *, overwrite: bool = False) -> Matrix | None:
    """Return the upper factor of G, None where G is not positive definite."""
    factor, info = factor_upper(np.asfortranarray(G) if overwrite else np.array(G, order="F"))
    # LAPACK may take a matrix with a NaN for definite.
    return factor if info == 0 and np.isfinite(factor.diagonal()).all() else None


def factorisation_error(order: int, trace: float, unit: float = EPS) -> float:
    """Return e with ``lambda_min(S) >= -e`` for any S whose factorisation runs to its end.

    Parameters
    ----------
    order : int
        Of S.
    trace : float
        Of S, or a bound on it.
    unit : float
        Of rounding; four times as much for complex numbers.

    Notes
    -----
    ``gamma_{n+1}/(1 - gamma_{n+1}) trace(S)`` [Rump 2006, Thm. 2.3], rounded up generously.
    """
    return 2.0 * (order + 2) * unit * max(0.0, trace)


class Shift(NamedTuple):
    """A shift that leaves a matrix with a Cholesky factor, and the trace of what it leaves."""

    size: float
    trace: float


def first_shift(
    S: Matrix, sizes: Iterable[float], diagonal: Vector | float = 1.0, offset: float = 0.0
) -> Shift | None:
    """Return the first c for which ``S - c diag - offset I`` has a Cholesky factor.

    With `factorisation_error` of the trace, and a bound on the rounding of S itself, that proves
    a lower bound on the smallest eigenvalue: the sizes only propose it.
    """
    work = np.empty_like(S, order="F")
    entries = work.reshape(-1, order="F")[:: len(S) + 1]
    for size in sizes:
        np.copyto(work, S)
        entries -= size * diagonal + offset
        trace = float(entries.real.sum())
        if cholesky(work, overwrite=True) is not None:
            return Shift(size, trace)
    return None


def solve(factor: Matrix, right: Matrix) -> Matrix:
    """Return ``G^-1 right`` from the factor of G."""
    x: Matrix = dpotrs(factor, right, lower=0)[0]
    return x.reshape(right.shape)


def smallest_eigenvalue(factor: Matrix, diagonal: Vector) -> float:
    """Estimate the smallest eigenvalue of ``D^-1/2 G D^-1/2``, D = diag(diagonal), from above.

    By Lanczos on the inverse, whose products need the factor of G only.
    """
    root = np.sqrt(diagonal)
    N = root.size
    v = np.random.default_rng(0).standard_normal(N)
    v /= float(np.linalg.norm(v))
    basis = np.empty((min(LANCZOS_STEPS, N), N))
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
        Its upper triangle counts.
    factor : (N, N) array
        Of G.
    diagonal : (N,) float64
        Positive.
    slip : float
        Bound on the rounding error of G and of a Cholesky factorisation of that size:
        completed on ``G - s^2 diag - 2 slip``, it proves the claim.
    """
    estimate = smallest_eigenvalue(factor, diagonal)
    shares = [share * estimate for share in SIGMA_SHARES if share * estimate > 0.0]
    found = first_shift(G, shares, diagonal, 2.0 * slip)
    return float(np.sqrt(found.size)) if found is not None else 0.0


def numerical_rank(G: Matrix, slip: float) -> int:
    """Return the rank of a positive semidefinite G: pivots above ``slip``; G is overwritten."""
    _, _, rank, _ = dpstrf(G, tol=slip, lower=0, overwrite_a=1)
    return int(rank)


# --- by eigenvalues --------------------------------------------------------------------------

FEW = 32
"""Order up to which what surrounds LAPACK takes as long as it does."""


class Spectrum(NamedTuple):
    """Ascending numbers, and a bound on ``||M - Q diag(values) Q*||_F`` for some unitary Q."""

    values: Vector
    error: float


def spectrum(M: npt.NDArray[Any]) -> Spectrum:
    """Return the eigenvalues of M, its lower triangle, with a bound on their errors.

    Notes
    -----
    The computed V is within ``w = ||V* V - I||`` of a unitary Q, and ``M Q - Q L`` is ``M V - V L``
    and ``2 w max(||M||, ||L||)`` at most. Both are formed here, with bounds on their rounding.
    """
    n = len(M)
    look(EIGEN_FLOPS * float(n) * n * n)
    size = frobenius(M)
    if not (math.isfinite(size) and size > 0.0):
        return Spectrum(np.zeros(n), size if size == 0.0 else math.inf)
    values, V = _eigen(M)
    products = COMPLEX * sum_error(n)
    lengths = frobenius(V)
    off = frobenius(V.conj().T @ V - np.eye(n)) + products * lengths * lengths
    rest = frobenius(M @ V - V * values)
    largest = max(size, float(np.abs(values).max()))
    error = rest + 2.0 * products * largest * lengths + 2.0 * off * largest
    if not off < 0.5:
        return Spectrum(values, math.inf)
    return Spectrum(values, OF_NORMS * error + PRODUCT_UNDERFLOW)


def _eigen(M: npt.NDArray[Any]) -> tuple[Vector, npt.NDArray[Any]]:
    """Return eigenvalues and vectors; small matrices go to LAPACK directly."""
    if len(M) <= FEW:
        solve = lapack.zheevd if np.iscomplexobj(M) else lapack.dsyevd
        values, V, info = solve(M, lower=1)
        if info == 0:
            return values, V
    values, V = sl.eigh(M, check_finite=False)
    return values, V


# --- up to rounding, by eigenvalues: for the checks of results ----------------------------------


def rank_of(matrix: SensedMatrix) -> int:
    """Return the rank by its form, or the number of eigenvalues that are not rounding."""
    if matrix.factor is not None:
        return int(matrix.factor.shape[1])
    values = np.abs(np.linalg.eigvalsh(np.asarray(matrix)))
    return int(np.count_nonzero(values > EIGENVALUE_ERROR * values.size * values.max()))


def inertia_of(matrix: SensedMatrix) -> tuple[int, int]:
    """Count positive and negative eigenvalues: at most, by its form; or those above rounding."""
    if isinstance(matrix.form, FactorForm):
        return matrix.form.inertia
    values = np.linalg.eigvalsh(np.asarray(matrix))
    slip = EIGENVALUE_ERROR * values.size * float(np.max(np.abs(values)))
    return int(np.count_nonzero(values > slip)), int(np.count_nonzero(values < -slip))


def is_positive(matrix: SensedMatrix) -> bool:
    """Whether A is positive semidefinite: by its form, or up to rounding of its eigenvalues."""
    if isinstance(matrix.form, FactorForm) and matrix.signs is None:
        return True
    values = np.linalg.eigvalsh(np.asarray(matrix))
    return bool(values[0] >= -EIGENVALUE_ERROR * values.size * max(abs(values[0]), abs(values[-1])))
