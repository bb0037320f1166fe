"""Row terms that follow readings, squares and the likelihood of counts, and the table of all terms.

The squares are ``w (v - reading)^2`` within ``[lo, hi]``. The likelihood is
``slope (v - reading) - w log((v - lo)/(reading - lo))``, without an upper end: what the deviance of
w/2 counts has in it, where ``slope/2`` is the exposure, or 0 for shares of shots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from quadsense.arrays import Vector
from quadsense.core.intervals import UNIT
from quadsense.core.row_terms import (
    Center,
    KernelRows,
    Mask,
    RowTerm,
    SlackMax,
    SlackSquares,
    SlackSum,
    some,
    sum_of_squares,
    widened,
    within_ends,
)
from quadsense.core.sums import ROUNDINGS, ExactSum, Value, summed

if TYPE_CHECKING:
    from quadsense.core.question import Question


class ProximalTerm(Protocol):
    """A term on the rows of one question, for methods that split: ``sum_i phi_i(v_i)``."""

    @property
    def smooth(self) -> bool:
        """Whether multipliers are the slopes of the terms: there are no intervals."""

    @property
    def unit(self) -> Vector:
        """Half-widths of the intervals."""

    @property
    def lift(self) -> Vector:
        """A vector, not negative, that can be added to every dual vector at a finite price."""

    @property
    def most(self) -> float:
        """The largest value of the sum over all readings that are allowed."""

    @property
    def least(self) -> float:
        """The smallest value in units of which a gap is."""

    def penalty(self, v: Vector, share: float) -> Vector:
        """Penalties for a step, given the readings of the last one; 0 for rows that ask nothing."""

    def value(self, v: Vector) -> float:
        """``sum_i phi_i(v_i)`` for readings that are allowed, unchecked."""

    def slope(self, v: Vector) -> Vector:
        """Derivatives of the terms inside of their intervals."""

    def best_multiple(self, y: Vector, inside: float) -> float:
        """The s for which ``s inside - sum_i phi_i*(s y_i)`` is largest, where that is known."""

    def conjugate(self, y: Vector, share: float = 0.0) -> float:
        """``sum_i phi_i*(y_i)``, with ends moved inwards by `share`."""

    def permitted(self, y: Vector) -> Vector:
        """The dual vector without the entries whose conjugate is infinite."""

    def outside(self, v: Vector) -> float:
        """How far a reading is from what is allowed at most, in half-widths of its interval."""

    def proximal(self, x: Vector, rho: Vector, share: float) -> Vector:
        """The minimizer of ``phi_i(v_i) + rho_i (v_i - x_i)^2``, with ends moved inwards.

        By `share`, in units of half an interval.
        """


def over(a: Vector, b: Vector) -> Vector:
    """``a/b``, and 0 where b is not positive."""
    return np.where(b > 0.0, a / np.where(b > 0.0, b, 1.0), 0.0)


# --- squares -----------------------------------------------------------------------------------


class Squares(RowTerm):
    """Squares of distances from the readings, within intervals."""

    name = "squares"
    weighed = True
    squares = True
    splits = True

    def value(self, q: Question, v: Vector) -> float:
        """``sum w (v - reading)^2``."""
        free = ~q.hard
        return float((q.weights[free] * (v - q.reading)[free] ** 2).sum())

    def enclosed(self, q: Question, v: Vector, e: Vector) -> Value:
        """The same with its error."""
        weights = q.weights
        counts, z = self.priced(q), np.abs(v - q.reading)
        if not counts.all():
            z, e, weights = z[counts], e[counts], weights[counts]
        off = e + 2.0 * UNIT * z
        return summed(weights * z * z, weights * (2.0 * z + off) * off)

    def negligible(self, q: Question, share: float) -> float:
        """Squares of these."""
        return share**2 * float(q.weights @ q.reading**2)

    def reached(self, q: Question, upper: float) -> tuple[Vector, Vector]:
        """About the readings."""
        counts, away = self.priced(q), np.full(q.m, np.inf)
        np.divide(max(upper, 0.0), q.weights, where=counts, out=away)
        away = np.sqrt(away)
        return widened(counts, away, q.reading, q.reading)

    def priced(self, q: Question) -> Mask:
        """Those with weights."""
        return np.asarray(~q.hard & (q.weights > 0.0))

    def elastic(self, q: Question) -> Mask:
        """All of these."""
        return self.priced(q)

    def add_conjugate(self, total: ExactSum, q: Question, y: Vector, priced: Mask) -> None:
        """Add ``s b + s^2/(4 w) + z^+ hi - z^- lo`` for ``y = s + z`` and any z.

        It is least where ``s = 2 w (v - b)`` at the v between the ends that is best.
        """
        b, weights, lo, hi = q.reading, q.weights, q.lo, q.hi
        if not priced.all():
            y, b, weights = y[priced], b[priced], weights[priced]
            lo, hi = lo[priced], hi[priced]
        double = 2.0 * weights
        s = np.minimum(np.maximum(y, double * (lo - b)), double * (hi - b))
        if (s == y).all():  # no interval is active
            total.add_products(y, b)
            total.add((np.abs(y) / (2.0 * np.sqrt(weights))) ** 2)
            return
        z = y - s
        # y = s + rest + z, exactly [Knuth 1997, 4.2.2, Thm. B]
        back = y - z
        rest = (y - (back + z)) + (back - s)
        leans = z != 0.0
        if leans.any():
            total.add_products(z[leans], np.where(z > 0.0, hi, lo)[leans])
        total.add_products(s, b)
        total.add(rest * b)
        # Divided first: the square alone may be beyond float64.
        total.add(((np.abs(s) + np.abs(rest)) / (2.0 * np.sqrt(weights))) ** 2)

    def slopes_at_zero(self, q: Question) -> Vector:
        """``-2 w reading``."""
        return np.where(q.hard, 0.0, -2.0 * q.weights * q.reading)

    def freedom(self, q: Question, y: Vector, freedom: Vector) -> Vector:
        """A square by its weight."""
        size = float(np.abs(q.reading).max(initial=0.0)) or 1.0
        return np.where(self.priced(q), q.weights * size, freedom)

    def kernel(self, q: Question) -> KernelRows:
        """Rows that give way to their multipliers, unless they are equalities."""
        squares = self.priced(q) & ~q.equal
        level = np.where(squares, q.reading, 0.0)
        return KernelRows(~q.soft, level, np.where(squares, 2.0 * q.weights, 0.0))

    def sizes(self, q: Question) -> Vector:
        """That of the reading where there is no end."""
        least = np.minimum(np.abs(q.lo), np.abs(q.hi))
        squares = self.priced(q) & ~q.equal
        return np.where(np.isfinite(least), least, np.where(squares, np.abs(q.reading), 0.0))

    def nearest_squares(self, q: Question) -> Vector | None:
        """These themselves."""
        return q.weights

    def expression(self, q: Question, v: Any, cp: Any) -> tuple[Any, list[Any]]:
        """The sum of squares, and the intervals."""
        cost = cp.Constant(0.0)
        for k in some(self.priced(q)):
            cost = sum_of_squares(q.weights[k], v[k] - q.reading[k], cp)
        return cost, within_ends(q, v, ~q.soft)


END_PENALTY = 20.0
"""Penalty of a reading at an end of its interval, in units of that of one inside. Inside, a penalty
of the weight is best; at an end a larger one is, until the system of a step is ill-conditioned: 5,
20, 50 took 75, 25, 20 steps with 22 readings per unknown, and 35, 35, 35 over the cone."""


@dataclass(frozen=True)
class SquaresWithin:
    """``phi_i(v) = w_i (v - b_i)^2`` for ``lo_i <= v <= hi_i``, and infinite outside.

    Attributes
    ----------
    w, b, lo, hi : arrays of shape (m,)
        b is 0 where w is 0. Intervals may be infinite, and equal.
    unit : array of shape (m,)
        Half the width of an interval; of one with one end what counts as that.
    typical : float
        The penalty of a row without a weight.
    """

    w: Vector
    b: Vector
    lo: Vector
    hi: Vector
    unit: Vector
    typical: float

    smooth: ClassVar[bool] = False

    @property
    def lift(self) -> Vector:
        """The weights."""
        return self.w

    @property
    def least(self) -> float:
        """Squares may be as small as they are."""
        return 0.0

    @cached_property
    def is_free(self) -> bool:
        """Whether no reading has an interval."""
        return not (np.isfinite(self.lo).any() or np.isfinite(self.hi).any())

    @cached_property
    def _inverse(self) -> Vector:
        """``1 / w``, and 0 where w is 0."""
        return np.where(self.w > 0.0, 1.0 / np.where(self.w > 0.0, self.w, 1.0), 0.0)

    @cached_property
    def _equal(self) -> Any:
        return self.lo == self.hi

    @cached_property
    def _base(self) -> Vector:
        """Penalties of readings inside their intervals."""
        asks = (self.lo > -np.inf) | (self.hi < np.inf)
        return np.where(self.w > 0.0, self.w, np.where(asks, self.typical, 0.0))

    @cached_property
    def most(self) -> float:
        """The sum where every reading is at the end that is farther from b."""
        with np.errstate(invalid="ignore"):
            farthest = np.maximum(np.abs(self.hi - self.b), np.abs(self.b - self.lo))
            terms = np.where(self.w > 0.0, self.w * farthest * farthest, 0.0)
        return float(np.sum(terms))

    def ends(self, share: float) -> tuple[Vector, Vector]:
        """Intervals moved inwards."""
        inside = np.where(self._equal, 0.0, share * self.unit)
        return self.lo + inside, self.hi - inside

    def penalty(self, v: Vector, share: float) -> Vector:
        """The weight, and more than that where the reading is at an end."""
        lo, hi = self.ends(share)
        return self._base * np.where((v <= lo) | (v >= hi), END_PENALTY, 1.0)

    def value(self, v: Vector) -> float:
        """``sum_i w_i (v_i - b_i)^2``."""
        return float(self.w @ (v - self.b) ** 2)

    def slope(self, v: Vector) -> Vector:
        """``2 w (v - b)``."""
        return 2.0 * self.w * (v - self.b)

    def best_multiple(self, y: Vector, inside: float) -> float:
        """Of squares y itself is as good."""
        return 1.0

    def outside(self, v: Vector) -> float:
        """Of rows that are no equalities."""
        if self.is_free:
            return 0.0
        beyond = np.maximum(self.lo - v, v - self.hi)
        beyond = np.where((beyond > 0.0) & (self.unit > 0.0), beyond, 0.0)
        return float(np.max(beyond / np.where(beyond > 0.0, self.unit, 1.0), initial=0.0))

    def permitted(self, y: Vector) -> Vector:
        """0 where there is neither a weight nor the end that it belongs to."""
        if self.is_free:
            return np.where(self.w > 0.0, y, 0.0)
        end = np.where(y > 0.0, self.hi, self.lo)
        return np.where((self.w > 0.0) | np.isfinite(end), y, 0.0)

    def conjugate(self, y: Vector, share: float = 0.0) -> float:
        """``y v - phi(v)`` at the v between the ends where that is largest."""
        if self.is_free:
            return float(y @ self.b + 0.25 * ((y * y) @ self._inverse))
        priced = self.w > 0.0
        lo, hi = self.ends(share)
        v = np.where(y > 0.0, hi, np.where(y < 0.0, lo, self.b))
        v = np.where(priced, self.b + y / np.where(priced, 2.0 * self.w, 1.0), v)
        v = np.clip(v, lo, hi)
        v = np.where(np.isfinite(v), v, 0.0)  # y is 0 there
        away = v - self.b
        return float(np.sum(y * v - self.w * away * away))

    def proximal(self, x: Vector, rho: Vector, share: float) -> Vector:
        """The weighted mean of b and x, clipped; x itself where nothing is asked."""
        total = self.w + rho
        asks = total > 0.0
        mean = np.where(asks, (self.w * self.b + rho * x) / np.where(asks, total, 1.0), x)
        return np.clip(mean, *self.ends(share))


# --- the likelihood of counts --------------------------------------------------------------------


ROUNDED_COUNTS = 1e-3
"""Share of their sum by which the rounding of logarithms grows with counts."""


class Likelihood(RowTerm):
    """The likelihood of counts, as a deviance: it has no constants, and its size has a meaning."""

    name = "likelihood"
    weighed = True
    power = 0
    logarithms = True
    splits = True
    unit = 1.0

    def value(self, q: Question, v: Vector) -> float:
        """Infinite where a reading that was counted is none."""
        free = ~q.hard
        lo, reading, w = q.lo[free], q.reading[free], q.weights[free]
        linear = np.sum((q.slope * (v - q.reading))[~q.hard])
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = w * np.log((v[free] - lo) / (reading - lo))
        logs = np.where(np.isnan(logs), -np.inf, logs)
        return float(linear - logs.sum(where=w > 0.0))

    def enclosed(self, q: Question, v: Vector, e: Vector) -> Value:
        """The same with its error."""
        rows = ~q.hard
        weights, lo = q.weights[rows], q.lo[rows]
        v, e, reading = v[rows], e[rows], q.reading[rows]
        slope = np.broadcast_to(q.slope, q.hard.shape)[rows]
        parts = slope * v, -slope * reading
        off = slope * e + 2.0 * UNIT * (np.abs(parts[0]) + np.abs(parts[1]))
        counts = weights > 0.0
        room, whole, w = (v - lo)[counts], (reading - lo)[counts], weights[counts]
        slip = (e + 2.0 * UNIT * np.abs(v))[counts] + 2.0 * UNIT * np.abs(room)
        if not bool((room > slip).all()):
            return Value(math.inf, math.inf)
        logs = np.log(room / whole)
        errors = w * (-np.log1p(-slip / room) + ROUNDINGS * (1.0 + np.abs(logs)))
        terms = np.concatenate([*parts, -w * logs])
        return summed(terms, np.concatenate([off, errors]))

    def negligible(self, q: Question, share: float) -> float:
        """What rounding makes of readings, for as many counts."""
        return share * (1.0 + q.m + ROUNDED_COUNTS * float(q.weights.sum()))

    def priced(self, q: Question) -> Mask:
        """All counts."""
        return np.asarray(~q.hard)

    def permitted(self, q: Question, y: Vector) -> Vector:
        """At most the slope where nothing was counted."""
        most = np.where(q.hard, np.inf, q.slope)
        return np.where(q.weights > 0.0, y, np.minimum(y, most))

    def add_conjugate(self, total: ExactSum, q: Question, y: Vector, priced: Mask) -> None:
        """Add ``y lo + slope (reading - lo) - w - w log((slope - y) (reading - lo)/w)``.

        The difference of slope and y is rounded once, whatever they are; y above the slope is
        refused.
        """
        w, lo, y = q.weights[priced], q.lo[priced], y[priced]
        slope = np.broadcast_to(q.slope, q.hard.shape)[priced]
        room, left = q.reading[priced] - lo, slope - y
        total.add_products(y, lo)
        total.add(slope * room)
        counts = w > 0.0
        total.add(np.where(counts | (left >= 0.0), 0.0, np.inf))
        w, left, room = w[counts], left[counts], room[counts]
        total.add(-w)  # also for what log feels of the rounding of its argument
        total.add(np.where(left > 0.0, -w * np.log(left * (room / w)), np.inf))

    def slopes_at_zero(self, q: Question) -> Vector:
        """``slope + w/lo``."""
        return np.asarray(q.slope + np.where(q.weights > 0.0, q.weights / q.lo, 0.0))

    def freedom(self, q: Question, y: Vector, freedom: Vector) -> Vector:
        """Of counts the inverse curvature of the conjugate."""
        counted = ~q.hard & (q.weights > 0.0)
        left = np.square(q.slope - y) / np.where(counted, q.weights, 1.0)
        return np.where(counted, left, np.where(q.hard, freedom, 0.0))

    def kernel(self, q: Question) -> KernelRows:
        """A logarithm at the lower end, least at the reading."""
        counted = ~q.hard
        return KernelRows(
            q.hard,
            np.where(counted, q.reading, 0.0),
            target=np.where(counted, q.weights, 0.0),
            spare=counted & (q.weights == 0.0),
        )

    def sizes(self, q: Question) -> Vector:
        """Those of the readings."""
        return np.where(q.hard, super().sizes(q), np.abs(q.reading))

    def nearest_squares(self, q: Question) -> Vector | None:
        """Those of the same curvature where readings are what was counted."""
        counts = q.weights > 0.0
        away = np.where(counts, q.reading - q.lo, 1.0)
        return np.where(counts, 0.5 * q.weights / (away * away), 0.0)

    def split(self, q: Question, scale: float, unit: float) -> ProximalTerm | None:
        """In units near 1."""
        rows = ~q.hard
        w, t = (np.where(rows, each, 0.0) for each in (q.weights, q.slope))
        b, lo = (np.where(rows, each, 0.0) / scale for each in (q.reading, q.lo))
        return SplitLikelihood(
            w / unit, t * (scale / unit), b, lo, np.zeros_like(w), self.unit / unit
        )

    def expression(self, q: Question, v: Any, cp: Any) -> tuple[Any, list[Any]]:
        """Logarithms of ratios."""
        free = ~q.hard
        lo, reading, w = q.lo, q.reading, q.weights
        slope = np.broadcast_to(q.slope, w.shape)
        linear = sum((slope[k] @ (v[k] - reading[k]) for k in some(free)), cp.Constant(0.0))
        counted, rows = free & (w > 0.0), q.hard | (w == 0.0)
        ratios = ((k, (v[k] - lo[k]) / (reading - lo)[k]) for k in some(counted))
        likely = sum((w[k] @ cp.log(ratio) for k, ratio in ratios), cp.Constant(0.0))
        return linear - likely, within_ends(q, v, rows)


@dataclass(frozen=True)
class SplitLikelihood:
    """``phi_i(v) = t_i (v - b_i) - w_i log((v - lo_i)/(b_i - lo_i))``, as in `Question`.

    Attributes
    ----------
    w, t, b, lo : arrays of shape (m,)
        Of rows that ask for nothing w and t are 0.
    unit : array of shape (m,)
        0: there are no intervals.
    least : float
        A deviance of 1: what is less than the gap of that, no count tells.
    """

    w: Vector
    t: Vector
    b: Vector
    lo: Vector
    unit: Vector
    least: float

    smooth: ClassVar[bool] = True

    @property
    def lift(self) -> Vector:
        """None, where the trace is given."""
        return 0.0 * self.w

    @property
    def most(self) -> float:
        """There is none."""
        return np.inf

    @cached_property
    def _counts(self) -> Any:
        return self.w > 0.0

    @cached_property
    def _whole(self) -> Vector:
        """What was counted in units of readings; 1 where nothing was."""
        return np.where(self._counts, self.b - self.lo, 1.0)

    def penalty(self, v: Vector, share: float) -> Vector:
        """Half the second derivative, at what was counted where v is less than that."""
        at = np.maximum(v - self.lo, self._whole)
        return np.where(self._counts, 0.5 * self.w / (at * at), 0.0)

    def value(self, v: Vector) -> float:
        """The terms in sum; infinite where a reading that was counted is none."""
        room = np.where(self._counts, v - self.lo, 1.0)
        if not bool(np.all(room > 0.0)):
            return float(np.inf)
        return float(self.t @ (v - self.b) - self.w @ np.log(room / self._whole))

    def slope(self, v: Vector) -> Vector:
        """``t - w/(v - lo)``."""
        return self.t - over(self.w, v - self.lo)

    def outside(self, v: Vector) -> float:
        """There are no intervals."""
        return 0.0

    def permitted(self, y: Vector) -> Vector:
        """No more than t."""
        return np.minimum(y, self.t)

    def conjugate(self, y: Vector, share: float = 0.0) -> float:
        """``y lo + t (b - lo) - w - w log((t - y) (b - lo)/w)``."""
        counts, left = self._counts, self.t - y
        if not bool(np.all(left[counts] > 0.0)):
            return float(np.inf)
        ratios = np.where(counts, left * self._whole, 1.0) / np.where(counts, self.w, 1.0)
        logs = self.w @ (1.0 + np.log(ratios))
        return float(y @ self.lo + self.t @ np.where(counts, self._whole, 0.0) - logs)

    def best_multiple(self, y: Vector, inside: float) -> float:
        """Known where counts are shares of shots."""
        slope = float(y @ self.lo) - inside
        known = slope > 0.0 and not self.t.any()
        return float(np.sum(self.w)) / slope if known else 1.0

    def proximal(self, x: Vector, rho: Vector, share: float) -> Vector:
        """The positive root of a quadratic equation; x itself where nothing is asked."""
        half = 0.5 * (x - self.lo - over(self.t, 2.0 * rho))
        root = half + np.sqrt(half * half + over(self.w, 2.0 * rho))
        return np.where(rho > 0.0, self.lo + root, x)


# --- all of them ---------------------------------------------------------------------------------

ROW_TERMS: dict[str, RowTerm] = {
    term.name: term
    for term in (
        RowTerm(),
        Squares(),
        Likelihood(),
        Center(),
        SlackMax(),
        SlackSum(),
        SlackSquares(),
    )
}
"""The row terms, by name."""
