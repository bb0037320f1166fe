"""The smallest worst-case error: ``min_A max_i |F(A)_i - b_i| / delta_i``, with both bounds.

A primal-dual interior-point method (`newton`) on the linear program

    minimise t   subject to   -t <= (F(A)_i - b_i) / delta_i <= t,

started at least squares, whose residual is already dual feasible. Its multipliers give the
vector y of the lower bound ``y.b / sum |y_i| delta_i``, ``F*(y) = 0``, which is computed here and
proved in `infeasible`. An end of an interval may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from quadsense.core.intervals import UNIT
from quadsense.core.packed import Array, Vector
from quadsense.device import numbers, waits
from quadsense.methods.base import looked
from quadsense.methods.minimax.coordinates import (
    MIN_GRADIENT_ORDER,
    CholeskyPreconditioner,
    GramCoordinates,
    MatrixCoordinates,
)
from quadsense.methods.minimax.newton import (
    SIGNS,
    MinimaxPoint,
    NormalSystem,
    corrected,
    inner,
    least_squares,
    norm,
    normal,
    slacks_of,
    stronger,
)
from quadsense.methods.minimax.program import MinimaxProgram, excess, residual
from quadsense.proofs.symmetric import allowed, lower_bound

BACKOFF = 0.99
"""Share of the way to the boundary that a step takes."""

MIN_FALL = 0.9
"""Share of a mark below which something was gained."""

MAX_IDLE_STEPS = 3
"""Steps without progress after which rounding has won."""

MAX_IDLE_STEPS_ONE_SIDED = 12
"""The same where there may be no dual feasible multipliers to approach."""

OPEN_SIDE_FACTOR = 3.0
"""Residual in units of the first level from which on the barrier holds an open side back."""

MAX_STEPS = 200
"""Steps after which nothing more is to be hoped for."""

MAX_UNSOLVED_SHARE = 0.1
"""Share of a right side that a solve may leave before a better factor is needed."""

RatioVerdict = Literal["met", "infeasible", "optimal", "stalled"]


@dataclass(frozen=True)
class IterationState:
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
        How much rounding may add to `max_ratio`.
    lower : float
        Lower bound on the ratio of every A of Frobenius norm at most `norm`.
    y : ndarray, shape (m,)
        Vector that gives `lower`: the proof of infeasibility once `lower` exceeds 1.
    norm : float
        No better fit is larger: estimated from the smallest singular value of F where that is
        positive, else ``MinimaxProgram.max_norm``. The certificate proves it afresh.
    center, level, duals, floor
        The interior-point iterate: unknowns, t, multipliers of shape (2, m), and that of
        ``t >= 0``, which stands where ends are missing: t might fall without limit.
    precision : int
        Preconditioner: 0 while conjugate gradients need no factor, else the bits of the factor.
    far : ndarray, shape (m,), or None
        Where ends are missing, the residuals from which on the barrier holds open sides back.
    marks, idle
        Mean complementarity, distance of the multipliers from dual feasible, and ratio, when one
        of them had last fallen by a tenth; and how many steps ago that was.
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
    floor: float
    far: Vector | None
    precision: int
    marks: tuple[float, ...]
    idle: int
    stalled: bool


class RatioBounds(Protocol):
    """What a state says of the best ratio, on whichever rows."""

    @property
    def x(self) -> Array:
        """Best unknowns so far."""

    @property
    def max_ratio(self) -> float:
        """Of `x`."""

    @property
    def rounding(self) -> float:
        """How much rounding may add to it."""

    @property
    def lower(self) -> float:
        """Lower bound on the ratio."""

    @property
    def stalled(self) -> bool:
        """Whether nothing more can be gained."""


def matrix(problem: MinimaxProgram, state: RatioBounds) -> tuple[Array, bool]:
    """The fit: ``(A, True)``, or ``(c, False)`` with ``A = F*(c)`` where n by n may not fit."""
    coordinates = problem.coordinates
    if isinstance(coordinates, GramCoordinates):
        return coordinates.coefficients(state.x), False
    return 0.5 * (state.x + state.x.conj().T), True


def verdict(state: RatioBounds, *, target: bool, gap: float) -> RatioVerdict | None:
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


def largest_norm(problem: MinimaxProgram, system: NormalSystem | None, ratio: float) -> float:
    """Norm that no fit of at most this ratio exceeds, as far as can be told."""
    if not bool(problem.sides.all()):
        return problem.max_norm
    coordinates, eigenvalue = problem.coordinates, 0.0
    if isinstance(coordinates, MatrixCoordinates) and system is not None:
        inverse = system.inverse
        if isinstance(inverse, CholeskyPreconditioner):
            eigenvalue = inverse.smallest_eigenvalue()
    if eigenvalue == 0.0:
        return problem.max_norm
    # |F(A)| <= |b| + ratio delta; the factor 2 is for the estimate.
    reach = float(np.linalg.norm(np.abs(problem.b) / problem.delta + ratio))
    return min(problem.max_norm, 2.0 * reach / float(np.sqrt(eigenvalue)))


def with_bound(problem: MinimaxProgram, state: IterationState, scaled: Vector) -> IterationState:
    """Keep the better of the known lower bound and the one from ``y = scaled / delta``."""
    scaled = allowed(scaled, problem.sides[1], problem.sides[0])
    y = scaled / problem.delta
    # Computed, not proved: the certificate proves it once, at the end.
    missed = problem.coordinates.adjoint(scaled)
    if waits(y):
        gain, error, mass = numbers(
            problem.b @ y, np.linalg.norm(missed), np.abs(y) @ problem.delta
        )
        bound = max((gain - error * state.norm) / mass, 0.0) if mass > 0.0 else 0.0
    else:
        bound = lower_bound(problem.b, problem.delta, y, norm(missed), state.norm)
    return replace(state, lower=bound, y=y) if bound > state.lower else state


def bounded(
    problem: MinimaxProgram,
    state: IterationState,
    system: NormalSystem,
    z: Vector,
    target: bool,
    gap: float,
) -> IterationState:
    """Update the lower bound; sharpen the multipliers first where their error hides a verdict."""
    scaled = allowed(state.duals[1] - state.duals[0], problem.sides[1], problem.sides[0])
    after = with_bound(problem, state, scaled)
    mass, gain = numbers(np.abs(scaled).sum(), z @ scaled)
    # The bound that y would give if F*(y) were zero: -z differs from b by a member of the range.
    promise = -gain / mass if mass > 0.0 else 0.0
    hidden = promise - after.lower > 0.1 * (after.max_ratio - promise)
    if not hidden or verdict(replace(after, lower=promise), target=target, gap=gap) is None:
        return after
    if state.precision == 0 and problem.sides.all():
        # Without a factor the weighted system is slow; least squares spreads the repair evenly.
        half = np.full_like(z, 0.5)
        system = normal(problem.coordinates, half, half, 0) or system
    return with_bound(problem, after, system.project(scaled))


def worst_ratio(problem: MinimaxProgram, x: Array, z: Vector) -> tuple[float, float]:
    """The worst ratio of x, whose residuals are z, and how much rounding may add to it."""
    out = excess(problem, z)
    # |fl(u* A u) - u* A u| <= gamma(2 n) ||A||_F for a unit u; a complex product doubles it.
    factor = 4.0 * (problem.F.n + 4) * UNIT * problem.F.amplification
    errors = (factor * np.sqrt(inner(x, x)) + 2.0 * UNIT * np.abs(problem.b)) / problem.delta
    ratio, most = (max(0.0, each) for each in numbers(np.max(out), np.max(out + errors)))
    return ratio, most - ratio


def start(problem: MinimaxProgram, near: Array | None = None) -> IterationState:
    """Least squares, weighted by the tolerances, from unknowns near it where these are known."""
    coordinates = problem.coordinates
    b = problem.b / problem.delta
    used: Vector = np.any(problem.sides, axis=0).astype(np.float64)
    fit = least_squares(coordinates, b, used, near, rounds=8, near=near is not None)
    x = fit.x
    z = residual(problem, x)
    ratio, rounding = worst_ratio(problem, x, z)
    level, duals, floor = _first_multipliers(problem, z, ratio)
    state = IterationState(
        iteration=0,
        x=x,
        max_ratio=ratio,
        rounding=rounding,
        lower=0.0,
        y=np.zeros_like(z),
        norm=largest_norm(problem, fit.system, ratio),
        center=x,
        level=level,
        duals=duals,
        floor=floor,
        far=None if floor == 0.0 else _far(problem, level),
        precision=fit.precision,
        marks=(np.inf, np.inf, np.inf),
        idle=0,
        stalled=ratio == 0.0,
    )
    return with_bound(problem, state, duals[1] - duals[0])


def _first_multipliers(
    problem: MinimaxProgram, z: Vector, ratio: float
) -> tuple[float, Vector, float]:
    """The level t, the multipliers and that of ``t >= 0`` to begin with, at residuals z."""
    if problem.sides.all():
        # The residual is dual feasible; the even part keeps every multiplier away from zero.
        duals = np.maximum(-SIGNS * z, 0.0) + float(np.abs(z).mean())
        return 1.1 * ratio, duals / max(float(duals.sum()), 1e-300), 0.0
    # Where ends are missing it is not, and nothing may be: begin where all products are alike.
    level = 2.0 * max(ratio, 1e-3)
    duals = np.where(problem.sides, 1.0 / slacks_of(problem.sides, z, level), 0.0)
    total = float(duals.sum()) + 1.0 / level
    return level, duals / total, 1.0 / (level * total)


def _far(problem: MinimaxProgram, level: float) -> Vector:
    """Residuals of rows with one end that are far out on the open side; infinite for the others."""
    return np.where(np.all(problem.sides, axis=0), np.inf, OPEN_SIDE_FACTOR * level)


def advance(
    problem: MinimaxProgram,
    state: IterationState,
    steps: int,
    *,
    target: bool = False,
    gap: float = 0.01,
) -> IterationState:
    """Take up to `steps` interior-point steps; stop early at a verdict.

    Parameters
    ----------
    problem : MinimaxProgram
    state : IterationState
        Not modified.
    steps : int
        Steps to spend, one factorisation each.
    target : bool
        Stop once ratio 1 is met or proved impossible, instead of at `gap`.
    gap : float
        Relative distance of the two bounds at which to stop.
    """
    end = state.iteration + steps
    # A step whose factorisation fails goes on to a more precise one, or has none left and stalls.
    while state.iteration < end and verdict(state, target=target, gap=gap) is None:
        state = _step(problem, state, target, gap)
    return state


def _system(
    problem: MinimaxProgram, state: IterationState, at: MinimaxPoint
) -> NormalSystem | None:
    """The linear system of a step; None where its factorisation failed."""
    weights = at.weights
    if weights is None:
        return None
    d1, d2 = weights
    return normal(problem.coordinates, d1, d2, state.precision, at.floor / at.level, at.held)


def _point(problem: MinimaxProgram, state: IterationState, z: Vector) -> MinimaxPoint:
    """The interior-point iterate, whose residuals are z."""
    slacks = slacks_of(problem.sides, z, state.level)
    return MinimaxPoint(problem.sides, slacks, state.duals, state.level, state.floor, z, state.far)


def _step(
    problem: MinimaxProgram, state: IterationState, target: bool, gap: float
) -> IterationState:
    coordinates = problem.coordinates
    if not state.level > 0.0 or state.iteration >= MAX_STEPS:
        return replace(state, stalled=True)
    at = _point(problem, state, residual(problem, state.center))
    system = _system(problem, state, at)
    following = stronger(coordinates, state.precision)
    retry = replace(state, precision=following or state.precision, stalled=following is None)
    if system is None:
        return retry
    factored = state.precision > 0
    move = corrected(
        system,
        at,
        tolerance=1e-11 if factored else 1e-8,
        # On small problems a corrector costs as much as the factor that it may save.
        correctors=2 if factored and problem.F.n >= MIN_GRADIENT_ORDER else 0,
    )
    if move.left > MAX_UNSOLVED_SHARE:
        return retry
    primal, dual = BACKOFF * move.primal, BACKOFF * move.dual
    center = state.center + primal * move.dx
    z = residual(problem, center)
    ratio, rounding = worst_ratio(problem, center, z)
    if not np.isfinite(ratio) or max(move.primal, move.dual) < 1e-6:
        return retry
    # Rounding must not let the level touch the largest residual.
    level = max(state.level + primal * move.dt, ratio * (1.0 + 1e-12))
    slow = move.count > coordinates.patience(state.precision)
    after = replace(
        state,
        iteration=state.iteration + 1,
        center=center,
        level=level,
        duals=state.duals + dual * move.duals,
        floor=state.floor + dual * move.floor,
        precision=following if slow and following else state.precision,
    )
    if ratio < state.max_ratio:
        after = replace(after, x=center, max_ratio=ratio, rounding=rounding)
    return bounded(problem, _judged(problem, after, z), system, z, target, gap)


def _judged(problem: MinimaxProgram, state: IterationState, z: Vector) -> IterationState:
    """Note whether the last step was progress: of multipliers, complementarity or ratio."""
    at, whole = _point(problem, state, z), bool(problem.sides.all())
    # Without missing ends the multipliers are dual feasible from the start.
    imbalance = 0.0 if whole else _imbalance(problem, at)
    reached = at.mu, imbalance, state.max_ratio
    marks, idle = looked(state.marks, state.idle, reached, MIN_FALL)
    stalled = state.stalled or idle >= (MAX_IDLE_STEPS if whole else MAX_IDLE_STEPS_ONE_SIDED)
    return replace(state, marks=marks, idle=idle, stalled=stalled)


def _imbalance(problem: MinimaxProgram, at: MinimaxPoint) -> float:
    """How far multipliers are from dual feasible; 0 where that is only rounding."""
    y = at.duals[1] - at.duals[0]
    if at.held is not None:
        y = y - at.held * at.z
    scale, unit = float(np.sum(np.abs(y) / problem.delta)), float(np.min(problem.delta))
    left = norm(problem.coordinates.adjoint(y))
    return left * unit if left > 1e-12 * scale else 0.0
