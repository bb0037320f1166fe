"""Least squares of a factored fit brought to rest: its last digits."""

from __future__ import annotations

import numpy as np

from quadsense.methods.low_rank.equalities import (
    SINGULAR,
    Held,
    blocking,
    derivative,
    moved_onto,
    pressing,
    to_hold,
)
from quadsense.methods.low_rank.gauss_newton import Indices
from quadsense.methods.low_rank.newton import flat, newton_step
from quadsense.methods.low_rank.passes import Point, evaluate, rounding_bound
from quadsense.methods.low_rank.program import Program
from quadsense.methods.low_rank.stillness import (
    MOST_ENTRIES,
    beside_held,
    rests,
    stillness,
)
from quadsense.methods.low_rank.walk import (
    AIM,
    HIDDEN,
    after_newton,
    after_walk,
    next_in_the_way,
)

# Unknowns up to which equations are formed.
_MOST_UNKNOWNS = 1000
# Residual, where readings are at most 1, that is next to none; how much more a row weighs that
# outweighs others; and how often what it is to read is found anew.
_NO_RESIDUAL, _HEAVIER, _HEAVY_ROUNDS = 1e-5, 1e3, 4
# How often a constraint is added to those held, or let go.
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
    released: set[int] = set()
    for _ in range(_ROUNDS):
        free, loss = problem, point
        if held is not None:
            point, free = moved_onto(problem, point, held, 0.0), beside_held(problem, held)
            loss = evaluate(free, point.Y, 0.0)
        point, loss, still = _with_idle_rows_dropped(problem, free, point, loss, held)
        more = None if still else blocking(problem, point, newton_step(free, loss, held), held)
        if more is not None and released.intersection(more.index.tolist()):
            more = None  # a whole Newton step leads too far: they are let go for some reason
        if not still and more is None:
            point, loss, still, more = _further(problem, free, point, loss, held)
        best = point if best is None or point.value < best.value else best
        if more is not None:
            held = more
        elif still:
            if held is None or rests(free, loss, held):
                return point
            wrong = _wrongly_held(free, loss, held)
            if wrong is None:
                break
            released.add(int(held.index[wrong]))
            held = held.without(wrong)
        else:
            break
    return point if best is None else best


def _further(
    problem: Program, free: Program, point: Point, loss: Point, held: Held | None
) -> tuple[Point, Point, bool, Held | None]:
    """Return where steps lead after Newton's have failed, and what is to be held by then."""
    point, loss, still = after_walk(problem, free, point, loss, held)
    more = pressing(problem, point, held)
    if not still and more is None:
        more = next_in_the_way(problem, free, point, loss, held)
    if not still and more is None:
        point, loss, still = _with_heavy_rows_held(problem, free, point, loss, held)
        more = pressing(problem, point, held)
    return point, loss, still, more


def _with_idle_rows_dropped(
    problem: Program, free: Program, point: Point, loss: Point, held: Held | None
) -> tuple[Point, Point, bool]:
    """Return what `after_newton` does, rows of Y that keep it from rest dropped one by one."""
    for _ in range(len(point.Y) + 1):
        point, loss, still = after_newton(problem, free, point, loss, held)
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
        found, beside, still = after_newton(problem, light, found, beside, both)
        if not still:
            found, beside, still = after_walk(problem, light, found, beside, both)
        after = found if held is None else evaluate(free, found.Y, 0.0)
        if after.value > loss.value * (1.0 + HIDDEN):
            break
        point, loss = found, after
        if stillness(free, loss, held) <= AIM or rests(free, loss, held):
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
    if problem.bounds is not None and problem.bounds.told is not None:
        heavy &= problem.bounds.told  # what must hold presses or does not
    if held is not None:
        heavy[held.index] = False
    return np.flatnonzero(heavy) if most > 0.0 else np.flatnonzero(heavy)[:0]


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
