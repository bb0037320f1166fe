"""The intervals of the readings, exactly as they were given, and how far a value is from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense.arrays import LONG, Vector, compact, like, to_numpy
from quadsense.core.records import cached_property, record
from quadsense.device import scalar

Real = npt.NDArray[np.float64]

Array = npt.NDArray[Any]
"""Of float64 or complex128: a union of the two does not survive NumPy's own annotations."""

UNIT = float(np.finfo(np.float64).epsneg)
"""Unit roundoff of float64."""

TINY = float(np.finfo(np.float64).tiny)
"""The smallest normal float64: stands for 0 where something is divided by."""

EPS = 2.0 * UNIT
"""Distance of 1 from the next number: bounds with it are generous."""

ZERO_SHARE = 1e-12
"""Eigenvalue or singular value, as a share of the largest, up to which it is rounding alone."""

BEYOND = 1.0 + 2.0 * UNIT
"""The least ratio of an end that is crossed, however little."""

END_ERROR = 8.0 * UNIT
"""Bound on the relative error of an end after its two divisions by a norm, rounded up."""

EXACTNESS = 256.0
"""The c of ``c eps n ||u||^2 ||A||_F``, eps = 2^-52, within which an equality counts as met. What
rounding does to a reading is bounded by a tenth of that for most A (see `proofs.rounding`), so that
an A which meets an equality as well as float64 can is known to."""

KIND_EXACTNESS = 32.0
"""What is added to that, in units of what products with the kind of probes err by beyond inner
products: a reading is known to a quarter of it, sums over rows included (see `proofs.rounding`)."""

WIDTHS = 16.0
"""Half the width that methods are given for an equality, in units of what it is met within."""

SHARE = 0.1
"""That width over the narrowest other one, where that is wider: a last step meets the equality, and
most fits have room for it. Where none is found so, the width shrinks (`narrowed`)."""

NARROWER = 1e-2
"""By how much it shrinks at a time."""


@record(frozen=True)
class Intervals:
    """Intervals ``reading - below <= u* A u <= reading + above``, one per measurement.

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
    allowance : ndarray of shape (m,) or None
        Of an equality, what it is met within for an A of Frobenius norm 1, and 0 of other rows;
        None where there are no equalities. Their `unit` is a width for methods, their ratio 0
        within what is allowed (see `allowing`) and ``1 + v/unit`` beyond.
    """

    reading: Vector
    below: Vector
    above: Vector
    unit: Vector
    outright: bool = False
    allowance: Vector | None = None

    @classmethod
    def around(cls, b: Vector, delta: Vector) -> Intervals:
        """Return ``[b - delta, b + delta]``."""
        return cls(b, delta, delta, delta)

    @classmethod
    def of(cls, lo: Vector, hi: Vector, unit: Vector) -> Intervals:
        """Return ``[lo, hi]`` with that unit, an end infinite where there is none."""
        return cls(np.zeros_like(lo), -lo, hi, unit, True)

    @classmethod
    def between(
        cls, lo: Vector, hi: Vector, norms: Vector | None = None, typical: float = 0.0
    ) -> Intervals:
        """``[lo, hi]``, an end infinite where there is none, for rows of these norms or of 1.

        The unit of a row of one end is `typical`; where that is 0, the median half-width of the
        rows of two, without any 1% of the largest end; of rows scaled to unit norm, so that the
        scaling of a row does not matter.
        """
        both = np.isfinite(lo) & np.isfinite(hi)
        half = np.where(both, hi, 0.0) / 2 - np.where(both, lo, 0.0) / 2
        if both.all():
            return cls(np.zeros_like(lo), -lo, hi, half, True)
        norms = np.ones_like(lo) if norms is None else norms
        live = norms > 0
        safe = np.where(live, norms, 1.0)
        with np.errstate(over="ignore", under="ignore"):
            if typical > 0.0:
                pass
            elif (wide := both & live & (half > 0.0)).any():  # equalities have no width
                typical = float(np.median((half / safe / safe)[wide]))
            else:
                ends = np.where(np.isfinite(hi), hi, np.where(np.isfinite(lo), lo, 0.0))
                typical = 0.01 * float(np.max(np.abs(ends) / safe / safe, where=live, initial=0.0))
            unit = np.where(both, half, (typical or 1.0) * safe * safe)
        return cls(np.zeros_like(lo), -lo, hi, unit, True)

    @classmethod
    def joined(cls, first: Intervals, second: Intervals) -> Intervals:
        """Return intervals of further rows below others."""
        each = (
            np.concatenate([getattr(first, name), getattr(second, name)])
            for name in ("reading", "below", "above", "unit")
        )
        reading, below, above, unit = each
        return cls(reading, below, above, unit, first.outright)

    def with_allowance(self, allowance: Vector, norms: Vector) -> Intervals:
        """Return the same with what equalities are met within, and a width for them.

        Parameters
        ----------
        allowance : ndarray of shape (m,)
            For an A of Frobenius norm 1, were the row an equality.
        norms : ndarray of shape (m,)
            Of the rows.
        """
        equal = np.asarray(self.above == -self.below)
        if not equal.any():
            return self if self.allowance is None else replace(self, allowance=None)
        live = norms > 0
        safe = np.where(live, norms, 1.0)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            ends = np.where(np.isfinite(self.lo), np.abs(self.lo), 0.0)
            ends = np.maximum(ends, np.where(np.isfinite(self.hi), np.abs(self.hi), 0.0))
            size = float(np.max(ends / safe / safe, where=live, initial=0.0)) or 1.0
            others = np.where(live & ~equal, self.unit / safe / safe, np.inf)
            other = float(np.min(others))
            width = WIDTHS * allowance * size
            if np.isfinite(other):
                width = np.maximum(width, SHARE * min(other, size) * safe * safe)
        return replace(
            self,
            # A row of zeros reads 0: asked for something else, it is missed.
            unit=np.where(equal, np.where(live, width, ends / 2 + (ends == 0.0)), self.unit),
            allowance=np.where(equal, allowance, 0.0),
        )

    def typical_unit(self, norms: Vector) -> float:
        """The median unit of the rows that are no equalities, scaled to unit norm; 0 of none."""
        asks = (norms > 0) & ~self.exact & self.sides.any(axis=0)
        with np.errstate(over="ignore", under="ignore"):
            units = self.unit[asks] / norms[asks] / norms[asks]
        found = float(np.median(units)) if units.size else 0.0
        return found if np.isfinite(found) else 0.0

    @cached_property
    def exact(self) -> npt.NDArray[np.bool_]:
        """Which rows are equalities."""
        return np.asarray(
            self.above == -self.below if self.allowance is None else self.allowance > 0.0
        )

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """The least unit, and the largest sum of the size of a reading and a unit."""
        largest = np.maximum.reduce(np.abs(self.reading) + self.unit)
        return float(np.minimum.reduce(self.unit)), float(largest)

    @property
    def has_equalities(self) -> bool:
        """Whether there are such rows."""
        if self.below is self.above and self.allowance is None:
            return not np.logical_and.reduce(self.above)
        return bool(self.exact.any())

    def allowing(self, size: float) -> Intervals:
        """The same, equalities widened to what they are met within for ``||A||_F = size``."""
        if self.allowance is None:
            return self
        with np.errstate(over="ignore", under="ignore"):
            return self._opened(self.allowance * size)

    def narrowed(self, size: float) -> Intervals | None:
        """The same with narrower widths for equalities; None where they are as narrow as may be.

        `size` is of a fit, ``||A||_F``.
        """
        if self.allowance is None:
            return None
        with np.errstate(over="ignore", under="ignore"):
            width = np.maximum(NARROWER * self.unit, WIDTHS * self.allowance * size)
        unit = np.where(self.exact, np.minimum(width, self.unit), self.unit)
        return replace(self, unit=unit) if np.any(unit < 0.5 * self.unit) else None

    def opened(self) -> Intervals:
        """Return the same for methods: equalities as intervals of half-width `unit`."""
        return self if self.allowance is None else self._opened(self.unit)

    def _opened(self, room: Vector) -> Intervals:
        """Return equalities widened by so much; they stay equalities in name."""
        assert self.allowance is not None
        above = np.where(self.allowance > 0.0, self.above + room, self.above)
        if self.even:
            return replace(self, below=above, above=above)
        below = np.where(self.allowance > 0.0, self.below + room, self.below)
        return replace(self, below=below, above=above)

    @property
    def even(self) -> bool:
        """Whether every interval is a reading and one tolerance to both sides of it."""
        return self.below is self.above

    @property
    def lo(self) -> Vector:
        """Lower ends, minus infinity where there is none."""
        return self.reading - self.below  # on whatever device they are

    @property
    def hi(self) -> Vector:
        """Upper ends, infinity where there is none."""
        return self.reading + self.above

    @property
    def sides(self) -> npt.NDArray[np.bool_]:
        """Which upper and which lower ends exist, (2, m)."""
        return np.stack([np.isfinite(self.above), np.isfinite(self.below)])

    @property
    def two_sided(self) -> npt.NDArray[np.bool_]:
        """Which rows have both ends."""
        above = np.isfinite(self.above)
        return above if self.even else above & np.isfinite(self.below)

    @property
    def scale(self) -> Vector:
        """Largest size that a value within the interval may have; infinite where one-sided."""
        return np.maximum(np.abs(self.lo), np.abs(self.hi))

    def middle(self) -> Vector:
        """A reading that `unit` separates from every end that there is; 0 where there is none."""
        upper, lower = self.sides
        with np.errstate(over="ignore", invalid="ignore"):
            shift = np.where(
                upper & lower,
                (self.above - self.below) / 2,
                np.where(upper, self.above - self.unit, self.unit - self.below),
            )
        return np.asarray(self.reading + np.where(upper | lower, shift, 0.0))

    def centers(self) -> Vector:
        """Return the middles; of one end that end, and 0 where there is none."""
        one = np.where(np.isfinite(self.above), self.above, -self.below)
        one = self.reading + np.where(np.isfinite(one), one, 0.0)
        return np.where(self.sides.all(axis=0), self.middle(), one)

    def ratios(self, z: Any, error: Any = 0.0) -> Vector:
        """Return how far values lean out of their intervals: 1 is an end.

        Parameters
        ----------
        z : ndarray of shape (m,)
            Values less `reading`.
        error : ndarray of shape (m,), optional
            Bound on the error of z: the ratio is then the largest that it allows.

        Returns
        -------
        ndarray of shape (m,)
            The distance from the middle in half-widths; for a row of one end, and for an equality,
            0 within it and ``1 + v/unit`` where it is crossed by v.
        """
        if self.below is self.above and self.allowance is None:
            ratios: Vector = np.abs(z)
            ratios += error
            ratios /= self.unit
            return ratios
        upper, lower = self.sides
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            two = (np.abs(z - (self.above - self.below) / 2) + error) / self.unit
            over = np.where(upper, z - self.above, -self.below - z) + error
            one = np.where(over > 0.0, np.maximum(1.0 + over / self.unit, BEYOND), 0.0)
            if self.allowance is not None:
                beyond = np.maximum(z - self.above, -self.below - z) + error
                held = np.where(beyond > 0.0, np.maximum(1.0 + beyond / self.unit, BEYOND), 0.0)
                two = np.where(self.allowance > 0.0, held, two)
            return np.where(upper & lower, two, np.where(upper | lower, one, 0.0))

    def widened(self, ratio: float | Vector) -> Intervals:
        """Return the intervals that an A of this ratio just meets, or of one ratio per row."""
        move = (ratio - 1.0) * self.unit
        above = self.above + move
        return replace(self, above=above, below=above if self.even else self.below + move)

    def target(self) -> Vector | None:
        """Return the middles of the intervals, or None where a row has none: it is one-sided."""
        return self._target

    @cached_property
    def _target(self) -> Vector | None:
        if not bool(np.all(np.isfinite(self.below) & np.isfinite(self.above))):
            return None
        return 0.5 * (self.lo + self.hi)

    def excess(self, values: Any) -> Vector:
        """Return the signed miss of values of F: positive above hi, negative below lo, 0 inside."""
        return np.maximum(values - self.hi, 0.0) - np.maximum(self.lo - values, 0.0)

    def worst(self, values: Any, error: float = 0.0) -> Any:
        """The largest ratio of values of F known up to `error`; a device is not waited for."""
        miss = np.maximum(values - self.hi, self.lo - values)
        return 1.0 + scalar(np.max((miss + error) / self.unit))

    def max_ratio(self, values: Any, error: float = 0.0) -> float:
        """Return the same as a number."""
        return float(self.worst(values, error))

    def support(self, y: Vector) -> tuple[float, float]:
        """Return the largest ``y.v`` over v in the intervals, and a bound on its rounding error.

        It is ``y.b + sum |y_i| delta_i`` for ``[b - delta, b + delta]``. An infinite end that y
        presses on makes it infinite.
        """
        # 0 * inf is nan, so rows that y leaves alone are taken out first.
        rows = np.flatnonzero(y)
        terms = y[rows] * np.where(y[rows] > 0, self.hi[rows], self.lo[rows])
        error = (rows.size + 4) * EPS * float(np.sum(np.abs(terms)))
        return float(np.sum(terms)), error

    def crossing(self, z: Any) -> Vector:
        """By how much an end is crossed: positive above, negative below, 0 inside."""
        return np.asarray(np.maximum(z - self.above, 0.0) - np.maximum(-self.below - z, 0.0))

    def met(self, z: Any, error: Any) -> npt.NDArray[np.bool_]:
        """Return whether values known up to `error` are surely within their intervals."""
        if self.below is self.above:
            most: Vector = np.abs(z)
            most += error
            inside: npt.NDArray[np.bool_] = most <= (1.0 - END_ERROR) * self.above
            return inside
        with np.errstate(invalid="ignore", under="ignore"):
            over = z + error + END_ERROR * np.abs(self.above) <= self.above
            under = error - z + END_ERROR * np.abs(self.below) <= self.below
        upper, lower = self.sides
        return np.asarray((over | ~upper) & (under | ~lower))

    def missed(self, z: Any, error: Any) -> npt.NDArray[np.bool_]:
        """Return whether values known up to `error` are surely outside their intervals."""
        with np.errstate(invalid="ignore", under="ignore"):
            over = z - error > self.above + END_ERROR * np.abs(self.above)
            under = -z - error > self.below + END_ERROR * np.abs(self.below)
        return np.asarray(over | under)

    def only(self, index: Any) -> Intervals:
        """Return those of some rows."""
        return self.each(lambda values: values[index])

    def without(self, index: Any) -> Intervals:
        """Return the same, with the rows in `index` asked for nothing."""
        below, above = self.below.copy(), self.above.copy()
        below[index] = above[index] = np.inf
        allowance = None if self.allowance is None else self.allowance.copy()
        if allowance is not None:
            allowance[index] = 0.0
        return replace(self, below=below, above=above, allowance=allowance)

    def over(self, norms: Vector) -> Intervals:
        """Return the ends for rows divided by these norms; a row of norm 0 is asked for nothing."""
        if np.minimum.reduce(norms, initial=1.0) > 0.0:
            if self.below is self.above and self.allowance is None:
                above = self.above / norms / norms
                above = above if above.size < LONG else compact(above)
                return Intervals(self.reading / norms / norms, above, above, above)
            return self.each(lambda values: values / norms / norms)
        live = norms > 0
        safe = np.where(live, norms, 1.0)
        ends = self.each(lambda values: values / safe / safe)
        return replace(
            ends,
            reading=np.where(live, ends.reading, 0.0),
            below=np.where(live, ends.below, np.inf),
            above=np.where(live, ends.above, np.inf),
            unit=np.where(live, ends.unit, 1.0),
            allowance=None if ends.allowance is None else np.where(live, ends.allowance, 0.0),
        )

    def shifted(self, exponents: npt.NDArray[np.int64]) -> Intervals:
        """Return the ends for rows multiplied by ``2^-exponents``: exact except for underflow."""
        with np.errstate(under="ignore", over="ignore"):
            return self.each(lambda values: np.ldexp(values, -2 * exponents))

    def each(self, change: Callable[[Vector], Vector]) -> Intervals:
        """Return the same with every array changed; what is `even` stays so."""
        above, reading = change(self.above), change(self.reading)
        above = above if above.size < LONG else compact(above)
        if self.even and self.allowance is None:
            return Intervals(reading, above, above, above)
        allowance = None if self.allowance is None else change(self.allowance)
        below = above if self.even else change(self.below)
        return Intervals(reading, below, above, change(self.unit), self.outright, allowance)


# --- of rows of unit norm: what methods see ------------------------------------------------------


HARMLESS = 1e20
"""Size of a reading, in units of the largest that some row asks for, that no fit has."""

LARGEST_READING = 1e290
"""Largest reading or tolerance of a row of unit norm, and inverse of the largest that is too small:
sums over rows, and the scales that methods bring them to, stay within float64."""

MOST_DIGITS = 1e60
"""Largest size over smallest tolerance that methods are given; 1e36 is beyond float64 anyway."""


class UnitReadings(NamedTuple):
    """Readings and tolerances of the unit rows, each of shape (m,).

    `telling` is 1.0 for rows that say something of A, 0.0 for rows of zeros and for those with
    intervals so wide that they were narrowed. `least` is the smallest tolerance, `largest` the
    largest sum of the size of a reading and its tolerance.
    """

    b: Any
    delta: Any
    telling: Any
    least: float
    largest: float


def unit_readings(rows: Any, ends: Intervals, judged: bool) -> UnitReadings:
    """Return readings and tolerances of rows of unit norm with these intervals."""
    b, delta, every = ends.reading if ends.even else ends.middle(), ends.unit, rows.nonzero
    telling: Any = None  # all, or as `every` says
    if rows.has_zero_rows:
        telling = to_numpy(every) > 0
        b, delta = np.where(telling, b, 0.0), np.where(telling, delta, 1.0)
    if ends.even and telling is None:
        least, largest = ends.extremes
    else:
        least, largest = float(delta.min()), float((np.abs(b) + delta).max())
    if judged and largest > HARMLESS * least:
        live = np.ones(len(b), dtype=bool) if telling is None else telling
        b, delta, live = _narrowed(b, delta, live)
        every = compact(like(live, rows.norms))
        least, largest = float(delta.min()), float((np.abs(b) + delta).max())
    if rows.xp is not np:
        b, delta = like(b, rows.norms), like(delta, rows.norms)
    return UnitReadings(b, delta, every, least, largest)


def _narrowed(b: Vector, delta: Vector, live: Any) -> tuple[Vector, Vector, Any]:
    """Return intervals within what a fit may read, and which rows say something all the same."""
    forced = np.maximum(np.abs(b) - delta, 0.0)  # the least that a row makes A read
    least = float(np.min(delta, where=live, initial=np.inf))
    most = HARMLESS * max(float(forced.max()), least if np.isfinite(least) else 1.0)
    lo, hi = np.maximum(b - delta, -most), np.minimum(b + delta, most)
    wide = (np.abs(b) + delta > most) & live
    b, delta = np.where(wide, lo / 2 + hi / 2, b), np.where(wide, hi / 2 - lo / 2, delta)
    # Far below what rounding leaves of such readings:
    return b, np.maximum(delta, most / MOST_DIGITS), live & ~wide


def unit_intervals(given: Intervals, norms: Vector, b: Vector, of: str, judged: bool) -> Intervals:
    """Return the intervals of rows divided by their norms.

    Parameters
    ----------
    given : Intervals
        Of the user's rows.
    norms, b : ndarray of shape (m,)
        Of these rows, and their readings, for messages.
    of : {"U", "mix"}
        What has a row for each.
    judged : bool
        Whether a fit is judged by them; otherwise they are a unit of error only.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        ends = given.over(norms)
        least, largest = ends.extremes if ends.below is ends.above else (0.0, 0.0)
    usual = least > 0.0 and 2.0 / LARGEST_READING < largest < LARGEST_READING
    if usual and judged and ends.allowance is None:  # as most are: by their extremes
        return ends
    sizes = np.abs(ends.reading)
    kept = np.isfinite(ends.reading) & np.isfinite(ends.unit) & (ends.unit > 0)
    if not ends.even:
        kept &= np.all(ends.sides == given.sides, axis=0) | (norms == 0)
    if not kept.all():
        i = int(np.argmin(kept))
        raise ValueError(
            f"row {i} of {of} has norm {norms[i]:.3g}, which takes b[{i}] = "
            f"{float(b[i]):.3g} or its tolerance {float(given.unit[i]):.3g} out of "
            "float64's range when scaled to a unit row: rescale the row"
        )
    for part in () if not judged else (ends.above,) if ends.even else (ends.below, ends.above):
        sizes = np.maximum(sizes, np.where(np.isfinite(part), np.abs(part), 0.0))
    largest = float(sizes.max())
    something = largest > 0.0 or bool(np.any(given.reading[norms > 0] != 0.0))
    tiny = something and largest < 1.0 / LARGEST_READING
    if largest > LARGEST_READING or tiny:
        i = int(np.argmax(sizes))
        word = "large" if largest > 1.0 else "small"
        raise ValueError(
            f"readings and tolerances are too {word} to compute with in float64: for a row of "
            f"unit norm that of row {i} is {sizes[i]:.3g}; divide b and delta (or bounds) by a "
            "common factor, and A is divided by it, too"
        )
    return ends
