"""Which few measurements are suspect: those that a robust fit misses.

A least-absolute-deviations fit, by iteratively reweighted least squares, is hardly moved by gross
errors and ranks the rows, the clear cases first. `quadsense.stages.violations` tries without them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quadsense.core.packed import Array, Vector
from quadsense.methods.minimax.newton import least_squares
from quadsense.methods.minimax.program import MinimaxProgram, excess, residual

Indices = npt.NDArray[np.intp]

MIN_SMOOTHING = 0.3
"""Residuals below this share of their tolerance count alike."""

SMOOTHING_FACTOR = 0.2
"""How fast the smoothing falls to the floor."""

MAX_SETTLED_CHANGE = 1e-3
"""Relative change of the fit at which it has settled."""

SUSPECT_RATIOS = (3.0, 1.5, 1.0)
"""Tolerances beyond which a row is suspect, the clear cases first."""


@dataclass(frozen=True)
class RobustState:
    """The robust fit so far.

    Attributes
    ----------
    iteration : int
    x : ndarray
        Unknowns, in the coordinates of the problem.
    smoothing : float
        Ratio below which the weights are even.
    max_ratio : float
        Of all rows, outliers included.
    settled : bool
        The fit no longer moves.
    """

    iteration: int
    x: Array
    smoothing: float
    max_ratio: float
    settled: bool


def _errors(problem: MinimaxProgram, x: Array) -> Vector:
    return excess(problem, residual(problem, x))


def start(problem: MinimaxProgram, weights: Vector | None = None) -> RobustState:
    """Least squares, of even weights or these."""
    weights = np.ones(problem.b.size) if weights is None else weights
    x = _weighted_fit(problem, weights, None)
    errors = _errors(problem, x)
    return RobustState(
        0, x, max(float(np.median(errors)), MIN_SMOOTHING), float(errors.max()), False
    )


def advance(
    problem: MinimaxProgram, state: RobustState, steps: int, power: float = 1.0
) -> RobustState:
    """Take up to `steps` reweighted least-squares steps towards least absolute deviations.

    Parameters
    ----------
    problem : MinimaxProgram
    state : RobustState
        Not modified.
    steps : int
        Factorisations to spend.
    power : float
        A row weighs ``error^-power``: 1 is least absolute deviations; 2, a sum of logarithms, is
        not convex, but gives gross errors almost no weight, and begins well where the former ended.
    """
    for _ in range(steps):
        if state.settled:
            break
        errors = _errors(problem, state.x)
        weights = np.maximum(errors, state.smoothing) ** -power
        x = _weighted_fit(problem, weights, state.x)
        errors = _errors(problem, x)
        moved = float(np.linalg.norm(x - state.x)) / max(float(np.linalg.norm(x)), 1e-300)
        state = RobustState(
            iteration=state.iteration + 1,
            x=x,
            smoothing=max(
                min(SMOOTHING_FACTOR * state.smoothing, float(np.median(errors))), MIN_SMOOTHING
            ),
            max_ratio=float(errors.max()),
            settled=state.smoothing <= MIN_SMOOTHING and moved < MAX_SETTLED_CHANGE,
        )
    return state


def _weighted_fit(problem: MinimaxProgram, weights: Vector, x: Array | None) -> Array:
    used = problem.sides.any(axis=0)
    b = problem.b / problem.delta
    return least_squares(problem.coordinates, b, weights * used, x, rounds=1).x


def candidates(problem: MinimaxProgram, state: RobustState, allowed: int, clear: float) -> Indices:
    """At most `allowed` rows that the robust fit misses by more than `clear` tolerances."""
    errors = _errors(problem, state.x)
    worst = np.argsort(-errors, kind="stable")[:allowed]
    return worst[errors[worst] > clear]
