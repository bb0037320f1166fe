"""Search directions of the interior-point method for ``minimise t, |z_i| <= t``, and their systems.

Each measurement has two slacks, ``t - z_i`` and ``t + z_i``, with a multiplier each. Arrays of
shape (2, m) hold the upper ends of the intervals in row 0 and the lower ends in row 1; an end
that does not exist has slack 1 and multiplier 0, and takes part in nothing.

The interior-point and the least-absolute-deviations methods both use systems

    sum_i  d1_i (tau - g_i.x) (1, -g_i) + d2_i (tau + g_i.x) (1, g_i)  =  right side

in the unknowns ``(x, tau)``, where ``g_i.x = F(A)_i / delta_i``. Products with this matrix cost
two passes over U. Its Cholesky factor costs ``m N^2`` for N unknowns, so the factor is built in
float32 while that is accurate enough and conjugate gradients in float64 repair the difference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.core.packed import Array, Vector
from quadsense.device import numbers, scalar, waits
from quadsense.methods.conic.boundary import reach
from quadsense.methods.minimax.coordinates import MinimaxCoordinates, Preconditioner
from quadsense.system.watch import look

SIGNS = np.array([[-1.0], [1.0]])
"""Of a residual in the slack of its upper and of its lower end."""

MAX_WEIGHT = 1e150
"""Weight of a row that still leaves room for its square."""

MIN_PRODUCT_SHARE = 1e-3
"""Share of the mean product below which one is too small."""

MAX_SHORTENINGS = 30
"""Shortenings of a step at most."""

CORRECTOR_REACH = 0.3
"""How far past a step the correctors look."""

MAX_GRADIENTS = 2000
"""Conjugate-gradient steps of one solve, at most."""


def inner(x: Array, y: Array) -> Any:
    """Real inner product of two arrays, where they are; for Hermitian matrices ``trace(x y)``."""
    return scalar(np.vdot(x, y).real)


def norm(x: Array) -> float:
    """The norm that goes with `inner`."""
    return float(np.sqrt(inner(x, x)))


def _is_sound(number: Any) -> bool:
    """Whether a number is positive and finite, or on a device, which is not waited for."""
    return waits(number) or 0.0 < number < np.inf


@dataclass(frozen=True)
class NormalSystem:
    """One weighted normal system with its preconditioner."""

    coordinates: MinimaxCoordinates
    d1: Vector
    d2: Vector
    held: Vector | None
    corner: float
    inverse: Preconditioner
    border: Array
    bordered: Array
    schur: float

    def precondition(self, x: Array, tau: Any) -> tuple[Array, Any]:
        """Apply the approximate inverse to ``(x, tau)`` by block elimination."""
        out = self.inverse(x)
        tau = (tau - inner(self.bordered, x)) / self.schur
        return out - tau * self.bordered, tau

    def product(self, x: Array, tau: Any) -> tuple[Array, Any]:
        """Multiply ``(x, tau)`` by the normal matrix."""
        d, e = self.d1 + self.d2, self.d2 - self.d1
        total = scalar(d.sum()) + self.corner
        out, z = self.coordinates.product(x, d if self.held is None else d + self.held, tau * e)
        return out, scalar(e @ z) + tau * total

    def direction(
        self, wanted: Vector, push: float, pull: Vector | None, tolerance: float
    ) -> tuple[Array, Any, int, float]:
        """Newton step in x and t towards the multipliers `wanted`, shape (2, m).

        `push` holds t away from a bound of its own, `pull` rows back on their open sides. Also the
        steps taken, and the share of the right side that they left.
        """
        y = wanted[1] - wanted[0]
        right = self.coordinates.adjoint(y if pull is None else y + pull)
        return self._solve(right, scalar(wanted.sum()) + push - 1.0, tolerance, MAX_GRADIENTS)

    def project(self, scaled: Vector) -> Vector:
        """Remove from a vector of multipliers what keeps ``F*(y)`` from vanishing."""
        d, e = self.d1 + self.d2, self.d2 - self.d1
        d = d if self.held is None else d + self.held
        for _ in range(2):
            dx, dt, _ = self.solve(self.coordinates.adjoint(scaled), 0.0, 1e-9, MAX_GRADIENTS)
            scaled = scaled - d * self.coordinates.forward(dx) - e * dt
        return scaled

    def solve(self, x: Array, tau: Any, tolerance: float, limit: int) -> tuple[Array, Any, int]:
        """Preconditioned conjugate gradients to a relative residual; also the step count."""
        return self._solve(x, tau, tolerance, limit)[:3]

    def _solve(
        self, x: Array, tau: Any, tolerance: float, limit: int
    ) -> tuple[Array, Any, int, float]:
        """`solve`, and the share of the right side that is left.

        Scalars are left where they are: a step waits once for a device.
        """
        size = first = float(np.sqrt(inner(x, x) + tau * tau))
        goal, smallest = tolerance * size, size
        solution: Any = np.zeros_like(x)
        s_tau: Any = 0.0
        best = solution, s_tau
        rx, rt = x.copy(), tau
        direction: Any = np.zeros_like(x)
        d_tau: Any = 0.0
        rho: Any = 1.0
        count = 0
        # A preconditioner that is no inverse lets numbers run away: seen below, and left there.
        with np.errstate(over="ignore", invalid="ignore"):
            # A residual that grows far above its smallest is rounding that F cannot see.
            while count < limit and goal < size < 1e3 * smallest:
                look()
                px, pt = self.precondition(rx, rt)
                rho, previous = inner(px, rx) + pt * rt, rho
                if not _is_sound(rho):
                    break
                beta = rho / previous if count else 0.0
                direction, d_tau = px + beta * direction, pt + beta * d_tau
                qx, qt = self.product(direction, d_tau)
                curvature = inner(direction, qx) + d_tau * qt
                if not _is_sound(curvature):
                    break
                alpha = rho / curvature
                solution, s_tau = solution + alpha * direction, s_tau + alpha * d_tau
                rx, rt = rx - alpha * qx, rt - alpha * qt
                size, *both = numbers(np.sqrt(inner(rx, rx) + rt * rt), rho, curvature)
                if not all(map(_is_sound, both)):
                    break
                if size < smallest:
                    best, smallest = (solution, s_tau), size
                count += 1
        return *best, count, smallest / first if first > 0.0 else 0.0


def normal(
    coordinates: MinimaxCoordinates,
    d1: Vector,
    d2: Vector,
    precision: int,
    corner: float = 0.0,
    held: Vector | None = None,
) -> NormalSystem | None:
    """Build the system of the weights d1, d2; None when the factorisation failed.

    `corner` is added to the coefficient of tau, for a bound on tau itself, and `held`, shape (m,),
    to the weights of the rows as far as x alone is concerned.
    """
    d = d1 + d2
    if not 0.0 < float(d.sum()) < np.inf:  # the weights have rounded away
        return None
    inverse = coordinates.preconditioner(d if held is None else d + held, precision)
    if inverse is None:
        return None
    border = coordinates.adjoint(d2 - d1)
    bordered = inverse(border)
    total, crossed = numbers(d.sum(), inner(border, bordered))
    total += corner
    # Rounding can push a tiny Schur complement below zero; any positive value only slows CG.
    schur = max(total - crossed, 1e-12 * total)
    if not 0.0 < schur < np.inf:
        return None
    return NormalSystem(coordinates, d1, d2, held, corner, inverse, border, bordered, schur)


def stronger(coordinates: MinimaxCoordinates, precision: int) -> int | None:
    """The preconditioner to try after this one; None when there is none."""
    options = [option for option in coordinates.precisions if option > precision]
    return options[0] if options else None


@dataclass(frozen=True)
class WeightedFit:
    """A weighted least-squares fit, the system that gave it, and its preconditioner."""

    x: Array
    system: NormalSystem | None
    precision: int


def least_squares(
    coordinates: MinimaxCoordinates,
    b: Vector,
    weights: Vector,
    x: Array | None,
    rounds: int,
    near: bool = False,
) -> WeightedFit:
    """Minimise ``sum_i weights_i (forward(x)_i - b_i)^2``, starting at x (zero if None).

    Each round starts from the residual of the data, so that a consistent fit ends at rounding.
    Where x is `near` the minimum, the first is as precise as one that starts at zero, not more.
    """
    if x is None:
        x = np.zeros_like(coordinates.adjoint(np.zeros_like(b)))
    for precision in coordinates.precisions:
        last = precision == coordinates.precisions[-1]
        system = normal(coordinates, 0.5 * weights, 0.5 * weights, precision)
        if system is None:
            continue
        limit = coordinates.patience(precision)
        z = coordinates.forward(x) - b
        for k in range(rounds):
            right, tolerance = coordinates.adjoint(-weights * z), 1e-9
            if near and k == 0:
                left = norm(right)
                whole = norm(coordinates.adjoint(weights * b))
                tolerance = min(max(1e-9, 1e-9 * whole / left if left > 0.0 else 1.0), 0.1)
            step, _, count = system.solve(right, 0.0, tolerance, limit)
            if count == limit and not last:
                break
            trial = coordinates.forward(x + step) - b
            with np.errstate(over="ignore"):  # beyond float64 both are as bad
                before, after = numbers(weights @ z**2, weights @ trial**2)
            if after < before:
                x, z = x + step, trial
            # An inconsistent fit is done once; a consistent one shrinks until rounding.
            if not after < 0.25 * before:
                return WeightedFit(x, system, precision)
        else:
            return WeightedFit(x, system, precision)
    return WeightedFit(x, None, coordinates.precisions[-1])


Mask = npt.NDArray[np.bool_]


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


def newton_direction(
    system: NormalSystem,
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

    Where no dual feasible multipliers are known, a step that goes to the boundary ends next to
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
    system: NormalSystem, at: MinimaxPoint, *, tolerance: float, correctors: int
) -> MinimaxDirection:
    """Mehrotra's predictor and corrector, then Gondzio's centrality correctors.

    Parameters
    ----------
    system : NormalSystem
        With weights ``duals / slacks``.
    at : MinimaxPoint
    tolerance : float
        Relative residual of the corrector's solve.
    correctors : int
        Most centrality correctors [Gondzio 1996]; each takes one solve and may save a factor.
    """
    mu, slacks, duals = at.mu, at.slacks, at.duals
    affine = newton_direction(system, at, 0.0, np.zeros_like(slacks), 0.0, 1e-3)
    ahead = affine.taken(at).mu
    # Where all complementarity has rounded away there is nothing left to centre.
    aim = mu * (ahead / mu) ** 3 if mu > 0.0 else 0.0
    goal = aim - affine.slacks * affine.duals
    push = aim - affine.dt * affine.floor
    best = newton_direction(system, at, aim, goal, push, tolerance)
    for _ in range(correctors):
        a, c = min(1.0, best.primal + CORRECTOR_REACH), min(1.0, best.dual + CORRECTOR_REACH)
        products = (slacks + a * best.slacks) * (duals + c * best.duals)
        pull = np.clip(products, 0.1 * aim, 10.0 * aim) - products
        goal = goal + np.maximum(pull, -10.0 * aim)
        trial = newton_direction(system, at, aim, goal, push, tolerance)
        if trial.primal + trial.dual < best.primal + best.dual + 0.1 * CORRECTOR_REACH:
            break
        best = trial
    return best
