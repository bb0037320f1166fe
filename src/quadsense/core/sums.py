"""Sums whose rounding is bounded: of numbers, exactly; products and transforms with their errors.

The unit roundoff is ``u = 2^-53``. A computed inner product of length n errs by at most
``n u / (1 - n u)`` times the inner product of the moduli [Higham 2002, Section 3.1]. All counts
below are rounded up generously.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, complex_of
from quadsense.core.intervals import UNIT

FEW = 1024
"""Numbers that are made a list together, which is summed in a fifth of the time."""

ROUNDINGS = 4.0 * UNIT
"""Bound on the relative error of up to three operations in a row: ``gamma(3) < 4 u``."""

UP, DOWN = 1.0 + ROUNDINGS, 1.0 - ROUNDINGS
"""Factors that round a positive number of up to three operations up and down; their squares serve
up to seven operations."""

SPARE = 8
"""Roundings that are counted in addition to those of a sum: scalings, squares, a difference."""

OF_ERRORS = 1.0 + 1e-9
"""Factor that covers the rounding of bounds on errors, of up to 10^6 operations each."""

UNDERFLOW = 1e-300
"""More than underflow takes from a sum of up to 10^20 numbers, each at most ``2^-1074``."""

SPLITTER = 134217729.0
"""``2^27 + 1``, by which a double is split into halves [Dekker 1971]."""

SMALL, LARGE = 1e-250, 1e280
"""Sizes of a product within which its rounding error is a number of all its digits."""


def exact_sum(values: Vector) -> float:
    """Return the sum, rounded once: `math.fsum` of lists."""
    if values.size <= FEW:
        return math.fsum(values.tolist())
    return math.fsum(
        chain.from_iterable(
            values[first : first + FEW].tolist() for first in range(0, values.size, FEW)
        )
    )


def gamma(k: float) -> float:
    """Bound on the relative error of k roundings, ``k u / (1 - k u)`` [Higham 2002, 3.1]."""
    return k * UNIT / (1.0 - k * UNIT)


def sum_error(terms: float) -> float:
    """Bound on the error of a sum of products, relative to the sum of their moduli.

    `SPARE` operations on terms and sum are counted in addition.
    """
    return gamma(terms + SPARE)


def product_error(a: Vector, b: Vector, product: Vector) -> Vector:
    """Return the rounding error of ``product = a * b``, exactly [Dekker 1971]."""
    a_high, b_high = (t := SPLITTER * a) - (t - a), (t := SPLITTER * b) - (t - b)
    a_low, b_low = a - a_high, b - b_high
    return np.asarray(
        ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    )


class Value(NamedTuple):
    """The objective, and how far it may be off; an infinite error says that nothing is known."""

    value: float
    error: float


def summed(terms: Vector, errors: npt.NDArray[Any]) -> Value:
    """Return the sum of terms with these errors and a few roundings each."""
    size = float(np.abs(terms).sum())
    if not math.isfinite(2.0 * size):  # or part of the sum might be beyond float64
        return Value(math.inf, math.inf)
    total = exact_sum(terms)
    return Value(total, float(errors.sum()) * OF_ERRORS + 2.0 * ROUNDINGS * size)


class ExactSum:
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


# --- Fourier transforms ---------------------------------------------------------------------------


RADIX_TWO = 10.0
"""Roundings of one stage of radix 2: ``mu + gamma_4 (sqrt(2) + mu)`` with roots of unity within
``mu = 4 u`` [Higham 2002, Theorem 24.2]; of another radix, of the roots and their products."""

MAX_PLAIN_LENGTH = 50
"""Length up to which no library turns to chirps."""


def transform_error(shape: Sequence[int]) -> float:
    """Return the bound, in units of roundoff, on the relative error of a transform in the 2-norm.

    Parameters
    ----------
    shape : sequence of int
        Lengths of the axes that are transformed, one after the other.

    Notes
    -----
    A transform of length ``p_1 ... p_t`` is t stages, each unitary up to a scale, so relative
    errors add up. A stage of radix 2 errs by `RADIX_TWO` roundings; one of radix p computes sums of
    p terms, ``gamma_{p + 4} sum |x_j|`` for each part of each entry, which is
    ``sqrt(2 p) (p + 4)`` roundings in the 2-norm.

    Lengths with large prime factors may be computed as convolutions with a chirp, by transforms of
    a length L of small factors: see `_chirp_error`; the larger bound is taken.
    """
    return sum(_axis_error(int(size)) for size in shape)


@lru_cache
def _axis_error(size: int) -> float:
    factors = list(_prime_factors(size))
    error = _stage_errors(factors)
    if size <= MAX_PLAIN_LENGTH or max(factors, default=1) ** 2 <= size:
        return error
    return max(error, _chirp_error(size))


def _chirp_error(size: int) -> float:
    """Return the same of a convolution: ``conj(c) ifft(fft(conj(c) x) B)``, ``B = fft(c)``.

    With e the relative error of a transform of length L, the first errs by ``e sqrt(L) ||x||``,
    which B multiplies by ``max |B|`` at most; B itself is off by ``e sqrt(L) ||c||``; and the last
    one by e times its result, all in units of ``sqrt(size) ||x||``.
    """
    import scipy.fft  # rarely needed, slow to import

    length = int(scipy.fft.next_fast_len(2 * size - 1))
    error = _stage_errors(_prime_factors(length))
    k = np.arange(size, dtype=np.int64)
    angle = np.pi * ((k * k) % (2 * size)) / size
    chirp = complex_of(np.cos(angle), np.sin(angle))
    whole = np.zeros(length, dtype=np.complex128)
    whole[:size] = chirp
    whole[length - size + 1 :] = chirp[:0:-1]
    largest = float(np.abs(scipy.fft.fft(whole)).max())
    products = 3 * RADIX_TWO  # with the chirp before and after, and with B between
    return ((2.0 * error + products) * largest + error * math.sqrt(length * (2.0 * size))) / (
        math.sqrt(size)
    )


def _stage_errors(factors: Iterable[int]) -> float:
    """Return the errors of stages of these radices together."""
    return sum(RADIX_TWO + (0.0 if p == 2 else math.sqrt(2.0 * p) * (p + 4)) for p in factors)


def _prime_factors(number: int) -> Iterator[int]:
    p = 2
    while p * p <= number:
        while number % p == 0:
            yield p
            number //= p
        p += 1
    if number > 1:
        yield number
