"""How large a matrix can be that is no worse than the best one known."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import UNIT, Intervals
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.proofs.definite import (
    cholesky,
    factorisation_error,
    first_shift,
    smallest_eigenvalue,
)
from quadsense.proofs.rounding import exact_sum, gamma
from quadsense.proofs.symmetric import SHARES, norm_limit, norm_within

DENSE_ROWS = 4000
"""Rows up to which K is formed for a bound on those matrices that it sees."""

MASKED_ENTRIES = 2e7
"""Of all rows as matrices, up to which these are formed."""


def seen_columns(F: Sensing) -> npt.NDArray[np.bool_]:
    """Coordinates in which some row is not exactly 0."""
    seen = np.zeros(F.n, bool)
    if F.raw.kind.at_hand and (to_numpy(F.raw.block(0, 1)) != 0.0).all():
        return ~seen
    for _, rows in F.raw.blocks():
        seen |= np.any(to_numpy(rows) != 0.0, axis=0)
        if seen.all():
            break
    return seen


def reached(question: Question, upper: float) -> tuple[Vector, Vector]:
    """Intervals of what each reading may be for an objective of at most `upper`, rounded outwards.

    Where no part of the objective is negative: else the ends of the question alone.
    """
    lo, hi = question.lo.copy(), question.hi.copy()
    soft = question.soft
    lo[soft], hi[soft] = -np.inf, np.inf
    weights = question.weights
    counts = (weights > 0.0) & ~question.hard
    free = isinstance(question.C, float) and (
        question.C == 0.0 or (question.psd and question.C > 0.0)
    )
    if not (free and upper < math.inf) or question.log_det:
        return lo, hi
    if question.rows in ("squares", "slack_squares"):
        away = np.sqrt(max(upper, 0.0) / weights, where=counts, out=np.full(question.m, np.inf))
    elif soft.any():
        away = np.divide(max(upper, 0.0), weights, where=counts, out=np.full(question.m, np.inf))
    else:
        return lo, hi
    away = np.where(counts, away * (1.0 + 8.0 * UNIT), np.inf)
    least = question.reading if question.rows == "squares" else question.lo
    most = question.reading if question.rows == "squares" else question.hi
    low, high = least - away, most + away
    low, high = low - 4.0 * UNIT * np.abs(low), high + 4.0 * UNIT * np.abs(high)
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
    return unit * length / sigma * (1.0 + 16.0 * UNIT) + 1e-300


def norm_taken(F: Sensing, question: Question, size: float, upper: float) -> float:
    """The norm up to which a matrix is believed where the data bound none."""
    lo, hi = reached(question, upper)
    if question.rows == "squares":  # the reading is all that is known of a row without ends
        known = question.weights > 0.0
        lo = np.where(np.isfinite(lo) | ~known, lo, question.reading)
        hi = np.where(np.isfinite(hi) | ~known, hi, question.reading)
    lo = np.where(question.soft & ~np.isfinite(lo), question.lo, lo)
    hi = np.where(question.soft & ~np.isfinite(hi), question.hi, hi)
    ends = Intervals.of(lo, hi, np.ones(F.m))
    return max(norm_limit(F, ends), 10.0 * size)


def smallest_of_gram(F: Sensing, pattern: npt.NDArray[np.bool_] | None = None) -> float:
    """Proved s with ``||F(A)|| >= s ||A||_F`` for every A in the span of the rows; 0.0: none.

    With a `pattern`, (n, n), all matrices are taken to be 0 where it is False.
    """
    m = F.m
    if m > min(F.unknowns, DENSE_ROWS):
        return 0.0
    masses = F.masses
    trace = exact_sum(masses * masses) * (1.0 + gamma(2.0 * F.n + 64.0))
    inner = 8.0 * gamma(2.0 * F.n + 16.0) + 16.0 * F.rounding
    inner += 8.0 * gamma(2.0 * F.sum_terms(8))
    if pattern is None or pattern.all():
        K = F.gram_triangle()
    else:
        if m * float(F.n) ** 2 > MASKED_ENTRIES:
            return 0.0
        parts = np.stack([np.where(pattern, to_numpy(F.adjoint(e)), 0.0) for e in np.eye(m)])
        flat = parts.reshape(m, -1)
        K = np.asfortranarray((flat @ flat.conj().T).real)
        inner += 8.0 * gamma(float(F.n) ** 2 + 16.0)
    error = inner * trace + factorisation_error(m, trace)
    raised = K.copy(order="F")
    raised[np.diag_indices(m)] += error
    factor = cholesky(raised, overwrite=True)
    if factor is None:
        return 0.0
    guess = smallest_eigenvalue(factor, np.ones(m)) - error
    shares = [share * guess for share in SHARES if share * guess > 2.0 * error]
    found = first_shift(K, shares)
    return 0.0 if found is None else math.sqrt(found.size - error) * (1.0 - 4.0 * UNIT)
