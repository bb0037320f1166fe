"""Probes in a dense array of any namespace of the array API standard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, is_numpy, namespace
from quadsense.core import products
from quadsense.measurements.probes import BLOCK_ELEMENTS, Probes, Weigh
from quadsense.measurements.stored import Stored
from quadsense.system.watch import look

# Half of a usual second-level cache, so that block, factor and result fit together.
_CACHED_BYTES = 1 << 19
# OpenBLAS multiplies small matrices without packing them, twice as fast for a thin
# factor, while (rows x columns x inner) stays below about 100^3.
_SMALL_PRODUCT = 900_000


class Dense(Stored):
    """Rows of a dense (m, n) array.

    A NumPy array stays as it is, memory-mapped, of integers or in single precision: blocks of it
    are widened as they are used.
    """

    storage = "dense"

    def __init__(self, U: Array, dtype: Any = None, norms: Any = None) -> None:
        self._numpy = is_numpy(U)
        self._narrow: Any = dtype
        self._known = norms
        super().__init__(U)
        if dtype is not None:
            self.dtype = np.dtype(dtype)
        elif self._numpy:
            self.dtype = np.dtype(np.complex128 if self.is_complex else np.float64)

    @property
    def xp(self) -> Any:
        """Array namespace of U."""
        return namespace(self.U)

    def _has_complex_entries(self) -> bool:
        if self._numpy:
            return bool(self.U.dtype.kind == "c")
        return bool(self.xp.isdtype(self.U.dtype, "complex floating"))

    def _wide(self, rows: Array) -> Array:
        """Rows in the type of the arithmetic."""
        if self._numpy:
            wanted = self._narrow or (np.complex128 if self.is_complex else np.float64)
            return rows.astype(wanted, copy=False)
        return rows

    def _row_norms(self) -> Array:
        if self._known is not None:
            return self._known
        if self._numpy and self.m * self.n <= BLOCK_ELEMENTS:
            return np.sqrt(self._squares_of(self._wide(self.U)))
        xp = self.xp
        parts = [self._squares_of(self._wide(self.U[part, :])) for part in self.slices()]
        if not parts:
            return xp.zeros(0)
        return xp.sqrt(parts[0] if len(parts) == 1 else xp.concat(parts))

    def _squares_of(self, rows: Array) -> Array:
        """Squared norms of rows."""
        if not self._numpy:
            return self.xp.sum(self.xp.abs(rows) ** 2, axis=1)
        if rows.flags.c_contiguous:  # complex rows as real ones of twice the length
            rows = rows.view(rows.real.dtype)
        return np.vecdot(rows, rows).real

    def _row_maxima(self) -> Array:
        xp = self.xp
        return xp.concat([xp.max(xp.abs(self.U[part, :]), axis=1) for part in self.slices()])

    def _scaled(self, rows: Array, factors: Array) -> Array:
        rows = self._wide(rows)
        return self.xp.astype(factors, rows.dtype, copy=False)[:, None] * rows

    def same_as(self, other: Probes) -> bool:
        """Whether the arrays are equal."""
        from quadsense.arrays import to_numpy

        return isinstance(other, Dense) and (
            self.U is other.U
            or (
                self.U.shape == other.U.shape
                and bool(np.array_equal(to_numpy(self.U), to_numpy(other.U)))
            )
        )

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Dense rows, one block at a time."""
        for part in self.slices():
            yield part, self.block(part.start, part.stop)

    def block(self, first: int, last: int) -> Array:
        """Dense rows `first` to `last`; a view where they are as wide as the arithmetic."""
        return self._wide(self.U[first:last, :])

    def column_squares(self) -> Any:
        """``sum_i |u_ij|^2`` for every j over rows of unit norm."""
        if not self._numpy or self.has_zero_rows or self.m * self.n > BLOCK_ELEMENTS:
            return super().column_squares()
        rows, norms = self._wide(self.U), self.held_norms
        squares = rows.real**2 + rows.imag**2 if self.is_complex else rows * rows
        return (1.0 / (norms * norms)) @ squares

    def some_columns(self, part: slice) -> Array:
        """Some columns of all rows, as they are held."""
        return self.U[:, part]

    def take(self, index: Array) -> Array:
        """Those rows."""
        return self._wide(self.xp.take(self.U, index, axis=0))

    def only(self, index: npt.NDArray[np.int64]) -> Probes:
        """A copy of those rows."""
        if not self._numpy:
            return super().only(index)
        return Dense(self.U[index], self._narrow)

    def times(self, X: Array) -> Array:
        """``u_i* x``."""
        X = self._conj(X)
        product = products.times(self.U, X, self.dtype) if self._numpy else self.U @ X
        return self._conj(product)

    def combine(self, Y: Array) -> Array:
        """``sum_i u_i y_i``."""
        return products.combine(self.U, Y, self.dtype) if self._numpy else self.U.T @ Y

    def forward(self, A: Array) -> Array:
        """``u_i* A u_i``, half the flops where BLAS can be called."""
        if self._numpy:
            return products.forward(self.U, np.asarray(A), self.dtype)
        xp, parts, transposed = self.xp, [], A.T
        for part in self.slices():
            rows = self.U[part, :]
            product = self._conj(rows) * (rows @ transposed)
            parts.append(self.real(xp.sum(product, axis=1)))
        return xp.concat(parts)

    def adjoint(self, y: Array) -> Array:
        """``sum_i y_i u_i u_i*``, half the flops where BLAS can be called."""
        if self._numpy:
            return products.adjoint(self.U, y, self.dtype)
        weights, total = self.xp.astype(y, self.dtype, copy=False), 0.0
        for part in self.slices():
            rows = self.U[part, :]
            total = total + rows.T @ (weights[part][:, None] * self._conj(rows))
        return total

    def squared_columns(self, y: Array) -> Array:
        """``sum_i y_i |u_ij|^2`` for every j."""
        total: Array = 0.0
        for part, rows in self.blocks():
            squares = self.xp.abs(rows) ** 2 if self.is_complex else rows * rows
            total = total + y[part] @ squares
        return total

    def inner(self, rows: slice, columns: slice) -> Array:
        """``|<u_i, u_j>|`` for those rows and columns."""
        # The smaller side is conjugated, for its copy; the modulus is the same.
        left = self._conj(self.block(rows.start, rows.stop))
        return self.xp.abs(left @ self.block(columns.start, columns.stop).T)

    def images(self, Y: Array) -> Array:
        """``P`` with columns ``u_i* Y^T``."""
        if not self._numpy:
            return super().images(Y)
        P = np.empty((len(Y), self.m), dtype=self.dtype)
        for _ in self._imaged(Y, P):
            pass
        return P

    def through(self, Y: Array, weigh: Weigh) -> tuple[Array, Array]:
        """See `Probes.through`: each block of rows is in cache for both products."""
        if not self._numpy:
            return super().through(Y, weigh)
        P = np.empty((len(Y), self.m), dtype=self.dtype)
        total: Any = None
        for part, block in self._imaged(Y, P):
            found = weigh(part, P[:, part]) @ block
            total = found if total is None else total + found
        return P, total

    def _imaged(self, Y: Array, P: Array) -> Iterator[tuple[slice, Array]]:
        """Blocks of rows, each with its part of P written."""
        X_conj = np.ascontiguousarray(self._conj(Y).T)
        for part in self._cached(len(Y)):
            look()
            block = self._wide(self.U[part])
            np.conjugate((block @ X_conj).T, out=P[:, part])
            yield part, block

    def sums(self, C: Array) -> Array:
        """``sum_i C_ki u_i``."""
        if not self._numpy:
            return super().sums(C)
        total: Any = 0.0
        for part in self._cached(len(C)):
            total = total + C[:, part] @ self._wide(self.U[part])
        return total

    def _cached(self, width: int) -> Iterator[slice]:
        """Slices of rows that stay in cache between two products of this width."""
        rows = min(
            _CACHED_BYTES // (self.n * self.dtype.itemsize), _SMALL_PRODUCT // (self.n * width)
        )
        # A multiple of 8 keeps the compiled kernels on their aligned path.
        rows = max(16, rows // 8 * 8)
        for first in range(0, self.m, rows):
            yield slice(first, min(first + rows, self.m))

    def _conj(self, x: Array) -> Array:
        return self.xp.conj(x) if self.is_complex else x
