"""The sensing map and its adjoint as blocked triangular products.

Both maps are symmetric in their two row factors, so each needs half the flops of a plain matrix
product: ``F*(y)`` is a rank-k update (``syrk``) of its upper triangle, once over the rows with
``y < 0`` and once over the rest, and ``u* S u`` needs only the upper triangle ``T`` of ``S`` with
its off-diagonal doubled, a triangular product (``trmm``). A Gram product ``F(F*(y))`` so costs
``2 m n^2`` flops instead of ``4 m n^2`` (four times that for complex rows), and each block of rows
is scaled, multiplied and summed while it is in cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import get_blas_funcs

Float = npt.NDArray[Any]  # real, single or double precision
Inexact = npt.NDArray[Any]  # real or complex, single or double precision

# A block of rows and its product stay in the last-level cache. Smaller blocks gain nothing with one
# thread (BLAS packs its own) and starve two.
_BLOCK_BYTES = 1 << 22


def _block_rows(U: Inexact) -> int:
    return max(256, int(_BLOCK_BYTES // (U.shape[1] * U.itemsize)))


def adjoint(U: Inexact, y: Float) -> Inexact:
    """Upper triangle of ``F*(y) = sum_i y_i u_i u_i*``, off-diagonal doubled.

    Parameters
    ----------
    U : (m, n) array
        Rows ``u_i``, real or complex, single or double precision.
    y : (m,) array
        Real weights.

    Returns
    -------
    T : (n, n) array
        In U's dtype, Fortran order, zero below the diagonal, with
        ``u* F*(y) u = Re(u* T u)`` for every u: the form that `forward` takes.
    """
    n = U.shape[1]
    update = get_blas_funcs(("herk" if np.iscomplexobj(U) else "syrk",), (U,))[0]
    T = np.zeros((n, n), dtype=U.dtype, order="F")
    weights = np.sqrt(np.abs(y)).astype(U.real.dtype)
    size = min(len(U), _block_rows(U))
    buffer = np.empty((size, n), dtype=U.dtype)
    for sign, rows in ((-1.0, np.flatnonzero(y < 0)), (1.0, np.flatnonzero(y > 0))):
        for first in range(0, rows.size, size):
            index = rows[first : first + size]
            block = buffer[: index.size]
            np.take(U, index, axis=0, out=block, mode="clip")
            block *= weights[index, None]
            T = update(sign, block.T, beta=1.0, c=T, overwrite_c=1)
    T *= 2.0
    T[np.diag_indices(n)] *= 0.5
    return T


def forward(U: Inexact, T: Inexact) -> Float:
    """``Re(u_i* T u_i)`` for every row: the sensing map on a triangle from `adjoint`.

    Parameters
    ----------
    U : (m, n) array
        Rows ``u_i``.
    T : (n, n) array
        Upper triangular, in U's dtype and Fortran order.

    Returns
    -------
    values : (m,) array
        In U's real dtype.
    """
    m, n = U.shape
    multiply = get_blas_funcs(("trmm",), (U,))[0]
    real = U.real.dtype
    size = min(len(U), _block_rows(U))
    buffer = np.empty((size, n), dtype=U.dtype)
    values = np.empty(m, dtype=real)
    for first in range(0, m, size):
        rows = np.ascontiguousarray(U[first : first + size])
        image = buffer[: rows.shape[0]]
        np.copyto(image, rows)
        image = multiply(1.0, T, image.T, overwrite_b=1).T
        # Re(conj(u) . w) is the dot product of the two as real vectors of twice the length.
        np.einsum("ij,ij->i", rows.view(real), image.view(real), out=values[first : first + size])
    return values


def triangle_of(S: Inexact) -> Inexact:
    """The triangle T (as `adjoint` returns it) of a symmetric or Hermitian matrix S."""
    T = np.asfortranarray(2.0 * np.triu(S))
    T[np.diag_indices(len(T))] = S.diagonal().real
    return T


def matrix_of(T: Inexact) -> Inexact:
    """The symmetric or Hermitian matrix of a triangle from `adjoint`."""
    S = 0.5 * (T + T.conj().T)
    S[np.diag_indices(len(T))] = T.diagonal().real
    return np.ascontiguousarray(S)


def gram(U: Inexact) -> Float:
    """Upper triangle of ``K = |U U*|^2`` (m by m, Fortran order, zero below the diagonal)."""
    name, trans = ("herk", 2) if np.iscomplexobj(U) else ("syrk", 1)
    # For complex rows this is the conjugate of U U*: the same moduli.
    G: Inexact = get_blas_funcs((name,), (U,))[0](1.0, U.T, trans=trans)
    if np.iscomplexobj(G):
        return np.asarray(np.square(G.real) + np.square(G.imag))
    np.square(G, out=G)
    return G


def gram_product(K: Float, y: Float) -> Float:
    """``K y`` from the upper triangle of K: half of K is read."""
    product: Float = get_blas_funcs(("symv",), (K,))[0](1.0, K, y)
    return product
