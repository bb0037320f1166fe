"""The ends of the intervals, exactly as they were given, and how far a value is from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector

UNIT = 2.0**-53
"""Unit roundoff of float64."""

BEYOND = 1.0 + 2.0 * UNIT
"""The least ratio of an end that is crossed, however little."""

END_ERROR = 8.0 * UNIT
"""Bound on the relative error of an end after its two divisions by a norm, rounded up."""


@dataclass(frozen=True)
class Ends:
    """Intervals ``reading - below <= u* A u <= reading + above``, one a measurement.

    With `delta` the reading is b and both distances are delta; with `bounds` the reading is 0, the
    distances are ``-lo`` and ``hi``. So what was given is never rounded.

    Attributes
    ----------
    reading, below, above : ndarray of shape (m,)
        Distances are infinite where there is no such end.
    unit : ndarray of shape (m,)
        Half the width of an interval of two ends. A row of one end has no width of its own: a
        crossing by v counts as the ratio ``1 + v/unit``.
    outright : bool
        Whether the intervals were given outright, so that there are no readings.
    """

    reading: Vector
    below: Vector
    above: Vector
    unit: Vector
    outright: bool = False

    @classmethod
    def around(cls, b: Vector, delta: Vector) -> Ends:
        """``[b - delta, b + delta]``."""
        return cls(b, delta, delta, delta)

    @classmethod
    def between(cls, lo: Vector, hi: Vector, norms: Vector) -> Ends:
        """``[lo, hi]``, an end infinite where there is none, for rows of these norms.

        The unit of a row of one end is the median half-width of the rows of two, without any 1% of
        the largest end; of rows scaled to unit norm, so that the scaling of a row does not matter.
        """
        both = np.isfinite(lo) & np.isfinite(hi)
        half = np.where(both, hi, 0.0) / 2 - np.where(both, lo, 0.0) / 2
        if both.all():
            return cls(np.zeros_like(lo), -lo, hi, half, True)
        live = norms > 0
        safe = np.where(live, norms, 1.0)
        with np.errstate(over="ignore", under="ignore"):
            if (both & live).any():
                typical = float(np.median((half / safe / safe)[both & live]))
            else:
                ends = np.where(np.isfinite(hi), hi, np.where(np.isfinite(lo), lo, 0.0))
                typical = 0.01 * float(np.max(np.abs(ends) / safe / safe, where=live, initial=0.0))
            unit = np.where(both, half, (typical or 1.0) * safe * safe)
        return cls(np.zeros_like(lo), -lo, hi, unit, True)

    @property
    def even(self) -> bool:
        """Whether every interval is a reading and one tolerance to both sides of it."""
        return self.below is self.above

    @property
    def lo(self) -> Vector:
        """Lower ends, minus infinity where there is none."""
        return np.asarray(self.reading - self.below)

    @property
    def hi(self) -> Vector:
        """Upper ends, infinity where there is none."""
        return np.asarray(self.reading + self.above)

    @property
    def sides(self) -> npt.NDArray[np.bool_]:
        """Which upper and which lower ends exist, (2, m)."""
        return np.stack([np.isfinite(self.above), np.isfinite(self.below)])

    @property
    def scale(self) -> Vector:
        """Largest size that a value within the interval may have; infinite where one-sided."""
        return np.maximum(np.abs(self.lo), np.abs(self.hi))

    def middle(self) -> Vector:
        """A reading that `unit` separates from every end that there is; 0 where there is none."""
        upper, lower = self.sides
        with np.errstate(invalid="ignore"):
            shift = np.where(
                upper & lower,
                (self.above - self.below) / 2,
                np.where(upper, self.above - self.unit, self.unit - self.below),
            )
        return np.asarray(self.reading + np.where(upper | lower, shift, 0.0))

    def ratios(self, z: Any, error: Any = 0.0) -> Vector:
        """How far values lean out of their intervals: 1 is an end.

        Parameters
        ----------
        z : ndarray of shape (m,)
            Values less `reading`.
        error : ndarray of shape (m,), optional
            Bound on the error of z: the ratio is then the largest that it allows.

        Returns
        -------
        ndarray of shape (m,)
            The distance from the middle in half-widths; for a row of one end 0 within it and
            ``1 + v/unit`` where it is crossed by v.
        """
        if self.even:
            return np.asarray((np.abs(z) + error) / self.unit)
        upper, lower = self.sides
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            two = (np.abs(z - (self.above - self.below) / 2) + error) / self.unit
            over = np.where(upper, z - self.above, -self.below - z) + error
            one = np.where(over > 0.0, np.maximum(1.0 + over / self.unit, BEYOND), 0.0)
            return np.asarray(np.where(upper & lower, two, np.where(upper | lower, one, 0.0)))

    def crossing(self, z: Any) -> Vector:
        """By how much an end is crossed: positive above, negative below, 0 inside."""
        return np.asarray(np.maximum(z - self.above, 0.0) - np.maximum(-self.below - z, 0.0))

    def met(self, z: Any, error: Any) -> npt.NDArray[np.bool_]:
        """Whether values known up to `error` are surely within their intervals."""
        if self.even:
            return np.asarray(np.abs(z) + error <= (1.0 - END_ERROR) * self.above)
        with np.errstate(invalid="ignore", under="ignore"):
            over = z + error + END_ERROR * np.abs(self.above) <= self.above
            under = error - z + END_ERROR * np.abs(self.below) <= self.below
        upper, lower = self.sides
        return np.asarray((over | ~upper) & (under | ~lower))

    def missed(self, z: Any, error: Any) -> npt.NDArray[np.bool_]:
        """Whether values known up to `error` are surely outside their intervals."""
        with np.errstate(invalid="ignore", under="ignore"):
            over = z - error > self.above + END_ERROR * np.abs(self.above)
            under = -z - error > self.below + END_ERROR * np.abs(self.below)
        return np.asarray(over | under)

    def without(self, index: Any) -> Ends:
        """The same, with the rows in `index` asked for nothing."""
        below, above = self.below.copy(), self.above.copy()
        below[index] = above[index] = np.inf
        return replace(self, below=below, above=above)

    def over(self, norms: Vector) -> Ends:
        """The ends for rows divided by these norms; a row of norm 0 is asked for nothing."""
        live = norms > 0
        if live.all():
            return self.each(lambda values: values / norms / norms)
        safe = np.where(live, norms, 1.0)
        ends = self.each(lambda values: values / safe / safe)
        return replace(
            ends,
            reading=np.where(live, ends.reading, 0.0),
            below=np.where(live, ends.below, np.inf),
            above=np.where(live, ends.above, np.inf),
            unit=np.where(live, ends.unit, 1.0),
        )

    def shifted(self, exponents: npt.NDArray[np.int64]) -> Ends:
        """The ends for rows multiplied by ``2^-exponents``: exact but for underflow."""
        with np.errstate(under="ignore", over="ignore"):
            return self.each(lambda values: np.ldexp(values, -2 * exponents))

    def each(self, change: Callable[[Vector], Vector]) -> Ends:
        """The same with every array changed; what is `even` stays so."""
        above, reading = change(self.above), change(self.reading)
        if self.even:
            return Ends(reading, above, above, above)
        return Ends(reading, change(self.below), above, change(self.unit), self.outright)
