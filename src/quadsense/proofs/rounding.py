"""``F(A) - b`` and ``F*(y)`` recomputed from the data, with bounds on what rounding did to them.

The unit roundoff is ``u = 2^-53``. A computed inner product of length n errs by at most
``n u / (1 - n u)`` times the inner product of the moduli, at most the product of the norms
[Higham 2002, Section 3.1]; for complex numbers a factor below 2 more covers it. All counts below
are rounded up generously.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, Vector, like, namespace, to_numpy
from quadsense.core.intervals import UNIT, Intervals
from quadsense.core.matrix import DenseForm, FactorForm, FramedForm, MeasuredForm, SensedMatrix
from quadsense.core.products import strictly_below
from quadsense.core.sums import ROUNDINGS, SPARE, gamma, product_error, sum_error
from quadsense.measurements import Measurements
from quadsense.measurements.sensing import Sensing
from quadsense.system.machine import BLOCK_ELEMENTS
from quadsense.system.watch import look

SPARE_OF_NESTED = 3 * SPARE
"""The same for sums within sums: of rows, of products with these, and of their squares."""

COMPLEX = 4.0
"""Factor by which complex sums of products err more than real ones, at most, with what nested
products add: a complex product errs by ``sqrt(2) gamma_2`` [Higham 2002, Section 3.6]."""

OF_NORMS = 1.01
"""Factor that covers the rounding of Frobenius norms in bounds on errors: `gamma` of the number of
entries is below .01 for every matrix that fits in memory."""

PRODUCT_UNDERFLOW = 1e-290
"""The same of sums of products that are split into parts of 22 bits."""


def frobenius(M: npt.NDArray[Any]) -> float:
    """Return the norm of an array, as `numpy.linalg.norm` does in four times as many calls."""
    x = M.ravel(order="K")
    return math.sqrt(float(np.vdot(x, x).real))


MAX_SQUARED_NORM = 4.0
"""Of rows in `squared_length`, which are scaled by powers of two to a norm of at most 2."""

READING_ROUNDINGS = 64
"""Roundings of a reading of a unit row: of the squared norm, the quotient and the difference."""


OF_READINGS = gamma(READING_ROUNDINGS)
"""Bound on these, relative to the reading."""


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


def squared_length(rows: Sensing, c: Vector) -> tuple[float, float]:
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


def dense_error(rows: Sensing, size: float, inner: int = 0) -> float:
    """Bound on the rounding of ``u* A u``, u of unit norm, ``||A||_F <= size``.

    `inner` is the length of the sums, if any, that make up a product with A. Inner products of
    the rows' length, twice, complex ones included; the scaling of the rows to unit norm, which
    takes the reading along, and the subtraction of the reading; what the kind of probes errs by
    beyond.
    """
    return COMPLEX * (gamma(2.0 * (rows.length + SPARE) + inner) + rows.rounding) * size


def factor_size(form: FactorForm, relative: float) -> float:
    """Return what the rounding of ``||X* u||^2``, u of unit norm, is in proportion to.

    Its terms ``|p_k|^2`` err by ``2 |p_k| e_k + e_k^2`` with ``e_k <= relative ||x_k||``. By Cauchy
    and Schwarz that is ``2 relative ||p|| ||X||_F`` and a square, with ``||p||^2 <= ||X X*||_F``.
    For X of many columns it is far less than ``||X||_F^2``.
    """
    mass = form.mass
    return min(mass, math.sqrt(OF_NORMS * form.unsigned_norm * mass) + relative * mass)


def enclosure(matrix: SensedMatrix, rows: Sensing, b: Array) -> Enclosure:
    """Return residuals ``u_i* A u_i - b_i`` of unit rows, recomputed, with bounds on their errors.

    Parameters
    ----------
    matrix : SensedMatrix
        A.
    rows : Sensing
        Measurement vectors.
    b : array of shape (m,)
        Readings of the unit rows.
    """
    if not rows.rank_one:
        return _mixed_enclosure(matrix, rows, b)
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
    return OF_READINGS * (np if type(b) is np.ndarray else namespace(b)).abs(b)


def is_met(found: Enclosure, ends: Intervals, size: float = 0.0) -> bool:
    """Return whether every value is within its interval, rounding included.

    `size` is ``||A||_F``, in proportion to which equalities have room: see `Intervals.allowing`.
    """
    if ends.allowance is not None:
        ends = ends.allowing(size)
    return bool(np.logical_and.reduce(ends.met(to_numpy(found.z), to_numpy(found.error))))


def user_dual(data: Measurements, y: Vector) -> Vector:
    """Return the dual vector for the user's rows from the one for unit rows."""
    norms = to_numpy(data.unit_rows.norms)
    if data.unit_rows.has_zero_rows:
        norms = np.where(norms > 0, norms, 1.0)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(y / norms / norms)


# --- F*(y): sharp bounds where it nearly vanishes ------------------------------------------------

# A plain product carries an error bound of some hundred roundings of ``sum |y_i|``, far above the
# few that a good y leaves. Here the leading 22 bits of the factors are multiplied exactly and
# only the remainders round [Ozaki et al. 2012], so the bound is close to the truth.

BITS = 22
"""Leading bits of a factor that are multiplied exactly."""

ROWS = 256
"""Products that are added up exactly: ``2^8`` of 22 by 22 bits sum to 52 bits of a double's 53."""

ABOVE_ROOT_2 = math.sqrt(2.0) * OF_NORMS
"""More than ``sqrt(2)``, by which an error counts that occurs twice in a Frobenius norm."""

OUTER = 2.5
"""A row that is off by r <= .5 of its norm changes ``u u*`` by ``2 r + r^2 <= 2.5 r``."""

SUM_ROUNDINGS = 3.0
"""Roundings of the low part of a compensated sum in each step."""


def adjoint_norm(F: Sensing, y: Vector) -> float:
    """Return an upper bound on ``||sum_i y_i v_i v_i*||_F``, rounding included.

    Of each pair of entries that are conjugates one is formed, columns at a time.

    Parameters
    ----------
    F : Sensing
        Rows ``v_i``; what they are held in or multiplied with changes no digit of them.
    y : ndarray, shape (m,)
        Of moderate size: neither its products with rows overflow nor do they underflow.
    """
    if not F.rank_one:
        return adjoint_norm(F.raw, F.unmixed(y)) + unmixing_error(F, y)
    if F.kind.has_nested_sums:
        found, error = plain_adjoint(F, y)
        return frobenius(found) * (1.0 + sum_error(COMPLEX * found.size)) + error
    used = np.flatnonzero(y)
    n = F.n
    width = max(1, BLOCK_ELEMENTS // max(2 * n if F.is_complex else n, 1))
    squares = error = 0.0
    for left in range(0, n, width):
        columns = slice(left, min(left + width, n))
        count = columns.stop - left
        # Rows of the sum from `left` on: above the block of the diagonal all is known already.
        whole, missed = _summed(F, y, used, np.zeros((n - left, count)), left, columns)
        diagonal, rest = np.linalg.norm(whole[:count]), np.linalg.norm(whole[count:])
        squares += float(diagonal) ** 2 + 2.0 * float(rest) ** 2
        error += ABOVE_ROOT_2 * missed
    error += entries_error(F, y)
    # The factor covers the rounding of the norms, the constant that of underflow.
    bound = (np.sqrt(squares) + error) * (1.0 + sum_error(COMPLEX * n * width))
    return float(bound) + PRODUCT_UNDERFLOW


def adjoint_matrix(
    F: Sensing, y: Vector, start: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], float]:
    """Return ``start + F*(y)`` and a bound on its error in the Frobenius norm, both for questions.

    Parameters
    ----------
    F : Sensing
    y : ndarray, shape (m,)
        As in `adjoint_norm`.
    start : ndarray, shape (n, n)
        Hermitian: its lower triangle counts.
    """
    if not F.rank_one:
        found, error = adjoint_matrix(F.raw, F.unmixed(y), start)
        return found, error + unmixing_error(F, y)
    if F.kind.has_nested_sums:  # nested sums err by little as it is
        found, error = plain_adjoint(F, y)
        found = found + _hermitian(start)
        return found, error + 2.0 * UNIT * frobenius(found)
    n, used = F.n, np.flatnonzero(y)
    width = max(1, BLOCK_ELEMENTS // max(2 * n if F.is_complex else n, 1))
    dtype = np.complex128 if F.is_complex else np.float64
    whole: npt.NDArray[Any] = np.zeros((n, n), dtype=dtype)
    error = 0.0
    for left in range(0, n, width):
        columns = slice(left, min(left + width, n))
        whole[left:, columns], missed = _summed(F, y, used, start[left:, columns], left, columns)
        error += ABOVE_ROOT_2 * missed
    error += entries_error(F, y)
    whole = _hermitian(whole)
    size = frobenius(whole)  # of which each entry is rounded once more
    error = (error + 2.0 * UNIT * size) * (1.0 + sum_error(COMPLEX * n))
    return whole, error + PRODUCT_UNDERFLOW


def _hermitian(M: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the Hermitian matrix with that lower triangle."""
    below = np.where(strictly_below(len(M)), M, 0.0)
    whole: npt.NDArray[Any] = below + below.conj().T
    whole.reshape(-1)[:: len(M) + 1] = M.diagonal().real
    return whole


def plain_adjoint(F: Sensing, y: Vector) -> tuple[npt.NDArray[Any], float]:
    """Return ``F*(y)`` by one product, and an a-priori bound on its error in the Frobenius norm.

    For questions in which rounding of ``sum_i |y_i| ||v_i||^2`` does no harm: a few hundred
    roundings of it are counted.
    """
    mass = float(np.abs(y) @ to_numpy(F.masses)) * (1.0 + sum_error(F.m))
    terms = F.raw.kind.adjoint_terms + min(F.m, F.sum_terms(0)) + SPARE
    error = COMPLEX * (sum_error(terms) + F.rounding) * mass + entries_error(F, y)
    return np.asarray(F.adjoint(y)), error + PRODUCT_UNDERFLOW


def entries_error(F: Sensing, y: Vector) -> float:
    """Bound on the Frobenius norm of what rows that are computed, not held, do to ``F*(y)``.

    A row is off by `row_rounding` times its norm at most, ``u u*`` by twice that and its square.
    """
    mass = float(np.abs(y) @ to_numpy(F.squares)) * (1.0 + sum_error(F.m))
    return OUTER * F.row_rounding * mass


def unmixing_error(F: Sensing, y: Vector) -> float:
    """Bound on the Frobenius norm of what rounding ``W^T y`` does to ``F*(y)``."""
    lost = gamma(F.sum_terms(SPARE // 2)) * F.unmixed_mass(y)
    return float(lost @ F.raw.squares) * (1.0 + sum_error(F.raw.m + 2.0 * F.n))


def _summed(
    F: Sensing,
    y: Vector,
    used: npt.NDArray[np.intp],
    start: npt.NDArray[Any],
    left: int,
    columns: slice,
) -> tuple[npt.NDArray[Any], float]:
    """Return ``start + F*(y)`` from row `left` on and of those columns, and a bound on its error.

    Of complex rows the real parts are stored next to the imaginary ones, so that one product has
    all that the real and imaginary parts of the sum are made of.
    """
    tall, wide = start.shape
    parts, beyond = 2 if F.is_complex else 1, slice(left, None)
    total = _CompensatedSum(np.zeros((parts * tall, parts * wide)))
    total.high[:tall, :wide] = start.real
    if F.is_complex:
        total.high[tall:, :wide] = start.imag
    # Rows that are not in memory are read many at a time.
    together = ROWS if F.kind.at_hand else max(ROWS, BLOCK_ELEMENTS // F.n // ROWS * ROWS)
    for first in range(0, used.size, together):
        taken = F.take_unit(used[first : first + together])
        for begin in range(0, len(taken), ROWS):
            look()
            rows, index = taken[begin : begin + ROWS], used[first + begin : first + begin + ROWS]
            rows = np.stack([rows.real, rows.imag], axis=1) if F.is_complex else rows[:, None]
            below, here = (rows[:, :, part].reshape(len(rows), -1) for part in (beyond, columns))
            total.add(below, y[index, None], here)
    if not F.is_complex:
        return total.value, total.error
    high, low = (_complex_sum(M, tall, wide) for M in (total.high, total.low))
    # Two entries make one, so the error is at most sqrt(2) of theirs, and each is rounded once.
    rounding = UNIT * float(np.linalg.norm(high) + np.linalg.norm(low))
    return high + low, ABOVE_ROOT_2 * (total.error + rounding)


def _complex_sum(M: npt.NDArray[Any], tall: int, wide: int) -> npt.NDArray[Any]:
    """Return the complex matrix of products of real and imaginary parts."""
    whole = np.empty((tall, wide), dtype=np.complex128)
    whole.real = M[:tall, :wide] + M[tall:, wide:]
    whole.imag = M[tall:, :wide] - M[:tall, wide:]
    return whole


class _CompensatedSum:
    """Running sum of products ``left^T diag(weights) right`` in twice the working precision."""

    def __init__(self, start: Vector) -> None:
        self.high = start
        self.low = np.zeros_like(start)
        self.error = 0.0

    @property
    def value(self) -> Vector:
        """The sum, rounded."""
        return np.asarray(self.high + self.low)

    def add(self, left: Vector, weights: Vector, right: Vector) -> None:
        scaled = weights * right
        lost = product_error(weights, right, scaled)
        left_high, scaled_high = _leading_bits(left), _leading_bits(scaled)
        left_low, scaled_low = left - left_high, (scaled - scaled_high) + lost
        main = left_high.T @ scaled_high  # exact
        small = left_high.T @ scaled_low + left_low.T @ scaled
        norm = frobenius
        products = norm(left_high) * norm(scaled_low) + norm(left_low) * norm(scaled)
        # The last term bounds left_low.T @ lost, which was left out.
        self.error += gamma(ROWS + SPARE // 2) * products + norm(left_low) * norm(lost)
        total = self.high + main
        shift = total - self.high
        rounding = (self.high - (total - shift)) + (main - shift)
        self.high, self.low = total, self.low + (rounding + small)
        self.error += SUM_ROUNDINGS * UNIT * (norm(self.low) + norm(rounding) + norm(small))


def _leading_bits(x: Vector) -> Vector:
    """Round to 22 bits below the largest entry; the remainder is exact."""
    largest = float(np.abs(x).max(initial=0.0))
    if largest == 0.0:
        return x
    unit = float(np.ldexp(1.0, int(np.frexp(largest)[1]) - BITS))
    return np.asarray(np.rint(x / unit) * unit)
