"""How far a computed discrete Fourier transform may be from the exact one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import scipy.fft

RADIX_TWO = 10.0
"""Roundings of one stage of radix 2: ``mu + gamma_4 (sqrt(2) + mu)`` with roots of unity within
``mu = 4 u`` [Higham 2002, Theorem 24.2]; of another radix, of the roots and their products."""

SHORT = 50
"""Length up to which no library turns to chirps."""


def transform_error(shape: Sequence[int]) -> float:
    """Bound, in units of roundoff, on the relative error of a transform in the 2-norm.

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


@lru_cache(maxsize=256)
def _axis_error(size: int) -> float:
    factors = list(_prime_factors(size))
    error = sum(RADIX_TWO + (0.0 if p == 2 else math.sqrt(2.0 * p) * (p + 4)) for p in factors)
    if size <= SHORT or max(factors, default=1) ** 2 <= size:
        return error
    return max(error, _chirp_error(size))


def _chirp_error(size: int) -> float:
    """The same of a convolution: ``conj(c) ifft(fft(conj(c) x) B)``, ``B = fft(c)``.

    With e the relative error of a transform of length L, the first errs by ``e sqrt(L) ||x||``,
    which B multiplies by ``max |B|`` at most; B itself is off by ``e sqrt(L) ||c||``; and the last
    one by e times its result, all in units of ``sqrt(size) ||x||``.
    """
    length = int(scipy.fft.next_fast_len(2 * size - 1))
    error = sum(RADIX_TWO + (0.0 if p == 2 else math.sqrt(2.0 * p) * (p + 4))
                for p in _prime_factors(length))  # fmt: skip
    k = np.arange(size, dtype=np.int64)
    chirp = np.exp(1j * np.pi * ((k * k) % (2 * size)) / size)
    whole = np.zeros(length, dtype=np.complex128)
    whole[:size] = chirp
    whole[length - size + 1 :] = chirp[:0:-1]
    largest = float(np.abs(scipy.fft.fft(whole)).max())
    products = 3 * RADIX_TWO  # with the chirp before and after, and with B between
    return ((2.0 * error + products) * largest + error * math.sqrt(length * (2.0 * size))) / (
        math.sqrt(size)
    )


def _prime_factors(number: int) -> Iterator[int]:
    p = 2
    while p * p <= number:
        while number % p == 0:
            yield p
            number //= p
        p += 1
    if number > 1:
        yield number
