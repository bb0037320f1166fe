"""Passes over the rows for a factored matrix ``A = X X*``, each row block read once.

A value and a gradient are two products with U.  Done whole, each streams U from
memory; done block by block, the second product finds its rows still in cache, which
makes a pass two to three times as fast.  The factor is kept as ``Y = X^T`` (one row
a rank), so that every product is a row-major one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

# Half of a usual second-level cache, so that block, factor and result fit together.
_BLOCK_BYTES = 1 << 19
# OpenBLAS multiplies small matrices without packing them, twice as fast for a thin
# factor, while (rows x columns x inner) stays below about 100^3.
_SMALL_PRODUCT = 900_000


@dataclass(frozen=True)
class Program:
    """What a factored fit reads and never changes.

    Attributes
    ----------
    U : (m, n) array, float64 or complex128
        Rows of unit norm.
    b, delta : (m,) float64
        Readings and tolerances (> 0).
    weight : (m,) float64
        ``(min(delta) / delta)**2``, the weight of a row in the loss.
    low : (m, n) array or None
        Single-precision copy for the inner products of the iterative step.
    inverse : (m,) float64
        ``1 / delta``.
    total, sharpest, steepest : float
        ``sum weight``, ``max 1/delta`` and ``max sqrt(|b|)/delta``.
    """

    U: Matrix
    b: Vector
    delta: Vector
    weight: Vector
    low: Matrix | None
    inverse: Vector
    total: float
    sharpest: float
    steepest: float


@dataclass(frozen=True)
class Point:
    """A factor with everything one pass over the rows tells about it.

    Attributes
    ----------
    Y : (k, n) array
        The factor, ``A = Y^T conj(Y)``.
    P : (m, k) array
        ``P[i] = u_i* X``.
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
    """Return ``Re sum_k conj(P_ik) Q_ik`` for every row i."""
    if P.shape[1] == 1 and not np.iscomplexobj(P):
        return P[:, 0] * Q[:, 0]
    products: npt.NDArray[Any] = np.einsum("ik,ik->i", P.real, Q.real)
    if np.iscomplexobj(P):
        products += np.einsum("ik,ik->i", P.imag, Q.imag)
    return products


def excess_of(z: Vector, allowed: Vector) -> Vector:
    """Return ``sign(z) max(|z| - allowed, 0)``."""
    excess: Vector = z - np.clip(z, -allowed, allowed)
    return excess


def rounding_bound(problem: Program, Y: Matrix) -> Vector:
    """Bound the rounding error of every computed residual.

    Notes
    -----
    An inner product of length n errs by at most ``gamma_n ||u|| ||x||`` [Higham, 3.5],
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
    U, b, weight = problem.U, problem.b, problem.weight
    k = Y.shape[0]
    X_conj = np.ascontiguousarray(conjugate(Y).T)
    parts: list[tuple[Matrix, Vector, Vector]] = []
    gradient: Any = 0.0
    for rows in row_blocks(U, k):
        block = U[rows]
        p = conjugate(block @ X_conj)
        z = inner(p, p)
        z -= b[rows]
        excess = z if theta == 0.0 else excess_of(z, theta * problem.delta[rows])
        pull = weight[rows] * excess
        pull *= 2.0
        gradient = gradient + (p * pull[:, None]).T @ block
        parts.append((p, z, excess))
    P, z, excess = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
    value = 0.5 * float(np.dot(weight * excess, excess))
    bound = rounding_bound(problem, Y)
    bound += np.abs(z)
    bound /= problem.delta
    return Point(Y, P, z, excess, value, gradient, float(bound.max()))


def project(U: Matrix, D: Matrix) -> Matrix:
    """Return ``u_i* D^T`` for every row, (m, k), for rows D (k, n)."""
    D_conj = np.ascontiguousarray(conjugate(D).T)
    parts = [conjugate(U[rows] @ D_conj) for rows in row_blocks(U, D.shape[0])]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def back_project(U: Matrix, C: Matrix) -> Matrix:
    """Return ``sum_i C[i, k] u_i``, (k, n): the adjoint of `project`."""
    result: Any = 0.0
    for rows in row_blocks(U, C.shape[1]):
        result = result + C[rows].T @ U[rows]
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
