"""Large factorizations and products in blocks: divided over threads, and interruptible.

Routines of LAPACK run to their end, however long that takes. They do what is small; what is large
is done in blocks, between which `look` is called.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import (
    LinAlgError,
    blas,
    cho_factor,
    cho_solve,
    cython_blas,
    cython_lapack,
    eigh,
    lapack,
    solve_triangular,
    svd,
)
from scipy.linalg.lapack import dpotrf, dpotrs

from quadsense.arrays import or_there
from quadsense.core.intervals import EPS
from quadsense.core.records import record
from quadsense.device import algebra
from quadsense.system.machine import BLOCK_ELEMENTS
from quadsense.system.threads import by_rows, shared_by
from quadsense.system.watch import BLOCK_FLOPS, cholesky_flops, look, real_flops

Array = npt.NDArray[Any]

MAX_WHOLE_ORDER = 3000
"""Order up to which a factorization takes about a third of a second."""

MAX_WHOLE_FLOPS = 6.0 * BLOCK_FLOPS
"""Operations of a product up to which one thread does it whole, though that is several looks'
worth: it runs a tenth faster."""

MIN_SHARED_FLOPS = 3e8
"""Operations of a product from which several threads do it in parts."""

MAX_DIRECT_ORDER = 64
"""Order up to which calls of Python take about as long as an eigenvalue problem."""

PANEL = 256
"""Columns of a block, for products that run at full speed."""

NARROW_PANEL = PANEL // 2
"""Columns that one thread works on at a time: few, so that threads get even parts."""

MAX_LEAF_ORDER = 2 * PANEL
"""Order up to which a part of a matrix is factored by LAPACK."""

MAX_ELIMINATED_ROWS = 4 * PANEL
"""Most rows that are eliminated at once, so that no product takes long."""

PAGE_ENTRIES = 512
"""Float64 entries of the smallest page of memory."""

MIN_CLEAR_PIVOT = 100.0
"""Times the tolerance that the least pivot is, where no pivoting is needed."""


POTRF = {"f": lapack.spotrf, "d": lapack.dpotrf, "F": lapack.cpotrf, "D": lapack.zpotrf}
"""LAPACK's Cholesky factorizations by type."""


def divided(flops: float, dtype: npt.DTypeLike = np.float64) -> bool:
    """Return whether a product of that many operations is to be done in parts."""
    if flops <= MIN_SHARED_FLOPS:
        return False
    limit = MAX_WHOLE_FLOPS if shared_by() == 1 else MIN_SHARED_FLOPS
    return flops > limit * (2.0 if np.dtype(dtype) == np.float32 else 1.0)


@or_there(algebra.factor_upper)
def factor_upper(M: Array) -> tuple[Array, int]:
    """Return the Cholesky factor R, ``M = R^H R``, from the upper triangle of M, in its place.

    Parameters
    ----------
    M : ndarray, shape (n, n)
        Fortran order; overwritten. What is below the diagonal is not read, and only changed
        within blocks of `PANEL` along the diagonal.

    Returns
    -------
    R : ndarray
        M itself.
    info : int
        0, or the order of a leading part that is not positive definite, as in LAPACK.

    Notes
    -----
    Each entry is an inner product taken away from one of M, then divided by a pivot: in whichever
    order, what [Rump 2006] proves of a factorisation that runs to its end holds.
    """
    if not divided(cholesky_flops(len(M)), M.dtype):
        R, info = POTRF[M.dtype.char](M, lower=0, clean=0, overwrite_a=1)
        return R, int(info)
    return M, _factor_part(M, 0, len(M))


def _factor_part(M: Array, first: int, last: int) -> int:
    """Factor the part of M between these rows and columns, by halves; return LAPACK's `info`."""
    if last - first <= MAX_LEAF_ORDER:
        look()
        info = factor_in_place(M[first:last, first:last])
        return first + info if info else 0
    half = PANEL * max(1, (last - first) // (2 * PANEL))
    middle = first + min(half, MAX_ELIMINATED_ROWS)
    info = _factor_part(M, first, middle)
    if info:
        return info
    k, width = middle - first, last - middle
    corner, rows = M[first:middle, first:middle], M[first:middle, middle:last]
    count = -(-width // NARROW_PANEL)

    def divide(begin: int, end: int) -> None:
        for block in range(begin, end):
            look()
            divide_by_factor(corner, rows[:, block * NARROW_PANEL : (block + 1) * NARROW_PANEL])

    def subtract(begin: int, end: int) -> None:
        for start in range(begin * NARROW_PANEL, min(end * NARROW_PANEL, width), step):
            look()
            stop = min(start + step, width)
            part = M[middle : middle + stop, middle + start : middle + stop]
            add_product(part, rows[:, :stop], rows[:, start:stop], -1.0)

    step = NARROW_PANEL if 2.0 * k * width * NARROW_PANEL <= BLOCK_FLOPS else NARROW_PANEL // 2
    by_rows(divide, count, float(k) * k * width)
    by_rows(subtract, count, float(k) * width * width, triangle=True)
    return _factor_part(M, middle, last)


@or_there(algebra.factor_lower)
def factor_lower(S: Array) -> Array:
    """Return L with ``S = L L*``; `LinAlgError` where S is not positive definite."""
    found, info = (lapack.zpotrf if np.iscomplexobj(S) else lapack.dpotrf)(S, lower=1)
    if info != 0:
        raise LinAlgError("not positive definite")
    return np.asarray(found)


@or_there(algebra.least_eigenvalue)
def least_eigenvalue(M: Array) -> Any:
    """Return the least eigenvalue of a Hermitian matrix; not a number where there is none."""
    if len(M) > MAX_DIRECT_ORDER:
        return np.linalg.eigvalsh(M)[0]
    solve = lapack.zheevd if np.iscomplexobj(M) else lapack.dsyevd
    values, _, info = solve(M, compute_v=0, lower=1)
    return values[0] if info == 0 else np.nan


@or_there(algebra.singular)
def singular(M: Array) -> tuple[Array, Array, Array]:
    """Return singular vectors and values, as `scipy.linalg.svd` has them."""
    return svd(M, check_finite=False)


@or_there(algebra.solve_lower)
def solve_lower(L: Array, right: Array) -> Array:
    """Return ``L^-1 right`` for a lower triangular L."""
    return solve_triangular(L, right, lower=True, check_finite=False)


@or_there(algebra.symmetric)
def symmetric(M: Array) -> Array:
    """Return M, of which the upper triangle counts, as products want it: whole on a device."""
    return M


@or_there(algebra.product)
def symmetric_product(M: Array, x: Array) -> Array:
    """Return ``M x`` for a real M as `symmetric` has it, in its precision."""
    return (blas.ssymv if M.dtype == np.float32 else blas.dsymv)(1.0, M, x)


@or_there(algebra.add_inner)
def add_inner(M: Array, X: Array) -> Array:
    """Return ``M + X^T X``, in place of M in Fortran order, for M as `symmetric` has it."""
    rank_update = blas.ssyrk if M.dtype == np.float32 else blas.dsyrk
    return rank_update(1.0, X.T, beta=1.0, c=M, lower=0, overwrite_c=1)


@or_there(algebra.add_to_diagonal)
def add_to_diagonal(M: Array, value: Array | float) -> None:
    """``M + value I``, or with an entry for each, in place."""
    if M.flags.forc:
        M.ravel(order="K")[:: len(M) + 1] += value
    else:
        M.flat[:: len(M) + 1] += value


@or_there(algebra.set_diagonal)
def set_diagonal(M: Array, values: Array) -> None:
    """Write the diagonal, in place."""
    M.flat[:: len(M) + 1] = values


@or_there(algebra.inverse_upper)
def inverse_upper(R: Array) -> Array:
    """Return ``(R^T R)^-1`` for a real R of `factor_upper`, in its place."""
    return lapack.dpotri(R, lower=0, overwrite_c=1)[0]


@or_there(algebra.solve_lower_transposed)
def solve_lower_transposed(L: Array, right: Array) -> Array:
    """Return ``L^-T right`` for a real lower triangular L."""
    return solve_triangular(L, right, lower=True, trans=1, check_finite=False)


@or_there(algebra.solve_upper)
def solve_upper(R: Array, x: Array) -> Array:
    """Return ``(R^T R)^-1 x`` for the real R of `factor_upper`, in its precision."""
    solve = lapack.spotrs if R.dtype == np.float32 else lapack.dpotrs
    return solve(R, x if x.dtype == R.dtype else x.astype(R.dtype), lower=0)[0]


@or_there(algebra.solve_definite)
def solve_definite(K: Array, right: Array) -> Array:
    """Return ``K^-1 right`` for a K that is overwritten; `LinAlgError` where it is not definite."""
    return cho_solve(cho_factor(K, overwrite_a=True, check_finite=False), right)


@or_there(algebra.inner_upper)
def inner_upper(X: Array, out: Array | None = None) -> Array:
    """Return ``X^T X``, its upper triangle in Fortran order; added to `out` where that is given.

    Parameters
    ----------
    X : ndarray, shape (m, k)
        Real.
    out : ndarray, shape (k, k), optional
        Fortran order; changed in place.
    """
    m, k = X.shape
    X = np.asfortranarray(X)
    M = np.zeros((k, k), dtype=X.dtype, order="F") if out is None else out
    # As wide as can be looked at in time, but not so narrow that products run slowly, nor so wide
    # that much is done below the diagonal.
    width = int(np.clip(BLOCK_FLOPS / (2.0 * max(m, 1) * max(k, 1)), NARROW_PANEL // 2, PANEL))

    def add(first: int, last: int) -> None:
        for begin in range(first, last, width):
            end = min(begin + width, last)
            look()
            add_product(M[:end, begin:end], X[:, :end], X[:, begin:end], 1.0)

    by_rows(add, k, float(m) * k * k, triangle=True)
    return M


@or_there(algebra.squared_moduli)
def squared_moduli(U: Array) -> Array:
    """Return ``K_ij = |<u_i, u_j>|^2`` for the rows of U, whole: (m, n) to (m, m)."""
    m, n = U.shape
    cost = 2.0 * real_flops(np.iscomplexobj(U)) * m * n
    most = min(BLOCK_FLOPS / max(cost, 1.0), BLOCK_ELEMENTS / max(m, 1))
    size = int(max(NARROW_PANEL // 2, most))
    if size >= m and not divided(0.5 * cost * m):
        return np.asarray(np.abs(U @ U.conj().T) ** 2)
    K = np.empty((m, m))

    def touch(first: int, last: int) -> None:
        # A column of blocks touches every page of K, and the system clears each on first use: for
        # large K that takes seconds.
        for begin in range(first, last, size):
            look()
            K[begin : min(begin + size, last), ::PAGE_ENTRIES] = 0.0

    def fill(first: int, last: int) -> None:
        for begin in range(first, last, size):
            end = min(begin + size, last)
            look()
            block = U[begin:end] @ U[:end].conj().T
            block = np.abs(block) ** 2 if np.iscomplexobj(block) else np.square(block, out=block)
            K[begin:end, :end] = block
            K[:end, begin:end] = block.T

    by_rows(touch, m, float(m) * m)
    by_rows(fill, m, 0.5 * cost * m, triangle=True)
    return K


def pivoted(K: Array, tolerance: float) -> tuple[Array, npt.NDArray[np.intp]]:
    """Return the pivoted Cholesky factorisation of a positive semidefinite K, down to a tolerance.

    Parameters
    ----------
    K : ndarray, shape (m, m)
        Real, C order, both triangles; overwritten.
    tolerance : float
        Pivots at most this are taken for zero.

    Returns
    -------
    L : ndarray, shape (m, rank)
        ``K = L L^T`` up to the rest; row i of L is that of row i of K.
    order : ndarray of int, shape (m,)
        The pivots in turn, then the others: ``L[order]`` is lower triangular.
    """
    m = len(K)
    M = K.T  # in Fortran order
    if m > MAX_WHOLE_ORDER:  # mostly no row depends on the others: seen without pivots
        parts = [slice(begin, begin + PANEL) for begin in range(0, m, PANEL)]
        kept = [M[part, part].copy() for part in parts]
        R, info = factor_upper(M)
        if info == 0 and float(np.min(R.diagonal())) ** 2 > MIN_CLEAR_PIVOT * tolerance:
            return _cleared(R.T), np.arange(m)
        for part, block in zip(parts, kept, strict=True):  # what is below was left as it was
            M[part, part] = block
    look(cholesky_flops(m))
    factor, pivots, rank, _ = lapack.dpstrf(M, lower=1, tol=tolerance)
    order = np.asarray(pivots, dtype=np.intp) - 1
    L = np.zeros((m, rank))
    L[order] = np.tril(factor)[:, :rank]
    return L, order


def _cleared(L: Array) -> Array:
    """Return L with zeros above the diagonal, in its place."""
    for begin in range(0, len(L), PANEL):
        look()
        rows = slice(begin, begin + PANEL)
        L[rows, begin + PANEL :] = 0.0
        L[rows, rows] = np.tril(L[rows, rows])
    return L


INDEPENDENT = 1e-6
"""Distance of a unit column from those before it above which it is told from rounding: a Gram
matrix of order N errs by about N 1e-16, and the distance by the root of that."""

Solve: TypeAlias = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


class Pseudoinverse(NamedTuple):
    """What `pseudoinverse` finds.

    `solve` takes (N,) or (N, k) to the same; `basis`, (N, rank), is an orthonormal one of the
    range, None where that is everything.
    """

    solve: Solve
    rank: int
    basis: npt.NDArray[Any] | None


def pseudoinverse(H: npt.NDArray[Any]) -> Pseudoinverse:
    """Return products with the pseudoinverse of H, its rank and its range.

    Parameters
    ----------
    H : ndarray of shape (N, N)
        Positive semidefinite to rounding; its upper triangle counts.
    """
    diagonal = H.diagonal().copy()
    if np.all(diagonal > 0.0):
        inverse = 1.0 / np.sqrt(diagonal)
        R, info = dpotrf(H * np.outer(inverse, inverse), lower=0, clean=0, overwrite_a=1)
        if info == 0 and float(np.min(R.diagonal())) > INDEPENDENT:
            return Pseudoinverse(
                lambda y: (inverse * dpotrs(R, (inverse * y.T).T, lower=0)[0].T).T, len(H), None
            )
    values, vectors = eigh(H, lower=False)
    kept = values > 10.0 * len(H) * EPS * np.max(np.abs(values))
    basis, weights = vectors[:, kept], 1.0 / values[kept]
    return Pseudoinverse(
        lambda y: basis @ (weights * (basis.T @ y).T).T, int(np.count_nonzero(kept)), basis
    )


# --- BLAS and LAPACK without the interpreter lock ------------------------------------------------

# SciPy's own wrappers would run one at a time. SciPy exports its routines for compiled code as
# capsules; `ctypes` lets go of the lock in a call.

_ONE = {letter: np.ones((), letter) for letter in "fdFD"}
_PREFIX = {"f": "s", "d": "d", "F": "c", "D": "z"}


@cache
def _routine(name: str, arguments: int) -> Any:
    """Return a routine of SciPy's; all its arguments are pointers, as in Fortran."""
    capsule = (cython_blas.__pyx_capi__ | cython_lapack.__pyx_capi__)[name]
    python = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", python))
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", python)
    )
    address = pointer_of(capsule, name_of(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


def _call(name: str, letter: str, *arguments: Any) -> None:
    """Call a routine for arrays of the type that NumPy has this letter for."""
    _routine(f"{_PREFIX[letter]}{name}", len(arguments))(*arguments)


def multiply_triangle(T: Array, rows: Array) -> None:
    """Replace every row u by ``T u``, in place (``trmm``).

    Parameters
    ----------
    T : (n, n) array
        Upper triangular, Fortran order; what is below the diagonal is not read.
    rows : (k, n) array
        Of the same dtype, C order.
    """
    k, n = rows.shape
    if not (T.flags.f_contiguous and rows.flags.c_contiguous and T.dtype == rows.dtype):
        raise ValueError("T must be in Fortran order, rows in C order, both of one dtype")
    letter = T.dtype.char
    order, count = ctypes.byref(ctypes.c_int(n)), ctypes.byref(ctypes.c_int(k))
    _call(
        "trmm", letter,  # side, uplo, transa, diag, m, n, alpha, A, lda, B, ldb
        b"L", b"U", b"N", b"N", order, count, _ONE[letter].ctypes.data,
        T.ctypes.data, order, rows.ctypes.data, order,
    )  # fmt: skip


def add_product(C: Array, X: Array, Y: Array, sign: float) -> None:
    """Add ``sign X^H Y`` to C, in place (``gemm``): parts of larger arrays are not copied.

    Parameters
    ----------
    C : (p, q) array
    X, Y : (k, p), (k, q) array
        All of one dtype; columns of each contiguous.
    sign : float
    """
    arrays = (C, X, Y)
    size = C.itemsize
    if (
        any(a.strides[0] != size and a.shape[0] > 1 for a in arrays)
        or len({a.dtype for a in arrays}) > 1
    ):
        raise ValueError("columns must be contiguous, and all of one dtype")
    letter = C.dtype.char
    p, q, k = (ctypes.byref(ctypes.c_int(n)) for n in (*C.shape, len(X)))
    steps = [_step(a) for a in arrays]
    alpha = np.array(sign, letter)
    _call(
        "gemm", letter,  # transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc
        b"C", b"N", p, q, k, alpha.ctypes.data, X.ctypes.data, steps[1], Y.ctypes.data, steps[2],
        _ONE[letter].ctypes.data, C.ctypes.data, steps[0],
    )  # fmt: skip


def factor_in_place(M: Array) -> int:
    """Replace the upper triangle of M by its Cholesky factor (``potrf``); return LAPACK's `info`.

    Parameters
    ----------
    M : (n, n) array
        Columns contiguous, as in a part of an array in Fortran order.
    """
    info, letter = ctypes.c_int(0), M.dtype.char
    order = ctypes.byref(ctypes.c_int(len(M)))
    _call("potrf", letter, b"U", order, M.ctypes.data, _step(M), ctypes.byref(info))
    return info.value


def divide_by_factor(R: Array, X: Array) -> None:
    """Replace X by ``R^-H X``, in place (``trsm``).

    Parameters
    ----------
    R : (k, k) array
        Upper triangular; what is below the diagonal is not read.
    X : (k, q) array
        Of the same dtype; columns of both contiguous.
    """
    letter = X.dtype.char
    k, q = (ctypes.byref(ctypes.c_int(n)) for n in X.shape)
    _call(
        "trsm", letter,  # side, uplo, transa, diag, m, n, alpha, A, lda, B, ldb
        b"L", b"U", b"C", b"N", k, q, _ONE[letter].ctypes.data,
        R.ctypes.data, _step(R), X.ctypes.data, _step(X),
    )  # fmt: skip


def _step(a: Array) -> Any:
    """Return the distance between columns of an array, in entries, as Fortran wants it."""
    return ctypes.byref(ctypes.c_int(max(a.strides[1] // a.itemsize, a.shape[0], 1)))


# --- scaled to unit diagonal ---------------------------------------------------------------------

UNIT_ROUNDING, SINGLE_ROUNDING = (float(np.finfo(t).eps) for t in (np.float64, np.float32))
"""Of float64 and float32, twice the unit roundoff."""

# The first shift, in units of sqrt(size) times the precision, by which rounding perturbs the
# eigenvalues of a unit-diagonal matrix. A failed attempt costs a factorisation, a larger shift
# leaves more of the spectrum as it was.
FIRST_SHIFT = 0.5
SHIFT_GROWTH = 8.0
# Squared pivots within this factor of the shift: eigenvalues that the factor does not resolve.
MIN_RESOLVED_PIVOT = 30.0


@record(frozen=True)
class ScaledFactor:
    """Cholesky factor of ``D (matrix) D + shift I``.

    Attributes
    ----------
    upper : (size, size) array
        The factor, in its upper triangle, in single or double precision.
    scale : (size,) array
        The diagonal of D, which makes that of the matrix one.
    shift : float
    """

    upper: Array
    scale: npt.NDArray[np.float64]
    shift: float

    @property
    def resolves(self) -> bool:
        """Whether all pivots stand clear of the shift."""
        return float(self.upper.diagonal().min()) ** 2 > MIN_RESOLVED_PIVOT * self.shift

    def solve(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Apply the inverse of the factored matrix to x, of shape (size,)."""
        right = self.scale * x
        largest = np.maximum.reduce(np.abs(right), initial=0.0)
        largest = largest if largest > 0.0 else 1.0
        # Scaled, because x may be outside the range of single precision.
        y = solve_upper(self.upper, right / largest)
        y = y if y.dtype == right.dtype else y.astype(np.float64)
        return self.scale * (largest * y)


def scaled_factor(upper: Array) -> ScaledFactor:
    """Scale to unit diagonal, shift and factor, with larger shifts until it succeeds.

    Parameters
    ----------
    upper : (size, size) array
        Upper triangle of a positive semidefinite matrix, in single or double precision and
        Fortran order. Overwritten.
    """
    diagonal = upper.diagonal().astype(np.float64)
    if not np.minimum.reduce(diagonal) > 0.0:  # an unknown that no row sees: any scale will do
        diagonal[~(diagonal > 0.0)] = 1.0
    scale = 1.0 / np.sqrt(diagonal)
    factors = scale if scale.dtype == upper.dtype else scale.astype(upper.dtype)
    upper *= factors
    upper *= factors[:, None]
    precision = UNIT_ROUNDING if upper.dtype == np.float64 else SINGLE_ROUNDING
    added, shift = 0.0, FIRST_SHIFT * precision * math.sqrt(len(upper))
    while True:
        add_to_diagonal(upper, shift - added)
        added = shift
        R, info = factor_upper(upper.copy(order="F"))
        if info == 0:
            return ScaledFactor(R, scale, shift)
        shift *= SHIFT_GROWTH
