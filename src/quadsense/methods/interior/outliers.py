"""Which few measurements to set aside so that the rest can be met.

Choosing the smallest such set is combinatorial. A least-absolute-deviations fit, by iteratively
reweighted least squares, is hardly moved by gross errors and ranks the rows; `iteration` then
settles whether the rows that are kept can be met. Rows are set aside only where it must be, the
clear cases first. A set that is found is verified; one that is not found may still exist.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from quadsense.methods.interior import iteration
from quadsense.methods.interior.mehrotra import SIGNS
from quadsense.methods.interior.normal import least_squares
from quadsense.methods.interior.program import Program, excess, prepare, residual
from quadsense.methods.interior.svec import Array, Vector

Indices = npt.NDArray[np.intp]

FLOOR = 0.3  # residuals below this share of their tolerance count alike
SHRINK = 0.2  # how fast the smoothing falls to the floor
SETTLED = 1e-3  # relative change of the fit at which it has settled
CLEAR = (3.0, 1.5, 1.0)  # tolerances beyond which a row is suspect, the clear cases first


@dataclass(frozen=True)
class State:
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


@dataclass(frozen=True)
class Outcome:
    """Rows set aside, and what is known of the others.

    Attributes
    ----------
    set_aside : ndarray of int
        Rows left out, in increasing order; no more than were allowed.
    kept : ndarray of int
        The rows of `program`. A row that is in neither was left out and is met all the same.
    problem : Program
    state : iteration.State
        ``verdict(state, target=True, gap=...)`` is ``"met"`` in a success.
    met : bool
    """

    set_aside: Indices
    kept: Indices
    problem: Program
    state: iteration.State
    met: bool


def _errors(problem: Program, x: Array) -> Vector:
    return excess(problem, residual(problem, x))


def start(problem: Program) -> State:
    """Least squares."""
    x = _weighted_fit(problem, np.ones(problem.b.size), None)
    errors = _errors(problem, x)
    return State(0, x, max(float(np.median(errors)), FLOOR), float(errors.max()), False)


def advance(problem: Program, state: State, steps: int, power: float = 1.0) -> State:
    """Take up to `steps` reweighted least-squares steps towards least absolute deviations.

    Parameters
    ----------
    problem : Program
    state : State
        Not modified.
    steps : int
        Factorisations to spend.
    power : float
        A row weighs ``error^-power``: 1 is least absolute deviations; 2, a sum of logarithms, is
        not convex but all but forgets gross errors, and begins well where the former ended.
    """
    for _ in range(steps):
        if state.settled:
            break
        errors = _errors(problem, state.x)
        weights = np.maximum(errors, state.smoothing) ** -power
        x = _weighted_fit(problem, weights, state.x)
        errors = _errors(problem, x)
        moved = float(np.linalg.norm(x - state.x)) / max(float(np.linalg.norm(x)), 1e-300)
        state = State(
            iteration=state.iteration + 1,
            x=x,
            smoothing=max(min(SHRINK * state.smoothing, float(np.median(errors))), FLOOR),
            max_ratio=float(errors.max()),
            settled=state.smoothing <= FLOOR and moved < SETTLED,
        )
    return state


def _weighted_fit(problem: Program, weights: Vector, x: Array | None) -> Array:
    used = problem.sides.any(axis=0)
    b = problem.b / problem.delta
    return least_squares(problem.coordinates, b, weights * used, x, rounds=1).x


def candidates(problem: Program, state: State, allowed: int, clear: float) -> Indices:
    """At most `allowed` rows that the robust fit misses by more than `clear` tolerances."""
    errors = _errors(problem, state.x)
    worst = np.argsort(-errors, kind="stable")[:allowed]
    return worst[errors[worst] > clear]


def set_aside(problem: Program, allowed: int, steps: int = 60) -> Outcome:
    """Set at most `allowed` rows aside so that all the others are met.

    Parameters
    ----------
    problem : Program
    allowed : int
        Most rows to set aside.
    steps : int
        Most steps of the robust fit, and of each verification.

    Returns
    -------
    Outcome
        A row that was left out and that the final fit meets all the same is not listed.
    """
    allowed = min(allowed, problem.b.size - 1)
    nothing = np.zeros(0, dtype=np.intp)
    outcome = _verify(problem, nothing, steps)
    if outcome.met or allowed == 0:
        return outcome
    convex = advance(problem, start(problem), steps)
    sharper = advance(problem, replace(convex, smoothing=1.0, settled=False), steps, power=2.0)
    for robust in (sharper, convex):
        rows = nothing
        for clear in CLEAR:
            following = candidates(problem, robust, allowed, clear)
            if following.size > rows.size:
                rows = following
                outcome = _verify(problem, rows, steps)
                if outcome.met:
                    return outcome
    while rows.size < allowed and outcome.state.lower > 1.0:
        # The contradiction rests on the rows with the largest multipliers.
        weight = np.abs(outcome.state.y) * outcome.problem.delta
        blame = np.argsort(-weight, kind="stable")[: max(1, (allowed - rows.size) // 2)]
        rows = np.concatenate([rows, outcome.kept[blame]])
        outcome = _verify(problem, rows, steps)
        if outcome.met:
            break
    return outcome


def _verify(problem: Program, rows: Indices, steps: int) -> Outcome:
    """Leave these rows out, and settle whether the others can be met."""
    keep = np.ones(problem.b.size, dtype=bool)
    keep[rows] = False
    rest = prepare(problem.U[keep], problem.b[keep], problem.delta[keep], problem.sides[:, keep])
    state = iteration.advance(rest, iteration.start(rest), steps, target=True)
    met = iteration.verdict(state, target=True, gap=0.0) == "met"
    if met:
        rows = rows[_broken(problem, rows, iteration.measure(rest, state, problem.U[rows]))]
    return Outcome(np.sort(rows), np.flatnonzero(keep), rest, state, met)


def _broken(problem: Program, rows: Indices, readings: Vector) -> npt.NDArray[np.bool_]:
    """Whether the readings of a fit leave the intervals of these rows."""
    z = (readings - problem.b[rows]) / problem.delta[rows]
    return np.asarray(np.any(problem.sides[:, rows] & (-SIGNS * z > 1.0), axis=0))
