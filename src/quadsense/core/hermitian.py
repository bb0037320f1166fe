"""The sensing map in real coordinates of Hermitian matrices, orthonormal for the Frobenius norm.

First the diagonal, then sqrt(2) times the real parts above it and, for complex matrices, sqrt(2)
times the imaginary ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.core.packed import features, normal_matrix, weighed_blocks
from quadsense.core.products import unknowns

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

_BLOCK_ENTRIES = 4_000_000  # 32 MB of features at a time


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


def normal(V: Matrix, weight: Vector) -> Matrix:
    """Return the Gram matrix of the weighted map (its lower triangle), block by block."""
    return normal_matrix(weighed_blocks(V, weight**2), unknowns(V), np.float64, lower=True)


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
