"""A kind of probes: rows ``u_i`` that need not be stored, known by two products.

A new kind writes `times` and `combine` and says its shape; `Sensing` derives all else from them,
for rows of unit norm. What a kind can do faster it overrides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, device, is_numpy, like, to_numpy
from quadsense.core.records import cached_property
from quadsense.device import put
from quadsense.measurements.portable import Portable
from quadsense.system.watch import look

BLOCK_ELEMENTS = 2**20
"""Elements of a temporary block: 8 or 16 MiB, half a last-level cache."""

Weigh = Callable[[slice, Array], Array]

Visit = Callable[[slice, Array, Callable[[Array], Array] | None], None]
"""``visit(rows, values, take)``: what a slice of rows reads, and a way to have some of these rows,
by their numbers within the slice; None where there are no single rows."""


class Probes(Portable, ABC):
    """Rows ``u_i``, i = 1..m, of length n, as their kind holds them.

    Attributes
    ----------
    m, n : int
    is_complex : bool
    rounding : float
        Relative error of `times` and `combine` beyond that of inner products of length `length`.
    stated : float or None
        The same where it is the user's word for functions that cannot be looked into, so that
        what is certified says it; None for kinds that are proved to be as good.
    storage : str
        In a word, for people.
    by_column : bool
        Whether products cost by the column, however many are taken at once.
    coarse : bool
        Whether those `in_single` precision have fewer digits than that: TF32, on a GPU.
    roundoff : float or None
        Unit roundoff of products, where it is not that of their type.
    at_hand : bool
        Whether a pass over the rows costs no more than its arithmetic: not so of rows in files.
    mix : sparse array or None
        Sums over the rows that readings are, where the rows come with such; see `observables`.
    frame_shape : tuple of int or None
        Shape of an image, where readings may be given as a stack of images; see `masked_fft`.
    constraints : tuple of (C, lo, hi)
        What A must meet for these rows to mean what they say; see `differences`.
    """

    m: int
    n: int
    is_complex: bool = False
    rounding: float = 0.0
    stated: float | None = None
    storage: str = "operator"
    by_column: bool = False
    coarse: bool = False
    roundoff: float | None = None
    at_hand: bool = True
    mix: Any = None
    frame_shape: tuple[int, ...] | None = None
    constraints: tuple[Any, ...] = ()

    # --- what a kind must write --------------------------------------------------------------

    @abstractmethod
    def times(self, X: Array) -> Array:
        """``u_i* x`` for every row: (n, k) to (m, k)."""

    @abstractmethod
    def combine(self, Y: Array) -> Array:
        """``sum_i u_i y_i``: (m, k) to (n, k)."""

    # --- facts, overridden by kinds that hold arrays -----------------------------------------

    @property
    def xp(self) -> Any:
        """Array namespace of vectors and dense results."""
        return np

    @cached_property
    def dtype(self) -> Any:
        """Float64 or complex128 of the namespace: the type of the arithmetic."""
        return self.xp.complex128 if self.is_complex else self.xp.float64

    @cached_property
    def held_norms(self) -> Array:
        """Norms of the rows as they are held, (m,)."""
        xp = self.xp
        with np.errstate(under="ignore"):  # squares of entries that are next to nothing
            if self.n < self.m:  # as many products as there are columns
                return xp.sqrt(sum(xp.sum(xp.abs(self.times(unit)) ** 2, axis=1)
                                   for _, unit in self._columns()))  # fmt: skip
            squares = [xp.sum(xp.abs(rows) ** 2, axis=1) for _, rows in self.blocks()]
            return xp.sqrt(xp.concat(squares))

    @cached_property
    def exponents(self) -> npt.NDArray[np.int64]:
        """The user's rows are those held times these powers of two."""
        return np.zeros(self.m, dtype=np.int64)

    @property
    def norms(self) -> Array:
        """Norms of the user's rows, (m,)."""
        return self.held_norms

    @cached_property
    def has_zero_rows(self) -> bool:
        """Whether some row is zero."""
        return bool((to_numpy(self.held_norms) == 0.0).any())

    @property
    def length(self) -> int:
        """Most terms of an inner product with a row: n, or as many entries as are not zero."""
        return self.n

    @property
    def row_rounding(self) -> float:
        """Relative error of the rows that `take` and `block` form."""
        return self.rounding

    @property
    def given(self) -> Any:
        """What the user gave."""
        return self

    def column_squares(self) -> npt.NDArray[np.float64] | None:
        """``sum_i |u_ij|^2`` for every j over rows of unit norm, where entries are held."""
        return None

    def _inverse_squares(self) -> Array:
        """Inverse squared norms of the rows as they are held, 0 of rows of zeros."""
        held = to_numpy(self.held_norms)
        with np.errstate(divide="ignore"):
            found = 1.0 / (held * held)
        return like(np.where(held > 0.0, found, 0.0), self.held_norms)

    def column_counts(self) -> npt.NDArray[np.int64]:
        """How many entries of each column are not 0, where `column_squares` is known."""
        raise NotImplementedError

    def unit(self, conjugate: bool) -> Probes | None:
        """The same rows of unit norm, conjugated where asked, if that costs nothing; else None.

        For methods: a rounding off.
        """
        return None

    def in_single(self) -> Probes | None:
        """The same rows, with products in single precision, if those are quicker; else None."""
        return None

    def same_as(self, other: Probes) -> bool:
        """Whether these are the same rows, to the last bit."""
        return self is other

    # --- blocks ------------------------------------------------------------------------------

    def slices(self, width: int | None = None) -> Iterator[slice]:
        """Slices of rows whose temporaries, `width` numbers per row, stay within a block."""
        size = max(1, BLOCK_ELEMENTS // max(self.n if width is None else width, 1))
        for begin in range(0, self.m, size):
            look()
            yield slice(begin, min(begin + size, self.m))

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Dense rows, one block at a time."""
        # A block of a kind without stored rows is made from as many columns of length m.
        for part in self.slices(max(self.n, self.m)):
            yield part, self.block(part.start, part.stop)

    def block(self, first: int, last: int) -> Array:
        """Dense rows `first` to `last`: (last - first, n)."""
        return self.take(self._numbers(first, last))

    def _numbers(self, first: int, last: int) -> Array:
        where = {} if self.xp is np else {"device": self.device}
        return self.xp.arange(first, last, **where)

    def take(self, index: Array) -> Array:
        """Those rows, dense."""
        if self.m * self.n <= BLOCK_ELEMENTS:
            return self.xp.take(self._few, index, axis=0)
        chosen = to_numpy(index)
        picked = np.zeros((self.m, chosen.size))
        picked[chosen, np.arange(chosen.size)] = 1.0
        return self.combine(self.own(picked)).T

    @cached_property
    def _few(self) -> Array:
        """All rows, dense, where they are no more than a block: made once."""
        xp = self.xp
        if self.m <= self.n:
            return self.combine(self.own(np.eye(self.m))).T
        rows = self.times(self.own(np.eye(self.n)))
        return xp.conj(rows) if self.is_complex else rows

    def own(self, values: Any) -> Array:
        """A NumPy array in this namespace, on this device, in the type of the arithmetic."""
        xp = self.xp
        if xp is np:
            return np.asarray(values).astype(self.dtype, copy=False)
        return xp.asarray(np.asarray(values), dtype=self.dtype, device=self.device)

    @property
    def device(self) -> Any:
        """Where vectors live."""
        return device(self.held_norms)

    def _columns(self) -> Iterator[tuple[slice, Array]]:
        """Unit vectors ``e_j``, some at a time, so that their images fit in a block."""
        size = max(1, BLOCK_ELEMENTS // max(self.m, self.n))
        for begin in range(0, self.n, size):
            look()
            part = slice(begin, min(begin + size, self.n))
            unit = np.zeros((self.n, part.stop - begin))
            unit[np.arange(begin, part.stop), np.arange(part.stop - begin)] = 1.0
            yield part, self.own(unit)

    # --- the sensing map, from the two products ----------------------------------------------

    def forward(self, A: Array) -> Array:
        """``u_i* A u_i``: (n, n) to (m,); ``sum_j (u* A e_j) conj(u* e_j)``."""
        xp, total = self.xp, 0.0
        for part, unit in self._columns():
            left, right = self.times(A[:, part]), self.times(unit)
            product = left * xp.conj(right) if self.is_complex else left * right
            total = total + xp.sum(self.real(product), axis=1)
        return total

    def adjoint(self, y: Array) -> Array:
        """``sum_i y_i u_i u_i*``: (m,) to (n, n); its columns are ``sum_i u_i y_i (u_i* e_j)``."""
        xp = self.xp
        weights = xp.astype(y, self.dtype, copy=False)[:, None]
        parts = [self.combine(weights * self.times(unit)) for _, unit in self._columns()]
        return xp.concat(parts, axis=1)

    def visited(self, A: Array, visit: Visit) -> Array:
        """``u_i* A u_i``, (n, n) to (m,), while `visit` takes rows: in one pass where possible."""
        values = self.forward(A)
        visit(slice(0, self.m), values, self.take)
        return values

    def squared_columns(self, y: Array) -> Array:
        """``sum_i y_i |u_ij|^2`` for every j: (m,) to (n,)."""
        xp = self.xp
        parts = [
            xp.sum(y[:, None] * xp.abs(self.times(unit)) ** 2, axis=0)
            for _, unit in self._columns()
        ]
        return xp.concat(parts)

    def inner(self, rows: slice, columns: slice) -> Array:
        """``|<u_i, u_j>|`` for those rows and columns."""
        images = self.times(self.block(columns.start, columns.stop).T)
        return self.xp.abs(images[rows, :])

    def images(self, Y: Array) -> Array:
        """``P`` with columns ``u_i* Y^T``: (k, n) to (k, m), each row in one piece, writable."""
        P = self.times(Y.T).T
        # What came from another namespace may be read only.
        return np.require(P, requirements=("C", "W")) if self.xp is np else P

    def through(self, Y: Array, weigh: Weigh) -> tuple[Array, Array]:
        """``P`` with columns ``u_i* Y^T`` and ``sum_i weigh(P)_i u_i``, in one pass where possible.

        Parameters
        ----------
        Y : array of shape (k, n)
        weigh : callable
            ``weigh(rows, p)`` takes a slice of rows and their part of P, (k, rows), and may change
            that part; it returns an array of its shape.

        Returns
        -------
        P : array of shape (k, m)
        total : array of shape (k, n)
        """
        P = self.images(Y)
        return P, self.sums(weigh(slice(0, self.m), P))

    def sums(self, C: Array) -> Array:
        """``sum_i C_ki u_i``: (k, m) to (k, n)."""
        return self.combine(C.T).T

    # --- some rows at a time, for kinds of which these cost no more than their share ----------

    in_parts: bool = False

    def spans(self, small: bool = False) -> Iterator[slice]:
        """Rows whose images are made together: as many as sums ask for, or what stays in cache."""
        raise NotImplementedError

    def images_of(self, Y: Array, part: slice) -> Array:
        """``u_i* Y^T`` of some rows: (k, n) to (k, rows)."""
        raise NotImplementedError

    def add_sums(self, C: Array, part: slice, total: Array) -> None:
        """Add ``sum_i C_ki u_i`` over some rows to total, (k, n)."""
        raise NotImplementedError

    has_turns: bool = False

    def in_turn(
        self,
        X: Array,
        factors: Array | None,
        b: Array,
        delta: Array,
        theta: float,
        beyond: float,
        unit: float,
    ) -> tuple[float, float]:
        """Move a factor X, (n, k), by one row after the other, for kinds of short rows.

        Row ``v = f u`` reads ``|X^T v|^2``. Where that is farther from b than ``theta delta``, X is
        moved along v to where it is not, the least move that does it [Kaczmarz 1937], times
        `beyond`, up to 2; with 0 nothing is moved.

        Returns
        -------
        value : float
            ``1/2 sum (excess / delta)^2`` of what rows read when it was their turn.
        worst : float
            The largest of ``(|z| + unit (|b| + ||X||_F^2)) / delta``, likewise.
        """
        raise NotImplementedError

    def squares(self, X: Array, factors: Array | None, signs: Array | None) -> Array:
        """``sum_k s_k |f_i u_i* x_k|^2`` for X of shape (n, k): to (m,).

        All factors are 1 where None, all signs plus.
        """
        if self.in_parts:
            Y, total = np.ascontiguousarray(X.T), np.empty(self.m)
            for part in self.spans(small=True):
                own = None if factors is None else factors[part]
                total[part] = self._squared(self.images_of(Y, part).T, own, signs)
            return total
        return self._squared(self.times(X), factors, signs)

    def _squared(self, images: Array, factors: Array | None, signs: Array | None) -> Array:
        """The same from images of rows, (rows, k)."""
        if factors is not None:
            images = images * self.xp.astype(factors, self.dtype, copy=False)[:, None]
        if is_numpy(images) and signs is None:
            return np.vecdot(images, images).real
        found = self.xp.abs(images) ** 2
        return self.xp.sum(found, axis=1) if signs is None else found @ signs

    def real(self, x: Array) -> Array:
        """Real part; x itself where rows are real."""
        return self.xp.real(x) if self.is_complex else x

    def only(self, index: npt.NDArray[np.int64]) -> Probes:
        """Those rows alone."""
        return Chosen(self, index)

    # --- for methods and proofs, which are written for NumPy ---------------------------------

    def on_numpy(self) -> Probes | None:
        """The same rows held by NumPy, where that takes no copy; else None."""
        return None

    def at_work(self, tf32: bool = False) -> Any:
        """The same rows by arrays on their device that NumPy's functions take; else None.

        With `tf32`, those `in_single` precision may be rounded to TF32 in products.
        """
        return None


class Chosen(Probes):
    """Some rows of other probes."""

    storage = "chosen"

    def __init__(self, whole: Probes, index: npt.NDArray[np.int64]) -> None:
        self.whole, self.index = whole, np.asarray(index, dtype=np.int64)
        self.m, self.n, self.is_complex = self.index.size, whole.n, whole.is_complex
        self.rounding, self.stated = whole.rounding, whole.stated
        self.at_hand = whole.at_hand

    @property
    def length(self) -> int:
        """That of the whole."""
        return self.whole.length

    @property
    def row_rounding(self) -> float:
        """The same."""
        return self.whole.row_rounding

    @property
    def xp(self) -> Any:
        """That of the whole."""
        return self.whole.xp

    def times(self, X: Array) -> Array:
        """``u_i* x``."""
        return self.xp.take(self.whole.times(X), self._positions, axis=0)

    def combine(self, Y: Array) -> Array:
        """``sum_i u_i y_i``."""
        spread = np.zeros((self.whole.m, Y.shape[1]), dtype=to_numpy(Y).dtype)
        spread[self.index] = to_numpy(Y)
        return self.whole.combine(self.whole.own(spread))

    def forward(self, A: Array) -> Array:
        """``u_i* A u_i``, of all rows at once."""
        return self.xp.take(self.whole.forward(A), self._positions)

    def adjoint(self, y: Array) -> Array:
        """``sum_i y_i u_i u_i*``, of all rows at once."""
        spread, held = np.zeros(self.whole.m), self.whole.held_norms
        spread[self.index] = to_numpy(y)
        return self.whole.adjoint(put(spread, held))

    def take(self, index: Array) -> Array:
        """Those rows, dense."""
        chosen = self.index[to_numpy(index)]
        if not chosen.size:  # a kind of the user's own need not know of no rows at all
            return self.own(np.zeros((0, self.n)))
        return self.whole.take(self.xp.asarray(chosen, device=self.device))

    @cached_property
    def held_norms(self) -> Array:
        """Those of the chosen rows."""
        return self.xp.take(self.whole.held_norms, self._positions)

    @cached_property
    def _positions(self) -> Array:
        return self.xp.asarray(self.index, device=self.whole.device)

    @property
    def device(self) -> Any:
        """Where vectors live."""
        return self.whole.device


class Around(Probes):
    """The rows of another kind, seen otherwise: what is known of them stays what it is.

    Attributes
    ----------
    kind : Probes
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.m, self.n, self.is_complex = kind.m, kind.n, kind.is_complex
        self.rounding, self.stated, self.storage = kind.rounding, kind.stated, kind.storage
        self.at_hand = kind.at_hand

    @property
    def length(self) -> int:
        """That of the rows."""
        return int(self.kind.length)

    @property
    def row_rounding(self) -> float:
        """The same."""
        return float(self.kind.row_rounding)

    @property
    def exponents(self) -> Any:
        """The user's rows are those held times these powers of two."""
        return self.kind.exponents

    @property
    def has_zero_rows(self) -> bool:
        """Whether some row is zero."""
        return bool(self.kind.has_zero_rows)


class OnNumpy(Around):
    """Probes of another namespace, seen as NumPy's: only what goes in and comes out is copied."""

    def times(self, X: Array) -> Array:
        """``u_i* x``."""
        return to_numpy(self.kind.times(self.kind.own(X)))

    def combine(self, Y: Array) -> Array:
        """``sum_i u_i y_i``."""
        return to_numpy(self.kind.combine(self.kind.own(Y)))

    def take(self, index: Array) -> Array:
        """Those rows, dense."""
        return to_numpy(self.kind.take(self.kind.xp.asarray(index, device=self.kind.device)))

    def block(self, first: int, last: int) -> Array:
        """Dense rows `first` to `last`."""
        return to_numpy(self.kind.block(first, last))

    def forward(self, A: Array) -> Array:
        """``u_i* A u_i``."""
        return to_numpy(self.kind.forward(self.kind.own(A)))

    def squares(self, X: Array, factors: Array | None, signs: Array | None) -> Array:
        """``sum_k s_k |f_i u_i* x_k|^2``: what is large stays where it is."""
        scales = None if factors is None else self._vector(factors)
        plus = None if signs is None else self._vector(signs)
        return to_numpy(self.kind.squares(self.kind.own(X), scales, plus))

    def adjoint(self, y: Array) -> Array:
        """``sum_i y_i u_i u_i*``."""
        return to_numpy(self.kind.adjoint(self._vector(y)))

    def inner(self, rows: slice, columns: slice) -> Array:
        """``|<u_i, u_j>|``."""
        return to_numpy(self.kind.inner(rows, columns))

    @cached_property
    def held_norms(self) -> Array:
        """Norms of the rows as they are held."""
        return to_numpy(self.kind.held_norms)

    def _vector(self, y: Array) -> Array:
        return self.kind.xp.asarray(np.asarray(y, dtype=np.float64), device=self.kind.device)
