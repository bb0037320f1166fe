"""The best worst-case error that a positive semidefinite matrix can reach, from both sides."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quadsense.core.records import cached_property
from quadsense.measurements.mixed import Mixed
from quadsense.measurements.sensing import Sensing
from quadsense.methods.psd import careful, newton, phases
from quadsense.methods.psd.maps import Array, Intervals, Real, forward, forward_error
from quadsense.methods.psd.program import Program, prepare
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


@dataclass(frozen=True)
class BestProgram:
    """The data, in a unit of the size of the readings.

    Attributes
    ----------
    U : ndarray, shape (m, n)
    intervals : Intervals
        In units of `unit`.
    unit : float
        A power of 4, so that nothing, nor a root of it, is rounded.
    gap : float
        Relative distance of the bounds at which to stop.
    """

    F: Sensing
    intervals: Intervals
    unit: float
    gap: float

    @cached_property
    def whole(self) -> Program:
        """The data in coordinates of the span of the rows."""
        return prepare(self.F, self.intervals)

    @cached_property
    def inside(self) -> Program:
        """The data among matrices on the span of the rows, where the others read 0.

        There the rows span the space, so the lower bound is proved without condition; for the
        space as a whole the caller takes a bound on the trace for granted.
        """
        if self.whole.basis is None:
            return self.whole
        floor = lift_floor(self.whole.rows, self.intervals)
        return replace(self.whole, F=self.whole.rows, basis=None, floor=floor)

    @cached_property
    def by_interior(self) -> bool:
        """Whether the interior-point method fits in memory; else `phases` bisects."""
        return phases.newton_fits(self.whole)

    def asking(self, ratio: float) -> Program:
        """The question whether that ratio can be had; the last one is kept."""
        kept: tuple[float, Program] | None = self.__dict__.get("_asking")
        if kept is None or kept[0] != ratio:
            asked = self.intervals.widened(ratio)
            width = ratio * self.intervals.width
            kept = ratio, prepare(self.F, Intervals(asked.lo, asked.hi, width))
            self.__dict__["_asking"] = kept
        return kept[1]


@dataclass(frozen=True)
class State:
    """Where the search stands.

    Attributes
    ----------
    best : BestRatio
        Bounds so far, in units of the program; X in the coordinates of the span of the rows where
        the interior-point method is at work on these.
    inner : NewtonState, CarefulState, phases.State or None
        The method at work; None where the next one begins.
    asked : float
        The ratio that a bisection asks for now.
    iteration : int
    ended : bool
        The bounds have closed, or nothing more is to be had.
    """

    best: BestRatio
    inner: newton.NewtonState | careful.CarefulState | phases.State | None
    asked: float
    iteration: int
    ended: bool


def best_program(F: Sensing, intervals: Intervals, gap: float = 0.01) -> BestProgram:
    """Return what follows from the data."""
    size = float(np.max(intervals.width))
    for ends in (intervals.lo, intervals.hi):
        size = max(size, float(np.max(np.abs(ends), where=np.isfinite(ends), initial=0.0)))
    unit = float(4.0 ** (np.frexp(size)[1] // 2))
    with np.errstate(under="ignore"):
        scaled = Intervals(*(x / unit for x in (intervals.lo, intervals.hi, intervals.width)))
    return BestProgram(F, scaled, unit, gap)


def start(program: BestProgram) -> State:
    """Return the state at A = 0."""
    with np.errstate(under="ignore"):
        best = _trivial(program.F, program.intervals)
    ended = _closed(best, program.gap) or not bool(np.any(program.F.sizes > 0.0))
    return State(best, None, 0.0, 0, ended)


def advance(program: BestProgram, state: State, steps: int) -> State:
    """Return the state after about ``steps`` steps; fewer once it has ended.

    Where the interior-point method fits in memory it closes in on both sides at once; beyond,
    `phases` bisects on the ratio.
    """
    end = state.iteration + steps
    with np.errstate(under="ignore"):
        while state.iteration < end and not state.ended:
            if program.by_interior:
                state = _close_in(program, state)
            else:
                state = _bisect(program, state, end - state.iteration)
    return state


def found(program: BestProgram, state: State) -> BestRatio:
    """Return the bounds, which hold whatever the unit, and the factor of the matrix as meant."""
    X = state.best.X
    if state.inner is not None and program.by_interior and program.whole.basis is not None:
        X = np.asarray(program.whole.basis @ X)
    return replace(state.best, X=np.sqrt(program.unit) * X)


def best_ratio(U: Array | Sensing, intervals: Intervals, gap: float = 0.01) -> BestRatio:
    """Return bounds with ``upper <= (1 + gap) lower``, or the best that was found.

    A ratio of 0 can be reached where the data fit exactly, and then only the upper bound, below
    `EXACT`, says so.
    """
    program = best_program(Sensing.of(U), intervals, gap)
    state = start(program)
    while not state.ended:
        state = advance(program, state, phases.STRIDE)
    return found(program, state)


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


def _close_in(program: BestProgram, state: State) -> State:
    """Take one interior-point step, of the method that rounds less where the other stalled."""
    problem, inner, best = program.inside, state.inner, state.best
    F, intervals = problem.F, problem.intervals
    if inner is None:
        inner = newton.start(F, intervals)
        best = replace(best, X=np.zeros((F.shape[1], 1), dtype=F.dtype))  # what A = 0 is there
    assert not isinstance(inner, phases.State)
    if inner.stalled:
        if not isinstance(inner, newton.NewtonState) or not careful.fits(F):
            return replace(state, best=best, inner=inner, ended=True)
        inner = careful.start(F, intervals)
    if isinstance(inner, newton.NewtonState):
        inner = newton.advance(F, intervals, inner, 1)
    else:
        inner = careful.advance(F, intervals, inner, 1)
    upper = intervals.max_ratio(forward(F, inner.X), forward_error(F, inner.X))
    proof = certify(F, intervals, inner.y, problem.floor)
    if isinstance(F, Mixed) and problem.floor == 0.0:
        proof = replace(proof, lower_bound=_limited_bound(problem, proof))
    best = _better(best, upper, inner.X, proof)
    return State(best, inner, 0.0, state.iteration + 1, _closed(best, program.gap))


def _limited_bound(problem: Program, proof: PsdCertificate) -> float:
    """Return the lower bound that holds for traces up to ``max_trace``.

    Where no combination of sums of rows is positive definite, y cannot be lifted, and
    ``F*(y) >= -e I`` costs e times the trace. The certificate says so.
    """
    value, error = problem.intervals.support(proof.y)
    cost = float(np.abs(proof.y) @ problem.intervals.width)
    above = value + error + proof.negative * problem.max_trace
    bound = 1.0 - above / cost if cost > 0.0 and np.isfinite(cost) else 0.0
    return max(proof.lower_bound, bound if np.isfinite(bound) else 0.0)


def _bisect(program: BestProgram, state: State, steps: int) -> State:
    """Ask whether a ratio between the bounds can be had, and halve their distance by the answer."""
    best, inner, ratio = state.best, state.inner, state.asked
    low, high = best.lower_bound, best.upper_bound
    if inner is None:
        # Halve in the logarithm while the lower bound is not yet of the upper one's size.
        ratio = 0.5 * (low + high) if low > 0.1 * high else 0.1 * high
        inner = phases.start(program.asking(ratio))
    assert isinstance(inner, phases.State)
    after = phases.advance(program.asking(ratio), inner, steps)
    iteration = state.iteration + max(1, after.iteration - inner.iteration)
    if after.verdict is phases.Verdict.RUNNING and after.iteration < MAX_STEPS:
        return State(best, after, ratio, iteration, False)
    F, intervals = program.F, program.intervals
    upper = intervals.max_ratio(forward(F, after.X), forward_error(F, after.X))
    best = _better(best, upper, after.X, certify(F, intervals, after.certificate.y))
    unmoved = (best.upper_bound, best.lower_bound) == (high, low)
    return State(best, None, 0.0, iteration, unmoved or _closed(best, program.gap))


def _better(best: BestRatio, upper: float, X: Array, proof: PsdCertificate) -> BestRatio:
    """Return the better of the old and the new on each side."""
    if upper >= best.upper_bound:
        upper, X = best.upper_bound, best.X
    if proof.lower_bound <= best.lower_bound:
        proof = best.certificate
    return BestRatio(upper, proof.lower_bound, X, proof)
