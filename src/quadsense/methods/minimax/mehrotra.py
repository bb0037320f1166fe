"""Search directions of the interior-point method for ``minimise t, |z_i| <= t``.

Each measurement has two slacks, ``t - z_i`` and ``t + z_i``, with a multiplier each. Arrays of
shape (2, m) hold the upper ends of the intervals in row 0 and the lower ends in row 1; an end
that does not exist has slack 1 and multiplier 0, and takes part in nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from quadsense.core.packed import Array, Vector
from quadsense.device import numbers
from quadsense.methods.conic.boundary import reach
from quadsense.methods.minimax.coordinates import MinimaxCoordinates

Mask = npt.NDArray[np.bool_]

SIGNS = np.array([[-1.0], [1.0]])
MAX_WEIGHT = 1e150  # weight of a row that still leaves room for its square
MIN_PRODUCT_SHARE = 1e-3  # share of the mean product below which one is too small
MAX_SHORTENINGS = 30  # of a step, at most
CORRECTOR_REACH = 0.3  # how far past a step the correctors look


class MinimaxSystem(Protocol):
    """The linear system of a step (see `normal` and `rows`)."""

    @property
    def coordinates(self) -> MinimaxCoordinates:
        """Unknowns and the sensing map on them."""

    def direction(
        self, wanted: Vector, push: float, pull: Vector | None, tolerance: float
    ) -> tuple[Array, Any, int, float]:
        """Newton step in x and t, how many steps it took, and how far it is from solving."""

    def project(self, scaled: Vector) -> Vector:
        """Remove from a vector of multipliers what keeps ``F*(y)`` from vanishing."""


@dataclass(frozen=True)
class MinimaxPoint:
    """Slacks and multipliers, all positive where they exist.

    Attributes
    ----------
    sides : ndarray of bool, shape (2, m)
    slacks, duals : ndarray, shape (2, m)
    level : float
        t.
    floor : float
        Multiplier of ``t >= 0``; 0.0 without that constraint.
    z : ndarray, shape (m,)
        The residuals.
    far : ndarray, shape (m,), or None
        The residuals from which on the barrier holds rows with one end back on their open sides,
        infinite for the others; None where all ends exist.
    """

    sides: Mask
    slacks: Vector
    duals: Vector
    level: float
    floor: float
    z: Vector
    far: Vector | None

    @property
    def mu(self) -> float:
        """Mean product of slack and multiplier: the duality gap over the number of ends."""
        products, ends = numbers((self.duals * self.slacks).sum(), self.sides.sum())
        products += self.floor * self.level
        return products / (int(ends) + (self.floor > 0.0))

    @property
    def weights(self) -> Vector | None:
        """Multipliers over slacks, (2, m); None where they have run away from each other."""
        with np.errstate(over="ignore"):
            weights = self.duals / self.slacks
        return weights if float(np.max(weights)) < MAX_WEIGHT else None

    @property
    def held(self) -> Vector | None:
        """Curvatures of ``mu z_i^2 / (2 far_i^2)``, which keep the central path bounded, (m,)."""
        return None if self.far is None else self.mu / self.far**2


@dataclass(frozen=True)
class MinimaxDirection:
    """A Newton step in x, t, slacks and multipliers, and how far the last two may follow it.

    `floor` is the step of the multiplier of ``t >= 0``, `count` the number of conjugate-gradient
    steps that the last solve took, `left` the share of the right side that they left.
    """

    dx: Array
    dt: float
    slacks: Vector
    duals: Vector
    floor: float
    primal: float
    dual: float
    count: int
    left: float

    def taken(self, at: MinimaxPoint) -> MinimaxPoint:
        """Where its full length leads, as far as that stays positive."""
        return replace(
            at,
            slacks=at.slacks + self.primal * self.slacks,
            duals=at.duals + self.dual * self.duals,
            level=at.level + self.primal * self.dt,
            floor=at.floor + self.dual * self.floor,
        )


def slacks_of(sides: Mask, z: Vector, level: float) -> Vector:
    """Distances of the scaled residuals z from the ends ``-level`` and ``level``."""
    return np.where(sides, level + SIGNS * z, 1.0)


def newton(
    system: MinimaxSystem,
    at: MinimaxPoint,
    aim: float,
    goal: Vector,
    floor_goal: float,
    tolerance: float,
) -> MinimaxDirection:
    """Newton step towards ``duals * slacks = goal`` and ``floor * level = floor_goal``.

    `aim` is the mean complementarity that is aimed at: what holds open sides back goes with it.
    """
    wanted = np.where(at.sides, goal / at.slacks, 0.0)
    push = floor_goal / at.level if at.floor > 0.0 else 0.0
    pull = None if at.far is None else -aim / at.far**2 * at.z
    dx, dt, count, left = system.direction(wanted, push, pull, tolerance)
    moved = np.where(at.sides, dt + SIGNS * system.coordinates.forward(dx), 0.0)
    change = wanted - at.duals * moved / at.slacks - at.duals
    # At once, so that a device is waited for once.
    dt, *lengths = numbers(dt, reach(at.slacks, moved), reach(at.duals, change))
    primal, dual = (min(1.0, each) for each in lengths)
    floor = 0.0
    if at.floor > 0.0:
        floor = push - at.floor * dt / at.level - at.floor
        primal = min(primal, float(reach(at.level, dt)))
        dual = min(dual, float(reach(at.floor, floor)))
    if at.far is not None:  # what holds x back ties the multipliers to it
        primal = dual = min(primal, dual)
    step = MinimaxDirection(dx, dt, moved, change, floor, primal, dual, count, left)
    return step if at.far is None else _near_the_path(at, step)


def _near_the_path(at: MinimaxPoint, step: MinimaxDirection) -> MinimaxDirection:
    """The step, shortened until no product is far below their mean.

    Where no dual feasible multipliers are at hand, a step that goes to the boundary ends next to
    it, from where the next one leads astray.
    """
    for _ in range(MAX_SHORTENINGS):
        there = step.taken(at)
        products = np.where(at.sides, there.slacks * there.duals, np.inf)
        least = min(float(np.min(products)), there.level * there.floor)
        if least >= MIN_PRODUCT_SHARE * there.mu:
            break
        step = replace(step, primal=0.8 * step.primal, dual=0.8 * step.dual)
    return step


def corrected(
    system: MinimaxSystem, at: MinimaxPoint, *, tolerance: float, correctors: int
) -> MinimaxDirection:
    """Mehrotra's predictor and corrector, then Gondzio's centrality correctors.

    Parameters
    ----------
    system : MinimaxSystem
        With weights ``duals / slacks``.
    at : MinimaxPoint
    tolerance : float
        Relative residual of the corrector's solve.
    correctors : int
        Most centrality correctors [Gondzio 1996]; each takes one solve and may save a factor.
    """
    mu, slacks, duals = at.mu, at.slacks, at.duals
    affine = newton(system, at, 0.0, np.zeros_like(slacks), 0.0, 1e-3)
    ahead = affine.taken(at).mu
    # Where all complementarity has rounded away there is nothing left to centre.
    aim = mu * (ahead / mu) ** 3 if mu > 0.0 else 0.0
    goal = aim - affine.slacks * affine.duals
    push = aim - affine.dt * affine.floor
    best = newton(system, at, aim, goal, push, tolerance)
    for _ in range(correctors):
        a, c = min(1.0, best.primal + CORRECTOR_REACH), min(1.0, best.dual + CORRECTOR_REACH)
        products = (slacks + a * best.slacks) * (duals + c * best.duals)
        pull = np.clip(products, 0.1 * aim, 10.0 * aim) - products
        goal = goal + np.maximum(pull, -10.0 * aim)
        trial = newton(system, at, aim, goal, push, tolerance)
        if trial.primal + trial.dual < best.primal + best.dual + 0.1 * CORRECTOR_REACH:
            break
        best = trial
    return best
