"""What a problem asks of A: the rows that ask for something, and units of error that make sense.

A row with one end has no width of its own, and what a problem calls its delta is only a unit. One
far from the size of the ends is chosen anew; the ends stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import Problem
from quadsense.methods.minimax.mehrotra import Mask

SHARE = 0.01  # of the size of the ends: the unit of a row with one end whose own is beyond that
NARROWEST = 1e-6  # no such unit is below this share of the typical one
CERTAIN = 2.0**50  # a fit larger than this many half-widths is lost in its own rounding error
SPREAD = 400  # powers of two between the smallest unit and the largest end, at most


@dataclass(frozen=True)
class Asked:
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


def asked(problem: Problem) -> Asked:
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
) -> Asked:
    if b.size == 0:
        return Asked(index, b, delta, sides, lo, hi, 1.0)
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
    return Asked(index, b, delta, sides, lo, hi, 2.0**exponent)
