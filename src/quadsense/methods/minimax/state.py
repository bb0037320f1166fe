"""Where the interior-point method stands, and what that says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from quadsense.core.packed import Array, Vector
from quadsense.methods.minimax.coordinates import GramCoordinates
from quadsense.methods.minimax.program import Program
from quadsense.methods.minimax.rows import RowCoordinates

Verdict = Literal["met", "infeasible", "optimal", "stalled"]


@dataclass(frozen=True)
class State:
    """Where the method stands.

    Attributes
    ----------
    iteration : int
        Interior-point steps so far.
    x : ndarray
        Best unknowns so far; `matrix` turns them into A.
    max_ratio : float
        ``max_i |F(A)_i - b_i| / delta_i`` of `x`: the upper bound.
    rounding : float
        How much rounding may add to `max_ratio`.
    lower : float
        Lower bound on the ratio of every A of Frobenius norm at most `norm`.
    y : ndarray, shape (m,)
        Vector that gives `lower`: the proof of infeasibility once `lower` exceeds 1.
    norm : float
        No better fit is larger: estimated from the smallest singular value of F where that is
        positive, else ``Program.max_norm``. The certificate proves it afresh.
    center, level, duals, floor
        The interior-point iterate: unknowns, t, multipliers of shape (2, m), and that of
        ``t >= 0``, which stands where ends are missing: t might fall without limit.
    precision : int
        Preconditioner: 0 while conjugate gradients need no factor, else the bits of the factor.
    far : ndarray, shape (m,), or None
        Where ends are missing, the residuals from which on the barrier holds open sides back.
    marks, idle
        Mean complementarity, distance of the multipliers from dual feasible, and ratio, when one
        of them had last fallen by a tenth; and how many steps ago that was.
    stalled : bool
        Rounding stops further progress.
    """

    iteration: int
    x: Array
    max_ratio: float
    rounding: float
    lower: float
    y: Vector
    norm: float
    center: Array
    level: float
    duals: Vector
    floor: float
    far: Vector | None
    precision: int
    marks: tuple[float, ...]
    idle: int
    stalled: bool


class Bounds(Protocol):
    """What a state says of the best ratio, on whichever rows."""

    @property
    def x(self) -> Array:
        """Best unknowns so far."""

    @property
    def max_ratio(self) -> float:
        """Of `x`."""

    @property
    def rounding(self) -> float:
        """How much rounding may add to it."""

    @property
    def lower(self) -> float:
        """Lower bound on the ratio."""

    @property
    def stalled(self) -> bool:
        """Whether nothing more can be gained."""


def matrix(problem: Program, state: Bounds) -> tuple[Array, bool]:
    """The fit: ``(A, True)``, or ``(c, False)`` with ``A = F*(c)`` where n by n may not fit."""
    coordinates = problem.coordinates
    if isinstance(coordinates, GramCoordinates):
        return coordinates.coefficients(state.x), False
    if isinstance(coordinates, RowCoordinates):
        return coordinates.matrix(state.x, problem.F.n, problem.F.dtype), True
    return 0.5 * (state.x + state.x.conj().T), True


def measure(problem: Program, state: State, V: Array) -> Vector:
    """Readings ``v* A v`` of the fit for the rows v of V, shape (k, n)."""
    A, formed = matrix(problem, state)
    if formed:
        return np.asarray(np.einsum("ij,ij->i", V.conj(), V @ A.T).real)
    return np.asarray(np.abs(problem.F.times(V.T)).T ** 2 @ A)


def verdict(state: Bounds, *, target: bool, gap: float) -> Verdict | None:
    """What the bounds say; None while they are not close enough.

    With a target the question is whether ratio 1 can be had; without, how small it can be. A
    fit that is exact up to rounding is the smallest.
    """
    upper = state.max_ratio + state.rounding
    if target and upper <= 1.0:
        return "met"
    if target and state.lower > 1.0:
        return "infeasible"
    if not target and (state.max_ratio <= state.rounding or upper - state.lower <= gap * upper):
        return "optimal"
    return "stalled" if state.stalled else None
