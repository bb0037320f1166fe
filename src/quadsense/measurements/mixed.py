"""`Mixed`: readings that are sums over probes, ``F(A) = W (u_k* A u_k)_k``.

Measurement i is ``<F_i, A>`` with ``F_i = sum_k W_ik u_k u_k*``, of any rank and sign. All products
go through those of the probes, and W is never made dense. What a row's norm is elsewhere is here
the root of ``||F_i||_F``: "unit rows" have ``||F_i||_F = 1``, so ``|<F_i, A>| <= ||A||_F`` holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import Array, Vector, is_numpy, to_numpy
from quadsense.core import products
from quadsense.core.intervals import LARGEST_READING
from quadsense.core.products import FEATURE_ROWS
from quadsense.core.records import cached_property
from quadsense.measurements.arrays import SPARSE_SHARE
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.views import is_sparse
from quadsense.system.machine import BLOCK_ELEMENTS
from quadsense.system.watch import look

MIN_RELATIVE_SUM = 1e-7
"""``||F_i||_F`` over ``sum_k |W_ik| ||u_k||^2`` below which rounding hides it: then that sum is the
unit. A unit is a matter of scale only; what cancels shows in the bounds on rounding."""

MAX_FLATTENING_STEPS = 500
"""Products with K after which the y of `Mixed.flat` is as good as it gets."""

MAX_KEPT_SUMS = 64
"""Sums below plain rows whose inner products with all of these are kept."""

Weights = Any
"""A real NumPy array or SciPy CSR array."""


class Mixed(Sensing):
    """``F(A)_i = sum_k W_ik v_k* A v_k``.

    Parameters
    ----------
    raw : Sensing
        The rows ``v_k``.
    weights : ndarray or sparse array of shape (p, m)
        W, for these rows.
    norms : array of shape (p,)
        Roots of the Frobenius norms of the user's ``F_i``.
    sizes : ndarray of shape (p,)
        Frobenius norms of ``F_i`` as seen here.
    given : ndarray or sparse array of shape (p, m), optional
        W as the user gave it, for the user's rows.
    """

    def __init__(
        self, raw: Sensing, weights: Weights, norms: Array, sizes: Vector, given: Weights = None
    ) -> None:
        self._raw, self.weights, self.given = raw, weights, given
        self.kind, self.conjugate, self.is_complex = raw.kind, raw.conjugate, raw.is_complex
        self.m, self.n, self.xp = int(weights.shape[0]), raw.n, raw.xp
        self.unknowns = raw.unknowns
        self.norms, self._sizes = norms, sizes
        self.squares = raw._vector(weights @ to_numpy(raw.squares))
        self.factors = None

    @classmethod
    def over(cls, raw: Sensing, given: Weights) -> Mixed:
        """Units of ``||F_i||_F = 1`` on unit rows, for W as the user gave it."""
        norms = to_numpy(raw.norms)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            squares = norms * norms
            mass = np.asarray(abs(given) @ squares)
            safe = np.where(mass > 0.0, mass, 1.0)
            weights = _scaled(given, 1.0 / safe, squares)
        silent = (mass == 0.0) & (np.asarray((given != 0) @ (norms > 0)) > 0)
        bad = np.flatnonzero(
            ~(np.isfinite(mass)) | silent | ((mass > 0) & (mass < 1.0 / LARGEST_READING))
        )
        if bad.size:
            raise ValueError(
                f"row {bad[0]} of mix, times the squared norms of the rows of U, is out of "
                "float64's range: rescale the row, or U"
            )
        alone = _alone(given, raw.m)
        sizes = np.ones(len(mass))
        with np.errstate(under="ignore"):
            sizes[~alone] = np.maximum(_sizes(raw, weights[~alone]), MIN_RELATIVE_SUM)
        sizes *= mass > 0.0
        weights = _scaled(weights, 1.0 / np.where(sizes > 0.0, sizes, 1.0), None)
        with np.errstate(over="ignore", under="ignore"):
            found = np.sqrt(mass * sizes)
        if alone.any():  # a row of U, no sum: seen as it would be by itself
            rows = np.flatnonzero(alone & (mass > 0.0))  # rows of zeros have no entry left
            weights.data[weights.indptr[rows]] = np.sign(given.data[given.indptr[rows]])
            own = np.abs(given.data[given.indptr[rows]]) == 1.0
            found[rows[own]] = norms[given.indices[given.indptr[rows[own]]]]
        live = (mass > 0.0).astype(np.float64)
        return cls(raw, weights, raw._vector(found), live, given)

    # --- facts -------------------------------------------------------------------------------

    rank_one = False

    @property
    def raw(self) -> Sensing:
        """The probes that are mixed."""
        return self._raw

    @property
    def sizes(self) -> Array:
        """Frobenius norms of ``F_i``."""
        return self._raw._vector(self._sizes)

    @cached_property
    def nonzero(self) -> Array:
        """1.0 for a measurement, 0.0 for one of nothing."""
        return self._raw._vector((to_numpy(self.norms) > 0.0).astype(np.float64))

    @cached_property
    def masses(self) -> Vector:
        """``sum_k |W_ik| ||v_k||^2``: what rounding is in proportion to."""
        return np.asarray(abs(self.weights) @ to_numpy(self._raw.squares))

    @property
    def amplification(self) -> float:
        """The largest of the masses, and not below 1."""
        return max(1.0, float(np.max(self.masses, initial=0.0)))

    @cached_property
    def longest(self) -> int:
        """Most terms in a sum over a row or a column of W."""
        across, down = _counts(self.weights)
        return int(max(across.max(), down.max()))

    def sum_terms(self, others: int) -> int:
        """Return terms of the longest sum, and `others`."""
        return self.longest + others

    def unmixed_mass(self, y: Vector) -> Vector:
        """Return ``|W|^T |y|``, and 0 for rows where nothing rounds."""
        return np.where(self._exact_columns, 0.0, np.asarray(abs(self.weights).T @ np.abs(y)))

    @cached_property
    def _exact_columns(self) -> npt.NDArray[np.bool_]:
        """Which rows of U are in one reading only, times a power of two: nothing rounds there."""
        W = self.weights
        values = W.data if sp.issparse(W) else W
        rounds = (np.frexp(np.abs(values))[0] != 0.5) & (values != 0.0)
        if sp.issparse(W):
            odd = np.bincount(W.indices[rounds], minlength=W.shape[1])
        else:
            odd = rounds.sum(axis=0)
        return np.asarray((_counts(W)[1] == 1) & (odd == 0))

    @cached_property
    def has_unit_norm(self) -> bool:
        """Whether the rows of U came with unit norm."""
        return self._raw.has_unit_norm

    @cached_property
    def has_zero_rows(self) -> bool:
        """Whether some measurement is of nothing."""
        return not bool(np.all(to_numpy(self.nonzero) > 0.0))

    @property
    def is_sparse(self) -> bool:
        """No: K of sums is formed or applied, not kept sparse."""
        return False

    @property
    def prefers_gram(self) -> bool:
        """As for the rows of U."""
        return self._raw.prefers_gram

    def same_as(self, other: Sensing) -> bool:
        """Return whether these are the same sums of the same rows."""
        return (
            isinstance(other, Mixed)
            and self._raw.same_as(other.raw)
            and self.given is not None
            and other.given is not None
            and self.given.shape == other.given.shape
            and _largest(self.given - other.given) == 0.0
        )

    @cached_property
    def head(self) -> Sensing | None:
        """The leading measurements, where they are rows of U by themselves and stand for no sum.

        So are the user's rows next to constraints: what they cost must not be what sums cost.
        """
        W = self.weights
        if not sp.issparse(W):
            return None
        count = _leading(W)
        if not 0 < count < self._raw.m:
            return None
        head = self._raw.only(np.arange(count))
        scales = W.data[:count]
        return head if np.all(scales == 1.0) else head.weighed(head._vector(np.sqrt(scales)))

    @cached_property
    def tail(self) -> Mixed:
        """The measurements after `head`, of the rows that those do not take."""
        assert self.head is not None
        count, norms = self.head.m, to_numpy(self.norms)
        raw = self._raw.only(np.arange(count, self._raw.m))
        W = self.weights[count:, count:]
        return Mixed(raw, W, self._raw._vector(norms[count:]), self._sizes[count:])

    @cached_property
    def used(self) -> npt.NDArray[np.intp]:
        """The rows of U that some reading takes."""
        return np.flatnonzero(_counts(self.weights)[1])

    @cached_property
    def flat(self) -> Vector:
        """y with ``F*(y)`` as near to the identity as there is; NumPy's alone."""
        from scipy.sparse.linalg import LinearOperator, minres  # slow to import, rarely needed

        K = LinearOperator((self.m, self.m), matvec=self.gram_times, dtype=np.float64)
        y, _ = minres(K, self.squares, rtol=1e-13, maxiter=MAX_FLATTENING_STEPS)
        return np.asarray(y) if np.isfinite(y).all() else np.zeros(self.m)

    # --- other views -------------------------------------------------------------------------

    def _with(self, raw: Sensing, weights: Weights, norms: Any = None, sizes: Any = None) -> Mixed:
        norms = self.norms if norms is None else norms
        return Mixed(raw, weights, norms, self._sizes if sizes is None else sizes, self.given)

    def weighed(self, scales: Array) -> Mixed:
        """Return the measurement i times the square of scale i."""
        squares = to_numpy(scales) ** 2
        return self._with(self._raw, _scaled(self.weights, squares, None), None,
                          self._sizes * squares)  # fmt: skip

    def only(self, index: npt.NDArray[np.int64]) -> Mixed:
        """Return some of the measurements."""
        norms = self._raw._vector(to_numpy(self.norms)[index])
        given = None if self.given is None else self.given[index]
        return Mixed(self._raw, self.weights[index], norms, self._sizes[index], given)

    def narrowed(self) -> Mixed:
        """Return the same over the rows that are used only: a few readings need a few rows."""
        if not 0 < self.used.size < self._raw.m:
            return self
        given = None if self.given is None else self.given[:, self.used]
        raw, weights = self._raw.only(self.used), self.weights[:, self.used]
        return Mixed(raw, weights, self.norms, self._sizes, given)

    def held(self, index: npt.NDArray[np.intp]) -> Mixed:
        """Return some of the measurements, the rows that they take in memory."""
        some = self.only(index)
        raw, weights = self._raw.held(some.used), some.weights[:, some.used]
        return Mixed(raw, weights, to_numpy(some.norms), some._sizes)

    def on_numpy(self) -> Mixed:
        """Return the same for methods: NumPy arrays go in and come out."""
        raw = self._raw.on_numpy()
        return self if raw is self._raw else self._with(raw, self.weights, to_numpy(self.norms))

    def plain(self) -> Mixed:
        """Return the same for steps, a rounding off."""
        raw = self._raw.plain()
        return self if raw is self._raw else self._with(raw, self.weights)

    def at_work(self, tf32: bool = False) -> Mixed:
        """Return the same: sums are made by NumPy, whatever the device of the rows."""
        return self.on_numpy()

    def within(self, basis: npt.NDArray[Any]) -> Mixed:
        """Return the same in coordinates of an orthonormal basis of the span of the rows."""
        return self._with(self._raw.within(basis), self.weights)

    def exact(self) -> tuple[Sensing, npt.NDArray[np.int64]]:
        """Return U and W over powers of two, so that no digit changes; ``||F_i||_F`` near 1."""
        assert self.given is not None
        raw, exponents = self._raw.exact()
        norms = to_numpy(self.norms)
        shifts = np.where(norms > 0.0, np.frexp(norms)[1], 0).astype(np.int64)
        weights = _shifted(self.given, -2 * shifts, 2 * exponents)
        sizes = self._sizes * np.ldexp(norms, -shifts) ** 2
        return self._with(raw, weights, None, sizes), shifts

    @cached_property
    def single(self) -> Sensing:
        """Rows in single precision, W in double."""
        raw = self._raw.single
        return self if raw is self._raw else self._with(raw, self.weights)

    @property
    def single_is_copied(self) -> bool:
        """Whether `single` would be a copy."""
        return self._raw.single_is_copied

    def slices(self, width: int | None = None) -> Iterator[slice]:
        """Yield slices of measurements, `width` numbers each, that stay within a block."""
        size = max(1, BLOCK_ELEMENTS // max(self.n if width is None else width, 1))
        for begin in range(0, self.m, size):
            look()
            yield slice(begin, min(begin + size, self.m))

    # --- products ----------------------------------------------------------------------------

    def mixed(self, z: Array) -> Array:
        """Return ``W z``: what is read, from values of the rows, (m,) or (m, k)."""
        return self._times(self.weights, z)

    def unmixed(self, y: Array) -> Array:
        """Return ``W^T y``, coefficients of the rows: ``F*(y) = sum_k (W^T y)_k v_k v_k*``."""
        return self._times(self._across, y)

    @cached_property
    def _across(self) -> Weights:
        """``W^T``: a sparse array takes as long to transpose as a small one to multiply."""
        return self.weights.T

    def _times(self, weights: Weights, values: Array) -> Array:
        if is_numpy(values):
            return np.asarray(weights @ values)
        return self._raw._vector(weights @ to_numpy(values))

    def forward(self, A: Array) -> Array:
        """Return ``F(A)``: (n, n) to (p,)."""
        return self.mixed(self._raw.forward(A))

    def in_blocks(
        self, width: int | None = None, sums: bool = True
    ) -> Iterator[tuple[slice, Sensing]]:
        """Yield all measurements at once: which rows a sum is of may be anywhere."""
        yield slice(0, self.m), self

    def adjoint(self, y: Array) -> Array:
        """Return ``F*(y) = sum_k (W^T y)_k v_k v_k*``: (p,) to (n, n)."""
        return self._raw.adjoint(self.unmixed(y))

    def quadratic(self, times: Callable[[Array], Array]) -> Array:
        """Return ``<F_i, A>`` for an A known by its products."""
        return self.mixed(self._raw.quadratic(times))

    def factored(self, X: Array, signs: Array | None = None) -> Array:
        """Return ``F(X S X*)``: (n, k) to (p,)."""
        return self.mixed(self._raw.factored(X, signs))

    def squared_columns(self, y: Array) -> Array:
        """Return the diagonal of ``F*(y)``."""
        return self._raw.squared_columns(self.unmixed(y))

    # --- the Gram matrix K and the normal matrix ---------------------------------------------

    @cached_property
    def _K(self) -> npt.NDArray[np.float64]:
        if self.head is not None and is_numpy(self.squares):
            return self._bordered(self.head.gram())
        raw, W = self._raw, self.weights
        K, whole = np.zeros((self.m, self.m)), slice(0, raw.m)
        for part in raw.kind.slices(raw.m):
            K += W[:, part] @ np.asarray((W @ to_numpy(raw.gram_block(part, whole)).T).T)
        return 0.5 * (K + K.T)

    def _bordered(self, first: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return K where that of `head` is known."""
        count, K = len(first), np.empty((self.m, self.m))
        K[:count, :count] = first
        B, K[count:, count:] = self._border
        K[count:, :count], K[:count, count:] = B, B.T
        return K

    def gram_block(self, rows: slice, columns: slice) -> Array:
        """Return ``K_ij = <F_i, F_j>`` for those rows and columns."""
        block = self._K[rows, columns]
        return block if is_numpy(self.squares) else self._raw._vector(block)

    def gram_triangle(self, single: bool = False, lower: bool = False) -> npt.NDArray[Any]:
        """Return K whole in Fortran order, the caller's own."""
        return self._K.astype(np.float32 if single else np.float64).T

    def gram(self) -> npt.NDArray[Any]:
        """Return K whole, (p, p)."""
        return self._K.copy()

    def gram_times(self, Y: Array) -> Array:
        """Return ``W K_0 W^T Y`` with neither held: (p,) or (p, k) to the same."""
        head = self.head
        if head is None or self.m - head.m > MAX_KEPT_SUMS or not is_numpy(Y):
            return self.mixed(_gram(self._raw, self.unmixed(Y)))
        # The rows above by their own K, the few sums below by a border.
        top, below = Y[: head.m], Y[head.m :]
        B, corner = self._border
        product = _gram(head, top) if self._sparse is None else self._sparse @ top
        return np.concatenate([product + B.T @ below, B @ top + corner @ below])

    @cached_property
    def _sparse(self) -> Any:
        """K of `head`, where its rows are sparse and share few entries."""
        head = self.head
        kind: Any = None if head is None else head.kind
        if head is None or not is_sparse(kind) or kind.gram_density_bound() > SPARSE_SHARE:
            return None
        return kind.sparse_gram(head.inverse)

    @cached_property
    def _border(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """``<F_i, F_j>`` for i of `tail`, and j of `head` and of `tail`."""
        raw, tail, count = self._raw, self.tail, self.m - self.tail.m
        scales = self.weights.data[:count]
        found, rest = np.empty((tail.m, count)), slice(count, raw.m)
        for part in raw.kind.slices(max(raw.m - count, raw.n)):
            if part.start < count:
                rows = slice(part.start, min(part.stop, count))
                inner = to_numpy(raw.gram_block(rows, rest))
                found[:, rows] = tail.weights @ inner.T * scales[rows]
        return found, tail.gram()

    def row_sums(self, apply: Callable[[Array], Array]) -> Array:
        """Return row sums of ``|W| K_0 |W|^T``, which no entry of K exceeds in modulus."""
        sizes = abs(self.weights)
        return self._times(sizes, _gram(self._raw, self._times(sizes.T, self.nonzero)))

    def features(self) -> npt.NDArray[Any]:
        """Return F as an explicit matrix on packed matrices, (p, N). Small problems only."""
        if self.head is not None:
            whole = np.empty((self.m, self.unknowns), order="F")  # as `products.features` has it
            whole[: self.head.m], whole[self.head.m :] = self.head.features(), self.tail.features()
            return whole
        return self._features(slice(0, self.m), np.float64)

    def _features(self, part: slice, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return those rows of it."""
        W, total = self.weights[part], np.zeros((part.stop - part.start, self.unknowns))
        used = np.flatnonzero(np.asarray((W != 0).sum(axis=0)))
        for first in range(0, used.size, FEATURE_ROWS):
            look()
            index = used[first : first + FEATURE_ROWS]
            rows = to_numpy(self._raw.take_unit(self._raw._index(index)))
            total += W[:, index] @ products.features(rows, np.float64)
        return total.astype(dtype, copy=False)

    def normal(self, weights: Any = None, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        """Return ``F* diag(weights) F`` on packed matrices: its upper triangle, Fortran order."""
        if self.head is not None:
            w = None if weights is None else to_numpy(weights)
            M = self.head.normal(None if w is None else w[: self.head.m], dtype)
            M += self.tail.normal(None if w is None else w[self.head.m :], dtype)
            return M
        roots = None if weights is None else np.sqrt(to_numpy(weights))

        def parts() -> Iterator[Array]:
            for first in range(0, self.m, FEATURE_ROWS):
                part = slice(first, min(first + FEATURE_ROWS, self.m))
                rows = self._features(part, np.float64)
                rows = rows if roots is None else rows * roots[part, None]
                yield np.asfortranarray(rows, dtype=dtype)

        return products.summed_products(parts(), self.unknowns, dtype)

    # --- what sums of rows do not have -------------------------------------------------------

    def _no_rows(self, *_: Any) -> NoReturn:
        """Raise a TypeError: see `low_rank`, which asks the rows themselves."""
        raise TypeError("a sum of rows (mix) is no row: use forward, adjoint, or those of `raw`")

    times = combine = blocks = block = _no_rows  # type: ignore[assignment]
    take_unit = images = through = _no_rows  # type: ignore[assignment]


def _gram(rows: Sensing, Y: Array) -> Array:
    """Return ``K Y`` of plain rows, the cheaper way."""
    if rows.prefers_gram:
        return rows.gram_times(Y)
    if Y.ndim == 1:
        return rows.forward(rows.adjoint(Y))
    columns = [rows.forward(rows.adjoint(Y[:, j])) for j in range(Y.shape[1])]
    return rows.xp.stack(columns, axis=1)


def _scaled(W: Weights, left: Any, right: Any) -> Weights:
    """Return ``diag(left) W diag(right)``."""
    if sp.issparse(W):
        data = W.data if left is None else np.repeat(left, np.diff(W.indptr)) * W.data
        data = data if right is None else data * right[W.indices]
        vanished = bool(np.any(data == 0.0))
        scaled = sp.csr_array((data, W.indices, W.indptr), shape=W.shape, copy=vanished)
        if vanished:
            scaled.eliminate_zeros()
        return scaled
    W = W if left is None else left[:, None] * W
    return W if right is None else W * right


def _shifted(W: Weights, left: Any, right: Any) -> Weights:
    """Return ``W_ik 2^(left_i + right_k)``: no digit changes."""
    if not sp.issparse(W):
        return np.ldexp(W, left[:, None] + right)
    rows = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
    data = np.ldexp(W.data, left[rows] + right[W.indices])
    return sp.csr_array((data, W.indices, W.indptr), shape=W.shape)


def _counts(W: Weights) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return how many entries of each row, and of each column, are not 0."""
    if not sp.issparse(W):
        return np.count_nonzero(W, axis=1), np.count_nonzero(W, axis=0)
    p, m = W.shape
    here = W.data != 0.0
    rows = np.repeat(np.arange(p), np.diff(W.indptr))
    return np.bincount(rows[here], minlength=p), np.bincount(W.indices[here], minlength=m)


def _alone(W: Weights, m: int) -> npt.NDArray[np.bool_]:
    """Return which rows of W take one row of U, which no other takes, and not its negative."""
    if not sp.issparse(W):
        return np.zeros(len(W), dtype=bool)
    counts = np.diff(W.indptr)
    taken = np.bincount(W.indices, minlength=m)
    alone = counts == 1
    firsts = W.indptr[:-1][alone]
    alone[alone] = (taken[W.indices[firsts]] == 1) & (W.data[firsts] > 0.0)
    return np.asarray(alone)


def _leading(W: Weights) -> int:
    """Return how many of the first rows of W are positive multiples of their own row of U."""
    p, m = W.shape
    alone = _alone(W, m)
    most = min(p, m)
    firsts = W.indptr[:-1][:most]
    fits = alone[:most].copy()
    fits[fits] = W.indices[firsts[fits]] == np.flatnonzero(fits)
    return int(most if fits.all() else np.argmin(fits))


def _largest(W: Weights) -> float:
    return float(np.max(np.abs(W.data if sp.issparse(W) else W), initial=0.0))


def _sizes(raw: Sensing, W: Weights) -> Vector:
    """Return ``||sum_k W_ik v_k v_k*||_F`` for every i, by the rows that each takes."""
    (p, m), n = W.shape, raw.n
    found = np.zeros(p)
    if not sp.issparse(W) and float(p) * n * n > float(m) * (n + p):
        for part in raw.kind.slices(m):
            images = W @ to_numpy(raw.gram_block(part, slice(0, m))).T
            found += np.einsum("ij,ij->i", images, W[:, part])
        return np.sqrt(np.maximum(found, 0.0))
    for i in range(p):
        look()
        line = W[[i]]
        used = line.indices if sp.issparse(line) else np.flatnonzero(line[0])
        weights = line.data if sp.issparse(line) else line[0, used]
        if not used.size:
            continue
        if used.size > n:
            spread = np.zeros(raw.m)
            spread[used] = weights
            found[i] = float(np.linalg.norm(to_numpy(raw.adjoint(raw._vector(spread)))))
            continue
        rows = to_numpy(raw.take_unit(raw._index(used)))
        inner = np.abs(rows.conj() @ rows.T) ** 2
        found[i] = np.sqrt(max(float(weights @ inner @ weights), 0.0))
    return found
