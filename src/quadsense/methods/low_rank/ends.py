"""Intervals of a factored fit that are not all a reading and one tolerance to both sides of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.core.intervals import BEYOND
from quadsense.core.records import cached_property

Vector = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Weights this far above the middle one are walls to a descent; each level raises the cap by so
# much, or by more where that would take more levels than this.
_STEEP, _LEVEL, _MOST_LEVELS = 1e3, 1e4, 12


@dataclass(frozen=True)
class Bounds:
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

    def each(self, place: Callable[[Any], Any]) -> Bounds:
        """The same with every array as that makes it."""
        told = None if self.told is None else place(self.told)
        equal = None if self.equal is None else place(self.equal)
        return Bounds(place(self.below), place(self.above), place(self.unit), told, equal)

    @cached_property
    def margin(self) -> Vector:
        """Room within a row to aim at: its unit, but none in an equality."""
        return self.unit if self.equal is None else np.where(self.equal, 0.0, self.unit)

    def excess(self, z: Vector, theta: float, part: slice = slice(None)) -> Vector:
        """By how much residuals are more than they may be: see `Program.excess`."""
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


def weights_by_level(weights: Vector) -> list[Vector]:
    """Weights of least squares whose spread is limited, less and less; the last are those given."""
    most = float(weights.max())
    if most <= float(weights.min()) * _STEEP or not most > 0.0:
        return [weights]
    middle = float(np.median(weights[weights > 0.0]))
    if most <= middle * _STEEP:
        return [weights]
    levels, cap = [], middle
    share = 1.0 / _MOST_LEVELS
    growth = max(_LEVEL, most**share / middle**share)
    while cap * _STEEP < most:
        levels.append(np.minimum(weights, cap))
        cap *= growth
    return [*levels, weights]
