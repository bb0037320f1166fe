"""The best worst-case error that a positive semidefinite matrix can reach, from both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from quadsense.measurements.sensing import Sensing
from quadsense.methods.positive import careful, newton, phases
from quadsense.methods.positive.maps import Array, Intervals, Real, forward, forward_error
from quadsense.methods.positive.program import Program, prepare
from quadsense.proofs.positive import PsdCertificate, certify, lift_floor

MAX_STEPS = 4000  # of one bisection, far above the usual dozens
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
    U: Array | Sensing,
    intervals: Intervals,
    gap: float = 0.01,
    stop: Callable[[], bool] = lambda: False,
) -> BestRatio:
    """Return bounds with ``upper <= (1 + gap) lower``, or the best that was found.

    Where the interior-point method fits in memory it closes in on both sides at once; beyond,
    `phases` bisects on the ratio. A ratio of 0 can be reached where the data fit exactly, and then
    only the upper bound, below `EXACT`, says so. `stop` is asked between steps.
    """
    F = Sensing.of(U)
    # In a unit of the size of the readings, a power of 4 so that nothing is rounded.
    size = float(np.max(intervals.width))
    for ends in (intervals.lo, intervals.hi):
        size = max(size, float(np.max(np.abs(ends), where=np.isfinite(ends), initial=0.0)))
    unit = 4.0 ** (np.frexp(size)[1] // 2)
    with np.errstate(under="ignore"):
        scaled = Intervals(*(x / unit for x in (intervals.lo, intervals.hi, intervals.width)))
        best = _trivial(F, scaled)
        if bool(np.any(F.squares > 0.0)) and not (_closed(best, gap) or stop()):
            problem = prepare(F, scaled)
            if not phases.newton_fits(problem):
                best = _by_bisection(problem, gap, stop, best)
            elif problem.basis is None:
                best = _by_interior(problem, gap, stop, best)
            else:
                best = _within_span(problem, problem.basis, gap, stop, best)
    return replace(best, X=np.sqrt(unit) * best.X)


def _trivial(F: Sensing, intervals: Intervals) -> BestRatio:
    """Return what A = 0 reaches, and what the one row that it misses most proves."""
    miss = np.maximum(-intervals.hi, intervals.lo) / intervals.width
    worst = int(np.argmax(miss))
    upper = max(0.0, 1.0 + float(miss[worst]))
    y: Real = np.zeros(len(miss))
    if upper > 0.0:
        y[worst] = 1.0 if -intervals.hi[worst] >= intervals.lo[worst] else -1.0
    proof = certify(F, intervals, y)
    nothing = np.zeros((F.shape[1], 1), dtype=F.dtype)
    return BestRatio(upper, min(upper, proof.lower_bound), nothing, proof)


def _closed(best: BestRatio, gap: float) -> bool:
    return best.upper_bound <= max((1.0 + gap) * best.lower_bound, EXACT)


def _by_interior(
    problem: Program, gap: float, stop: Callable[[], bool], best: BestRatio
) -> BestRatio:
    """Close in by the interior-point method, and by the one that rounds less where that stalls."""
    F, intervals = problem.F, problem.intervals
    state: newton.NewtonState | careful.CarefulState = newton.start(F, intervals)
    while not (_closed(best, gap) or stop()):
        if not state.stalled:
            advance = newton.advance if isinstance(state, newton.NewtonState) else careful.advance
            state = advance(F, intervals, state, 1)  # type: ignore[arg-type]
        elif isinstance(state, newton.NewtonState) and careful.fits(F):
            state = careful.start(F, intervals)
        else:
            break
        upper = intervals.max_ratio(forward(F, state.X), forward_error(F, state.X))
        best = _better(best, upper, state.X, certify(F, intervals, state.y, problem.floor))
    return best


def _within_span(
    problem: Program, basis: Array, gap: float, stop: Callable[[], bool], best: BestRatio
) -> BestRatio:
    """Close in among matrices on the span of the rows, where the others read 0.

    There the rows span the space, so the lower bound is proved without condition; for the space
    as a whole the caller takes a bound on the trace for granted.
    """
    floor = lift_floor(problem.rows, problem.intervals)
    inside = replace(problem, F=problem.rows, basis=None, floor=floor)
    found = _by_interior(inside, gap, stop, replace(best, X=basis.conj().T @ best.X))
    return replace(found, X=np.asarray(basis @ found.X))


def _by_bisection(
    problem: Program, gap: float, stop: Callable[[], bool], best: BestRatio
) -> BestRatio:
    """Halve the distance of the bounds, asking at each ratio whether it can be had."""
    F, intervals = problem.F, problem.intervals
    while not (_closed(best, gap) or stop()):
        # Halve in the logarithm while the lower bound is not yet of the upper one's size.
        low, high = best.lower_bound, best.upper_bound
        ratio = 0.5 * (low + high) if low > 0.1 * high else 0.1 * high
        asked = intervals.widened(ratio)
        problem = prepare(F, Intervals(asked.lo, asked.hi, ratio * intervals.width))
        state = phases.advance(problem, phases.start(problem), MAX_STEPS)
        upper = intervals.max_ratio(forward(F, state.X), forward_error(F, state.X))
        after = _better(best, upper, state.X, certify(F, intervals, state.certificate.y))
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
