"""Rows of another kind with their columns scaled by powers of two; nothing of them is copied.

Row i is ``D u_i`` with ``D = diag(2^e)``: D meets what goes in and what comes out of products, so
that no digit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import Array, placed, to_numpy
from quadsense.core.records import cached_property
from quadsense.device import put
from quadsense.measurements.dense import Dense
from quadsense.measurements.parted import Parted
from quadsense.measurements.probes import Around, Probes, Visit, Weigh
from quadsense.measurements.sparse import Sparse

LARGEST_SINGLE = 20
"""Largest exponent with which products of rows in single precision are scaled."""


class Framed(Around):
    """The rows ``D u_i``.

    Parameters
    ----------
    kind : Probes
        The rows ``u_i``.
    columns : ndarray of int, shape (n,)
        Exponents of D.
    """

    def __init__(self, kind: Probes, columns: npt.NDArray[np.int64]) -> None:
        super().__init__(kind)
        self.columns = np.asarray(columns, dtype=np.int64)
        self.dtype = kind.dtype
        self.coarse, self.roundoff = kind.coarse, kind.roundoff
        self.given = kind.given

    given: Any = None

    @property
    def xp(self) -> Any:
        """That of the rows."""
        return self.kind.xp

    @property
    def device(self) -> Any:
        """That of the rows."""
        return self.kind.device

    @cached_property
    def scales(self) -> Array:
        """The diagonal of D, where the rows live, in their precision."""
        held = self.kind.held_norms
        single = str(self.dtype).rpartition(".")[2] in ("float32", "complex64")
        D = np.ldexp(1.0, self.columns).astype(np.float32 if single else np.float64)
        return put(D, held)

    def _down(self, X: Array) -> Array:
        """``D X`` for X of shape (n, k)."""
        return X * self.scales[:, None]

    def _across(self, Y: Array) -> Array:
        """``Y D`` for Y of shape (k, n)."""
        return Y * self.scales

    def _both(self, A: Array) -> Array:
        """``D A D``."""
        return (A * self.scales) * self.scales[:, None]

    # --- facts -------------------------------------------------------------------------------

    @cached_property
    def held_norms(self) -> Array:
        """Norms of the rows as they are held."""
        xp, own = self.xp, self.kind
        if isinstance(own, Parted):
            return np.concatenate(own.each(norms_of, (np.ldexp(1.0, self.columns),)))
        parts = [
            xp.sqrt(xp.sum(xp.abs(self._across(rows)) ** 2, axis=1)) for _, rows in own.blocks()
        ]
        return xp.concat(parts) if len(parts) != 1 else parts[0]

    @cached_property
    def norms(self) -> Array:
        """Norms of the user's rows, their columns scaled."""
        if not self.exponents.any():
            return self.held_norms
        held = self.held_norms
        return placed(np.ldexp(to_numpy(held), self.exponents), held)

    def column_squares(self) -> Any:
        """``sum_i |u_ij|^2`` for every j over rows of unit norm."""
        return to_numpy(self.squared_columns(self._inverse_squares()))

    def same_as(self, other: Probes) -> bool:
        """Whether these are the same rows, scaled alike."""
        if not (isinstance(other, Framed) and np.array_equal(self.columns, other.columns)):
            return False
        mine, theirs = self.kind, other.kind
        if isinstance(theirs, Parted):
            mine, theirs = theirs, mine
        return (type(mine) is type(theirs) or isinstance(mine, Parted)) and mine.same_as(theirs)

    # --- rows --------------------------------------------------------------------------------

    def slices(self, width: int | None = None) -> Iterator[slice]:
        """Those of the rows as they are held."""
        return self.kind.slices(width)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Dense rows, one block at a time."""
        for part, rows in self.kind.blocks():
            yield part, self._across(rows)

    def block(self, first: int, last: int) -> Array:
        """Dense rows `first` to `last`."""
        return self._across(self.kind.block(first, last))

    def take(self, index: Array) -> Array:
        """Those rows, dense."""
        return self._across(self.kind.take(index))

    def only(self, index: npt.NDArray[np.int64]) -> Probes:
        """Those rows alone."""
        return Framed(self.kind.only(index), self.columns)

    def some_columns(self, part: slice) -> Array:
        """Some columns of rows that NumPy holds, dense."""
        return self.kind.some_columns(part) * self.scales[part]

    # --- products ----------------------------------------------------------------------------

    def times(self, X: Array) -> Array:
        """``u_i* x``."""
        return self.kind.times(self._down(X))

    def combine(self, Y: Array) -> Array:
        """``sum_i u_i y_i``."""
        return self._down(self.kind.combine(Y))

    def forward(self, A: Array) -> Array:
        """``u_i* A u_i``."""
        return self.kind.forward(self._both(A))

    def adjoint(self, y: Array) -> Array:
        """``sum_i y_i u_i u_i*``."""
        return self._both(self.kind.adjoint(y))

    def visited(self, A: Array, visit: Visit) -> Array:
        """See `Probes.visited`."""

        def inside(part: slice, values: Array, take: Callable[[Array], Array] | None) -> None:
            visit(part, values, None if take is None else lambda which: self._across(take(which)))

        return self.kind.visited(self._both(A), inside)

    def squared_columns(self, y: Array) -> Array:
        """``sum_i y_i |u_ij|^2`` for every j."""
        return self.kind.squared_columns(y) * self.scales * self.scales

    def inner(self, rows: slice, columns: slice) -> Array:
        """``|<u_i, u_j>|``."""
        xp, left = self.xp, self.block(rows.start, rows.stop)
        left = xp.conj(left) if self.is_complex else left
        return xp.abs(left @ self.block(columns.start, columns.stop).T)

    def squares(self, X: Array, factors: Array | None, signs: Array | None) -> Array:
        """``sum_k s_k |f_i u_i* x_k|^2``."""
        return self.kind.squares(self._down(X), factors, signs)

    def images(self, Y: Array) -> Array:
        """``P`` with columns ``u_i* Y^T``."""
        return self.kind.images(self._across(Y))

    def through(self, Y: Array, weigh: Weigh) -> tuple[Array, Array]:
        """See `Probes.through`."""
        P, total = self.kind.through(self._across(Y), weigh)
        return P, self._across(total)

    def sums(self, C: Array) -> Array:
        """``sum_i C_ki u_i``."""
        return self._across(self.kind.sums(C))

    def normal(self, scales: Array, conjugate: bool, dtype: npt.DTypeLike) -> Array:
        """``F* F`` on packed matrices, of rows in parts: see `Parted.normal`."""
        return self.kind.normal(scales, conjugate, dtype, np.ldexp(1.0, self.columns))

    def gram_density_bound(self) -> float:
        """Of sparse rows, as of those held."""
        return float(self.kind.gram_density_bound())

    def sparse_rows(self) -> Any:
        """Of sparse rows, all, sparse: a copy."""
        return sp.csr_array(self.kind.sparse_rows() @ sp.diags_array(np.ldexp(1.0, self.columns)))

    def sparse_gram(self, factors: Array) -> Any:
        """Of sparse rows, the matrix K of these times factors as a sparse array."""
        return Sparse(self.sparse_rows()).sparse_gram(factors)

    # --- other views -------------------------------------------------------------------------

    def in_single(self) -> Probes | None:
        """The same rows, with products in single precision, where D is moderate."""
        moderate = int(np.abs(self.columns).max(initial=0)) <= LARGEST_SINGLE
        kind = self.kind.in_single() if moderate else None
        return None if kind is None else Framed(kind, self.columns)

    def on_numpy(self) -> Probes | None:
        """The same rows held by NumPy, where that takes no copy; else None."""
        kind = self.kind.on_numpy()
        return None if kind is None else Framed(kind, self.columns)

    def at_work(self, tf32: bool = False) -> Any:
        """The same rows by arrays on their device that NumPy's functions take; else None."""
        kind = self.kind.at_work(tf32)
        return None if kind is None else Framed(kind, self.columns)

    def own_vector(self, y: Any) -> Any:
        """Numbers, one per row, on the device."""
        return self.kind.own_vector(y)


def beneath(kind: Any) -> Any:
    """The rows as they are held, without a scaling of their columns."""
    return kind.kind if isinstance(kind, Framed) else kind


def is_in_parts(kind: Any) -> bool:
    """Whether the rows are held in parts."""
    return isinstance(beneath(kind), Parted)


def is_dense(kind: Any) -> bool:
    """Whether the rows are in a dense array that NumPy reads."""
    own = beneath(kind)
    return isinstance(own, Dense) and isinstance(own.U, np.ndarray)


def is_sparse(kind: Any) -> bool:
    """Whether the rows are held sparse."""
    return isinstance(beneath(kind), Sparse)


def norms_of(rows: Dense, scales: Array) -> Array:
    """Norms of the rows of a part, their columns scaled."""
    found = [np.sqrt(np.sum(np.abs(block * scales) ** 2, axis=1)) for _, block in rows.blocks()]
    return np.concatenate(found)
