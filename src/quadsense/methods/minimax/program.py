"""The linear program of `iteration`: rows that ask for something, their units, coordinates for A.

A row with one end has no width of its own, and what a problem calls its delta is only a unit. One
far from the size of the ends is chosen anew; the ends stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import to_numpy
from quadsense.core.intervals import Intervals
from quadsense.core.packed import Array, Vector
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import Problem
from quadsense.methods.minimax.coordinates import (
    MatrixCoordinates,
    MinimaxCoordinates,
    gram_coordinates,
)
from quadsense.methods.minimax.newton import SIGNS, Mask
from quadsense.proofs.symmetric import NORM_FACTOR, data_scale

UNIT_SHARE = 0.01
"""Of the size of the ends: the unit of a row with one end whose own is beyond that."""

MIN_UNIT = 1e-6
"""Share of the typical unit below which none is."""

MAX_CERTAIN_SIZE = 2.0**50
"""Size in half-widths of a fit that is lost in its own rounding error."""

MAX_EXPONENT_SPREAD = 400
"""Powers of two between the smallest unit and the largest end, at most."""

MAX_GRAM_ROWS = 6000
"""Beyond, the m-by-m Gram matrix costs more than products with U."""


@dataclass(frozen=True)
class AskedRows:
    """The rows that ask for something, and what they ask for.

    Attributes
    ----------
    index : ndarray of int or None
        The rows that ask for something; None where all do.
    b : ndarray, shape (k,)
        Middles of their intervals, divided by `scale`.
    intervals : Intervals
        Theirs, divided by `scale`, in units of error that make sense for unit rows.
    scale : float
        Size of the largest end, a power of 4 so that nothing, nor a root of it, is rounded.
    """

    index: npt.NDArray[np.intp] | None
    b: Vector
    intervals: Intervals
    scale: float

    @property
    def delta(self) -> Vector:
        """Units of error."""
        return self.intervals.unit

    @property
    def sides(self) -> Mask:
        """Which upper and which lower ends exist, (2, k)."""
        return self.intervals.sides

    def of(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Those of the given rows (or entries) that ask for something."""
        return rows if self.index is None else rows[self.index]

    def on(self, rows: Sensing, tf32: bool = False) -> Sensing:
        """Those of the rows that ask for something, as methods see them."""
        F = rows.at_work(tf32)
        return F if self.index is None else F.only(self.index)

    def spread(self, y: Vector, m: int) -> Vector:
        """A vector of all m rows, 0 where nothing is asked."""
        if self.index is None:
            return y
        whole = np.zeros(m)
        whole[self.index] = y
        return whole


def asked(problem: Problem) -> AskedRows:
    """The rows of a problem that ask for something, in units that make sense for unit rows."""
    b, delta, ends = to_numpy(problem.b), to_numpy(problem.delta), problem.ends.opened()
    asks: Mask = to_numpy(problem.rows.nonzero) > 0
    sides: Mask = ends.sides
    lo, hi = ends.lo, ends.hi
    if not sides.all():
        asks = asks & np.any(sides, axis=0)
        b, delta = _own_units(b, delta, np.where(sides[0], hi, lo), sides, asks)
    both = asks & np.all(sides, axis=0)
    if problem.target and bool(np.any(both)):
        # Rows that no fit of a size that can be certified misses.
        largest = MAX_CERTAIN_SIZE * float(np.min(delta[both]))
        asks = asks & ~((hi >= largest) & (lo <= -largest))
    index = None if bool(np.all(asks)) else np.flatnonzero(asks)
    if index is not None:
        b, delta, lo, hi = b[index], delta[index], lo[index], hi[index]
    return _scaled(index, b, Intervals.of(lo, hi, delta))


def _own_units(
    b: Vector, delta: Vector, ends: Vector, sides: Mask, asks: Mask
) -> tuple[Vector, Vector]:
    """Middles and units such that every end stays where it is."""
    one = asks & ~np.all(sides, axis=0)
    if not bool(np.any(one)):
        return b, delta
    ends = np.where(one, ends, b)
    sizes = np.maximum(np.abs(ends), float(np.median(np.abs(ends[asks]))))
    units = np.where(one & (delta > sizes), UNIT_SHARE * sizes, delta)
    known = units[asks & (units > 0.0)]
    typical = float(np.median(known)) if known.size else 1.0
    units = np.where(one & (units < MIN_UNIT * typical), MIN_UNIT * typical, units)
    middles = np.where(sides[0], ends - units, ends + units)
    return np.where(one, middles, b), np.where(one, units, delta)


def _scaled(index: npt.NDArray[np.intp] | None, b: Vector, intervals: Intervals) -> AskedRows:
    if b.size == 0:
        return AskedRows(index, b, intervals, 1.0)
    delta = intervals.unit
    top = int(np.frexp(float(np.max(np.abs(b))) + float(np.max(delta)))[1])
    bottom = int(np.frexp(float(np.min(delta)))[1])
    exponent = 2 * (min(top, bottom + MAX_EXPONENT_SPREAD) // 2)
    with np.errstate(under="ignore"):
        b, intervals = np.ldexp(b, -exponent), intervals.each(lambda x: np.ldexp(x, -exponent))
    if top > bottom + MAX_EXPONENT_SPREAD:  # beyond what fits can reach that narrow rows allow
        beyond, (upper, lower) = 2.0**MAX_EXPONENT_SPREAD, intervals.sides
        b, delta = np.clip(b, -beyond, beyond), np.minimum(intervals.unit, beyond)
        lo, hi = np.where(lower, b - delta, -np.inf), np.where(upper, b + delta, np.inf)
        intervals = Intervals.of(lo, hi, delta)
    return AskedRows(index, b, intervals, 2.0**exponent)


@dataclass(frozen=True)
class MinimaxProgram:
    """Measurements, which ends of their intervals exist, and coordinates for A."""

    F: Sensing
    b: Vector
    delta: Vector
    sides: Mask  # (2, m): has an upper end, has a lower end
    coordinates: MinimaxCoordinates
    max_norm: float


def prepare(
    U: Array | Sensing, b: Vector, delta: Vector, sides: Mask | None = None
) -> MinimaxProgram:
    """Choose the coordinates: A itself, or the span of few measurements.

    Parameters
    ----------
    U : Sensing, or ndarray of shape (m, n)
        Rows of norm at most 1.
    b, delta : ndarray, shape (m,)
        Readings and tolerances (1 where only the worst error matters).
    sides : ndarray of bool, shape (2, m), optional
        Which upper and which lower ends exist; all of them, if omitted.
    """
    if sides is None:
        sides = np.ones((2, b.size), dtype=bool)
    F = Sensing.of(U)
    scale = data_scale(b, delta)
    b, delta, sides = (F.beside(values) for values in (b, delta, sides))
    coordinates = gram_coordinates(F, delta) if by_gram(F) else MatrixCoordinates(F, delta)
    return MinimaxProgram(F, b, delta, sides, coordinates, NORM_FACTOR * scale)


def by_gram(F: Sensing) -> bool:
    """Whether the unknowns are the span of few measurements."""
    return F.m <= min(F.unknowns, MAX_GRAM_ROWS) or F.m < F.n


def residual(problem: MinimaxProgram, x: Array) -> Vector:
    """Return ``(F(A) - b) / delta``, shape (m,)."""
    return problem.coordinates.forward(x) - problem.b / problem.delta


def excess(problem: MinimaxProgram, z: Vector) -> Vector:
    """How far each row leans out of its interval, in tolerances; at most 1 where it is met."""
    return leaning(problem.sides, z)


def leaning(sides: Mask, z: Vector) -> Vector:
    """The same, of rows that have these ends."""
    return np.max(np.where(sides, -SIGNS * z, 0.0), axis=0)
