"""The weighted normal equations of the sensing map: products, preconditioners, solves.

The interior-point and the least-absolute-deviations methods both live on systems

    sum_i  d1_i (tau - g_i.x) (1, -g_i) + d2_i (tau + g_i.x) (1, g_i)  =  right side

in the unknowns ``(x, tau)``, where ``g_i.x = F(A)_i / delta_i``. Products with this matrix cost
two passes over U. Its Cholesky factor costs ``m N^2`` for N unknowns, so the factor is built in
float32 while that is accurate enough and conjugate gradients in float64 repair the difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from quadsense.core.packed import Array, Vector
from quadsense.device import numbers, scalar, waits
from quadsense.methods.minimax.coordinates import MinimaxCoordinates, Preconditioner
from quadsense.system.watch import look

MAX_GRADIENTS = 2000  # conjugate-gradient steps of one solve, at most


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
