"""The best worst-case error that a positive semidefinite matrix can reach, from both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from quadsense.methods.positive import newton, phases
from quadsense.methods.positive.infeasible import PsdCertificate, certify
from quadsense.methods.positive.maps import Array, Intervals, forward, forward_error
from quadsense.methods.positive.program import Program, prepare

MAX_STEPS = 4000
EXACT = 1e-9  # ratio that counts as an exact fit: widths are to be of the readings' size


@dataclass(frozen=True)
class BestRatio:
    """Two proved bounds on ``min max_ratio`` over ``A >= 0``.

    Attributes
    ----------
    upper_bound : float
        Reached by ``A = X X*``, rounding included.
    lower_bound : float
        Proved by the certificate's vector.
    X : ndarray, shape (n, k)
    certificate : PsdCertificate
        Of the intervals as given.
    """

    upper_bound: float
    lower_bound: float
    X: Array
    certificate: PsdCertificate


def best_ratio(
    U: Array,
    intervals: Intervals,
    gap: float = 0.01,
    stop: Callable[[], bool] = lambda: False,
) -> BestRatio:
    """Return bounds with ``upper <= (1 + gap) lower``, or the best that was found.

    Where the interior-point method fits in memory it closes in on both sides at once; beyond,
    `phases` bisects on the ratio. A ratio of 0 can be reached where the data fit exactly, and then
    only the upper bound, below `EXACT`, says so. `stop` is asked between steps.
    """
    problem = prepare(U, intervals)
    if problem.basis is None and phases.newton_fits(problem):
        return _by_newton(problem, gap, stop)
    return _by_bisection(problem, gap, stop)


def _closed(best: BestRatio, gap: float) -> bool:
    return best.upper_bound <= max((1.0 + gap) * best.lower_bound, EXACT)


def _by_newton(problem: Program, gap: float, stop: Callable[[], bool]) -> BestRatio:
    U, intervals, floor = problem.U, problem.intervals, problem.floor
    state = newton.start(U, intervals)
    best = BestRatio(np.inf, 0.0, state.X, certify(U, intervals, state.y, floor))
    while not (_closed(best, gap) or state.stalled or stop()):
        state = newton.advance(U, intervals, state, 1)
        upper = intervals.max_ratio(forward(U, state.X), forward_error(U, state.X))
        proof = certify(U, intervals, state.y, floor)
        best = _better(best, upper, state.X, proof)
    return best


def _by_bisection(problem: Program, gap: float, stop: Callable[[], bool]) -> BestRatio:
    U, intervals = problem.U, problem.intervals
    begun = phases.start(problem)
    best = BestRatio(begun.max_ratio, 0.0, begun.X, begun.certificate)
    while not (_closed(best, gap) or stop()):
        # Halve in the logarithm while the lower bound is not yet of the upper one's size.
        low, high = best.lower_bound, best.upper_bound
        ratio = 0.5 * (low + high) if low > 0.1 * high else 0.1 * high
        asked = intervals.widened(ratio)
        problem = prepare(U, Intervals(asked.lo, asked.hi, ratio * intervals.width))
        state = phases.advance(problem, phases.start(problem), MAX_STEPS)
        upper = intervals.max_ratio(forward(U, state.X), forward_error(U, state.X))
        after = _better(best, upper, state.X, certify(U, intervals, state.certificate.y))
        if (after.upper_bound, after.lower_bound) == (high, low):
            break
        best = after
    return best


def _better(best: BestRatio, upper: float, X: Array, proof: PsdCertificate) -> BestRatio:
    """Return the better of the old and the new on each side."""
    if upper >= best.upper_bound:
        upper, X = best.upper_bound, best.X
    if proof.lower_bound <= best.lower_bound:
        proof = best.certificate
    return BestRatio(upper, proof.lower_bound, X, proof)
