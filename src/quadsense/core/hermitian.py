"""The sensing map in real coordinates of Hermitian matrices, orthonormal for the Frobenius norm.

First the diagonal, then sqrt(2) times the real parts above it and, for complex matrices, sqrt(2)
times the imaginary ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.core.definite import add_products
from quadsense.core.products import unknowns

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

_BLOCK_ENTRIES = 4_000_000  # 32 MB of features at a time


def features(V: Matrix) -> Vector:
    """Return the real coordinates of ``conj(v) v^T`` for every row, (rows, unknowns)."""
    j, k = np.triu_indices(V.shape[1], 1)
    diagonal = np.abs(V) ** 2
    products = np.sqrt(2.0) * V[:, j].conj() * V[:, k]
    if np.iscomplexobj(V):
        return np.concatenate([diagonal, products.real, -products.imag], axis=1)
    return np.concatenate([diagonal, products], axis=1)


def unpack(x: Vector, n: int, dtype: npt.DTypeLike) -> Matrix:
    """Return the Hermitian matrix of real coordinates x."""
    j, k = np.triu_indices(n, 1)
    S = np.zeros((n, n), dtype=dtype)
    off = x[n : n + len(j)] / np.sqrt(2.0)
    if np.iscomplexobj(S):
        off = off + 1j * x[n + len(j) :] / np.sqrt(2.0)
    S[j, k] = off
    S[k, j] = off.conj()
    S[np.arange(n), np.arange(n)] = x[:n]
    return S


def pair_products(lam: Vector, dtype: npt.DTypeLike) -> Vector:
    """Return ``lam_j lam_k`` for every real coordinate."""
    j, k = np.triu_indices(len(lam), 1)
    pairs = lam[j] * lam[k]
    repeats = [pairs, pairs] if np.issubdtype(dtype, np.complexfloating) else [pairs]
    return np.concatenate([lam**2, *repeats])


def _blocks(V: Matrix) -> list[slice]:
    m, n = V.shape
    rows = max(1, _BLOCK_ENTRIES // (n * n))
    return [slice(i, min(i + rows, m)) for i in range(0, m, rows)]


def normal_matrix(V: Matrix, weight: Vector) -> Matrix:
    """Return the Gram matrix of the weighted map (its lower triangle), block by block."""
    size = unknowns(V)
    G: Matrix = np.zeros((size, size), order="F")
    for rows in _blocks(V):
        G = add_products(G, features(V[rows]) * weight[rows, None])
    return G


def forward(V: Matrix, S: Matrix) -> Vector:
    """Return ``v_i* S v_i`` for every row."""
    values: Vector = np.einsum("ij,ij->i", V.conj() @ S, V).real
    return values


def adjoint(V: Matrix, y: Vector) -> Vector:
    """Return the coordinates of ``F*(y)`` for y of shape (m,), or of each column of (m, k)."""
    total = np.zeros((unknowns(V), *y.shape[1:]))
    for rows in _blocks(V):
        total += features(V[rows]).T @ y[rows]
    return total
