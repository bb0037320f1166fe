"""The sensing map and the matrix part of the Hessian, in coordinates in which that is diagonal.

Over all symmetric matrices these are the given ones, or without a quadratic term, where A is held
by the rows alone, those of what the rows see. Over the cone they are those of the
Nesterov-Todd scaling ``A = G x G*``, in which the Hessian of the cone is the identity and the rows
are ``v_i = G* u_i``; with a quadratic term G is turned so that ``G* G = diag(l)``, and the Hessian
is ``1 + 2 alpha l_j l_k``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from quadsense.arrays import or_there
from quadsense.core import products
from quadsense.core.cholesky import (
    MAX_WHOLE_ORDER,
    add_inner,
    factor_upper,
    inner_upper,
    pivoted,
    solve_lower,
    solve_lower_transposed,
    squared_moduli,
)
from quadsense.core.intervals import EPS, Array, Real
from quadsense.core.products import FEATURE_ROWS
from quadsense.core.records import cached_property
from quadsense.device import algebra, scalar, waits
from quadsense.measurements.blockwise import DEVICE_ENTRIES
from quadsense.measurements.sensing import Sensing
from quadsense.system.watch import BLOCK_FLOPS, cholesky_flops, eigen_flops, look

Index = npt.NDArray[np.intp]

MIN_CLEAR_PIVOT = {np.float32: 0.05, np.float64: 1e-6}
"""Least pivot to the largest at which rows surely see everything, by the factor's precision."""

MIN_SINGLE_ORDER = 200
"""Order from which a factor in single precision gains more than what it leaves costs."""


class KernelCoordinates(Protocol):
    """What the linear systems of a step need to know."""

    m: int
    n: int
    size: int
    dtype: npt.DTypeLike
    hessian: Any
    """Entries of the matrix part, (n, n), or one number for all; above 0."""
    added: float
    """How much of that is regularisation, for refinement to take off."""
    rowwise: bool
    """Whether systems may be solved in the order of the rows."""

    def pack(self, x: Array) -> Real:
        """KernelCoordinates of a matrix, or of its part within what they reach, (N,)."""

    def unpack(self, x: Real) -> Array:
        """The matrix, (n, n)."""

    def forward(self, x: Array) -> Real:
        """``F(x)``, (m,)."""

    def adjoint(self, y: Real) -> Array:
        """``F*(y)``, (n, n)."""

    def features(self, index: Index) -> Real:
        """Those rows as packed vectors, (k, N)."""

    def squared(self) -> Real:
        """About the squared norms of the rows as matrices, (m,)."""

    def gram(self, single: bool) -> tuple[Real, float]:
        """``F H^-1 F*``, (m, m), over a number, and that: not to be changed.

        Whole, or in Fortran order its upper half; in single precision, if that is asked, where
        forming it is what takes the time.
        """

    def normal(self, weights: Real, single: bool) -> Real:
        """``F* diag(weights) F``, packed: its upper triangle, (N, N) in Fortran order."""

    def flops(self) -> tuple[float, float]:
        """Of `gram` and `normal` each with its Cholesky factorisation."""


class PlainCoordinates:
    """All symmetric or Hermitian matrices, as they are, with a quadratic term.

    Parameters
    ----------
    F : Sensing
    hessian : float
        Above 0.
    kept : dict
        Where K is kept from step to step.
    added : float
        How much of `hessian` is regularisation.
    """

    rowwise = True

    def __init__(
        self, F: Sensing, hessian: float, kept: dict[str, Any], added: float = 0.0
    ) -> None:
        self.F, self.hessian, self.added, self._kept = F, hessian, added, kept
        self.m, self.n, self.size, self.dtype = F.m, F.n, F.unknowns, F.dtype

    def pack(self, x: Array) -> Real:
        """All entries."""
        return products.pack(x)

    def unpack(self, x: Real) -> Array:
        """All entries."""
        return products.unpack(x, self.n, self.dtype)

    def forward(self, x: Array) -> Real:
        """``F(x)``."""
        return self.F.forward(x)

    def adjoint(self, y: Real) -> Array:
        """``F*(y)``."""
        return self.F.adjoint(y)

    def features(self, index: Index) -> Real:
        """Some rows, packed."""
        return self.F.only(index).features()

    def squared(self) -> Real:
        """Squared norms."""
        return self.F.sizes**2

    def gram(self, single: bool) -> tuple[Real, float]:
        """K, which is formed once, and ``1/h``."""
        if "K" not in self._kept:
            self._kept["K"] = _gram(self.F)
        return self._kept["K"], 1.0 / self.hessian

    def normal(self, weights: Real, single: bool) -> Real:
        """``F* diag(weights) F``."""
        return self.F.normal(weights, _precision(single))

    def flops(self) -> tuple[float, float]:
        """K is formed once, so by rows it is the factorisation that counts."""
        m, size = float(self.m), float(self.size)
        return cholesky_flops(m), m * size**2 + cholesky_flops(size)


class SeenCoordinates(PlainCoordinates):
    """What the rows see of the symmetric matrices, where nothing but they holds A.

    ``K = L L^T``, pivoted: A is ``F*(z)`` with ``L^T z`` its coordinates, so that F is L. Where
    rows are many and see everything, or see nothing, the coordinates are the entries themselves.
    """

    rowwise = False

    def __init__(self, F: Sensing, hessian: float, kept: dict[str, Any]) -> None:
        super().__init__(F, hessian, kept, hessian)
        if "seen" not in kept:
            kept["seen"] = _seen(F, kept)
        self._seen = kept["seen"]
        if self._seen is not None:
            self.size = int(self._seen[0].shape[1])

    def pack(self, x: Array) -> Real:
        """Of what is seen."""
        if self._seen is None:
            return products.pack(x)
        _, pivots, triangle = self._seen
        return solve_lower(triangle, self.forward(x)[pivots])

    def unpack(self, x: Real) -> Array:
        """The smallest matrix of these coordinates."""
        if self._seen is None:
            return products.unpack(x, self.n, self.dtype)
        L, pivots, triangle = self._seen
        z = np.zeros_like(L, shape=(self.m,))
        z[pivots] = solve_lower_transposed(triangle, x)
        return self.adjoint(z)

    def features(self, index: Index) -> Real:
        """Rows of L."""
        return super().features(index) if self._seen is None else self._seen[0][index]

    def normal(self, weights: Real, single: bool) -> Real:
        """``L^T diag(weights) L``."""
        if self._seen is None:
            first = self._kept.pop("first", None)
            known = first is not None and np.array_equal(first[0], weights)
            if known and first[1].dtype == _precision(single):
                return first[1]
            return super().normal(weights, single)
        L = self._seen[0] * np.sqrt(weights)[:, None]
        return inner_upper(L.astype(_precision(single), copy=False))


def _precision(single: bool) -> type[np.float32] | type[np.float64]:
    return np.float32 if single else np.float64


def _squared_products(V: Array) -> Real:
    """Return ``|<v_i, v_j>|^2``, (m, m)."""
    look()
    if len(V) > MAX_WHOLE_ORDER:
        return squared_moduli(V)
    M = V @ V.conj().T
    return M.real**2 + M.imag**2 if np.iscomplexobj(M) else np.square(M, out=M)


def _gram(F: Sensing) -> Real:
    """Return K, also where there are no rows."""
    return F.gram() if F.m else np.zeros((0, 0))


def _seen(F: Sensing, kept: dict[str, Any]) -> tuple[Real, Index, Real] | None:
    """Return L, its pivots and their rows of it; None where rows see everything, or nothing.

    The first is only found where there are as many rows as unknowns; the second is the case of sums
    over rows that all cancel. Pivots are found by LAPACK, wherever the rows are: once. The normal
    matrix is that of the weights with which a method begins, where these are known, and is kept.
    """
    if F.m >= F.unknowns:
        single = F.unknowns >= MIN_SINGLE_ORDER and not F.waits
        weights = None if F.waits else kept.get("weights")
        for dtype in (np.float32, np.float64) if single else (np.float64,):
            normal = F.normal(weights, dtype)
            if weights is not None:
                kept["first"] = weights, normal.copy(order="F")
            upper, info = factor_upper(normal)
            pivots = np.abs(np.diagonal(upper))
            if info == 0 and bool(np.min(pivots) > MIN_CLEAR_PIVOT[dtype] * np.max(pivots)):
                return None
        kept.pop("first", None)
    K = np.ascontiguousarray(_gram(F))
    tolerance = float(np.max(np.diagonal(K), initial=0.0)) * max(F.m, F.unknowns) * 1e-15
    L, order = pivoted(K, tolerance)
    if not L.shape[1]:
        return None
    pivots = order[: L.shape[1]]
    return F.placed(L), F.placed(pivots), F.placed(L[pivots])


class ScaledCoordinates:
    """Those of a scaling of the cone.

    Parameters
    ----------
    F : Sensing
    G : ndarray, shape (n, n)
        ``A = G x G*``.
    hessian : ndarray, shape (n, n), or 1.0
    """

    added = 0.0
    rowwise = True

    def __init__(self, F: Sensing, G: Array, hessian: Array | float) -> None:
        self.F, self.hessian = F, hessian
        self.m, self.n, self.size, self.dtype = F.m, F.n, F.unknowns, F.dtype
        self.V = project(F, G)

    def pack(self, x: Array) -> Real:
        """All entries."""
        return products.pack(x)

    def unpack(self, x: Real) -> Array:
        """All entries."""
        return products.unpack(x, self.n, self.dtype)

    def forward(self, x: Array) -> Real:
        """``F(x)``."""
        return self.F.mixed(products.forward(self.V, x))

    def adjoint(self, y: Real) -> Array:
        """``F*(y)``."""
        return products.adjoint(self.V, self.F.unmixed(y))

    def features(self, index: Index) -> Real:
        """Some rows, packed."""
        if self.F.rank_one:
            return products.features(self.V[index])
        W = self.F.weights[index]
        used = np.flatnonzero(np.asarray((W != 0).sum(axis=0)))
        total = np.zeros((index.size, self.size))
        for first in range(0, used.size, FEATURE_ROWS):
            look()
            some = used[first : first + FEATURE_ROWS]
            total += W[:, some] @ products.features(self.V[some])
        return total

    def squared(self) -> Real:
        """Squared norms, or what they are at most where rows are sums."""
        if not self.F.rank_one:
            return np.asarray(abs(self.F.weights) @ squares(self.V)) ** 2
        return squares(self.V) ** 2

    @cached_property
    def _diagonal(self) -> Real | None:
        """The Hessian as a packed vector, where it is none of the identity."""
        if isinstance(self.hessian, float):
            return None
        return products.entries(self.hessian, np.iscomplexobj(self.V))

    def gram(self, single: bool) -> tuple[Real, float]:
        """``F H^-1 F*``, where H is the identity ``|<v_i, v_j>|^2``."""
        if self._diagonal is not None:
            return self._weighed_gram(1.0 / np.sqrt(self._diagonal), single), 1.0
        M = _squared_products(self.V)
        if not self.F.rank_one:
            M = np.ascontiguousarray(self.F.mixed(np.ascontiguousarray(self.F.mixed(M).T)))
        return M, 1.0

    def _weighed_gram(self, scales: Real, single: bool) -> Any:
        """Upper triangle of the Gram matrix of packed rows, some entries at a time.

        Entries are times `scales`.
        """
        rows = self.features(np.arange(self.m))
        rows = rows if waits(rows) else np.asfortranarray(rows)
        M = np.zeros_like(rows, shape=(self.m, self.m), order="F", dtype=_precision(single))
        width = max(1, int(BLOCK_FLOPS / max(1.0, float(self.m) ** 2)))
        for first in range(0, self.size if self.m else 0, width):
            look()
            part = slice(first, first + width)
            M = add_inner(M, (rows[:, part] * scales[part]).astype(M.dtype, copy=False).T)
        return M

    def normal(self, weights: Real, single: bool) -> Real:
        """``F* diag(weights) F``, some rows at a time."""
        roots, dtype = np.sqrt(weights), _precision(single)
        size = max(1, DEVICE_ENTRIES // self.size) if waits(self.V) else FEATURE_ROWS

        def parts() -> Iterator[Array]:
            for first in range(0, self.m, size):
                look()
                last = min(first + size, self.m)
                part = slice(first, last)
                if not self.F.rank_one:
                    some = self.features(np.arange(first, last)) * roots[part, None]
                    yield np.asfortranarray(some, dtype=dtype)
                else:
                    yield products.features(self.V[part] * np.sqrt(roots[part])[:, None], dtype)

        return products.summed_products(parts(), self.size, dtype)

    def flops(self) -> tuple[float, float]:
        """By rows with or without a quadratic term."""
        m, size = float(max(self.m, len(self.V))), float(self.size)
        width = float(self.n) if isinstance(self.hessian, float) else size
        return m * m * width + cholesky_flops(m), m * size**2 + cholesky_flops(size)


def reach(values: Any, change: Any, axis: tuple[int, ...] | None = None) -> Any:
    """Return the longest step along a change that leaves no value negative; infinite without one.

    It stays where the values are. For a matrix these are 1 and the eigenvalues of the change in
    coordinates in which the matrix is the identity.

    Parameters
    ----------
    values : array or number
        Not negative.
    change : array or number
    axis : tuple of int, optional
        Axes of which each step is the longest; all of them by default.
    """
    falls = change < 0.0
    with np.errstate(over="ignore"):  # then the step is not limited
        lengths = np.where(falls, -values / np.where(falls, change, -1.0), np.inf)
    return np.min(lengths, axis=axis, initial=np.inf)


# --- factors: X (n, k) of A = X X*, which is positive semidefinite whatever the rounding ----------


def project(F: Sensing, X: Array) -> Array:
    """Return P (m, k) with rows ``X* u_i``, so that ``F(X X*)_i = sum_j |P_ij|^2``.

    Where readings are sums of rows, those of the rows: see `Mixed`.
    """
    P = F.raw.times(X)
    return np.conj(P, out=P if P.flags.writeable else None) if F.is_complex else P


def squares(P: Array) -> Real:
    """Return the squared norm of each row."""
    return np.vecdot(P, P).real


def forward_error(F: Sensing, X: Array) -> float:
    """Return a bound on the rounding error of every entry of ``F(X X*)``, from X.

    Notes
    -----
    An inner product of length n is off by at most ``gamma_n ||u|| ||x||`` [Higham 2002, 3.5], so a
    sum of k squares by ``(2 gamma_n + gamma_{k+2}) ||u||^2 ||X||_F^2`` to first order; complex
    arithmetic costs a factor below 3. Twice the sum covers the second order.
    """
    n, k = X.shape
    largest = float(np.max(F.masses, initial=0.0))
    length = 2 * n + k + 4 + F.sum_terms(12)
    growth = (3.0 if F.is_complex else 1.0) * length * EPS + 2.0 * F.rounding
    return float(2.0 * growth * largest * np.vdot(X, X).real)


@or_there(algebra.cholesky)
def cholesky(B: Array) -> Array | None:
    """Return L with ``B = L L*``, or None where B is not positive definite."""
    factor, info = (lapack.zpotrf if np.iscomplexobj(B) else lapack.dpotrf)(B, lower=1)
    # LAPACK may take a matrix with a NaN for definite.
    return factor if info == 0 and bool(np.all(np.isfinite(np.diagonal(factor)))) else None


def positive_part(B: Array) -> tuple[Array, Any]:
    """Return a factor of the positive part of a Hermitian B, and, where it is, half its square.

    A matrix that has a Cholesky factor is its own positive part, at a twentieth of the cost.
    """
    factor = cholesky(B)
    if factor is not None:
        return factor, 0.5 * scalar(np.vdot(B, B).real)
    look(eigen_flops(len(B)))
    values, vectors = np.linalg.eigh(B)
    first = len(values) - int(np.count_nonzero(values > 0))  # they come in order
    kept, columns = values[first:], vectors.T[first:].copy().T  # one after the other in memory
    return columns * np.sqrt(kept), 0.5 * scalar(np.sum(kept**2))
