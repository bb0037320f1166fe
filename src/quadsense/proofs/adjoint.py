"""A proved, sharp upper bound on ``||F*(y)||_F`` for vectors y that make it nearly vanish.

A plain product carries an error bound of some hundred roundings of ``sum |y_i|``, far above the
few that a good y leaves. Here the leading 22 bits of the factors are multiplied exactly and
only the remainders round [Ozaki et al. 2012], so the bound is close to the truth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import to_numpy
from quadsense.core.intervals import UNIT
from quadsense.core.packed import Vector, strictly_below
from quadsense.measurements.sensing import Sensing
from quadsense.proofs.rounding import (
    COMPLEX,
    PRODUCT_UNDERFLOW,
    SPARE,
    frobenius,
    gamma,
    sum_error,
)
from quadsense.system.memory import BLOCK_ELEMENTS
from quadsense.system.watch import look

BITS = 22
"""Leading bits of a factor that are multiplied exactly."""

ROWS = 256
"""Products that are added up exactly: ``2^8`` of 22 by 22 bits sum to 52 bits of a double's 53."""

ENTRIES = 1024 * 1024
"""Of a block of columns: 8 MiB, of which a dozen are held."""

SPLITTER = 134217729.0
"""``2^27 + 1``, by which a double is split into halves [Dekker 1971]."""

ABOVE_ROOT_2 = 1.5
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
    width = max(1, ENTRIES // max(2 * n if F.is_complex else n, 1))
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
    width = max(1, ENTRIES // max(2 * n if F.is_complex else n, 1))
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
    """The Hermitian matrix with that lower triangle."""
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
    high, low = (
        (M[:tall, :wide] + M[tall:, wide:]) + 1j * (M[tall:, :wide] - M[:tall, wide:])
        for M in (total.high, total.low)
    )
    # Two entries make one, so the error is at most sqrt(2) of theirs, and each is rounded once.
    rounding = UNIT * float(np.linalg.norm(high) + np.linalg.norm(low))
    return high + low, ABOVE_ROOT_2 * (total.error + rounding)


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


def product_error(a: Vector, b: Vector, product: Vector) -> Vector:
    """Return the rounding error of ``product = a * b``, exactly [Dekker 1971]."""
    a_high, b_high = (t := SPLITTER * a) - (t - a), (t := SPLITTER * b) - (t - b)
    a_low, b_low = a - a_high, b - b_high
    return np.asarray(
        ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    )
