"""Rows that a factored fit is to meet exactly, and least squares to second order along them.

Equalities are met to rounding by Newton's method on as many equations; where least squares is
brought to rest, ends of other rows that it presses on are held like these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.methods.low_rank.gauss_newton import jacobian, shortened, turned
from quadsense.methods.low_rank.passes import FactorPoint, evaluate, rounding_bound
from quadsense.methods.low_rank.program import LowRankProgram, Matrix, Vector

# Newton steps on equalities alone: they converge quadratically.
MAX_CORRECTIONS = 8
# Equalities up to which their equations are formed.
MAX_HELD = 2000

MIN_SINGULAR_SHARE = 1e-12
"""Singular values of the equalities' derivative below this share of the largest are rounding."""


@dataclass(frozen=True)
class HeldReadings:
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

    def beside(self, other: HeldReadings) -> HeldReadings:
        """The same and others after it."""
        return HeldReadings(
            np.concatenate([self.index, other.index]),
            np.concatenate([self.goal, other.goal]),
            np.concatenate([self.side, other.side]),
        )

    def without(self, which: int) -> HeldReadings | None:
        """Return the same without one; None where none is left."""
        kept = np.arange(self.index.size) != which
        return (
            HeldReadings(self.index[kept], self.goal[kept], self.side[kept]) if kept.any() else None
        )


def corrected(problem: LowRankProgram, point: FactorPoint, theta: float) -> FactorPoint:
    """Return the point with equalities met to rounding, by the smallest such changes of X.

    Without a tolerance, what else must hold and does not is met at its end.

    Notes
    -----
    ``X + sum_j l_j E_j X S`` with the l that meets ``<E_j, A> = b_j`` to first order: Newton's
    method on as many equations as there are equalities.
    """
    held = to_hold(problem, point)
    return point if held is None else moved_onto(problem, point, held, theta)


def to_hold(problem: LowRankProgram, point: FactorPoint) -> HeldReadings | None:
    """Return the rows to be met exactly; None where there are none, or too many."""
    if problem.bounds is None:
        return None
    return _held(problem, point, point.z)


def pressing(
    problem: LowRankProgram, point: FactorPoint, held: HeldReadings | None
) -> HeldReadings | None:
    """Return what is held and whatever else presses by now; None where nothing does."""
    now = to_hold(problem, point)
    if now is None or held is None:
        return now
    new = ~np.isin(now.index, held.index)
    return (
        held.beside(HeldReadings(now.index[new], now.goal[new], now.side[new]))
        if new.any()
        else None
    )


def _held(problem: LowRankProgram, point: FactorPoint, z: Vector) -> HeldReadings | None:
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
    return HeldReadings(index, goal[index], sides[index]) if 0 < index.size <= MAX_HELD else None


def moved_onto(
    problem: LowRankProgram, point: FactorPoint, held: HeldReadings, theta: float
) -> FactorPoint:
    """Return the point after Newton's method on what is held, as far as that leads nearer."""
    index, goal = held.index, held.goal
    for _ in range(MAX_CORRECTIONS):
        miss = goal - point.z[index]
        if np.all(np.abs(miss) <= 0.25 * rounding_bound(problem, point.Y)[index]):
            break
        D = np.linalg.lstsq(derivative(problem, point, index), miss, rcond=MIN_SINGULAR_SHARE)[0]
        Y = point.Y + shortened(point.Y, D.view(point.Y.dtype).reshape(point.Y.shape))
        trial = evaluate(problem, turned(problem, Y), theta)
        if not float(np.max(np.abs(goal - trial.z[index]))) < float(np.max(np.abs(miss))):
            break
        point = trial
    return point


def derivative(problem: LowRankProgram, point: FactorPoint, index: npt.NDArray[np.intp]) -> Matrix:
    """Return that of some residuals by the entries of Y, Re and Im side by side, dense."""
    even = problem.weighed(np.ones_like(problem.weight))
    J: Any = jacobian(even, point, index)
    return np.asarray(J if isinstance(J, np.ndarray) else J.toarray(), dtype=np.float64)


def flat(slope: Matrix) -> Vector:
    """Return a factor's changes as a vector of real numbers, Re and Im side by side."""
    return np.asarray(np.ascontiguousarray(slope).reshape(-1).view(np.float64))


@dataclass(frozen=True)
class Model:
    """The loss near a point, ``const - right.x + x.curved x / 2``.

    Attributes
    ----------
    right : (q,) float64
    H, curved : (q, q) float64
        ``J^T J``, and the second derivative itself.
    N : (size, q) float64 or None
        The changes of the factor are ``N x``; None: x is all of them.
    """

    right: Vector
    H: Matrix
    curved: Matrix
    N: Matrix | None

    def step(self, point: FactorPoint, x: Vector) -> Matrix:
        """The change of the factor at that point."""
        whole = np.ascontiguousarray(x if self.N is None else self.N @ x)
        return whole.view(point.Y.dtype).reshape(point.Y.shape)


def model_of(problem: LowRankProgram, point: FactorPoint, held: HeldReadings | None) -> Model:
    """Return the loss to second order along changes that keep what is held, and change A.

    Notes
    -----
    The second derivative of the loss is ``J^T J`` and, for every row of Y, ``2 s_k F*(y)`` with y
    the derivative of the loss by the readings; with equalities the Lagrangian's, whose multipliers
    are part of y.
    """
    counts = np.flatnonzero(point.excess)
    J: Any = jacobian(problem, point, counts if counts.size < point.z.size else None)
    H = np.array(J.T @ J if isinstance(J, np.ndarray) else (J.T @ J).toarray(), dtype=np.float64)
    slope, y = flat(point.gradient), problem.weight * point.excess
    signs = problem.signs_of(len(point.Y))
    fixed = _turns(point.Y, signs)
    if held is not None:
        E = derivative(problem, point, held.index)
        y = y.copy()
        y[held.index] -= np.linalg.lstsq(E.T, slope, rcond=MIN_SINGULAR_SHARE)[0]
        fixed = np.concatenate([fixed, E])
    N: Matrix | None = None
    if fixed.size:
        _, sizes, axes = np.linalg.svd(fixed, full_matrices=True)
        kept = int(np.count_nonzero(sizes > MIN_SINGULAR_SHARE * float(sizes.max(initial=0.0))))
        N = axes[kept:].T  # directions that change A, and nothing of what is held
    G = _as_real(problem.F.adjoint(y))
    curved = H.copy()
    for k in range(len(point.Y)):
        part = slice(k * len(G), (k + 1) * len(G))
        curved[part, part] += (2.0 if signs is None else 2.0 * float(signs[k])) * G
    right = -slope
    if N is not None:
        H, curved, right = N.T @ H @ N, N.T @ curved @ N, N.T @ right
    return Model(right, H, curved, N)


def _turns(Y: Matrix, signs: Vector | None) -> Matrix:
    """Return the changes of Y that leave ``Y^T S conj(Y)`` as it is, one per row, as real numbers.

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
                turns.append(flat(D))
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
