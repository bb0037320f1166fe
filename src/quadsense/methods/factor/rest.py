"""Least squares of a factored fit brought to rest: its last digits."""

from __future__ import annotations

import numpy as np

from quadsense.methods.factor.equalities import (
    SINGULAR,
    Held,
    blocking,
    derivative,
    moved_onto,
    to_hold,
)
from quadsense.methods.factor.gauss_newton import Indices, turned
from quadsense.methods.factor.newton import flat, model_of, newton_step
from quadsense.methods.factor.passes import Point, evaluate, rounding_bound
from quadsense.methods.factor.program import Matrix, Program
from quadsense.methods.factor.stillness import (
    MOST_ENTRIES,
    beside_held,
    fits_exactly,
    rests,
    stillness,
)
from quadsense.methods.factor.trust import Trusted
from quadsense.watch import look

# Unknowns up to which equations are formed.
_MOST_UNKNOWNS = 1000
# Slope of least squares, in units of what bounds it, that is aimed at.
_AIM = 1e-9
# Share of the loss below which rounding hides a gain: then the slope decides.
_HIDDEN = 1e-13
# Steps of least squares on equalities, and how short one may be.
_STEPS, _SHORTEST = 50, 1e-3
# Trusted steps, the first radius of these and the least, in units of the factor.
_WALK, _FIRST, _LEAST = 200, 0.1, 1e-12
# Trusted steps after which the slope is to have fallen to a share, or the loss.
_STRIDE, _FALL, _GAIN = 25, 0.5, 0.999
# Shares of what the model promises below which its radius is shrunk, and above which it grows.
_BELIED, _TRUE, _SHRINK = 0.25, 0.75, 0.25
# Residual, where readings are at most 1, that is next to none; how much more a row weighs that
# outweighs others; and how often what it is to read is found anew.
_NO_RESIDUAL, _HEAVIER, _HEAVY_ROUNDS = 1e-5, 1e3, 4
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
    if size > _MOST_UNKNOWNS or size * max(problem.F.m, problem.F.raw.m) > MOST_ENTRIES:
        return point if held is None else moved_onto(problem, point, held, 0.0)
    best: Point | None = None
    for _ in range(_ROUNDS):
        free, loss = problem, point
        if held is not None:
            point, free = moved_onto(problem, point, held, 0.0), beside_held(problem, held)
            loss = evaluate(free, point.Y, 0.0)
        point, loss, still = _with_idle_rows_dropped(problem, free, point, loss, held)
        more = None if still else blocking(problem, point, newton_step(free, loss, held), held)
        if not still and more is None:
            point, loss, still = _after_walk(problem, free, point, loss, held)
            if not still:
                point, loss, still = _with_heavy_rows_held(problem, free, point, loss, held)
        best = point if best is None or point.value < best.value else best
        if still:
            if held is None or rests(free, loss, held):
                return point
            wrong = _wrongly_held(free, loss, held)
            if wrong is None:
                break
            held = held.without(wrong)
        elif more is None:
            break
        else:
            held = more
    return point if best is None else best


def _with_idle_rows_dropped(
    problem: Program, free: Program, point: Point, loss: Point, held: Held | None
) -> tuple[Point, Point, bool]:
    """Return what `_after_newton` does, rows of Y that keep it from rest dropped one by one."""
    for _ in range(len(point.Y) + 1):
        point, loss, still = _after_newton(problem, free, point, loss, held)
        dropped = None if still else _without_idle_rows(problem, free, point, loss, held)
        if dropped is None:
            break
        point, loss = dropped
    return point, loss, still


def _with_heavy_rows_held(
    problem: Program, free: Program, point: Point, loss: Point, held: Held | None
) -> tuple[Point, Point, bool]:
    """Return the same, rows that outweigh all others being held at what these leave.

    Their digits would drown what the others ask for: of these alone a slope is known. What their
    pull is to balance says where the heavy ones come to rest.
    """
    heavy = _heavy_rows(free, loss, held)
    goal = loss.z[heavy]
    for _ in range(_HEAVY_ROUNDS if heavy.size else 0):
        both = Held(heavy, goal, np.zeros(heavy.size))
        if held is not None:
            both = both.beside(held)
        light = beside_held(free, both)
        found = moved_onto(problem, point, both, 0.0)
        beside = evaluate(light, found.Y, 0.0)
        found, beside, still = _after_newton(problem, light, found, beside, both)
        if not still:
            found, beside, still = _after_walk(problem, light, found, beside, both)
        after = found if held is None else evaluate(free, found.Y, 0.0)
        if after.value > loss.value * (1.0 + _HIDDEN):
            break
        point, loss = found, after
        if rests(free, loss, held):
            return point, loss, True
        E = derivative(problem, found, both.index)
        forces = -np.linalg.lstsq(E.T, flat(beside.gradient), rcond=SINGULAR)[0][: heavy.size]
        unit = float(np.max(np.delete(free.weight, both.index), initial=0.0)) or 1.0
        goal = forces * unit / free.weight[heavy]
    return point, loss, False


def _heavy_rows(problem: Program, loss: Point, held: Held | None) -> Indices:
    """Return rows of next to no residual that weigh far more than all that have some."""
    small = np.abs(loss.excess) <= _NO_RESIDUAL
    most = float(np.max(problem.weight[~small], initial=0.0))
    heavy = small & (problem.weight > _HEAVIER * most) & (problem.weight > 0.0)
    if held is not None:
        heavy[held.index] = False
    return np.flatnonzero(heavy) if most > 0.0 else np.flatnonzero(heavy)[:0]


def _after_newton(
    problem: Program, free: Program, point: Point, loss: Point, held: Held | None
) -> tuple[Point, Point, bool]:
    """Return the point after Newton steps, what it costs beside the held, and whether it rests."""
    for _ in range(_STEPS):
        slope = stillness(free, loss, held)
        if slope <= _AIM or fits_exactly(free, loss):
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


def _after_walk(
    problem: Program, free: Program, point: Point, loss: Point, held: Held | None
) -> tuple[Point, Point, bool]:
    """Return the same after steps of the quadratic model within a radius that its truth decides.

    They lead on where Newton's do not: where curvatures are of either sign, or none.
    """
    unit = float(np.linalg.norm(point.Y)) or 1.0
    radius, slope = _FIRST * unit, stillness(free, loss, held)
    model, mark = None, (np.inf, np.inf)
    for count in range(_WALK):
        if slope <= _AIM:
            return point, loss, True
        if radius < _LEAST * unit:
            break
        if count % _STRIDE == 0:
            if slope > _FALL * mark[0] and loss.value > _GAIN * mark[1]:
                break
            mark = (slope, loss.value)
        if model is None:
            model = model_of(free, loss, held)
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


def _moved(problem: Program, free: Program, Y: Matrix, held: Held | None) -> tuple[Point, Point]:
    """Return the point there, moved onto what is held, and what it costs beside that."""
    trial = evaluate(problem, turned(problem, Y), 0.0)
    if held is None:
        return trial, trial
    trial = moved_onto(problem, trial, held, 0.0)
    return trial, evaluate(free, trial.Y, 0.0)


def _is_better(free: Program, trial: Point, loss: Point, held: Held | None, slope: float) -> bool:
    """Whether the loss is less, or, where rounding hides that, its slope."""
    hidden = abs(trial.value - loss.value) <= _HIDDEN * loss.value
    return stillness(free, trial, held) < slope if hidden else trial.value < loss.value


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


def _wrongly_held(problem: Program, point: Point, held: Held) -> int | None:
    """Return which of the held ends the loss would rather leave inwards, most so; None: none."""
    E = derivative(problem, point, held.index)
    forces = np.linalg.lstsq(E.T, flat(point.gradient), rcond=SINGULAR)[0]
    gains = held.side * forces * np.linalg.norm(E, axis=1)
    wrong = int(np.argmax(gains))
    return wrong if gains[wrong] > 0.0 else None
