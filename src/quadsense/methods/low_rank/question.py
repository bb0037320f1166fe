"""What is asked of the rows: intervals of all kinds, units of misses, weights of least squares."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import compact, to_numpy
from quadsense.core.intervals import BEYOND
from quadsense.core.question import Question
from quadsense.core.records import cached_property
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import Problem

Vector = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Tolerances are kept within this factor of the largest reading, so that squares of ratios do not
# overflow: wider ones are met anyway, and narrower ones no float64 can certify.
MAX_TOLERANCE_RATIO = 2.0**500
# The unit of a row with one end whose own is larger than that end, as a share of the end; no unit
# is below such a share of the typical one.
ONE_SIDED_UNIT, MIN_UNIT_SHARE = 0.01, 1e-6
# An equality counts as a tolerance this many times narrower than the narrowest, but not narrower
# than this share of the largest reading, beyond which normal equations lose it.
EQUALITY_SHARE, MIN_EQUALITY_UNIT = 1e-2, 1e-7
# Weight of what must hold, relative to the median one of least squares.
HARD_WEIGHT = 1e6


@dataclass(frozen=True)
class FactorBounds:
    """Intervals around readings b: residuals z are values minus b.

    Attributes
    ----------
    below, above : (m,) float64
        ``b - lo`` and ``hi - b``; infinite where there is no such end.
    unit : (m,) float64
        Half the width of an interval of two ends; what a crossing is counted in elsewhere.
    told : (m,) bool or None
        Rows with a reading, of which least squares counts the whole residual; of the others only
        what is beyond their ends. None: all.
    equal : (m,) bool or None
        Rows whose two ends are one: they are met to rounding. None: none.
    """

    below: Vector
    above: Vector
    unit: Vector
    told: Mask | None = None
    equal: Mask | None = None

    def each(self, place: Callable[[Any], Any]) -> FactorBounds:
        """The same with every array as that makes it."""
        told = None if self.told is None else place(self.told)
        equal = None if self.equal is None else place(self.equal)
        return FactorBounds(place(self.below), place(self.above), place(self.unit), told, equal)

    @cached_property
    def margin(self) -> Vector:
        """Room within a row to aim at: its unit, but none in an equality."""
        return self.unit if self.equal is None else np.where(self.equal, 0.0, self.unit)

    def excess(self, z: Vector, theta: float, part: slice = slice(None)) -> Vector:
        """By how much residuals are more than they may be: see `LowRankProgram.excess`."""
        if theta == 0.0 and self.told is None:
            return z
        # A row aims as far inside its interval as the others do.
        inside = 0.0 if theta == 0.0 else (1.0 - theta) * self.margin[part]
        excess: Vector = z - np.clip(z, inside - self.below[part], self.above[part] - inside)
        if theta == 0.0 and self.told is not None:
            excess = np.where(self.told[part], z, excess)
        return excess

    def ratios(self, z: Vector, bound: Vector, part: slice = slice(None)) -> Vector:
        """How far residuals lean out of their intervals, rounding included: 1 is an end.

        0 within the end of a row that has but one; an equality is at 1 where all of its residual
        may be rounding.
        """
        below, above = self.below[part], self.above[part]
        two = np.isfinite(below) & np.isfinite(above)
        over = np.maximum(z - above, -below - z) + bound
        ratios = 1.0 + over / self.unit[part]
        ratios = np.where(two, ratios, np.where(over > 0.0, np.maximum(ratios, BEYOND), 0.0))
        if self.equal is not None:
            ratios = np.where(self.equal[part], np.abs(z) / bound, ratios)
        return ratios

    def support(self, y: Vector, b: Vector) -> float:
        """The largest ``y.v`` over values v in the intervals."""
        rows = np.flatnonzero(y)
        reach = np.where(y[rows] > 0.0, self.above[rows], -self.below[rows])
        return float(np.dot(y[rows], b[rows] + reach))


@dataclass(frozen=True)
class FactorQuestion:
    """What is asked of the rows in `index` (all where None), readings scaled to at most 1.

    Attributes
    ----------
    index : (k,) int or None
    b, delta : (k,) float64
        Readings and tolerances, over ``4**exponent``.
    exponent : int
    bounds : FactorBounds or None
        Where not all intervals are ``b - delta`` to ``b + delta``.
    wanted : (k,) float64 or None
        Weights of least squares by which a fit is chosen.
    """

    index: npt.NDArray[np.intp] | None
    b: Vector
    delta: Vector
    exponent: int
    bounds: FactorBounds | None = None
    wanted: Vector | None = None

    def on(self, rows: Sensing) -> Sensing:
        """Those of the rows that are asked for something, as methods see them."""
        F = rows.at_work().plain()
        return F if self.index is None else F.only(self.index)


def asked(problem: Problem) -> FactorQuestion:
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


def _general(
    problem: Problem, question: Question | None, b: Vector, delta: Vector
) -> FactorQuestion:
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
        bounds = FactorBounds(
            b - lo, hi - b, unit, None if silent else told, equal if equal.any() else None
        )
    return _scaled(index, b, unit, bounds, wanted)


def _units(b: Vector, delta: Vector, one: Mask, equal: Mask) -> Vector:
    """Return what misses are counted in: half-widths, or a similar unit for rows without one."""
    sizes = np.maximum(np.abs(b), float(np.median(np.abs(b))) or 1.0)
    unit = np.where(one & ~((delta > 0.0) & (delta <= sizes)), ONE_SIDED_UNIT * sizes, delta)
    known = unit[~equal & (unit > 0.0)]
    typical = (
        float(np.median(known))
        if known.size
        else ONE_SIDED_UNIT * (float(np.max(np.abs(b))) or 1.0)
    )
    unit = np.where(one, np.maximum(unit, MIN_UNIT_SHARE * typical), unit)
    least = float(np.min(known)) if known.size else typical
    floor = MIN_EQUALITY_UNIT * float(np.max(np.abs(b)))
    return np.where(equal, max(min(EQUALITY_SHARE * least, typical), min(floor, typical)), unit)


def _with_hard(weights: Vector, told: Mask) -> Vector:
    """Return weights of least squares with those of rows that must hold among them.

    Only their ratios count; they are scaled to at most 1.
    """
    with np.errstate(under="ignore"):
        weights = np.ldexp(weights, -np.frexp(np.max(weights, initial=0.0))[1])
    known = weights[told & (weights > 0.0)]
    middle = float(np.median(known)) if known.size else 1.0
    return np.where(told, weights, HARD_WEIGHT * middle)


def _scaled(
    index: npt.NDArray[np.intp] | None,
    b: Vector,
    delta: Vector,
    bounds: FactorBounds | None = None,
    wanted: Vector | None = None,
) -> FactorQuestion:
    """Scale readings by a power of four, exactly, to at most 1."""
    if index is not None:
        b, delta = b[index], delta[index]
        wanted = None if wanted is None else wanted[index]
    largest = float(np.max(np.abs(b), initial=0.0))
    exponent = math.ceil(math.frexp(largest)[1] / 2)
    with np.errstate(over="ignore", under="ignore"):
        b = np.ldexp(b, -2 * exponent)
        delta = compact(
            np.clip(np.ldexp(delta, -2 * exponent), 1.0 / MAX_TOLERANCE_RATIO, MAX_TOLERANCE_RATIO)
        )
        if bounds is not None:
            pick = slice(None) if index is None else index
            below, above = (
                np.ldexp(values[pick], -2 * exponent) for values in (bounds.below, bounds.above)
            )
            told = None if bounds.told is None else bounds.told[pick]
            equal = None if bounds.equal is None else bounds.equal[pick]
            bounds = FactorBounds(below, above, delta, told, equal)
    return FactorQuestion(index, b, delta, exponent, bounds, wanted)
