"""Least squares by the normal equations, with rows held at ends that bind, and the cone by cuts.

Cuts are for few unknowns. In coordinates in which the normal matrix is the identity the problem is
to find the nearest point to least squares without cone and intervals. A matrix with a negative
eigenvalue of eigenvector q is cut off by ``q* A q >= 0``, which is one more row for the active set.
Where few eigenvalues become zero some rounds of cuts bring A into the cone to some digits, and show
its rank and which intervals are active; the rest is for Newton's method (see `face`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack, qr, solve_triangular, svd

from quadsense.arrays import Vector
from quadsense.core.cholesky import add_to_diagonal, factor_upper, solve_upper
from quadsense.core.intervals import UNIT
from quadsense.core.records import record
from quadsense.core.sums import ROUNDINGS
from quadsense.device import chosen, scalar, waits
from quadsense.methods.active_set import nearest_within
from quadsense.methods.base import DEVICE_STEPS_PER_LOOK, MAX_REFINEMENTS, SHORT_STRIDE_FLOPS
from quadsense.methods.least_squares import FEW_UNKNOWNS
from quadsense.methods.least_squares.bounds import (
    INWARD_SHARE,
    MAX_EXACT_COST,
    MIN_COST_SHARE,
    NOISE_ROUNDINGS,
)
from quadsense.methods.least_squares.program import (
    NONE,
    QuadraticPoint,
    Rows,
    SquaresProgram,
)
from quadsense.system.watch import eigen_flops, look

Array = npt.NDArray[Any]

MAX_NEGATIVE = 2
"""Negative eigenvalues without the cone up to which cuts are tried: with more, the curvature of its
boundary takes many of them."""

MAX_NEGATIVE_PART = 1e-10
"""Norm of the negative part of A, relative to the norm of A, that is left to that projection."""


class CutMinimizer(NamedTuple):
    """A factor X of A, and the rows at their bounds with their multipliers."""

    X: Array
    rows: Rows
    mu: Vector


def cut_minimizer(program: SquaresProgram, R: Array, least: Vector) -> CutMinimizer | None:
    """Return about the minimizer over the cone and within intervals; None if cuts find none.

    Parameters
    ----------
    program : SquaresProgram
    R : ndarray of shape (N, N)
        Upper Cholesky factor of ``H + alpha I``.
    least : ndarray of shape (N,)
        The minimizer without cone and intervals.
    """
    cone, G = program.cone, program.cost.whole
    if G is None or not _is_served(program, R):
        return None
    eigenvalues, V = cone.eigen(least)
    if np.count_nonzero(eigenvalues < 0.0) > MAX_NEGATIVE:
        return None
    lo, hi = program.lo, program.hi
    inverse, info = lapack.dtrtri(R)
    values, cost = G @ least, program.cost
    if info != 0 or float(cost.w @ (values - cost.b) ** 2) <= MIN_COST_SHARE * program.nothing:
        return None
    half = np.minimum(0.5 * (hi - lo), 1.0)
    lo, hi = lo + INWARD_SHARE * half - values, hi - INWARD_SHARE * half - values
    enough = min(MAX_NEGATIVE_PART, 0.5 * INWARD_SHARE * float(half.min()))

    def cuts(v: Vector) -> tuple[Array, Vector] | None:
        nonlocal eigenvalues, V
        eigenvalues, V = cone.eigen(least + inverse @ v)
        negative = eigenvalues < 0.0
        size = max(float(np.linalg.norm(eigenvalues)), 1.0)
        if float(np.linalg.norm(eigenvalues[negative])) <= enough * size:
            return None
        q = V[:, negative].T
        rows = cone.pack(q[:, :, None] * q[:, None, :].conj())
        return rows @ inverse, -rows @ least

    found = nearest_within(
        G @ inverse, lo, hi, np.zeros(least.size), 0.5 * INWARD_SHARE * half, cuts
    )
    if found is None:
        return None
    _, u = found
    values = eigenvalues  # where cuts were last asked for, which is at the point found
    rank = int(np.count_nonzero(values > abs(float(values[0])))) if values[0] < 0.0 else cone.n
    if rank == 0:
        return None
    rows = np.flatnonzero(u[: len(G)])
    return CutMinimizer(V[:, -rank:] * np.sqrt(values[-rank:]), rows, -2.0 * u[rows])


def _is_served(program: SquaresProgram, R: Array) -> bool:
    """Return whether the problem is small, and has neither equalities nor a fixed trace."""
    cone = program.cone
    small = cone.size <= FEW_UNKNOWNS and R.dtype == np.float64
    return small and cone.trace is None and bool((program.lo < program.hi).all())


MAX_EXCHANGES = 60
"""Sets of ends that are tried: seen 2 to 9, and what has not settled by then goes round."""

MIN_PIVOT_SHARE = 1e-4
"""Least pivot of their factor, to the largest, below which normal equations are not trusted."""

MIN_CLEAR_PIVOT = {"d": 1e-8, "f": 1e-4}
"""Least pivot at which the rows surely see everything, in units of their number times the largest
weight: with that for all, no pivot is smaller, and their sum is at most this unit."""


@record(frozen=True)
class HeldRows:
    """A solution, the rows at an end, and their multipliers."""

    point: QuadraticPoint
    rows: Rows
    mu: Vector
    settled: bool


@dataclass(frozen=True)
class Orthogonal:
    """``diag(roots) F = Q R`` of the rows that count: H is ``R^T R``, of half the digits lost.

    Small, and NumPy's wherever the rows are.
    """

    R: Array
    Q: Array
    rows: Rows
    roots: Vector

    @classmethod
    def of(cls, program: SquaresProgram) -> Orthogonal | None:
        """None where it costs too much, or where rows do not see everything."""
        size, found = program.cost.cone.size, _weighed(program)
        if found is None or found[0].size < size:
            return None
        rows, roots, J = found
        Q, R = qr(J, mode="economic", check_finite=False)
        pivots = np.abs(R.diagonal())
        if float(pivots.min()) <= NOISE_ROUNDINGS * size * UNIT * float(pivots.max()):
            return None
        return cls(R, Q, rows, roots)


def _weighed(program: SquaresProgram) -> tuple[Rows, Vector, Array] | None:
    """The rows that count, the roots of their weights, and these times F; None where too many.

    NumPy's, for SciPy.
    """
    cost = program.cost
    rows = np.flatnonzero(cost.w)
    if cost.alpha or 2.0 * rows.size * float(cost.cone.size) ** 2 > SHORT_STRIDE_FLOPS:
        return None
    look(SHORT_STRIDE_FLOPS)
    roots = np.sqrt(np.asarray(cost.w)[rows])
    return rows, roots, np.asarray(program.cost.features(rows)) * roots[:, None]


def smallest(program: SquaresProgram, point: QuadraticPoint) -> HeldRows | None:
    """The least squares nearest to a point where rows do not see everything; None as above.

    Only where that is within all ends.
    """
    found = _weighed(program)
    if found is None or not found[0].size:
        return None
    rows, roots, J = found
    left, values, right = svd(J, full_matrices=False, check_finite=False)
    seen = values > NOISE_ROUNDINGS * max(J.shape) * UNIT * values[0]
    left, values, right = left[:, seen], values[seen], right[seen]
    for _ in range(MAX_REFINEMENTS):
        errors = roots * np.asarray(point.values - program.cost.b)[rows]
        point = program.cost.point(point.x - right.T @ ((left.T @ errors) / values))
    if ((point.values < program.lo) | (point.values > program.hi)).any():
        return None
    return HeldRows(point, NONE, np.empty(0), True)


def factored(program: SquaresProgram, quick: bool = False) -> Array | None:
    """Cholesky factor of ``H + alpha I``; None where that is singular or not formed.

    With `quick` of whichever precision is at hand.
    """
    cost = program.cost
    if not cost.formed or (cost.F.m < cost.cone.size and cost.alpha == 0.0):
        return None
    M = (cost.quick if quick else cost.H).copy(order="F")
    add_to_diagonal(M, cost.alpha)
    R, info = factor_upper(M)
    pivots = np.abs(R.diagonal()) ** 2
    unit = 0.5 * float(np.finfo(M.dtype).eps)
    if info != 0 or float(pivots.min()) <= NOISE_ROUNDINGS * len(M) * unit * float(pivots.max()):
        return None
    largest = float(cost.w.max()) * cost.F.m
    if cost.alpha == 0.0 and float(pivots.min()) > MIN_CLEAR_PIVOT[M.dtype.char] * largest:
        program.problem.rows.known_rank = program.problem.rows.unknowns
    return R


def is_poor(R: Array) -> bool:
    """Whether normal equations have lost half their digits or more."""
    pivots = np.abs(R.diagonal())
    return bool(pivots.min() < MIN_PIVOT_SHARE * pivots.max())


def nearly(program: SquaresProgram, R: Array, point: QuadraticPoint) -> Vector:
    """The minimiser for a start: by one solve unless it fits, so that others make that exact."""
    away = solved(R, point.slope)
    left = point.cost - float(point.slope @ away)
    if left > MAX_EXACT_COST * max(program.nothing, point.cost):
        return point.x - away
    return newton(program, R, point, NONE, np.empty(0)).point.x


def newton(
    program: SquaresProgram,
    by: Array | Orthogonal,
    point: QuadraticPoint,
    rows: Rows,
    targets: Vector,
) -> HeldRows:
    """The minimiser with those readings equal to targets."""
    J = (
        program.cost.features(rows)
        if rows.size
        else np.zeros_like(point.x, shape=(0, point.x.size))
    )
    if isinstance(by, Orthogonal):
        R, J = by.R, np.asarray(J)
    else:
        R = by
    W = solved(R, J.T) if rows.size else J.T
    S = J @ W
    mu = np.zeros(rows.size)
    for _ in range(MAX_REFINEMENTS):
        away = _away(program, by, point, 0.5 * (J.T @ mu))
        if rows.size:
            look(2.0 * eigen_flops(rows.size))
            missing = targets - point.values[rows] + J @ away
            change = -2.0 * np.linalg.lstsq(S, missing)[0]
            mu = mu + change
            away = away + 0.5 * (W @ change)
        elif _is_nothing(away, point.x):
            break
        point = program.cost.point(point.x - away)
    return HeldRows(point, rows, mu, True)


def _is_nothing(away: Vector, x: Vector) -> bool:
    """Whether a correction is rounding; not asked of a device, which would be waited for."""
    if waits(away):
        return False
    return float(np.abs(away).max()) <= ROUNDINGS * float(np.abs(x).max())


def _away(
    program: SquaresProgram, by: Array | Orthogonal, point: QuadraticPoint, push: Vector
) -> Vector:
    """``H^-1 (slope + push)``."""
    if not isinstance(by, Orthogonal):
        return solved(by, point.slope + push)
    errors = by.roots * np.asarray(point.values - program.cost.b)[by.rows]
    half = by.Q.T @ errors + solve_triangular(by.R, push, trans=1, check_finite=False)
    return np.asarray(solve_triangular(by.R, half, check_finite=False))


def solved(R: Array, right: Array) -> Array:
    """``R^-1 R^-T right``."""
    if R.dtype == np.float64:
        return solve_upper(R, right)
    size = float(np.abs(right).max(initial=0.0)) or 1.0
    found = lapack.spotrs(R, (right / size).astype(np.float32), lower=0)[0]
    return size * found.astype(np.float64)


def of_trace(program: SquaresProgram, R: Array, x: Vector) -> Vector:
    """The minimiser x moved to the least cost of the trace that is asked for."""
    if program.cone.trace is None:
        return x
    one = program.cone.identity
    along = solved(R, one)
    return x + (program.cone.trace - float(one @ x)) / float(one @ along) * along


def with_ends(
    program: SquaresProgram,
    by: Array | Orthogonal,
    point: QuadraticPoint,
    lo: Vector,
    hi: Vector,
) -> HeldRows:
    """The minimiser within the intervals: rows enter at ends they cross, leave where they pull.

    The primal-dual active set method [Hintermueller et al. 2002].
    """
    equal = lo == hi
    side = np.zeros_like(lo, dtype=np.int64)  # 1 held at the upper end, -1 at the lower, 2 equal
    side[equal] = 2
    held = newton(program, by, point, np.flatnonzero(equal), lo[equal])
    for _ in range(MAX_EXCHANGES):
        pull, values = np.zeros_like(lo), held.point.values
        pull[held.rows] = held.mu
        following = np.where(side == 0, 1 * (values > hi) - 1 * (values < lo), side)
        following[(side * pull < 0.0) & ~equal] = 0
        rows = np.flatnonzero(following)
        if np.array_equal(following, side):
            return held
        if rows.size > point.x.size:
            break
        side = following
        targets = np.where(side == 1, hi, lo)[rows]
        held = newton(program, by, held.point, rows, targets)
    return HeldRows(held.point, held.rows, held.mu, False)


def conjugate(program: SquaresProgram, point: QuadraticPoint, steps: int) -> QuadraticPoint:
    """Conjugate gradients for least squares [Hestenes & Stiefel 1952, 10]: the nearest minimiser.

    Slopes are taken anew from the errors of the rows. One that is carried along gathers rounding in
    directions that no row sees, too, and what has little curvature is walked far. On a device the
    end is looked for now and then: steps beyond it change nothing but rounding.
    """
    cost, away = program.cost, point.x - program.cost.p
    errors = np.where(cost.w == 0.0, 0.0, point.values - cost.b)
    slope, d = point.slope, np.zeros_like(point.x)
    looks = DEVICE_STEPS_PER_LOOK if waits(slope) else 1
    direction, size = slope, scalar(slope @ slope)
    first = size
    for count in range(steps):
        if count % looks == 0 and (size <= ROUNDINGS**2 * first or size == 0.0):
            break
        look(2.0 * cost.product_flops)
        read = cost.read(direction)
        bend = scalar((cost.w * read) @ read) + cost.alpha * scalar(direction @ direction)
        if looks == 1 and not bend > 0.0:
            break
        share = _ratio(size, bend)
        d = d - share * direction
        errors = errors - share * read
        slope = cost.sum_up(cost.w * errors) + cost.alpha * (away + d)
        size, last = scalar(slope @ slope), size
        direction = slope + _ratio(size, last) * direction
    return cost.point(point.x + d)


def _ratio(a: Any, b: Any) -> Any:
    """``a/b``, and 0 on a device where b is not positive, for that is not waited for."""
    return chosen(b > 0.0, a / b, 0.0) if waits(b) else a / b
