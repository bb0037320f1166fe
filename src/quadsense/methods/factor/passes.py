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
    """

    U: Matrix
    b: Vector
    delta: Vector
    weight: Vector
    low: Matrix | None


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
    """
    k, n = Y.shape
    unit = (4 * n + 2 * k + 8) * np.finfo(np.float64).eps
    size = float(np.linalg.norm(Y)) ** 2
    bound: Vector = unit * (size + np.abs(problem.b))
    return bound


def evaluate(problem: Program, Y: Matrix, theta: float) -> Point:
    """Evaluate residual, loss and gradient at a factor in one pass over U.

    Parameters
    ----------
    problem : Program
    Y : (k, n) array
    theta : float
        Residuals inside ``theta * delta`` cost nothing; 0 gives least squares.
    """
    U, weight = problem.U, problem.weight
    m = U.shape[0]
    k = Y.shape[0]
    P = np.empty((m, k), dtype=U.dtype)
    z = np.empty(m)
    excess = np.empty(m)
    gradient = np.zeros_like(Y)
    X_conj = np.ascontiguousarray(Y.conj().T)
    allowed = theta * problem.delta
    for rows in row_blocks(U, k):
        block = U[rows]
        p = (block @ X_conj).conj()
        residual = inner(p, p) - problem.b[rows]
        slack = excess_of(residual, allowed[rows])
        gradient += (p * (2.0 * weight[rows] * slack)[:, None]).T @ block
        P[rows], z[rows], excess[rows] = p, residual, slack
    value = 0.5 * float(np.dot(weight * excess, excess))
    ratio = float(np.max((np.abs(z) + rounding_bound(problem, Y)) / problem.delta))
    return Point(Y, P, z, excess, value, gradient, ratio)


def project(U: Matrix, D: Matrix) -> Matrix:
    """Return ``u_i* D^T`` for every row, (m, k), for rows D (k, n)."""
    result = np.empty((U.shape[0], D.shape[0]), dtype=U.dtype)
    D_conj = np.ascontiguousarray(D.conj().T)
    for rows in row_blocks(U, D.shape[0]):
        result[rows] = (U[rows] @ D_conj).conj()
    return result


def back_project(U: Matrix, C: Matrix) -> Matrix:
    """Return ``sum_i C[i, k] u_i``, (k, n): the adjoint of `project`."""
    result = np.zeros((C.shape[1], U.shape[1]), dtype=U.dtype)
    for rows in row_blocks(U, C.shape[1]):
        result += C[rows].T @ U[rows]
    return result


def weighted_rows_product(U: Matrix, scale: npt.NDArray[Any], V: Matrix) -> Matrix:
    """Return ``F*(scale) V^T`` transposed, for rows V (k, n), in one pass over U."""
    result = np.zeros_like(V)
    V_conj = np.ascontiguousarray(V.conj().T)
    for rows in row_blocks(U, V.shape[0]):
        block = U[rows]
        result += ((block @ V_conj).conj() * scale[rows, None]).T @ block
    return result
