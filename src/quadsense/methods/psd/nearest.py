"""The positive semidefinite matrix nearest to a start that reproduces the readings.

Minimise ``1/2 ||A - A_1||_F^2`` over ``A >= 0`` with ``F(A) = b``. Its dual is smooth,
``g(y) = 1/2 ||[A_1 - F*(y)]_+||_F^2 + b.y``, with gradient ``b - F(A)`` at
``A = [A_1 - F*(y)]_+``: limited-memory BFGS on y, at most one eigendecomposition per evaluation.
While ``A_1 - F*(y)`` has no negative eigenvalue, g is the quadratic of the symmetric fit, so where
that fit is positive semidefinite this finds it. If nothing fits exactly, g has no minimum and y
runs away: the caller watches the ratio.

First, the symmetric fit, in case it is positive semidefinite: half the work. While ``A_1 - F*(y)``
is positive definite, both solve the same linear system in y, for which conjugate residuals in
single precision do (see `cg`). A Cholesky factorization now and then tells whether that is still
so; the first that fails ends it, as does slow progress, and the nearest fit begins anew (from the
same y it is slower).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quadsense.core.intervals import Array, Intervals, Real
from quadsense.core.lbfgs import Memory, direction, remember, scaled
from quadsense.device import numbers, scalar, waits
from quadsense.measurements.sensing import Sensing
from quadsense.methods.cg import residuals
from quadsense.methods.cg.system import CGSystem
from quadsense.methods.psd.maps import cholesky, forward, positive_part
from quadsense.methods.psd.traits import kept_pairs

MIN_CURVATURE = 1e-12  # least curvature of a pair, in units of its norms
MAX_TRIALS = 12  # evaluations of a line search before it gives up


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
    for trial in range(1, MAX_TRIALS + 1):
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
            memory = remember(state.memory, move, change, most, MIN_CURVATURE, tuple(known) or None)
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
    return replace(state, evaluations=state.evaluations + MAX_TRIALS, stalled=True)


MIN_JUDGED_STEPS = 16
"""Steps from which on the ratio must fall to a quarter while their number doubles."""


@dataclass(frozen=True)
class SymmetricState:
    """Where the iteration stands.

    Attributes
    ----------
    fit : residuals.State
    X : ndarray, shape (n, k)
        Factor of the last matrix that had one.
    max_ratio : float
        Of that matrix.
    mark : float
        The ratio when progress was last judged.
    left : bool
        The symmetric iterate is not positive definite, or approaches the fit slowly.
    """

    fit: residuals.CGState
    X: Array
    max_ratio: float
    mark: float
    left: bool

    @property
    def iteration(self) -> int:
        """Steps taken."""
        return self.fit.iteration

    @property
    def y(self) -> Real:
        """Coordinates of the iterate, ``A_1 - F*(y)``."""
        return self.fit.x

    @property
    def ended(self) -> bool:
        """Whether it has nothing more to give."""
        return self.left or self.fit.finished


def suits_symmetric(F: Sensing, intervals: Intervals, origin: Array) -> bool:
    """Whether to begin with it: A_1 definite, neither more rows than unknowns nor fewer than n."""
    m, n = F.shape
    if not n <= m <= F.unknowns:
        return False
    two_sided = intervals.target() is not None and bool(np.all(intervals.hi > intervals.lo))
    return two_sided and cholesky(origin) is not None


def symmetric_system(F: Sensing, intervals: Intervals, origin: Array) -> CGSystem:
    """Return the system ``K y = z_1``.

    Parameters
    ----------
    F : Sensing
        Rows of norm at most 1.
    intervals : Intervals
        Two-sided; see `suits_symmetric`.
    origin : ndarray, shape (n, n)
        A_1.
    """
    b = intervals.target()
    assert b is not None
    # Without memory, neither K nor a factor of it is formed: `nearest` has none either.
    return residuals.prepare(F, b, 0.5 * (intervals.hi - intervals.lo), origin, memory=0)


def start_symmetric(system: CGSystem) -> SymmetricState:
    """Return the state at ``y = 0``."""
    fit = residuals.start(system)
    nothing = np.zeros_like(system.A1)
    return _looked_at(system, SymmetricState(fit, nothing, np.inf, fit.max_ratio, False))


def advance_symmetric(system: CGSystem, state: SymmetricState, steps: int) -> SymmetricState:
    """Return the state after at most ``steps`` steps; fewer when it has ended."""
    end = state.iteration + steps
    while state.iteration < end and not state.ended:
        due = 1 << state.iteration.bit_length()  # judged at 1, 2, 4, 8, ..., whatever the strides
        stride = min(due, end) - state.iteration
        state = replace(state, fit=residuals.advance(system, state.fit, stride))
        state = _looked_at(system, state, judge=state.iteration == due or state.fit.finished)
    return state


def _looked_at(system: CGSystem, state: SymmetricState, judge: bool = True) -> SymmetricState:
    """Take the iterate if it is positive definite, and judge whether to go on."""
    X, ratio = cholesky(residuals.matrix(system, state.fit)), state.fit.max_ratio
    if X is not None:
        state = replace(state, X=X, max_ratio=ratio)
    if not judge:
        return state
    slow = state.iteration >= MIN_JUDGED_STEPS and ratio > 0.25 * state.mark
    return replace(state, mark=ratio, left=X is None or slow)
