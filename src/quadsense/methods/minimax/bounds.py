"""The lower bound that multipliers give, computed here and proved in `infeasible`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quadsense.core.packed import Vector
from quadsense.device import numbers, waits
from quadsense.methods.minimax.coordinates import MatrixCoordinates
from quadsense.methods.minimax.mehrotra import System
from quadsense.methods.minimax.normal import Normal, norm, normal
from quadsense.methods.minimax.preconditioner import CholeskyPreconditioner
from quadsense.methods.minimax.program import Program
from quadsense.methods.minimax.rows import RowCoordinates
from quadsense.methods.minimax.state import State, verdict
from quadsense.proofs.symmetric import allowed, lower_bound


def largest_norm(problem: Program, system: Normal | None, ratio: float) -> float:
    """Norm that no fit of at most this ratio exceeds, as far as can be told."""
    if not bool(problem.sides.all()):
        return problem.max_norm
    coordinates, eigenvalue = problem.coordinates, 0.0
    if isinstance(coordinates, RowCoordinates):
        eigenvalue = coordinates.smallest_eigenvalue()
    elif isinstance(coordinates, MatrixCoordinates) and system is not None:
        inverse = system.inverse
        if isinstance(inverse, CholeskyPreconditioner):
            eigenvalue = inverse.smallest_eigenvalue()
    if eigenvalue == 0.0:
        return problem.max_norm
    # |F(A)| <= |b| + ratio delta; the factor 2 is for the estimate.
    reach = float(np.linalg.norm(np.abs(problem.b) / problem.delta + ratio))
    return min(problem.max_norm, 2.0 * reach / float(np.sqrt(eigenvalue)))


def with_bound(problem: Program, state: State, scaled: Vector) -> State:
    """Keep the better of the known lower bound and the one from ``y = scaled / delta``."""
    scaled = allowed(scaled, problem.sides[1], problem.sides[0])
    y = scaled / problem.delta
    # Computed, not proved: the certificate proves it once, at the end.
    missed = problem.coordinates.adjoint(scaled)
    if waits(y):
        gain, error, mass = numbers(
            problem.b @ y, np.linalg.norm(missed), np.abs(y) @ problem.delta
        )
        bound = max((gain - error * state.norm) / mass, 0.0) if mass > 0.0 else 0.0
    else:
        bound = lower_bound(problem.b, problem.delta, y, norm(missed), state.norm)
    return replace(state, lower=bound, y=y) if bound > state.lower else state


def bounded(
    problem: Program, state: State, system: System, z: Vector, target: bool, gap: float
) -> State:
    """Update the lower bound; sharpen the multipliers first where their error hides a verdict."""
    scaled = allowed(state.duals[1] - state.duals[0], problem.sides[1], problem.sides[0])
    after = with_bound(problem, state, scaled)
    if isinstance(problem.coordinates, RowCoordinates):  # next to no cost
        return with_bound(problem, after, system.project(scaled))
    mass, gain = numbers(np.abs(scaled).sum(), z @ scaled)
    # The bound that y would give if F*(y) were zero: -z differs from b by a member of the range.
    promise = -gain / mass if mass > 0.0 else 0.0
    hidden = promise - after.lower > 0.1 * (after.max_ratio - promise)
    if not hidden or verdict(replace(after, lower=promise), target=target, gap=gap) is None:
        return after
    if state.precision == 0 and problem.sides.all():
        # Without a factor the weighted system is slow; least squares spreads the repair evenly.
        half = np.full_like(z, 0.5)
        system = normal(problem.coordinates, half, half, 0) or system
    return with_bound(problem, after, system.project(scaled))
