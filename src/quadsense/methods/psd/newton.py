"""The smallest worst miss over positive semidefinite matrices, by an interior-point method.

Minimise t over ``A >= 0`` with ``lo - t w <= F(A) <= hi + t w``; its dual is to maximise
``-support(y)`` over ``F*(y) >= 0``, ``sum w_i |y_i| = 1``. Both sides come along: a negative t is
a fit, a positive dual value a proof that there is none, and near the edge of feasibility, where
first-order methods crawl, it takes no more steps than elsewhere.

Steps are along the Nesterov-Todd direction: in the scaling ``A = G D G*``, ``S = G^-* D G^-1`` both
matrices are the same diagonal D, and the rows are ``v_i = G* u_i``. The rows being of rank one, the
Schur complement is ``M_ij = |<v_i, v_j>|^2``: one product of ``m^2 n`` flops and a Cholesky of
order m, or, where the unknowns are fewer than the rows, of the order of their number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy.linalg as sl

from quadsense.core.cholesky import factor_lower
from quadsense.core.products import forward as forward_dense
from quadsense.measurements.sensing import Sensing
from quadsense.methods.psd import schur
from quadsense.methods.psd.maps import (
    Array,
    Intervals,
    Real,
    forward,
    project,
)
from quadsense.watch import look

SIGNS = np.array([[1.0], [-1.0]])


@dataclass(frozen=True)
class NewtonState:
    """A primal and a dual point, both strictly inside.

    Attributes
    ----------
    A, S : ndarray, shape (n, n)
        Matrix, and the slack of ``F*(y) >= 0``.
    X : ndarray, shape (n, n)
        Factor of A.
    t : float
        Common ratio less 1, a little above what A needs.
    multipliers, slacks : ndarray, shape (2, m)
        Of the upper and the lower ends; 0 and 1 at infinite ends.
    max_ratio : float
    gap : float
        Mean complementarity; the distance from the optimum is about this times their number.
    iteration : int
    stalled : bool
        Rounding left no step to take, or the gap is closed.
    """

    A: Array
    S: Array
    X: Array
    t: float
    multipliers: Real
    slacks: Real
    max_ratio: float
    gap: float
    iteration: int
    stalled: bool

    @property
    def y(self) -> Real:
        """The dual vector, upper less lower multipliers."""
        return self.multipliers[0] - self.multipliers[1]


def _sides(intervals: Intervals) -> tuple[Real, npt.NDArray[np.bool_]]:
    """Return the ends as ``[hi, -lo]`` (0 where infinite), and which are finite."""
    ends = np.stack([intervals.hi, -intervals.lo])
    finite = np.isfinite(ends)
    return np.where(finite, ends, 0.0), finite


def start(F: Sensing, intervals: Intervals) -> NewtonState:
    """Return a well-centred state; the rows must span the space."""
    n = F.shape[1]
    ends, finite = _sides(intervals)
    w = intervals.width
    size = max(float(np.max(np.abs(ends))), float(np.max(w)))
    scale = max(float(np.mean(np.abs(ends[finite]))), 1e-3 * size)
    X = F.beside(np.sqrt(scale) * np.eye(n, dtype=F.dtype))
    values = forward(F, X)
    misses = np.where(finite, SIGNS * values - ends, -np.inf)
    t = float(np.max(misses / w)) + scale / float(np.median(w))
    slacks = np.where(finite, t * w - SIGNS * values + ends, 1.0)
    # Upper multipliers above the lower ones make F*(y) positive definite where both exist.
    multipliers = np.where(finite, np.array([[3.0], [1.0]]), 0.0)
    multipliers /= float(np.sum(multipliers * w))
    S = F.adjoint(multipliers[0] - multipliers[1])
    least = float(np.linalg.eigvalsh(S)[0])
    floor = 1e-2 * float(np.sum(multipliers)) / n
    if least < floor:
        S = S + (floor - least) * np.eye(n)
    A = X @ X.conj().T
    gap = _gap(np.vdot(A, S).real, slacks, multipliers, finite, n)
    ratio = intervals.max_ratio(values)
    return NewtonState(A, S, X, t, multipliers, slacks, ratio, gap, 0, False)


def advance(F: Sensing, intervals: Intervals, state: NewtonState, steps: int) -> NewtonState:
    """Return the state after at most ``steps`` steps; the caller looks at both bounds between."""
    for _ in range(steps):
        if state.stalled:
            break
        # A step that leaves float64's range is one that rounding has spoilt: it is not taken.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                after = _step(F, intervals, state)
            except (sl.LinAlgError, ValueError):  # the latter from SciPy, for what is no number
                after = replace(state, stalled=True)
        sound = np.isfinite(after.gap) and np.isfinite(after.max_ratio) and np.isfinite(after.t)
        state = after if sound else replace(state, stalled=True)
    return state


def _gap(
    matrices: float, slacks: Real, multipliers: Real, finite: npt.NDArray[np.bool_], n: int
) -> float:
    """Return the mean complementarity."""
    return (matrices + float(np.sum(slacks * multipliers))) / (n + int(np.count_nonzero(finite)))


def _hermitian(B: Array) -> Array:
    return 0.5 * (B + B.conj().T)


def _longest(diagonal: Real, change: Array) -> float:
    """Return the largest a with ``D + a change >= 0``."""
    root = np.sqrt(diagonal)
    least = float(np.linalg.eigvalsh(change / root / root[:, None])[0])
    return -1.0 / least if least < 0.0 else np.inf


def _longest_entry(values: Real, change: Real) -> float:
    falling = change < 0.0
    return float(np.min(-values[falling] / change[falling], initial=np.inf))


def _step(F: Sensing, intervals: Intervals, state: NewtonState) -> NewtonState:
    """Take one predictor-corrector step [Mehrotra 1992] along the Nesterov-Todd direction."""
    ends, finite = _sides(intervals)
    w, slacks, multipliers = intervals.width, state.slacks, state.multipliers
    n = F.n
    look(25.0 * float(n) ** 3)
    factor_S = factor_lower(state.S)
    _, d, right = np.linalg.svd(factor_S.conj().T @ state.X)
    G = (state.X @ right.conj().T) / np.sqrt(d)
    V = project(F, G)
    averages = 0.5 * (d[:, None] + d)

    weights = multipliers / slacks
    E = weights[0] + weights[1]
    tilt = (weights[0] - weights[1]) / E
    active = np.stack([weights[0] >= weights[1], weights[0] < weights[1]]) & finite
    solve = schur.solver(V, E, F)
    dual_residual = F.adjoint(state.y) - state.S
    scaled_residual = _hermitian(G.conj().T @ dual_residual @ G)
    norm_residual = 1.0 - float(np.sum(multipliers * w))
    border = solve(tilt * w)

    def direction(target: float, twist: Array, product: Real) -> _Direction:
        """Solve for complementarity ``target``, minus the second-order terms given."""
        look()
        R = (target * np.eye(n) - np.diag(d**2) - twist) / averages
        push = np.where(finite, (target - product) / slacks - multipliers, 0.0)
        r = push[0] - push[1]
        plain = solve(F.mixed(forward_dense(V, R - scaled_residual)) + r / E)
        # dy = plain - border dt; the multipliers' sum rule fixes dt.
        slope = -(E * w) @ w + (tilt * w) @ (E * tilt * w - border)
        known = w @ (push[0] + push[1]) + (tilt * w) @ (plain - r)
        dt = float((norm_residual - known) / slope)
        dy = plain - border * dt
        dS = F.adjoint(dy) + dual_residual
        in_S = _hermitian(G.conj().T @ dS @ G)
        in_A = R - in_S
        d_slacks = np.where(finite, dt * w - SIGNS * F.mixed(forward_dense(V, in_A)), 0.0)
        d_multipliers = np.where(finite, push - weights * d_slacks, 0.0)
        # At an active end the weight magnifies the error of the slack: take the multiplier from dy
        # there, and the slack from the multiplier.
        d_multipliers = np.where(active, SIGNS * dy + d_multipliers[::-1], d_multipliers)
        d_slacks = np.where(
            active, (push - d_multipliers) / np.where(active, weights, 1.0), d_slacks
        )
        return _Direction(in_A, in_S, dS, dt, d_slacks, d_multipliers)

    def lengths(step: _Direction) -> tuple[float, float]:
        primal = min(_longest(d, step.matrix), _longest_entry(slacks, step.d_slacks))
        dual = min(_longest(d, step.dual_matrix), _longest_entry(multipliers, step.d_multipliers))
        return primal, dual

    step = direction(0.0, np.zeros((n, n)), np.zeros_like(slacks))
    primal, dual = (min(1.0, a) for a in lengths(step))
    matrices = np.vdot(np.diag(d) + primal * step.matrix, np.diag(d) + dual * step.dual_matrix)
    reached = _gap(
        float(matrices.real),
        slacks + primal * step.d_slacks,
        multipliers + dual * step.d_multipliers,
        finite,
        n,
    )
    centring = min(1.0, max(reached, 0.0) / state.gap) ** 3
    twist = _hermitian(step.matrix @ step.dual_matrix)
    step = direction(centring * state.gap, twist, step.d_slacks * step.d_multipliers)
    primal, dual = lengths(step)
    backoff = 0.9 + 0.09 * min(1.0, primal, dual)
    primal, dual = min(1.0, backoff * primal), min(1.0, backoff * dual)

    A = _hermitian(G @ (np.diag(d) + primal * step.matrix) @ G.conj().T)
    X = factor_lower(A)
    S = _hermitian(state.S + dual * step.change)
    t = state.t + primal * step.dt
    values = forward(F, X)
    # Recomputed, not carried: the slack of a row near its end is a small difference.
    moved = slacks + primal * step.d_slacks
    fresh = np.where(finite, ends + t * w - SIGNS * values, 1.0)
    slacks = np.where(fresh > 0.1 * moved, fresh, moved)
    multipliers = multipliers + dual * step.d_multipliers
    gap = _gap(float(np.vdot(A, S).real), slacks, multipliers, finite, n)
    # A gap that grows is rounding: the steps from here on only do harm.
    stalled = max(primal, dual) < 1e-6 or gap < 1e-15 or gap > 2.0 * state.gap
    ratio = intervals.max_ratio(values)
    return NewtonState(A, S, X, t, multipliers, slacks, ratio, gap, state.iteration + 1, stalled)


@dataclass(frozen=True)
class _Direction:
    """A step: of the scaled A and S, of S itself, of t, and of slacks and multipliers."""

    matrix: Array
    dual_matrix: Array
    change: Array
    dt: float
    d_slacks: Real
    d_multipliers: Real
