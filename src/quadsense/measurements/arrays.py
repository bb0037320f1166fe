"""Rows of an array, of whatever size its entries are: dense, of any namespace, or sparse."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import Array, Vector, is_numpy, like, namespace, to_numpy
from quadsense.core import products
from quadsense.core.records import cached_property
from quadsense.measurements.probes import Probes, dense_blocks, unit_column_squares
from quadsense.system.machine import BLOCK_ELEMENTS, CACHE_BYTES
from quadsense.system.watch import look

ALIGNED = 8
"""Rows a multiple of which keeps the compiled kernels on their aligned path."""

SPARSE_SHARE = 0.1
"""Share of entries that are not 0, up to which an array is kept sparse."""

SMALL_PRODUCT = 900_000
"""Rows times columns times inner size, about 100^3, below which OpenBLAS multiplies matrices
without packing them, twice as fast for a thin factor."""

LARGEST_NORM = 1e37
"""Largest norm of a row that is used as it is."""

SMALLEST_NORM = 1.0 / LARGEST_NORM
"""The least one. Beyond these a coefficient over a squared norm may be out of range: U is copied,
and such rows are brought near one by exact powers of two."""


def powers_near(sizes: Vector, where: Any = True) -> tuple[Any, tuple[Vector, Vector]]:
    """Return exponents of powers of two near these sizes, and what divides by these powers.

    That is two factors, one after the other: a single one may overflow for subnormal sizes.

    Parameters
    ----------
    sizes : ndarray of shape (m,)
    where : ndarray of bool, shape (m,)
        Where to divide; elsewhere the exponents are 0.
    """
    exponents = np.where(where, np.frexp(np.where(where, sizes, 1.0))[1], 0).astype(np.int64)
    half = exponents // 2
    return exponents, (np.ldexp(1.0, -half), np.ldexp(1.0, half - exponents))


MIN_SPREAD = 8.0
"""Ratio of the largest to the smallest root mean square of a column from which on columns are
scaled. Columns of one distribution stay below it: of 16 normal numbers the root mean square is less
than a third, or more than twice, the deviation once in a hundred thousand times."""


def columns_differ(kind: Any) -> bool:
    """Return whether columns, over all rows of unit norm, differ in size by `MIN_SPREAD`.

    False where the entries are not held.
    """
    find = getattr(kind, "column_squares", None)
    squares = find() if find is not None else None
    if squares is None:
        return False
    values = to_numpy(squares).tolist()  # few: quicker than NumPy's
    least, most = min(values), max(values)
    if least == 0.0:
        least = float(np.min(squares, where=squares > 0.0, initial=np.inf))
    return bool(most >= MIN_SPREAD**2 * least)


class NotFinite(ValueError):
    """A row with NaN or infinity in it."""

    def __init__(self, row: int) -> None:
        super().__init__(f"U contains NaN or infinity, first in row {row}")
        self.row = row


class Stored(Probes):
    """Rows of an array U.

    Attributes
    ----------
    given : array of shape (m, n)
        As the user gave it.
    U : array of shape (m, n)
        The same, or a copy with rows out of range divided by powers of two.
    """

    given: Any
    norms: Any
    held_norms: Any
    has_zero_rows: bool

    def __init__(self, U: Any) -> None:
        self.m, self.n = map(int, U.shape)
        self.given = self.U = U
        self.exponents = np.zeros(self.m, np.int64)
        self.is_complex = self._has_complex_entries()
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            self.norms = self.held_norms = self._row_norms()
            found = to_numpy(self.norms)
            least = float(np.minimum.reduce(found, initial=np.inf))
            most = float(np.maximum.reduce(found, initial=0.0))
            self.extreme_norms = least, most
            self.has_zero_rows = not least > 0.0
            if not (least > SMALLEST_NORM and most < LARGEST_NORM):
                self._bring_into_range(found)

    def _bring_into_range(self, found: Any) -> None:
        """Copy U where rows are beyond the range of safe norms; refuse what is not finite."""
        sizes = to_numpy(self._row_maxima())
        bad = np.flatnonzero(~np.isfinite(sizes))
        if bad.size:
            raise NotFinite(int(bad[0]))
        wild = (sizes > 0) & ~((found > SMALLEST_NORM) & (found < LARGEST_NORM))
        if not wild.any():
            return
        exponents, divisors = powers_near(sizes, wild)
        for factors in divisors:
            self.U = self._scaled(self.U, like(factors, self.norms))
        self.exponents = exponents
        self.held_norms = self._row_norms()
        self.has_zero_rows = bool((to_numpy(self.held_norms) == 0.0).any())
        self.norms = like(np.ldexp(to_numpy(self.held_norms), exponents), self.held_norms)

    def made_of(self) -> tuple[Any, ...]:
        """Return the array."""
        return (self.U,)

    def column_squares(self) -> Any:
        """Return ``sum_i |u_ij|^2`` for every j over rows of unit norm."""
        return unit_column_squares(self)

    def column_counts(self) -> Any:
        """Return how many entries of each column are not 0."""
        return sum(
            np.count_nonzero(to_numpy(rows), axis=0) for _, rows in dense_blocks(self)
        ) + np.zeros(self.n, np.int64)

    @abstractmethod
    def _has_complex_entries(self) -> bool: ...

    @abstractmethod
    def _row_norms(self) -> Array:
        """Return the Euclidean norm of each row; may overflow to infinity or underflow to zero."""

    @abstractmethod
    def _row_maxima(self) -> Array:
        """Return the largest modulus in each row; NaN where the row has one."""

    @abstractmethod
    def _scaled(self, rows: Any, factors: Array) -> Any:
        """Return ``diag(factors) @ rows``, widened, in their storage."""


class Dense(Stored):
    """Rows of a dense (m, n) array.

    A NumPy array stays as it is, memory-mapped, of integers or in single precision: blocks of it
    are widened as they are used.
    """

    storage = "dense"
    row_rounding: Any = 0.0

    def __init__(self, U: Array, dtype: Any = None, norms: Any = None) -> None:
        self._numpy = is_numpy(U)
        self._narrow: Any = dtype
        self._known = norms
        # Whether the rows are NumPy's and in double precision.
        self.is_widest = self._numpy and dtype is None and U.dtype.char in "dD"
        if not self._numpy:
            self.xp = namespace(U)
        super().__init__(U)
        self.length, self.adjoint_terms = self.n, self.m
        if dtype is not None:
            self.dtype = np.dtype(dtype)
        elif self._numpy:
            self.dtype = np.dtype(np.complex128 if self.is_complex else np.float64)

    def _has_complex_entries(self) -> bool:
        if self._numpy:
            return bool(self.U.dtype.kind == "c")
        return bool(self.xp.isdtype(self.U.dtype, "complex floating"))

    def _wide(self, rows: Array) -> Array:
        """Return rows in the type of the arithmetic."""
        if self._numpy:
            wanted = self._narrow or (np.complex128 if self.is_complex else np.float64)
            return rows.astype(wanted, copy=False)
        return rows

    def _row_norms(self) -> Array:
        if self._known is not None:
            return self._known
        if self._numpy and self.m * self.n <= BLOCK_ELEMENTS:
            return np.sqrt(self._squares_of(self.U if self.is_widest else self._wide(self.U)))
        xp = self.xp
        parts = [self._squares_of(self._wide(self.U[part, :])) for part in self.slices()]
        if not parts:
            return xp.zeros(0)
        return xp.sqrt(parts[0] if len(parts) == 1 else xp.concat(parts))

    def _squares_of(self, rows: Array) -> Array:
        """Return squared norms of rows."""
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

    def block(self, first: int, last: int) -> Array:
        """Return dense rows `first` to `last`; a view where they are as wide as the arithmetic."""
        rows = self.U[first:last, :]
        return rows if self.is_widest else self._wide(rows)

    def column_squares(self) -> Any:
        """Return ``sum_i |u_ij|^2`` for every j over rows of unit norm."""
        if not self._numpy or self.has_zero_rows or self.m * self.n > BLOCK_ELEMENTS:
            return super().column_squares()
        rows, norms = self.U if self.is_widest else self._wide(self.U), self.held_norms
        squares = rows.real**2 + rows.imag**2 if self.is_complex else rows * rows
        return (1.0 / (norms * norms)) @ squares

    def some_columns(self, part: slice) -> Array:
        """Return some columns of all rows, as they are held."""
        return self.U[:, part]

    def take(self, index: Array) -> Array:
        """Return those rows."""
        return self._wide(self.xp.take(self.U, index, axis=0))

    def only(self, index: npt.NDArray[np.int64]) -> Probes:
        """Return a copy of those rows."""
        if not self._numpy:
            return type(self)(self.take(self.xp.asarray(index, device=self.device)))
        return Dense(self.U[index], self._narrow)

    def times(self, X: Array) -> Array:
        """Return ``u_i* x``."""
        X = self._conj(X)
        product = products.times(self.U, X, self.dtype) if self._numpy else self.U @ X
        return self._conj(product)

    def combine(self, Y: Array) -> Array:
        """Return ``sum_i u_i y_i``."""
        return products.combine(self.U, Y, self.dtype) if self._numpy else self.U.T @ Y

    def forward(self, A: Array) -> Array:
        """Return ``u_i* A u_i``, half the flops where BLAS can be called."""
        if self._numpy:
            return products.forward(self.U, np.asarray(A), self.dtype)
        xp, parts, transposed = self.xp, [], A.T
        for part in self.slices():
            rows = self.U[part, :]
            product = self._conj(rows) * (rows @ transposed)
            parts.append(self.real(xp.sum(product, axis=1)))
        return xp.concat(parts)

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_i y_i u_i u_i*``, half the flops where BLAS can be called."""
        if self._numpy:
            return products.adjoint(self.U, y, self.dtype)
        weights, total = self.xp.astype(y, self.dtype, copy=False), 0.0
        for part in self.slices():
            rows = self.U[part, :]
            total = total + rows.T @ (weights[part][:, None] * self._conj(rows))
        return total

    def squared_columns(self, y: Array) -> Array:
        """Return ``sum_i y_i |u_ij|^2`` for every j."""
        total: Array = 0.0
        # Blocks that stay in cache: their squares take no fresh memory.
        for part in self._cached(1) if self._numpy else self.slices():
            rows = self.block(part.start, part.stop)
            # Not named: the next block's squares would be made next to these.
            total = total + y[part] @ (self.xp.abs(rows) ** 2 if self.is_complex else rows * rows)
        return total

    def gram(self, rows: slice, columns: slice) -> Array:
        """Return ``|<u_i, u_j>|^2`` for those rows and columns."""
        # The smaller side is conjugated, for its copy; the modulus is the same.
        left = self._conj(self.block(rows.start, rows.stop))
        inner = left @ self.block(columns.start, columns.stop).T
        return self.xp.abs(inner) ** 2 if self.is_complex else inner * inner

    def in_blocks(
        self, width: int | None = None, sums: bool = True
    ) -> Iterator[tuple[slice, Probes]]:
        """Yield all rows, as many at a time as stay in cache for several products of some width."""
        if width is None or not self._numpy:
            yield slice(0, self.m), self
            return
        for part in self._cached(width):
            look()
            yield part, InCache(self._wide(self.U[part]), self.is_complex, self.held_norms[part])

    def _cached(self, width: int) -> Iterator[slice]:
        """Yield slices of rows that stay in cache between two products of this width."""
        rows = min(
            CACHE_BYTES // (self.n * self.dtype.itemsize),
            SMALL_PRODUCT // (self.n * max(width, 1)),
        )
        rows = max(2 * ALIGNED, rows // ALIGNED * ALIGNED)
        for first in range(0, self.m, rows):
            yield slice(first, min(first + rows, self.m))

    def _conj(self, x: Array) -> Array:
        return self.xp.conj(x) if self.is_complex else x


class InCache(Probes):
    """Some dense rows of NumPy's that are in cache: products with them are made plainly.

    Parameters
    ----------
    U : ndarray of shape (m, n)
        In the type of the arithmetic.
    is_complex : bool
    held_norms : ndarray of shape (m,)
    """

    held_norms: Any

    def __init__(self, U: npt.NDArray[Any], is_complex: bool, held_norms: Any) -> None:
        self.U, self.is_complex, self.held_norms = U, is_complex, held_norms
        (self.m, self.n), self.dtype = U.shape, U.dtype

    def times(self, X: Array) -> Array:
        """Return ``u_i* x``."""
        if not self.is_complex:
            return self.U @ X
        image = self.U @ X.conj()
        return np.conj(image, out=image)

    def combine(self, Y: Array) -> Array:
        """Return ``sum_i u_i y_i``."""
        return (Y.T @ self.U).T

    def forward(self, A: Array) -> Array:
        """Return ``u_i* A u_i``."""
        return products.forward(self.U, A)

    def block(self, first: int, last: int) -> Array:
        """Return those rows."""
        return self.U[first:last]

    def take(self, index: Array) -> Array:
        """Return those rows."""
        return self.U[index]


class Sparse(Stored):
    """Rows of a sparse (m, n) CSR array of float64 or complex128."""

    storage = "sparse"

    def _has_complex_entries(self) -> bool:
        return bool(self.U.dtype.kind == "c")

    def _row_norms(self) -> Array:
        return np.sqrt(np.asarray(abs(self.U).power(2).sum(axis=1)).ravel())

    def _row_maxima(self) -> Array:
        return abs(self.U).max(axis=1).toarray().ravel()

    def _scaled(self, rows: Any, factors: Array) -> Any:
        return sp.diags_array(factors) @ rows

    @cached_property
    def length(self) -> int:
        """Most entries of a row."""
        return int(np.diff(self.U.indptr).max(initial=0))

    def block(self, first: int, last: int) -> Array:
        """Return dense rows `first` to `last`."""
        return self.U[first:last, :].toarray()

    def take(self, index: Array) -> Array:
        """Return those rows, dense."""
        return self.U[np.asarray(index), :].toarray()

    def only(self, index: npt.NDArray[np.int64]) -> Probes:
        """Return those rows, sparse."""
        return Sparse(self.U[index, :])

    def times(self, X: Array) -> Array:
        """Return ``u_i* x``."""
        return (self.U.conj() if self.is_complex else self.U) @ X

    def combine(self, Y: Array) -> Array:
        """Return ``sum_i u_i y_i``."""
        return self.U.T @ Y

    def forward(self, A: Array) -> Array:
        """Return ``u_i* A u_i`` in 2 nnz(U) n flops; blocks of the product are dense."""
        parts = []
        for part in self.slices():
            rows = self.U[part, :]
            left = rows.conj() if self.is_complex else rows
            parts.append(np.asarray(left.multiply(rows @ A.T).sum(axis=1)).ravel())
        return self.real(np.concatenate(parts) if parts else np.empty(0))

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_i y_i u_i u_i*``, dense."""
        right = self.U.conj() if self.is_complex else self.U
        return np.asarray((self.U.T @ (sp.diags_array(y) @ right)).toarray())

    def squared_columns(self, y: Array) -> Array:
        """Return ``sum_i y_i |u_ij|^2`` for every j."""
        return abs(self.U).power(2).T @ y

    def column_counts(self) -> Any:
        """Return how many entries of each column are not 0."""
        return np.bincount(self.U.indices[self.U.data != 0.0], minlength=self.n)

    def gram(self, rows: slice, columns: slice) -> Array:
        """Return ``|<u_i, u_j>|^2`` for those rows and columns."""
        left = self.U[rows, :]
        left = left.conj() if self.is_complex else left
        return abs(left @ self.U[columns, :].T).power(2).toarray()

    def sparse_rows(self) -> Any:
        """Return all rows, sparse."""
        return self.U

    def sparse_gram(self, factors: Array) -> Any:
        """``|<u_i, u_j>|^2`` of scaled rows as a sparse array, 0 where two share no entry."""
        unit = self._scaled(self.U, factors)
        return abs(unit @ unit.conj().T).power(2).tocsr()

    def gram_density_bound(self) -> float:
        """Return the upper bound on the share of nonzeros of K, from the column counts alone."""
        counts = np.bincount(self.U.indices, minlength=self.n).astype(np.float64)
        return float(min(1.0, np.sum(counts**2) / max(1, self.m) ** 2))
