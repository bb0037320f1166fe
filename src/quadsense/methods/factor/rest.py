"""Least squares of a factored fit brought to rest: its last digits."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dposv

from quadsense.methods.factor.equalities import SINGULAR, Held, derivative, moved_onto, to_hold
from quadsense.methods.factor.gauss_newton import jacobian, shortened, turned
from quadsense.methods.factor.passes import Point, evaluate, rounding_bound
from quadsense.methods.factor.program import Matrix, Program, Vector
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
    free, loss = problem, point
    if held is not None:
        point, free = moved_onto(problem, point, held, 0.0), _without(problem, held)
        loss = evaluate(free, point.Y, 0.0)
    for _ in range(len(point.Y) + 1):
        point, loss, rests = _rested(problem, free, point, loss, held)
        dropped = None if rests else _without_idle_row(problem, free, point, loss, held)
        if dropped is None:
            break
        point, loss = dropped
    return point


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


def _without_idle_row(
    problem: Program, free: Program, point: Point, loss: Point, held: Held | None
) -> tuple[Point, Point] | None:
    """Return the same without a row of Y that the loss is no worse without; None: there is none.

    Such a row goes to zero ever more slowly, and its slope, in units of it, stays what it is: zero
    itself is the place of rest.
    """
    shrinks = np.sum((loss.gradient * loss.Y.conj()).real, axis=1) > 0.0
    for k in np.flatnonzero(shrinks):
        Y = point.Y.copy()
        Y[k] = 0.0
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
    return _stillness(free, evaluate(free, point.Y, 0.0), held) <= _FLAT


def fits_exactly(problem: Program, point: Point) -> bool:
    """Whether no residual is more than rounding."""
    return bool(np.all(np.abs(point.excess) <= rounding_bound(problem, point.Y)))


def _without(problem: Program, held: Held) -> Program:
    """Return the problem with what is held weighing nothing."""
    weight = problem.weight.copy()
    weight[held.index] = 0.0
    most = float(weight.max())
    return problem if not most > 0.0 else problem.weighed(weight / most)


def _flat(slope: Matrix) -> Vector:
    return np.asarray(np.ascontiguousarray(slope).reshape(-1).view(np.float64))


def _stillness(problem: Program, point: Point, held: Held | None) -> float:
    """Return the slope of the loss in units of what bounds it, by Cauchy and Schwarz.

    Not of its terms alone: where a reading cannot be reached, and the factor reads next to nothing
    there, the one term that is left vanishes with it.
    """
    pulls = problem.F.unmixed(problem.pull * point.excess)
    size = float(np.linalg.norm(pulls)) * float(np.linalg.norm(point.P))
    slope = _flat(point.gradient)
    if held is not None:
        E = derivative(problem, point, held.index)
        slope = slope - E.T @ np.linalg.lstsq(E.T, slope, rcond=SINGULAR)[0]
    return float(np.linalg.norm(slope)) / (size or 1.0)


def newton_step(problem: Program, point: Point, held: Held | None) -> Matrix:
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
        E = derivative(problem, point, held.index)
        y = y.copy()
        y[held.index] -= np.linalg.lstsq(E.T, slope, rcond=SINGULAR)[0]
        fixed = np.concatenate([fixed, E])
    N: Matrix | None = None
    if fixed.size:
        _, sizes, axes = np.linalg.svd(fixed, full_matrices=True)
        kept = int(np.count_nonzero(sizes > SINGULAR * float(sizes.max(initial=0.0))))
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
    D: Matrix = np.ascontiguousarray(step).view(point.Y.dtype).reshape(point.Y.shape)
    return shortened(point.Y, D)


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
