"""A proved, sharp upper bound on ``||F*(y)||_F`` for vectors y that make it nearly vanish.

A plain product carries an error bound of some hundred roundings of ``sum |y_i|``, far above the
few that a good y leaves. Here the leading 22 bits of the factors are multiplied exactly and
only the remainders round [Ozaki et al. 2012], so the bound is close to the truth.
"""

from __future__ import annotations

import numpy as np

from quadsense.core.packed import Array, Vector
from quadsense.watch import BLOCK_FLOPS, look

UNIT = float(np.finfo(np.float64).eps) / 2.0  # unit roundoff, 2^-53
ROWS = 256  # 2^8 products of 22 by 22 bits sum to 52 bits: exact in a double
BITS = 22  # of a factor, see `ROWS`
COLUMNS = 2048  # n by n is never formed whole when n is large
SPLITTER = 134217729.0  # 2^27 + 1 [Dekker 1971]


def gamma(k: float) -> float:
    """Bound on the relative error of k roundings, ``k u / (1 - k u)`` [Higham 2002, 3.1]."""
    return k * UNIT / (1.0 - k * UNIT)


def adjoint_norm(U: Array, y: Vector) -> float:
    """Upper bound on ``||sum_i y_i u_i u_i*||_F``, rounding included.

    Parameters
    ----------
    U : ndarray, shape (m, n)
    y : ndarray, shape (m,)
        Of moderate size: neither its products with U overflow nor do they underflow.
    """
    used = np.flatnonzero(y)
    n = U.shape[1]
    squares = error = 0.0
    # Nine products of slices a block, of which none is to take so long that nobody could stop it.
    breadth = int(np.clip(BLOCK_FLOPS / (18.0 * ROWS * n), 16, COLUMNS))
    for left in range(0, n, breadth):
        columns = slice(left, min(left + breadth, n))
        width = columns.stop - left
        sums = [_CompensatedSum(n, width), _CompensatedSum(n, width)]
        for first in range(0, used.size, ROWS):
            look()
            part = used[first : first + ROWS]
            rows, weights = U[part], y[part, None]
            re, im = np.ascontiguousarray(rows.real), np.ascontiguousarray(rows.imag)
            sums[0].add(re, weights, re[:, columns])
            if np.iscomplexobj(U):
                sums[0].add(im, weights, im[:, columns])
                sums[1].add(im, weights, re[:, columns])
                sums[1].add(-re, weights, im[:, columns])
        for total in sums:
            squares += float(np.linalg.norm(total.high + total.low)) ** 2
            error += total.error
    # The factor covers the rounding of the norms, the constant that of underflow.
    bound = (np.sqrt(squares) + error) * (1.0 + gamma(4.0 * n * COLUMNS + 64.0))
    return float(bound) + 1e-290


class _CompensatedSum:
    """Running sum of products ``left^T diag(weights) right`` in twice the working precision."""

    def __init__(self, n: int, width: int) -> None:
        self.high = np.zeros((n, width))
        self.low = np.zeros((n, width))
        self.error = 0.0

    def add(self, left: Vector, weights: Vector, right: Vector) -> None:
        scaled = weights * right
        lost = _product_error(weights, right, scaled)
        left_high, scaled_high = _leading_bits(left), _leading_bits(scaled)
        left_low, scaled_low = left - left_high, (scaled - scaled_high) + lost
        main = left_high.T @ scaled_high  # exact
        small = left_high.T @ scaled_low + left_low.T @ scaled
        norm = np.linalg.norm
        products = norm(left_high) * norm(scaled_low) + norm(left_low) * norm(scaled)
        # The last term bounds left_low.T @ lost, which was left out.
        self.error += gamma(ROWS + 4) * float(products) + float(norm(left_low) * norm(lost))
        total = self.high + main
        shift = total - self.high
        rounding = (self.high - (total - shift)) + (main - shift)
        self.high, self.low = total, self.low + (rounding + small)
        self.error += 3.0 * UNIT * float(norm(self.low) + norm(rounding) + norm(small))


def _leading_bits(x: Vector) -> Vector:
    """Round to 22 bits below the largest entry; the remainder is exact."""
    largest = float(np.max(np.abs(x), initial=0.0))
    if largest == 0.0:
        return x
    unit = float(np.ldexp(1.0, int(np.frexp(largest)[1]) - BITS))
    return np.asarray(np.rint(x / unit) * unit)


def _product_error(a: Vector, b: Vector, product: Vector) -> Vector:
    """Rounding error of ``product = a * b``, exactly [Dekker 1971]."""
    a_high, b_high = (t := SPLITTER * a) - (t - a), (t := SPLITTER * b) - (t - b)
    a_low, b_low = a - a_high, b - b_high
    return np.asarray(
        ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    )
