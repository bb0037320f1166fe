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
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quadsense.methods.factor.gauss_newton import gauss_newton_step, principal_axes
from quadsense.methods.factor.passes import Matrix, Point, Program, Vector, evaluate
from quadsense.methods.factor.quasi_newton import quasi_newton_step
from quadsense.methods.factor.starts import descent_row, random_start, spectral_start
from quadsense.methods.factor.state import FactoredState, Phase

# Normal equations are formed up to this many unknowns and entries of J, and up to so many flops
# where rows are ample and a dozen quasi-Newton steps serve as well.
_DENSE_UNKNOWNS, _DENSE_ENTRIES, _DENSE_FLOPS = 1000, 500_000, 5e7
# Flops of a step so cheap that restarts are not spared.
_CHEAP_FLOPS = 1e6
# Ranks, stages, steps a stage and penalties of a lift.
_LIFT, _LIFT_STAGES, _LIFT_STEPS = 2, 8, 20
_LIFT_PENALTY, _LIFT_GROWTH = 1e-3, 3.0
# The hinge aims a little inside the tolerances, to get there in finitely many steps.
_HINGE = 0.95
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-2, 1e-12, 1e8
_DAMPING_FACTOR = 5.0
# Least scale of damping, as a share of the mean scale; a lift damps all rows alike.
_SCALE_FLOOR, _SCALE_FLOOR_LIFT = 1e-3, 1.0
# A stage ends when this many steps in a row gain less than this share of the loss.
_SLOW_GAIN, _SLOW_GAIN_LIFT = 1e-4, 1e-3
_SLOW_STEPS_DENSE, _SLOW_STEPS = 1, 5
_PHASE_STEPS = 2000
# With this many rows an unknown, plain descent mostly finds the fit of the right rank if there
# is one, so a growing rank wastes no restarts below it, and a given one not many.
_AMPLE_ROWS = 4
# Eigenvalue, relative to its matrix, that counts as not negative when the rank grows.
_FLAT = 1e-6


def prepare(
    U: Matrix, b: Vector, delta: Vector, rank: int | None, *, low_precision: bool = True
) -> Program:
    """Collect what the fit reads.

    Parameters
    ----------
    U : (m, n) array, float64 or complex128
        Rows of unit norm.
    b, delta : (m,) float64
        Readings and tolerances (> 0).
    rank : int or None
        Asked rank; None when it is to grow.
    low_precision : bool
        Whether a single-precision copy of U, half its size, may be made for the products
        of quasi-Newton steps; claims and refinement use double precision either way.
    """
    weight = (float(delta.min()) / delta) ** 2
    low: Matrix | None = None
    if low_precision and not _is_dense(U, (rank or 1) + _LIFT):
        low = U.astype(np.complex64 if np.iscomplexobj(U) else np.float32, order="C")
    return Program(U, b, delta, weight, low)


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
        Default 200; 20 where rows are ample and steps are not cheap; 3 at each rank when it grows.
    factor : (n, k) array, optional
        X of an earlier ``A = X X*``.
    """
    first_rank = rank if rank is not None else 1 if factor is None else factor.shape[1]
    if max_restarts is None:
        max_restarts = 3 if rank is None else _default_restarts(problem.U, rank)
    rng = np.random.default_rng((seed, 0))
    if factor is None:
        Y = spectral_start(problem, first_rank, rng)
    else:
        Y = np.asarray(factor.T, dtype=problem.U.dtype)
        Y = (principal_axes(Y) @ Y)[:first_rank]
        missing = first_rank - len(Y)
        if missing > 0:
            # Rows of zeros would stay so: the loss has no slope in them.
            Y = np.concatenate([Y, 0.1 * random_start(problem, missing, rng)])
    point = evaluate(problem, principal_axes(Y) @ Y, 0.0)
    state = FactoredState(
        rank=first_rank,
        growing=rank is None,
        max_restarts=max_restarts,
        seed=seed,
        phase=Phase.SQUARES,
        point=point,
        best=point.Y,
        max_ratio=np.inf,
        damping=_FIRST_DAMPING,
        passes=1,
    )
    return _noted(state)


def advance(problem: Program, state: FactoredState, steps: int) -> FactoredState:
    """Take at most ``steps`` descent steps; fewer when the fit is finished."""
    for _ in range(steps):
        if state.finished:
            break
        state = _step(problem, state)
    return state


def factor(state: FactoredState) -> Matrix:
    """Return X (n, k) of the best ``A = X X*`` so far."""
    X: Matrix = state.best.T
    return X


def farkas_vector(problem: Program, state: FactoredState) -> Vector:
    """Return y with, nearly, ``F*(y) >= 0`` and ``y.b < -sum |y_i| delta_i``.

    Meaningful when ``no_rank_fits``: y is then the slope of the distance to the
    tolerances at its minimum over all PSD matrices; a certificate checks and repairs it.
    """
    y: Vector = problem.weight * evaluate(problem, state.best, 1.0).excess
    return y


def _is_dense(U: Matrix, rank: int) -> bool:
    m, size = len(U), _unknowns(U, rank)
    quick = m * size * size <= _DENSE_FLOPS or not _rows_are_ample(U, rank)
    return size <= _DENSE_UNKNOWNS and m * size <= _DENSE_ENTRIES and quick


def _theta(phase: Phase) -> float:
    return _HINGE if phase is Phase.HINGE else 0.0


def _step(problem: Program, state: FactoredState) -> FactoredState:
    """Take one step; on a stall go to the next stage, phase, attempt or rank."""
    point, lifted = state.point, state.phase is Phase.LIFT
    penalty = _penalty(problem, state)
    dense = _is_dense(problem.U, len(point.Y))
    if dense:
        floor = _SCALE_FLOOR_LIFT if lifted else _SCALE_FLOOR
        D = gauss_newton_step(problem, point, penalty, state.damping, floor)
        Y = point.Y + D
        trial = evaluate(problem, principal_axes(Y) @ Y, _theta(state.phase))
        memory, passes = state.memory, 2
    else:
        trial, memory, passes = quasi_newton_step(
            problem, point, penalty, _theta(state.phase), state.memory
        )
        if lifted:
            trial, memory = _rotated(trial, memory)
    before = point.value + _penalty_value(penalty, point.Y)
    after = trial.value + _penalty_value(penalty, trial.Y)
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
    state = _noted(state)
    stalled = (
        state.slow_steps >= (_SLOW_STEPS_DENSE if dense else _SLOW_STEPS)
        or state.damping > _MOST_DAMPING
        or state.stage_steps >= (_LIFT_STEPS if lifted and dense else _PHASE_STEPS)
    )
    return _next(problem, state) if stalled and not state.finished else state


def _rotated(
    point: Point, memory: tuple[tuple[Matrix, Matrix], ...]
) -> tuple[Point, tuple[tuple[Matrix, Matrix], ...]]:
    """Turn a point and the memory to principal axes, which the penalty of a lift needs."""
    axes = principal_axes(point.Y)
    turned = replace(point, Y=axes @ point.Y, P=point.P @ axes.T, gradient=axes @ point.gradient)
    return turned, tuple((axes @ move, axes @ change) for move, change in memory)


def _penalty(problem: Program, state: FactoredState) -> Vector:
    """Return the penalty of each row of the current factor: zero but for a lift's extra."""
    penalty = np.zeros(len(state.point.Y))
    if state.phase is Phase.LIFT:
        trace = problem.U.shape[1] * float(np.mean(np.abs(problem.b)))
        # In this unit the penalty of a whole A weighs as much as the misfit of zero.
        unit = float(np.dot(problem.weight, problem.b**2)) / trace
        penalty[state.rank :] = _LIFT_PENALTY * _LIFT_GROWTH**state.stage * unit
    return penalty


def _penalty_value(penalty: Vector, Y: Matrix) -> float:
    return 0.5 * float(np.dot(penalty, np.sum(np.abs(Y) ** 2, axis=1)))


def _noted(state: FactoredState) -> FactoredState:
    """Keep the point as the best if it is one of the asked rank; finish if it fits."""
    point = state.point
    if len(point.Y) > state.rank or not point.ratio < state.max_ratio:
        return state
    phase = Phase.MET if point.ratio <= 1.0 else state.phase
    return replace(state, best=point.Y, max_ratio=point.ratio, phase=phase)


def _next(problem: Program, state: FactoredState) -> FactoredState:
    """Leave a stalled stage for what follows it."""
    if state.phase is Phase.LIFT:
        if state.stage + 1 < _LIFT_STAGES:
            return replace(state, stage=state.stage + 1, stage_steps=0, slow_steps=0, memory=())
        return _at(problem, state, state.point.Y[: state.rank], Phase.SQUARES)
    # The maintained residuals of quasi-Newton steps are renewed before they are judged.
    state = _noted(replace(state, point=evaluate(problem, state.point.Y, 0.0)))
    mean_square = float(np.mean((state.point.z / problem.delta) ** 2))
    if state.finished:
        return state
    if state.phase is Phase.SQUARES and mean_square <= 1.0:
        return _at(problem, state, state.point.Y, Phase.HINGE)
    if state.restarts < _restarts_allowed(problem, state):
        return _restart(problem, state)
    return _grow(problem, state) if state.growing else replace(state, phase=Phase.EXHAUSTED)


def _at(problem: Program, state: FactoredState, Y: Matrix, phase: Phase) -> FactoredState:
    """Begin a phase at a factor, with fresh damping and memory."""
    state = replace(
        state,
        phase=phase,
        point=evaluate(problem, principal_axes(Y) @ Y, _theta(phase)),
        damping=_FIRST_DAMPING,
        memory=(),
        stage=0,
        stage_steps=0,
        slow_steps=0,
        passes=state.passes + 1,
    )
    return _noted(state)


def _default_restarts(U: Matrix, rank: int) -> int:
    cheap = len(U) * _unknowns(U, rank + _LIFT) ** 2 <= _CHEAP_FLOPS
    return 20 if _rows_are_ample(U, rank) and not cheap else 200


def _restarts_allowed(problem: Program, state: FactoredState) -> int:
    ample = _rows_are_ample(problem.U, state.rank)
    return 0 if state.growing and ample else state.max_restarts


def _unknowns(U: Matrix, rank: int) -> int:
    return U.shape[1] * rank * (2 if np.iscomplexobj(U) else 1)


def _rows_are_ample(U: Matrix, rank: int) -> bool:
    return len(U) >= _AMPLE_ROWS * _unknowns(U, rank)


def _restart(problem: Program, state: FactoredState) -> FactoredState:
    """Begin the next attempt: a lift from a random factor."""
    starts = state.starts + 1
    rng = np.random.default_rng((state.seed, starts))
    Y = random_start(problem, state.rank + _LIFT, rng)
    state = replace(state, restarts=state.restarts + 1, starts=starts)
    return _at(problem, state, Y, Phase.LIFT)


def _grow(problem: Program, state: FactoredState) -> FactoredState:
    """Add the steepest direction to the best factor, or end where there is none."""
    row, curvature = descent_row(problem, evaluate(problem, state.best, 0.0))
    if curvature > -_FLAT or state.rank >= problem.U.shape[1]:
        return replace(state, phase=Phase.EXHAUSTED, no_rank_fits=curvature > -_FLAT)
    state = replace(state, rank=state.rank + 1, restarts=0, passes=state.passes + 1)
    return _at(problem, state, np.concatenate([state.best, row]), Phase.SQUARES)
