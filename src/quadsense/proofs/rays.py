"""Proof that a linear functional of the fits is unbounded: a direction in which fits go on.

Where some A fits and M is such that every ``A + t M``, ``t >= 0``, fits too, and ``<C, M> < 0``,
then ``<C, A>`` has no lower end. In floating point ``F(M) = 0`` is nearly true only; that an exact
M with the same properties is near is proved from the smallest eigenvalue of the rows' Gram matrix.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl

from quadsense.arrays import Vector, to_numpy
from quadsense.core.question import Question
from quadsense.core.sums import DOWN, OF_ERRORS, SPARE, gamma, sum_error
from quadsense.measurements import Measurements
from quadsense.measurements.sensing import Sensing
from quadsense.proofs.costs import shifted
from quadsense.proofs.definite import cholesky, factorisation_error, first_shift
from quadsense.proofs.rounding import COMPLEX, SPARE_OF_NESTED
from quadsense.proofs.symmetric import SHARES, smallest_of_gram

Matrix = npt.NDArray[Any]

FLAT = 1e-7
"""Reading of a direction, or product with it, relative to its parts, that is taken for 0."""

DROPPED = 1e-9
"""Singular values of rows, and falls of the objective along a unit vector, relative to the largest
and to C, that are taken for rounding."""


def is_ray(data: Measurements, question: Question, ray: Matrix, fit: Matrix) -> bool:
    """Return whether `ray` proves that ``<C, A>`` has no lower end.

    Parameters
    ----------
    data : Measurements
    question : Question
        With rows "within" and the C in question, in the user's scaling.
    ray : ndarray of shape (n, n) or (n,)
        M, symmetric; or x, which stands for ``x x*``: the only kind for positive semidefinite A.
        Where x is a coordinate that nothing sees, and ``x* C x = 0``, fits go on as
        ``(I + t x w*) A (I + t w x*)``, ``w = -A C x``, and ``<C, A>`` falls with t.
    fit : ndarray of shape (n, n)
        An A that fits.
    """
    if not np.isfinite(ray).all():
        return False
    F, exponents = data.unit_rows.on_numpy().exact()
    scaled = shifted(question, exponents)
    live = to_numpy(data.unit_rows.nonzero) > 0
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        size = float(np.max(np.abs(ray), initial=0.0))
        if not size > 0.0:
            return False
        ray = ray / size
        if ray.ndim == 1:
            unbound = question.psd and _is_coordinate(F, scaled, live, ray, fit)
            return unbound or _is_vector(F, scaled, live, ray)
        return not question.psd and _is_matrix(F, scaled, live, ray)


def _is_matrix(F: Sensing, question: Question, live: npt.NDArray[np.bool_], M: Matrix) -> bool:
    """Return whether rows of two ends read 0 of M, and the others 0 or away from their end."""
    upper, lower = question.hi < np.inf, question.lo > -np.inf
    M = 0.5 * (M + M.conj().T)
    pattern = M != 0.0
    asks = live & (upper | lower) & sees(F, pattern)
    size = float(np.linalg.norm(M)) * (1.0 + sum_error(F.n * F.n))
    v = F.forward(M)
    growth = sum_error(2.0 * F.n + SPARE_OF_NESTED) + gamma(F.sum_terms(2 * SPARE))
    error = 2.0 * COMPLEX * (growth + F.rounding) * size * F.masses
    two = upper & lower
    flat = np.abs(v) <= FLAT * size * F.masses
    for held in (asks, asks & two, asks & (two | flat)):
        moved = _correction(F, held, v, error, pattern)
        others = asks & ~held
        away = np.where(upper, v, -v) + error + F.masses * moved * OF_ERRORS
        if not np.any(others & ~(away <= 0.0)) and _falls(question.C, F, M, size, moved):
            return True
    return False


def _correction(
    F: Sensing,
    held: npt.NDArray[np.bool_],
    v: Vector,
    error: Vector,
    pattern: npt.NDArray[np.bool_],
) -> float:
    """Return how far an M' of the same pattern is, at most, that these rows read exactly 0 of."""
    index = np.flatnonzero(held)
    if not index.size:
        return 0.0
    if F.rank_one:  # the same row twice says nothing more
        _, first = np.unique(to_numpy(F.take_unit(index)), axis=0, return_index=True)
        index = np.sort(index[first])
    sigma = smallest_of_gram(F if index.size == F.m else F.only(index), pattern)
    if sigma == 0.0:
        return math.inf
    length = float(np.linalg.norm(np.abs(v[index]) + error[index]))
    return length / sigma * (1.0 + sum_error(index.size + SPARE))


def _is_vector(F: Sensing, question: Question, live: npt.NDArray[np.bool_], x: Matrix) -> bool:
    """Return whether ``x x*`` is a ray: rows bounded above, and all sums of rows, are 0 at x."""
    rows = seen_rows(F, question, live)
    rows = rows[np.any((rows != 0.0) & (x != 0.0), axis=1)]  # the others read exactly 0
    size = float(np.linalg.norm(x)) * (1.0 + sum_error(F.n))
    moved = 0.0
    if len(rows):
        sigma = _smallest_singular_value(rows)
        if sigma == 0.0:
            return False
        products = np.abs(rows.conj() @ x)
        lengths = np.linalg.norm(rows, axis=1)
        products += COMPLEX * sum_error(F.n + SPARE) * lengths * size
        moved = float(np.linalg.norm(products)) / sigma * (1.0 + sum_error(len(rows) + SPARE))
    spread = (2.0 * size + moved) * moved * OF_ERRORS  # by which x x* may be off, in norm
    return _falls(question.C, F, np.outer(x, x.conj()), size * size, spread)


def _is_coordinate(
    F: Sensing, question: Question, live: npt.NDArray[np.bool_], x: Matrix, fit: Matrix
) -> bool:
    """Return whether x is a coordinate that no row has, and C has, but not on its diagonal."""
    k = np.flatnonzero(x)
    if k.size != 1 or isinstance(question.C, float) or question.C[k[0], k[0]] != 0.0:
        return False
    asks = np.flatnonzero(live & ((question.hi < np.inf) | (question.lo > -np.inf)))
    if np.any(used_rows(F, asks)[:, k[0]] != 0.0):
        return False
    column = np.asarray(question.C)[:, k[0]]
    fall = float(np.linalg.norm(fit @ column))
    return fall > FLAT * float(np.linalg.norm(fit)) * float(np.linalg.norm(column))


def used_rows(F: Sensing, index: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """Return the rows that some readings take, dense."""
    if F.rank_one:
        return np.asarray(to_numpy(F.take_unit(index)))
    used = np.flatnonzero(np.asarray((F.weights[index] != 0).sum(axis=0)))
    return np.asarray(to_numpy(F.raw.take_unit(used)))


def sees(F: Sensing, pattern: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which rows may read other than 0 of matrices of a pattern."""
    ones = pattern.astype(np.float64)
    parts = [
        np.any(((rows != 0.0).astype(np.float64) @ ones) * (rows != 0.0) > 0.0, axis=1)
        for rows in (to_numpy(block) for _, block in F.raw.blocks())
    ]
    seen = np.concatenate(parts)
    if not F.rank_one:
        return np.asarray((F.weights != 0) @ seen.astype(np.float64) > 0.0)
    return seen


def _falls(C: Any, F: Sensing, M: Matrix, size: float, moved: float) -> bool:
    """Return whether ``<C, M>`` is negative for the exact M too."""
    if isinstance(C, float):
        C = C * np.eye(F.n)
    elif not F.is_complex:
        C = C.real
    length = float(np.linalg.norm(C)) * (1.0 + sum_error(F.n * F.n))
    value = float(np.vdot(C, M).real) + COMPLEX * sum_error(F.n * F.n + SPARE) * length * size
    return value + length * moved * OF_ERRORS < 0.0


def seen_rows(F: Sensing, question: Question, live: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Return rows that a positive semidefinite direction must not be seen by, each once."""
    above = live & (question.hi < np.inf)
    asks = above | (live & (question.lo > -np.inf)) if not F.rank_one else above
    rows = used_rows(F, np.flatnonzero(asks))
    return np.unique(rows, axis=0) if len(rows) else rows


def _smallest_singular_value(rows: npt.NDArray[Any]) -> float:
    """Return a proved lower bound on ``||U x||`` for unit x in the span of the rows; or 0.0."""
    m, n = rows.shape
    if m > n:
        return 0.0
    G = np.asfortranarray(rows @ rows.conj().T)
    trace = float(np.linalg.norm(rows)) ** 2 * (1.0 + sum_error(m * n + SPARE))
    error = 2.0 * COMPLEX * sum_error(n + SPARE) * trace + COMPLEX * factorisation_error(m, trace)
    if cholesky(G) is None:
        return 0.0
    guess = float(sl.eigh(G, eigvals_only=True, subset_by_index=(0, 0), check_finite=False)[0])
    found = first_shift(G, [share * guess for share in SHARES if share * guess > 2.0 * error])
    return 0.0 if found is None else math.sqrt(found.size - error) * DOWN
