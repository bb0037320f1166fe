"""Proof, from the data alone, that no symmetric matrix fits: the Farkas vector and its check.

For any y and any A with ``lo <= F(A) <= hi``, each interval widened on both sides by ``t - 1``
times its unit ``w_i`` (its half-width),

    sum(lo_i y_i^+ - hi_i y_i^-) - (t - 1) sum |y_i| w_i  <=  y.F(A)  <=  ||A||_F ||F*(y)||_F.

In exact arithmetic ``F*(y) = 0`` and the data alone bound t from below. In floating point
``||F*(y)||_F`` is tiny, not zero, so a bound on ``||A||_F`` enters: proved from the smallest
singular value of F where F sees every direction of A, and ``max_norm`` otherwise. Every
quantity below is rounded in the direction that weakens the claim.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import UNIT, Intervals
from quadsense.core.products import FEATURE_ROWS
from quadsense.core.question import Question
from quadsense.core.sums import DOWN, ROUNDINGS, SPARE, UNDERFLOW, UP, exact_sum, gamma, sum_error
from quadsense.measurements.blockwise import spread
from quadsense.measurements.sensing import Sensing
from quadsense.proofs.definite import (
    MAX_GRAM_ROWS,
    cholesky,
    factorisation_error,
    first_shift,
    smallest_eigenvalue,
)
from quadsense.proofs.rounding import COMPLEX, OUTER, adjoint_norm
from quadsense.system.machine import MAX_ARRAY_ENTRIES
from quadsense.system.watch import Stop

MAX_DENSE_UNKNOWNS = 9000
"""Unknowns beyond which the matrix that proves sigma would not fit in memory."""

PLENTY, ENOUGH = 64, 16
"""Rows per unknown from which on some of them will do, and how many those are."""

LARGE_WORK = 1e9
"""Multiplications of a normal matrix from which on fewer rows are worth while."""

SHARES = (0.5, 0.05)
"""Shares of an estimated eigenvalue that are tried to be proved, each by a factorization."""

FEATURE_ROUNDINGS = SPARE + SPARE // 2
"""Roundings of an entry of the normal matrix in addition to its sums: of two features."""

UNEVEN = 16.0
"""Ratio of the scales of readings beyond which rows are weighed."""

MAX_FOURTHS = 200
"""Powers of four by which a row is weighed; beyond, it counts for nothing."""

NORM_FACTOR = 1e6
"""How far beyond the scale of the data a fit is not believed."""

ASSUMED_FACTOR = 10.0
"""A norm up to which a claim is made is at least this many times that of the best matrix known."""


def data_scale(b: Vector, delta: Vector) -> float:
    """Return the largest value that a measurement of a fit may take."""
    return float(np.max(np.abs(b) + delta))


def norm_within(F: Sensing, scale: Vector) -> float:
    """Return a proved bound on ``||A||_F`` for A with ``|F(A)_i| <= scale_i``, or infinity.

    Notes
    -----
    ``||D scale|| / sigma(D F)`` for every diagonal D: the identity where the scales are alike,
    otherwise what makes them so, without the N smallest, N unknowns: rows of large readings, or far
    more uncertain than others that see all of A, have no say. It is at most ``sqrt(m)`` times the
    bound of the identity, and is often far below that.
    """
    size, largest = F.unknowns, float(np.max(scale, initial=0.0))
    if F.m < size or size > MAX_DENSE_UNKNOWNS or not np.isfinite(largest):
        return math.inf
    level = float(np.partition(scale, size - 1)[size - 1])
    if largest > UNEVEN * level > 0.0:
        with np.errstate(over="ignore", under="ignore"):  # what is lost of rows is a lower bound
            # Powers of 4: roots of their squares' roots are powers of 2, and no digit changes.
            fourths = np.frexp(np.maximum(scale / level, 1.0))[1] // 2
            counts, halvings = fourths <= MAX_FOURTHS, -2 * fourths
            sigma = smallest_singular_value(F, np.where(counts, np.ldexp(1.0, 2 * halvings), 0.0))
            length = _root_sum_of_squares(np.ldexp(scale, halvings)[counts])
        if sigma > 0.0:
            return length / sigma * UP
    sigma = smallest_singular_value(F)
    return _root_sum_of_squares(scale) / sigma * UP if sigma > 0.0 else math.inf


def smallest_singular_value(F: Sensing, squares: Vector | None = None) -> float:
    """Return a proved lower bound on the smallest singular value of F on the symmetric matrices.

    Parameters
    ----------
    F : Sensing
    squares : ndarray of shape (m,), optional
        Squares of weights ``D_i`` of the rows, at most 1, powers of 16 or 0; None: all are 1.

    Returns
    -------
    float
        sigma with ``||D F(A)||_2 >= sigma ||A||_F`` for every symmetric (Hermitian) A; 0.0 when
        none could be proved (unseen directions, or too many unknowns for a dense proof).

    Notes
    -----
    The Cholesky factorisation of ``M - s I`` proves it (see `proofs.definite`). Forming
    ``M = F^T F`` itself errs by at most ``gamma(longest sum) sum_i ||u_i||^4``.
    """
    size, m = F.unknowns, F.m
    if m < size or size > MAX_DENSE_UNKNOWNS:
        return 0.0
    if m >= PLENTY * size and float(m) * size**2 >= LARGE_WORK and F.rank_one:
        # Some rows see no more than all do: ||F(A)|| is at least what it is over them.
        index = spread(F.m, ENOUGH * size)
        part = None if squares is None else squares[index]
        found = _smallest(F.held(index), F.row_rounding, part)
        if found > 0.0:
            return found
    return _smallest(F, F.row_rounding, squares)


def _smallest(F: Sensing, row_rounding: float, squares: Vector | None) -> float:
    """Return the same for these rows, which are off by that much."""
    size, m = F.unknowns, F.m
    M = F.normal(squares)
    trace = float(np.trace(M)) * (1.0 + sum_error(size))
    longest = min(m, FEATURE_ROWS) + math.ceil(m / FEATURE_ROWS) + FEATURE_ROUNDINGS
    # Rows that are computed, not held, are off by `row_rounding`, their features by twice that.
    error = (COMPLEX * gamma(longest) + 2.0 * OUTER * row_rounding) * trace
    error += factorisation_error(size, trace)
    if not F.rank_one:  # its features are sums themselves, off by their masses
        weighed = F.masses * F.masses * (1.0 if squares is None else squares)
        masses = exact_sum(weighed) * (1.0 + gamma(F.sum_terms(SPARE)))
        error += COMPLEX * (gamma(F.sum_terms(FEATURE_ROUNDINGS)) + gamma(longest)) * masses
    raised = M.copy(order="F")
    raised[np.diag_indices(size)] += error
    factor = cholesky(raised, overwrite=True)
    if factor is None:
        return 0.0
    guess = smallest_eigenvalue(factor, np.ones(size)) - error
    del raised, factor
    found = first_shift(M, [share * guess for share in SHARES if share * guess > 2.0 * error])
    return 0.0 if found is None else math.sqrt(found.size - error) * DOWN


def allowed(y: Vector, lower: npt.NDArray[np.bool_], upper: npt.NDArray[np.bool_]) -> Vector:
    """Drop the entries of y that need an end of an interval which is infinite.

    ``y_i > 0`` uses the lower end ``b_i - delta_i`` of interval i, ``y_i < 0`` the upper end.
    """
    return np.where(((y > 0.0) & ~lower) | ((y < 0.0) & ~upper), 0.0, y)


def _dot_below(b: Vector, y: Vector) -> float:
    products = b * y
    return exact_sum(products) - 2.0 * UNIT * exact_sum(np.abs(products)) - UNDERFLOW


def _mass_above(y: Vector, delta: Vector) -> float:
    return exact_sum(np.abs(y) * delta) * UP + UNDERFLOW


def _margin_below(ends: Intervals, y: Vector) -> float:
    """Return ``sum(lo_i y_i^+ - hi_i y_i^-)``, rounded down; y is 0 at infinite ends."""
    reach = np.where(y > 0.0, ends.below, np.where(y < 0.0, ends.above, 0.0))
    products = np.concatenate([ends.reading * y, -np.abs(y) * reach])
    return exact_sum(products) - 2.0 * UNIT * exact_sum(np.abs(products)) - UNDERFLOW


def lower_bound(b: Vector, delta: Vector, y: Vector, adjoint: float, norm: float) -> float:
    """Return a proved lower bound on ``min_A max_i |F(A)_i - b_i| / delta_i``, ``||A||_F <= norm``.

    Parameters
    ----------
    b, delta, y : ndarray, shape (m,)
    adjoint : float
        Upper bound on ``||F*(y)||_F``.
    norm : float
        Bound on the Frobenius norm of the matrices considered.
    """
    gain = _dot_below(b, y) - adjoint * norm * UP
    return max(gain / _mass_above(y, delta) * DOWN, 0.0)


@dataclass(frozen=True)
class InfeasibilityCheck:
    """What a vector y proves about ``lo <= F(A) <= hi``.

    Attributes
    ----------
    proved : bool
        No symmetric A fits: none at all if `unconditional`, else none of norm up to `max_norm`.
    unconditional : bool
        The claim needs no bound on A.
    margin : float
        ``sum(lo_i y_i^+ - hi_i y_i^-)``, rounded down; positive in every proof.
    adjoint_norm : float
        ``||F*(y)||_F``, rounded up.
    norm_needed : float
        Every A that fits has at least this Frobenius norm.
    max_norm : float
        The norm that `norm_needed` had to exceed.
    ratio : float
        Proved lower bound on the best worst-case ratio, under the same condition.
    """

    proved: bool
    unconditional: bool
    margin: float
    adjoint_norm: float
    norm_needed: float
    max_norm: float
    ratio: float


def norm_limit(F: Sensing, ends: Intervals) -> float:
    """Return the norm beyond which no fit is looked for: `NORM_FACTOR` times the data's scale.

    The scale is the least norm that the intervals force on a fit, or where they force nothing the
    largest that the narrowest of them allows: rows with wide intervals have no say.
    """
    sizes = F.sizes
    asks = (sizes > 0.0) & ends.sides.any(axis=0)
    if not asks.any():
        return 0.0
    lo, hi = ends.lo[asks] / sizes[asks], ends.hi[asks] / sizes[asks]
    forced = np.maximum(np.maximum(lo, -hi), 0.0)
    reach = np.where(np.isfinite(lo) & np.isfinite(hi), np.maximum(np.abs(lo), np.abs(hi)), np.inf)
    least = float(np.min(reach))
    if not np.isfinite(least):
        least = float(np.min(np.where(np.isfinite(lo), np.abs(lo), np.abs(hi))))
    return NORM_FACTOR * max(float(forced.max()), least)


def check_proof(
    F: Sensing,
    ends: Intervals,
    y: Vector,
    *,
    max_norm: float | None = None,
    conditional: bool = False,
) -> InfeasibilityCheck:
    """Check, from the data alone, that y proves the measurements contradictory.

    Parameters
    ----------
    F : Sensing
        Rows of about unit norm, none of their digits changed by a scaling.
    ends : Intervals
        Of the same rows, exactly.
    y : ndarray, shape (m,)
        The proof; its sign matters: ``y_i > 0`` belongs to the lower end.
    max_norm : float, optional
        Used only where F is not proved injective; see `norm_limit`.
    conditional : bool, default=False
        Whether to assume that bound without trying to prove one. It is also assumed where a time
        limit is reached during the proof of one.

    Returns
    -------
    InfeasibilityCheck
    """
    upper, lower = ends.sides
    y = allowed(np.asarray(y, dtype=np.float64), lower, upper)
    limit = norm_limit(F, ends) if max_norm is None else float(max_norm)
    largest = float(np.max(np.abs(y), initial=0.0))
    if not (np.isfinite(largest) and largest > 0.0):
        return InfeasibilityCheck(False, False, 0.0, 0.0, 0.0, limit, 0.0)
    # A power of two: the proof is scale-free, and no digit of y changes.
    y = np.ldexp(y, -int(np.frexp(largest)[1]))
    adjoint = adjoint_norm(F, y)
    margin = _margin_below(ends, y)
    needed = max(margin, 0.0) / adjoint * DOWN  # which counts underflow, so it is not 0
    norm = math.inf
    # A side without a bound leaves the norm of a fit unbounded, whatever F sees.
    if margin > 0.0 and bool(np.all(lower & upper)) and not conditional:
        with suppress(Stop):
            norm = norm_within(F, ends.scale)
    unconditional = margin > 0.0 and needed > norm
    if not unconditional:
        norm = limit
    gain = margin - adjoint * norm * UP
    above = exact_sum(np.abs(y) * ends.unit) * (1.0 + math.copysign(ROUNDINGS, gain)) + UNDERFLOW
    ratio = max((1.0 + gain / above) * DOWN * DOWN, 0.0)
    proved = margin > 0.0 and (unconditional or needed > norm)
    return InfeasibilityCheck(proved, unconditional, margin, adjoint, needed, limit, ratio)


def _root_sum_of_squares(values: npt.NDArray[Any]) -> float:
    largest = float(np.max(values, initial=0.0))
    if not 0.0 < largest < math.inf:
        return largest
    unit = math.ldexp(1.0, math.frexp(largest)[1])  # so that no square leaves float64's range
    parts = values / unit
    return unit * math.sqrt(exact_sum(parts * parts)) * UP * UP + UNDERFLOW


# --- how large a matrix can be that is no worse than the best one known ----------------------


def seen_columns(F: Sensing) -> npt.NDArray[np.bool_]:
    """Return coordinates in which some row is not exactly 0."""
    seen = np.zeros(F.n, bool)
    if F.raw.kind.at_hand and (to_numpy(F.raw.block(0, 1)) != 0.0).all():
        return ~seen
    for _, rows in F.raw.blocks():
        seen |= np.any(to_numpy(rows) != 0.0, axis=0)
        if seen.all():
            break
    return seen


def reached(question: Question, upper: float) -> tuple[Vector, Vector]:
    """Return intervals of the readings for which the objective can be at most `upper`.

    They are rounded outwards. Where some part of the objective may be negative, they are the ends
    of the question alone.
    """
    lo, hi = question.lo.copy(), question.hi.copy()
    soft = question.soft
    lo[soft], hi[soft] = -np.inf, np.inf
    free = isinstance(question.C, float) and (
        question.C == 0.0 or (question.psd and question.C > 0.0)
    )
    if not (free and upper < math.inf) or question.log_det:
        return lo, hi
    low, high = question.term.reached(question, upper)
    return np.maximum(lo, low), np.minimum(hi, high)


def norm_bound(F: Sensing, question: Question, upper: float) -> float:
    """Bound on ``||A||_F`` for symmetric A of objective at most `upper`; infinite: none known.

    That of `norm_within` over the rows of two ends. Where F does not see all of A but C is 0, what
    it does not see may be taken to be 0: ``||max(|lo|, |hi|)|| / sigma``, sigma that of K.
    """
    lo, hi = reached(question, upper)
    scale = np.maximum(np.abs(lo), np.abs(hi))
    two = np.flatnonzero(np.isfinite(scale))
    whole = two.size == F.m
    norm = norm_within(F if whole else F.only(two), scale[two])
    unseen = norm == math.inf and whole and isinstance(question.C, float) and question.C == 0.0
    sigma = smallest_of_gram(F) if unseen else 0.0
    if sigma == 0.0:
        return norm
    largest = float(np.max(scale[two], initial=0.0))
    if largest == 0.0:
        return 0.0
    unit = math.ldexp(1.0, math.frexp(largest)[1])
    length = math.sqrt(exact_sum((scale[two] / unit) ** 2))
    return unit * length / sigma * UP * UP + UNDERFLOW


def norm_taken(F: Sensing, question: Question, size: float, upper: float) -> float:
    """Return the norm up to which a claim is made where the data bound none."""
    lo, hi = reached(question, upper)
    if question.term.squares:  # the reading is all that is known of a row without ends
        known = question.weights > 0.0
        lo = np.where(np.isfinite(lo) | ~known, lo, question.reading)
        hi = np.where(np.isfinite(hi) | ~known, hi, question.reading)
    lo = np.where(question.soft & ~np.isfinite(lo), question.lo, lo)
    hi = np.where(question.soft & ~np.isfinite(hi), question.hi, hi)
    ends = Intervals.of(lo, hi, np.ones(F.m))
    return max(norm_limit(F, ends), ASSUMED_FACTOR * size)


def smallest_of_gram(F: Sensing, pattern: npt.NDArray[np.bool_] | None = None) -> float:
    """Return a proved s with ``||F(A)|| >= s ||A||_F`` for A in the span of the rows, or 0.0.

    With a `pattern`, (n, n), all matrices are taken to be 0 where it is False.
    """
    m = F.m
    if m > min(F.unknowns, MAX_GRAM_ROWS):
        return 0.0
    masses = F.masses
    trace = exact_sum(masses * masses) * (1.0 + sum_error(COMPLEX * F.n))
    inner = 2.0 * COMPLEX * (sum_error(2.0 * F.n + SPARE) + 2.0 * F.rounding)
    inner += 2.0 * COMPLEX * gamma(2.0 * F.sum_terms(SPARE))
    if pattern is None or pattern.all():
        K = F.gram_triangle()
    else:
        if m * float(F.n) ** 2 > MAX_ARRAY_ENTRIES:
            return 0.0
        parts = np.stack([np.where(pattern, to_numpy(F.adjoint(e)), 0.0) for e in np.eye(m)])
        flat = parts.reshape(m, -1)
        K = np.asfortranarray((flat @ flat.conj().T).real)
        inner += 2.0 * COMPLEX * sum_error(float(F.n) * F.n + SPARE)
    error = inner * trace + factorisation_error(m, trace)
    raised = K.copy(order="F")
    raised[np.diag_indices(m)] += error
    factor = cholesky(raised, overwrite=True)
    if factor is None:
        return 0.0
    guess = smallest_eigenvalue(factor, np.ones(m)) - error
    shares = [share * guess for share in SHARES if share * guess > 2.0 * error]
    found = first_shift(K, shares)
    return 0.0 if found is None else math.sqrt(found.size - error) * DOWN
