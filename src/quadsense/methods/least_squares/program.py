"""A question of least squares, brought to numbers of about 1: where A may lie, its cost, its ends.

Matrices are packed vectors: any symmetric ones, positive semidefinite ones, also of a given trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from quadsense.arrays import Vector, to_numpy
from quadsense.core import products as packing
from quadsense.core.cholesky import symmetric, symmetric_product
from quadsense.core.intervals import UNIT, ZERO_SHARE, Intervals
from quadsense.core.products import summed_products
from quadsense.core.question import Question
from quadsense.core.records import cached_property, record
from quadsense.core.sums import SPARE
from quadsense.device import numbers, waits
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import Problem
from quadsense.methods.least_squares import MAX_FORMED_UNKNOWNS, TYPICAL_STEPS
from quadsense.system.watch import eigen_flops, look, real_flops

Array = npt.NDArray[Any]

LARGE_FLOPS = 1e9
"""Operations of forming the normal matrix from which on single precision saves what it costs."""

MAX_FEATURES = 100_000
"""Entries of F, packed, up to which it is formed: products with it are made by one call each."""

LANCZOS_STEPS = 24
"""Steps of the estimate of the largest eigenvalue; its residual makes a bound of it."""

SQRT_HALF = float(np.sqrt(0.5))  # so that the norms agree


class _Form(NamedTuple):
    """How matrices of an order are packing.

    Attributes
    ----------
    places : ndarray of int, shape (N,)
        Where the packed numbers are among those of the upper triangle, by rows, in memory.
    scales, lower_scales : ndarray of shape (N,)
        What the entries are multiplied by to be packed, and what packed numbers are multiplied by
        for the lower triangle by columns.
    """

    places: npt.NDArray[np.intp]
    scales: Vector
    lower_scales: Vector


@lru_cache(maxsize=packing.KEPT_ORDERS)  # many solves of one order
def _form_of(n: int, is_complex: bool) -> _Form:
    size = packing.size_of(n, is_complex)
    j, k = np.triu_indices(n, 1)
    diagonal, above = (n + 1) * np.arange(n), n * j + k
    places = [2 * diagonal, 2 * above, 2 * above + 1] if is_complex else [diagonal, above]
    scales, lower = np.full(size, packing.SQRT2), np.full(size, SQRT_HALF)
    scales[:n] = lower[:n] = 1.0
    if is_complex:
        lower[n * (n + 1) // 2 :] *= -1.0
    return _Form(np.concatenate(places), scales, lower)


@record(frozen=True)
class LeastSquaresCone:
    """The matrices that may be the answer.

    Attributes
    ----------
    n : int
    is_complex, psd : bool
    trace : float or None
        What the trace must be, where it is known and `psd`.
    placed : callable
        Puts arrays where the rows live.
    on_device : bool
        Whether packed vectors are on a device, where a look at a number waits.
    """

    n: int
    is_complex: bool
    psd: bool
    trace: float | None = None
    placed: Callable[[Any], Any] = field(default=np.asarray, compare=False)
    on_device: bool = False

    @cached_property
    def dtype(self) -> npt.DTypeLike:
        """Of a matrix."""
        return np.complex128 if self.is_complex else np.float64

    @cached_property
    def _form(self) -> _Form:
        """How numbers are packing."""
        return _form_of(self.n, self.is_complex)

    @cached_property
    def identity(self) -> Vector:
        """I, packing."""
        return self.placed(np.concatenate([np.ones(self.n), np.zeros(self.size - self.n)]))

    @cached_property
    def size(self) -> int:
        """Real unknowns."""
        return packing.size_of(self.n, self.is_complex)

    @property
    def rounding(self) -> float:
        """About what rounding makes of a product of matrices of this order, relatively."""
        return (self.n + SPARE) * UNIT

    @cached_property
    def flops(self) -> float:
        """Operations of a projection."""
        return real_flops(self.is_complex) * eigen_flops(self.n)

    def pack(self, A: Array) -> Vector:
        """As `packing.pack` does; of several matrices, (..., n, n), each."""
        if waits(A):  # what is small is made here, wherever the rows are
            return packing.pack(A)
        numbers = np.ascontiguousarray(A).reshape(*A.shape[:-2], -1).view(np.float64)
        return np.asarray(numbers[..., self._form.places] * self._form.scales)

    def unpack(self, x: Vector) -> Array:
        """As `packing.unpack` does."""
        if self.on_device:
            return packing.unpack(x, self.n, self.dtype)
        A = self._triangle(x)
        A = A + A.conj().T
        A.flat[:: self.n + 1] *= 0.5
        return A

    def _triangle(self, x: Vector) -> Array:
        """The lower triangle in Fortran order, zeros above: what LAPACK reads."""
        A = np.zeros((self.n, self.n), self.dtype)
        A.reshape(-1).view(np.float64)[self._form.places] = self._form.lower_scales * x
        return A.T

    def eigenvalues(self, x: Vector) -> Vector:
        """In ascending order."""
        return self._decomposed(x, False)[0]

    def eigen(self, x: Vector) -> tuple[Vector, Array]:
        """Eigenvalues in ascending order, and their vectors."""
        return self._decomposed(x, True)

    def _decomposed(self, x: Vector, vectors: bool) -> tuple[Vector, Array]:
        return self._solved(self.unpack(x) if self.on_device else self._triangle(x), vectors)

    def spectrum(self, A: Array) -> Vector:
        """Eigenvalues of a matrix like these, of this order or a smaller one."""
        return self._solved(A, False)[0]

    def _solved(self, A: Array, vectors: bool) -> tuple[Vector, Array]:
        """Eigenvalues of the lower triangle, and vectors; it may be overwritten."""
        look(0.0 if self.on_device else self.flops)  # which says nothing of a device
        if self.on_device:
            return _on_device(A, vectors)
        solve = lapack.zheevd if self.is_complex else lapack.dsyevd
        values, V, info = solve(A, lower=1, compute_v=int(vectors), overwrite_a=1)
        if info != 0:  # no number among the entries
            return np.full(len(A), np.nan), np.full(A.shape, np.nan, self.dtype)
        return values, V

    def factor(self, x: Vector) -> Array:
        """X of ``X X*``, the nearest member of the cone."""
        kept, V = self._kept(x)
        first = self.n - int(np.count_nonzero(kept > 0.0))  # they ascend
        if first == self.n:
            return np.zeros_like(V, shape=(self.n, 1))
        return V[:, first:] * np.sqrt(kept[first:])

    def _kept(self, x: Vector) -> tuple[Vector, Array]:
        """Eigenvalues of the nearest member, ascending, and their vectors."""
        values, V = self.eigen(x)
        return self._moved(values), V

    def _moved(self, values: Vector) -> Vector:
        """Eigenvalues of the nearest member."""
        if self.trace is None:
            return np.maximum(values, 0.0)
        return np.maximum(values - _level(values, self.trace), 0.0)

    def project(self, x: Vector) -> Vector:
        """The nearest member of the cone."""
        if not self.psd:
            return x
        if self.on_device:  # nothing is waited for, though zeros are multiplied
            kept, V = self._kept(x)
            X = V * np.sqrt(kept)
        else:
            X = self.factor(x)
        return self.pack(X @ X.conj().T)


def _on_device(A: Array, vectors: bool) -> tuple[Vector, Array]:
    """Eigenvalues, and vectors where they are asked for; NaN where A has such entries."""
    try:
        return np.linalg.eigh(A) if vectors else (np.linalg.eigvalsh(A), A)
    except np.linalg.LinAlgError:
        return np.full_like(A, np.nan, shape=len(A), dtype=np.float64), np.full_like(A, np.nan)


def _level(values: Vector, total: float) -> Any:
    """The number whose excesses over it add up to `total`, not negative.

    Of the largest k the level is ``(sum - total)/k``: it rises as long as the next one is above.
    """
    counts = np.cumsum(np.ones_like(values))
    return ((np.cumsum(values[::-1]) - total) / counts).max()


# --- the cost -------------------------------------------------------------------------------------


@record(frozen=True)
class QuadraticPoint:
    """A matrix with what was evaluated there from the rows themselves.

    Attributes
    ----------
    x : ndarray of shape (N,)
    values : ndarray of shape (m,)
        ``F(A)``.
    cost : float
    slope : ndarray of shape (N,)
        Half the gradient.
    """

    x: Vector
    values: Vector
    cost: float
    slope: Vector


@record(frozen=True)
class Quadratic:
    """The cost, by its normal matrix where that is formed, else by products with F.

    Attributes
    ----------
    F : Sensing
    cone : LeastSquaresCone
    w, b : ndarray of shape (m,)
    alpha : float
    p : ndarray of shape (N,)
        P.
    """

    F: Sensing
    cone: LeastSquaresCone
    w: Vector
    b: Vector
    alpha: float
    p: Vector

    @property
    def product_flops(self) -> float:
        """Operations of a product with all rows."""
        return 2.0 * real_flops(self.F.is_complex) * self.F.raw.m * float(self.F.n) ** 2

    @cached_property
    def whole(self) -> Array | None:
        """F on packed matrices, (m, N), where it is small; NumPy's, so not on a device."""
        small = self.F.m * self.cone.size <= MAX_FEATURES and not waits(self.w)
        return self.F.features() if small else None

    def read(self, x: Vector) -> Vector:
        """``F(A)``."""
        if self.whole is not None:
            return np.asarray(self.whole @ x)
        return self.F.forward(self.cone.unpack(x))

    def sum_up(self, y: Vector) -> Vector:
        """``F*(y)``, packed."""
        if self.whole is not None:
            return np.asarray(y @ self.whole)
        return self.cone.pack(self.F.adjoint(y))

    def features(self, rows: npt.NDArray[np.int64]) -> Array:
        """F of those rows on packed matrices, (k, N)."""
        if self.whole is not None:
            return self.whole[rows]
        found = self.F.only(rows).features()
        return found if waits(found) else np.ascontiguousarray(found)

    @cached_property
    def formed(self) -> bool:
        """Whether the normal matrix is formed: where the steps cost more without it."""
        size = float(self.cone.size)
        return (
            size <= MAX_FORMED_UNKNOWNS
            and self.F.m * size <= 2.0 * TYPICAL_STEPS * self.product_flops / size
        )

    @cached_property
    def H(self) -> Array:
        """``F* diag(w) F``, its upper triangle; whole on a device."""
        return self._normal(np.float64)

    @cached_property
    def quick(self) -> Array:
        """The same for steps that are corrected later on: in single precision where that pays.

        On a device it does not (see `Tensors`).
        """
        large = self.F.m * float(self.cone.size) ** 2 >= LARGE_FLOPS
        single = large and not waits(self.w)
        return self._normal(np.float32) if single else self.H

    def _normal(self, dtype: npt.DTypeLike) -> Array:
        if self.whole is not None:
            weighed = np.sqrt(self.w)[:, None] * self.whole
            return summed_products((weighed,), self.cone.size, dtype)
        kept = np.flatnonzero(self.w)
        rows = self.F if kept.size == self.w.size else self.F.only(kept)
        rows, factors = single_rows(rows)
        weights = self.w if kept.size == self.w.size else self.w[kept]
        return symmetric(rows.normal(weights * factors, dtype))

    def point(self, x: Vector) -> QuadraticPoint:
        """What x costs, and its slope, from the rows."""
        values = self.read(x)
        away = x - self.p
        errors = np.where(self.w == 0.0, 0.0, values - self.b)
        pull = self.w * errors
        missed, distance = numbers(pull @ errors, away @ away)
        slope = self.sum_up(pull) + self.alpha * away
        return QuadraticPoint(x, values, missed + self.alpha * distance, slope)

    def apply(self, d: Vector) -> Vector:
        """Half the second derivative times d."""
        if self.formed:
            look(2.0 * d.size * d.size)
            H = self.quick
            if H.dtype == np.float64:
                return symmetric_product(H, d) + self.alpha * d
            size = float(np.abs(d).max(initial=0.0)) or 1.0
            image = symmetric_product(H, (d / size).astype(np.float32))
            return size * image.astype(np.float64) + self.alpha * d
        look(2.0 * self.product_flops)
        return self.sum_up(self.w * self.read(d)) + self.alpha * d

    def ends(self) -> tuple[float, float]:
        """About the least eigenvalue that matters, and a bound on the largest one.

        Where the trace is fixed, of the part across the identity: no step goes along it.
        """
        flat = self.cone.identity / np.sqrt(self.cone.n) if self.cone.trace is not None else None

        def across(v: Vector) -> Vector:
            return v if flat is None else v - (flat @ v) * flat

        first = np.random.default_rng(0).standard_normal(self.cone.size)
        v = across(self.cone.placed(first))
        if not v.any():
            return 0.0, 0.0
        steps = min(LANCZOS_STEPS, self.cone.size)
        basis = np.empty_like(v, shape=(steps + 1, v.size))
        basis[0] = v / np.linalg.norm(v)
        diagonal: list[float] = []
        beside: list[float] = []
        for k in range(steps):
            image = across(self.apply(basis[k]))
            diagonal.append(float(basis[k] @ image))
            known = basis[: k + 1]
            for _ in range(2):  # once leaves traces of what was there
                image = image - (known @ image) @ known
            beside.append(float(np.linalg.norm(image)))
            if beside[-1] <= ZERO_SHARE * max(map(abs, diagonal)):
                break
            basis[k + 1] = image / beside[-1]
        T = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
        values, vectors = np.linalg.eigh(T)
        rest = beside[-1] * abs(float(vectors[-1, -1]))
        return float(values[0]), float(values[-1]) + rest


def single_rows(F: Sensing) -> tuple[Sensing, Any]:
    """Where every reading is a multiple of one row's, those rows, and the squares of the multiples.

    Constraints make sums of all readings, most of which have one term: rows are quicker.
    """
    W = getattr(F, "weights", None)
    if W is None or not hasattr(W, "indptr") or not (np.diff(W.indptr) == 1).all():
        return F, 1.0
    return F.raw.only(W.indices.astype(np.int64)), W.data**2


Rows = npt.NDArray[np.int64]

NONE: Rows = np.empty(0, np.int64)


MAX_TRACE_ERROR = 1e-12
"""Distance from a multiple of the identity, relative to its norm, that is rounding."""


@record(frozen=True)
class SquaresProgram:
    """The question over powers of two: readings, weights and A are of the size of 1.

    Attributes
    ----------
    problem : Problem
    question : Question
        As asked, on the unit rows.
    cost : Quadratic
    lo, hi : ndarray of shape (m,)
        Intervals; infinite for the row of the trace where the cone has it.
    ends : Intervals
        Those of the problem, where the rows live.
    trace_row : int or None
        That row.
    scale, weight : float
        What readings, and A, and what weights were divided by.
    memory : dict
        Factors of what a state needs again and again, made anew where a run is taken up.
    """

    problem: Problem
    question: Question
    cost: Quadratic
    lo: Vector
    hi: Vector
    ends: Intervals
    trace_row: int | None
    scale: float
    weight: float
    memory: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def cone(self) -> LeastSquaresCone:
        """Where A may lie."""
        return self.cost.cone

    @cached_property
    def F(self) -> Sensing:
        """The unit rows, for steps."""
        return self.cost.F

    @cached_property
    def _ends(self) -> tuple[float, float]:
        return self.cost.ends()

    @property
    def L(self) -> float:
        """Bound on the largest eigenvalue of the normal matrix, and not 0."""
        return self._ends[1] or 1.0

    @property
    def least(self) -> float:
        """About its least eigenvalue."""
        return self._ends[0]

    @cached_property
    def nothing(self) -> float:
        """What A = 0 costs."""
        cost = self.cost
        return float(cost.w @ cost.b**2) + cost.alpha * float(cost.p @ cost.p)

    @cached_property
    def pull(self) -> float:
        """Half the size of the gradient there."""
        cost = self.cost
        return float(np.linalg.norm(cost.sum_up(cost.w * cost.b) + cost.alpha * cost.p))

    @property
    def unit(self) -> float:
        """What a cost is times, in the user's scale."""
        return self.weight * self.scale * self.scale


def prepare(
    problem: Problem, nearest: bool = False, work: Callable[[Sensing], Any] | None = None
) -> SquaresProgram | None:
    """The program; None where the question has other terms than squares, or asks for nothing.

    With `nearest` that of the squares that are nearest to other terms (`RowTerm.nearest_squares`).
    `work` returns rows by whose products the steps go, in place of `Sensing.at_work`.
    """
    question = problem.question
    if question is None or not (nearest or question.term.squares):
        return None
    squares = question.term.nearest_squares(question)
    if squares is None:
        return None
    if question.log_det or question.linear:
        return None
    F = problem.rows.at_work() if work is None else work(problem.rows)
    there = F.waits
    whole = problem.rows.on_numpy() if there else F
    weights, hard = squares, bool(question.hard.any())
    if hard or problem.rows.has_zero_rows:
        weights = np.where(question.hard, 0.0, weights)
        weights = weights * (to_numpy(problem.rows.nonzero) > 0.0)
    alpha = float(question.alpha)
    largest = max(float(weights.max(initial=0.0)), alpha)
    if not (0.0 < largest < np.inf):
        return None
    weight = power_of_four(largest)
    weights, alpha = weights / weight, alpha / weight
    scale = _scale(question, weights, alpha)
    b = np.where(weights > 0.0, question.reading, 0.0) / scale
    lo, hi = question.lo / scale, question.hi / scale
    if nearest:  # ends are part of what readings cost
        lo, hi = np.where(question.hard, lo, -np.inf), np.where(question.hard, hi, np.inf)
    row = trace_row(whole, question) if question.psd and hard else None
    trace = None
    if row is not None:
        trace = float(lo[row]) * F.n / float(whole.squares[row])
        if trace < 0.0:
            return None
        lo, hi = lo.copy(), hi.copy()
        lo[row], hi[row] = -np.inf, np.inf
    cone = LeastSquaresCone(F.n, F.is_complex, question.psd, trace, F.placed, there)
    p = packed(cone, question.prior) / scale if alpha else np.zeros_like(cone.identity)
    weights, b, lo, hi = map(F.placed, (weights, b, lo, hi))
    cost = Quadratic(F, cone, weights, b, alpha, p)
    ends = problem.ends.each(F.placed) if there else problem.ends
    return SquaresProgram(problem, question, cost, lo, hi, ends, row, scale, weight)


def power_of_four(value: float) -> float:
    """The power of four nearest to a number from below: so that roots are exact too."""
    return math.ldexp(1.0, 2 * ((math.frexp(value)[1] - 1) // 2))


def _scale(question: Question, weights: Vector, alpha: float) -> float:
    """Size of what A is to read: of readings that count, equalities and the prior."""
    sizes = [np.abs(question.reading[weights > 0.0]), np.abs(question.lo[question.equal])]
    if alpha:
        sizes.append(np.abs(np.asarray(question.prior)).ravel())
    largest = float(max(size.max(initial=0.0) for size in sizes))
    if largest == 0.0:
        ends = np.concatenate([question.lo, question.hi])
        largest = float(np.max(np.abs(ends), where=np.isfinite(ends), initial=0.0))
    return power_of_four(largest) if 0.0 < largest < np.inf else 1.0


def packed(cone: LeastSquaresCone, P: Any) -> Vector:
    """A matrix, or a number for a multiple of I, packed."""
    if np.ndim(P) == 0:
        return float(P) * cone.identity
    return cone.pack(cone.placed(np.asarray(P, cone.dtype)))


def trace_row(F: Sensing, question: Question) -> int | None:
    """The equality that fixes the trace, if there is one.

    Of all matrices of norm 1 only multiples of the identity have a trace of sqrt(n) in modulus.
    """
    traces = np.abs(np.asarray(F.squares)) / np.sqrt(F.n)
    for row in np.flatnonzero(question.equal & question.hard & (traces > 1.0 - 1e-9)):
        only = np.zeros(F.m)
        only[row] = 1.0
        M = np.asarray(F.adjoint(only))
        level = float(F.squares[row]) / F.n
        distance = float(np.linalg.norm(M - level * np.eye(F.n)))
        if distance <= MAX_TRACE_ERROR * abs(level) * np.sqrt(F.n):
            return int(row)
    return None
