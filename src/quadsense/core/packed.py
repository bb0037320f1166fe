"""Symmetric and Hermitian matrices as real vectors, and the normal matrix of F on them.

First the diagonal, then sqrt(2) times the real parts above it, row by row, and for complex matrices
sqrt(2) times the imaginary ones: orthonormal coordinates for the Frobenius norm. The coordinates of
``u u*`` are the features of a row u; F is the matrix of all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas

from quadsense.core.products import unknowns

Array = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

ROWS = 1024  # rows of U handled together: the block and its products stay in cache
SQRT2 = float(np.sqrt(2.0))  # off the diagonal, so that the norms agree
SQRT_HALF = float(np.sqrt(0.5))  # and back


def pack(A: Array) -> Vector:
    """Return a Hermitian matrix as a real vector of the same norm."""
    upper = SQRT2 * A[np.triu_indices(len(A), 1)]
    parts = [A.diagonal().real, upper.real]
    if np.iscomplexobj(A):
        parts.append(upper.imag)
    return np.asarray(np.concatenate(parts), dtype=np.float64)


def unpack(x: Vector, n: int, dtype: npt.DTypeLike) -> Array:
    """Inverse of `pack`."""
    A = np.zeros((n, n), dtype=dtype)
    upper = np.triu_indices(n, 1)
    count = upper[0].size
    values: Array = SQRT_HALF * x[n : n + count]
    if np.iscomplexobj(A):
        values = values + 1j * SQRT_HALF * x[n + count :]
    A[upper] = values
    A += A.conj().T
    A[np.diag_indices(n)] = x[:n]
    return A


def pair_products(values: Vector, dtype: npt.DTypeLike) -> Vector:
    """Return ``values_j values_k`` for every coordinate of matrices of that dtype."""
    j, k = np.triu_indices(len(values), 1)
    pairs = values[j] * values[k]
    repeats = [pairs, pairs] if np.issubdtype(dtype, np.complexfloating) else [pairs]
    return np.concatenate([values**2, *repeats])


def features(U: Array) -> Array:
    """Rows ``pack(u_i u_i*)``, shape (m, unknowns), in the precision of U."""
    return np.ascontiguousarray(design_block(U, U.real.dtype).T)


def design_block(rows: Array, dtype: npt.DTypeLike) -> Array:
    """Columns ``pack(v_i v_i*)`` for the rows ``v_i``; shape (unknowns, rows)."""
    V = np.ascontiguousarray(rows.T)
    n, count = V.shape
    re = V.real.astype(dtype)
    out = np.empty((unknowns(rows), count), dtype=dtype)
    pairs = n * (n - 1) // 2
    root = re * np.asarray(SQRT2, dtype=dtype)
    offset = n
    if not np.iscomplexobj(V):
        np.multiply(re, re, out=out[:n])
        for j in range(n - 1):
            end = offset + n - 1 - j
            np.multiply(re[j + 1 :], root[j], out=out[offset:end])
            offset = end
        return out
    im = V.imag.astype(dtype)
    root_im = im * np.asarray(SQRT2, dtype=dtype)
    np.add(re * re, im * im, out=out[:n])
    for j in range(n - 1):
        end = offset + n - 1 - j
        np.multiply(re[j + 1 :], root[j], out=out[offset:end])
        out[offset:end] += im[j + 1 :] * root_im[j]
        imaginary = out[offset + pairs : end + pairs]
        np.multiply(re[j + 1 :], root_im[j], out=imaginary)
        imaginary -= im[j + 1 :] * root[j]
        offset = end
    return out


def normal_matrix(U: Array, d: Vector | None, dtype: npt.DTypeLike) -> Array:
    """Upper triangle of ``sum_i d_i pack(u_i u_i*) pack(u_i u_i*)^T``, Fortran order.

    Without d its entries are 1. The m-by-unknowns design matrix is never stored: each block of its
    columns is rebuilt from the rows of U, which costs a fraction ``1/unknowns`` of the product.
    """
    rank_update = blas.ssyrk if np.dtype(dtype) == np.float32 else blas.dsyrk
    size = unknowns(U)
    M = np.zeros((size, size), dtype=dtype, order="F")
    quarter = None if d is None else np.sqrt(np.sqrt(d))[:, None]
    for first in range(0, U.shape[0], ROWS):
        part = slice(first, first + ROWS)
        rows = U[part] if quarter is None else U[part] * quarter[part]
        block = design_block(rows, dtype)
        M = rank_update(1.0, block.T, beta=1.0, c=M, trans=1, lower=0, overwrite_c=1)
    return M


def adjoint(U: Array, y: Vector) -> Vector:
    """Coordinates of ``F*(y)`` for y of shape (m,), or of each column of (m, k)."""
    total = np.zeros((unknowns(U), *y.shape[1:]))
    for first in range(0, len(U), ROWS):
        part = slice(first, first + ROWS)
        total += design_block(U[part], np.float64) @ y[part]
    return total
