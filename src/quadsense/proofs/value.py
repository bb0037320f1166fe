"""The objective of a matrix, recomputed, with a bound on what rounding may have done to it."""

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
from quadsense.proofs.rounding import exact_sum, frobenius, gamma, squared_length
from quadsense.proofs.spectrum import Spectrum, spectrum


class Value(NamedTuple):
    """The objective, and how far it may be off; an infinite error says that nothing is known."""

    value: float
    error: float


def objective_value(
    question: Question, matrix: SensedMatrix, values: Vector, error: Vector
) -> Value:
    """The objective of a matrix that satisfies the question.

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
        off += 2.0 * UNIT * (abs(rows.value) + abs(own.value)) + 1e-300
    return Value(total, off) if math.isfinite(total) and off < math.inf else Value(total, math.inf)


def row_value(question: Question, values: Vector, error: Vector) -> Value:
    """``sum_i phi_i(v_i)`` for readings that are each known up to `error`."""
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
    if question.rows == "center":
        free = ~question.equal
        room = np.concatenate([(v - question.lo)[free], (question.hi - v)[free]])
        off = np.concatenate([e[free], e[free]])
        known = room < np.inf
        room, off = room[known], off[known] + 2.0 * UNIT * np.abs(room[known])
        if not bool((room > off).all()):
            return Value(math.inf, math.inf)
        return _summed(-np.log(room), -np.log1p(-off / room) + 4.0 * UNIT)
    counts = question.soft & (weights > 0.0)
    miss, w = question.misses(v)[counts], weights[counts]
    off = e[counts] + 2.0 * UNIT * (miss + np.abs(v[counts]))
    # What is further inside than that misses nothing at all.
    room = np.minimum(question.hi - v, v - question.lo)[counts] * (1.0 - 4.0 * UNIT)
    off = np.where(room > 0.0, np.maximum(off - room, 0.0), off)
    if question.rows == "slack_max":
        most, spread = float((w * miss).max(initial=0.0)), float((w * off).max(initial=0.0))
        return Value(most, spread * (1.0 + 8.0 * UNIT) + 4.0 * UNIT * most)
    if question.rows == "slack_sum":
        return _summed(w * miss, w * off)
    return _summed(w * miss * miss, w * (2.0 * miss + off) * off)


def matrix_value(question: Question, matrix: SensedMatrix) -> Value:
    """``<C, A> + alpha ||A - P||_F^2 - log det A``."""
    trivial = isinstance(question.C, float) and question.C == 0.0
    if trivial and question.alpha == 0.0 and not question.log_det:
        return Value(0.0, 0.0)
    form = matrix.form
    if isinstance(form, MeasuredForm) and _is_long(question, form):
        alpha, (length, error) = question.alpha, _squared_distance(form, float(question.prior))
        return Value(alpha * length, alpha * error * (1.0 + 1e-9) + 4.0 * UNIT * alpha * length)
    A = to_numpy(matrix.to_dense())
    n, off = len(A), _dense_error(matrix)
    sums = 2.0 * gamma(n * n + 16.0)
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
    return Value(value, error * (1.0 + 1e-9) + 4.0 * UNIT * abs(value))


def _logarithms(found: Spectrum, off: float) -> Value:
    """``-sum log`` of eigenvalues of a matrix that is off by so much."""
    slip = found.error + off
    if not float(found.values[0]) > slip:
        return Value(math.inf, math.inf)
    return _summed(-np.log(found.values), -np.log1p(-slip / found.values) + 4.0 * UNIT)


def _logarithms_of_factor(X: npt.NDArray[Any]) -> Value:
    """``-log det X X*`` by the singular values of X, of which the smallest has twice the digits."""
    n, k = X.shape
    if n != k:
        return Value(math.inf, math.inf)
    zero = np.zeros_like(X)
    found = spectrum(np.block([[zero, X], [X.conj().T, zero]]))  # of which they are the upper half
    logs = _logarithms(Spectrum(found.values[n:], found.error), 0.0)
    return Value(2.0 * logs.value, 2.0 * logs.error)


def _is_long(question: Question, form: MeasuredForm) -> bool:
    """Whether all that A costs is its distance from a multiple of I, held by rows with n > m."""
    plain = isinstance(question.C, float) and question.C == 0.0 and not question.log_det
    distance = isinstance(question.prior, float)
    return plain and distance and form.base is None and form.rows.prefers_gram


def _squared_distance(form: MeasuredForm, tau: float) -> Value:
    """``||A - tau I||_F^2`` where A is a multiple of I less a sum of unit rows."""
    c, apart = to_numpy(form.c), form.tau - tau
    length, error = squared_length(form.rows, c) if c.any() else (0.0, 0.0)
    if apart:
        trace = float(c @ to_numpy(form.rows.nonzero))
        mass = float(np.abs(c).sum())
        terms = apart * apart * form.n, -2.0 * apart * trace, length
        length = max(math.fsum(terms), 0.0)
        error += 2.0 * abs(apart) * gamma(4.0 * form.n + 2.0 * c.size + 64.0) * mass
        error += 8.0 * UNIT * math.fsum(abs(each) for each in terms)
        error += 4.0 * UNIT * abs(form.tau) * (2.0 * abs(apart) * form.n + 2.0 * mass)
    return Value(length, error)


def _summed(terms: Vector, errors: npt.NDArray[Any]) -> Value:
    """The sum of terms that are right up to some roundings and these errors."""
    if not np.isfinite(terms).all():
        return Value(math.inf, math.inf)
    total, size = exact_sum(terms), float(np.abs(terms).sum())
    return Value(total, float(errors.sum()) * (1.0 + 1e-9) + 8.0 * UNIT * size)


def _dense_error(matrix: SensedMatrix) -> float:
    """Bound on the Frobenius norm of what rounding does to A when it is made dense."""
    form = matrix.form
    if isinstance(form, DenseForm):
        return 0.0
    if isinstance(form, FactorForm):
        return 4.0 * gamma(form.factor.shape[1] + 4.0) * form.trace()
    assert isinstance(form, MeasuredForm)
    rows: Any = form.rows
    size = abs(form.tau) * math.sqrt(form.n) + float(np.abs(to_numpy(form.c)).sum())
    size += 0.0 if form.base is None else DenseForm(form.base).norm()
    return (8.0 * gamma(rows.m + 16.0) + 8.0 * rows.rounding) * size
