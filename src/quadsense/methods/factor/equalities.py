"""The last digits of a factored fit: equalities met to rounding, and least squares at rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quadsense.methods.factor.gauss_newton import jacobian, turned
from quadsense.methods.factor.passes import Point, evaluate, rounding_bound
from quadsense.methods.factor.program import Program

# Newton steps on equalities alone: they converge quadratically.
_CORRECTIONS = 8
# Equalities up to which their own normal equations are formed.
_MOST = 2000
# Slope of least squares, in units of the terms that cancel in it, that counts as none.
_FLAT = 1e-7


def corrected(problem: Program, point: Point, theta: float) -> Point:
    """Return the point with equalities met to rounding, by the smallest such changes of X.

    Notes
    -----
    ``X + sum_j l_j E_j X S`` with the l that meets ``<E_j, A> = b_j`` to first order: Newton's
    method on as many equations as there are equalities.
    """
    bounds = problem.bounds
    if bounds is None or bounds.equal is None:
        return point
    index = np.flatnonzero(bounds.equal)
    if not 0 < index.size <= _MOST:
        return point
    even = problem.weighed(np.ones_like(problem.weight))
    for _ in range(_CORRECTIONS):
        miss = np.abs(point.z[index])
        if np.all(miss <= 0.25 * rounding_bound(problem, point.Y)[index]):
            break
        J, _ = jacobian(even, point, index)
        J = np.asarray(J if isinstance(J, np.ndarray) else J.toarray()) / 1.0
        D = np.linalg.lstsq(J, -point.z[index], rcond=1e-12)[0]
        Y = point.Y + D.view(point.Y.dtype).reshape(point.Y.shape)
        trial = evaluate(problem, turned(problem, Y), theta)
        if not float(np.max(np.abs(trial.z[index]))) < float(np.max(miss)):
            break
        point = trial
    return point


def is_settled(problem: Program, point: Point) -> bool:
    """Whether least squares is at rest: no slope, or no residual, but what is rounding."""
    return fits_exactly(problem, point) or stillness(problem, point) <= _FLAT


def fits_exactly(problem: Program, point: Point) -> bool:
    """Whether no residual is more than rounding."""
    return bool(np.all(np.abs(point.excess) <= rounding_bound(problem, point.Y)))


def stillness(problem: Program, point: Point) -> float:
    """Return the slope of the loss in units of the terms that cancel in it.

    Equalities are held by forces of their own: what of the slope these can balance is none.
    """
    bounds, slope = problem.bounds, point.gradient
    pulls = np.abs(problem.F.unmixed(problem.pull * point.excess))
    size = float(pulls @ np.sqrt(np.sum(np.abs(point.P) ** 2, axis=0)))
    if bounds is not None and bounds.equal is not None:
        index = np.flatnonzero(bounds.equal)
        free = np.where(bounds.equal, 0.0, problem.pull * point.excess)
        held = replace(problem, pull=np.where(bounds.equal, 0.0, problem.pull))
        slope = evaluate(held, point.Y, 0.0).gradient
        pulls = np.abs(problem.F.unmixed(free))
        size = float(pulls @ np.sqrt(np.sum(np.abs(point.P) ** 2, axis=0)))
        J, _ = jacobian(problem.weighed(np.ones_like(problem.weight)), point, index)
        J = np.asarray(J if isinstance(J, np.ndarray) else J.toarray())
        flat = np.ascontiguousarray(slope).reshape(-1).view(np.float64)
        forces = np.linalg.lstsq(J.T, flat, rcond=1e-12)[0]
        return float(np.linalg.norm(flat - J.T @ forces)) / (size or 1.0)
    return float(np.linalg.norm(slope)) / (size or 1.0)
