"""The two searches of the first order over the cone: the nearest fit, and least misses.

**The nearest fit** minimizes ``1/2 ||A - A_1||_F^2`` over ``A >= 0`` with ``F(A) = b``. Its dual is
smooth, ``g(y) = 1/2 ||[A_1 - F*(y)]_+||_F^2 + b.y``, with gradient ``b - F(A)`` at
``A = [A_1 - F*(y)]_+``: limited-memory BFGS on y, at most one eigendecomposition per evaluation.
While ``A_1 - F*(y)`` has no negative eigenvalue, g is the quadratic of the symmetric fit, so where
that fit is positive semidefinite this finds it. If nothing fits exactly, g has no minimum and y
runs away: the caller watches the ratio.

First comes the symmetric fit, in case it is positive semidefinite: half the work. While
``A_1 - F*(y)`` is positive definite, both solve the same linear system in y, for which conjugate
residuals in single precision do (see `cg`). A Cholesky factorization now and then tells whether
that is still so; the first that fails ends it, as does slow progress, and the nearest fit begins
anew (from the same y it is slower).

**Least misses**, for data with noise in them: minimize ``1/2 sum excess_i(F(A))^2`` over ``A >= 0``
by accelerated projections. The excess is the signed miss of the interval, so a value of 0 is a fit;
at a positive minimum ``y = excess`` has ``F*(y) >= 0`` and ``F*(y) A = 0``: it is the vector that
proves the intervals impossible (see `infeasible`). An iteration is one ``F*`` over the rows that
are missed, one eigendecomposition and one F on a factor of the rank at hand, which is found, not
given: a factor of fixed width needs about as many iterations where the width is right, and ten
times as many where it is not.

Notes
-----
The step of least misses is measured in ``||D||^2 = ||D||_F^2 + tr(D)^2/2``: for u uniform on the
sphere ``E <u u*, D>^2 = (2 ||D||_F^2 + tr(D)^2)/(n (n + 2))`` (real; the complex case has
``||D||_F^2 + tr(D)^2``), so in the Frobenius norm alone the identity direction would be n/2 times
as stiff as the others. In this norm the projection still has a closed form:
``[B - G/L - tau c I]_+`` with the tau that makes ``tau = tr(A) - tr(B)``, c = 1/2 or 1.
Momentum and restart: [Beck & Teboulle 2009], [O'Donoghue & Candes 2015].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quadsense.core.intervals import ZERO_SHARE, Array, Intervals, Real
from quadsense.core.secants import Memory, direction, remember, scaled
from quadsense.device import numbers, scalar, waits
from quadsense.measurements.sensing import Sensing
from quadsense.methods.cg import residuals
from quadsense.methods.cg.system import CGSystem
from quadsense.methods.conic.coordinates import cholesky, positive_part
from quadsense.methods.psd import kept_pairs
from quadsense.system.watch import eigen_flops, look

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
    values = F.factored(X) if 2 * X.shape[1] <= F.shape[1] else F.forward(X @ X.conj().T)
    return half_norm + scalar(b @ y), values - b, X


def _readings(intervals: Intervals) -> Real:
    b = intervals.target()
    if b is None:
        raise ValueError("the nearest fit needs two-sided intervals")
    return b


def start_nearest(
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


def advance_nearest(
    F: Sensing, intervals: Intervals, origin: Array, state: NearestState, steps: int
) -> NearestState:
    """Return the state after at most ``steps`` steps; fewer when the intervals are met."""
    for _ in range(steps):
        if state.max_ratio <= 1.0 or state.stalled:
            break
        state = _step_nearest(F, intervals, origin, state)
    return state


def _step_nearest(
    F: Sensing, intervals: Intervals, origin: Array, state: NearestState
) -> NearestState:
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
            memory = remember(state.memory, move, change, most, ZERO_SHARE, tuple(known) or None)
            evaluations = state.evaluations + trial
            iteration = state.iteration + 1
            return NearestState(y, z, X, value, memory, ratio, iteration, evaluations, False)
        if enough:
            low = length
        else:
            high = length
        # The slope is a straight line while no eigenvalue changes sign: aim where it is 0.
        secant = length * slope / (slope - new_slope) if new_slope > slope else np.inf
        longest = min(high, 10.0 * length)
        margin = 0.1 * (longest - low)
        length = float(np.clip(secant, low + margin, longest - margin))
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


# --- least misses ---------------------------------------------------------------------------------

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


def start_misses(F: Sensing, intervals: Intervals, X: Array, aim: float) -> ProjectedState:
    """Return the state at X, at rest."""
    A = X @ X.conj().T
    values = F.factored(X)
    value, ratio = numbers(_value(intervals.widened(aim), values), intervals.worst(values))
    return ProjectedState(X, A, A, values, values, 1.0, 1.0, aim, value, ratio, 0)


def misses(intervals: Intervals, state: ProjectedState) -> Real:
    """Return the signed misses at the aim: the vector that may prove the aim impossible."""
    return intervals.widened(state.aim).excess(state.values)


def advance_misses(
    F: Sensing, intervals: Intervals, state: ProjectedState, steps: int
) -> ProjectedState:
    """Return the state after at most ``steps`` steps; fewer when the intervals are met."""
    aimed = intervals.widened(state.aim)
    for _ in range(steps):
        if state.max_ratio <= 1.0:
            break
        state = _step_misses(F, intervals, aimed, state)
    return state


def _value(aimed: Intervals, values: Real) -> Any:
    excess = aimed.excess(values)
    return 0.5 * scalar(excess @ excess)


def _step_misses(
    F: Sensing, intervals: Intervals, aimed: Intervals, state: ProjectedState
) -> ProjectedState:
    """Take one accelerated step, raising the stiffness until the quadratic model holds."""
    momentum = 0.5 + np.hypot(0.5, state.momentum)
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
        values = F.factored(X) if 2 * X.shape[1] <= n else F.forward(A)
        change = A - base
        length = np.vdot(change, change).real + coupling * np.trace(change).real ** 2
        # All numbers of a trial at once, so that a device is waited for once.
        value, ratio, base_value, length, along, turn = numbers(
            _value(aimed, values), intervals.worst(values), at_base, length,
            np.vdot(gradient, change).real, np.vdot(base - A, A - state.A).real,
        )  # fmt: skip
        model = base_value + along + 0.5 * stiffness * length
        # The slack is the rounding error of the values, which the end of a long run is made of.
        if value <= model + ZERO_SHARE * base_value:
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
    look(eigen_flops(len(base)))
    values, vectors = np.linalg.eigh(base - step)
    values, vectors = values[::-1], vectors[:, ::-1]
    # With the k largest kept, tau follows; the right k is the one that keeps just those.
    sums = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values)])
    counts = np.cumsum(np.ones_like(sums)) - 1.0  # made where the values are
    shifts = coupling * (sums - np.trace(base).real) / (1.0 + coupling * counts)
    keep = int(np.count_nonzero(values > shifts[:-1]))
    # Rounding may take the last one below zero.
    return vectors[:, :keep] * np.sqrt(np.maximum(values[:keep] - shifts[keep], 0.0))
