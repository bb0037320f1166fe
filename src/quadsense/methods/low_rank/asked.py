"""What a problem asks of a factored fit: readings, tolerances, other intervals, wanted weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quadsense.arrays import compact, to_numpy
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import Problem
from quadsense.methods.low_rank.ends import Bounds, Mask, Vector

# Tolerances are kept within this factor of the largest reading, so that squares of ratios do not
# overflow: wider ones are met anyway, and narrower ones no float64 can certify.
_WIDEST = 2.0**500
# The unit of a row with one end whose own is larger than that end, as a share of the end; no unit
# is below such a share of the typical one.
_SHARE, _NARROWEST = 0.01, 1e-6
# An equality counts as a tolerance this many times narrower than the narrowest, but not narrower
# than this share of the largest reading, beyond which normal equations lose it.
_EQUAL, _EQUAL_FLOOR = 1e-2, 1e-7
# Weight of what must hold, relative to the median one of least squares.
_HARD = 1e6


@dataclass(frozen=True)
class Asked:
    """What is asked of the rows in `index` (all where None), readings scaled to at most 1.

    Attributes
    ----------
    index : (k,) int or None
    b, delta : (k,) float64
        Readings and tolerances, over ``4**exponent``.
    exponent : int
    bounds : Bounds or None
        Where not all intervals are ``b - delta`` to ``b + delta``.
    wanted : (k,) float64 or None
        Weights of least squares by which a fit is chosen.
    """

    index: npt.NDArray[np.intp] | None
    b: Vector
    delta: Vector
    exponent: int
    bounds: Bounds | None = None
    wanted: Vector | None = None

    def on(self, rows: Sensing) -> Sensing:
        """Those of the rows that are asked for something, as methods see them."""
        F = rows.at_work().plain()
        return F if self.index is None else F.only(self.index)


def asked(problem: Problem) -> Asked:
    """Return what a problem asks of a factor."""
    b, delta = to_numpy(problem.b), to_numpy(problem.delta)
    question = problem.question
    if question is not None and question.rows != "squares":
        question = None
    if question is None and (not problem.target or _is_plain(problem)):
        return _scaled(None, b, delta)
    return _general(problem, question, b, delta)


def _is_plain(problem: Problem) -> bool:
    """Whether every interval is a reading and one tolerance to both sides of it."""
    if problem.sides is not None:
        return False
    ends = problem.ends
    if ends.allowance is not None:
        return False
    return ends.even or bool(np.all(ends.lo < ends.hi))


def _general(problem: Problem, question: Question | None, b: Vector, delta: Vector) -> Asked:
    """Return the same of intervals of all kinds, and of wanted weights."""
    ends = problem.ends
    lo, hi = (ends.lo, ends.hi) if question is None else (question.lo, question.hi)
    told = np.isfinite(lo) & np.isfinite(hi)
    hard = np.zeros(b.size, bool)
    wanted = None
    if question is not None:
        hard = np.asarray(question.hard)
        wanted = question.weights
        told = (wanted > 0.0) & ~hard
        b = np.where(told, question.reading, b)
    equal = lo == hi
    two = np.isfinite(lo) & np.isfinite(hi)
    one = np.isfinite(lo) ^ np.isfinite(hi)
    asks = (told | two | one) & (to_numpy(problem.rows.nonzero) > 0)
    if problem.target:
        asks &= np.any(ends.sides, axis=0)
    index = None if asks.all() else np.flatnonzero(asks)
    b = np.where(told & ~equal, b, np.where(np.isfinite(lo), lo, np.where(np.isfinite(hi), hi, b)))
    if question is None:
        b = np.where(two & ~equal, to_numpy(problem.b), b)
    half = np.where(two & ~equal, 0.5 * (np.where(two, hi, 0.0) - np.where(two, lo, 0.0)), delta)
    unit = _units(np.where(asks, b, 0.0), half, one, equal)
    if wanted is not None:
        wanted = _with_hard(wanted, told)
    plain = bool(
        np.all(told[asks])
        and not np.any((equal | one)[asks])
        and (not problem.target or np.all((b - lo == hi - b)[asks]))
    )
    bounds = None
    if not plain:
        silent = np.all(told[asks])
        bounds = Bounds(
            b - lo, hi - b, unit, None if silent else told, equal if equal.any() else None
        )
    return _scaled(index, b, unit, bounds, wanted)


def _units(b: Vector, delta: Vector, one: Mask, equal: Mask) -> Vector:
    """Return what misses are counted in: half-widths, or a similar unit for rows without one."""
    sizes = np.maximum(np.abs(b), float(np.median(np.abs(b))) or 1.0)
    unit = np.where(one & ~((delta > 0.0) & (delta <= sizes)), _SHARE * sizes, delta)
    known = unit[~equal & (unit > 0.0)]
    typical = float(np.median(known)) if known.size else _SHARE * (float(np.max(np.abs(b))) or 1.0)
    unit = np.where(one, np.maximum(unit, _NARROWEST * typical), unit)
    least = float(np.min(known)) if known.size else typical
    floor = _EQUAL_FLOOR * float(np.max(np.abs(b)))
    return np.where(equal, max(min(_EQUAL * least, typical), min(floor, typical)), unit)


def _with_hard(weights: Vector, told: Mask) -> Vector:
    """Return weights of least squares with those of rows that must hold among them.

    Only their ratios count; they are scaled to at most 1.
    """
    with np.errstate(under="ignore"):
        weights = np.ldexp(weights, -np.frexp(np.max(weights, initial=0.0))[1])
    known = weights[told & (weights > 0.0)]
    middle = float(np.median(known)) if known.size else 1.0
    return np.where(told, weights, _HARD * middle)


def _scaled(
    index: npt.NDArray[np.intp] | None,
    b: Vector,
    delta: Vector,
    bounds: Bounds | None = None,
    wanted: Vector | None = None,
) -> Asked:
    """Scale readings by a power of four, exactly, to at most 1."""
    if index is not None:
        b, delta = b[index], delta[index]
        wanted = None if wanted is None else wanted[index]
    largest = float(np.max(np.abs(b), initial=0.0))
    exponent = math.ceil(math.frexp(largest)[1] / 2)
    with np.errstate(over="ignore", under="ignore"):
        b = np.ldexp(b, -2 * exponent)
        delta = compact(np.clip(np.ldexp(delta, -2 * exponent), 1.0 / _WIDEST, _WIDEST))
        if bounds is not None:
            pick = slice(None) if index is None else index
            below, above = (
                np.ldexp(values[pick], -2 * exponent) for values in (bounds.below, bounds.above)
            )
            told = None if bounds.told is None else bounds.told[pick]
            equal = None if bounds.equal is None else bounds.equal[pick]
            bounds = Bounds(below, above, delta, told, equal)
    return Asked(index, b, delta, exponent, bounds, wanted)
