"""Residuals recomputed from the data, with a bound on what rounding may have done to them.

The unit roundoff is ``u = 2^-53``. A computed inner product of length n errs by at most
``n u / (1 - n u)`` times the inner product of the moduli, at most the product of the norms
[Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., Section 3.1]; for complex numbers
a factor below 2 more covers it. All counts below are rounded up generously.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from quadsense.arrays import Array, Vector, namespace, to_numpy
from quadsense.core.forms import DenseForm, FactorForm, MeasuredForm, Rows
from quadsense.core.matrix import SensedMatrix

UNIT = 2.0**-53


class Enclosure(NamedTuple):
    """Residuals of the unit rows and bounds on their rounding errors, both of shape (m,)."""

    z: Array
    error: Array


def measured_enclosure(
    form: MeasuredForm, b: Array, image: Array, magnitude: Array, lengths: int
) -> Enclosure:
    """Residuals of ``A = tau I - F*(c)`` on its own rows, from ``image = K c``.

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
    entry = 2.0 * (form.n + 8) * UNIT
    terms = magnitude + abs(form.tau) + xp.abs(b)
    if form.base is not None:
        z = z + form.rows.forward(form.base)
        terms = terms + 4.0 * (form.n + 8) * DenseForm(form.base).norm()
    error = (
        entry * (2.0 * xp.sqrt(mass * magnitude) + entry * mass + abs(form.tau))
        + 2.0 * (lengths + 16) * UNIT * terms
    )
    return Enclosure(z, error)


def enclosure(matrix: SensedMatrix, rows: Rows, b: Array) -> Enclosure:
    """Residuals ``u_i* A u_i - b_i`` of unit rows, recomputed, with bounds on their errors.

    Parameters
    ----------
    matrix : SensedMatrix
        A.
    rows : Rows
        Measurement vectors.
    b : array of shape (m,)
        Readings of the unit rows.
    """
    form = matrix.form
    xp = namespace(b)
    if isinstance(form, MeasuredForm) and form.rows is rows:
        mass = xp.abs(form.c)
        if rows.prefers_gram:
            both = rows.gram_times(xp.stack([form.c, mass], axis=1))
            return measured_enclosure(form, b, both[:, 0], both[:, 1], rows.m)
        image = rows.forward(rows.adjoint(form.c))
        bound = xp.sum(mass) + 0.0 * b
        return measured_enclosure(form, b, image, bound, rows.m + 2 * rows.n)
    if isinstance(form, FactorForm):
        products = rows.times(form.factor)
        z = xp.sum(xp.abs(products) ** 2, axis=1) - b
        size = form.trace()
    elif isinstance(form, DenseForm):
        z = rows.forward(form.values) - b
        size = form.norm()
    else:  # an implicit matrix, measured by other rows than its own
        z = rows.quadratic(matrix.times) - b
        assert isinstance(form, MeasuredForm)
        size = abs(form.tau) + float(namespace(form.c).sum(namespace(form.c).abs(form.c)))
        size += 0.0 if form.base is None else DenseForm(form.base).norm()
    inner = form.rows.m if isinstance(form, MeasuredForm) else 0
    error = 4.0 * (2 * rows.n + inner + 16) * UNIT * (size + xp.abs(b))
    return Enclosure(z, error)


def excess(z: Array, delta: Array, sides: Any = None) -> Vector:
    """How far each residual leans out of its interval, in tolerances: 1 is its end.

    Parameters
    ----------
    z, delta : arrays of shape (m,)
        Residuals and tolerances.
    sides : ndarray of bool, shape (2, m), optional
        Which upper and which lower ends exist; all where None.
    """
    ratios = to_numpy(z) / to_numpy(delta)
    if sides is None:
        return np.abs(ratios)
    upper = np.where(sides[0], ratios, 0.0)
    return np.maximum(np.maximum(upper, np.where(sides[1], -ratios, 0.0)), 0.0)


def is_met(found: Enclosure, delta: Array, sides: Any = None) -> bool:
    """Whether every residual is within its interval, rounding included."""
    slack = to_numpy(found.error) / to_numpy(delta)
    return bool(np.all(excess(found.z, delta, sides) + slack <= 1.0 - 8.0 * UNIT))
