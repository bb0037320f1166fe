"""Passes over the rows for a factored matrix ``A = X X*``, each row block read once.

A value and a gradient are two products with U.  Done whole, each streams U from
memory; done block by block, the second product finds its rows still in cache, which
makes a pass two to three times as fast.  The factor and its images are kept with one row
a rank, ``Y = X^T`` and ``P``, so that every product is a row-major one and sums over ranks
run along rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.methods.factor.program import Matrix, Program, Vector

# Half of a usual second-level cache, so that block, factor and result fit together.
_BLOCK_BYTES = 1 << 19
# OpenBLAS multiplies small matrices without packing them, twice as fast for a thin
# factor, while (rows x columns x inner) stays below about 100^3.
_SMALL_PRODUCT = 900_000


@dataclass(frozen=True)
class Point:
    """A factor with everything one pass over the rows tells about it.

    Attributes
    ----------
    Y : (k, n) array
        The factor, ``A = Y^T conj(Y)``.
    P : (k, m) array
        ``P[:, i] = u_i* X``.
    z : (m,) float64
        Residual ``F(A) - b``.
    excess : (m,) float64
        ``sign(z) max(|z| - theta delta, 0)``: z itself for theta = 0.
    value : float
        ``1/2 sum weight excess^2``.
    gradient : (k, n) array
        Of ``value`` with respect to Y, for the inner product ``Re <., .>``.
    ratio : float
        ``max (|z_i| + rounding_i) / delta_i``, rounding bounded from above; infinite
        while P is maintained rather than computed from Y.
    drift : float
        Bound on the error of a row of a maintained P.
    """

    Y: Matrix
    P: Matrix
    z: Vector
    excess: Vector
    value: float
    gradient: Matrix
    ratio: float
    drift: float = 0.0


def conjugate(M: Matrix) -> Matrix:
    """Return conj(M), M itself where it is real: NumPy would copy it."""
    return M.conj() if np.iscomplexobj(M) else M


def row_blocks(U: Matrix, width: int) -> Iterator[slice]:
    """Yield slices of rows that stay in cache between two products of this width."""
    m, n = U.shape
    rows = min(_BLOCK_BYTES // (n * U.itemsize), _SMALL_PRODUCT // (n * width))
    # A multiple of 8 keeps the compiled kernels on their aligned path.
    rows = max(16, rows // 8 * 8)
    for first in range(0, m, rows):
        yield slice(first, min(first + rows, m))


def inner(P: Matrix, Q: Matrix) -> npt.NDArray[Any]:
    """Return ``Re sum_k conj(P_ki) Q_ki`` for every i."""
    if np.iscomplexobj(P):
        parts = (*P.shape, 2)
        P, Q = P.view(P.real.dtype).reshape(parts), Q.view(Q.real.dtype).reshape(parts)
        return np.asarray(np.einsum("kij,kij->i", P, Q))
    return np.asarray(np.einsum("ki,ki->i", P, Q))


def excess_of(z: Vector, allowed: Vector) -> Vector:
    """Return ``sign(z) max(|z| - allowed, 0)``."""
    excess: Vector = z - np.clip(z, -allowed, allowed)
    return excess


def rounding_bound(problem: Program, Y: Matrix) -> Vector:
    """Bound the rounding error of every computed residual.

    Notes
    -----
    An inner product of length n errs by at most ``gamma_n ||u|| ||x||`` [Higham 2002, 3.5],
    complex arithmetic at most doubles the length, and squares and sums add k + 3
    operations; rows have unit norm to within rounding, so
    ``|error_i| <= gamma (||X||_F^2 + |b_i|)`` with ``gamma = gamma_{4n + 2k + 8}``.
    What underflows is less than the smallest normal number in all.
    """
    k, n = Y.shape
    unit = (4 * n + 2 * k + 8) * np.finfo(np.float64).eps
    size = float(np.vdot(Y, Y).real)
    bound: Vector = np.abs(problem.b)
    bound += size
    bound *= unit
    bound += np.finfo(np.float64).tiny
    return bound


def rounding_share(problem: Program, Y: Matrix) -> float:
    """Return the largest rounding bound as a part of its tolerance: 1 leaves no room."""
    return float(np.max(rounding_bound(problem, Y) / problem.delta))


def within_rounding(problem: Program, point: Point, goal: float) -> bool:
    """Whether every residual is within ``goal`` tolerances but for its rounding bound."""
    allowed = goal * problem.delta + rounding_bound(problem, point.Y)
    return bool(np.all(np.abs(point.z) <= allowed))


def evaluate(problem: Program, Y: Matrix, theta: float) -> Point:
    """Evaluate residual, loss and gradient at a factor in one pass over U.

    Parameters
    ----------
    problem : Program
    Y : (k, n) array
    theta : float
        Residuals inside ``theta * delta`` cost nothing; 0 gives least squares.
    """
    U, b, pull = problem.U, problem.b, problem.pull
    P = np.empty((len(Y), len(U)), dtype=U.dtype)
    z, X_conj = np.empty(len(U)), np.ascontiguousarray(conjugate(Y).T)
    excess = z if theta == 0.0 else np.empty_like(z)
    gradient: Any = 0.0
    for rows in row_blocks(U, len(Y)):
        block, p = U[rows], P[:, rows]
        np.conjugate((block @ X_conj).T, out=p)
        np.subtract(inner(p, p), b[rows], out=z[rows])
        if theta != 0.0:
            excess[rows] = excess_of(z[rows], theta * problem.delta[rows])
        gradient = gradient + (p * (pull[rows] * excess[rows])) @ block
    value = 0.25 * float(np.dot(pull * excess, excess))
    bound = rounding_bound(problem, Y)
    bound += np.abs(z)
    bound /= problem.delta
    return Point(Y, P, z, excess, value, gradient, float(bound.max()))


def project(U: Matrix, D: Matrix) -> Matrix:
    """Return ``u_i* D^T`` for every row i, (k, m), for rows D (k, n)."""
    D_conj = np.ascontiguousarray(conjugate(D).T)
    result = np.empty((len(D), len(U)), dtype=U.dtype)
    for rows in row_blocks(U, len(D)):
        np.conjugate((U[rows] @ D_conj).T, out=result[:, rows])
    return result


def back_project(U: Matrix, C: Matrix) -> Matrix:
    """Return ``sum_i C[k, i] u_i``, (k, n): the adjoint of `project`."""
    result: Any = 0.0
    for rows in row_blocks(U, len(C)):
        result = result + C[:, rows] @ U[rows]
    return result


def weighted_rows_product(U: Matrix, scale: npt.NDArray[Any], V: Matrix) -> Matrix:
    """Return ``F*(scale) V^T`` transposed, for rows V (k, n), in one pass over U."""
    result: Any = 0.0
    V_conj = np.ascontiguousarray(conjugate(V).T)
    for rows in row_blocks(U, V.shape[0]):
        block = U[rows]
        image = conjugate(block @ V_conj)
        image *= scale[rows, None]
        result = result + image.T @ block
    return result
