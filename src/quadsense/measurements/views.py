"""The rows of a kind of probes seen otherwise: some of them, scaled columns, other arrays.

One class does it all: what goes into a product is changed on its way in (`View.inward`), what comes
out on its way out (`View.outward`), each by the axes that it has. Nothing of the rows is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import Array, to_numpy
from quadsense.core.records import cached_property
from quadsense.device import on_device, put
from quadsense.measurements.arrays import Dense, Sparse
from quadsense.measurements.parted import Parted
from quadsense.measurements.probes import (
    Form,
    Probes,
    dense_blocks,
    same_rows,
    squared_columns,
    unit_column_squares,
)
from quadsense.measurements.probes import squares as squares_of

MAX_SINGLE_EXPONENT = 20
"""Largest exponent with which products of rows in single precision are scaled."""


class View(Probes):
    """The rows of another kind, seen otherwise; what is known of them stays what it is.

    The axes of an array are named by a letter each: "n" for entries of the rows, "m" for rows, "b"
    for rows of a block or of a choice, "k" for columns of a product.

    Attributes
    ----------
    kind : Probes
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.m, self.n, self.is_complex = kind.m, kind.n, kind.is_complex
        self.rounding, self.stated, self.storage = kind.rounding, kind.stated, kind.storage
        self.at_hand, self.by_column, self.xp = kind.at_hand, kind.by_column, kind.xp
        self.block_elements = kind.block_elements

    def inward(self, values: Array, axes: str) -> Array:
        """Return what the other kind is given for an array with these axes."""
        return values

    def outward(self, values: Array, axes: str) -> Array:
        """Return what stands for an array with these axes that the other kind returned."""
        return values

    def product(self, name: str, values: Array, given: str, returned: str) -> Array:
        """Return a product of the other kind, its argument and its result changed."""
        return self.outward(getattr(self.kind, name)(self.inward(values, given)), returned)

    def times(self, X: Array) -> Array:
        """Return ``u_i* x``."""
        return self.product("times", X, "nk", "mk")

    def combine(self, Y: Array) -> Array:
        """Return ``sum_i u_i y_i``."""
        return self.product("combine", Y, "mk", "nk")

    def forward(self, A: Array) -> Array:
        """Return ``u_i* A u_i``."""
        return self.product("forward", A, "nn", "m")

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_i y_i u_i u_i*``."""
        return self.product("adjoint", y, "m", "nn")

    def block(self, first: int, last: int) -> Array:
        """Return dense rows `first` to `last`."""
        return self.outward(self.kind.block(first, last), "bn")

    def take(self, index: Array) -> Array:
        """Return those rows, dense."""
        return self.outward(self.kind.take(index), "bn")

    def gram(self, rows: slice, columns: slice) -> Array:
        """Return ``|<u_i, u_j>|^2``."""
        return self.outward(self.kind.gram(rows, columns), "bb")

    @cached_property
    def held_norms(self) -> Array:
        """Norms of the rows as they are held."""
        return self.outward(self.kind.held_norms, "m")

    @cached_property
    def exponents(self) -> Any:
        """The user's rows are those held times these powers of two."""
        return self.kind.exponents

    @cached_property
    def has_zero_rows(self) -> bool:
        """Whether some row is zero."""
        return bool(self.kind.has_zero_rows)

    @cached_property
    def length(self) -> int:
        """That of the rows."""
        return int(self.kind.length)

    @cached_property
    def adjoint_terms(self) -> int:
        """Those of the rows."""
        return int(self.kind.adjoint_terms)

    @cached_property
    def has_nested_sums(self) -> bool:
        """Whether the rows have."""
        return bool(self.kind.has_nested_sums)

    @cached_property
    def row_rounding(self) -> float:
        """That of the rows."""
        return float(self.kind.row_rounding)

    def squared_columns(self, y: Array) -> Array:
        """Return ``sum_i y_i |u_ij|^2`` for every j."""
        return self.outward(squared_columns(self.kind, self.inward(y, "m")), "n")

    def like(self, kind: Probes) -> Probes:
        """Return other rows of the same kind, seen alike."""
        return type(self)(kind)

    def in_blocks(
        self, width: int | None = None, sums: bool = True
    ) -> Iterator[tuple[slice, Probes]]:
        """Yield all rows, some at a time."""
        for part, rows in self.kind.in_blocks(width, sums):
            yield part, self if rows is self.kind else self.like(rows)

    def only(self, index: npt.NDArray[np.int64]) -> Probes:
        """Return those rows alone."""
        return self.like(only(self.kind, index))

    def made_of(self) -> tuple[Any, ...]:
        """Return the rows."""
        return (self.kind,)


def only(kind: Probes, index: npt.NDArray[np.int64]) -> Probes:
    """Return those rows of a kind alone."""
    own = getattr(kind, "only", None)
    return Chosen(kind, index) if own is None else own(index)


class Chosen(View):
    """Some rows of other probes."""

    def __init__(self, kind: Probes, index: npt.NDArray[np.int64]) -> None:
        super().__init__(kind)
        self.index = np.asarray(index, dtype=np.int64)
        self.m, self.storage = self.index.size, "chosen"
        self.exponents = np.zeros(self.m, dtype=np.int64)

    @cached_property
    def device(self) -> Any:
        """That of the whole."""
        return self.kind.device

    @cached_property
    def has_zero_rows(self) -> bool:
        """Whether some row is zero."""
        return bool((to_numpy(self.held_norms) == 0.0).any())

    def inward(self, values: Array, axes: str) -> Array:
        """Return zeros for the other rows."""
        if "m" not in axes:
            return values
        own = to_numpy(values)
        spread = np.zeros((self.kind.m, *own.shape[1:]), dtype=own.dtype)
        spread[self.index] = own
        return self.kind.own(spread) if "k" in axes else self.kind.own_vector(spread)

    def outward(self, values: Array, axes: str) -> Array:
        """Return what belongs to these rows."""
        return self.xp.take(values, self._positions, axis=0) if "m" in axes else values

    def block(self, first: int, last: int) -> Array:
        """Return dense rows `first` to `last`."""
        return self.take(np.arange(first, last))

    def take(self, index: Array) -> Array:
        """Return those rows, dense."""
        chosen = self.index[to_numpy(index)]
        if not chosen.size:  # a kind of the user's own need not know of no rows at all
            return self.own(np.zeros((0, self.n)))
        return self.kind.take(self.xp.asarray(chosen, device=self.device))

    def gram(self, rows: slice, columns: slice) -> Array:
        """Return ``|<u_i, u_j>|^2``."""
        return Probes.gram(self, rows, columns)

    def in_blocks(
        self, width: int | None = None, sums: bool = True
    ) -> Iterator[tuple[slice, Probes]]:
        """Return all rows at once: they may be anywhere."""
        return Probes.in_blocks(self, width, sums)

    def only(self, index: npt.NDArray[np.int64]) -> Probes:
        """Return those rows alone."""
        return Chosen(self.kind, self.index[index])

    def made_of(self) -> tuple[Any, ...]:
        """Return the rows, and which."""
        return self.kind, self.index

    @cached_property
    def _positions(self) -> Array:
        return self.xp.asarray(self.index, device=self.device)


class OnNumpy(View):
    """Probes of another namespace, seen as NumPy's: only what goes in and comes out is copied."""

    def __init__(self, kind: Probes) -> None:
        super().__init__(kind)
        self.xp = np

    def inward(self, values: Array, axes: str) -> Array:
        """Return an array of the other namespace."""
        return self.kind.own_vector(values) if axes == "m" else self.kind.own(values)

    def outward(self, values: Array, axes: str) -> Array:
        """Return numPy's."""
        return to_numpy(values)

    def take(self, index: Array) -> Array:
        """Return those rows, dense."""
        return to_numpy(self.kind.take(self.kind.xp.asarray(index, device=self.kind.device)))

    def in_blocks(
        self, width: int | None = None, sums: bool = True
    ) -> Iterator[tuple[slice, Probes]]:
        """Return all rows at once."""
        return Probes.in_blocks(self, width, sums)

    def squares(self, X: Array, factors: Array | None, signs: Array | None) -> Array:
        """Return ``sum_k s_k |f_i u_i* x_k|^2``: what is large stays where it is."""
        vectors = (
            None if each is None else self.kind.own_vector(each) for each in (factors, signs)
        )
        return to_numpy(squares_of(self.kind, self.kind.own(X), *vectors))


class Framed(View):
    """The rows ``D u_i`` with ``D = diag(2^e)``: no digit of them changes.

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
        self.dtype, self.on_device = kind.dtype, kind.on_device
        self.coarse, self.roundoff = kind.coarse, kind.roundoff
        self.given = getattr(kind, "given", kind)

    @cached_property
    def scales(self) -> Array:
        """The diagonal of D, where the rows live, in their precision."""
        single = str(self.dtype).rpartition(".")[2] in ("float32", "complex64")
        D = np.ldexp(1.0, self.columns).astype(np.float32 if single else np.float64)
        return put(D, self.kind.held_norms)

    def inward(self, values: Array, axes: str) -> Array:
        """Return ``D`` times every axis of entries."""
        return self.outward(values, axes)

    def outward(self, values: Array, axes: str) -> Array:
        """Return ``D`` times every axis of entries."""
        if axes[-1] == "n":
            values = values * self.scales
        return values * self.scales[:, None] if axes in ("nk", "nn") else values

    # --- facts -------------------------------------------------------------------------------

    @cached_property
    def device(self) -> Any:
        """That of the rows."""
        return self.kind.device

    @cached_property
    def held_norms(self) -> Array:
        """Norms of the rows as they are held."""
        xp, own = self.xp, self.kind
        if isinstance(own, Parted):
            return np.concatenate(own.each(norms_of, (np.ldexp(1.0, self.columns),)))
        parts = [
            xp.sqrt(xp.sum(xp.abs(rows * self.scales) ** 2, axis=1))
            for _, rows in dense_blocks(own)
        ]
        return xp.concat(parts) if len(parts) != 1 else parts[0]

    def squared_columns(self, y: Array) -> Array:
        """Return ``sum_i y_i |u_ij|^2`` for every j."""
        return squared_columns(self.kind, y) * self.scales * self.scales

    def column_squares(self) -> Any:
        """Return ``sum_i |u_ij|^2`` for every j over rows of unit norm."""
        return unit_column_squares(self)

    def same_as(self, other: Probes) -> bool:
        """Return whether these are the same rows, scaled alike."""
        alike = isinstance(other, Framed) and np.array_equal(self.columns, other.columns)
        return alike and same_rows(self.kind, other.kind)  # type: ignore[attr-defined]

    def gram(self, rows: slice, columns: slice) -> Array:
        """Return ``|<u_i, u_j>|^2``."""
        xp, left = self.xp, self.block(rows.start, rows.stop)
        left = xp.conj(left) if self.is_complex else left
        return xp.abs(left @ self.block(columns.start, columns.stop).T) ** 2

    def squares(self, X: Array, factors: Array | None, signs: Array | None) -> Array:
        """Return ``sum_k s_k |f_i u_i* x_k|^2``."""
        return squares_of(self.kind, self.inward(X, "nk"), factors, signs)

    # --- rows that are held in some way ------------------------------------------------------

    def like(self, kind: Probes) -> Probes:
        """Return other rows, scaled alike."""
        return Framed(kind, self.columns)

    def some_columns(self, part: slice) -> Array:
        """Return some columns of rows that NumPy holds, dense."""
        return self.kind.some_columns(part) * self.scales[part]

    def normal(self, scales: Array, conjugate: bool, dtype: npt.DTypeLike) -> Array:
        """Return ``F* F`` on packed matrices, of rows in parts: see `Parted.normal`."""
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

    def held_as(self, form: Form) -> Probes | None:
        """Return the same rows in another form, where those of the rows have it."""
        moderate = int(np.abs(self.columns).max(initial=0)) <= MAX_SINGLE_EXPONENT
        if form in ("unit", "conjugated") or (form == "single" and not moderate):
            return None
        kind = self.kind.held_as(form)
        return None if kind is None else Framed(kind, self.columns)


def beneath(kind: Any) -> Any:
    """Return the rows as they are held, without a scaling of their columns."""
    return kind.kind if isinstance(kind, Framed) else kind


def is_in_parts(kind: Any) -> bool:
    """Return whether the rows are held in parts."""
    return isinstance(beneath(kind), Parted)


def is_dense(kind: Any) -> bool:
    """Return whether the rows are in a dense array that NumPy reads."""
    own = beneath(kind)
    return isinstance(own, Dense) and isinstance(own.U, np.ndarray)


def is_sparse(kind: Any) -> bool:
    """Return whether the rows are held sparse."""
    return isinstance(beneath(kind), Sparse)


def nearby(kind: Any, values: npt.NDArray[Any]) -> Any:
    """Return a NumPy array where products are made, though they come out as NumPy's."""
    if isinstance(kind, OnNumpy) and (work := kind.kind.held_as("device")) is not None:
        return on_device(values, work.held_norms)
    return values


def norms_of(rows: Dense, scales: Array) -> Array:
    """Return norms of the rows of a part, their columns scaled."""
    found = [
        np.sqrt(np.sum(np.abs(block * scales) ** 2, axis=1)) for _, block in dense_blocks(rows)
    ]
    return np.concatenate(found)
