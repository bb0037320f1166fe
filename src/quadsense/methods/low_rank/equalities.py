"""Equalities of a factored fit, met to rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.methods.low_rank.gauss_newton import jacobian, shortened, turned
from quadsense.methods.low_rank.passes import Point, evaluate, rounding_bound
from quadsense.methods.low_rank.program import Matrix, Program, Vector

# Newton steps on equalities alone: they converge quadratically.
_CORRECTIONS = 8
# Equalities up to which their equations are formed.
_MOST = 2000

SINGULAR = 1e-12
"""Singular values of the equalities' derivative below this share of the largest are rounding."""


@dataclass(frozen=True)
class Held:
    """Rows that are to be met exactly, and the residuals that they are to have.

    Attributes
    ----------
    index : (k,) int
    goal : (k,) float64
    side : (k,) float64
        0 for an equality, 1 for an upper end, -1 for a lower one: an end holds to one side only.
    """

    index: npt.NDArray[np.intp]
    goal: Vector
    side: Vector

    def beside(self, other: Held) -> Held:
        """The same and others after it."""
        return Held(
            np.concatenate([self.index, other.index]),
            np.concatenate([self.goal, other.goal]),
            np.concatenate([self.side, other.side]),
        )

    def without(self, which: int) -> Held | None:
        """Return the same without one; None where none is left."""
        kept = np.arange(self.index.size) != which
        return Held(self.index[kept], self.goal[kept], self.side[kept]) if kept.any() else None


def corrected(problem: Program, point: Point, theta: float) -> Point:
    """Return the point with equalities met to rounding, by the smallest such changes of X.

    Without a tolerance, what else must hold and does not is met at its end.

    Notes
    -----
    ``X + sum_j l_j E_j X S`` with the l that meets ``<E_j, A> = b_j`` to first order: Newton's
    method on as many equations as there are equalities.
    """
    held = to_hold(problem, point)
    return point if held is None else moved_onto(problem, point, held, theta)


def to_hold(problem: Program, point: Point) -> Held | None:
    """Return the rows to be met exactly; None where there are none, or too many."""
    if problem.bounds is None:
        return None
    return _held(problem, point, point.z)


def blocking(problem: Program, point: Point, D: Matrix, held: Held | None) -> Held | None:
    """Return what is held and the rows whose ends a step crosses; None where it crosses none.

    A constraint that does not press yet stops every step across its end, for beyond it the loss
    soars: along the end there may be a way all the same.
    """
    if problem.bounds is None:
        return None
    beyond = evaluate(problem, point.Y + D, 0.0)
    ahead = beyond.z.copy()
    if held is not None:
        ahead[held.index] = held.goal
    more = _held(problem, point, ahead)
    known = 0 if held is None else held.index.size
    return more if more is not None and more.index.size > known else None


def pressing(problem: Program, point: Point, held: Held | None) -> Held | None:
    """Return what is held and whatever else presses by now; None where nothing does."""
    now = to_hold(problem, point)
    if now is None or held is None:
        return now
    new = ~np.isin(now.index, held.index)
    return held.beside(Held(now.index[new], now.goal[new], now.side[new])) if new.any() else None


def _held(problem: Program, point: Point, z: Vector) -> Held | None:
    """Return equalities, and without a tolerance what else must hold and at z would press."""
    bounds = problem.bounds
    assert bounds is not None
    equal = np.zeros(z.size, bool) if bounds.equal is None else bounds.equal
    goal, sides = np.zeros(z.size), np.zeros(z.size)
    if not problem.target and bounds.told is not None:
        # A constraint that presses: met a little inside, for its rounding to stay so.
        room = 4.0 * rounding_bound(problem, point.Y)
        for side, end in ((1.0, bounds.above), (-1.0, bounds.below)):
            presses = ~bounds.told & ~equal & (side * z > end - 2.0 * room)
            goal = np.where(presses, side * (end - room), goal)
            sides = np.where(presses, side, sides)
            equal = equal | presses
    index = np.flatnonzero(equal)
    return Held(index, goal[index], sides[index]) if 0 < index.size <= _MOST else None


def moved_onto(problem: Program, point: Point, held: Held, theta: float) -> Point:
    """Return the point after Newton's method on what is held, as far as that leads nearer."""
    index, goal = held.index, held.goal
    for _ in range(_CORRECTIONS):
        miss = goal - point.z[index]
        if np.all(np.abs(miss) <= 0.25 * rounding_bound(problem, point.Y)[index]):
            break
        D = np.linalg.lstsq(derivative(problem, point, index), miss, rcond=SINGULAR)[0]
        Y = point.Y + shortened(point.Y, D.view(point.Y.dtype).reshape(point.Y.shape))
        trial = evaluate(problem, turned(problem, Y), theta)
        if not float(np.max(np.abs(goal - trial.z[index]))) < float(np.max(np.abs(miss))):
            break
        point = trial
    return point


def derivative(problem: Program, point: Point, index: npt.NDArray[np.intp]) -> Matrix:
    """Return that of some residuals by the entries of Y, Re and Im side by side, dense."""
    even = problem.weighed(np.ones_like(problem.weight))
    J: Any = jacobian(even, point, index)
    return np.asarray(J if isinstance(J, np.ndarray) else J.toarray(), dtype=np.float64)
