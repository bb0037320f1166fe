"""Vectors y near a given one for which ``C + F*(y)`` is proved positive semidefinite."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.intervals import UNIT
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.proofs.conjugates import excess
from quadsense.proofs.positive import floor_within_span, smallest_eigenvalue_bound
from quadsense.proofs.spectrum import spectrum

FEW = 4  # constraints that are each tried as a direction
ROUNDS = 4  # of making room for a lift within the weights


def lifted(F: Sensing, question: Question, y: Vector, e: float) -> Iterator[Vector]:
    """Yield such vectors; ``C + F*(y) >= -e I``.

    Notes
    -----
    Along a d with ``F*(d) >= sigma I``, by ``e/sigma``; and where ``C >= c I`` by making y smaller:
    ``C + s F*(y) = (1 - s) C + s (C + F*(y))``.
    """
    mass = float(np.abs(y) @ F.masses) * (1.0 + (F.m + 8.0) * UNIT)
    least = _least(question, F)
    if least > 0.0:
        # The product rounds each entry, and the rounding of s itself is covered by the factor.
        yield y * (least / (least + e + 4.0 * UNIT * mass) * (1.0 - 8.0 * UNIT))
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
    apart = question.rows == "squares" and counted.any() and not np.array_equal(counted, above)
    chosen = (counted, above) if apart else (above,)
    if F.rank_one:
        for rows in chosen:
            yield rows.astype(np.float64)
        return
    fixed = np.flatnonzero(question.hard & above)
    for i in fixed[:FEW] if fixed.size <= FEW else ():
        d = np.zeros(F.m)
        d[i] = 1.0
        yield d
    negative = np.asarray((F.weights < 0).sum(axis=1)).ravel()
    for rows in chosen:
        d = ((negative == 0) & rows).astype(np.float64)
        if d.any():
            yield d


def flattest(F: Sensing, question: Question) -> Vector:
    """The d that no missing end forbids with ``F*(d)`` nearest to the identity; dear."""
    above, below = _allowed(question)
    return np.where(np.where(F.flat > 0.0, above, below), F.flat, 0.0)


def _allowed(question: Question) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which entries of a vector may be positive, and which negative."""
    priced = (question.rows == "squares") & ~question.hard & (question.weights > 0.0)
    idle = question.soft & (question.weights == 0.0)
    above, below = question.hi < np.inf, question.lo > -np.inf
    return (above | priced) & ~idle, (below | priced) & ~idle


def _along(
    F: Sensing, question: Question, y: Vector, d: Vector, sigma: float, e: float
) -> Vector | None:
    """``y + t d``, made smaller first where the weights leave no room for it."""
    masses = F.masses
    blur = 8.0 * UNIT * float(np.abs(d) @ masses) / sigma
    if not blur < 1.0:
        return None
    for _ in range(ROUNDS):
        mass = float(np.abs(y) @ masses)
        # The sum below rounds, in proportion to its parts.
        t = (e + 4.0 * UNIT * mass) / sigma * (1.0 + blur) * (1.0 + 8.0 * UNIT)
        moved = y + t * d
        shrink = excess(question, moved)
        if shrink == 1.0:
            return moved if np.isfinite(moved).all() else None
        if not (isinstance(question.C, float) and question.C == 0.0):
            return None
        shrink *= 1.0 + 64.0 * UNIT
        y = y / shrink
        e = e / shrink * (1.0 + 4.0 * UNIT) + 2.0 * UNIT * mass
    return None


def _least(question: Question, F: Sensing) -> float:
    """A number that no eigenvalue of C is below."""
    if isinstance(question.C, float):
        return question.C
    C = np.asarray(question.C) if F.is_complex else np.ascontiguousarray(question.C.real)
    found = spectrum(C)
    return float(found.values[0]) - found.error
