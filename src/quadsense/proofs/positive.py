"""Proof that no positive semidefinite matrix fits, checked from the data alone.

If ``F*(y) >= 0`` then ``y.F(A) = <F*(y), A> >= 0`` for every ``A >= 0``; so when the largest value
of ``y.v`` over the intervals is negative, nothing positive semidefinite fits. In floating point
``F*(y) >= -e I`` only, and y is lifted along rows whose ``sum u_i u_i*`` is at least ``sigma I``:
``F*(y + (e/sigma) 1) >= 0`` holds without condition, and the sign is tested again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl

from quadsense.arrays import Vector, or_there
from quadsense.core.intervals import EPS, UNIT, Intervals, Real
from quadsense.core.products import basis_in_blocks
from quadsense.core.question import Question
from quadsense.core.sums import DOWN, ROUNDINGS, SPARE, UP, sum_error
from quadsense.device import algebra
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.views import nearby
from quadsense.proofs.definite import MAX_GRAM_ROWS, factorisation_error, first_shift, spectrum
from quadsense.proofs.rounding import COMPLEX, OF_NORMS, unmixing_error
from quadsense.system.watch import BLOCK_FLOPS, Stop, look

WIDE = 2
"""Ratio of entries to rows from which on rows are looked at within their span."""

MIN_BLOCK_ROWS = 16
"""Rows of a block at least."""

SPAN_DOUBLINGS = 4
"""Doublings of the slack in that proof."""

DOUBLINGS = 60
"""Doublings of the first slack, a few roundings: one or two are enough."""

QR_PRODUCTS = 4.0
"""Products with the rows that a basis of their span costs, about."""

MAX_LIFT_TRIES = 4
"""Constraints that are each tried as a direction of a lift, and rounds of making room for one
within the weights."""

LIFT_ROUNDINGS = 8.0 * EPS
"""Bound on the relative error of a lift: of its quotient, of the sum with y, and of the floor."""

LIFT_UP, LIFT_DOWN = 1.0 + LIFT_ROUNDINGS, 1.0 - LIFT_ROUNDINGS
"""Factors by which a lift is rounded up, and its floor down."""

SHRINK_MORE = 1.0 + 64.0 * UNIT
"""Factor by which y is made smaller than it must be, so that rounding does not undo it."""


@dataclass(frozen=True)
class PsdCertificate:
    """What a vector y proves about all positive semidefinite matrices.

    Attributes
    ----------
    y : ndarray, shape (m,)
        The vector, lifted if that was needed and possible; largest entry about 1.
    lower_bound : float
        No positive semidefinite A has ``max_ratio`` below this. 0 when nothing is proved.
    trace_bound : float
        Every positive semidefinite A that fits has at least this trace; inf when none fits. It
        holds even where the rows do not span the space and y cannot be lifted.
    negative : float
        The proved ``e >= 0`` with ``F*(y) >= -e I`` before lifting.
    """

    y: Real
    lower_bound: float
    trace_bound: float
    negative: float

    @property
    def infeasible(self) -> bool:
        """Whether it is proved, without condition, that nothing fits."""
        return self.trace_bound == np.inf


def smallest_eigenvalue_bound(F: Sensing, y: Real) -> float:
    """Return a proved lower bound on the smallest eigenvalue of ``F*(y)``.

    Notes
    -----
    A Cholesky factorisation of ``S - c I`` proves it (see `proofs.definite`). Forming S is off by
    at most ``gamma_{m+3} sum |y_i| ||u_i||^2`` in norm. The eigenvalue routine only proposes c.
    Where few rows count, they are looked at within their span, and nothing is n by n.
    """
    if not F.rank_one:
        return smallest_eigenvalue_bound(F.raw, F.unmixed(y)) - unmixing_error(F, y)
    m, n = F.shape
    used = np.flatnonzero(y)
    if not used.size:
        return 0.0
    if WIDE * used.size < n:
        return _within_span(F, y, used)
    unit = _operation_error(F)
    weight = float(np.abs(y) @ F.squares) * (1.0 + (m + n) * unit)
    S = F.adjoint(y)
    formed = (m + SPARE) * unit * weight
    look(2.0 * float(n) * n * n)
    guess = _least_eigenvalue(nearby(F.kind, S))
    slack = 2.0 * factorisation_error(n, max(weight, abs(guess)), unit)
    # Of S as it lies in memory: the other triangle is as near to that of ``F*(y)``, conjugated.
    S = S.T if S.flags.c_contiguous else S
    found = first_shift(S, (guess - slack * 2.0**k for k in range(DOUBLINGS)))
    if found is None:
        return float(-weight - formed)
    factored = factorisation_error(n, found.trace, unit)
    return float(found.size - factored - formed - 2.0 * ROUNDINGS * abs(found.size))


def _operation_error(F: Sensing) -> float:
    """Return a bound on the relative error of one product of rows of F."""
    return (COMPLEX if F.is_complex else 1.0) * EPS + F.rounding


@or_there(algebra.least_eigenvalue)
def _least_eigenvalue(S: npt.NDArray[Any]) -> Any:
    """Return an estimate, which proves nothing."""
    return float(sl.eigh(S, eigvals_only=True, subset_by_index=(0, 0), check_finite=False)[0])


def _within_span(F: Sensing, y: Real, used: npt.NDArray[np.intp]) -> float:
    """Return the same bound for few rows of many entries.

    Notes
    -----
    With ``u_i = B w_i + r_i``, whatever the B, ``F*(y) = B (sum y_i w_i w_i*) B* + E`` and
    ``||E|| <= sum |y_i| (2 ||B|| ||w_i|| ||r_i|| + ||r_i||^2)``. B is a computed basis of the span,
    so the r_i are roundings; they are formed, and the rounding of that is bounded too.
    """
    rows, weights = F.take_unit(used), np.abs(y[used])
    cost = (COMPLEX if F.is_complex else 1.0) * QR_PRODUCTS * F.n * float(used.size)
    whole = cost * used.size <= BLOCK_FLOPS
    B = np.linalg.qr(rows.T)[0] if whole else basis_in_blocks(rows)
    k = B.shape[1]
    size = max(MIN_BLOCK_ROWS, int(BLOCK_FLOPS / cost))
    W, conjugated = np.empty((used.size, k), dtype=B.dtype), B.conj()
    rest, off = np.empty(used.size), 0.0
    for begin in range(0, used.size, size):
        look()
        part = slice(begin, begin + size)
        W[part] = rows[part] @ conjugated
        rest[part] = np.linalg.norm(rows[part] - W[part] @ B.T, axis=1)
    for begin in range(0, k, size):
        look()
        inner = conjugated[:, begin : begin + size].T @ B
        off += float(np.linalg.norm(inner - np.eye(len(inner), k, begin))) ** 2
    unit = _operation_error(F)
    size_of_B = float(np.linalg.norm(B)) * (1.0 + (F.n + k) * EPS)
    lengths = np.linalg.norm(W, axis=1) * (1.0 + sum_error(2.0 * k))
    norms = np.linalg.norm(rows, axis=1) * (1.0 + sum_error(2.0 * F.n))
    rest *= 1.0 + sum_error(2.0 * F.n)
    rest += (k + SPARE // 2) * unit * (size_of_B * lengths + norms)
    # ||B||^2 is at most that of the identity and of what B* B differs from it by.
    off = np.sqrt(off) + (F.n + SPARE // 2) * unit * size_of_B * size_of_B
    stretch = 1.0 + OF_NORMS * off
    error = float(weights @ (2.0 * np.sqrt(stretch) * lengths * rest + rest * rest))
    inside = smallest_eigenvalue_bound(Sensing.of(W), y[used]) if k else 0.0
    return float(min(0.0, inside) * stretch - OF_NORMS * error)


def lift_direction(F: Sensing, intervals: Intervals) -> Real:
    """Return the d along which y is lifted: 1 for the rows bounded above.

    Only those rows may carry a larger y: an infinite upper end makes the support infinite. Sums of
    rows have either sign: there ``F*(d)`` is near the identity, if one is.
    """
    bounded = np.isfinite(intervals.hi)
    d = F.flat
    return np.where(np.where(d > 0.0, bounded, np.isfinite(intervals.lo)), d, 0.0)


def lift_floor(F: Sensing, intervals: Intervals) -> float:
    """Return a proved ``sigma >= 0`` with ``F*(d) >= sigma I`` for the d of `lift_direction`."""
    d = lift_direction(F, intervals)
    if F.rank_one and int(np.count_nonzero(d)) < F.n:  # they cannot span the space
        return 0.0
    return max(0.0, smallest_eigenvalue_bound(F, d))


def floor_within_span(F: Sensing, d: Real, y: Real) -> float:
    """Return a proved ``sigma >= 0`` with ``F*(d) >= sigma P``, P onto a span of the rows of y.

    Then ``F*(y) >= -e I`` is ``F*(y) >= -e P``, and a lift along d makes up for it, however few
    rows there are: for independent ones, equal ones taken once, sigma is that of ``U U*``.
    """
    index = np.flatnonzero(d)
    if not F.rank_one or not 0 < index.size <= MAX_GRAM_ROWS:
        return 0.0
    if bool(np.any((y != 0.0) & (d == 0.0))):
        return 0.0
    rows = np.unique(F.take_unit(index), axis=0)
    k = len(rows)
    if k > F.n:
        return 0.0
    G = np.asfortranarray(rows @ rows.conj().T)
    unit = _operation_error(F)
    trace = float(np.trace(G).real) * (1.0 + (k + F.n) * unit)
    look(2.0 * float(k) * k * k)
    guess = float(sl.eigh(G, eigvals_only=True, subset_by_index=(0, 0), check_finite=False)[0])
    formed = (F.n + SPARE) * unit * trace
    slack = 2.0 * factorisation_error(k, trace, unit)
    found = first_shift(G, (guess - slack * 2.0**j for j in range(SPAN_DOUBLINGS)))
    if found is None:
        return 0.0
    factored = factorisation_error(k, found.trace, unit)
    least = float(np.min(d[index]))
    return max(0.0, least * (found.size - factored - formed) * LIFT_DOWN)


def certify(
    F: Sensing, intervals: Intervals, y: Real, floor: float | None = None, *, lift: bool = True
) -> PsdCertificate:
    """Return what y proves, every number recomputed from the data with a rounding bound.

    Parameters
    ----------
    F : Sensing
    intervals : Intervals
        The intervals of the m measurements.
    y : ndarray, shape (m,)
        Any vector; entries that press on an infinite end are dropped first.
    floor : float, optional
        `lift_floor` of the same data, where it is known already.
    lift : bool, default=True
        Whether to lift y. It is not lifted either where a time limit is reached in the attempt.
    """
    usable = np.where(y > 0, np.isfinite(intervals.hi), np.isfinite(intervals.lo)) & np.isfinite(y)
    y = np.where(usable, y, 0.0)
    size = float(np.max(np.abs(y), initial=0.0))
    if size == 0.0:
        return PsdCertificate(y, 0.0, 0.0, 0.0)
    y = y / size
    # A sum of u_i u_i* with positive weights needs no proof.
    plain = F.rank_one and bool(np.all(y >= 0.0))
    negative = 0.0 if plain else max(0.0, -smallest_eigenvalue_bound(F, y))
    value, error = intervals.support(y)
    if value + error >= 0.0:
        trace_bound = 0.0
    else:
        trace_bound = -(value + error) / negative * DOWN * DOWN if negative else np.inf
    if negative:
        d = lift_direction(F, intervals)
        try:
            floor = (lift_floor(F, intervals) if floor is None else floor) if lift else 0.0
            floor = floor or (floor_within_span(F, d, y) if lift else 0.0)
        except Stop:
            floor = 0.0
        if floor == 0.0:
            return PsdCertificate(y, 0.0, trace_bound, negative)
        by = negative / floor * LIFT_UP + 2.0 * ROUNDINGS
        if not F.rank_one:  # the sum rounds, in proportion to its parts
            rounded = LIFT_ROUNDINGS * float(F.masses @ (np.abs(y) + 2.0 * by * np.abs(d)))
            by = (negative + rounded) / floor * LIFT_UP
        y = y + by * d
        value, error = intervals.support(y)
        if value + error < 0.0:
            trace_bound = np.inf
    above = value + error
    with np.errstate(invalid="ignore", over="ignore"):  # widths beyond float64 prove nothing
        cost = float(np.abs(y) @ intervals.unit)
        bound = 1.0 - above / (cost * (1.0 + np.copysign(sum_error(2.0 * len(y)), -above)))
    bound = (
        bound - 2.0 * ROUNDINGS * abs(bound) if np.isfinite(cost) and np.isfinite(above) else 0.0
    )
    return PsdCertificate(y, max(0.0, float(bound)), trace_bound, negative)


# --- vectors near y for which C + F*(y) is positive semidefinite -----------------------------


def lifted(F: Sensing, question: Question, y: Vector, e: float) -> Iterator[Vector]:
    """Yield such vectors; ``C + F*(y) >= -e I``.

    Notes
    -----
    Along a d with ``F*(d) >= sigma I``, by ``e/sigma``; and where ``C >= c I`` by making y smaller:
    ``C + s F*(y) = (1 - s) C + s (C + F*(y))``.
    """
    mass = float(np.abs(y) @ F.masses) * (1.0 + sum_error(F.m))
    least = _least(question, F)
    if least > 0.0:
        # The product rounds each entry, and the rounding of s itself is covered by the factor.
        yield y * (least / (least + e + ROUNDINGS * mass) * DOWN * DOWN)
    done = False
    for d in directions(F, question):
        spans = not F.rank_one or int(np.count_nonzero(d)) >= F.n
        sigma = smallest_eigenvalue_bound(F, d) if spans else 0.0
        if sigma <= 0.0 and isinstance(question.C, float) and question.C == 0.0:
            sigma = floor_within_span(F, d, y)
        moved = _along(F, question, y, d, sigma, e) if sigma > 0.0 else None
        if moved is not None:
            done = True
            yield moved
    if not done and not F.rank_one:
        d = flattest(F, question)
        sigma = smallest_eigenvalue_bound(F, d)
        moved = _along(F, question, y, d, sigma, e) if sigma > 0.0 else None
        if moved is not None:
            yield moved


def directions(F: Sensing, question: Question) -> Iterator[Vector]:
    """Yield d that no missing end forbids, ``F*(d)`` hopefully positive definite.

    Those rows alone that a sum of squares counts come first: the ends of others may be far away,
    where moving costs much.
    """
    above = _allowed(question)[0]
    counted = above & (question.hard | (question.weights > 0.0))
    apart = question.term.squares and counted.any() and not np.array_equal(counted, above)
    chosen = (counted, above) if apart else (above,)
    if F.rank_one:
        for rows in chosen:
            yield rows.astype(np.float64)
        return
    fixed = np.flatnonzero(question.hard & above)
    for i in fixed[:MAX_LIFT_TRIES] if fixed.size <= MAX_LIFT_TRIES else ():
        d = np.zeros(F.m)
        d[i] = 1.0
        yield d
    negative = np.asarray((F.weights < 0).sum(axis=1)).ravel()
    for rows in chosen:
        d = ((negative == 0) & rows).astype(np.float64)
        if d.any():
            yield d


def flattest(F: Sensing, question: Question) -> Vector:
    """Return the d, 0 at infinite ends, with ``F*(d)`` nearest to the identity; slow."""
    above, below = _allowed(question)
    return np.where(np.where(F.flat > 0.0, above, below), F.flat, 0.0)


def _allowed(question: Question) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which entries of a vector may be positive, and which negative."""
    elastic = question.term.elastic(question)
    idle = question.soft & (question.weights == 0.0)
    above, below = question.hi < np.inf, question.lo > -np.inf
    return (above | elastic) & ~idle, (below | elastic) & ~idle


def _along(
    F: Sensing, question: Question, y: Vector, d: Vector, sigma: float, e: float
) -> Vector | None:
    """Return ``y + t d``, made smaller first where the weights leave no room for it."""
    masses = F.masses
    blur = 2.0 * ROUNDINGS * float(np.abs(d) @ masses) / sigma
    if not blur < 1.0:
        return None
    for _ in range(MAX_LIFT_TRIES):
        mass = float(np.abs(y) @ masses)
        # The sum below rounds, in proportion to its parts.
        t = (e + ROUNDINGS * mass) / sigma * (1.0 + blur) * UP * UP
        moved = y + t * d
        shrink = question.term.excess(question, moved)
        if shrink == 1.0:
            return moved if np.isfinite(moved).all() else None
        if not (isinstance(question.C, float) and question.C == 0.0):
            return None
        shrink *= SHRINK_MORE
        y = y / shrink
        e = e / shrink * UP + 2.0 * UNIT * mass
    return None


def _least(question: Question, F: Sensing) -> float:
    """Return a number that no eigenvalue of C is below."""
    if isinstance(question.C, float):
        return question.C
    C = np.asarray(question.C) if F.is_complex else np.ascontiguousarray(question.C.real)
    found = spectrum(C)
    return float(found.values[0]) - found.error
