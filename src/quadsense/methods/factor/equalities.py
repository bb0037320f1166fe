"""The last digits of a factored fit: equalities met to rounding, and least squares at rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dposv

from quadsense.methods.factor.gauss_newton import jacobian, turned
from quadsense.methods.factor.passes import Point, evaluate, rounding_bound
from quadsense.methods.factor.program import Matrix, Program, Vector
from quadsense.watch import look

# Newton steps on equalities alone: they converge quadratically.
_CORRECTIONS = 8
# Equalities, and unknowns, up to which their equations are formed.
_MOST, _MOST_UNKNOWNS, _MOST_ENTRIES = 2000, 1000, 5_000_000
# Slope of least squares, in units of what bounds it, that counts as none, and the one that is aimed
# at.
_FLAT, _AIM = 1e-6, 1e-9
# Share of the loss below which rounding hides a gain: then the slope decides.
_HIDDEN = 1e-13
# Steps of least squares on equalities, and how short one may be.
_STEPS, _SHORTEST = 50, 1e-3
# Singular values of the equalities' derivative below this share of the largest are rounding.
_SINGULAR = 1e-12


@dataclass(frozen=True)
class _Held:
    """Rows that are to be met exactly, and the residuals that they are to have."""

    index: npt.NDArray[np.intp]
    goal: Vector


def corrected(problem: Program, point: Point, theta: float) -> Point:
    """Return the point with equalities met to rounding, by the smallest such changes of X.

    Without a tolerance, what else must hold and does not is met at its end.

    Notes
    -----
    ``X + sum_j l_j E_j X S`` with the l that meets ``<E_j, A> = b_j`` to first order: Newton's
    method on as many equations as there are equalities.
    """
    held = _held(problem, point)
    return point if held is None else _moved_onto(problem, point, held, theta)


def settled(problem: Program, point: Point) -> Point:
    """Return a point of no larger least squares among those that meet the equalities, at rest.

    Notes
    -----
    Penalties bring least squares near equalities only, and Gauss-Newton steps creep where much is
    left over. From there Newton steps that keep the equalities to first order, each followed by
    Newton's method on these, lead to where no slope is left that they do not hold.
    """
    held = _held(problem, point)
    size = point.Y.size * (2 if np.iscomplexobj(point.Y) else 1)
    if size > _MOST_UNKNOWNS or size * max(problem.F.m, problem.F.raw.m) > _MOST_ENTRIES:
        return point if held is None else _moved_onto(problem, point, held, 0.0)
    free, loss = problem, point
    if held is not None:
        point, free = _moved_onto(problem, point, held, 0.0), _without(problem, held)
        loss = evaluate(free, point.Y, 0.0)
    for _ in range(_STEPS):
        slope = _stillness(free, loss, held)
        if slope <= _AIM or fits_exactly(free, loss):
            break
        look()
        D = _newton_step(free, loss, held)
        length, better = 1.0, None
        while better is None and length >= _SHORTEST:
            trial = evaluate(problem, turned(problem, point.Y + length * D), 0.0)
            if held is not None:
                trial = _moved_onto(problem, trial, held, 0.0)
            beside = trial if held is None else evaluate(free, trial.Y, 0.0)
            hidden = abs(beside.value - loss.value) <= _HIDDEN * loss.value
            if _stillness(free, beside, held) < slope if hidden else beside.value < loss.value:
                better = (trial, beside)
            length /= 2.0
        if better is None:
            break
        point, loss = better
    return point


def is_settled(problem: Program, point: Point) -> bool:
    """Whether least squares is at rest: no slope, or no residual, but what is rounding.

    Equalities are held by forces of their own: what of the slope these can balance is none.
    """
    if fits_exactly(problem, point):
        return True
    held = _held(problem, point)
    if held is None:
        return _stillness(problem, point, None) <= _FLAT
    free = _without(problem, held)
    return _stillness(free, evaluate(free, point.Y, 0.0), held) <= _FLAT


def fits_exactly(problem: Program, point: Point) -> bool:
    """Whether no residual is more than rounding."""
    return bool(np.all(np.abs(point.excess) <= rounding_bound(problem, point.Y)))


def _held(problem: Program, point: Point) -> _Held | None:
    """Return the rows to be met exactly; None where there are none, or too many."""
    bounds = problem.bounds
    if bounds is None:
        return None
    equal = np.zeros(point.z.size, bool) if bounds.equal is None else bounds.equal
    goal = np.zeros(point.z.size)
    if not problem.target and bounds.told is not None:
        # A constraint that presses: met a little inside, for its rounding to stay so.
        room = 4.0 * rounding_bound(problem, point.Y)
        for side, end in ((1.0, bounds.above), (-1.0, bounds.below)):
            presses = ~bounds.told & ~equal & (side * point.z > end - 2.0 * room)
            goal = np.where(presses, side * (end - room), goal)
            equal = equal | presses
    index = np.flatnonzero(equal)
    return _Held(index, goal[index]) if 0 < index.size <= _MOST else None


def _moved_onto(problem: Program, point: Point, held: _Held, theta: float) -> Point:
    """Return the point after Newton's method on what is held, as far as that leads nearer."""
    index, goal = held.index, held.goal
    for _ in range(_CORRECTIONS):
        miss = goal - point.z[index]
        if np.all(np.abs(miss) <= 0.25 * rounding_bound(problem, point.Y)[index]):
            break
        D = np.linalg.lstsq(_derivative(problem, point, index), miss, rcond=_SINGULAR)[0]
        Y = point.Y + D.view(point.Y.dtype).reshape(point.Y.shape)
        trial = evaluate(problem, turned(problem, Y), theta)
        if not float(np.max(np.abs(goal - trial.z[index]))) < float(np.max(np.abs(miss))):
            break
        point = trial
    return point


def _derivative(problem: Program, point: Point, index: npt.NDArray[np.intp]) -> Matrix:
    """Return that of some residuals by the entries of Y, Re and Im side by side, dense."""
    even = problem.weighed(np.ones_like(problem.weight))
    J: Any = jacobian(even, point, index)[0]
    return np.asarray(J if isinstance(J, np.ndarray) else J.toarray(), dtype=np.float64)


def _without(problem: Program, held: _Held) -> Program:
    """Return the problem with what is held weighing nothing."""
    weight = problem.weight.copy()
    weight[held.index] = 0.0
    most = float(weight.max())
    return problem if not most > 0.0 else problem.weighed(weight / most)


def _flat(slope: Matrix) -> Vector:
    return np.asarray(np.ascontiguousarray(slope).reshape(-1).view(np.float64))


def _stillness(problem: Program, point: Point, held: _Held | None) -> float:
    """Return the slope of the loss in units of what bounds it, by Cauchy and Schwarz.

    Not of its terms alone: where a reading cannot be reached, and the factor reads next to nothing
    there, the one term that is left vanishes with it.
    """
    pulls = problem.F.unmixed(problem.pull * point.excess)
    size = float(np.linalg.norm(pulls)) * float(np.linalg.norm(point.P))
    slope = _flat(point.gradient)
    if held is not None:
        E = _derivative(problem, point, held.index)
        slope = slope - E.T @ np.linalg.lstsq(E.T, slope, rcond=_SINGULAR)[0]
    return float(np.linalg.norm(slope)) / (size or 1.0)


def _newton_step(problem: Program, point: Point, held: _Held | None) -> Matrix:
    """Return the Newton step that keeps what is held, to first order.

    Notes
    -----
    The second derivative of the loss is ``J^T J`` and, for every row of Y, ``2 s_k F*(y)`` with y
    the derivative of the loss by the readings; with equalities the Lagrangian's, whose multipliers
    are part of y.
    """
    counts = np.flatnonzero(point.excess)
    J: Any = jacobian(problem, point, counts if counts.size < point.z.size else None)[0]
    H = np.array(J.T @ J if isinstance(J, np.ndarray) else (J.T @ J).toarray(), dtype=np.float64)
    slope, y = _flat(point.gradient), problem.weight * point.excess
    signs = problem.signs_of(len(point.Y))
    fixed = _turns(point.Y, signs)
    if held is not None:
        E = _derivative(problem, point, held.index)
        y = y.copy()
        y[held.index] -= np.linalg.lstsq(E.T, slope, rcond=_SINGULAR)[0]
        fixed = np.concatenate([fixed, E])
    N: Matrix | None = None
    if fixed.size:
        _, sizes, axes = np.linalg.svd(fixed, full_matrices=True)
        kept = int(np.count_nonzero(sizes > _SINGULAR * float(sizes.max(initial=0.0))))
        N = axes[kept:].T  # directions that change A, and nothing of what is held
    G = _as_real(problem.F.adjoint(y))
    curved = H.copy()
    for k in range(len(point.Y)):
        part = slice(k * len(G), (k + 1) * len(G))
        curved[part, part] += (2.0 if signs is None else 2.0 * float(signs[k])) * G
    right = -slope
    if N is not None:
        H, curved, right = N.T @ H @ N, N.T @ curved @ N, N.T @ right
    step = _definite_solve(curved, H, right)
    step = step if N is None else N @ step
    return np.ascontiguousarray(step).view(point.Y.dtype).reshape(point.Y.shape)


def _turns(Y: Matrix, signs: Vector | None) -> Matrix:
    """Return the changes of Y that leave ``Y^T S conj(Y)`` as it is, one a row, as real numbers.

    They are ``K Y`` with ``K_ji = -s_i s_j conj(K_ij)``: without their loss of definiteness a
    second derivative could not be told from one at a saddle.
    """
    s = np.ones(len(Y)) if signs is None else signs
    parts: list[Any] = [1.0, 1j] if np.iscomplexobj(Y) else [1.0]
    turns = []
    for i in range(len(Y)):
        for j in range(i, len(Y)):
            for part in parts if j > i else parts[1:]:
                D = np.zeros_like(Y)
                D[i] = part * Y[j]
                if j > i:
                    D[j] = -s[i] * s[j] * np.conj(part) * Y[i]
                turns.append(_flat(D))
    size = Y.size * (2 if np.iscomplexobj(Y) else 1)
    return np.array(turns) if turns else np.empty((0, size))


def _as_real(G: Matrix) -> Matrix:
    """Return a Hermitian matrix as one of real and imaginary parts side by side."""
    if not np.iscomplexobj(G):
        return np.asarray(G)
    n = len(G)
    real = np.empty((n, 2, n, 2))
    real[:, 0, :, 0] = real[:, 1, :, 1] = G.real
    real[:, 1, :, 0], real[:, 0, :, 1] = G.imag, -G.imag
    return real.reshape(2 * n, 2 * n)


def _definite_solve(curved: Matrix, H: Matrix, right: Vector) -> Vector:
    """Solve with the second derivative, or, where that is not definite, with more of ``J^T J``."""
    if not right.size:
        return right
    size = max(len(H), 1)
    unit = float(np.trace(H)) / size or 1.0
    shift = np.eye(len(H))
    for share, damping in ((1.0, 1e-12), (1.0, 1e-6), (0.5, 1e-6), (0.0, 1e-9), (0.0, 1e-3)):
        matrix = share * curved + (1.0 - share) * H + damping * unit * shift
        _, found, info = dposv(matrix, right)
        if info == 0 and np.isfinite(found).all():
            return np.asarray(found)
    return right / unit
