"""Residuals recomputed from the data, with a bound on what rounding may have done to them.

The unit roundoff is ``u = 2^-53``. A computed inner product of length n errs by at most
``n u / (1 - n u)`` times the inner product of the moduli, at most the product of the norms
[Higham 2002, Section 3.1]; for complex numbers a factor below 2 more covers it. All counts below
are rounded up generously.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, Vector, like, namespace, to_numpy
from quadsense.core.forms import DenseForm, FactorForm, FramedForm, MeasuredForm, Rows
from quadsense.core.intervals import UNIT, Intervals
from quadsense.core.matrix import SensedMatrix
from quadsense.measurements.sensing import Sensing

FEW = 1024
"""Numbers that are made a list together, which is summed in a fifth of the time."""

ROUNDINGS = 4.0 * UNIT
"""Bound on the relative error of up to three operations in a row: ``gamma(3) < 4 u``."""

UP, DOWN = 1.0 + ROUNDINGS, 1.0 - ROUNDINGS
"""Factors that round a positive number of up to three operations up and down; their squares serve
up to seven operations."""

SPARE = 8
"""Roundings that are counted in addition to those of a sum: scalings, squares, a difference."""

COMPLEX = 4.0
"""Factor by which complex sums of products err more than real ones, at most, with what nested
products add: a complex product errs by ``sqrt(2) gamma_2`` [Higham 2002, Section 3.6]."""

OF_ERRORS = 1.0 + 1e-9
"""Factor that covers the rounding of bounds on errors, of up to 10^6 operations each."""

OF_NORMS = 1.01
"""Factor that covers the rounding of Frobenius norms in bounds on errors: `gamma` of the number of
entries is below .01 for every matrix that fits in memory."""

UNDERFLOW = 1e-300
"""More than underflow takes from a sum of up to 10^20 numbers, each at most ``2^-1074``."""

PRODUCT_UNDERFLOW = 1e-290
"""The same of sums of products that are split into parts of 22 bits."""


def exact_sum(values: Vector) -> float:
    """Return the sum, rounded once: `math.fsum` of lists."""
    if values.size <= FEW:
        return math.fsum(values.tolist())
    return math.fsum(
        chain.from_iterable(
            values[first : first + FEW].tolist() for first in range(0, values.size, FEW)
        )
    )


def frobenius(M: npt.NDArray[Any]) -> float:
    """Return the norm of an array, as `numpy.linalg.norm` does in four times as many calls."""
    x = M.ravel(order="K")
    return math.sqrt(float(np.vdot(x, x).real))


def gamma(k: float) -> float:
    """Bound on the relative error of k roundings, ``k u / (1 - k u)`` [Higham 2002, 3.1]."""
    return k * UNIT / (1.0 - k * UNIT)


def sum_error(terms: float) -> float:
    """Bound on the error of a sum of products, relative to the sum of their moduli.

    `SPARE` operations on terms and sum are counted in addition.
    """
    return gamma(terms + SPARE)


MAX_SQUARED_NORM = 4.0
"""Of rows in `squared_length`, which are scaled by powers of two to a norm of at most 2."""

READING_ROUNDINGS = 64
"""Roundings of a reading of a unit row: of the squared norm, the quotient and the difference."""


class Enclosure(NamedTuple):
    """Residuals of the unit rows and bounds on their rounding errors, both of shape (m,)."""

    z: Array
    error: Array


def measured_enclosure(
    form: MeasuredForm, b: Array, image: Array, magnitude: Array, lengths: int
) -> Enclosure:
    """Return residuals of ``A = tau I - F*(c)`` on its own rows, from ``image = K c``.

    Parameters
    ----------
    form : MeasuredForm
        The matrix.
    b : array of shape (m,)
        Readings of the unit rows.
    image : array of shape (m,)
        ``K c``, computed from inner products of rows.
    magnitude : array of shape (m,)
        ``K |c|``, or any bound on it.
    lengths : int
        Sum of the lengths of all nested inner products that led to `image`.

    Notes
    -----
    An entry ``g = <u_i, u_j>`` errs by ``e = 2 (n + 8) u`` at most, so ``|g|^2`` by
    ``2 |g| e + e^2``, and ``sum_j |c_j| |g_ij| <= sqrt(||c||_1 (K|c|)_i)`` by Cauchy and Schwarz.
    A is defined with the computed reciprocal norms, so the squared norm of a unit row is itself
    off by e at most, which tau feels.
    """
    xp = namespace(form.c)
    mass = float(xp.sum(xp.abs(form.c)))
    z = form.tau * form.rows.nonzero - image - b
    entry = 2.0 * sum_error(form.n)
    terms = magnitude + abs(form.tau) + xp.abs(b)
    error = (
        entry * (2.0 * mass**0.5 * xp.sqrt(magnitude) + entry * mass + abs(form.tau))
        + 2.0 * sum_error(lengths + SPARE) * terms
        + 2.0 * COMPLEX * form.rows.rounding * (mass + abs(form.tau))
    )
    if form.base is not None:
        z = z + form.rows.forward(form.base)
        error = error + dense_error(form.rows, DenseForm(form.base).norm())
    return Enclosure(z, error)


def squared_length(rows: Rows, c: Vector) -> tuple[float, float]:
    """Return ``||F*(c)||_F^2 = c . K c`` of rows of norm at most 2, and a bound on its rounding.

    For rows longer than they are many: no n-by-n matrix is formed. An entry of K is off by
    ``4 gamma_(n + 8)`` times the squared norms at most, and the sums by m roundings each. Rows of
    norm at most 2 have squared norms of at most 4.
    """
    c = np.asarray(c, dtype=np.float64)
    image = to_numpy(rows.gram_times(like(c, rows.nonzero)))
    mass = MAX_SQUARED_NORM * float(np.abs(c).sum()) * (1.0 + gamma(c.size))
    own = (
        COMPLEX * sum_error(COMPLEX * (rows.n + SPARE) + 2.0 * rows.m)
        + 2.0 * COMPLEX * rows.rounding
    )
    error = own * mass * mass
    return max(float(c @ image), 0.0), error


def dense_error(rows: Rows, size: float, inner: int = 0) -> float:
    """Bound on the rounding of ``u* A u``, u of unit norm, ``||A||_F <= size``.

    `inner` is the length of the sums, if any, that make up a product with A. Inner products of
    the rows' length, twice, complex ones included; the scaling of the rows to unit norm, which
    takes the reading along, and the subtraction of the reading; what the kind of probes errs by
    beyond.
    """
    return COMPLEX * (sum_error(2.0 * rows.length + inner + SPARE) + rows.rounding) * size


def factor_size(form: FactorForm, relative: float) -> float:
    """Return what the rounding of ``||X* u||^2``, u of unit norm, is in proportion to.

    Its terms ``|p_k|^2`` err by ``2 |p_k| e_k + e_k^2`` with ``e_k <= relative ||x_k||``. By Cauchy
    and Schwarz that is ``2 relative ||p|| ||X||_F`` and a square, with ``||p||^2 <= ||X X*||_F``.
    For X of many columns it is far less than ``||X||_F^2``.
    """
    mass = form.mass
    return min(mass, math.sqrt(OF_NORMS * form.unsigned_norm * mass) + relative * mass)


def enclosure(matrix: SensedMatrix, rows: Rows, b: Array) -> Enclosure:
    """Return residuals ``u_i* A u_i - b_i`` of unit rows, recomputed, with bounds on their errors.

    Parameters
    ----------
    matrix : SensedMatrix
        A.
    rows : Rows
        Measurement vectors.
    b : array of shape (m,)
        Readings of the unit rows.
    """
    if not rows.rank_one:
        return _mixed_enclosure(matrix, cast("Sensing", rows), b)
    form = matrix.form
    xp = namespace(b)
    if isinstance(form, MeasuredForm) and form.rows is rows:
        mass = xp.abs(form.c)
        if not bool(xp.any(mass > 0.0)):  # the start itself: there is nothing to sum
            return measured_enclosure(form, b, 0.0 * b, 0.0 * b, 0)
        if rows.prefers_gram:
            both = rows.gram_times(xp.stack([form.c, mass], axis=1))
            return measured_enclosure(form, b, both[:, 0], both[:, 1], rows.m)
        image = rows.forward(rows.adjoint(form.c))
        bound = xp.sum(mass) + 0.0 * b
        return measured_enclosure(form, b, image, bound, rows.m + 2 * rows.n)
    if isinstance(form, FactorForm):
        z = form.seen_by(rows) - b
        inner = int(form.factor.shape[1])
        size = factor_size(form, dense_error(rows, 1.0, inner))
    elif isinstance(form, DenseForm):
        z = rows.forward(form.values) - b
        size, inner = form.norm(), 0
    else:  # an implicit matrix, measured by other rows than its own
        z = rows.quadratic(matrix.times) - b
        held, size = form, 1.0
        if isinstance(form, FramedForm):
            held, size = form.inner, float(np.ldexp(1.0, 2 * int(form.columns.max())))
        assert isinstance(held, MeasuredForm)
        length = abs(held.tau) + float(namespace(held.c).sum(namespace(held.c).abs(held.c)))
        length += 0.0 if held.base is None else DenseForm(held.base).norm()
        size, inner = size * length, held.rows.m
    return Enclosure(z, dense_error(rows, size, inner) + reading_error(b))


def _mixed_enclosure(matrix: SensedMatrix, rows: Sensing, b: Array) -> Enclosure:
    """Return the same for sums of rows: readings of single rows, their errors and those of the sum.

    W is held scaled, each entry within some roundings, which the last term covers.
    """
    raw = rows.raw
    each = enclosure(matrix, raw, 0.0 * raw.squares)
    value, error = to_numpy(each.z), to_numpy(each.error) + 0.0 * to_numpy(each.z)
    sizes = abs(rows.weights)
    sums = sizes @ (np.abs(value) + error)
    total = 2.0 * (sizes @ error) + COMPLEX * gamma(rows.sum_terms(2 * SPARE)) * sums
    z = rows.mixed(each.z) - b
    return Enclosure(z, like(total, b) + reading_error(b) + ROUNDINGS * namespace(z).abs(z))


def reading_error(b: Array) -> Array:
    """Bound on the rounding of the readings of the unit rows and of subtracting them."""
    return gamma(READING_ROUNDINGS) * namespace(b).abs(b)


def is_met(found: Enclosure, ends: Intervals, size: float = 0.0) -> bool:
    """Return whether every value is within its interval, rounding included.

    `size` is ``||A||_F``, in proportion to which equalities have room: see `Intervals.allowing`.
    """
    return bool(ends.allowing(size).met(to_numpy(found.z), to_numpy(found.error)).all())
