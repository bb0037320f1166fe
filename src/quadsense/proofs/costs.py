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
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import TINY, UNIT
from quadsense.core.matrix import DenseForm, FactorForm, MeasuredForm, SensedMatrix
from quadsense.core.question import Question
from quadsense.core.records import changed
from quadsense.core.sums import (
    LARGE,
    OF_ERRORS,
    ROUNDINGS,
    SPARE,
    UNDERFLOW,
    ExactSum,
    Value,
    sum_error,
    summed,
)
from quadsense.proofs.definite import Spectrum, spectrum
from quadsense.proofs.rounding import COMPLEX, frobenius, squared_length

# --- values ----------------------------------------------------------------------------------

MAX_DOUBLINGS = 400
"""Doublings or halvings of a weight of 1 that leave room for squares."""

BEYOND_EXPONENTS = 10**6
"""More than any exponent of a number."""


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
    return question.term.enclosed(question, v, e)


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
    return summed(-np.log(found.values), -np.log1p(-slip / found.values) + ROUNDINGS)


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


def permitted(question: Question, y: Vector) -> Vector:
    """Return y with 0 in place of entries that need an end of an interval which is infinite.

    Under slack they are made smaller as the weights ask: each for "slack_sum", all together for
    "slack_max", where all other entries follow.
    """
    free = question.term.priced(question)
    usable = np.isfinite(y)
    if not free.all():
        usable &= np.where(y > 0.0, question.hi < np.inf, question.lo > -np.inf) | free
    return question.term.permitted(question, np.where(usable, y, 0.0))


def conjugate_above(question: Question, y: Vector) -> float:
    """Return ``sum_i phi_i*(y_i)``, rounded up; y is `permitted`."""
    total = ExactSum()
    with np.errstate(all="ignore"):
        priced = question.term.priced(question)
        leans = ~priced & (y != 0.0)
        if leans.any():
            total.add_products(y[leans], np.where(y > 0.0, question.hi, question.lo)[leans])
        question.term.add_conjugate(total, question, y, priced)
        return total.above()


def shifted(question: Question, exponents: npt.NDArray[np.int64], unit: int = 0) -> Question:
    """Return the same question for rows over ``2^exponents``: exact except for underflow.

    What leaves float64's range asks for less than it did: an end is dropped, a weight made smaller.
    The weights are of an objective in units of ``2^unit``.
    """
    weights = question.weights
    if not (unit or exponents.any()):
        weights = np.minimum(weights, LARGE)
        return changed(question, weights=np.where(weights < TINY, 0.0, weights))
    power = -2 * exponents
    per = question.term.power
    with np.errstate(over="ignore", under="ignore"):
        lo, hi = np.ldexp(question.lo, power), np.ldexp(question.hi, power)
        reading = np.ldexp(question.reading, power)
        weights = np.minimum(np.ldexp(weights, -per * power - unit), LARGE)
        slope = np.ldexp(question.slope, -power - unit)
    weights = np.where(weights < TINY, 0.0, weights)
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
    term = question.term
    if not term.weighed or term.logarithms or question.log_det or not weighs.any():
        return 0
    if not exponents.any():
        largest = math.frexp(float(question.weights.max(where=weighs, initial=0.0)))[1]
        return largest if abs(largest) > MAX_DOUBLINGS else 0
    sizes = np.frexp(question.weights)[1] + 2 * term.power * exponents
    largest = int(sizes.max(where=weighs, initial=-BEYOND_EXPONENTS))
    return largest if abs(largest) > MAX_DOUBLINGS else 0
