"""Symmetric and Hermitian matrices as real vectors, and the normal matrix of F on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas

from quadsense.core.cholesky import SMALL, inner_upper
from quadsense.core.products import unknowns
from quadsense.watch import look

Array = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

ROWS = 1024  # rows of U handled together: the block and its products stay in cache
SQRT2 = float(np.sqrt(2.0))  # off the diagonal, so that the norms agree


def svec(A: Array) -> Vector:
    """Stack a Hermitian matrix into a real vector of the same norm, upper triangle by rows."""
    upper = np.triu_indices(A.shape[0], 1)
    parts = [A.diagonal().real, SQRT2 * A[upper].real]
    if np.iscomplexobj(A):
        parts.append(SQRT2 * A[upper].imag)
    return np.concatenate(parts)


def smat(x: Vector, n: int, dtype: npt.DTypeLike) -> Array:
    """Inverse of `svec`."""
    A = np.zeros((n, n), dtype=dtype)
    upper = np.triu_indices(n, 1)
    count = upper[0].size
    values: Array = x[n : n + count] / SQRT2
    if np.iscomplexobj(A):
        values = values + 1j * (x[n + count :] / SQRT2)
    A[upper] = values
    A += A.conj().T
    A[np.diag_indices(n)] = x[:n]
    return A


def design_block(rows: Array, dtype: npt.DTypeLike) -> Array:
    """Columns ``svec(v_i v_i*)`` for the rows ``v_i``; shape (unknowns, rows)."""
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


def normal_matrix(U: Array, d: Vector, dtype: npt.DTypeLike) -> Array:
    """Upper triangle of ``sum_i d_i svec(u_i u_i*) svec(u_i u_i*)^T``, Fortran order.

    The m-by-unknowns design matrix is never stored: each block of its columns is rebuilt from
    the rows of U, which costs a fraction ``1/unknowns`` of the product.
    """
    rank_update = blas.ssyrk if np.dtype(dtype) == np.float32 else blas.dsyrk
    size = unknowns(U)
    M = np.zeros((size, size), dtype=dtype, order="F")
    quarter = np.sqrt(np.sqrt(d))
    for first in range(0, U.shape[0], ROWS):
        part = slice(first, first + ROWS)
        look()
        block = design_block(U[part] * quarter[part, None], dtype)
        if size > SMALL:
            M = inner_upper(block.T, M)
            continue
        M = rank_update(1.0, block.T, beta=1.0, c=M, trans=1, lower=0, overwrite_c=1)
    return M
