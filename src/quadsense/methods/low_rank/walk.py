"""Steps of the least squares of a factor, along what must hold, until it rests or creeps."""

from __future__ import annotations

import numpy as np

from quadsense.methods.low_rank.equalities import Held, blocking, moved_onto
from quadsense.methods.low_rank.gauss_newton import turned
from quadsense.methods.low_rank.newton import model_of, newton_step
from quadsense.methods.low_rank.passes import Point, evaluate
from quadsense.methods.low_rank.program import Matrix, Program
from quadsense.methods.low_rank.stillness import fits_exactly, stillness
from quadsense.methods.low_rank.trust import Trusted
from quadsense.system.watch import look

AIM = 1e-9
"""Slope of least squares, in units of what bounds it, that is aimed at."""

HIDDEN = 1e-13
"""Share of the loss below which rounding hides a gain: then the slope decides."""

# Newton steps, and how short one may be.
_STEPS, _SHORTEST = 50, 1e-3
# Trusted steps, the first radius of these and the least, in units of the factor.
_WALK, _FIRST, _LEAST = 200, 0.1, 1e-12
# Trusted steps after which the slope is to have fallen to a share, or the loss.
_STRIDE, _FALL, _GAIN = 25, 0.5, 0.999
# Shares of what the model promises below which its radius is shrunk, and above which it grows.
_BELIED, _TRUE, _SHRINK = 0.25, 0.75, 0.25
# Lengths, in units of the factor, at which a step is looked at for what is in its way.
_RADII = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


def after_newton(
    problem: Program, free: Program, point: Point, loss: Point, held: Held | None
) -> tuple[Point, Point, bool]:
    """Return the point after Newton steps, its cost besides the held rows, and if it is at rest."""
    for _ in range(_STEPS):
        slope = stillness(free, loss, held)
        if slope <= AIM or fits_exactly(free, loss):
            return point, loss, True
        look()
        D = newton_step(free, loss, held)
        length, better = 1.0, None
        while better is None and length >= _SHORTEST:
            trial, beside = _moved(problem, free, point.Y + length * D, held)
            if _is_better(free, beside, loss, held, slope):
                better = (trial, beside)
            length /= 2.0
        if better is None:
            break
        point, loss = better
    return point, loss, False


def after_walk(
    problem: Program, free: Program, point: Point, loss: Point, held: Held | None
) -> tuple[Point, Point, bool]:
    """Return the same after steps of the quadratic model within a radius that its truth decides.

    They lead on where Newton's do not: where curvatures are of either sign, or none.
    """
    unit = float(np.linalg.norm(point.Y)) or 1.0
    radius, slope = _FIRST * unit, stillness(free, loss, held)
    model, mark = None, (np.inf, np.inf)
    for count in range(_WALK):
        if slope <= AIM:
            return point, loss, True
        if radius < _LEAST * unit:
            break
        if count % _STRIDE == 0:
            if slope > _FALL * mark[0] and loss.value > _GAIN * mark[1]:
                break
            mark = (slope, loss.value)
        if model is None:
            model = model_of(free, loss, held)
            if not model.right.size:  # what is held leaves nothing free
                break
            look(10.0 * len(model.right) ** 3)
            trusted = Trusted(model.right, model.curved)
        x, gain = trusted.step(radius)
        trial, beside = _moved(problem, free, point.Y + model.step(point, x), held)
        true = loss.value - beside.value
        length = float(np.linalg.norm(x))
        if true < _BELIED * gain:
            radius = _SHRINK * length
        elif true > _TRUE * gain and length > 0.9 * radius:
            radius /= _SHRINK
        if _is_better(free, beside, loss, held, slope):
            point, loss, model = trial, beside, None
            slope = stillness(free, loss, held)
    return point, loss, False


def next_in_the_way(
    problem: Program, free: Program, point: Point, loss: Point, held: Held | None
) -> Held | None:
    """Return what `blocking` does for the shortest trusted step that anything is in the way of."""
    if problem.bounds is None:
        return None
    model = model_of(free, loss, held)
    if not model.right.size:
        return None
    look(10.0 * len(model.right) ** 3)
    trusted, unit = Trusted(model.right, model.curved), float(np.linalg.norm(point.Y)) or 1.0
    for radius in _RADII:
        step = model.step(point, trusted.step(radius * unit)[0])
        more = blocking(problem, point, step, held)
        if more is not None:
            return more
    return None


def _moved(problem: Program, free: Program, Y: Matrix, held: Held | None) -> tuple[Point, Point]:
    """Return the point there, moved onto what is held, and what it costs besides that."""
    trial = evaluate(problem, turned(problem, Y), 0.0)
    if held is None:
        return trial, trial
    trial = moved_onto(problem, trial, held, 0.0)
    return trial, evaluate(free, trial.Y, 0.0)


def _is_better(free: Program, trial: Point, loss: Point, held: Held | None, slope: float) -> bool:
    """Whether the loss is less, or, where rounding hides that, its slope."""
    hidden = abs(trial.value - loss.value) <= HIDDEN * loss.value
    return stillness(free, trial, held) < slope if hidden else trial.value < loss.value
