"""Least misses: minimise ``1/2 sum excess_i(F(A))^2`` over ``A >= 0``, by accelerated projections.

For data with noise in them. The excess is the signed miss of the interval, so a value of 0 is a
fit; at a positive minimum ``y = excess`` has ``F*(y) >= 0`` and ``F*(y) A = 0``: it is the vector
that proves the intervals impossible (see `infeasible`).

An iteration is one ``F*`` over the rows that are missed, one eigendecomposition and one F on a
factor of the rank at hand, so it is cheap where few rows are missed and the rank is small. The rank
is found, not given: a factor of fixed width needs about as many iterations where the width is
right, and ten times as many where it is not.

Notes
-----
The step is measured in ``||D||^2 = ||D||_F^2 + tr(D)^2/2``: for u uniform on the sphere
``E <u u*, D>^2 = (2 ||D||_F^2 + tr(D)^2)/(n (n + 2))`` (real; the complex case has
``||D||_F^2 + tr(D)^2``), so in the Frobenius norm alone the identity direction would be n/2 times
as stiff as the others. In this norm the projection still has a closed form:
``[B - G/L - tau c I]_+`` with the tau that makes ``tau = tr(A) - tr(B)``, c = 1/2 or 1.
Momentum and restart: [Beck & Teboulle 2009], [O'Donoghue & Candes 2015].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from quadsense.core.intervals import Array, Intervals, Real
from quadsense.device import numbers, scalar
from quadsense.measurements.sensing import Sensing
from quadsense.methods.psd.maps import forward
from quadsense.system.watch import look

MAX_STIFFENINGS = 100  # raises of the stiffness after which only rounding is left to fight


@dataclass(frozen=True)
class ProjectedState:
    """Where the descent stands.

    Attributes
    ----------
    X : ndarray, shape (n, k)
        Factor of the current matrix.
    A, previous : ndarray, shape (n, n)
        The current matrix and the one before.
    values, previous_values : ndarray, shape (m,)
        F of them.
    momentum : float
        The t of the acceleration, 1 after a restart.
    stiffness : float
        L, the largest curvature met.
    aim : float
        The intervals are widened to this ratio (below 1: narrowed), so that the answer is reached
        inside them and not in the limit.
    value : float
        Half the sum of squared misses at this aim.
    max_ratio : float
        Of the true intervals.
    iteration : int
    """

    X: Array
    A: Array
    previous: Array
    values: Real
    previous_values: Real
    momentum: float
    stiffness: float
    aim: float
    value: float
    max_ratio: float
    iteration: int


def start(F: Sensing, intervals: Intervals, X: Array, aim: float) -> ProjectedState:
    """Return the state at X, at rest."""
    A = X @ X.conj().T
    values = forward(F, X)
    value, ratio = numbers(_value(intervals.widened(aim), values), intervals.worst(values))
    return ProjectedState(X, A, A, values, values, 1.0, 1.0, aim, value, ratio, 0)


def misses(intervals: Intervals, state: ProjectedState) -> Real:
    """Return the signed misses at the aim: the vector that may prove the aim impossible."""
    return intervals.widened(state.aim).excess(state.values)


def advance(F: Sensing, intervals: Intervals, state: ProjectedState, steps: int) -> ProjectedState:
    """Return the state after at most ``steps`` steps; fewer when the intervals are met."""
    aimed = intervals.widened(state.aim)
    for _ in range(steps):
        if state.max_ratio <= 1.0:
            break
        state = _step(F, intervals, aimed, state)
    return state


def _value(aimed: Intervals, values: Real) -> Any:
    excess = aimed.excess(values)
    return 0.5 * scalar(excess @ excess)


def _step(
    F: Sensing, intervals: Intervals, aimed: Intervals, state: ProjectedState
) -> ProjectedState:
    """Take one accelerated step, raising the stiffness until the quadratic model holds."""
    momentum = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * state.momentum**2))
    carry = (state.momentum - 1.0) / momentum
    base = state.A + carry * (state.A - state.previous)
    base_values = state.values + carry * (state.values - state.previous_values)
    excess = aimed.excess(base_values)
    at_base = 0.5 * scalar(excess @ excess)
    gradient = F.adjoint(excess)
    n = len(base)
    coupling = 1.0 if F.is_complex else 0.5
    stiffness = state.stiffness
    for _ in range(MAX_STIFFENINGS):
        X = _project(base, gradient / stiffness, coupling)
        A = X @ X.conj().T
        values = forward(F, X) if 2 * X.shape[1] <= n else F.forward(A)
        change = A - base
        length = np.vdot(change, change).real + coupling * np.trace(change).real ** 2
        # All numbers of a trial at once, so that a device is waited for once.
        value, ratio, base_value, length, along, turn = numbers(
            _value(aimed, values), intervals.worst(values), at_base, length,
            np.vdot(gradient, change).real, np.vdot(base - A, A - state.A).real,
        )  # fmt: skip
        model = base_value + along + 0.5 * stiffness * length
        # The slack is the rounding error of the values, which the end of a long run is made of.
        if value <= model + 1e-12 * base_value:
            break
        stiffness *= 1.5
    return ProjectedState(
        X,
        A,
        state.A,
        values,
        state.values,
        1.0 if turn > 0.0 else float(momentum),  # uphill
        stiffness,
        state.aim,
        value,
        ratio,
        state.iteration + 1,
    )


def _project(base: Array, step: Array, coupling: float) -> Array:
    """Return a factor of the matrix ``A >= 0`` nearest to ``base - step`` in the norm above."""
    look(10.0 * float(len(base)) ** 3)
    values, vectors = np.linalg.eigh(base - step)
    values, vectors = values[::-1], vectors[:, ::-1]
    # With the k largest kept, tau follows; the right k is the one that keeps just those.
    sums = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values)])
    counts = np.cumsum(np.ones_like(sums)) - 1.0  # made where the values are
    shifts = coupling * (sums - np.trace(base).real) / (1.0 + coupling * counts)
    keep = int(np.count_nonzero(values > shifts[:-1]))
    # Rounding may take the last one below zero.
    return vectors[:, :keep] * np.sqrt(np.maximum(values[:keep] - shifts[keep], 0.0))
