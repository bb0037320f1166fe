"""The smallest worst-case error: ``min_A max_i |F(A)_i - b_i| / delta_i``, with both bounds.

The interior-point kernel of `conic` on the linear program

    minimize t   subject to   -t <= (F(A)_i - b_i) / delta_i <= t,

started at least squares, whose weighted residual is already dual feasible. It stops at the gap that
was asked. Its multipliers give the vector y of the lower bound ``y.b / sum |y_i| delta_i``,
``F*(y) = 0``, which is computed here and proved in `proofs.symmetric`. An end of an interval may be
missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.methods.base import LENIENT
from quadsense.methods.conic import finish, steps
from quadsense.methods.conic.solve import MAX_STEPS
from quadsense.methods.minimax.coordinates import SeenRows
from quadsense.methods.minimax.program import (
    MinimaxProgram,
    least_squares,
    projected,
    worst_ratio,
)
from quadsense.proofs.symmetric import allowed, lower_bound

RatioVerdict = Literal["met", "infeasible", "optimal", "stalled"]


@dataclass(frozen=True)
class IterationState:
    """Where the method stands.

    Attributes
    ----------
    kernel : KernelState or None
        The interior-point iterate; None at least squares.
    x : ndarray
        Best unknowns so far; `matrix` turns them into A.
    max_ratio : float
        ``max_i |F(A)_i - b_i| / delta_i`` of `x`: the upper bound.
    rounding : float
        How much rounding may add to `max_ratio`.
    lower : float
        Lower bound on the ratio.
    y : ndarray, shape (m,)
        Vector that gives `lower`: the proof of infeasibility once `lower` exceeds 1.
    """

    kernel: steps.KernelState | None
    x: Array
    max_ratio: float
    rounding: float
    lower: float
    y: Vector

    @property
    def iteration(self) -> int:
        """Steps taken."""
        return 0 if self.kernel is None else self.kernel.iteration

    @property
    def stalled(self) -> bool:
        """Whether rounding stops further progress."""
        kernel = self.kernel
        if kernel is None:
            return self.max_ratio == 0.0
        idle = kernel.idle >= steps.MAX_IDLE_STEPS or kernel.iteration >= MAX_STEPS
        return kernel.stuck or idle


class RatioBounds(Protocol):
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


def matrix(program: MinimaxProgram, state: RatioBounds) -> tuple[Array, bool]:
    """The fit: ``(A, True)``, or ``(c, False)`` with ``A = F*(c)`` where n by n may not fit."""
    if isinstance(program.F, SeenRows):
        return program.F.coefficients(state.x), False
    return 0.5 * (state.x + state.x.conj().T), True


def verdict(state: RatioBounds, *, target: bool, gap: float) -> RatioVerdict | None:
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


def start(program: MinimaxProgram) -> IterationState:
    """Least squares, weighted by the tolerances."""
    x, z = least_squares(program)
    state = IterationState(None, x, *worst_ratio(program, x, z), 0.0, np.zeros_like(z))
    if state.max_ratio <= state.rounding:
        return state
    return _bounded(program, state, -z / program.delta)


def _begun(program: MinimaxProgram, state: IterationState) -> steps.KernelState:
    """The first interior-point iterate, about least squares."""
    kernel, F = program.kernel, program.F
    y = (to_numpy(F.forward(state.x)) - program.b) / program.delta**2
    size = float(np.max(np.abs(y), initial=0.0)) or 1.0
    return steps.first(kernel, state.x / kernel.scale, F.beside(y / size))


def advance(
    program: MinimaxProgram,
    state: IterationState,
    count: int,
    *,
    target: bool = False,
    gap: float = 0.01,
) -> IterationState:
    """Take up to `count` interior-point steps; stop early at a verdict.

    Parameters
    ----------
    program : MinimaxProgram
    state : IterationState
        Not modified.
    count : int
        Steps to spend, one factorization each.
    target : bool
        Stop once ratio 1 is met or proved impossible, instead of at `gap`.
    gap : float
        Relative distance of the two bounds at which to stop.
    """
    for _ in range(count):
        if verdict(state, target=target, gap=gap) is not None:
            break
        with LENIENT():
            kernel = state.kernel or _begun(program, state)
            kernel = steps.advance(program.kernel, kernel)
        state = _with_fit(program, replace(state, kernel=kernel), kernel)
        y = -finish.dual(program.kernel, kernel.at)
        # The bound that y would give if F*(y) were zero.
        promise = replace(state, lower=max(_promise(program, y), state.lower))
        if state.stalled or verdict(promise, target=target, gap=gap) is not None:
            state = _bounded(program, state, projected(program, y))
            if verdict(state, target=target, gap=gap) is None or state.stalled:
                state = _bounded(program, state, y)
    return state


def _with_fit(
    program: MinimaxProgram, state: IterationState, now: steps.KernelState
) -> IterationState:
    """The state with the fit of its iterate, where that is better than the best so far."""
    kernel, at = program.kernel, now.at
    z = (kernel.scale * to_numpy(at.v) - program.b) / program.delta
    if not np.isfinite(z).all():
        return state
    ratio, rounding = worst_ratio(program, kernel.scale * at.A, z)
    if not ratio < state.max_ratio:
        return state
    return replace(state, x=kernel.scale * at.A, max_ratio=ratio, rounding=rounding)


def _promise(program: MinimaxProgram, y: Vector) -> float:
    mass = float(np.abs(y) @ program.delta)
    return max(float(y @ program.b) / mass, 0.0) if mass > 0.0 else 0.0


def _bounded(program: MinimaxProgram, state: IterationState, y: Vector) -> IterationState:
    """With the bound by a vector, where that is better than the best so far."""
    upper, lower = program.sides
    y = allowed(y, lower, upper)
    if not (np.isfinite(y).all() and y.any()):
        return state
    left = float(np.linalg.norm(to_numpy(program.F.adjoint(program.F.beside(y)))))
    bound = lower_bound(program.b, program.delta, y, left, program.max_norm)
    return replace(state, lower=bound, y=y) if bound > state.lower else state
