"""What a problem asks of A: the rows that ask for something, and units of error that make sense.

A row with one end has no width of its own, and what a problem calls its delta is only a unit: as
the user's rows may differ by many powers of ten, so may those units, far from what matters here.
So units are chosen anew, for unit rows; the ends stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.methods.base import Problem
from quadsense.methods.interior.mehrotra import Mask

SHARE = 0.01  # of the size of the ends: the unit of a row with one end whose own is beyond that
NARROWEST = 1e-6  # no such unit is below this share of the typical one
CERTAIN = 2.0**50  # a fit larger than so many half-widths is lost in its own rounding error
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
    scale : float
        Size of the largest end, a power of 4 so that nothing, nor a root of it, is rounded.
    """

    index: npt.NDArray[np.intp] | None
    b: Vector
    delta: Vector
    sides: Mask
    scale: float

    def of(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Those of the given rows (or entries) that ask for something."""
        return rows if self.index is None else rows[self.index]

    def spread(self, y: Vector, m: int) -> Vector:
        """A vector of all m rows, 0 where nothing is asked."""
        if self.index is None:
            return y
        whole = np.zeros(m)
        whole[self.index] = y
        return whole

    @property
    def ends(self) -> tuple[Vector, Vector]:
        """``(lo, hi)``, infinite where missing."""
        lo = np.where(self.sides[1], self.b - self.delta, -np.inf)
        return lo, np.where(self.sides[0], self.b + self.delta, np.inf)


def asked(problem: Problem) -> Asked:
    """The rows of a problem that ask for something, in units that make sense for unit rows."""
    b, delta = to_numpy(problem.b), to_numpy(problem.delta)
    asks: Mask = to_numpy(problem.rows.nonzero) > 0
    if problem.sides is None:
        sides: Mask = np.ones((2, b.size), dtype=bool)
    else:
        sides = problem.sides
        asks = asks & np.any(sides, axis=0)
        b, delta = _own_units(b, delta, sides, asks)
    both = asks & np.all(sides, axis=0)
    if problem.target and bool(np.any(both)):
        # Rows that no fit of a size that can be certified misses.
        largest = CERTAIN * float(np.min(delta[both]))
        with np.errstate(over="ignore"):
            above = ~sides[0] | (b + delta >= largest)
            below = ~sides[1] | (b - delta <= -largest)
        asks = asks & ~(above & below)
    index = None if bool(np.all(asks)) else np.flatnonzero(asks)
    if index is not None:
        b, delta, sides = b[index], delta[index], sides[:, index]
    return _scaled(index, b, delta, sides)


def _own_units(b: Vector, delta: Vector, sides: Mask, asks: Mask) -> tuple[Vector, Vector]:
    """Middles and units such that every end stays where it is."""
    one = asks & ~np.all(sides, axis=0)
    if not bool(np.any(one)):
        return b, delta
    with np.errstate(over="ignore"):
        ends = np.where(sides[0], b + delta, b - delta)
    sizes = np.maximum(np.abs(ends), float(np.median(np.abs(ends[asks]))))
    units = np.where(one & (delta > sizes), SHARE * sizes, delta)
    known = units[asks & (units > 0.0)]
    typical = float(np.median(known)) if known.size else 1.0
    units = np.where(one & (units < NARROWEST * typical), NARROWEST * typical, units)
    middles = np.where(sides[0], ends - units, ends + units)
    return np.where(one, middles, b), np.where(one, units, delta)


def _scaled(index: npt.NDArray[np.intp] | None, b: Vector, delta: Vector, sides: Mask) -> Asked:
    if b.size == 0:
        return Asked(index, b, delta, sides, 1.0)
    top = int(np.frexp(float(np.max(np.abs(b))) + float(np.max(delta)))[1])
    bottom = int(np.frexp(float(np.min(delta)))[1])
    exponent = 2 * (min(top, bottom + SPREAD) // 2)
    with np.errstate(under="ignore"):
        b, delta = np.ldexp(b, -exponent), np.ldexp(delta, -exponent)
    if top > bottom + SPREAD:  # beyond what any fit can reach that the narrow rows allow
        b, delta = np.clip(b, -(2.0**SPREAD), 2.0**SPREAD), np.minimum(delta, 2.0**SPREAD)
    return Asked(index, b, delta, sides, 2.0**exponent)
