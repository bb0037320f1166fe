"""What readings and A cost, and the conjugates of these costs: both sides of a lower bound.

The value of the objective at a matrix is recomputed, with a bound on what rounding may have done to
it. The rows' part of a lower bound, ``sum_i phi_i*(y_i)``, is rounded up: each
``phi_i*(y) = sup_v (y v - phi_i(v))`` is bounded by a formula that holds for every split of y into
the shares of its terms [Rockafellar 1970, Thm. 16.4], so that rounding of a split costs tightness,
never truth. Products are taken with their rounding errors [Dekker 1971] and summed exactly, so that
readings that are large compared with their residuals cancel.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core.forms import DenseForm, FactorForm, MeasuredForm
from quadsense.core.intervals import UNIT
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.core.records import changed
from quadsense.proofs.definite import Spectrum, spectrum
from quadsense.proofs.rounding import (
    COMPLEX,
    DOWN,
    OF_ERRORS,
    ROUNDINGS,
    SPARE,
    UNDERFLOW,
    UP,
    exact_sum,
    frobenius,
    product_error,
    squared_length,
    sum_error,
)

# --- values ----------------------------------------------------------------------------------

NORMAL = float(np.finfo(np.float64).tiny)
"""The least number of all its digits."""

MAX_DOUBLINGS = 400
"""Doublings or halvings of a weight of 1 that leave room for squares."""

SMALL, LARGE = 1e-250, 1e280
"""Sizes of a product within which its rounding error is a number of all its digits."""

BEYOND_EXPONENTS = 10**6
"""More than any exponent of a number."""


class Value(NamedTuple):
    """The objective, and how far it may be off; an infinite error says that nothing is known."""

    value: float
    error: float


def objective_value(
    question: Question, matrix: SensedMatrix, values: Vector, error: Vector
) -> Value:
    """Return the objective of a matrix that satisfies the question.

    Whether it is in the cone and reads what it must is not checked here.

    Parameters
    ----------
    question : Question
        In the user's scaling.
    matrix : SensedMatrix
        A.
    values, error : ndarray of shape (m,)
        ``F(A)``, rows and constraints, and bounds on the errors of that; in the user's units.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        rows = row_value(question, values, error)
        own = matrix_value(question, matrix)
        total, off = rows.value + own.value, rows.error + own.error
        off += 2.0 * UNIT * (abs(rows.value) + abs(own.value)) + UNDERFLOW
    return Value(total, off) if math.isfinite(total) and off < math.inf else Value(total, math.inf)


def row_value(question: Question, values: Vector, error: Vector) -> Value:
    """Return ``sum_i phi_i(v_i)`` for readings that are each known up to `error`."""
    v, e = np.asarray(values, dtype=np.float64), np.asarray(error, dtype=np.float64)
    weights = question.weights
    if question.rows == "within":
        return Value(0.0, 0.0)
    if question.rows == "squares":
        counts, z = ~question.hard & (weights > 0.0), np.abs(v - question.reading)
        if not counts.all():
            z, e, weights = z[counts], e[counts], weights[counts]
        off = e + 2.0 * UNIT * z
        return _summed(weights * z * z, weights * (2.0 * z + off) * off)
    if question.rows == "likelihood":
        return _likelihood_value(question, v, e)
    if question.rows == "center":
        free = ~question.equal
        room = np.concatenate([(v - question.lo)[free], (question.hi - v)[free]])
        off = np.concatenate([e[free], e[free]])
        known = room < np.inf
        room, off = room[known], off[known] + 2.0 * UNIT * np.abs(room[known])
        if not bool((room > off).all()):
            return Value(math.inf, math.inf)
        return _summed(-np.log(room), -np.log1p(-off / room) + ROUNDINGS)
    counts = question.soft & (weights > 0.0)
    miss, w = question.misses(v)[counts], weights[counts]
    off = e[counts] + 2.0 * UNIT * (miss + np.abs(v[counts]))
    # What is further inside than that misses nothing at all.
    room = np.minimum(question.hi - v, v - question.lo)[counts] * DOWN
    off = np.where(room > 0.0, np.maximum(off - room, 0.0), off)
    if question.rows == "slack_max":
        most, spread = float((w * miss).max(initial=0.0)), float((w * off).max(initial=0.0))
        return Value(most, spread * UP * UP + ROUNDINGS * most)
    if question.rows == "slack_sum":
        return _summed(w * miss, w * off)
    return _summed(w * miss * miss, w * (2.0 * miss + off) * off)


def _likelihood_value(question: Question, v: Vector, e: Vector) -> Value:
    """Return the value of "likelihood"; see `RowTerm`."""
    rows = ~question.hard
    weights, lo = question.weights[rows], question.lo[rows]
    v, e, reading = v[rows], e[rows], question.reading[rows]
    slope = np.broadcast_to(question.slope, question.hard.shape)[rows]
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
    return _summed(terms, np.concatenate([off, errors]))


def matrix_value(question: Question, matrix: SensedMatrix) -> Value:
    """Return ``<C, A> + alpha ||A - P||_F^2 - log det A``."""
    trivial = isinstance(question.C, float) and question.C == 0.0
    if trivial and question.alpha == 0.0 and not question.log_det:
        return Value(0.0, 0.0)
    form = matrix.form
    if isinstance(form, MeasuredForm) and _is_long(question, form):
        alpha, (length, error) = question.alpha, _squared_distance(form, float(question.prior))
        return Value(alpha * length, alpha * error * OF_ERRORS + ROUNDINGS * alpha * length)
    A = to_numpy(matrix.to_dense())
    n, off = len(A), _dense_error(matrix)
    sums = 2.0 * sum_error(n * n + SPARE)
    size = frobenius(A)
    value = error = 0.0
    if isinstance(question.C, float):
        value = question.C * float(np.trace(A).real)
        error = abs(question.C) * (sums * size + off) * math.sqrt(n)
    else:
        C = question.C if np.iscomplexobj(A) else question.C.real
        value = float(np.vdot(C, A).real)
        error = frobenius(C) * (sums * size + off)
    if question.alpha:
        P = question.prior
        D = A - (P * np.eye(n) if isinstance(P, float) else P)
        length = frobenius(D)
        slip = off + 2.0 * UNIT * length
        value += question.alpha * length * length
        error += question.alpha * (2.0 * length + slip) * slip
        error += 2.0 * sums * question.alpha * length * length
    if question.log_det:
        logs = _logarithms(spectrum(A), off)
        if logs.error == math.inf and isinstance(form, FactorForm):
            logs = _logarithms_of_factor(to_numpy(form.factor))
        value, error = value + logs.value, error + logs.error
    return Value(value, error * OF_ERRORS + ROUNDINGS * abs(value))


def _logarithms(found: Spectrum, off: float) -> Value:
    """Return ``-sum log`` of eigenvalues of a matrix with an error of norm at most `off`."""
    slip = found.error + off
    if not float(found.values[0]) > slip:
        return Value(math.inf, math.inf)
    return _summed(-np.log(found.values), -np.log1p(-slip / found.values) + ROUNDINGS)


def _logarithms_of_factor(X: npt.NDArray[Any]) -> Value:
    """Return ``-log det X X*`` by singular values of X, whose smallest has twice the digits."""
    n, k = X.shape
    if n != k:
        return Value(math.inf, math.inf)
    zero = np.zeros_like(X)
    found = spectrum(np.block([[zero, X], [X.conj().T, zero]]))  # of which they are the upper half
    logs = _logarithms(Spectrum(found.values[n:], found.error), 0.0)
    return Value(2.0 * logs.value, 2.0 * logs.error)


def _is_long(question: Question, form: MeasuredForm) -> bool:
    """Return whether A costs its distance from a multiple of I alone, held by rows with n > m."""
    plain = isinstance(question.C, float) and question.C == 0.0 and not question.log_det
    distance = isinstance(question.prior, float)
    return plain and distance and form.base is None and form.rows.prefers_gram


def _squared_distance(form: MeasuredForm, tau: float) -> Value:
    """Return ``||A - tau I||_F^2`` where A is a multiple of I minus a sum of unit rows."""
    c, apart = to_numpy(form.c), form.tau - tau
    length, error = squared_length(form.rows, c) if c.any() else (0.0, 0.0)
    if apart:
        trace = float(c @ to_numpy(form.rows.nonzero))
        mass = float(np.abs(c).sum())
        terms = apart * apart * form.n, -2.0 * apart * trace, length
        length = max(math.fsum(terms), 0.0)
        error += 2.0 * abs(apart) * sum_error(COMPLEX * form.n + 2.0 * c.size) * mass
        error += 2.0 * ROUNDINGS * math.fsum(abs(each) for each in terms)
        error += ROUNDINGS * abs(form.tau) * (2.0 * abs(apart) * form.n + 2.0 * mass)
    return Value(length, error)


def _summed(terms: Vector, errors: npt.NDArray[Any]) -> Value:
    """Return the sum of terms with these errors and a few roundings each."""
    size = float(np.abs(terms).sum())
    if not math.isfinite(2.0 * size):  # or part of the sum might be beyond float64
        return Value(math.inf, math.inf)
    total = exact_sum(terms)
    return Value(total, float(errors.sum()) * OF_ERRORS + 2.0 * ROUNDINGS * size)


def _dense_error(matrix: SensedMatrix) -> float:
    """Bound on the Frobenius norm of what rounding does to A when it is made dense."""
    form = matrix.form
    if isinstance(form, DenseForm):
        return 0.0
    if isinstance(form, FactorForm):
        return COMPLEX * sum_error(form.factor.shape[1]) * form.trace()
    assert isinstance(form, MeasuredForm)
    rows: Any = form.rows
    size = abs(form.tau) * math.sqrt(form.n) + float(np.abs(to_numpy(form.c)).sum())
    size += 0.0 if form.base is None else DenseForm(form.base).norm()
    return 2.0 * COMPLEX * (sum_error(rows.m + SPARE) + rows.rounding) * size


# --- conjugates ------------------------------------------------------------------------------


class _Sum:
    """Terms to be added up exactly, and what each may be off by."""

    def __init__(self) -> None:
        self.terms: list[Vector] = []
        self.factors: list[tuple[Vector, Vector]] = []
        self.slack = 0.0

    def add(self, terms: Vector) -> None:
        """Add terms of up to seven operations each."""
        if not terms.size:
            return
        self.terms.append(np.asarray(terms))
        self.slack += 2.0 * ROUNDINGS * float(np.abs(terms).sum())

    def add_products(self, a: Vector, b: Vector) -> None:
        """Add ``a_i b_i``, exact except for underflow."""
        if a.size:
            self.factors.append((a, b))

    def _multiply(self) -> None:
        """Make terms of the products, all at once."""
        a, b = self.factors[0]
        if len(self.factors) > 1:
            a, b = map(np.concatenate, zip(*self.factors, strict=True))
        products = a * b
        rest = product_error(a, b, products)
        sizes = np.abs(products)
        if not (sizes.min() >= SMALL and sizes.max() < LARGE and np.isfinite(rest).all()):
            plain = (products != 0.0) & ((sizes < SMALL) | ~(sizes < LARGE) | ~np.isfinite(rest))
            rest = np.where(plain, 0.0, rest)
            self.slack += 2.0 * UNIT * float(sizes.sum(where=plain))
        self.terms += [products, rest]

    def above(self) -> float:
        """Return the sum, rounded up; infinite where a term is infinite or not a number."""
        if self.factors:
            self._multiply()
        total = np.concatenate(self.terms) if self.terms else np.zeros(0)
        if not np.isfinite(total).all():
            return math.inf
        whole, slack = exact_sum(total), self.slack * OF_ERRORS
        return whole + slack + 2.0 * UNIT * (abs(whole) + slack) + UNDERFLOW * (1.0 + total.size)


def permitted(question: Question, y: Vector) -> Vector:
    """Return y with 0 in place of entries that need an end of an interval which is infinite.

    Under slack they are made smaller as the weights ask: each for "slack_sum", all together for
    "slack_max", where all other entries follow.
    """
    free = _is_priced(question)
    usable = np.isfinite(y)
    if not free.all():
        usable &= np.where(y > 0.0, question.hi < np.inf, question.lo > -np.inf) | free
    y = np.where(usable, y, 0.0)
    if question.rows == "likelihood":
        most = np.where(question.hard, np.inf, question.slope)
        return np.where(question.weights > 0.0, y, np.minimum(y, most))
    if not question.rows.startswith("slack") or not (soft := question.soft).any():
        return y
    weights = question.weights
    y = np.where(soft & (weights == 0.0), 0.0, y)
    if question.rows == "slack_sum":
        return np.where(soft, np.clip(y, -weights, weights), y)
    return y / excess(question, y) if question.rows == "slack_max" else y


def excess(question: Question, y: Vector) -> float:
    """Return the least factor, 1 or more, that y over it is allowed by the weights of soft rows."""
    soft = question.soft & (y != 0.0)
    if not soft.any() or question.rows == "slack_squares":
        return 1.0
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        shares = np.abs(y[soft]) / question.weights[soft]
    if question.rows == "slack_sum":
        most = float(shares.max())
        return most * UP * UP if most > 1.0 else 1.0
    total = float(shares.sum())
    total += sum_error(shares.size) * total
    return max(total, 1.0)


def conjugate_above(question: Question, y: Vector) -> float:
    """Return ``sum_i phi_i*(y_i)``, rounded up; y is `permitted`."""
    total = _Sum()
    with np.errstate(all="ignore"):
        priced = _is_priced(question)
        lo, hi = question.lo, question.hi
        leans = ~priced & (y != 0.0)
        if leans.any():
            total.add_products(y[leans], np.where(y > 0.0, hi, lo)[leans])
        if question.rows == "squares":
            _add_squares(total, question, y, priced)
        elif question.rows == "likelihood":
            _add_likelihood(total, question, y, priced)
        elif question.rows == "center":
            _add_centers(total, question, y, priced)
        elif question.rows == "slack_squares":
            rows = question.soft & (y != 0.0)
            total.add((y[rows] / (2.0 * np.sqrt(question.weights[rows]))) ** 2)
        return total.above()


def at_zero(question: Question) -> Vector:
    """Return the y for which the bound of a row is its cost at the reading 0: slopes of ``phi_i``.

    For rows of zeros, which read 0 whatever A is.
    """
    lo, hi, weights = question.lo, question.hi, question.weights
    with np.errstate(all="ignore"):
        if question.rows == "squares":
            slope = np.where(question.hard, 0.0, -2.0 * weights * question.reading)
        elif question.rows == "likelihood":
            counts = question.weights > 0.0
            slope = question.slope + np.where(counts, question.weights / question.lo, 0.0)
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
    """Return the same question for rows over ``2^exponents``: exact except for underflow.

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
        slope = np.ldexp(question.slope, -power - unit)
    weights = np.where(weights < NORMAL, 0.0, weights)
    lost = ~np.isfinite(reading)
    return changed(
        question,
        lo=np.where(lo < np.inf, lo, -np.inf),
        hi=np.where(hi > -np.inf, hi, np.inf),
        reading=np.where(lost, 0.0, reading),
        weights=np.where(lost, 0.0, weights),
        slope=slope,
    )


def unit_of(question: Question, exponents: npt.NDArray[np.int64]) -> int:
    """Return the unit of `shifted` in which the weights of such rows are far from float64's ends.

    0 where they are anyway, or a logarithm has no unit.
    """
    weighs = ~question.hard & (question.weights > 0.0)
    logarithms = question.rows in ("center", "likelihood") or question.log_det
    if question.rows == "within" or logarithms or not weighs.any():
        return 0
    if not exponents.any():
        largest = math.frexp(float(question.weights.max(where=weighs, initial=0.0)))[1]
        return largest if abs(largest) > MAX_DOUBLINGS else 0
    sizes = np.frexp(question.weights)[1] + 2 * _weighs(question) * exponents
    largest = int(sizes.max(where=weighs, initial=-BEYOND_EXPONENTS))
    return largest if abs(largest) > MAX_DOUBLINGS else 0


def _weighs(question: Question) -> int:
    """Return which power of a reading a weight is of."""
    if question.rows == "likelihood":
        return 0
    return 1 if question.rows in ("slack_max", "slack_sum") else 2


def _is_priced(question: Question) -> npt.NDArray[np.bool_]:
    """Return which rows have multipliers that need no end: those with squares or logarithms."""
    if question.rows == "squares":
        return ~question.hard & (question.weights > 0.0)
    if question.rows == "likelihood":
        return ~question.hard
    if question.rows == "center":
        return ~question.equal & ((question.lo > -np.inf) | (question.hi < np.inf))
    return np.zeros(question.m, bool)


def _add_squares(total: _Sum, question: Question, y: Vector, rows: npt.NDArray[np.bool_]) -> None:
    """Return ``s b + s^2/(4 w) + z^+ hi - z^- lo`` for ``y = s + z`` and any z.

    It is least where ``s = 2 w (v - b)`` at the v between the ends that is best.
    """
    b, weights, lo, hi = question.reading, question.weights, question.lo, question.hi
    if not rows.all():
        y, b, weights, lo, hi = y[rows], b[rows], weights[rows], lo[rows], hi[rows]
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


def _add_likelihood(
    total: _Sum, question: Question, y: Vector, rows: npt.NDArray[np.bool_]
) -> None:
    """Return ``y lo + slope (reading - lo) - w - w log((slope - y) (reading - lo)/w)``.

    The difference of slope and y is rounded once, whatever they are; y above the slope is refused.
    """
    w, lo, y = question.weights[rows], question.lo[rows], y[rows]
    slope = np.broadcast_to(question.slope, question.hard.shape)[rows]
    room, left = question.reading[rows] - lo, slope - y
    total.add_products(y, lo)
    total.add(slope * room)
    counts = w > 0.0
    total.add(np.where(counts | (left >= 0.0), 0.0, np.inf))
    w, left, room = w[counts], left[counts], room[counts]
    total.add(-w)  # also for what log feels of the rounding of its argument
    total.add(np.where(left > 0.0, -w * np.log(left * (room / w)), np.inf))


def _add_centers(total: _Sum, question: Question, y: Vector, rows: npt.NDArray[np.bool_]) -> None:
    """Return ``y_2 hi - y_1 lo - 2 - log y_1 - log y_2`` for ``y = y_2 - y_1``, both positive."""
    two = rows & (question.lo > -np.inf) & (question.hi < np.inf)
    lo, hi, z = question.lo[two], question.hi[two], y[two]
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
    one = rows & ~two
    lo, hi, z = question.lo[one], question.hi[one], y[one]
    fits = np.where(hi < np.inf, z > 0.0, z < 0.0)
    total.add_products(z, np.where(hi < np.inf, hi, lo))
    total.add(np.where(fits, -np.log(np.abs(z)), np.inf))
    total.add(np.full(z.size, -1.0))
