"""Symmetric and Hermitian matrices as real vectors of the same norm, and the sensing map on them.

First the diagonal, then sqrt(2) times the real parts above it by rows and, for complex matrices,
sqrt(2) times the imaginary ones: N numbers in all, n(n+1)/2 or n^2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas

from quadsense.arrays import complex_of, or_there
from quadsense.core.cholesky import divided, inner_upper
from quadsense.device import algebra
from quadsense.system.machine import BLOCK_ELEMENTS
from quadsense.system.watch import look

Array = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

KEPT_ORDERS = 16
"""Orders of matrices of which indices are kept."""

FEW_ENTRIES = 2**14
"""Features that are written by one product, and not by one for each column; entries of a matrix
that is packed and unpacked by one look-up."""

SQRT2 = float(np.sqrt(2.0))  # off the diagonal, so that the norms agree


def size_of(n: int, is_complex: bool) -> int:
    """Return the number of real unknowns of a matrix of order n."""
    return n * n if is_complex else n * (n + 1) // 2


@lru_cache(KEPT_ORDERS)
def upper(n: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return indices above the diagonal, by rows; kept, for small matrices are packed often."""
    return np.triu_indices(n, 1)


@lru_cache(KEPT_ORDERS)
def strictly_below(n: int) -> npt.NDArray[np.bool_]:
    """Return which entries are below the diagonal."""
    return np.tri(n, k=-1, dtype=bool)


@lru_cache(maxsize=16)
def _places(n: int) -> tuple[npt.NDArray[np.intp], Vector, npt.NDArray[np.intp]]:
    """Of small real matrices: where each packed entry is, its scale, and where each entry goes."""
    across, down = upper(n)
    diagonal = np.arange(n)
    rows, columns = np.append(diagonal, across), np.append(diagonal, down)
    places = np.empty((n, n), np.intp)
    places[rows, columns] = places[columns, rows] = np.arange(rows.size)
    return n * rows + columns, np.where(rows == columns, 1.0, SQRT2), places


@or_there(algebra.pack)
def pack(A: Array) -> Vector:
    """Stack a symmetric or Hermitian matrix into a real vector."""
    if A.size <= FEW_ENTRIES and A.dtype.char == "d":
        where, scales, _ = _places(len(A))
        packed: Vector = A.ravel()[where] * scales
        return packed
    above = A[upper(len(A))]
    parts = [A.diagonal().real, SQRT2 * above.real]
    if A.dtype.kind == "c":
        parts.append(SQRT2 * above.imag)
    return np.concatenate(parts, dtype=np.float64)


@or_there(algebra.unpack)
def unpack(x: Vector, n: int, dtype: npt.DTypeLike) -> Array:
    """Return the matrix whose `pack` is x, in the given dtype."""
    if n * n <= FEW_ENTRIES and x.size < n * n:
        _, scales, places = _places(n)
        found: Array = (x / scales)[places]
        return found if found.dtype == dtype else found.astype(dtype)
    A = np.zeros((n, n), dtype=dtype)
    above = upper(n)
    count = above[0].size
    values: Array = x[n : n + count] / SQRT2
    if A.dtype.kind == "c":
        values = complex_of(values, x[n + count :] / SQRT2)
    A[above] = values
    A += A.conj().T
    A.reshape(-1)[:: n + 1] = x[:n]
    return A


@or_there(algebra.entries)
def entries(H: Array, twice: bool) -> Vector:
    """Entries of a real symmetric matrix in the order of `pack`; those above twice for complex."""
    above = H[upper(len(H))]
    return np.concatenate([H.diagonal(), above, *([above] if twice else [])])


@or_there(algebra.features)
def features(rows: Array, dtype: npt.DTypeLike | None = None, room: Array | None = None) -> Array:
    """Return rows ``pack(v_i v_i*)``: the sensing map as an explicit matrix, (k, n) to (k, N).

    In the precision of the rows unless another real `dtype` is given, and in Fortran order. What
    an earlier call made and that is no longer needed may be given as `room`, to be written over
    where it fits: the first touch of fresh memory takes longer than the products.
    """
    V = np.ascontiguousarray(rows.T)
    n, count = V.shape
    is_complex = V.dtype.kind == "c"
    dtype = V.real.dtype if dtype is None else np.dtype(dtype)
    re = V.real if V.dtype == dtype else V.real.astype(dtype, copy=False)
    shape = (n * n if is_complex else n * (n + 1) // 2, count)
    if room is None or room.T.shape != shape or room.dtype != dtype:
        room = np.empty(shape, dtype=dtype).T
    out = room.T
    pairs = n * (n - 1) // 2
    root = re * dtype.type(SQRT2)
    offset = n
    large = out.size > BLOCK_ELEMENTS
    if not is_complex:
        np.multiply(re, re, out=out[:n])
        if out.size <= FEW_ENTRIES:
            across, down = upper(n)
            np.multiply(re.take(down, 0), root.take(across, 0), out=out[n:])
            return out.T
        for j in range(n - 1):
            if large:
                look()
            end = offset + n - 1 - j
            np.multiply(re[j + 1 :], root[j], out=out[offset:end])
            offset = end
        return out.T
    im = V.imag.astype(dtype, copy=False)
    root_im = im * np.asarray(SQRT2, dtype=dtype)
    np.add(re * re, im * im, out=out[:n])
    for j in range(n - 1):
        if large:
            look()
        end = offset + n - 1 - j
        np.multiply(re[j + 1 :], root[j], out=out[offset:end])
        out[offset:end] += im[j + 1 :] * root_im[j]
        imaginary = out[offset + pairs : end + pairs]
        np.multiply(re[j + 1 :], root_im[j], out=imaginary)
        imaginary -= im[j + 1 :] * root[j]
        offset = end
    return out.T


def normal_matrix(blocks: Iterable[Array], size: int, dtype: npt.DTypeLike) -> Array:
    """Upper triangle of ``sum_i pack(v_i v_i*) pack(v_i v_i*)^T``, N by N in Fortran order.

    The map is never held whole: each block of it is rebuilt from the rows, which costs a share
    ``1/N`` of the product.

    Parameters
    ----------
    blocks : iterable of arrays of shape (k, n)
        The rows, some at a time.
    size : int
        N.
    dtype : float32 or float64
    """

    if isinstance(blocks, tuple) and len(blocks) == 1:
        look()
        return summed_products((features(blocks[0], dtype),), size, dtype)

    def parts() -> Iterator[Array]:
        part = None
        for rows in blocks:
            look()
            part = features(rows, dtype, part)
            yield part

    return summed_products(parts(), size, dtype)


def summed_products(parts: Iterable[Array], size: int, dtype: npt.DTypeLike) -> Array:
    """Upper triangle of the sum of ``part^T part``, parts of `size` columns in Fortran order."""
    rest: Iterator[Array]
    if isinstance(parts, tuple) and len(parts) == 1:
        return _summed_products(parts[0], iter(()), size, dtype)
    rest = iter(parts)
    first = next(rest, None)
    if first is None:
        return np.zeros((size, size), dtype=dtype, order="F")
    return _summed_products(first, rest, size, dtype)


@or_there(algebra.summed_products)
def _summed_products(first: Array, rest: Iterator[Array], size: int, dtype: npt.DTypeLike) -> Array:
    rank_update = blas.ssyrk if np.dtype(dtype) == np.float32 else blas.dsyrk
    M = np.zeros((size, size), dtype=dtype, order="F")
    for part in chain((first,), rest):
        if divided(len(part) * float(size) ** 2, dtype):
            M = inner_upper(part, M)
        else:
            M = rank_update(1.0, part, beta=1.0, c=M, trans=1, lower=0, overwrite_c=1)
    return M


FEATURE_ROWS = 1024
"""Rows whose features are formed together: they and their products stay in cache."""


def adjoint(U: Array, y: Vector) -> Vector:
    """Return the `pack` of ``F*(y)`` for y of shape (m,), or of each column of (m, k)."""
    total = np.zeros((size_of(U.shape[1], np.iscomplexobj(U)), *y.shape[1:]))
    for first in range(0, len(U), FEATURE_ROWS):
        part = slice(first, first + FEATURE_ROWS)
        total += features(U[part]).T @ y[part]
    return total


def pair_products(values: Vector, dtype: npt.DTypeLike) -> Vector:
    """Return ``values_j values_k`` for every entry of a `pack` of matrices of that dtype."""
    j, k = upper(len(values))
    pairs = values[j] * values[k]
    repeats = [pairs, pairs] if np.issubdtype(dtype, np.complexfloating) else [pairs]
    return np.concatenate([values**2, *repeats])
