"""Low-rank fit ``A = X X*`` with ``|u_i* A u_i - b_i| <= delta_i`` for every row.

One attempt is a descent on the factor, by damped Gauss-Newton steps where the normal
equations are small and by quasi-Newton steps elsewhere, through these phases:

* ``squares``: least squares on ``z_i / delta_i`` from a start of the asked rank;
* ``hinge``: once least squares ends with a root mean square ratio of at most one (no
  point that fits can have more), least squares on what exceeds the tolerances;
* ``lift``: every attempt but the first starts at random with a few ranks too many and
  an increasing penalty on the energy outside the leading ``rank`` axes.  The extra
  room lets a row pass from one sign of ``u_i* x`` to the other, where a factor of the
  asked rank is walled in.  Plain random starts almost never succeed at m = 1.5 n, r = 1.

``rank=None`` grows the rank by the steepest new direction until the tolerances are met.
The fit ends as ``rounded`` where every residual is within its tolerance but for its rounding
bound, and that leaves no room: no other factor could be shown to be better.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quadsense.methods.factor.choice import (
    default_restarts,
    rows_are_ample,
    takes_normal_equations,
)
from quadsense.methods.factor.gauss_newton import gauss_newton_step, principal_axes
from quadsense.methods.factor.passes import (
    Matrix,
    Point,
    Program,
    Vector,
    evaluate,
)
from quadsense.methods.factor.phases import FIRST_DAMPING, LIFT, begin, next_phase, noted
from quadsense.methods.factor.quasi_newton import Memory, quasi_newton_step
from quadsense.methods.factor.starts import random_start, spectral_start
from quadsense.methods.factor.state import FactoredState, Phase

# Steps a stage, and penalties, of a lift.
_LIFT_STEPS = 20
_LIFT_PENALTY, _LIFT_GROWTH = 1e-3, 3.0
_LEAST_DAMPING, _MOST_DAMPING = 1e-12, 1e8
_DAMPING_FACTOR = 5.0
# With damping down to this, far above single precision's rounding, it solves for the step.
_SINGLE_DAMPING = 2e-5
# Least scale of damping, as a share of the mean scale; a lift damps all rows alike.
_SCALE_FLOOR, _SCALE_FLOOR_LIFT = 1e-3, 1.0
# A stage ends when this many steps in a row gain less than this share of the loss.
_SLOW_GAIN, _SLOW_GAIN_LIFT = 1e-4, 1e-3
_SLOW_STEPS_LIFT, _SLOW_STEPS_DENSE, _SLOW_STEPS = 1, 3, 5
_PHASE_STEPS = 2000


def prepare(
    U: Matrix, b: Vector, delta: Vector, rank: int | None, *, low_precision: bool = True
) -> Program:
    """Collect what the fit reads.

    Parameters
    ----------
    U : (m, n) array, float64 or complex128
        Rows of unit norm.
    b, delta : (m,) float64
        Readings and tolerances (> 0), of moderate size: their squares are formed.
    rank : int or None
        Asked rank; None when it is to grow.
    low_precision : bool
        Whether a single-precision copy of U, half its size, may be made for the products
        of quasi-Newton steps; claims and refinement use double precision either way.
    """
    with np.errstate(under="ignore"):
        weight = (float(delta.min()) / delta) ** 2
        inverse = 1.0 / delta
        steepest = float(np.max(np.sqrt(np.abs(b)) * inverse))
        root = 2.0 * np.sqrt(weight)
    low: Matrix | None = None
    if low_precision and _takes_single_steps(U, rank or 1):
        low = U.astype(np.complex64 if np.iscomplexobj(U) else np.float32, order="C")
    return Program(
        U, b, delta, weight, low, inverse, root, 2.0 * weight, float(weight.sum()),
        float(inverse.max()), steepest,
    )  # fmt: skip


def _takes_single_steps(U: Matrix, rank: int) -> bool:
    """Whether quasi-Newton steps, or Gauss-Newton steps on ample rows, are to come."""
    return rows_are_ample(U, rank) or not takes_normal_equations(U, rank + LIFT)


def start(
    problem: Program,
    rank: int | None,
    *,
    seed: int = 0,
    max_restarts: int | None = None,
    factor: Matrix | None = None,
) -> FactoredState:
    """Return the first state: the spectral start, or ``factor`` (a warm start).

    Parameters
    ----------
    problem : Program
    rank : int or None
        None grows the rank from that of ``factor``, or from 1.
    seed : int
    max_restarts : int, optional
        By default 20 to 200, as many as take some seconds; 3 at each rank when it grows.
    factor : (n, k) array, optional
        X of an earlier ``A = X X*``.
    """
    first_rank = rank if rank is not None else 1 if factor is None else factor.shape[1]
    if max_restarts is None:
        max_restarts = 3 if rank is None else default_restarts(problem.U, rank, rank + LIFT)
    rng = np.random.default_rng((seed, 0))
    with np.errstate(under="ignore"):
        if factor is None:
            Y = spectral_start(problem, first_rank, rng)
        else:
            Y = _padded(problem, factor, first_rank, rng)
        point = evaluate(problem, principal_axes(Y) @ Y, 0.0)
        state = FactoredState(
            rank=first_rank,
            growing=rank is None,
            max_restarts=max_restarts,
            seed=seed,
            phase=Phase.SQUARES,
            point=point,
            best=point.Y,
            anchor=point.Y,
            max_ratio=np.inf,
            damping=FIRST_DAMPING,
            passes=1,
        )
        return noted(state)


def _padded(problem: Program, factor: Matrix, rank: int, rng: np.random.Generator) -> Matrix:
    """Return a given factor as one of ``rank`` rows."""
    Y = np.asarray(factor.T, dtype=problem.U.dtype)
    Y = (principal_axes(Y) @ Y)[:rank]
    missing = rank - len(Y)
    # Rows of zeros would stay so: the loss has no slope in them.
    return Y if missing <= 0 else np.concatenate([Y, 0.1 * random_start(problem, missing, rng)])


def advance(problem: Program, state: FactoredState, steps: int) -> FactoredState:
    """Take at most ``steps`` descent steps; fewer when the fit is finished."""
    # What underflows beside numbers of the size of b is nothing.
    with np.errstate(under="ignore"):
        for _ in range(steps):
            if state.finished:
                break
            state = _step(problem, state)
    return state


def tightened(problem: Program, state: FactoredState, goal: float) -> FactoredState:
    """Take up again a fit whose ratio, by another bound on the rounding, was not yet met."""
    phase = Phase.HINGE if state.theta > 0.0 else Phase.SQUARES
    with np.errstate(under="ignore"):
        return begin(problem, replace(state, goal=goal), state.best, phase)


def factor(state: FactoredState) -> Matrix:
    """Return X (n, k) of the best ``A = X X*`` so far."""
    X: Matrix = state.best.T
    return X


def farkas_vector(problem: Program, state: FactoredState) -> Vector:
    """Return y with, nearly, ``F*(y) >= 0`` and ``y.b < -sum |y_i| delta_i``.

    Meaningful when ``no_rank_fits``: one row whose interval holds negative numbers only, or
    the slope of least squares at its minimum over all PSD matrices, which a certificate checks
    and repairs.
    """
    worst = int(np.argmin(problem.b + problem.delta))
    if problem.b[worst] + problem.delta[worst] < 0.0:
        y = np.zeros_like(problem.b)
        y[worst] = 1.0
        return y
    with np.errstate(under="ignore"):
        slope: Vector = problem.weight * evaluate(problem, state.anchor, 0.0).excess
    return slope


def _step(problem: Program, state: FactoredState) -> FactoredState:
    """Take one step; on a stall go to the next stage, phase, attempt or rank."""
    point, lifted = state.point, state.phase is Phase.LIFT
    penalty = _penalty(problem, state) if lifted else None
    dense = takes_normal_equations(problem.U, len(point.Y))
    if dense:
        floor = _SCALE_FLOOR_LIFT if lifted else _SCALE_FLOOR
        single = state.damping >= _SINGLE_DAMPING and not lifted
        D = gauss_newton_step(problem, point, penalty, state.damping, floor, single)
        if single and not D.any():
            D = gauss_newton_step(problem, point, penalty, state.damping, floor)
        Y = point.Y + D
        trial = evaluate(problem, principal_axes(Y) @ Y, state.theta)
        memory, passes = state.memory, 2
    else:
        trial, memory, passes = quasi_newton_step(
            problem, point, penalty, state.theta, state.memory
        )
        if lifted:
            trial, memory = _rotated(trial, memory)
    before, after = point.value, trial.value
    if penalty is not None:
        before += _penalty_value(penalty, point.Y)
        after += _penalty_value(penalty, trial.Y)
    gained = after < before
    slow_gain = _SLOW_GAIN_LIFT if lifted else _SLOW_GAIN
    # A rejected Gauss-Newton step only asks for more damping.
    slow = before - after < slow_gain * before and (gained or not dense)
    damping = state.damping / _DAMPING_FACTOR if gained else state.damping * _DAMPING_FACTOR
    state = replace(
        state,
        iteration=state.iteration + 1,
        stage_steps=state.stage_steps + 1,
        passes=state.passes + passes,
        point=trial if gained else point,
        memory=memory,
        damping=max(damping, _LEAST_DAMPING),
        slow_steps=state.slow_steps + 1 if slow else 0,
    )
    state = noted(state)
    patience = _SLOW_STEPS
    if dense:
        patience = _SLOW_STEPS_LIFT if lifted else _SLOW_STEPS_DENSE
    stalled = (
        state.slow_steps >= patience
        or state.damping > _MOST_DAMPING
        or state.stage_steps >= (_LIFT_STEPS if lifted and dense else _PHASE_STEPS)
        or not before > 0.0
    )
    return next_phase(problem, state) if stalled and not state.finished else state


def _rotated(point: Point, memory: Memory) -> tuple[Point, Memory]:
    """Turn a point and the memory to principal axes, which the penalty of a lift needs."""
    axes = principal_axes(point.Y)
    turned = replace(point, Y=axes @ point.Y, P=axes @ point.P, gradient=axes @ point.gradient)
    return turned, tuple((axes @ move, axes @ change, inner) for move, change, inner in memory)


def _penalty(problem: Program, state: FactoredState) -> Vector:
    """Return the penalty of each row of a lifted factor: zero but for the extra ones."""
    penalty = np.zeros(len(state.point.Y))
    trace = problem.U.shape[1] * float(np.mean(np.abs(problem.b))) or 1.0
    # In this unit the penalty of a whole A weighs as much as the misfit of zero.
    unit = float(np.dot(problem.weight, problem.b**2)) / trace
    penalty[state.rank :] = _LIFT_PENALTY * _LIFT_GROWTH**state.stage * unit
    return penalty


def _penalty_value(penalty: Vector, Y: Matrix) -> float:
    return 0.5 * float(np.dot(penalty, np.sum(np.abs(Y) ** 2, axis=1)))
