"""The compiled loop over differences: each row in turn is brought to what it reads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def turned_in(
    X: Any,
    first: Any,
    second: Any,
    offsets: Any,
    factors: Any,
    b: Any,
    delta: Any,
    theta: float,
    beyond: float,
    unit: float,
    size: float,
    begin: int,
    end: int,
) -> Any:
    """Move X, (n, k), by the rows `begin` to `end` in turn: see `Differences.in_turn`.

    A row is ``f (e_i - e_j, -o)``, f one of `factors` and o one of `offsets`, of shape (m, 0) where
    there are none.
    """
    k, known = X.shape[1], offsets.shape[1]
    nodes = X.shape[0] - known
    image = np.empty(k)
    value, worst = 0.0, 0.0
    for r in range(begin, end):
        i, j, f = first[r], second[r], factors[r]
        read = 0.0
        for c in range(k):
            p = X[i, c]
            if j >= 0:
                p -= X[j, c]
            for q in range(known):
                p -= offsets[r, q] * X[nodes + q, c]
            p *= f
            image[c] = p
            read += p * p
        z = read - b[r]
        miss = abs(z)
        allowed = theta * delta[r]
        worst = max(worst, (miss + unit * (abs(b[r]) + size)) / delta[r])
        if not miss > allowed:
            continue
        miss -= allowed
        value += 0.5 * (miss / delta[r]) ** 2
        if beyond == 0.0 or not read > 0.0:
            continue
        aim = max(read - miss if z > 0.0 else read + miss, 0.0)
        share = beyond * (math.sqrt(aim / read) - 1.0) * f
        for c in range(k):
            move = share * image[c]
            X[i, c] += move
            if j >= 0:
                X[j, c] -= move
            for q in range(known):
                X[nodes + q, c] -= offsets[r, q] * move
    return value, worst
