"""`Sensing`: the sensing map F on scaled rows of any kind of probes, all that methods see of them.

Rows are scaled to unit norm, and for some methods weighed, without being copied: factors meet what
goes in and what comes out. With ``conjugate`` the rows stay as they are and A is conjugated on its
way in and out: ``K`` is the same, and ``conj(F*(y))`` of the given rows is ``F*(y)`` of the meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from quadsense.arrays import FEW, Array, Vector, compact, few_ones, placed, to_numpy
from quadsense.core import products
from quadsense.core.cholesky import squared_moduli
from quadsense.core.intervals import UNIT
from quadsense.core.records import cached_property
from quadsense.device import DeviceArray, put, waits
from quadsense.measurements import blockwise
from quadsense.measurements.arrays import Dense
from quadsense.measurements.blockwise import Weigh
from quadsense.measurements.parted import Parted
from quadsense.measurements.probes import (
    Form,
    Portable,
    Probes,
    dense_blocks,
    same_rows,
    squared_columns,
    squares,
)
from quadsense.measurements.stack import Stack
from quadsense.measurements.views import (
    Chosen,
    Framed,
    OnNumpy,
    beneath,
    is_dense,
    is_in_parts,
    is_sparse,
    only,
)
from quadsense.system.machine import Scratch

NORM_ERROR = 8.0 * UNIT
"""Bound on the error of a norm, over one more than its entries."""

MAX_SHIFT = 4
"""Powers of two by which rows of unit norm may be off where no digit is to be changed."""

CLEAR_PIVOT = 0.1
"""Cholesky pivots of K, its diagonal 1, above which single precision shows full rank."""

SINGLE_NORMS = 1e9
"""Norms, and their inverses, up to which rows in single precision are used as they are."""


class Sensing(Portable):
    """``F(A)_i = v_i* A v_i``, v_i a row of the probes times a factor.

    Parameters
    ----------
    kind : Probes
        The rows as they are held.
    conjugate : bool
        Whether row i is held as ``u_i*`` rather than ``u_i``.
    factors : array of shape (m,) or 1.0, optional
        By default the rows are brought to unit norm, and rows of zeros stay so; 1.0 leaves them.

    Attributes
    ----------
    m, n, shape, is_complex, dtype
        Number of rows, their length, both, and the type of A.
    norms : array of shape (m,)
        Norms of the user's rows.
    squares : array of shape (m,)
        Squared norms of the rows ``v_i``: F of the identity.
    unknowns : int
        Real dimensions of A: n(n+1)/2 symmetric, n^2 Hermitian.
    known_rank : int or None
        Rank of F where a method has found it on its way.
    """

    known_rank: int | None = None

    def learn_rank(self, pivots: Array, rank: int) -> None:
        """Take the rank of F for that if these pivots, for a unit diagonal, stand clear of 0."""
        if float(pivots.min()) > CLEAR_PIVOT:
            self.known_rank = rank

    def __init__(self, kind: Probes, conjugate: bool = False, factors: Any = None) -> None:
        self.kind = kind
        self.m, n, self.is_complex = kind.m, kind.n, kind.is_complex
        self.n, self.unknowns = n, n * n if self.is_complex else n * (n + 1) // 2
        self.conjugate = conjugate and self.is_complex
        self.xp = xp = kind.xp
        self.norms = kind.norms
        held = kind.held_norms
        self.factors: Array | None  # None: 1
        self._is_unit = factors is None
        if factors is None and not kind.has_zero_rows:
            ones = few_ones(self.m) if xp is np and self.m <= FEW else xp.ones_like(held)
            self.squares, self.factors = compact(ones), compact(1.0 / held)
            self.has_zero_rows = False
        elif factors is None:
            self.squares = xp.astype(held > 0, held.dtype)
            self.factors = self.squares / xp.where(held > 0, held, 1.0)
        elif isinstance(factors, float):
            self.factors, self.squares = None, held * held
        else:
            self.factors, self.squares = factors, (held * factors) ** 2

    @classmethod
    def of(cls, U: Any) -> Sensing:
        """Return the rows of a NumPy array as they are; what is one already, itself."""
        if isinstance(U, cls):
            return U
        kind = Dense(np.asarray(U))
        wild = bool(kind.exponents.any())
        return cls(kind, factors=np.ldexp(1.0, kind.exponents) if wild else 1.0)

    # --- facts -------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        return self.m, self.n

    @property
    def dtype(self) -> Any:
        """Float64 or complex128 of the namespace."""
        return self.kind.dtype

    @property
    def inverse(self) -> Array:
        """The factors, (m,)."""
        return self.xp.ones_like(self.squares) if self.factors is None else self.factors

    @property
    def nonzero(self) -> Array:
        """(m,) 1.0 for a row, 0.0 for a row of zeros: F of the identity on unit rows."""
        return self.squares

    rank_one: bool = True
    """Whether each measured matrix is a row ``v v*``, and not a sum over rows (`Mixed`)."""

    @property
    def raw(self) -> Sensing:
        """The rows themselves: others than these only where readings are sums."""
        return self

    weights: Any = None
    """W of readings that are sums, ``F(A) = W (v_k* A v_k)_k``."""

    @property
    def head(self) -> Sensing | None:
        """Of readings that are sums, the leading ones that are rows by themselves."""
        return None

    @property
    def flat(self) -> Vector:
        """y with ``F*(y)`` about as near to a multiple of the identity as there is."""
        return np.ones(self.m)

    def sum_terms(self, others: int) -> int:
        """Terms that sums over rows add to an inner product, and `others`; 0 without sums."""
        return 0

    def unmixed_mass(self, y: Vector) -> Vector:
        """Return per row what rounding in `unmixed` is in proportion to: 0 without sums."""
        return np.zeros(self.m)

    def narrowed(self) -> Sensing:
        """Return the same over the rows that some reading takes."""
        return self

    @property
    def sizes(self) -> Array:
        """Frobenius norms of the measured ``v_i v_i*``."""
        return self.squares

    @property
    def masses(self) -> Array:
        """What the rounding of a reading is in proportion to."""
        return self.squares

    @property
    def amplification(self) -> float:
        """By how much rounding is larger, at most, than that of single rows of unit norm."""
        return 1.0

    @property
    def rounding(self) -> float:
        """What the kind of probes errs by, beyond inner products."""
        return self.kind.rounding

    @property
    def length(self) -> int:
        """How many terms an inner product with a row sums up at most."""
        return self.kind.length

    @property
    def row_rounding(self) -> float:
        """Relative error of the rows that are blockwise."""
        return self.kind.row_rounding

    @cached_property
    def has_unit_norm(self) -> bool:
        """Whether the rows came with unit norm, to rounding."""
        slack, norms = NORM_ERROR * (self.n + 1), to_numpy(self.norms)
        known = getattr(self.kind, "extreme_norms", None)
        least, most = known or (norms.min(initial=1.0), norms.max(initial=1.0))
        return bool(most - 1.0 <= slack and 1.0 - least <= slack)

    @cached_property
    def waits(self) -> bool:
        """Whether products are arrays on a device, so that a look at a number of theirs waits."""
        return waits(self.squares)

    @cached_property
    def has_zero_rows(self) -> bool:
        """Whether some row is zero."""
        return self.kind.has_zero_rows

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are held sparse."""
        return is_sparse(self.kind)

    @property
    def prefers_gram(self) -> bool:
        """Whether ``K y`` costs less through inner products of rows than through an (n, n)."""
        if type(self.kind) is Dense:
            return self.m <= 2 * self.n
        kind = beneath(self.kind)  # of a stack, the first part is the user's
        sparse = isinstance(kind, Stack) and is_sparse(kind.parts[0])
        return self.is_sparse or sparse or self.m <= 2 * self.n

    def same_as(self, other: Sensing) -> bool:
        """Return whether these are the same rows, seen alike."""
        return (
            self.conjugate == other.conjugate
            and bool(np.array_equal(to_numpy(self.norms), to_numpy(other.norms)))
            and same_rows(self.kind, other.kind)
        )

    # --- other views of the same rows --------------------------------------------------------

    def _copied(self) -> Self:
        """Return the same, for a change: what `copy.copy` makes, in a third of the time."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def weighed(self, scales: Array) -> Sensing:
        """Return rows times scales, of shape (m,), nothing copied."""
        other = self._copied()
        other.__dict__.pop("single", None)
        other.factors = scales if self.factors is None else self.factors * scales
        other.squares = self.squares * scales * scales
        other.has_unit_norm = other._is_unit = False  # so that `on_numpy` keeps the scales
        return other

    def only(self, index: npt.NDArray[np.int64]) -> Sensing:
        """Return some of the rows."""
        factors = 1.0 if self.factors is None else self.xp.take(self.factors, self._index(index))
        # A kind need not be able to represent no rows at all: `Chosen` can.
        kind = only(self.kind, index) if len(index) else Chosen(self.kind, index)
        return Sensing(kind, self.conjugate, factors)

    def of_part(self, part: int, following: int | None = None) -> Sensing:
        """The rows of one part, of rows that are held in parts; `following` is asked for next."""
        assert isinstance(self.kind, Parted)
        factors = 1.0 if self.factors is None else self.factors[self.kind.span(part)]
        return Sensing(self.kind.part(part, following), self.conjugate, factors)

    def on_numpy(self) -> Sensing:
        """The same for methods: NumPy arrays go in and come out, and rows that came with unit norm
        are taken as they are, a rounding off. What is claimed is judged by the rows themselves.
        """
        if self.xp is np:
            return self._unscaled()
        kind = self.kind.held_as("numpy")
        if kind is None:
            return Sensing(OnNumpy(self.kind), self.conjugate, to_numpy(self.inverse))
        return self._by(kind, to_numpy(self.inverse))

    def at_work(self, tf32: bool = False) -> Sensing:
        """The same for the steps of methods: as `on_numpy`, or by arrays on the device of the rows
        that NumPy's functions take (see `quadsense.device`); with `tf32`, `single` may be of that.
        """
        kind = None if self.xp is np else self.kind.held_as("tf32" if tf32 else "device")
        return self.on_numpy() if kind is None else self._by(kind, DeviceArray(self.inverse))

    def _by(self, kind: Probes, factors: Any) -> Sensing:
        """Return the same rows as another kind has them."""
        other = Sensing(kind, self.conjugate, factors)
        other.has_unit_norm, other._is_unit = self.has_unit_norm, self._is_unit
        return other._unscaled()

    def _unscaled(self) -> Sensing:
        if self.factors is None or not self.has_unit_norm:
            return self
        other = self._copied()
        other.factors = None
        return other

    def framed(self, columns: npt.NDArray[np.int64]) -> Sensing:
        """Return the user's rows with their columns times ``2^columns``, of unit norm again."""
        known = self.__dict__.get("_framed")
        if known is None or not np.array_equal(known.kind.columns, columns):
            known = self.__dict__["_framed"] = Sensing(Framed(self.kind, columns), self.conjugate)
        return known

    def stretched(self, columns: npt.NDArray[np.int64]) -> Sensing:
        """Return rows ``v_i`` with their columns times ``2^columns``, of whatever norm."""
        kind = self.kind
        if isinstance(kind, Framed):
            kind, columns = kind.kind, kind.columns + columns
        return Sensing(Framed(kind, columns), self.conjugate, self.inverse)

    def plain(self) -> Sensing:
        """The same for steps, a rounding off: with no factors and nothing to conjugate, where the
        kind can take that on itself.
        """
        form: Form = "conjugated" if self.conjugate else "unit"
        kind = self.kind.held_as(form) if self._is_unit else None
        return self if kind is None else Sensing(kind, factors=1.0)

    def within(self, basis: npt.NDArray[Any]) -> Sensing:
        """Return the rows in coordinates of an orthonormal basis, (n, k), of their span; dense."""
        return Sensing.of(np.ascontiguousarray(to_numpy(self.times(basis)).conj()))

    def exact(self) -> tuple[Sensing, npt.NDArray[np.int64]]:
        """Rows over powers of two, so that no digit changes, of norm 1/16 to 16; the exponents."""
        inverse = to_numpy(self.inverse)
        shifts = 1 - np.frexp(inverse)[1]
        if self.has_zero_rows:
            shifts = np.where(inverse > 0, shifts, 0)
        if np.abs(shifts).max(initial=0) <= MAX_SHIFT:
            return Sensing(self.kind, self.conjugate, 1.0), self.kind.exponents
        factors = self._vector(np.ldexp(1.0, -shifts))
        return Sensing(self.kind, self.conjugate, factors), self.kind.exponents + shifts

    @cached_property
    def single(self) -> Sensing:
        """The same in single precision, where that is quicker: half the size of U."""
        kind = self.kind.held_as("single") if self.coarse or not self.kind.coarse else None
        if kind is not None:
            if self.factors is None:
                return Sensing(kind, self.conjugate, factors=1.0)
            if self.coarse or (is_in_parts(kind) and self._moderate):
                return Sensing(kind, self.conjugate, self.factors)
        if not is_dense(self.kind):
            return self
        dtype = np.dtype(np.complex64 if self.is_complex else np.float32)
        if isinstance(self.kind, Dense) and self.kind.U.dtype == dtype and self._moderate:
            factors = 1.0 if self.factors is None else self.factors
            return Sensing(Dense(self.kind.U, dtype), self.conjugate, factors)
        rows = np.empty(self.shape, dtype)
        for part, block in self.blocks():
            rows[part] = block
        return Sensing(Dense(rows, dtype, norms=np.sqrt(self.squares)), factors=1.0)

    @cached_property
    def coarse(self) -> bool:
        """Whether `single` has fewer digits than single precision: TF32, if allowed, on a GPU."""
        return self.kind.coarse and self._moderate

    @property
    def roundoff(self) -> float:
        """Unit roundoff of products."""
        own = self.kind.roundoff
        return float(np.finfo(np.dtype(self.dtype)).eps) / 2.0 if own is None else own

    @property
    def single_is_copied(self) -> bool:
        """Whether `single` would be a copy."""
        if self.coarse:
            return True
        kind: Any = self.kind
        framed = isinstance(kind, Framed)
        return is_dense(kind) and (framed or kind.U.dtype.char not in "fF" or not self._moderate)

    @property
    def _moderate(self) -> bool:
        """Whether squares of products with the rows as held stay within single precision."""
        held = to_numpy(self.kind.held_norms)
        held = held[held > 0]
        return bool(held.size == 0 or 1 / SINGLE_NORMS < held.min() <= held.max() < SINGLE_NORMS)

    # --- blocks of rows ----------------------------------------------------------------------

    def slices(self, width: int | None = None) -> Iterator[slice]:
        """Return slices of rows whose temporaries, `width` numbers per row, stay within a block."""
        return self.kind.slices(width)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Yield dense rows ``v_i``, one block at a time."""
        for part, rows in dense_blocks(self.kind):
            yield part, self._seen(rows, None if self.factors is None else self.factors[part])

    def block(self, first: int, last: int) -> Array:
        """Return dense rows ``v_i`` from `first` to `last`: (last - first, n)."""
        factors = None if self.factors is None else self.factors[first:last]
        return self._seen(self.kind.block(first, last), factors)

    def rows(self) -> Array:
        """All rows ``v_i``, dense: U itself where that is what it is. Small problems only."""
        return self.block(0, self.m)

    def take_unit(self, index: Array) -> Array:
        """Return dense rows ``v_i``: (k, n)."""
        factors = None if self.factors is None else self.xp.take(self.factors, index)
        return self._seen(self.kind.take(index), factors)

    def take(self, index: Array) -> Array:
        """Return dense rows ``u_i`` as given, but conjugated where asked: (k, n)."""
        return self.take_unit(index) * self._cast(self.xp.take(self.norms, index))[:, None]

    def _seen(self, rows: Array, factors: Array | None) -> Array:
        if factors is not None:
            rows = rows * (factors if factors.dtype == rows.dtype else self._cast(factors))[:, None]
        return self._meant(rows) if self.conjugate else rows

    def _cast(self, y: Array) -> Array:
        """Return a real vector or matrix in the type of the rows, for products with them."""
        return y if y.dtype == self.dtype else self.xp.astype(y, self.dtype)

    def placed(self, values: Any) -> Array:
        """Return a NumPy array where the rows live, in the namespace of products with them."""
        return values if type(values) is type(self.squares) else put(values, self.squares)

    def _vector(self, values: Any) -> Array:
        """Return a NumPy vector where the rows live."""
        return self.placed(np.asarray(values, dtype=np.float64))

    def _index(self, index: npt.NDArray[np.intp]) -> Array:
        """Return numbers of rows where the rows live."""
        return index if self.xp is np else placed(index, self.squares)

    def _meant(self, A: Array) -> Array:
        """Return A of the given rows from A of the meant ones, and back."""
        return self.xp.conj(A) if self.conjugate else A

    # --- products ----------------------------------------------------------------------------

    def times(self, X: Array) -> Array:
        """Return ``v_i* x``: (n, k) to (m, k)."""
        return self._meant(self._scaled(self.kind.times(self._meant(self._cast(X)))))

    def combine(self, Y: Array) -> Array:
        """Return ``sum_i v_i y_i``: (m, k) to (n, k)."""
        return self._meant(self.kind.combine(self._meant(self._scaled(Y))))

    def _scaled(self, Y: Array) -> Array:
        """Return rows of Y, (m, k), times the factors."""
        return Y if self.factors is None else self._cast(self.factors)[:, None] * Y

    def forward(self, A: Array) -> Array:
        """Return ``F(A)_i = v_i* A v_i``: (n, n) to (m,)."""
        A = A if A.dtype == self.kind.dtype else self._cast(A)
        values = self.kind.forward(self._meant(A) if self.conjugate else A)
        return values if self.factors is None else self._weighed(values)

    def adjoint(self, y: Array) -> Array:
        """Return ``F*(y) = sum_i y_i v_i v_i*``: (m,) to (n, n)."""
        A = self.kind.adjoint(y if self.factors is None else self._weighed(y))
        return self._meant(A) if self.conjugate else A

    def _weighed(self, y: Array) -> Array:
        """Return a vector, (m,), times the squares of the factors."""
        return y if self.factors is None else y * (self.factors * self.factors)

    def held(self, index: npt.NDArray[np.intp]) -> Sensing:
        """Return some of the rows, dense and in memory, whatever holds them all."""
        return Sensing.of(to_numpy(self.take_unit(self._index(index))))

    def quadratic(self, times: Callable[[Array], Array]) -> Array:
        """Return ``v_i* A v_i`` for an A known by its products ``times(X)``."""
        xp, parts = self.xp, []
        for _, rows in self.blocks():
            conjugated = xp.conj(rows) if self.is_complex else rows
            parts.append(self.kind.real(xp.sum(conjugated * times(rows.T).T, axis=1)))
        return xp.concat(parts)

    def factored(self, X: Array, signs: Array | None = None) -> Array:
        """Return ``F(X S X*)``, S the signs, all plus if None: from ``v_i* X``, (n, k) to (m,)."""
        return squares(self.kind, self._meant(self._cast(X)), self.factors, signs)

    def mixed(self, z: Array) -> Array:
        """Return what is read where the rows have these values: the same unless sums are read."""
        return z

    def unmixed(self, y: Array) -> Array:
        """Return coefficients of the rows in ``F*(y)``: the same unless sums are read."""
        return y

    def squared_columns(self, y: Array) -> Array:
        """Return ``sum_i y_i |v_ij|^2`` for every j: (m,) to (n,)."""
        return squared_columns(self.kind, self._weighed(y))

    def images(self, Y: Array) -> Array:
        """``P`` with columns ``v_i* Y^T``: (k, n) to (k, m), each row in one piece, writable."""
        return blockwise.one_pass(self, Y, None)[0]

    def through(self, Y: Array, weigh: Weigh) -> tuple[Array, Array]:
        """The same and ``sum_i weigh(P)_i v_i``, in one pass where possible: see `blockwise`."""
        return blockwise.one_pass(self, Y, weigh)

    @cached_property
    def empty(self) -> Callable[..., Any]:
        """What makes arrays of any contents: used again by kinds that cost by the column."""
        return Scratch().empty if self.kind.by_column else np.empty

    def in_blocks(
        self, width: int | None = None, sums: bool = True
    ) -> Iterator[tuple[slice, Sensing]]:
        """All rows, some at a time where that saves reading them twice: see `Probes.in_blocks`."""
        for part, rows in self.kind.in_blocks(width, sums):
            yield part, self if rows is self.kind else self._seen_by(rows, part)

    def _seen_by(self, rows: Probes, part: slice) -> Sensing:
        """Return some of the rows, as they are held, seen as these are."""
        other = self._copied()
        for name in ("single", "has_zero_rows"):
            other.__dict__.pop(name, None)
        other.kind, other.m = rows, rows.m
        other.factors = None if self.factors is None else self.factors[part]
        other.squares, other.norms = self.squares[part], self.norms[part]
        return other

    @property
    def in_turn(self) -> Callable[..., tuple[float, float]] | None:
        """What moves a factor by one row after the other: see `Differences.in_turn`."""
        move = None if self.is_complex else getattr(self.kind, "in_turn", None)
        return None if move is None else partial(move, self.factors)

    # --- the Gram matrix K and the normal matrix ---------------------------------------------

    def gram_block(self, rows: slice, columns: slice) -> Array:
        """Return ``K_ij = |<v_i, v_j>|^2`` for those rows and columns, dense and real."""
        square = self.kind.gram(rows, columns)
        if self.factors is None:
            return square
        factors = self.factors * self.factors
        return square * factors[rows][:, None] * factors[columns][None, :]

    def gram(self) -> npt.NDArray[Any]:
        """Return K whole, (m, m)."""
        if self.waits or (is_dense(self.kind) and self.n <= self.m):
            return squared_moduli(self.rows())
        triangle = self.gram_triangle()
        return np.maximum(triangle, triangle.T, order="C")  # zero on one side, or the same

    def gram_triangle(self, single: bool = False, lower: bool = False) -> npt.NDArray[Any]:
        """K in Fortran order, in single or double precision; its upper (lower) triangle counts."""
        return blockwise.gram_triangle(self, single, lower)

    def gram_times(self, Y: Array) -> Array:
        """Return ``K @ Y`` with K never held whole: (m,) or (m, k) to the same."""
        return blockwise.gram_times(self, Y)

    def row_sums(self, apply: Callable[[Array], Array]) -> Array:
        """Bounds on the row sums of ``|K|``: of K, which has no negative entry, by `apply`."""
        return apply(self.nonzero)

    def features(self) -> npt.NDArray[Any]:
        """Return F as an explicit matrix on packed matrices, (m, N). Small problems only."""
        rows = self.block(0, self.m)
        return products.features(rows if self.xp is np else to_numpy(rows))

    def normal(self, weights: Any = None, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        """``F* diag(weights) F`` on packed matrices, its upper triangle: N by N, Fortran order."""
        if type(self.kind) is Dense and self.xp is np and self.m <= products.FEATURE_ROWS:
            rows = self.block(0, self.m)  # all at once
            rows = rows if weights is None else rows * np.sqrt(np.sqrt(weights))[:, None]
            return products.normal_matrix((rows,), self.unknowns, dtype)
        kind = self.kind.kind if isinstance(self.kind, OnNumpy) else self.kind
        work = kind.held_as("device") if kind is not self.kind else None
        if work is None:
            return blockwise.normal(self, weights, dtype)
        twin = Sensing(work, self.conjugate, work.own_vector(self.inverse))
        held = None if weights is None else work.own_vector(to_numpy(weights))
        return np.asarray(twin.normal(held, dtype), order="F")
