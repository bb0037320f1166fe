"""Least squares within intervals, and over a cone, by an active set, for few unknowns.

The problem is to minimize ``||v - v_0||^2`` subject to ``lo <= G v <= hi``: least squares in
coordinates in which its normal matrix is the identity, so that the point to start from is the
minimizer without intervals. The dual method of [Goldfarb & Idnani 1983] adds the reading that is
missed most, and drops those whose multiplier would change its sign. Every point on the way is the
minimizer subject to the readings in the set, so the last one is optimal to rounding.

A convex set such as the cone of positive semidefinite matrices is cut out by half-spaces, which are
made where a point is outside of it and are from then on rows like the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from quadsense.arrays import Vector
from quadsense.system.watch import look

Cuts = Callable[[Vector], tuple[npt.NDArray[np.float64], Vector] | None]

MAX_STEPS = 200
"""Readings added and dropped at most. Rounded readings take about one step per
unknown."""

MAX_ROUNDS = 8
"""Rounds of cuts at most."""

MIN_NEW_PART = 1e-10
"""Squared norm of what is new in a row, relative to the row, below which it depends on the set."""

MIN_FALL = 1e-12
"""Rate at which a multiplier falls, relative to that of the added row, which counts as falling."""


def nearest_within(
    G: npt.NDArray[np.float64],
    lo: Vector,
    hi: Vector,
    start: Vector,
    room: Vector,
    cuts: Cuts | None = None,
) -> tuple[Vector, Vector] | None:
    """Return the nearest point to `start` within the intervals, and the multipliers of the rows.

    Parameters
    ----------
    G : ndarray of shape (m, N)
    lo, hi : ndarray of shape (m,)
        Infinite where there is no bound. No equalities.
    start : ndarray of shape (N,)
    room : ndarray of shape (m,)
        How far a reading may be outside.
    cuts : callable, optional
        Returns, for a point within the intervals, further rows, (k, N), and their lower bounds, or
        None if the point is admitted.

    Returns
    -------
    tuple of ndarray or None
        The point v and u with ``v = start + G^T u``, the rows of the cuts last, u positive only at
        lower bounds and negative only at upper bounds. None where `MAX_STEPS` were not enough or no
        point fits. After `MAX_ROUNDS` of cuts the point is near those that are admitted.
    """
    v = start
    chosen: list[int] = []
    signs: list[float] = []
    u = np.empty(0)
    steps = rounds = 0
    while True:
        look(2.0 * G.size)
        values = G @ v
        below, above = lo - values, values - hi
        outside = np.maximum(below, above) - room
        outside[chosen] = 0.0
        row = int(outside.argmax())
        if not outside[row] > 0.0:
            further = None if cuts is None else cuts(v)
            if further is None:
                break
            rounds += 1
            if rounds > MAX_ROUNDS:
                break
            G, lo = np.concatenate([G, further[0]]), np.concatenate([lo, further[1]])
            hi = np.concatenate([hi, np.full(len(further[1]), np.inf)])
            room = np.concatenate([room, np.zeros(len(further[1]))])
            continue
        sign = 1.0 if below[row] > above[row] else -1.0
        added = sign * G[row]
        distance = float(max(below[row], above[row]))
        own = 0.0
        while True:
            steps += 1
            if steps > MAX_STEPS:
                return None
            new, falls, first, most = added, u, -1, math.inf  # u is empty where no row is held
            if chosen:
                held = G[chosen] * np.asarray(signs)[:, None]
                _, falls, info = lapack.dposv(held @ held.T, held @ added)
                if info != 0:  # equal rows
                    return None
                new = added - falls @ held
                falling = (falls > MIN_FALL).nonzero()[0]
                if falling.size:
                    limits = u[falling] / falls[falling]
                    first, most = int(falling[limits.argmin()]), float(limits.min())
            size = float(new @ new)
            full = distance / size if size > MIN_NEW_PART * float(added @ added) else math.inf
            length = min(full, most)
            if not math.isfinite(length):
                return None
            if full < math.inf:
                v = v + length * new
                distance -= length * size
            u, own = u - length * falls, own + length
            if length == full:
                chosen.append(row)
                signs.append(sign)
                u = np.array([*u.tolist(), own])
                break
            del chosen[first], signs[first]
            u = np.delete(u, first)
    multipliers = np.zeros(len(G))
    multipliers[chosen] = np.asarray(signs) * u
    return v, multipliers
