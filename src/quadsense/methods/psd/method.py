"""A positive semidefinite fit, or a proof of none; without a tolerance the smallest error.

Without a tolerance it is the interior-point kernel where its arrays are small enough; otherwise
`phases` bisects on the ratio.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import Array, Intervals, Real
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import (
    AIMED_GAP,
    COLD,
    SHORT_STRIDE_FLOPS,
    Method,
    Problem,
    Stepped,
    Warm,
    nothing,
    own,
    start_matrix,
)
from quadsense.methods.conic import interior_fits
from quadsense.methods.conic.coordinates import forward_error, positive_part
from quadsense.methods.conic.method import Conic, ConicProgram, ConicState
from quadsense.methods.minimax.program import AskedRows, asked
from quadsense.methods.psd import PsdTraits, evaluation_flops, phases
from quadsense.methods.psd.phases import ConeProgram, prepare
from quadsense.proofs.positive import PsdCertificate, certify
from quadsense.vocabulary import Claim, because


@dataclass(frozen=True)
class PsdProgram:
    """The problem, the rows that ask for something, and these in coordinates of their span."""

    problem: Problem
    asked: AskedRows
    inner: ConeProgram | None


class Psd(PsdTraits, Stepped):
    """``A = X X*`` within the intervals: nearest fit, least misses, interior point.

    See `psd.phases`.
    """

    @staticmethod
    def without_target(problem: Problem) -> Method:
        """What runs where there is no tolerance: both bounds on the smallest worst error."""
        from quadsense.methods.psd.method import without_tolerance  # when needed

        return without_tolerance(problem)

    def prepare(self, problem: Problem) -> PsdProgram:
        """The rows that ask for something, in coordinates of their span."""
        with np.errstate(under="ignore"):
            what = asked(problem)
            largest = what.scale * float(np.max(np.abs(what.b) + what.delta, initial=0.0))
            plain = problem.base is None and problem.c_start is None
            origin: Any = float(problem.tau) if plain else start_matrix(problem)
            if plain and abs(origin) > largest:  # a mean of middles, not given by the user
                origin = 0.0
            program = None  # where nothing is asked
            if what.b.size:
                F, works = what.on(problem.rows.on_numpy()), what.on(problem.rows, problem.tf32)
                program = prepare(F, what.intervals, origin / what.scale, works=works)
            return PsdProgram(problem, what, program)

    def start(self, program: PsdProgram, warm: Warm = COLD) -> phases.SearchState:
        """The positive part of A_1: the answer where it is within all intervals."""
        with np.errstate(under="ignore"):
            problem, what, inner = program.problem, program.asked, program.inner
            factor = warm.factor
            if factor is not None:
                factor = to_numpy(factor) / np.sqrt(what.scale)
            given = factor
            plain = problem.base is None and problem.c_start is None
            if given is None and (inner is None or not plain):
                given = positive_part(start_matrix(problem) / what.scale)[0]
            if given is not None:
                ratio = 0.0
                if inner is not None:
                    error = forward_error(inner.F, given)
                    ratio = inner.intervals.max_ratio(inner.F.factored(given), error)
                if ratio <= 1.0:
                    return phases.settled(given, what.b.size, max(0.0, ratio))
            assert inner is not None
            return phases.start(inner, factor=factor)

    def stride(self, program: PsdProgram) -> int:
        """Evaluations worth a few milliseconds."""
        m, n = program.problem.m, program.problem.rows.n
        return int(np.clip(SHORT_STRIDE_FLOPS / evaluation_flops(m, n), 1, phases.STRIDE))

    def advance(
        self, program: PsdProgram, state: phases.SearchState, steps: int
    ) -> phases.SearchState:
        """Return the state after about `steps` more evaluations."""
        if program.inner is None:
            return state
        with np.errstate(under="ignore"):
            return phases.advance(program.inner, state, steps)

    def correct(
        self, program: PsdProgram, state: phases.SearchState, z: Array, goal: float
    ) -> phases.SearchState:
        """Aim lower, further inside the intervals."""
        return state if program.inner is None else phases.refused(program.inner, state, goal)

    def claim(self, program: PsdProgram, state: phases.SearchState) -> Claim | None:
        """Met, infeasible (checked already), or undecided."""
        proof, problem = state.certificate, program.problem
        dual = program.asked.spread(proof.y, problem.m)
        if state.verdict is phases.SearchVerdict.MET:
            return Claim("met")
        if state.verdict is phases.SearchVerdict.INFEASIBLE:
            return Claim("infeasible", dual=dual, lower=max(1.0, proof.lower_bound))
        if state.verdict is phases.SearchVerdict.UNDECIDED:
            reason = because("psd_between", lower=proof.lower_bound, upper=state.max_ratio)
            return Claim("undecided", reason, dual, proof.lower_bound)
        return None

    def matrix(self, program: PsdProgram, state: phases.SearchState) -> SensedMatrix:
        """``X X*``."""
        X = np.sqrt(program.asked.scale) * phases.matrix(state)
        return SensedMatrix.from_factor(own(program.problem, X))

    def first(self, problem: Problem) -> SensedMatrix:
        """A = 0."""
        return nothing(problem)


MAX_PROJECTIONS = 4000
"""Steps of `phases` on one ratio, far above the usual dozens."""


def without_tolerance(problem: Problem) -> Method:
    """Return the method for this problem."""
    F = problem.rows
    k = min(F.raw.m, F.n)  # the order of A in the span of the rows
    unknowns = k * k if F.is_complex else k * (k + 1) // 2
    return SmallestError() if interior_fits(max(F.m, F.raw.m), k, unknowns) else Bisection()


class SmallestError(PsdTraits, Conic):
    """The interior-point kernel under the name of "psd"."""

    def prepare(self, problem: Problem) -> ConicProgram:
        """The rows that ask for something, in units of their size."""
        b, delta = to_numpy(problem.b), to_numpy(problem.delta)
        options = replace(problem.options, gap=AIMED_GAP * problem.options.gap)
        none = np.zeros(b.size, dtype=bool)
        with np.errstate(over="ignore", under="ignore"):
            question = Question("slack_max", b, b, 1.0 / delta, 0.0 * b, none, psd=True)
        return super().prepare(replace(problem, options=options, question=question))

    def claim(self, program: ConicProgram, state: ConicState) -> Claim | None:
        """Optimal to the gap, or that the bounds did not close."""
        claim = super().claim(program, state)
        if claim is None or claim.kind != "stalled":
            return claim
        return Claim("undecided", because("gap_open"), self.dual(program, state))


@dataclass(frozen=True)
class BisectionProgram:
    """The data, with tolerances as wide as the largest reading.

    Attributes
    ----------
    problem : Problem
    F : Sensing
    intervals : Intervals
        In units of `scale`: a ratio of `phases.MAX_EXACT_RATIO` is an exact fit.
    scale : float
        A power of 4, so that nothing, nor a root of it, is rounded.
    unit : float
        A ratio of 1 in tolerances of the problem.
    """

    problem: Problem
    F: Sensing
    intervals: Intervals
    scale: float
    unit: float

    def at(self, ratio: float) -> ConeProgram:
        """Return the problem of finding a fit of that ratio; the last one is kept."""
        kept: tuple[float, ConeProgram] | None = self.__dict__.get("_kept")
        if kept is None or kept[0] != ratio:
            wide = self.intervals.widened(ratio)
            width = ratio * self.intervals.unit
            kept = ratio, prepare(self.F, Intervals.of(wide.lo, wide.hi, width))
            self.__dict__["_kept"] = kept
        return kept[1]


@dataclass(frozen=True)
class BisectionState:
    """Two proved bounds on the smallest ratio, and the search between them.

    Attributes
    ----------
    upper : float
        Reached by ``A = X X*``, rounding included.
    X : ndarray, shape (n, k)
    proof : PsdCertificate
        Of the lower bound.
    inner : phases.SearchState or None
        The search for a fit of ratio `asked`; None where the next one begins.
    asked : float
    iteration : int
    ended : bool
        The bounds have closed, or nothing more can be gained.
    max_ratio : float
        Of X, in tolerances of the problem.
    """

    upper: float
    X: Array
    proof: PsdCertificate
    inner: phases.SearchState | None
    asked: float
    iteration: int
    ended: bool
    max_ratio: float

    @property
    def lower(self) -> float:
        """No positive semidefinite matrix has a smaller ratio."""
        return min(self.upper, self.proof.lower_bound)


class Bisection(PsdTraits, Stepped):
    """A bisection on the ratio by `phases`, for data too large for the interior-point kernel."""

    def prepare(self, problem: Problem) -> BisectionProgram:
        """Tolerances as wide as the largest reading, in a unit of that size."""
        b, delta = to_numpy(problem.b), to_numpy(problem.delta)
        unit = float(np.max(np.abs(b) / delta)) or 1.0
        size = float(np.max(np.abs(b) + unit * delta))
        scale = float(4.0 ** (np.frexp(size)[1] // 2))
        with np.errstate(under="ignore"):
            intervals = Intervals.around(b / scale, unit * delta / scale)
        return BisectionProgram(problem, problem.rows.on_numpy(), intervals, scale, unit)

    def start(self, program: BisectionProgram, warm: Warm = COLD) -> BisectionState:
        """Return A = 0, and what the one row that it misses most proves."""
        F, intervals = program.F, program.intervals
        with np.errstate(under="ignore"):
            miss = np.maximum(-intervals.hi, intervals.lo) / intervals.unit
            worst = int(np.argmax(miss))
            upper = max(0.0, 1.0 + float(miss[worst]))
            y: Real = np.zeros(len(miss))
            if upper > 0.0:
                y[worst] = 1.0 if -intervals.hi[worst] >= intervals.lo[worst] else -1.0
            proof = certify(F, intervals, y)
        zero = np.zeros((F.n, 1), dtype=F.dtype)
        state = BisectionState(upper, zero, proof, None, 0.0, 0, False, program.unit * upper)
        return replace(state, ended=self._closed(program, state) or not np.any(F.sizes > 0.0))

    def _closed(self, program: BisectionProgram, state: BisectionState) -> bool:
        gap = AIMED_GAP * program.problem.options.gap
        return state.upper <= max((1.0 + gap) * state.lower, 0.1 * phases.MAX_EXACT_RATIO)

    def advance(
        self, program: BisectionProgram, state: BisectionState, steps: int
    ) -> BisectionState:
        """Return the state after about `steps` more steps; fewer once it has ended."""
        end = state.iteration + steps
        with np.errstate(under="ignore"):
            while state.iteration < end and not state.ended:
                state = self._halved(program, state, end - state.iteration)
        return state

    def _halved(
        self, program: BisectionProgram, state: BisectionState, steps: int
    ) -> BisectionState:
        """Look for a fit of a ratio between the bounds, and halve their distance by the answer."""
        inner, ratio = state.inner, state.asked
        if inner is None:
            # Halve in the logarithm while the lower bound is not yet of the upper one's size.
            low, high = state.lower, state.upper
            ratio = 0.5 * (low + high) if low > 0.1 * high else 0.1 * high
            inner = phases.start(program.at(ratio))
        after = phases.advance(program.at(ratio), inner, steps)
        iteration = state.iteration + max(1, after.iteration - inner.iteration)
        if after.verdict is phases.SearchVerdict.RUNNING and after.iteration < MAX_PROJECTIONS:
            return replace(state, inner=after, asked=ratio, iteration=iteration)
        F, intervals = program.F, program.intervals
        found = replace(state, inner=None, asked=0.0, iteration=iteration)
        upper = intervals.max_ratio(F.factored(after.X), forward_error(F, after.X))
        if upper < state.upper:
            found = replace(found, upper=upper, X=after.X, max_ratio=program.unit * upper)
        proof = certify(F, intervals, after.certificate.y)
        if proof.lower_bound > state.proof.lower_bound:
            found = replace(found, proof=proof)
        unmoved = (found.upper, found.lower) == (state.upper, state.lower)
        return replace(found, ended=unmoved or self._closed(program, found))

    def claim(self, program: BisectionProgram, state: BisectionState) -> Claim | None:
        """Optimal to the gap, or that the bounds did not close."""
        if not state.ended:
            return None
        dual, bound = state.proof.y, program.unit * state.lower
        if state.upper <= max(
            (1.0 + program.problem.options.gap) * state.lower, phases.MAX_EXACT_RATIO
        ):
            return Claim("optimal", None, dual, bound)
        return Claim("undecided", because("gap_open"), dual, bound)

    def matrix(self, program: BisectionProgram, state: BisectionState) -> SensedMatrix:
        """``X X*``."""
        X = np.sqrt(program.scale) * state.X
        return SensedMatrix.from_factor(own(program.problem, X))

    def first(self, problem: Problem) -> SensedMatrix:
        """A = 0."""
        return nothing(problem)

    def dual(self, program: BisectionProgram, state: BisectionState) -> Vector | None:
        """The vector of the best lower bound so far."""
        return state.proof.y
