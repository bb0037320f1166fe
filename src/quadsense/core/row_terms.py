"""Row terms: what a reading may be and what it costs, with all that is ever asked of that.

A term is one object without data: a question names it, and hands itself over wherever numbers are
needed. Methods and proofs ask the object; none of them knows a term by its name. With v a reading,
d its distance from ``[lo, hi]`` and w its weight, the terms ``phi(v)`` are:

- "within": nothing inside the interval, infinite outside (as for all the others but slack);
- those of `smooth_terms`, which follow readings;
- "center": ``-log(v - lo) - log(hi - v)``, an infinite end adding nothing;
- "slack_max": all rows together ``max_i w_i d_i``;
- "slack_sum": ``w d``;
- "slack_squares": ``w d^2``.

Conjugates are rounded up: each ``phi*(y) = sup_v (y v - phi(v))`` is bounded by a formula that
holds for every split of y into shares of its parts [Rockafellar 1970, Thm. 16.4], so that rounding
of a split costs tightness, never truth.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.intervals import UNIT
from quadsense.core.sums import DOWN, ROUNDINGS, UP, ExactSum, Value, sum_error, summed

if TYPE_CHECKING:
    from quadsense.core.question import Question
    from quadsense.core.smooth_terms import ProximalTerm

Mask = npt.NDArray[np.bool_]


class KernelRows(NamedTuple):
    """A term for the interior-point method: what its rows and their ends may be made of.

    All are of shape (m,), or one number for all rows, in the units of the question.

    Attributes
    ----------
    walls : ndarray of bool
        Rows whose finite ends must not be crossed, and at which nothing is gained.
    level : ndarray or None
        Where a row with a curve or a target costs least, else 0; None where no row has either, or
        nothing is known of that.
    curve : ndarray
        Twice the weight of a square about the level; else 0.
    softness, price, share : ndarray
        What crossing an end by ``softness y + q + share t`` takes: y is the multiplier, w the price
        of q, t common to all rows and of price 1. 0 where that is not for sale.
    target : ndarray
        Weight of the logarithm of the distance from an end; else 0.
    spare : ndarray of bool
        Rows that ask for nothing where readings are not negative.
    """

    walls: Mask
    level: Vector | None = None
    curve: Vector | float = 0.0
    softness: Vector | float = 0.0
    price: Vector | float = 0.0
    share: Vector | float = 0.0
    target: Vector | float = 0.0
    spare: Mask | bool = False


class RowTerm:
    """The base of all terms, which is "within": an interval, and no cost inside.

    Attributes
    ----------
    name : str
    soft : bool
        Whether intervals may be left at a price.
    weighed : bool
        Whether weights count.
    power : int
        Which power of a reading a weight multiplies.
    squares : bool
        Whether it is the weighted square of the distance from the reading.
    common : bool
        Whether rows cost what the worst of them does.
    logarithms : bool
        Whether it may be negative, and has no unit.
    every_end : bool
        Whether an end counts however far away it is.
    from_inside : bool
        Whether an earlier answer, well inside of all intervals, is a good start.
    splits : bool
        Whether it is a sum over the rows whose parts have closed proximal steps; see `split`.
    unit : float
        The least value in units of which a gap is: what is less has no meaning.
    """

    name: ClassVar[str] = "within"
    soft: ClassVar[bool] = False
    weighed: ClassVar[bool] = False
    power: ClassVar[int] = 2
    squares: ClassVar[bool] = False
    common: ClassVar[bool] = False
    logarithms: ClassVar[bool] = False
    every_end: ClassVar[bool] = False
    from_inside: ClassVar[bool] = False
    splits: ClassVar[bool] = False
    unit: ClassVar[float] = 0.0

    # --- values ---

    def value(self, q: Question, v: Vector) -> float:
        """Return ``sum_i phi_i(v_i)`` for readings within what they must be within, unchecked."""
        return 0.0

    def enclosed(self, q: Question, v: Vector, e: Vector) -> Value:
        """Return the same for readings that are each known up to e."""
        return Value(0.0, 0.0)

    def negligible(self, q: Question, share: float) -> float:
        """Return the value that the sum has where readings are off by that share of their size."""
        return 0.0

    def floor(self, q: Question, dead: Mask) -> float:
        """Return what rows of zeros cost at least, as they read 0; they cost it again in no sum."""
        return 0.0

    def impossible(self, q: Question) -> Mask:
        """Return which rows cannot read 0."""
        return ~q.soft & (q.misses(np.zeros(q.m)) > 0.0)

    def reached(self, q: Question, upper: float) -> tuple[Vector, Vector]:
        """Return intervals, rounded outwards, of readings whose sum is at most `upper`."""
        return q.lo, q.hi

    def logarithms_of_ends(self, q: Question) -> npt.NDArray[np.int64]:
        """Return how many logarithms each row has that its unit adds to."""
        return np.zeros(q.m, np.int64)

    # --- conjugates ---

    def priced(self, q: Question) -> Mask:
        """Return which rows have multipliers that need no end: those with squares or logarithms."""
        return np.zeros(q.m, bool)

    def elastic(self, q: Question) -> Mask:
        """Return which of them have a finite conjugate for every multiplier, whatever its ends."""
        return np.zeros(q.m, bool)

    def permitted(self, q: Question, y: Vector) -> Vector:
        """Return y, none of whose entries needs a missing end, made as small as weights ask."""
        return y

    def excess(self, q: Question, y: Vector) -> float:
        """Return the least factor, 1 or more, that y over it is allowed by the weights."""
        return 1.0

    def add_conjugate(self, total: ExactSum, q: Question, y: Vector, priced: Mask) -> None:
        """Add ``phi*(y)``, except what multipliers of ends alone amount to."""

    def slopes_at_zero(self, q: Question) -> Vector:
        """Return slopes of the terms at the reading 0; those of ends alone do not count."""
        return np.zeros(q.m)

    def freedom(self, q: Question, y: Vector, freedom: Vector) -> Vector:
        """Return how far multipliers may be moved, relatively, given that for ends alone."""
        return freedom

    # --- methods ---

    def kernel(self, q: Question) -> KernelRows:
        """Return what the interior-point method makes of the rows."""
        return KernelRows(~q.soft)

    def sizes(self, q: Question) -> Vector:
        """Return the size of each reading: that of its least end, 0 where there is none."""
        least = np.minimum(np.abs(q.lo), np.abs(q.hi))
        return np.where(np.isfinite(least), least, 0.0)

    def finished(self, q: Question, y: Vector, homogeneous: bool) -> Vector:
        """Return multipliers of the kernel, which the weights allow except for rounding.

        With `homogeneous` any multiple of y is as feasible.
        """
        return y

    def silenced(self, q: Question, y: Vector, dead: npt.NDArray[np.intp]) -> Vector:
        """Return y with the entries of rows of zeros that say best what these cost."""
        y = y.copy()
        y[dead] = q.slopes_at_zero[dead]
        return y

    def nearest_squares(self, q: Question) -> Vector | None:
        """Return weights of the squares about the readings that are nearest to the terms."""
        return None

    def split(self, q: Question, scale: float, unit: float) -> ProximalTerm | None:
        """Return the terms over `unit`, of readings over `scale`, without the hard rows."""
        return None

    # --- CVXPY ---

    def expression(self, q: Question, v: Any, cp: Any) -> tuple[Any, list[Any]]:
        """Return what the readings v cost, and what they must satisfy, as CVXPY has it."""
        return cp.Constant(0.0), within_ends(q, v, ~q.soft)


def within_ends(q: Question, v: Any, rows: Mask) -> list[Any]:
    """Return ``lo <= v <= hi`` for those rows, of a CVXPY expression v."""
    found = [v[k] == q.lo[k] for k in some(rows & q.equal)]
    apart = rows & ~q.equal
    found += [v[k] >= q.lo[k] for k in some(apart & np.isfinite(q.lo))]
    found += [v[k] <= q.hi[k] for k in some(apart & np.isfinite(q.hi))]
    return found


def some(rows: Mask) -> list[npt.NDArray[np.intp]]:
    """The numbers of those rows, once, or not at all where there are none."""
    index = np.flatnonzero(rows)
    return [index] if index.size else []


def sum_of_squares(weights: Vector, misses: Any, cp: Any) -> Any:
    """Return the weighted sum of squares of a CVXPY expression."""
    return cp.sum_squares(cp.multiply(np.sqrt(weights), misses))


def widened(counts: Mask, away: Vector, lo: Vector, hi: Vector) -> tuple[Vector, Vector]:
    """Return the intervals widened by `away`, infinite for other rows, rounded outwards."""
    away = np.where(counts, away * UP * UP, np.inf)
    low, high = lo - away, hi + away
    return low - ROUNDINGS * np.abs(low), high + ROUNDINGS * np.abs(high)


# --- logarithms of distances from ends -----------------------------------------------------------


class Center(RowTerm):
    """Logarithms of the distances from all ends: their sum is largest at the analytic center."""

    name = "center"
    logarithms = True
    every_end = True
    from_inside = True

    def value(self, q: Question, v: Vector) -> float:
        """``-sum log``."""
        free = ~q.equal
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.concatenate([(v - q.lo)[free], (q.hi - v)[free]]))
        return -float(logs.sum(where=logs < np.inf))

    def enclosed(self, q: Question, v: Vector, e: Vector) -> Value:
        """The same with its error; infinite at an end."""
        free = ~q.equal
        room = np.concatenate([(v - q.lo)[free], (q.hi - v)[free]])
        off = np.concatenate([e[free], e[free]])
        known = room < np.inf
        room, off = room[known], off[known] + 2.0 * UNIT * np.abs(room[known])
        if not bool((room > off).all()):
            return Value(math.inf, math.inf)
        return summed(-np.log(room), -np.log1p(-off / room) + ROUNDINGS)

    def negligible(self, q: Question, share: float) -> float:
        """That of a logarithm, each."""
        return share * (1.0 + q.m)

    def impossible(self, q: Question) -> Mask:
        """Also those with an end at 0."""
        on_edge = (q.lo >= 0.0) | (q.hi <= 0.0)
        return np.asarray(super().impossible(q) | (~q.equal & on_edge))

    def logarithms_of_ends(self, q: Question) -> npt.NDArray[np.int64]:
        """One per finite end."""
        free = ~q.equal
        return (np.isfinite(q.lo) & free).astype(np.int64) + (np.isfinite(q.hi) & free)

    def priced(self, q: Question) -> Mask:
        """Those with an end."""
        return np.asarray(~q.equal & ((q.lo > -np.inf) | (q.hi < np.inf)))

    def add_conjugate(self, total: ExactSum, q: Question, y: Vector, priced: Mask) -> None:
        """Add ``y_2 hi - y_1 lo - 2 - log y_1 - log y_2`` for ``y = y_2 - y_1``, both positive."""
        two = priced & (q.lo > -np.inf) & (q.hi < np.inf)
        lo, hi, z = q.lo[two], q.hi[two], y[two]
        width = hi - lo
        inverse = 2.0 / width
        # The smaller of the two, where 1/y_1 + 1/y_2 is the width.
        small = 0.5 * (inverse + inverse * (inverse / (np.hypot(z, inverse) + np.abs(z))))
        large = np.abs(z) + small
        total.add_products(z, np.where(z >= 0.0, hi, lo))
        total.add(small * width)
        total.add(-np.log(small))
        total.add(-np.log(large))
        total.add(np.full(z.size, -2.0))  # also for what log feels of the rounding of large
        one = priced & ~two
        lo, hi, z = q.lo[one], q.hi[one], y[one]
        fits = np.where(hi < np.inf, z > 0.0, z < 0.0)
        total.add_products(z, np.where(hi < np.inf, hi, lo))
        total.add(np.where(fits, -np.log(np.abs(z)), np.inf))
        total.add(np.full(z.size, -1.0))

    def slopes_at_zero(self, q: Question) -> Vector:
        """``1/hi + 1/lo``."""
        return np.where(q.equal, 0.0, 1.0 / q.hi + 1.0 / q.lo)

    def kernel(self, q: Question) -> KernelRows:
        """A logarithm at every end."""
        return KernelRows(np.zeros(q.m, bool), target=1.0)

    def expression(self, q: Question, v: Any, cp: Any) -> tuple[Any, list[Any]]:
        """Logarithms, and the equalities."""
        ends = ~q.equal
        above, below = ends & np.isfinite(q.hi), ends & np.isfinite(q.lo)
        logs = [
            *(cp.sum(cp.log(v[k] - q.lo[k])) for k in some(below)),
            *(cp.sum(cp.log(q.hi[k] - v[k])) for k in some(above)),
        ]
        return -sum(logs, start=cp.Constant(0.0)), within_ends(q, v, q.equal)


# --- slack ---------------------------------------------------------------------------------------


class SlackSum(RowTerm):
    """The sum of weighted misses; the base of the other terms of slack."""

    name = "slack_sum"
    soft = True
    weighed = True
    power = 1

    def _costs(self, q: Question, v: Vector) -> Vector:
        return np.where(q.hard, 0.0, q.weights * q.misses(v))

    def _missed(self, q: Question, v: Vector, e: Vector) -> tuple[Vector, Vector, Vector]:
        """Return weights, misses and errors of these, of the rows that count."""
        counts = q.soft & (q.weights > 0.0)
        miss, w = q.misses(v)[counts], q.weights[counts]
        off = e[counts] + 2.0 * UNIT * (miss + np.abs(v[counts]))
        # What is further inside than that misses nothing at all.
        room = np.minimum(q.hi - v, v - q.lo)[counts] * DOWN
        return w, miss, np.where(room > 0.0, np.maximum(off - room, 0.0), off)

    def _sizes(self, q: Question) -> Vector:
        """Return the size of the largest finite end of each row."""
        ends = np.stack([q.lo, q.hi])
        return np.asarray(np.where(np.isfinite(ends), np.abs(ends), 0.0).max(axis=0))

    def value(self, q: Question, v: Vector) -> float:
        """``sum w d``."""
        return float(self._costs(q, v).sum())

    def enclosed(self, q: Question, v: Vector, e: Vector) -> Value:
        """The same with its error."""
        w, miss, off = self._missed(q, v, e)
        return summed(w * miss, w * off)

    def negligible(self, q: Question, share: float) -> float:
        """Of misses of that share."""
        return share * float(np.sum(q.weights * self._sizes(q)))

    def reached(self, q: Question, upper: float) -> tuple[Vector, Vector]:
        """About the intervals."""
        counts, away = (q.weights > 0.0) & ~q.hard, np.full(q.m, np.inf)
        np.divide(max(upper, 0.0), q.weights, where=counts, out=away)
        return widened(counts, away, q.lo, q.hi)

    def permitted(self, q: Question, y: Vector) -> Vector:
        """At most the weights."""
        soft = q.soft
        if not soft.any():
            return y
        y = np.where(soft & (q.weights == 0.0), 0.0, y)
        return self._allowed(q, y)

    def _allowed(self, q: Question, y: Vector) -> Vector:
        return np.where(q.soft, np.clip(y, -q.weights, q.weights), y)

    def excess(self, q: Question, y: Vector) -> float:
        """The largest share of a weight."""
        soft = q.soft & (y != 0.0)
        if not soft.any():
            return 1.0
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            return self._used(np.abs(y[soft]) / q.weights[soft])

    def _used(self, shares: Vector) -> float:
        most = float(shares.max())
        return most * UP * UP if most > 1.0 else 1.0

    def slopes_at_zero(self, q: Question) -> Vector:
        """The weight, by the end that is missed."""
        return q.weights * (np.where(q.lo > 0.0, -1.0, 0.0) + np.where(q.hi < 0.0, 1.0, 0.0))

    def freedom(self, q: Question, y: Vector, freedom: Vector) -> Vector:
        """None without a weight."""
        return np.where(q.soft & (q.weights == 0.0), 0.0, freedom) if q.soft.any() else freedom

    def kernel(self, q: Question) -> KernelRows:
        """Misses at a price."""
        return KernelRows(~q.soft, price=q.weights)

    def finished(self, q: Question, y: Vector, homogeneous: bool) -> Vector:
        """At most the weights."""
        return self._allowed(q, y)

    def expression(self, q: Question, v: Any, cp: Any) -> tuple[Any, list[Any]]:
        """Misses as variables."""
        constraints = within_ends(q, v, ~q.soft)
        index = np.flatnonzero(~q.hard & (q.weights > 0.0))
        if not index.size:
            return cp.Constant(0.0), constraints
        misses = cp.Variable(index.size, nonneg=True)
        for k in some(np.isfinite(q.hi[index])):
            constraints.append(v[index[k]] - q.hi[index[k]] <= misses[k])
        for k in some(np.isfinite(q.lo[index])):
            constraints.append(q.lo[index[k]] - v[index[k]] <= misses[k])
        return self._sum(q.weights[index], misses, cp), constraints

    def _sum(self, weights: Vector, misses: Any, cp: Any) -> Any:
        return weights @ misses


class SlackSquares(SlackSum):
    """The sum of weighted squares of misses."""

    name = "slack_squares"
    power = 2

    def value(self, q: Question, v: Vector) -> float:
        """``sum w d^2``."""
        return float((self._costs(q, v) * q.misses(v)).sum())

    def enclosed(self, q: Question, v: Vector, e: Vector) -> Value:
        """The same with its error."""
        w, miss, off = self._missed(q, v, e)
        return summed(w * miss * miss, w * (2.0 * miss + off) * off)

    def negligible(self, q: Question, share: float) -> float:
        """Squares of these."""
        return share**2 * float(np.sum(q.weights * self._sizes(q) ** 2))

    def reached(self, q: Question, upper: float) -> tuple[Vector, Vector]:
        """About the intervals."""
        counts, away = (q.weights > 0.0) & ~q.hard, np.full(q.m, np.inf)
        np.sqrt(max(upper, 0.0) / q.weights, where=counts, out=away)
        return widened(counts, away, q.lo, q.hi)

    def _allowed(self, q: Question, y: Vector) -> Vector:
        return y

    def excess(self, q: Question, y: Vector) -> float:
        """Every multiplier has its price."""
        return 1.0

    def add_conjugate(self, total: ExactSum, q: Question, y: Vector, priced: Mask) -> None:
        """Add ``y^2/(4 w)``."""
        rows = q.soft & (y != 0.0)
        total.add((y[rows] / (2.0 * np.sqrt(q.weights[rows]))) ** 2)

    def slopes_at_zero(self, q: Question) -> Vector:
        """Twice the weighted miss."""
        return -2.0 * q.weights * (np.maximum(q.lo, 0.0) + np.minimum(q.hi, 0.0))

    def kernel(self, q: Question) -> KernelRows:
        """Ends that give way to their multipliers."""
        return KernelRows(~q.soft, softness=0.5 / np.where(q.weights > 0.0, q.weights, 1.0))

    def finished(self, q: Question, y: Vector, homogeneous: bool) -> Vector:
        """As they are."""
        return y

    def _sum(self, weights: Vector, misses: Any, cp: Any) -> Any:
        return sum_of_squares(weights, misses, cp)


MIN_SHARES = 1e-3
"""Sum of shares below which multipliers are little but rounding."""

SHARE_ROUNDING = 1e-15
"""More than what rounding adds to such a sum, per row."""


class SlackMax(SlackSum):
    """The largest weighted miss."""

    name = "slack_max"
    common = True

    def value(self, q: Question, v: Vector) -> float:
        """``max w d``."""
        return float(self._costs(q, v).max(initial=0.0))

    def enclosed(self, q: Question, v: Vector, e: Vector) -> Value:
        """The same with its error."""
        w, miss, off = self._missed(q, v, e)
        most, spread = float((w * miss).max(initial=0.0)), float((w * off).max(initial=0.0))
        return Value(most, spread * UP * UP + ROUNDINGS * most)

    def negligible(self, q: Question, share: float) -> float:
        """Of the largest."""
        return share * float(np.max(q.weights * self._sizes(q), initial=0.0))

    def floor(self, q: Question, dead: Mask) -> float:
        """What the worst of them misses."""
        costs = q.misses(np.zeros(q.m)) * q.weights
        return float(costs.max(where=dead & q.soft, initial=0.0))

    def _allowed(self, q: Question, y: Vector) -> Vector:
        return y / self.excess(q, y)

    def _used(self, shares: Vector) -> float:
        total = float(shares.sum())
        total += sum_error(shares.size) * total
        return max(total, 1.0)

    def slopes_at_zero(self, q: Question) -> Vector:
        """None: of all rows of zeros only the worst counts; see `silenced`."""
        return np.zeros(q.m)

    def kernel(self, q: Question) -> KernelRows:
        """Shares of what all rows may miss."""
        return KernelRows(~q.soft, share=1.0 / np.where(q.weights > 0.0, q.weights, 1.0))

    def finished(self, q: Question, y: Vector, homogeneous: bool) -> Vector:
        """Shares add up to 1 at most, or where they may be scaled to 1."""
        soft = q.soft & (q.weights > 0.0)
        total = float(np.sum(np.abs(y[soft]) / q.weights[soft]))
        if total > 1.0 or (homogeneous and total > MIN_SHARES):
            y = y.copy()
            y[soft] /= total * (1.0 + SHARE_ROUNDING * q.m)
        return y

    def silenced(self, q: Question, y: Vector, dead: npt.NDArray[np.intp]) -> Vector:
        """The share that is left goes to the worst of them."""
        y = super().silenced(q, y, dead)
        lo, hi, w = q.lo[dead], q.hi[dead], q.weights[dead]
        away = np.where(lo > 0.0, -lo, np.where(hi < 0.0, -hi, 0.0))  # v minus the nearest end
        cost = np.where(q.soft[dead] & (w > 0.0), w * np.abs(away), 0.0)
        worst = int(np.argmax(cost))
        if cost[worst] > 0.0:
            used = q.soft & (q.weights > 0.0)
            shares = float(np.sum(np.abs(y[used]) / q.weights[used]))
            y[dead[worst]] = max(0.0, 1.0 - shares) * w[worst] * np.sign(away[worst])
        return y

    def _sum(self, weights: Vector, misses: Any, cp: Any) -> Any:
        return cp.max(cp.multiply(weights, misses))
