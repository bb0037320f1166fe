"""Whether least squares of a factored fit is at rest: what of its slope is not rounding."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from quadsense.methods.low_rank.equalities import SINGULAR, Held, derivative, to_hold
from quadsense.methods.low_rank.newton import flat
from quadsense.methods.low_rank.passes import Point, evaluate, rounding_bound
from quadsense.methods.low_rank.program import Matrix, Program, Vector

FLAT = 1e-6
"""Slope of least squares, in units of what bounds it, that counts as none."""

MOST_ENTRIES = 5_000_000
"""Of a derivative, up to which equations are formed."""

# Bounds on the rounding of a residual up to which it is one, relative to the factor's own rounding.
_ROUNDINGS = 4.0


def is_settled(problem: Program, point: Point) -> bool:
    """Whether least squares is at rest: no slope, or no residual, but what is rounding.

    Equalities are held by forces of their own: what of the slope these can balance is none.
    """
    if fits_exactly(problem, point):
        return True
    held = to_hold(problem, point)
    if held is None:
        return rests(problem, point, None)
    free = beside_held(problem, held)
    return rests(free, evaluate(free, point.Y, 0.0), held)


def rests(problem: Program, point: Point, held: Held | None) -> bool:
    """Whether no slope is left but what the held can balance, or the rounding of residuals.

    The last is what there is of it where rows weigh so much that their least digits outweigh all
    others: the point is at rest for readings that differ from these by rounding only.
    """
    slope = _unbalanced(problem, point, held)
    if _in_units(problem, point, float(np.linalg.norm(slope))) <= FLAT:
        return True
    if slope.size * point.z.size > MOST_ENTRIES:
        return False
    J = derivative(problem, point, np.arange(point.z.size))
    room = _ROUNDINGS * problem.weight * rounding_bound(problem, point.Y)
    E = (room[:, None] * J).T  # what each can do at most
    if held is not None:
        E = E - _along(derivative(problem, point, held.index), E)
    shares = np.linalg.lstsq(E, slope, rcond=SINGULAR)[0]
    left = slope - E @ np.clip(shares, -1.0, 1.0)
    return _in_units(problem, point, float(np.linalg.norm(left))) <= FLAT


def fits_exactly(problem: Program, point: Point) -> bool:
    """Whether no residual is more than rounding: that of its evaluation, and of the factor."""
    return bool(np.all(np.abs(point.excess) <= _ROUNDINGS * rounding_bound(problem, point.Y)))


def beside_held(problem: Program, held: Held) -> Program:
    """Return the problem with what is held weighing nothing."""
    weight = problem.weight.copy()
    weight[held.index] = 0.0
    most = float(weight.max())
    return problem if not most > 0.0 else problem.weighed(weight / most)


def stillness(problem: Program, point: Point, held: Held | None) -> float:
    """Return the slope of the loss in units of what bounds it, by Cauchy and Schwarz.

    Not of its terms alone: where a reading cannot be reached, and the factor reads next to nothing
    there, the one term that is left vanishes with it.
    """
    slope = flat(point.gradient)
    if held is not None:
        slope = slope - _along(derivative(problem, point, held.index), slope)
    return _in_units(problem, point, float(np.linalg.norm(slope)))


def _along(E: Matrix, vectors: Matrix) -> Matrix:
    """Return what of vectors is combined of the rows of E."""
    return np.asarray(E.T @ np.linalg.lstsq(E.T, vectors, rcond=SINGULAR)[0])


def _in_units(problem: Program, point: Point, slope: float) -> float:
    """Return the size of a slope in units of what bounds it, less what rounding makes of it.

    Where a factor is one that no row sees, what it reads is rounding, and so is the slope.
    """
    pulls = 2.0 * float(np.linalg.norm(problem.F.unmixed(problem.weight * point.excess)))
    eps = float(np.finfo(np.float64).eps)
    blur = _ROUNDINGS * point.Y.shape[1] * eps * pulls * float(np.linalg.norm(point.Y))
    return max(slope - blur, 0.0) / (pulls * float(np.linalg.norm(point.P)) or 1.0)


def _unbalanced(problem: Program, point: Point, held: Held | None) -> Vector:
    """Return the slope that the held cannot balance: ends can push inwards only."""
    slope = flat(point.gradient)
    if held is None:
        return slope
    ends, E = held.side != 0.0, derivative(problem, point, held.index)
    pushes = (-held.side[ends, None] * E[ends]).T
    if not ends.all():
        slope = slope - _along(E[~ends], slope)
        pushes = pushes - _along(E[~ends], pushes)
    if not ends.any():
        return slope
    sizes = np.linalg.norm(pushes, axis=0)
    pushes = pushes / np.where(sizes > 0.0, sizes, 1.0)
    unit = float(np.linalg.norm(slope)) or 1.0
    return np.asarray(slope - unit * (pushes @ nnls(pushes, slope / unit)[0]))
