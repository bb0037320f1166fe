"""Estimates from the decreases of ``||z||^2``: how far the iteration has to go, and how fast."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

# Share of ||z||^2 below which a decrease is mostly rounding.
_STANDSTILL = 1e-10


def distance(decreases: Vector, left: float) -> float:
    """Estimate ``||z - z_LS||_2``: the sum of the decreases to come, as a geometric series.

    Parameters
    ----------
    decreases : (k,) array
        What each step took from ``||z||_2^2``.
    left : float
        ``||z||_2^2`` now.
    """
    if len(decreases) > 1 and np.max(decreases[-2:]) <= _STANDSTILL * left:
        return float(np.sqrt(np.sum(decreases[-2:])))
    if len(decreases) < 5:
        return np.inf
    if decreases[-1] >= decreases[-5]:
        return np.inf
    rate = (decreases[-1] / decreases[-5]) ** 0.25
    if rate == 1.0:
        return np.inf
    return float(np.sqrt(np.max(decreases[-2:]) * rate / (1.0 - rate)))


def steps_left(decreases: Vector, target: float) -> float:
    """Steps until the residual has fallen by another ``exp(target)``.

    From the decreases of ``||z||^2`` over the last three dyadic ranges. The logarithm of the
    residual is taken to fall like ``k^e``: e = 1 is geometric convergence, and e near 0 a power of
    the step number, as at a hard edge of the spectrum.
    """
    k = len(decreases)
    sums = [np.sum(decreases[k >> i : k >> (i - 1)]) for i in (3, 2, 1)]
    if not sums[0] > sums[1] > sums[2] > 0.0:
        # Not yet falling (or at a standstill): a slow power.
        first, second = 1.0, 0.5
    else:
        first, second = (0.5 * float(np.log(a / b)) for a, b in pairwise(sums))
    e = float(np.clip(np.log2(second / first), 0.02, 1.0))
    # The logarithm fell by `second` between the starts of the last two ranges.
    rate = second * e / (0.5**e - 0.25**e)
    return k * float(np.expm1(min(np.log1p(e * target / rate) / e, 50.0)))
