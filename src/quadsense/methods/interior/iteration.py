"""The smallest worst-case error: ``min_A max_i |F(A)_i - b_i| / delta_i``, with both bounds.

A primal-dual interior-point method (`mehrotra`) on the linear program

    minimise t   subject to   -t <= (F(A)_i - b_i) / delta_i <= t,

started at least squares, whose residual is already dual feasible. Its multipliers give the
vector y of the lower bound ``y.b / sum |y_i| delta_i``, ``F*(y) = 0``. An end of an interval may
be missing. The linear algebra is in `normal`, the proof of the bound in `infeasible`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from quadsense.methods.interior.adjoint import UNIT
from quadsense.methods.interior.coordinates import FACTOR_SIDE, GramCoordinates, MatrixCoordinates
from quadsense.methods.interior.infeasible import allowed, lower_bound
from quadsense.methods.interior.mehrotra import SIGNS, STEPS, complementarity, corrected, slacks_of
from quadsense.methods.interior.normal import Normal, inner, least_squares, normal, stronger
from quadsense.methods.interior.preconditioner import CholeskyPreconditioner
from quadsense.methods.interior.program import Program, excess, residual
from quadsense.methods.interior.svec import Array, Vector

Verdict = Literal["met", "infeasible", "optimal", "stalled"]

REACH = 0.99  # share of the way to the boundary that a step takes
IDLE = 3  # steps without progress after which rounding has won


@dataclass(frozen=True)
class State:
    """Where the method stands.

    Attributes
    ----------
    iteration : int
        Interior-point steps so far.
    x : ndarray
        Best unknowns so far; `matrix` turns them into A.
    max_ratio : float
        ``max_i |F(A)_i - b_i| / delta_i`` of `x`: the upper bound.
    rounding : float
        Bound on the rounding error of `max_ratio`.
    lower : float
        Lower bound on the ratio of every A of Frobenius norm at most `norm`.
    y : ndarray, shape (m,)
        Vector that gives `lower`: the proof of infeasibility once `lower` exceeds 1.
    norm : float
        No better fit is larger: estimated from the smallest singular value of F where that is
        positive, else ``Program.max_norm``. The certificate proves it afresh.
    center, level, duals
        The interior-point iterate: unknowns, t, and multipliers of shape (2, m).
    precision : int
        Preconditioner: 0 while conjugate gradients need no factor, else the bits of the factor.
    mu, idle
        Mean complementarity, and for how many steps it has hardly fallen.
    stalled : bool
        Rounding stops further progress.
    """

    iteration: int
    x: Array
    max_ratio: float
    rounding: float
    lower: float
    y: Vector
    norm: float
    center: Array
    level: float
    duals: Vector
    precision: int
    mu: float
    idle: int
    stalled: bool


def matrix(problem: Program, state: State) -> tuple[Array, bool]:
    """The fit: ``(A, True)``, or ``(c, False)`` with ``A = F*(c)`` where n by n may not fit."""
    if isinstance(problem.coordinates, GramCoordinates):
        return problem.coordinates.coefficients(state.x), False
    return 0.5 * (state.x + state.x.conj().T), True


def measure(problem: Program, state: State, V: Array) -> Vector:
    """Readings ``v* A v`` of the fit for the rows v of V, shape (k, n)."""
    A, formed = matrix(problem, state)
    if formed:
        return np.asarray(np.einsum("ij,ij->i", V.conj(), V @ A.T).real)
    return np.asarray(np.abs(V @ problem.U.conj().T) ** 2 @ A)


def verdict(state: State, *, target: bool, gap: float) -> Verdict | None:
    """What the bounds say; None while they are not close enough.

    With a target the question is whether ratio 1 can be had; without, how small it can be. A
    fit that is exact up to rounding is the smallest.
    """
    upper = state.max_ratio + state.rounding
    if target and upper <= 1.0:
        return "met"
    if target and state.lower > 1.0:
        return "infeasible"
    if not target and (state.max_ratio <= state.rounding or upper - state.lower <= gap * upper):
        return "optimal"
    return "stalled" if state.stalled else None


def _ratio(problem: Program, z: Vector) -> float:
    return max(0.0, float(np.max(excess(problem, z))))


def _size(x: Array) -> float:
    return float(np.sqrt(inner(x, x)))


def _rounding(problem: Program, x: Array) -> float:
    # |fl(u* A u) - u* A u| <= gamma(2 n) ||A||_F for a unit u; a complex product doubles it.
    factor = 4.0 * (problem.U.shape[1] + 4) * UNIT
    return float(np.max((factor * _size(x) + 2.0 * UNIT * np.abs(problem.b)) / problem.delta))


def start(problem: Program) -> State:
    """Least squares, weighted by the tolerances."""
    used: Vector = np.any(problem.sides, axis=0).astype(np.float64)
    fit = least_squares(problem.coordinates, problem.b / problem.delta, used, None, rounds=8)
    z = residual(problem, fit.x)
    ratio = _ratio(problem, z)
    # The residual is dual feasible; the even part keeps every multiplier away from zero.
    even = float(np.abs(z).mean())
    duals = np.where(problem.sides, np.maximum(-SIGNS * z, 0.0) + even, 0.0)
    duals /= max(float(duals.sum()), 1e-300)
    state = State(
        iteration=0,
        x=fit.x,
        max_ratio=ratio,
        rounding=_rounding(problem, fit.x),
        lower=0.0,
        y=np.zeros_like(z),
        norm=_largest_norm(problem, fit.system, ratio),
        center=fit.x,
        level=1.1 * ratio,
        duals=duals,
        precision=fit.precision,
        mu=np.inf,
        idle=0,
        stalled=ratio == 0.0,
    )
    return _with_bound(problem, state, duals[1] - duals[0])


def _largest_norm(problem: Program, system: Normal | None, ratio: float) -> float:
    """Norm that no fit of at most this ratio exceeds, as far as can be told."""
    injective = isinstance(problem.coordinates, MatrixCoordinates) and bool(problem.sides.all())
    if not injective or system is None:
        return problem.max_norm
    if not isinstance(system.inverse, CholeskyPreconditioner):
        return problem.max_norm
    eigenvalue = system.inverse.smallest_eigenvalue()
    if eigenvalue == 0.0:
        return problem.max_norm
    # |F(A)| <= |b| + ratio delta; the factor 2 is for the estimate.
    reach = float(np.linalg.norm(np.abs(problem.b) / problem.delta + ratio))
    return min(problem.max_norm, 2.0 * reach / float(np.sqrt(eigenvalue)))


def _with_bound(problem: Program, state: State, scaled: Vector) -> State:
    """Keep the better of the known lower bound and the one from ``y = scaled / delta``."""
    scaled = allowed(scaled, problem.sides[1], problem.sides[0])
    y = scaled / problem.delta
    # Computed, not proved: the certificate proves it once, at the end.
    error = _size(problem.coordinates.adjoint(scaled))
    bound = lower_bound(problem.b, problem.delta, y, error, state.norm)
    return replace(state, lower=bound, y=y) if bound > state.lower else state


def _bounded(
    problem: Program, state: State, system: Normal, z: Vector, target: bool, gap: float
) -> State:
    """Update the lower bound; sharpen the multipliers first where their error hides a verdict."""
    scaled = allowed(state.duals[1] - state.duals[0], problem.sides[1], problem.sides[0])
    after = _with_bound(problem, state, scaled)
    mass = float(np.abs(scaled).sum())
    # The bound that y would give if F*(y) were zero: -z differs from b by a member of the range.
    promise = -float(z @ scaled) / mass if mass > 0.0 else 0.0
    hidden = promise - after.lower > 0.1 * (after.max_ratio - promise)
    if not hidden or verdict(replace(after, lower=promise), target=target, gap=gap) is None:
        return after
    if state.precision == 0 and problem.sides.all():
        # Without a factor the weighted system is slow; least squares spreads the repair evenly.
        half = np.full(z.size, 0.5)
        system = normal(problem.coordinates, half, half, 0) or system
    return _with_bound(problem, after, _project(system, scaled))


def _project(system: Normal, scaled: Vector) -> Vector:
    """Remove from a vector of multipliers what keeps ``F*(y)`` from vanishing."""
    d, e = system.d1 + system.d2, system.d2 - system.d1
    for _ in range(2):
        dx, dt, _ = system.solve(system.coordinates.adjoint(scaled), 0.0, 1e-9, STEPS)
        scaled = scaled - d * system.coordinates.forward(dx) - e * dt
    return scaled


def advance(
    problem: Program, state: State, steps: int, *, target: bool = False, gap: float = 0.01
) -> State:
    """Take up to `steps` interior-point steps; stop early at a verdict.

    Parameters
    ----------
    problem : Program
    state : State
        Not modified.
    steps : int
        Steps to spend, one factorisation each.
    target : bool
        Stop once ratio 1 is met or proved impossible, instead of at `gap`.
    gap : float
        Relative distance of the two bounds at which to stop.
    """
    for _ in range(steps):
        if verdict(state, target=target, gap=gap) is not None:
            break
        state = _step(problem, state, target, gap)
    return state


def _step(problem: Program, state: State, target: bool, gap: float) -> State:
    coordinates, sides = problem.coordinates, problem.sides
    slacks = slacks_of(sides, residual(problem, state.center), state.level)
    weights = state.duals / slacks
    # Missing ends may let t fall without limit: then t >= 0, where every row is met, is enough.
    if not state.level > 0.0:
        return replace(state, stalled=True)
    floor = 0.0 if sides.all() else complementarity(sides, state.duals, slacks) / state.level
    corner = floor / state.level
    system = normal(coordinates, weights[0], weights[1], state.precision, corner)
    following = stronger(coordinates, state.precision)
    retry = replace(state, precision=following or state.precision, stalled=following is None)
    if system is None:
        return retry
    factored = state.precision > 0
    move = corrected(
        system,
        sides,
        state.duals,
        slacks,
        floor,
        tolerance=1e-11 if factored else 1e-8,
        # On small problems a corrector costs as much as the factor that it may save.
        correctors=2 if factored and problem.U.shape[1] >= FACTOR_SIDE else 0,
    )
    primal, dual = REACH * move.primal, REACH * move.dual
    if state.level + primal * move.dt < 0.0:
        primal = REACH * state.level / -move.dt
    center = state.center + primal * move.dx
    z = residual(problem, center)
    ratio = _ratio(problem, z)
    if not np.isfinite(ratio) or max(move.primal, move.dual) < 1e-6:
        return retry
    # Rounding must not let the level touch the largest residual.
    level = max(state.level + primal * move.dt, ratio * (1.0 + 1e-12))
    duals = state.duals + dual * move.duals
    mu = complementarity(sides, duals, slacks_of(sides, z, level))
    idle = state.idle + 1 if mu > 0.9 * state.mu else 0
    slow = move.count > coordinates.patience(state.precision)
    after = replace(
        state,
        iteration=state.iteration + 1,
        center=center,
        level=level,
        duals=duals,
        precision=following if slow and following else state.precision,
        mu=mu,
        idle=idle,
        stalled=idle >= IDLE,
    )
    if ratio < state.max_ratio:
        after = replace(after, x=center, max_ratio=ratio, rounding=_rounding(problem, center))
    return _bounded(problem, after, system, z, target, gap)
