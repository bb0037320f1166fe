"""What follows a stalled stage of a factored fit: a phase, another attempt, a rank, an end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quadsense.measurements.mixed import Mixed
from quadsense.methods.factor.choice import LIFT, rows_are_ample
from quadsense.methods.factor.gauss_newton import principal_axes
from quadsense.methods.factor.passes import Point, evaluate, rounding_share, within_rounding
from quadsense.methods.factor.program import Matrix, Program
from quadsense.methods.factor.starts import descent_row, random_start
from quadsense.methods.factor.state import FactoredState, Phase

LIFT_STAGES = 8
"""Stages of a lift, each with a larger penalty."""

FIRST_DAMPING = 1e-2
"""Damping of the first Gauss-Newton step of a phase."""

# The hinge aims a little inside the tolerances, to get there in finitely many steps.
_HINGE = 0.95
# Share of the tolerance that rounding may take before a stall is put down to it.
_BLURRED = 0.5
# Eigenvalue, relative to its matrix, that counts as not negative when the rank grows.
_FLAT = 1e-6
# How many times the usual trace any fit would need before none is believed to exist.
_TRACES = 100.0


def noted(state: FactoredState) -> FactoredState:
    """Keep the point as the best if it is one of the asked rank; finish if it fits."""
    point = state.point
    if len(point.Y) > state.rank or not point.ratio < state.max_ratio:
        return state
    phase = Phase.MET if point.ratio <= state.goal else state.phase
    return replace(state, best=point.Y, max_ratio=point.ratio, phase=phase)


def next_phase(problem: Program, state: FactoredState) -> FactoredState:
    """Leave a stalled stage for what follows it."""
    if state.phase is Phase.LIFT:
        if state.stage + 1 < LIFT_STAGES:
            return replace(state, stage=state.stage + 1, stage_steps=0, slow_steps=0, memory=())
        return begin(problem, state, state.point.Y[: state.rank], Phase.SQUARES)
    # The maintained residuals of quasi-Newton steps are renewed before they are judged.
    state = noted(replace(state, point=evaluate(problem, state.point.Y, state.theta)))
    if state.finished:
        return state
    if state.phase is Phase.SQUARES and state.point.value < state.least:
        state = replace(state, least=state.point.value, anchor=state.point.Y)
    blur = rounding_share(problem, state.point.Y)
    if blur >= _BLURRED and within_rounding(problem, state.point, state.goal):
        return replace(state, phase=Phase.ROUNDED, best=state.point.Y, blur=blur)
    if state.phase is Phase.SQUARES and blur < state.goal:
        mean_square = float(np.mean((state.point.z * problem.inverse) ** 2))
        if mean_square <= state.goal**2:
            return begin(problem, state, state.point.Y, Phase.HINGE)
    if _is_hopeless(problem, state):
        return _exhausted(problem, state, no_rank_fits=True)
    if state.restarts < _restarts_allowed(problem, state):
        return _restart(problem, state)
    return _grow(problem, state) if state.growing else _exhausted(problem, state)


def _is_hopeless(problem: Program, state: FactoredState) -> bool:
    """Whether no PSD matrix of any rank seems to fit, as the first attempt can tell."""
    sums = isinstance(problem.F, Mixed)  # which may well be negative
    negative = float(np.min(problem.b + problem.delta)) < 0.0 or float(np.max(problem.b)) <= 0.0
    if negative and not sums:
        return True  # an interval of negative numbers, or zero is the best fit
    if state.starts > 0 or state.growing:
        return False
    point = evaluate(problem, state.anchor, 0.0)
    return _shows_infeasible(problem, point, descent_row(problem, point)[1])


def _shows_infeasible(problem: Program, point: Point, smallest: float) -> bool:
    """Whether the slope y at a point shows that no PSD matrix of usual size fits.

    With ``smallest`` the least eigenvalue of ``F*(y)``, every A that fits has
    ``-(y.b + sum |y_i| delta_i) <= -smallest tr(A)``.
    """
    y = problem.weight * point.excess
    margin = -float(np.dot(y, problem.b) + np.dot(np.abs(y), problem.delta))
    usual = problem.F.n * float(np.max(np.abs(problem.b) + problem.delta))
    return margin > 0.0 and margin >= -smallest * _TRACES * usual


def _exhausted(problem: Program, state: FactoredState, no_rank_fits: bool = False) -> FactoredState:
    blur = rounding_share(problem, state.best)
    return replace(state, phase=Phase.EXHAUSTED, blur=blur, no_rank_fits=no_rank_fits)


def begin(problem: Program, state: FactoredState, Y: Matrix, phase: Phase) -> FactoredState:
    """Begin a phase at a factor, with fresh damping and memory."""
    theta = 0.0
    if phase is Phase.HINGE:  # aim inside what rounding leaves of the tolerances
        theta = _HINGE * max(state.goal - rounding_share(problem, Y), 0.0)
    state = replace(
        state,
        phase=phase,
        theta=theta,
        point=evaluate(problem, principal_axes(Y) @ Y, theta),
        damping=FIRST_DAMPING,
        memory=(),
        stage=0,
        stage_steps=0,
        slow_steps=0,
        passes=state.passes + 1,
    )
    return noted(state)


def _restarts_allowed(problem: Program, state: FactoredState) -> int:
    ample = rows_are_ample(problem.F, state.rank)
    return 0 if state.growing and ample else state.max_restarts


def _restart(problem: Program, state: FactoredState) -> FactoredState:
    """Begin the next attempt: a lift from a random factor."""
    starts = state.starts + 1
    rng = np.random.default_rng((state.seed, starts))
    Y = random_start(problem, state.rank + LIFT, rng)
    state = replace(state, restarts=state.restarts + 1, starts=starts)
    return begin(problem, state, Y, Phase.LIFT)


def _grow(problem: Program, state: FactoredState) -> FactoredState:
    """Add the steepest direction to the factor of least squares, or end where there is none."""
    point = evaluate(problem, state.anchor, 0.0)
    row, value, curvature = descent_row(problem, point)
    if curvature > -_FLAT or state.rank >= problem.F.n:
        hopeless = _shows_infeasible(problem, point, value)
        return _exhausted(problem, state, no_rank_fits=hopeless)
    state = replace(state, rank=state.rank + 1, restarts=0, passes=state.passes + 1, least=np.inf)
    return begin(problem, state, np.concatenate([state.anchor, row]), Phase.SQUARES)
