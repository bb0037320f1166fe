"""The positive semidefinite matrix nearest to a start that reproduces the readings.

Minimise ``1/2 ||A - A_1||_F^2`` over ``A >= 0`` with ``F(A) = b``. Its dual is smooth,
``g(y) = 1/2 ||[A_1 - F*(y)]_+||_F^2 + b.y``, with gradient ``b - F(A)`` at
``A = [A_1 - F*(y)]_+``: limited-memory BFGS on y, at most one eigendecomposition per evaluation.
While ``A_1 - F*(y)`` has no negative eigenvalue, g is the quadratic of the symmetric fit, so where
that fit is positive semidefinite this finds it. If nothing fits exactly, g has no minimum and y
runs away: the caller watches the ratio.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quadsense.core.lbfgs import Memory, direction, remember, scaled
from quadsense.device import numbers, scalar, waits
from quadsense.measurements.sensing import Sensing
from quadsense.methods.psd.maps import (
    Array,
    Intervals,
    Real,
    forward,
    positive_part,
)
from quadsense.methods.psd.traits import kept_pairs

CURVED = 1e-12  # least curvature of a pair, in units of its norms
TRIALS = 12  # evaluations of a line search before it gives up


@dataclass(frozen=True)
class NearestState:
    """Where the dual ascent stands.

    Attributes
    ----------
    y, z : ndarray, shape (m,)
        Dual vector, and ``F(A) - b`` at its A.
    X : ndarray, shape (n, k)
        Factor of ``A = [A_1 - F*(y)]_+``.
    value : float
        ``g(y)``.
    memory : Memory
        Of the steps of y.
    max_ratio : float
    iteration, evaluations : int
    stalled : bool
        No step along the last direction brought g down.
    """

    y: Real
    z: Real
    X: Array
    value: float
    memory: Memory
    max_ratio: float
    iteration: int
    evaluations: int
    stalled: bool


def _evaluate(F: Sensing, b: Real, origin: Array, y: Real) -> tuple[Any, Real, Array]:
    """Return ``g(y)``, where it is, the residual and the factor of A."""
    X, half_norm = positive_part(origin - F.adjoint(y))
    # Both cost the same at k = n/2.
    values = forward(F, X) if 2 * X.shape[1] <= F.shape[1] else F.forward(X @ X.conj().T)
    return half_norm + scalar(b @ y), values - b, X


def _readings(intervals: Intervals) -> Real:
    b = intervals.target()
    if b is None:
        raise ValueError("the nearest fit needs two-sided intervals")
    return b


def start(
    F: Sensing,
    intervals: Intervals,
    origin: Array,
    y: Real | None = None,
    memory: Memory = (),
) -> NearestState:
    """Return the state at ``y = 0``, or at a given y.

    Parameters
    ----------
    F : Sensing
        Rows.
    intervals : Intervals
        Two-sided; their middles are the readings b.
    origin : ndarray, shape (n, n)
        The Hermitian ``A_1`` to stay near to.
    y : ndarray, shape (m,), optional
    memory : Memory, optional
        Of a problem with the same rows: the curvature is theirs, whatever b is.
    """
    b = _readings(intervals)
    y = np.zeros_like(b) if y is None else y
    value, z, X = _evaluate(F, b, origin, y)
    value, ratio = numbers(value, intervals.worst(z + b))
    return NearestState(y, z, X, value, memory, ratio, 0, 1, False)


def advance(
    F: Sensing, intervals: Intervals, origin: Array, state: NearestState, steps: int
) -> NearestState:
    """Return the state after at most ``steps`` steps; fewer when the intervals are met."""
    for _ in range(steps):
        if state.max_ratio <= 1.0 or state.stalled:
            break
        state = _step(F, intervals, origin, state)
    return state


def _step(F: Sensing, intervals: Intervals, origin: Array, state: NearestState) -> NearestState:
    """Take one quasi-Newton step with a weak Wolfe line search by bisection and secants."""
    b = _readings(intervals)
    gradient = -state.z
    ahead = direction(state.memory, gradient, scaled(state.memory))
    falls = gradient @ ahead
    low, high, length = 0.0, np.inf, 1.0
    for trial in range(1, TRIALS + 1):
        y = state.y + length * ahead
        value, z, X = _evaluate(F, b, origin, y)
        move, change = length * ahead, state.z - z
        pair: tuple[Any, ...] = ()
        if waits(z):  # wanted if the trial is taken: that is waited for
            norms = np.linalg.norm(move) * np.linalg.norm(change)
            pair = (np.vdot(move, change), norms)
        value, ratio, slope, new_slope, *known = numbers(
            value, intervals.worst(z + b), falls, -(z @ ahead), *pair
        )
        enough = value <= state.value + 1e-4 * length * slope
        # Near the end the fall of g is below its rounding error; the slope is still exact.
        enough = enough or abs(new_slope) <= 0.5 * abs(slope)
        if ratio <= 1.0 or (enough and new_slope >= 0.9 * slope):
            most = kept_pairs(b.size)
            memory = remember(state.memory, move, change, most, CURVED, tuple(known) or None)
            evaluations = state.evaluations + trial
            iteration = state.iteration + 1
            return NearestState(y, z, X, value, memory, ratio, iteration, evaluations, False)
        if enough:
            low = length
        else:
            high = length
        # The slope is a straight line while no eigenvalue changes sign: aim where it is 0.
        secant = length * slope / (slope - new_slope) if new_slope > slope else np.inf
        inside = low + 0.1 * (min(high, 10.0 * length) - low)
        outside = low + 0.9 * (min(high, 10.0 * length) - low)
        length = float(np.clip(secant, inside, outside))
    return replace(state, evaluations=state.evaluations + TRIALS, stalled=True)
