"""A positive semidefinite matrix in the intervals, or a proof that there is none (``psd=True``).

Four methods in turn, each handing what it has to the next when it slows down:

1. The symmetric fit, as long as it is positive definite.
2. Then the matrix nearest to the start that fits exactly; the quickest where one exists.
3. Least misses, for data with noise in them; its misses are the proof when nothing
   fits.
4. The interior-point kernel, for the edge of feasibility; where its arrays are small
   enough (m up to 5000, or n up to 40 and m up to 30,000).

Everything is in coordinates of the span of the rows: what no row sees is left out, A is 0 there. So
n may be far above m, and the interior-point method has an interior.

A start within all intervals is the answer. MET and INFEASIBLE are said only of what was recomputed
from the rows with a rounding bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from quadsense.core.intervals import EPS, Array, Intervals, Real
from quadsense.core.products import basis_of_span
from quadsense.core.records import cached_property
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import PROGRESS_SHARE
from quadsense.methods.cg.system import CGSystem
from quadsense.methods.conic import CONE_DECOMPOSITIONS, interior_fits, newton_flops
from quadsense.methods.conic.coordinates import forward_error, positive_part
from quadsense.methods.conic.program import MARGIN_ROUNDINGS, MAX_MARGIN, MIN_MARGIN, KernelProgram
from quadsense.methods.conic.solve import RatioState, advance_ratio, ratio_program, start_ratio
from quadsense.methods.psd import evaluation_flops
from quadsense.methods.psd.searches import (
    NearestState,
    ProjectedState,
    SymmetricState,
    advance_misses,
    advance_nearest,
    advance_symmetric,
    misses,
    start_misses,
    start_nearest,
    start_symmetric,
    suits_symmetric,
    symmetric_system,
)
from quadsense.proofs.positive import PsdCertificate, certify, lift_floor
from quadsense.proofs.symmetric import NORM_FACTOR
from quadsense.system.watch import eigen_flops

STRIDE = 10
"""Steps between two judgements of progress (docs/theory.md, section 10)."""

MAX_PROJECTIONS_PER_STEP = 4.0
"""Steps of the interior-point method on the time of which projections go on: 15, by flops that are
four times as slow."""

MAX_EXACT_RATIO = 1e-8
"""Error relative to the largest reading at which a fit counts as exact."""

FIRST_AIM = 0.8
"""Ratio aimed at first, so that the least misses are reached in the intervals, not in the limit."""


Inner = SymmetricState | NearestState | ProjectedState | RatioState


_BY_MISSES = ProjectedState | RatioState


@dataclass(frozen=True)
class ConeProgram:
    """The data, in coordinates of the span of the rows.

    Attributes
    ----------
    F : Sensing
        The rows as given, for proofs: NumPy's arrays.
    rows : Sensing
        The rows in coordinates, of length k, for steps: F itself, or the same on its device, where
        they span the space.
    basis : ndarray, shape (n, k), or None
        Orthonormal basis of the span; None where it is everything.
    intervals, wide : Intervals
        As asked: for proofs, and those of `rows`.
    inner : Intervals
        Narrowed a little, so that what meets them meets the others whatever the rounding.
    origin : ndarray, shape (k, k)
        The matrix to stay near to.
    floor : float
        See `infeasible.lift_floor`; of F.
    max_trace : float
        Where the rows do not span the space: a fit of a larger trace counts as none.
    """

    F: Sensing
    rows: Sensing
    basis: Array | None
    intervals: Intervals
    wide: Intervals
    inner: Intervals
    origin: Array
    floor: float
    max_trace: float

    @cached_property
    def system(self) -> CGSystem:
        """That of the symmetric fit."""
        return symmetric_system(self.rows, self.inner, self.origin)

    @cached_property
    def kernel(self) -> KernelProgram:
        """That of the smallest worst ratio."""
        return ratio_program(self.rows, self.intervals, psd=True)


def prepare(
    U: Array | Sensing,
    intervals: Intervals,
    origin: Array | float | None = None,
    max_trace: float = np.inf,
    works: Sensing | None = None,
) -> ConeProgram:
    """Return the problem in coordinates of the span of the rows.

    Parameters
    ----------
    U : Sensing, or ndarray of shape (m, n)
        Rows, about unit norm.
    intervals : Intervals
        Of the m measurements.
    origin : ndarray (n, n) or float, optional
        The matrix to stay near to; a number is that multiple of I. By default the mean reading.
    max_trace : float, optional
        1e6 times ``n max|b|`` unless finite.
    works : Sensing, optional
        The same rows for the steps, where these are done elsewhere.
    """
    F = Sensing.of(U)
    raw = F.narrowed().raw
    m, n = raw.shape
    floor = lift_floor(F, intervals) if n <= m else 0.0
    basis: Array | None = None
    if n > m:
        basis = basis_of_span(raw.rows())
    elif floor == 0.0:
        values, vectors = np.linalg.eigh(raw.adjoint(np.ones(m)))
        keep = values > m * EPS * values[-1]
        basis = None if bool(np.all(keep)) else vectors[:, keep]
    rows = F.within(basis) if basis is not None else F if works is None else works
    wide = Intervals.of(*map(rows.placed, (intervals.lo, intervals.hi, intervals.unit)))
    k = rows.n
    ends = np.concatenate([intervals.lo, intervals.hi])
    ends = ends[np.isfinite(ends)]
    if origin is None:
        origin = max(0.0, float(np.mean(ends))) if ends.size else 0.0
    if isinstance(origin, float):
        near = origin * np.eye(k, dtype=F.dtype)
    else:
        near = origin if basis is None else basis.conj().T @ origin @ basis
    size = float(np.max(np.abs(ends), initial=0.0))
    error = forward_error(rows, np.sqrt(size) * np.eye(k))
    margin = np.clip(MARGIN_ROUNDINGS * error / intervals.unit, MIN_MARGIN, MAX_MARGIN)
    limit = max_trace if np.isfinite(max_trace) else NORM_FACTOR * n * size
    inner = wide.widened(rows.placed(1.0 - margin))
    return ConeProgram(F, rows, basis, intervals, wide, inner, rows.placed(near), floor, limit)


class SearchVerdict(StrEnum):
    """What is known of the intervals."""

    RUNNING = "running"
    MET = "met"
    INFEASIBLE = "infeasible"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class SearchState:
    """Where the search stands.

    Attributes
    ----------
    inner : SymmetricState, NearestState, ProjectedState, RatioState or None
        The state of the method at work; None where the start is the answer.
    X : ndarray, shape (n, r)
        Factor of the best matrix so far, ``A = X X*``.
    max_ratio : float
        Of that matrix; with MET it is recomputed from the rows, rounding bound included.
    certificate : PsdCertificate
        The best lower bound so far, and its vector.
    verdict : SearchVerdict
    iteration : int
    marks : tuple of float
        What progress is judged against: the ratios at the strides of the nearest fit, or the
        misses at the last stride of the least misses.
    marked : (float, ndarray)
        The least ratio at a whole stride of the nearest fit, and its factor in the coordinates of
        the problem's rows: what is handed on, wherever the caller's steps end.
    goal : float
        The ratio that is good enough, 1 unless a stricter look refused a fit of that.
    """

    inner: Inner | None
    X: Array
    max_ratio: float
    certificate: PsdCertificate
    verdict: SearchVerdict
    iteration: int
    marks: tuple[float, ...]
    marked: tuple[float, Array]
    goal: float = 1.0

    @property
    def lower_bound(self) -> float:
        """No positive semidefinite matrix has a ``max_ratio`` below this."""
        return self.certificate.lower_bound


def settled(X: Array, m: int, ratio: float) -> SearchState:
    """Return the state of a start ``X X*`` that is the answer, for m rows."""
    nothing = PsdCertificate(np.zeros(m), 0.0, 0.0, 0.0)
    return SearchState(None, X, ratio, nothing, SearchVerdict.MET, 0, (), (ratio, X))


def refused(problem: ConeProgram, state: SearchState, goal: float) -> SearchState:
    """Return the state to go on from where a stricter look refused a fit."""
    return _further_in(problem, replace(state, verdict=SearchVerdict.RUNNING, goal=goal))


def start(
    problem: ConeProgram, earlier: SearchState | None = None, factor: Array | None = None
) -> SearchState:
    """Return the first state.

    Parameters
    ----------
    problem : ConeProgram
    earlier : SearchState, optional
        Of a problem with the same rows and other intervals.
    factor : ndarray, shape (n, k), optional
        Of an answer to a problem much like this one. From one that is not of full rank few steps
        of the least misses lead on, where the nearest fit would find its way anew.
    """
    intervals = problem.intervals
    nothing = PsdCertificate(np.zeros(len(intervals.lo)), 0.0, 0.0, 0.0)
    before = None if earlier is None else earlier.inner
    if factor is not None and factor.shape[1] < factor.shape[0]:
        X = factor if problem.basis is None else problem.basis.conj().T @ factor
        inner: Inner = start_misses(problem.rows, problem.inner, X, FIRST_AIM)
    elif problem.inner.target() is not None and not isinstance(before, _BY_MISSES):
        inner = _by_coordinates(problem, before)
    elif before is not None:
        inner = start_misses(problem.rows, problem.inner, before.X, FIRST_AIM)
    else:
        X, _ = positive_part(problem.origin)
        inner = start_misses(problem.rows, problem.inner, X, FIRST_AIM)
    marks = (inner.value,) if isinstance(inner, ProjectedState) else ()
    marked = inner.max_ratio, inner.X
    state = SearchState(inner, inner.X, np.inf, nothing, SearchVerdict.RUNNING, 0, marks, marked)
    state = _offer(problem, state, inner.X, inner.max_ratio)
    if state.verdict is SearchVerdict.MET:
        return state
    if inner.max_ratio <= 1.0:
        return _further_in(problem, state)
    worst = int(np.argmin(intervals.hi))
    if intervals.hi[worst] < 0.0:
        # u* A u >= 0: one negative reading is a proof by itself; of a sum, if that is definite.
        proof = certify(problem.F, intervals, np.eye(1, len(intervals.hi), worst).ravel())
        if not problem.F.rank_one and not proof.infeasible:
            return state
        return replace(state, verdict=SearchVerdict.INFEASIBLE, certificate=proof)
    return state


def _by_coordinates(
    problem: ConeProgram, before: SymmetricState | NearestState | None
) -> SymmetricState | NearestState:
    """Begin with the measurement coordinates y, those of an earlier problem if given."""
    F, intervals, origin = problem.rows, problem.inner, problem.origin
    if before is None:
        if suits_symmetric(F, intervals, origin):
            return start_symmetric(problem.system)
        return start_nearest(F, intervals, origin)
    memory = before.memory if isinstance(before, NearestState) else ()
    return start_nearest(F, intervals, origin, before.y, memory)


def matrix(state: SearchState) -> Array:
    """Return the factor X (n, r) of the answer, ``A = X X*``."""
    return state.X


def advance(problem: ConeProgram, state: SearchState, steps: int) -> SearchState:
    """Return the state after about ``steps`` steps; fewer once there is a verdict."""
    end = state.iteration + steps
    while state.verdict is SearchVerdict.RUNNING and state.iteration < end:
        inner = state.inner
        assert inner is not None
        # Progress is judged at whole strides of a method, wherever the caller's steps end.
        stride = min(STRIDE - inner.iteration % STRIDE, end - state.iteration)
        if isinstance(inner, SymmetricState):
            state = _symmetric(problem, state, inner, stride)
        elif isinstance(inner, NearestState):
            state = _nearest(problem, state, inner, stride)
        elif isinstance(inner, ProjectedState):
            state = _projected(problem, state, inner, stride)
        else:
            state = _interior(problem, state, inner)
    return state


def _offer(problem: ConeProgram, state: SearchState, X: Array, ratio: float) -> SearchState:
    """Keep X if its ratio beats the best; say MET only after a fresh look, rounding included."""
    if ratio >= state.max_ratio:
        return state
    X = X if problem.basis is None else problem.basis @ X
    verdict = state.verdict
    if ratio <= 1.0:
        error = forward_error(problem.F, X)
        values = np.asarray(problem.F.factored(X))
        ratio = problem.intervals.max_ratio(values, error)
        verdict = SearchVerdict.MET if ratio <= state.goal else verdict
    return replace(state, X=X, max_ratio=ratio, verdict=verdict)


def _further_in(problem: ConeProgram, state: SearchState) -> SearchState:
    """Go on where a fit is one as computed, but not beyond the rounding error: well inside."""
    if not _kernel_fits(problem):
        return replace(state, verdict=SearchVerdict.UNDECIDED)
    return replace(state, inner=start_ratio(problem.kernel, problem.intervals))


def _prove(problem: ConeProgram, state: SearchState, y: Real) -> SearchState:
    """Keep y if it proves more than the best; say INFEASIBLE if it proves that."""
    proof = certify(problem.F, problem.intervals, np.asarray(y), problem.floor)
    best = state.certificate
    if (proof.lower_bound, proof.trace_bound) <= (best.lower_bound, best.trace_bound):
        return state
    narrow = problem.basis is not None or (not problem.F.rank_one and problem.floor == 0.0)
    impossible = proof.infeasible or (narrow and proof.trace_bound > problem.max_trace)
    verdict = SearchVerdict.INFEASIBLE if impossible else state.verdict
    return replace(state, certificate=proof, verdict=verdict)


def _symmetric(
    problem: ConeProgram, state: SearchState, inner: SymmetricState, stride: int
) -> SearchState:
    """Advance the symmetric fit; leave it when it is not positive definite."""
    after = advance_symmetric(problem.system, inner, stride)
    state = replace(
        state, inner=after, iteration=state.iteration + after.iteration - inner.iteration
    )
    state = _offer(problem, state, after.X, after.max_ratio)
    if state.verdict is not SearchVerdict.RUNNING or not after.ended:
        return state
    if after.max_ratio <= 1.0:
        return _further_in(problem, state)
    begun = start_nearest(problem.rows, problem.inner, problem.origin)
    state = replace(state, inner=begun, marked=(begun.max_ratio, begun.X))
    return _offer(problem, state, begun.X, begun.max_ratio)


def _nearest(
    problem: ConeProgram, state: SearchState, inner: NearestState, stride: int
) -> SearchState:
    """Advance the nearest fit; leave it when the ratio no longer halves in two strides."""
    after = advance_nearest(problem.rows, problem.inner, problem.origin, inner, stride)
    state = replace(
        state, inner=after, iteration=state.iteration + after.iteration - inner.iteration
    )
    state = _offer(problem, state, after.X, after.max_ratio)
    if state.verdict is SearchVerdict.RUNNING and after.max_ratio <= 1.0:
        return _further_in(problem, state)
    if state.verdict is not SearchVerdict.RUNNING or (
        after.iteration % STRIDE and not after.stalled
    ):
        return state
    marks = (*state.marks, after.max_ratio)
    marked = state.marked if state.marked[0] < after.max_ratio else (after.max_ratio, after.X)
    slow = len(marks) > 2 and marks[-1] > 0.5 * marks[-3]
    if slow or after.stalled or marks[-1] > 3.0 * min(marks):
        return _aim(problem, state, marked[1], FIRST_AIM)
    return replace(state, marks=marks, marked=marked)


def _aim(problem: ConeProgram, state: SearchState, X: Array, aim: float) -> SearchState:
    """Begin the least misses at X and this aim, keeping what an earlier aim has learnt."""
    begun = start_misses(problem.rows, problem.inner, X, aim)
    before = state.inner
    if isinstance(before, ProjectedState):
        begun = replace(begun, stiffness=before.stiffness, iteration=before.iteration)
    return replace(state, inner=begun, marks=(begun.value,))


def _projected(
    problem: ConeProgram, state: SearchState, inner: ProjectedState, stride: int
) -> SearchState:
    """Advance the least misses; when they no longer halve in a stride, prove or hand over."""
    after = advance_misses(problem.rows, problem.inner, inner, stride)
    state = replace(
        state, inner=after, iteration=state.iteration + after.iteration - inner.iteration
    )
    state = _offer(problem, state, after.X, after.max_ratio)
    if state.verdict is SearchVerdict.RUNNING and after.max_ratio <= 1.0:
        return _further_in(problem, state)
    if state.verdict is not SearchVerdict.RUNNING or after.iteration % STRIDE:
        return state
    mark = state.marks[-1]
    state = replace(state, marks=(after.value,))
    if after.value < 0.5 * mark:
        return state
    y = misses(problem.inner, after)
    state = _prove(problem, state, y)
    if state.verdict is not SearchVerdict.RUNNING:
        return state
    if after.iteration > _patience(problem):
        return _further_in(problem, state)
    if after.value < PROGRESS_SHARE * mark:
        return state
    # What y would prove if F*(y) >= 0 held: above 1, stay, for a proof is coming.
    mass = max(float(np.abs(y) @ problem.inner.unit), float(np.finfo(np.float64).tiny))
    promise = after.aim + 2.0 * after.value / mass
    if promise < 1.0:
        return _aim(
            problem,
            state,
            after.X,
            0.5 * (1.0 + promise) if promise < 1.0 - MAX_EXACT_RATIO else 1.0,
        )
    if after.value <= (1.0 - MAX_EXACT_RATIO) * mark:
        return state
    return _further_in(problem, state)


def _kernel_fits(problem: ConeProgram) -> bool:
    """Return whether the arrays of the interior-point method are small enough."""
    F = problem.rows
    return interior_fits(max(F.m, F.raw.m), F.n, F.unknowns)


def _patience(problem: ConeProgram) -> float:
    """Return how many projections cost about as much as the interior-point method would.

    Not knowing which of the two ends sooner, spend as much on the first as on the second: twice
    the better one at worst. The flops of a projection are dearer, by about 4.
    """
    if not _kernel_fits(problem):
        return np.inf
    F = problem.rows
    m, n = F.shape
    step = min(newton_flops(max(m, F.raw.m), n, F.unknowns)) + CONE_DECOMPOSITIONS * eigen_flops(n)
    return max(2.0 * STRIDE, MAX_PROJECTIONS_PER_STEP * step / evaluation_flops(m, n))


def _interior(problem: ConeProgram, state: SearchState, inner: RatioState) -> SearchState:
    """Take one interior-point step and look at both bounds."""
    after = advance_ratio(problem.kernel, problem.intervals, inner)
    state = replace(state, inner=after, iteration=state.iteration + 1)
    state = _offer(problem, state, after.X, after.max_ratio)
    if state.verdict is not SearchVerdict.RUNNING:
        return state
    # A proof costs a look at the rows: only where one is promised, or where there is no more.
    if after.stalled or problem.intervals.support(after.y)[0] < 0.0:
        state = _prove(problem, state, after.y)
    if state.verdict is SearchVerdict.RUNNING and after.stalled:
        return replace(state, verdict=SearchVerdict.UNDECIDED)
    return state
