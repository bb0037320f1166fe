"""Least squares of a factored fit brought to rest: its last digits."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from quadsense.methods.factor.equalities import (
    SINGULAR,
    Held,
    blocking,
    derivative,
    moved_onto,
    to_hold,
)
from quadsense.methods.factor.gauss_newton import turned
from quadsense.methods.factor.newton import flat, newton_step
from quadsense.methods.factor.passes import Point, evaluate, rounding_bound
from quadsense.methods.factor.program import Program
from quadsense.watch import look

# Unknowns, and entries of a derivative, up to which equations are formed.
_MOST_UNKNOWNS, _MOST_ENTRIES = 1000, 5_000_000
# Slope of least squares, in units of what bounds it, that counts as none, and the one that is aimed
# at.
_FLAT, _AIM = 1e-6, 1e-9
# Share of the loss below which rounding hides a gain: then the slope decides.
_HIDDEN = 1e-13
# Steps of least squares on equalities, and how short one may be.
_STEPS, _SHORTEST = 50, 1e-3
# Bounds on the rounding of a residual up to which it is one: the factor's own rounding beside that.
_ROUNDINGS = 4.0
# How often a constraint is held beside the others, or let go.
_ROUNDS = 12


def settled(problem: Program, point: Point) -> Point:
    """Return a point of no larger least squares among those that meet the equalities, at rest.

    Notes
    -----
    Penalties bring least squares near equalities only, and Gauss-Newton steps creep where much is
    left over. From there Newton steps that keep the equalities to first order, each followed by
    Newton's method on these, lead to where no slope is left that they do not hold.
    """
    held = to_hold(problem, point)
    size = point.Y.size * (2 if np.iscomplexobj(point.Y) else 1)
    if size > _MOST_UNKNOWNS or size * max(problem.F.m, problem.F.raw.m) > _MOST_ENTRIES:
        return point if held is None else moved_onto(problem, point, held, 0.0)
    best: Point | None = None
    for _ in range(_ROUNDS):
        free, loss = problem, point
        if held is not None:
            point, free = moved_onto(problem, point, held, 0.0), _without(problem, held)
            loss = evaluate(free, point.Y, 0.0)
        point, loss, rests = _with_idle_rows_dropped(problem, free, point, loss, held)
        best = point if best is None or point.value < best.value else best
        if rests:
            if held is None or _pressed_stillness(free, loss, held) <= _FLAT:
                return point
            wrong = _wrongly_held(free, loss, held)
            if wrong is None:
                break
            held = held.without(wrong)
        else:
            more = blocking(problem, point, newton_step(free, loss, held), held)
            if more is None:
                break
            held = more
    return point if best is None else best


def _with_idle_rows_dropped(
    problem: Program, free: Program, point: Point, loss: Point, held: Held | None
) -> tuple[Point, Point, bool]:
    """Return what `_rested` does, rows of Y that keep it from rest being dropped one by one."""
    for _ in range(len(point.Y) + 1):
        point, loss, rests = _rested(problem, free, point, loss, held)
        dropped = None if rests else _without_idle_rows(problem, free, point, loss, held)
        if dropped is None:
            break
        point, loss = dropped
    return point, loss, rests


def _rested(
    problem: Program, free: Program, point: Point, loss: Point, held: Held | None
) -> tuple[Point, Point, bool]:
    """Return the point after Newton steps, what it costs beside the held, and whether it rests."""
    for _ in range(_STEPS):
        slope = _stillness(free, loss, held)
        if slope <= _AIM or fits_exactly(free, loss):
            return point, loss, True
        look()
        D = newton_step(free, loss, held)
        length, better = 1.0, None
        while better is None and length >= _SHORTEST:
            trial = evaluate(problem, turned(problem, point.Y + length * D), 0.0)
            if held is not None:
                trial = moved_onto(problem, trial, held, 0.0)
            beside = trial if held is None else evaluate(free, trial.Y, 0.0)
            hidden = abs(beside.value - loss.value) <= _HIDDEN * loss.value
            if _stillness(free, beside, held) < slope if hidden else beside.value < loss.value:
                better = (trial, beside)
            length /= 2.0
        if better is None:
            break
        point, loss = better
    return point, loss, False


def _without_idle_rows(
    problem: Program, free: Program, point: Point, loss: Point, held: Held | None
) -> tuple[Point, Point] | None:
    """Return the same without rows of Y that the loss is no worse without; None: there are none.

    Such a row goes to zero ever more slowly, and its slope, in units of it, stays what it is: zero
    itself is the place of rest.
    """
    shrinks = np.flatnonzero(np.sum((loss.gradient * loss.Y.conj()).real, axis=1) > 0.0)
    for rows in (shrinks, *shrinks) if shrinks.size else ():
        Y = point.Y.copy()
        Y[rows] = 0.0
        trial = evaluate(problem, Y, 0.0)
        if held is not None:
            trial = moved_onto(problem, trial, held, 0.0)
            miss = np.abs(held.goal - trial.z[held.index])
            if np.any(miss > rounding_bound(problem, trial.Y)[held.index]):
                continue
        beside = trial if held is None else evaluate(free, trial.Y, 0.0)
        if beside.value <= loss.value:
            return trial, beside
    return None


def is_settled(problem: Program, point: Point) -> bool:
    """Whether least squares is at rest: no slope, or no residual, but what is rounding.

    Equalities are held by forces of their own: what of the slope these can balance is none.
    """
    if fits_exactly(problem, point):
        return True
    held = to_hold(problem, point)
    if held is None:
        return _stillness(problem, point, None) <= _FLAT
    free = _without(problem, held)
    return _pressed_stillness(free, evaluate(free, point.Y, 0.0), held) <= _FLAT


def fits_exactly(problem: Program, point: Point) -> bool:
    """Whether no residual is more than rounding: that of its evaluation, and of the factor."""
    return bool(np.all(np.abs(point.excess) <= _ROUNDINGS * rounding_bound(problem, point.Y)))


def _without(problem: Program, held: Held) -> Program:
    """Return the problem with what is held weighing nothing."""
    weight = problem.weight.copy()
    weight[held.index] = 0.0
    most = float(weight.max())
    return problem if not most > 0.0 else problem.weighed(weight / most)


def _stillness(problem: Program, point: Point, held: Held | None) -> float:
    """Return the slope of the loss in units of what bounds it, by Cauchy and Schwarz.

    Not of its terms alone: where a reading cannot be reached, and the factor reads next to nothing
    there, the one term that is left vanishes with it.
    """
    slope = flat(point.gradient)
    if held is not None:
        E = derivative(problem, point, held.index)
        slope = slope - E.T @ np.linalg.lstsq(E.T, slope, rcond=SINGULAR)[0]
    return _in_units(problem, point, float(np.linalg.norm(slope)))


def _in_units(problem: Program, point: Point, slope: float) -> float:
    """Return the size of a slope in units of what bounds it, less what rounding makes of it.

    Where a factor is one that no row sees, what it reads is rounding, and so is the slope.
    """
    pulls = 2.0 * float(np.linalg.norm(problem.F.unmixed(problem.weight * point.excess)))
    eps = float(np.finfo(np.float64).eps)
    blur = _ROUNDINGS * point.Y.shape[1] * eps * pulls * float(np.linalg.norm(point.Y))
    return max(slope - blur, 0.0) / (pulls * float(np.linalg.norm(point.P)) or 1.0)


def _wrongly_held(problem: Program, point: Point, held: Held) -> int | None:
    """Return which of the held ends the loss would rather leave inwards, most so; None: none."""
    E = derivative(problem, point, held.index)
    forces = np.linalg.lstsq(E.T, flat(point.gradient), rcond=SINGULAR)[0]
    gains = held.side * forces * np.linalg.norm(E, axis=1)
    wrong = int(np.argmax(gains))
    return wrong if gains[wrong] > 0.0 else None


def _pressed_stillness(problem: Program, point: Point, held: Held) -> float:
    """Return what `_stillness` does where ends can push inwards only."""
    ends = held.side != 0.0
    if not ends.any():
        return _stillness(problem, point, held)
    E, slope = derivative(problem, point, held.index), flat(point.gradient)
    pushes = (-held.side[ends, None] * E[ends]).T
    if not ends.all():
        same = E[~ends].T
        slope = slope - same @ np.linalg.lstsq(same, slope, rcond=SINGULAR)[0]
        pushes = pushes - same @ np.linalg.lstsq(same, pushes, rcond=SINGULAR)[0]
    sizes = np.linalg.norm(pushes, axis=0)
    unit = float(np.linalg.norm(slope)) or 1.0
    left = nnls(pushes / np.where(sizes > 0.0, sizes, 1.0), slope / unit)[1]
    return _in_units(problem, point, float(left) * unit)
