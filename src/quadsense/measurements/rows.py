"""The measurement vectors, seen as rows of unit norm without being copied.

All that depends on how the rows are stored is a few small operations (`DenseRows`, `SparseRows`);
scaling, blocks, the sensing map, its adjoint and the Gram matrix are written once, here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, like, to_numpy
from quadsense.watch import BLOCK_FLOPS, look

BLOCK_ELEMENTS = 2**21
"""Elements of a temporary block: 16 MiB of float64, half a last-level cache."""

# Beyond these norms a coefficient over a squared norm may leave float64's range: then U is copied
# and such rows are brought near one by exact powers of two.
LARGEST_NORM, SMALLEST_NORM = 1e37, 1e-37


class BaseRows(ABC):
    """Rows ``u_i`` of U, used as ``u_i / ||u_i||``.

    Parameters
    ----------
    U : array or sparse array of shape (m, n)
        Measurement vectors, validated; kept as `given`.
    conjugate : bool
        Whether row i of U is ``u_i*`` rather than ``u_i``.

    Notes
    -----
    With ``conjugate`` the rows stay as they are and A is conjugated on its way in and out:
    ``K`` is the same, and ``conj(F*(y))`` of the given rows is ``F*(y)`` of the meant ones.
    """

    def __init__(self, U: Any, conjugate: bool = False) -> None:
        self.m, self.n = (int(size) for size in U.shape)
        self.given = U
        self.is_complex = self._is_complex(U)
        self.conjugate = conjugate and self.is_complex
        self.U, self.norms, scaled_norms = self._bring_into_range(U)
        xp = self.xp
        self.nonzero = xp.astype(scaled_norms > 0, scaled_norms.dtype)
        self.inverse = self.nonzero / xp.where(scaled_norms > 0, scaled_norms, 1.0)

    def _bring_into_range(self, U: Any) -> tuple[Any, Array, Array]:
        """U (or its rescaled copy), the true norms, the norms of what is returned."""
        self.U, self.exponents = U, np.zeros(self.m, dtype=np.int64)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            norms = self._row_norms()
            found = to_numpy(norms)
            if ((found > SMALLEST_NORM) & (found < LARGEST_NORM)).all():
                return U, norms, norms
            sizes = to_numpy(self._row_maxima())
        bad = np.flatnonzero(~np.isfinite(sizes))
        if bad.size:
            raise ValueError(f"U contains NaN or infinity, first in row {bad[0]}")
        wild = (sizes > 0) & ~((found > SMALLEST_NORM) & (found < LARGEST_NORM))
        if not wild.any():
            return U, norms, norms
        exponents = np.where(wild, np.frexp(np.where(wild, sizes, 1.0))[1], 0)
        self.exponents = exponents.astype(np.int64)
        half = exponents // 2  # in two halves: 2^-e alone may overflow for subnormal rows
        with np.errstate(under="ignore"):  # beside the largest entry of its row it is nothing
            for part in (half, exponents - half):
                self.U = self._scale(self.U, like(np.ldexp(1.0, -part), norms))
        scaled = self._row_norms()
        with np.errstate(over="ignore", under="ignore"):
            true = np.ldexp(to_numpy(scaled), exponents)
        return self.U, like(true, norms), scaled

    # --- what depends on the storage ---------------------------------------------------------

    @property
    @abstractmethod
    def xp(self) -> Any:
        """Array namespace of vectors and dense results."""

    @abstractmethod
    def _is_complex(self, U: Any) -> bool: ...

    @abstractmethod
    def _row_norms(self) -> Array:
        """Euclidean norm of each row; may overflow to infinity or underflow to zero."""

    @abstractmethod
    def _row_maxima(self) -> Array:
        """Largest modulus in each row; NaN where the row has one."""

    @abstractmethod
    def _scale(self, block: Any, factors: Array) -> Any:
        """``diag(factors) @ block`` in the block's storage."""

    @abstractmethod
    def _conj(self, block: Any) -> Any:
        """Complex conjugate in the block's storage."""

    @abstractmethod
    def _dense(self, product: Any) -> Array:
        """A product of two blocks as a dense array."""

    @abstractmethod
    def _row_dots(self, block: Any, X: Array) -> Array:
        """Sum over each row of ``block * X``, entry by entry, X dense of the same shape."""

    @abstractmethod
    def _take(self, index: Array) -> Array:
        """Those rows, dense."""

    @abstractmethod
    def _squares(self, block: Any) -> Any:
        """Entry-wise squared moduli, real, in the block's storage."""

    # --- what does not -----------------------------------------------------------------------

    @cached_property
    def dtype(self) -> Any:
        """Float64 or complex128 of the namespace."""
        return self.xp.complex128 if self.is_complex else self.xp.float64

    @property
    def unknowns(self) -> int:
        """Real dimensions of A: n(n+1)/2 symmetric, n^2 Hermitian."""
        return self.n**2 if self.is_complex else self.n * (self.n + 1) // 2

    @cached_property
    def has_unit_norm(self) -> bool:
        """Whether the rows came with unit norm, to rounding."""
        slack = 4.0 * (self.n + 4) * np.finfo(np.float64).eps
        return bool(np.all(np.abs(to_numpy(self.norms) - 1.0) <= slack))

    def as_numpy(self) -> npt.NDArray[Any]:
        """Unit rows as meant, a dense NumPy array: U itself where that is what it is."""
        if isinstance(self.U, np.ndarray) and self.has_unit_norm and not self.conjugate:
            return self.U
        dense = to_numpy(self._dense(self.U))
        unit: npt.NDArray[Any] = dense * to_numpy(self.inverse)[:, None]
        return np.conj(unit, out=unit) if self.conjugate else unit

    def near_unit(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Rows as meant over powers of two, so that no digit changes, and the exponents.

        A dense NumPy array with rows of norm 1/16 to 16, or 0: U itself where that is what it is.
        """
        inverse = to_numpy(self.inverse)
        shifts = np.where(inverse > 0, 1 - np.frexp(inverse)[1], 0)
        if np.all(np.abs(shifts) <= 4):
            shifts = np.zeros_like(shifts)
        dense = to_numpy(self._dense(self.U))
        if shifts.any():
            with np.errstate(under="ignore"):
                dense = dense * np.ldexp(1.0, -shifts)[:, None]
        return np.conj(dense) if self.conjugate else dense, self.exponents + shifts

    def blocks(self, width: int | None = None) -> Iterator[slice]:
        """Slices of rows whose temporaries, `width` numbers a row, stay near 16 MiB."""
        size = max(1, BLOCK_ELEMENTS // max(self.n if width is None else width, 1))
        for begin in range(0, self.m, size):
            look()
            yield slice(begin, min(begin + size, self.m))

    @property
    def prefers_gram(self) -> bool:
        """Whether ``K y`` costs less through inner products of rows than through an (n, n)."""
        return self.m <= 2 * self.n

    def _real(self, x: Array) -> Array:
        return self.xp.real(x) if self.is_complex else x

    def _cast(self, y: Array) -> Array:
        """A real vector or matrix in the type of U, for products with it."""
        return self.xp.astype(y, self.dtype, copy=False)

    def _meant(self, A: Array) -> Array:
        """A of the given rows from A of the meant ones, and back."""
        return self.xp.conj(A) if self.conjugate else A

    def take_unit(self, index: Array) -> Array:
        """Dense rows ``u_i`` of unit norm, as meant by the user: (k, n)."""
        factors = self._cast(self.xp.take(self.inverse, index))
        return self._meant(self._take(index) * factors[:, None])

    def take(self, index: Array) -> Array:
        """Dense rows ``u_i`` as given, but conjugated where asked: (k, n)."""
        return self.take_unit(index) * self._cast(self.xp.take(self.norms, index))[:, None]

    def times(self, X: Array) -> Array:
        """``u_i* x``, rows of unit norm: (n, k) to (m, k)."""
        product = self._times(self._meant(self.xp.conj(X) if self.is_complex else X))
        product = self.xp.conj(product) if self.is_complex else product
        return self._meant(self._cast(self.inverse)[:, None] * product)

    def _times(self, X: Array) -> Array:
        return self._dense(self.U @ X)

    def combine(self, Y: Array) -> Array:
        """``sum_i u_i y_i``, rows of unit norm: (m, k) to (n, k)."""
        scaled = self._meant(self._cast(self.inverse)[:, None] * Y)
        return self._meant(self._dense(self.U.T @ scaled))

    def forward(self, A: Array) -> Array:
        """``F(A)_i = u_i* A u_i``, rows of unit norm: (n, n) to (m,)."""
        transposed = self._meant(self._cast(A)).T
        parts = []
        for block in self.blocks():
            rows = self.U[block, :]
            images = self._dense(rows @ transposed)
            parts.append(self._real(self._row_dots(self._conj(rows), images)))
        return self.xp.concat(parts) * self.inverse**2

    def quadratic(self, times: Callable[[Array], Array]) -> Array:
        """``u_i* A u_i``, rows of unit norm, for an A known by its products ``times(X)``."""
        xp = self.xp
        parts = []
        for block in self.blocks():
            rows = self.take_unit(xp.arange(block.start, block.stop))
            conjugated = xp.conj(rows) if self.is_complex else rows
            parts.append(self._real(xp.sum(conjugated * times(rows.T).T, axis=1)))
        return xp.concat(parts)

    def adjoint(self, y: Array) -> Array:
        """``F*(y) = sum_i y_i u_i u_i*``, rows of unit norm: (m,) to (n, n)."""
        weights = self._cast(y * self.inverse**2)
        total: Array = 0.0
        # At least n rows a block, so that adding up n-by-n products stays cheap beside them.
        for block in self.blocks(min(self.n, max(1, BLOCK_ELEMENTS // self.n))):
            rows = self.U[block, :]
            total = total + self._dense(rows.T @ self._scale(self._conj(rows), weights[block]))
        return self._meant(total)

    def squared_columns(self, y: Array) -> Array:
        """``sum_i y_i |u_ij|^2`` for every j, rows of unit norm: (m,) to (n,)."""
        weights = (y * self.inverse**2)[:, None]
        total: Array = 0.0
        for block in self.blocks():
            total = total + self._dense(self._squares(self.U[block, :]).T @ weights[block, :])[:, 0]
        return total

    def gram_block(self, rows: slice, columns: slice) -> Array:
        """``K_ij = |<u_i, u_j>|^2`` for those rows and columns, dense and real."""
        # The smaller side is conjugated, for its copy; the modulus is the same.
        product = self._dense(self._conj(self.U[rows, :]) @ self.U[columns, :].T)
        square = self.xp.abs(product) ** 2 if self.is_complex else product * product
        return square * (self.inverse[rows] ** 2)[:, None] * (self.inverse[columns] ** 2)[None, :]

    def gram_triangle(self, single: bool = False) -> npt.NDArray[Any]:
        """K in Fortran order, in single or double precision; its upper triangle counts."""
        whole = slice(0, self.m)
        blocks = [to_numpy(self.gram_block(part, whole)) for part in self.blocks(self.m)]
        return np.concatenate(blocks).astype(np.float32 if single else np.float64, copy=False).T

    def gram_times(self, Y: Array) -> Array:
        """``K @ Y`` with K never held whole: (m,) or (m, k) to the same.

        Only the upper half of K is computed (K is symmetric): about m^2 n flops.
        """
        xp = self.xp
        columns = Y if Y.ndim == 2 else Y[:, None]
        size = max(1, min(BLOCK_ELEMENTS // max(self.m, 1), max(64, -(-self.m // 8))))
        size = min(size, max(64, int(BLOCK_FLOPS / (2.0 * max(self.m * self.n, 1)))))
        below = xp.zeros_like(columns)
        parts = []
        for begin in range(0, self.m, size):
            look()
            here = slice(begin, min(begin + size, self.m))
            K = self.gram_block(here, slice(begin, self.m))
            parts.append(below[here, :] + K @ columns[begin:, :])
            rest = K[:, here.stop - begin :].T @ columns[here, :]
            head = below[: here.stop, :]
            below = xp.concat([head, below[here.stop :, :] + rest], axis=0)
        product = xp.concat(parts, axis=0)
        return product if Y.ndim == 2 else product[:, 0]
