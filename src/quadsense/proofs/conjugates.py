"""The rows' part of a lower bound: ``sum_i phi_i*(y_i)``, rounded up.

Each ``phi_i*(y) = sup_v (y v - phi_i(v))`` is bounded by a formula that holds for every split of y
into the shares of its terms [Rockafellar 1970, Thm. 16.4]: what rounding does to a split costs
tightness, never truth. Products are taken with their rounding errors [Dekker 1971] and summed
exactly, so that readings that are large compared with their residuals cancel.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.intervals import UNIT
from quadsense.core.question import Question
from quadsense.core.records import changed
from quadsense.proofs.adjoint import product_error
from quadsense.proofs.rounding import exact_sum

TINY = 1e-300  # more than underflow takes from a sum of moderately many numbers
NORMAL = float(np.finfo(np.float64).tiny)  # below, digits are lost
MOST_DOUBLINGS = 400  # of a weight of 1, in either direction, that leave room for squares
SMALL, LARGE = 1e-250, 1e280  # within, the error of a product is a number itself


class _Sum:
    """Terms to be added up exactly, and what each may be off by."""

    def __init__(self) -> None:
        self.terms: list[Vector] = []
        self.slack = 0.0

    def add(self, terms: Vector, roundings: float) -> None:
        """Terms that are right up to that many roundings."""
        if not terms.size:
            return
        self.terms.append(np.asarray(terms))
        self.slack += roundings * UNIT * float(np.abs(terms).sum())

    def add_products(self, a: Vector, b: Vector) -> None:
        """Return ``a_i b_i``, exact except for underflow."""
        if not a.size:
            return
        products = a * b
        rest = product_error(a, b, products)
        sizes = np.abs(products)
        if not (sizes.min() >= SMALL and sizes.max() < LARGE and np.isfinite(rest).all()):
            plain = (products != 0.0) & ((sizes < SMALL) | ~(sizes < LARGE) | ~np.isfinite(rest))
            rest = np.where(plain, 0.0, rest)
            self.slack += 2.0 * UNIT * float(sizes.sum(where=plain))
        self.terms += [products, rest]

    def above(self) -> float:
        """The sum, rounded up; infinite where a term is, or is no number."""
        total = np.concatenate(self.terms) if self.terms else np.zeros(0)
        if not np.isfinite(total).all():
            return math.inf
        whole, slack = exact_sum(total), self.slack * (1.0 + 1e-9)
        return whole + slack + 2.0 * UNIT * (abs(whole) + slack) + TINY * (1.0 + total.size)


def permitted(question: Question, y: Vector) -> Vector:
    """The entries of y that the rows can bear: 0 for those that lean on an end that is not there.

    Under slack they are made smaller as the weights ask: each for "slack_sum", all together for
    "slack_max", where all other entries follow.
    """
    free = _is_priced(question)
    usable = np.isfinite(y)
    if not free.all():
        usable &= np.where(y > 0.0, question.hi < np.inf, question.lo > -np.inf) | free
    y = np.where(usable, y, 0.0)
    if not question.rows.startswith("slack") or not (soft := question.soft).any():
        return y
    weights = question.weights
    y = np.where(soft & (weights == 0.0), 0.0, y)
    if question.rows == "slack_sum":
        return np.where(soft, np.clip(y, -weights, weights), y)
    return y / excess(question, y) if question.rows == "slack_max" else y


def excess(question: Question, y: Vector) -> float:
    """The least factor, 1 or more, that y over it is allowed by the weights of soft rows."""
    soft = question.soft & (y != 0.0)
    if not soft.any() or question.rows == "slack_squares":
        return 1.0
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        shares = np.abs(y[soft]) / question.weights[soft]
    if question.rows == "slack_sum":
        most = float(shares.max())
        return most * (1.0 + 8.0 * UNIT) if most > 1.0 else 1.0
    total = float(shares.sum())
    total += (shares.size + 8.0) * UNIT * total
    return max(total, 1.0)


def conjugate_above(question: Question, y: Vector) -> float:
    """``sum_i phi_i*(y_i)``, rounded up; y is `permitted`."""
    total = _Sum()
    with np.errstate(all="ignore"):
        priced = _is_priced(question)
        lo, hi = question.lo, question.hi
        leans = ~priced & (y != 0.0)
        if leans.any():
            total.add_products(y[leans], np.where(y > 0.0, hi, lo)[leans])
        if question.rows == "squares":
            _add_squares(total, question, y, priced)
        elif question.rows == "center":
            _add_centers(total, question, y, priced)
        elif question.rows == "slack_squares":
            rows = question.soft & (y != 0.0)
            total.add((y[rows] / (2.0 * np.sqrt(question.weights[rows]))) ** 2, 8.0)
        return total.above()


def at_zero(question: Question) -> Vector:
    """The y for which a row's bound is what the reading 0 costs: slopes of ``phi_i`` at 0.

    For rows of zeros, which read 0 whatever A is.
    """
    lo, hi, weights = question.lo, question.hi, question.weights
    with np.errstate(all="ignore"):
        if question.rows == "squares":
            slope = np.where(question.hard, 0.0, -2.0 * weights * question.reading)
        elif question.rows == "center":
            slope = np.where(question.equal, 0.0, 1.0 / hi + 1.0 / lo)
        elif question.rows == "slack_sum":
            slope = weights * (np.where(lo > 0.0, -1.0, 0.0) + np.where(hi < 0.0, 1.0, 0.0))
        elif question.rows == "slack_squares":
            slope = -2.0 * weights * (np.maximum(lo, 0.0) + np.minimum(hi, 0.0))
        else:
            slope = np.zeros(question.m)
    slope = np.where(question.soft | _is_priced(question), slope, 0.0)
    return np.where(np.isfinite(slope), slope, 0.0)


def shifted(question: Question, exponents: npt.NDArray[np.int64], unit: int = 0) -> Question:
    """The same question for rows over ``2^exponents``: exact except for underflow.

    What leaves float64's range asks for less than it did: an end is dropped, a weight made smaller.
    The weights are of an objective in units of ``2^unit``.
    """
    weights = question.weights
    if not (unit or exponents.any()):
        weights = np.minimum(weights, LARGE)
        return changed(question, weights=np.where(weights < NORMAL, 0.0, weights))
    power = -2 * exponents
    per = _weighs(question)
    with np.errstate(over="ignore", under="ignore"):
        lo, hi = np.ldexp(question.lo, power), np.ldexp(question.hi, power)
        reading = np.ldexp(question.reading, power)
        weights = np.minimum(np.ldexp(weights, -per * power - unit), LARGE)
    weights = np.where(weights < NORMAL, 0.0, weights)
    lost = ~np.isfinite(reading)
    return changed(
        question,
        lo=np.where(lo < np.inf, lo, -np.inf),
        hi=np.where(hi > -np.inf, hi, np.inf),
        reading=np.where(lost, 0.0, reading),
        weights=np.where(lost, 0.0, weights),
    )


def unit_of(question: Question, exponents: npt.NDArray[np.int64]) -> int:
    """The unit of `shifted` in which the weights of such rows are far from float64's ends.

    0 where they are anyway, or a logarithm has no unit.
    """
    weighs = ~question.hard & (question.weights > 0.0)
    if question.rows in ("within", "center") or question.log_det or not weighs.any():
        return 0
    if not exponents.any():
        largest = math.frexp(float(question.weights.max(where=weighs, initial=0.0)))[1]
        return largest if abs(largest) > MOST_DOUBLINGS else 0
    sizes = np.frexp(question.weights)[1] + 2 * _weighs(question) * exponents
    largest = int(sizes.max(where=weighs, initial=-(1 << 20)))
    return largest if abs(largest) > MOST_DOUBLINGS else 0


def _weighs(question: Question) -> int:
    """Which power of a reading a weight is of."""
    return 1 if question.rows in ("slack_max", "slack_sum") else 2


def _is_priced(question: Question) -> npt.NDArray[np.bool_]:
    """Rows whose multiplier needs no end: those with squares or logarithms."""
    if question.rows == "squares":
        return ~question.hard & (question.weights > 0.0)
    if question.rows == "center":
        return ~question.equal & ((question.lo > -np.inf) | (question.hi < np.inf))
    return np.zeros(question.m, bool)


def _add_squares(total: _Sum, question: Question, y: Vector, rows: npt.NDArray[np.bool_]) -> None:
    """``s b + s^2/(4 w) + z^+ hi - z^- lo`` for ``y = s + z``, whatever the z.

    It is least where ``s = 2 w (v - b)`` at the v between the ends that is best.
    """
    b, weights, lo, hi = question.reading, question.weights, question.lo, question.hi
    if not rows.all():
        y, b, weights, lo, hi = y[rows], b[rows], weights[rows], lo[rows], hi[rows]
    double = 2.0 * weights
    s = np.minimum(np.maximum(y, double * (lo - b)), double * (hi - b))
    if (s == y).all():  # nothing leans on an end
        total.add_products(y, b)
        total.add((np.abs(y) / (2.0 * np.sqrt(weights))) ** 2, 8.0)
        return
    z = y - s
    # y = s + rest + z, exactly [Knuth 1997, 4.2.2, Thm. B]
    back = y - z
    rest = (y - (back + z)) + (back - s)
    leans = z != 0.0
    if leans.any():
        total.add_products(z[leans], np.where(z > 0.0, hi, lo)[leans])
    total.add_products(s, b)
    total.add(rest * b, 8.0)
    # Divided first: the square alone may be beyond float64.
    total.add(((np.abs(s) + np.abs(rest)) / (2.0 * np.sqrt(weights))) ** 2, 8.0)


def _add_centers(total: _Sum, question: Question, y: Vector, rows: npt.NDArray[np.bool_]) -> None:
    """``y_2 hi - y_1 lo - 2 - log y_1 - log y_2`` for ``y = y_2 - y_1``, both positive."""
    two = rows & (question.lo > -np.inf) & (question.hi < np.inf)
    lo, hi, z = question.lo[two], question.hi[two], y[two]
    width = hi - lo
    inverse = 2.0 / width
    # The smaller of the two, where 1/y_1 + 1/y_2 is the width.
    small = 0.5 * (inverse + inverse * (inverse / (np.hypot(z, inverse) + np.abs(z))))
    large = np.abs(z) + small
    total.add_products(z, np.where(z >= 0.0, hi, lo))
    total.add(small * width, 8.0)
    total.add(-np.log(small), 8.0)
    total.add(-np.log(large), 8.0)
    total.add(np.full(z.size, -2.0), 8.0)  # also for what log feels of the rounding of large
    one = rows & ~two
    lo, hi, z = question.lo[one], question.hi[one], y[one]
    fits = np.where(hi < np.inf, z > 0.0, z < 0.0)
    total.add_products(z, np.where(hi < np.inf, hi, lo))
    total.add(np.where(fits, -np.log(np.abs(z)), np.inf), 8.0)
    total.add(np.full(z.size, -1.0), 8.0)
