"""Search directions of the interior-point method for ``minimise t, |z_i| <= t``.

Each measurement has two slacks, ``t - z_i`` and ``t + z_i``, with a multiplier each. Arrays of
shape (2, m) hold the upper ends of the intervals in row 0 and the lower ends in row 1; an end
that does not exist has slack 1 and multiplier 0, and takes part in nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quadsense.methods.interior.normal import Normal
from quadsense.methods.interior.svec import Array, Vector

Mask = npt.NDArray[np.bool_]

SIGNS = np.array([[-1.0], [1.0]])
AMBITION = 0.3  # how far past a step the correctors look
STEPS = 2000  # conjugate-gradient steps of one solve, at most


@dataclass(frozen=True)
class Direction:
    """A Newton step in x, t, slacks and multipliers, and how far the last two may follow it.

    `count` is the number of conjugate-gradient steps that the last solve took.
    """

    dx: Array
    dt: float
    slacks: Vector
    duals: Vector
    primal: float
    dual: float
    count: int


def slacks_of(sides: Mask, z: Vector, level: float) -> Vector:
    """Distances of the scaled residuals z from the ends ``-level`` and ``level``."""
    return np.where(sides, level + SIGNS * z, 1.0)


def complementarity(sides: Mask, duals: Vector, slacks: Vector) -> float:
    """Mean product of slack and multiplier: the duality gap over the number of ends."""
    return float((duals * slacks).sum()) / int(sides.sum())


def _longest(values: Vector, change: Vector) -> float:
    """Largest step at most 1 that keeps the values nonnegative."""
    falling = change < 0.0
    return min(1.0, float(np.min(-values[falling] / change[falling], initial=np.inf)))


def newton(
    system: Normal,
    sides: Mask,
    duals: Vector,
    slacks: Vector,
    goal: Vector,
    push: float,
    tolerance: float,
) -> Direction:
    """Newton step towards ``duals * slacks = goal``; `push` keeps t away from its own bound."""
    wanted = np.where(sides, goal / slacks, 0.0)
    right = system.coordinates.adjoint(wanted[1] - wanted[0])
    dx, dt, count = system.solve(right, float(wanted.sum()) + push - 1.0, tolerance, STEPS)
    moved = np.where(sides, dt + SIGNS * system.coordinates.forward(dx), 0.0)
    change = wanted - duals * moved / slacks - duals
    return Direction(dx, dt, moved, change, _longest(slacks, moved), _longest(duals, change), count)


def corrected(
    system: Normal,
    sides: Mask,
    duals: Vector,
    slacks: Vector,
    floor: float,
    *,
    tolerance: float,
    correctors: int,
) -> Direction:
    """Mehrotra's predictor and corrector, then Gondzio's centrality correctors.

    Parameters
    ----------
    system : Normal
        With weights ``duals / slacks``.
    sides : ndarray of bool, shape (2, m)
    duals, slacks : ndarray, shape (2, m)
    floor : float
        Multiplier of ``t >= 0``; 0.0 without that constraint.
    tolerance : float
        Relative residual of the corrector's solve.
    correctors : int
        Most centrality correctors [Gondzio 1996]; each costs a solve and may save a factor.
    """
    mu = complementarity(sides, duals, slacks)
    affine = newton(system, sides, duals, slacks, np.zeros_like(slacks), 0.0, 1e-3)
    ahead = complementarity(
        sides, duals + affine.dual * affine.duals, slacks + affine.primal * affine.slacks
    )
    # Where all complementarity has rounded away there is nothing left to centre.
    level = mu * (ahead / mu) ** 3 if mu > 0.0 else 0.0
    push = floor * level / mu if mu > 0.0 else 0.0
    goal = level - affine.slacks * affine.duals
    best = newton(system, sides, duals, slacks, goal, push, tolerance)
    for _ in range(correctors):
        a, c = min(1.0, best.primal + AMBITION), min(1.0, best.dual + AMBITION)
        products = (slacks + a * best.slacks) * (duals + c * best.duals)
        pull = np.clip(products, 0.1 * level, 10.0 * level) - products
        goal = goal + np.maximum(pull, -10.0 * level)
        trial = newton(system, sides, duals, slacks, goal, push, tolerance)
        if trial.primal + trial.dual < best.primal + best.dual + 0.1 * AMBITION:
            break
        best = trial
    return best
