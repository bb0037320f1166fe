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
from quadsense.core.packed import Array, Vector
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import Problem
from quadsense.methods.minimax.coordinates import (
    MatrixCoordinates,
    MinimaxCoordinates,
    gram_coordinates,
)
from quadsense.methods.minimax.mehrotra import SIGNS, Mask
from quadsense.methods.minimax.rows import row_coordinates
from quadsense.proofs.symmetric import NORM_FACTOR, data_scale

SHARE = 0.01  # of the size of the ends: the unit of a row with one end whose own is beyond that
NARROWEST = 1e-6  # no such unit is below this share of the typical one
CERTAIN = 2.0**50  # a fit larger than this many half-widths is lost in its own rounding error
SPREAD = 400  # powers of two between the smallest unit and the largest end, at most


@dataclass(frozen=True)
class AskedRows:
    """Intervals ``[b - delta, b + delta]`` of unit rows, some ends of which are missing.

    Attributes
    ----------
    index : ndarray of int or None
        The rows that ask for something; None where all do.
    b, delta : ndarray, shape (k,)
        Middles and units of error of these rows, divided by `scale`.
    sides : ndarray of bool, shape (2, k)
        Which upper and which lower ends exist.
    lo, hi : ndarray, shape (k,)
        The ends of these rows, infinite where missing, divided by `scale`.
    scale : float
        Size of the largest end, a power of 4 so that nothing, nor a root of it, is rounded.
    """

    index: npt.NDArray[np.intp] | None
    b: Vector
    delta: Vector
    sides: Mask
    lo: Vector
    hi: Vector
    scale: float

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
        largest = CERTAIN * float(np.min(delta[both]))
        asks = asks & ~((hi >= largest) & (lo <= -largest))
    index = None if bool(np.all(asks)) else np.flatnonzero(asks)
    if index is not None:
        b, delta, sides, lo, hi = b[index], delta[index], sides[:, index], lo[index], hi[index]
    return _scaled(index, b, delta, sides, lo, hi)


def _own_units(
    b: Vector, delta: Vector, ends: Vector, sides: Mask, asks: Mask
) -> tuple[Vector, Vector]:
    """Middles and units such that every end stays where it is."""
    one = asks & ~np.all(sides, axis=0)
    if not bool(np.any(one)):
        return b, delta
    ends = np.where(one, ends, b)
    sizes = np.maximum(np.abs(ends), float(np.median(np.abs(ends[asks]))))
    units = np.where(one & (delta > sizes), SHARE * sizes, delta)
    known = units[asks & (units > 0.0)]
    typical = float(np.median(known)) if known.size else 1.0
    units = np.where(one & (units < NARROWEST * typical), NARROWEST * typical, units)
    middles = np.where(sides[0], ends - units, ends + units)
    return np.where(one, middles, b), np.where(one, units, delta)


def _scaled(
    index: npt.NDArray[np.intp] | None,
    b: Vector,
    delta: Vector,
    sides: Mask,
    lo: Vector,
    hi: Vector,
) -> AskedRows:
    if b.size == 0:
        return AskedRows(index, b, delta, sides, lo, hi, 1.0)
    top = int(np.frexp(float(np.max(np.abs(b))) + float(np.max(delta)))[1])
    bottom = int(np.frexp(float(np.min(delta)))[1])
    exponent = 2 * (min(top, bottom + SPREAD) // 2)
    with np.errstate(under="ignore"):
        b, delta, lo, hi = (np.ldexp(values, -exponent) for values in (b, delta, lo, hi))
    if top > bottom + SPREAD:  # beyond what any fit can reach that the narrow rows allow
        beyond = 2.0**SPREAD
        b, delta = np.clip(b, -beyond, beyond), np.minimum(delta, beyond)
        lo = np.where(sides[1], b - delta, -np.inf)
        hi = np.where(sides[0], b + delta, np.inf)
    return AskedRows(index, b, delta, sides, lo, hi, 2.0**exponent)


GRAM_ROWS = 6000  # beyond, the m-by-m Gram matrix costs more than products with U


@dataclass(frozen=True)
class MinimaxProgram:
    """Measurements, which ends of their intervals exist, and coordinates for A."""

    F: Sensing
    b: Vector
    delta: Vector
    sides: Mask  # (2, m): has an upper end, has a lower end
    coordinates: MinimaxCoordinates
    max_norm: float


def intervals(lo: Vector, hi: Vector) -> tuple[Vector, Vector, Mask]:
    """Centre, half-width and existing ends of the intervals ``lo <= F(A) <= hi``.

    A missing end is infinite. Such a row gets the typical half-width of the others as its unit
    of error, so that ratio 1 still means that the bound is met exactly.
    """
    sides = np.stack([np.isfinite(hi), np.isfinite(lo)])
    both = sides.all(axis=0)
    ends = np.where(sides[0], hi, np.where(sides[1], lo, 0.0))
    half = 0.5 * (np.where(both, hi, 0.0) - np.where(both, lo, 0.0))
    typical = float(np.median(half[both])) if both.any() else float(np.median(np.abs(ends)))
    delta = np.where(both, half, typical if typical > 0.0 else 1.0)
    b = np.where(sides[0], ends - delta, np.where(sides[1], ends + delta, 0.0))
    return b, delta, sides


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
    return F.m <= min(F.unknowns, GRAM_ROWS) or F.m < F.n


def prepare_rows(U: Array | Sensing, b: Vector, delta: Vector, sides: Mask) -> MinimaxProgram:
    """The same program with the sensing map written out, for `rows`."""
    norm = NORM_FACTOR * data_scale(b, delta)
    F = Sensing.of(U)
    return MinimaxProgram(F, b, delta, sides, row_coordinates(F, delta), norm)


def residual(problem: MinimaxProgram, x: Array) -> Vector:
    """Return ``(F(A) - b) / delta``, shape (m,)."""
    return problem.coordinates.forward(x) - problem.b / problem.delta


def excess(problem: MinimaxProgram, z: Vector) -> Vector:
    """How far each row leans out of its interval, in tolerances; at most 1 where it is met."""
    return leaning(problem.sides, z)


def leaning(sides: Mask, z: Vector) -> Vector:
    """The same, of rows that have these ends."""
    return np.max(np.where(sides, -SIGNS * z, 0.0), axis=0)
