"""The sensing map of dense rows and its adjoint, and matrices as vectors.

Products are blocked triangular ones, shared out by rows. Both maps are symmetric in their two row
factors, so each needs half the flops of a plain matrix product: ``F*(y)`` is a rank-k update
(``syrk``), once over the rows with ``y > 0`` and once over those with ``y < 0``, and ``u* S u``
needs only the upper triangle of ``S`` with its off-diagonal doubled, a triangular product
(``trmm``). A Gram product ``F(F*(y))`` so costs ``2 m n^2`` flops instead of ``4 m n^2`` (four
times that for complex rows), each block of rows is scaled, multiplied and summed while it is in
cache, and ranges of rows run at once (see `quadsense.system.threads`). Rows may be held in a
narrower type than `dtype`, that of the arithmetic: only the block at hand is widened.

`pack` makes symmetric and Hermitian matrices real vectors of the same norm: first the diagonal,
then sqrt(2) times the real parts above it by rows and, for complex matrices, sqrt(2) times the
imaginary ones: N numbers in all, n(n+1)/2 or n^2. `features` is the sensing map on these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, get_blas_funcs

from quadsense.arrays import complex_of, or_there
from quadsense.core.cholesky import PANEL, divided, inner_upper, multiply_triangle
from quadsense.core.intervals import EPS
from quadsense.device import algebra
from quadsense.system.machine import BLOCK_ELEMENTS, MIB
from quadsense.system.threads import by_rows
from quadsense.system.watch import BLOCK_FLOPS, eigen_flops, look, real_flops

Float = npt.NDArray[Any]  # real, single or double precision
Inexact = npt.NDArray[Any]  # real or complex, single or double precision
DType = np.dtype[Any]

_RANK_UPDATE = {"f": blas.ssyrk, "d": blas.dsyrk, "F": blas.cherk, "D": blas.zherk}

# Below this number of multiplications a plain product is quicker, though it takes twice as many.
_PLAIN_FLOPS = {"f": 2_000_000, "c": 300_000}


def _block_rows(n: int, dtype: DType) -> int:
    """Return rows of a block that stays, with its product, in the cache of a core."""
    return MIB // max(n * dtype.itemsize, 1)


def _real(dtype: DType) -> DType:
    """Return the type of the real part."""
    if dtype.kind != "c":
        return dtype
    return np.empty(0, dtype).real.dtype


@or_there(algebra.adjoint)
def adjoint(U: Inexact, y: Float, dtype: DType | None = None) -> Inexact:
    """Return ``F*(y) = sum_i y_i u_i u_i*``.

    Parameters
    ----------
    U : (m, n) array
        Rows ``u_i``, real or complex.
    y : (m,) array
        Real weights.
    dtype : dtype, optional
        That of U, unless it is to be wider.

    Returns
    -------
    S : (n, n) array
        Exactly symmetric (Hermitian).
    """
    m, n = U.shape
    dtype = U.dtype if dtype is None else dtype
    real = _real(dtype)
    if m * n * n <= _PLAIN_FLOPS[dtype.kind]:
        U = U if U.dtype == dtype else U.astype(dtype)
        weighed = U.T * (y if y.dtype == real else y.astype(real))
        S: Inexact = weighed @ (U.conj() if dtype.kind == "c" else U)
        S += S.conj().T
        S *= 0.5
        return S
    width = n * dtype.itemsize // real.itemsize  # complex rows as real ones of twice the length
    weights = np.sqrt(np.abs(y)).astype(real)[:, None]
    # The sums of the blocks are added up, so blocks are not much shorter than sums are wide.
    size = max(2 * width, _block_rows(n, dtype))

    def add_up(first: int, last: int) -> Float:
        total: Float | None = None
        product: Float | None = None  # memory used again: to get it anew costs as much as to use it
        buffer = np.empty((min(size, last - first), n), dtype=dtype)
        signs = y[first:last]
        for sign, mine in ((1.0, signs > 0), (-1.0, signs < 0)):
            rows = np.flatnonzero(mine) + first
            # Of equal length: a short one costs a sum like others.
            step = -(-rows.size // max(1, -(-rows.size // size))) or 1
            for begin in range(0, rows.size, step):
                look()
                index = rows[begin : begin + step]
                block = buffer[: index.size]
                if U.dtype == dtype:
                    np.take(U, index, axis=0, out=block, mode="clip")
                else:
                    block[...] = U[index]
                block *= weights[index]
                flat = block.view(real)
                product = np.matmul(flat.T, flat, out=product)  # NumPy calls syrk here
                if total is None:
                    total, product = np.multiply(product, sign, out=product), None
                else:
                    (np.add if sign > 0 else np.subtract)(total, product, out=total)
        return np.zeros((width, width), dtype=real) if total is None else total

    # Each range has a sum of its own, which is not to be larger than its rows.
    first, *others = by_rows(add_up, m, 1.0 * m * width * width, most=m // max(width, 1) or 1)
    for other in others:
        first += other
    return _from_real(first) if dtype.kind == "c" else first


def _from_real(M: Float) -> Inexact:
    """Return ``sum u u*`` from ``sum v v^T``, v being u as a real vector (Re u_1, ...)."""
    S = np.empty((len(M) // 2, len(M) // 2), dtype=np.result_type(M.dtype, np.complex64))
    S.real = M[::2, ::2] + M[1::2, 1::2]
    S.imag = M[1::2, ::2] - M[::2, 1::2]
    return S


@or_there(algebra.forward)
def forward(U: Inexact, S: Inexact, dtype: DType | None = None) -> Float:
    """Return ``u_i* S u_i`` for every row.

    Parameters
    ----------
    U : (m, n) array
        Rows ``u_i``.
    S : (n, n) array
        Symmetric or Hermitian; of another matrix, its Hermitian part.
    dtype : dtype, optional
        That of U, unless it is to be wider.

    Returns
    -------
    values : (m,) array
        In the real type of `dtype`.
    """
    m, n = U.shape
    dtype = U.dtype if dtype is None else dtype
    real = _real(dtype)
    if m * n * n <= _PLAIN_FLOPS[dtype.kind]:
        U = U if U.dtype == dtype else U.astype(dtype)
        S = S if S.dtype == dtype else S.astype(dtype)
        if dtype.kind != "c":
            values: Float = np.vecdot(U @ S, U)
            return values
        return np.asarray(np.vecdot(U @ S.conj(), U).real)
    # All that u* S u sees, where S is not symmetric. It is much quicker to copy a transpose than to
    # add one up: some dozen parts of a cluster or a file each do so.
    T = S.T.astype(dtype, order="C", casting="same_kind")
    T += S.conj() if np.iscomplexobj(S) else S
    T = T.T
    np.fill_diagonal(T, S.diagonal().real)
    size = max(PANEL, _block_rows(n, dtype))
    values = np.empty(m, dtype=real)

    def evaluate(first: int, last: int) -> None:
        buffer = np.empty((min(size, last - first), n), dtype=dtype)
        for begin in range(first, last, size):
            look()
            end = min(begin + size, last)
            rows = np.ascontiguousarray(U[begin:end], dtype=dtype)
            image = buffer[: end - begin]
            np.copyto(image, rows)
            multiply_triangle(T, image)
            # Re(conj(u) . w) is the dot product of the two as real vectors of twice the length.
            np.vecdot(rows.view(real), image.view(real), out=values[begin:end])

    by_rows(evaluate, m, real_flops(dtype.kind == "c") * m * n * n)
    return values


def times(U: Inexact, X: Inexact, dtype: DType | None = None) -> Inexact:
    """Return ``U X``, ranges of rows at once."""
    m, n = U.shape
    dtype = U.dtype if dtype is None else dtype
    product = np.empty((m, *X.shape[1:]), dtype=np.result_type(dtype, X))
    cost = 2.0 * real_flops(np.iscomplexobj(product)) * n * product.size
    size = max(PANEL, int(BLOCK_FLOPS * m / max(cost, 1.0)))
    if U.dtype != dtype:
        size = min(size, max(MIN_ROWS, _block_rows(n, dtype)))

    def multiply(first: int, last: int) -> None:
        for begin in range(first, last, size):
            look()
            end = min(begin + size, last)
            np.matmul(U[begin:end].astype(dtype, copy=False), X, out=product[begin:end])

    by_rows(multiply, m, cost)
    return product


def combine(U: Inexact, Y: Inexact, dtype: DType | None = None) -> Inexact:
    """Return ``U^T Y``: sums of rows, (m, k) to (n, k)."""
    dtype = U.dtype if dtype is None else dtype
    if U.dtype == dtype:
        return np.asarray(U.T @ Y)
    n = U.shape[1]
    total = np.zeros((n, Y.shape[1]), dtype=np.result_type(dtype, Y))
    size = max(MIN_ROWS, _block_rows(n, dtype))
    for begin in range(0, len(U), size):
        total += U[begin : begin + size].astype(dtype).T @ Y[begin : begin + size]
    return total


def gram(U: Inexact, lower: bool = False) -> Float:
    """Return a triangle of ``K = |U U*|^2``, m by m, in Fortran order; the other one is zero.

    The upper one, unless `lower`, which LAPACK factors the quicker.
    """
    trans = 2 if np.iscomplexobj(U) else 1
    # For complex rows this is the conjugate of U U*: the same moduli.
    if divided(_gram_flops(U), U.real.dtype):
        K = _gram_by_blocks(U)
        return np.asfortranarray(K.T) if lower else K
    G: Inexact = _RANK_UPDATE[U.dtype.char](1.0, U.T, trans=trans, lower=int(lower))
    if np.iscomplexobj(G):
        return np.asarray(np.square(G.real) + np.square(G.imag))
    np.square(G, out=G)
    return G


def _gram_flops(U: Inexact) -> float:
    m, n = map(float, U.shape)
    return real_flops(np.iscomplexobj(U)) * m * m * n


def _gram_by_blocks(U: Inexact) -> Float:
    """Return `gram`, some columns at a time; below the diagonal it holds whatever came of it."""
    m = len(U)
    K = np.zeros((m, m), dtype=U.real.dtype, order="F")
    size = max(PANEL, int(BLOCK_FLOPS * m / (2.0 * _gram_flops(U))))

    def fill(first: int, last: int) -> None:
        for begin in range(first, last, size):
            look()
            end = min(begin + size, last)
            block = U[:end] @ U[begin:end].conj().T
            K[:end, begin:end] = np.square(block.real)
            if np.iscomplexobj(block):
                K[:end, begin:end] += np.square(block.imag)

    by_rows(fill, m, _gram_flops(U), triangle=True)
    return K


@or_there(algebra.product)
def gram_product(K: Float, y: Float) -> Float:
    """Return ``K y`` from the upper triangle of K: half of K is read, or all of it on a device."""
    product: Float = get_blas_funcs(("symv",), (K,))[0](1.0, K, y)
    return product


# --- an orthonormal basis of the span of rows that are longer than they are many -----------------

# Small problems are left to a singular value decomposition. That of a large one would take a third
# to twice as long again and cannot be interrupted: there block after block of rows is made
# orthogonal to the basis so far, what is left over extends it, and `look` is called between blocks.

MIN_ROWS = 16
"""Rows that a block has at least, for products that run at full speed."""

MAX_ROWS = 8 * MIN_ROWS
"""Rows of a block at most, when the basis is made: it is done soon."""

INDEPENDENT_ROWS = 1e-6
"""Ratio of the eigenvalues of a block's inner products down to which they serve for a basis, at a
tenth of the time of Householder's QR: its errors are then some 1e-10, and taken away."""


def basis_of_span(rows: Inexact) -> Inexact:
    """Return an orthonormal basis of the span of the rows, (n, rank).

    Parameters
    ----------
    rows : ndarray, shape (m, n)
        Of norms not far from each other, or 0; m <= n.
    """
    m, n = rows.shape
    if real_flops(np.iscomplexobj(rows)) * (6.0 * m * m * n + 2.0 * eigen_flops(m)) > BLOCK_FLOPS:
        return basis_in_blocks(rows)
    left, values, _ = np.linalg.svd(rows.T, full_matrices=False)
    return np.asarray(left[:, values > m * EPS * values[0]])


def basis_in_blocks(rows: Inexact) -> Inexact:
    """Return the same, looked at between blocks; Fortran order.

    Notes
    -----
    What a block has beyond the basis is orthonormalised: by its inner products where these are well
    conditioned, else by Householder's QR and the singular values of its small factor, of which
    those that rounding may have made are dropped. A direction of a small singular value s then
    carries an error of eps/s within the basis so far: taken away once more, from vectors of norm 1,
    that is gone ("twice is enough"), and so are the errors of the inner products.
    """
    m, n = rows.shape
    cost = 8.0 * real_flops(np.iscomplexobj(rows)) * n
    size = int(np.clip(np.sqrt(BLOCK_FLOPS / cost), MIN_ROWS, MAX_ROWS))
    largest = float(np.sqrt(np.max(np.vecdot(rows, rows).real, initial=0.0)))
    tolerance = 4.0 * (m + np.sqrt(n)) * EPS * largest
    basis = np.empty((n, m), dtype=rows.dtype, order="F")
    rank = 0
    for first in range(0, m, size):
        block = np.array(rows[first : first + size].T)
        known = [slice(begin, min(begin + size, rank)) for begin in range(0, rank, size)]
        _take_away(basis, known, block)
        found = _beyond(block, tolerance)
        _take_away(basis, known, found)
        basis[:, rank : rank + found.shape[1]] = _cleaned(found)
        rank += found.shape[1]
    return basis[:, :rank]


def _take_away(basis: Inexact, parts: list[slice], block: Inexact) -> None:
    """Make the columns of `block` orthogonal to those parts of the basis, in its place."""
    for part in parts:
        look()
        known = basis[:, part]
        block -= known @ (known.conj().T @ block)


def _beyond(block: Inexact, tolerance: float) -> Inexact:
    """Return a basis of the columns, orthonormal to 1e-9, without what rounding made."""
    look()
    block = block[:, np.linalg.norm(block, axis=0) > tolerance]
    squares, vectors = np.linalg.eigh(block.conj().T @ block)
    if squares.size and squares[0] > max(INDEPENDENT_ROWS * squares[-1], tolerance * tolerance):
        return np.asarray(block @ (vectors / np.sqrt(squares)))
    look()
    Q, R = np.linalg.qr(block)
    left, values, _ = np.linalg.svd(R)
    return np.asarray(Q @ left[:, values > tolerance])


def _cleaned(block: Inexact) -> Inexact:
    """Return nearly orthonormal columns made orthonormal to rounding."""
    factor = np.linalg.cholesky(block.conj().T @ block)
    return np.asarray(block @ np.linalg.inv(factor).conj().T)


# --- matrices as vectors --------------------------------------------------------------------------

Array = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

KEPT_ORDERS = 16
"""Orders of matrices of which indices are kept."""

FEW_ENTRIES = 2**14
"""Features that are written by one product, and not by one for each column; entries of a matrix
that is packed and unpacked by one look-up."""

SQRT2 = float(np.sqrt(2.0))  # off the diagonal, so that the norms agree


def real_units(is_complex: bool) -> tuple[Any, ...]:
    """Return the numbers of which real multiples make up the entries: 1, and i if complex."""
    return (1.0, 1j) if is_complex else (1.0,)


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


@lru_cache(KEPT_ORDERS)
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
    number: Any = dtype.type
    root = re * number(SQRT2)
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


def packed_adjoint(U: Array, y: Vector) -> Vector:
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
