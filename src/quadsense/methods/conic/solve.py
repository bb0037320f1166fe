"""A question solved outright, when the interior-point method has ended, and in what.

The lower bound that a vector y gives by Fenchel duality is computed here in floating point; proofs
compute it again, with every rounding counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core.intervals import Array, Intervals, Real
from quadsense.core.question import Question
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import LENIENT
from quadsense.methods.conic import steps
from quadsense.methods.conic.direction import KernelPoint
from quadsense.methods.conic.program import KernelProgram, prepare, with_logarithm
from quadsense.methods.conic.steps import MAX_IDLE_STEPS, KernelState
from quadsense.methods.equalities import equalities_of, held_dense, held_factor
from quadsense.proofs.costs import conjugate_above, permitted

DEFAULT_GAP = 1e-7
"""Relative gap at which a question counts as solved."""

MAX_STEPS = 100
"""Steps at most; seen 5 to 30."""

ASSUMED_TRACES = 1e3
"""Trace by which a negative eigenvalue of the dual matrix counts, in units of that of A: proofs
assume one far larger than that of A, where no vector moves the eigenvalue."""


@dataclass(frozen=True)
class Solution:
    """What a question came to.

    Attributes
    ----------
    A : ndarray, shape (n, n)
    X : ndarray, shape (n, k), or None
        Factor of A, where it is positive semidefinite.
    y : ndarray, shape (m,)
        Dual vector of the unit rows.
    objective, bound : float
        Of the question, and the bound by y in floating point.
    status : {"solved", "close", "stalled", "infeasible", "unbounded"}
        Solved to the gap; inside, but as close as rounding lets; no way on; as computed nothing
        fits; as computed there is no least objective.
    iterations : int
    """

    A: Array
    X: Array | None
    y: Vector
    objective: float
    bound: float
    status: Ended | Literal["stalled"]
    iterations: int


def solve_question(
    rows: Sensing | KernelProgram,
    question: Question | None = None,
    *,
    start: Array | None = None,
    gap: float = DEFAULT_GAP,
    max_steps: int = MAX_STEPS,
) -> Solution:
    """Solve a question on unit rows.

    Parameters
    ----------
    rows : Sensing or KernelProgram
        Unit rows, or what `prepare` made of them; for another C see `KernelProgram.with_linear`.
    question : Question, optional
        On these rows; not with a program.
    start : ndarray, shape (n, n), optional
        A matrix well inside of all intervals (and positive definite) to begin from.
    gap : float
        Relative gap of objective and lower bound.
    max_steps : int
    """
    if isinstance(rows, KernelProgram):
        program = rows
    else:
        assert question is not None
        program = prepare(rows, question)
    with np.errstate(over="ignore", under="ignore"):
        state = steps.first(program, None if start is None else in_units(program, start))
        status: Ended | None = None
        while (status := ended(program, state, gap)) is None and state.iteration < max_steps:
            state = steps.advance(program, state)
        return _solution(program, state, status or "stalled")


def in_units(program: KernelProgram, start: Array) -> Array:
    """Return a start in units and coordinates of the program, where its rows are."""
    if program.basis is not None:
        start = program.basis.conj().T @ start @ program.basis
    if not program.F.is_complex:
        start = start.real
    return program.F.placed(np.asarray(start / program.scale, dtype=program.F.dtype))


def _solution(
    program: KernelProgram, state: steps.KernelState, status: Ended | Literal["stalled"]
) -> Solution:
    A, X, v = _found(program, state.at)
    question, y = program.question, dual_of(program, state.at)
    objective = question.matrix_cost(A) + question.row_cost(v)
    norm, trace = float(np.linalg.norm(A)), float(np.trace(A).real)
    bound = lower_bound(program.given, question, y, trace, norm)
    return Solution(A, X, y, objective, bound, status, state.iteration)


# --- what a state comes to, in the user's units and coordinates ----------------------------------

MAX_HOLDS = 3
"""Last steps: onto the equalities, and with ends that the one before crossed."""


def matrix_of(program: KernelProgram, at: KernelPoint) -> tuple[Array | None, Array | None]:
    """Return A, or where it is positive semidefinite a factor X of it: the other is None."""
    scale, basis, program, at = program.scale, program.basis, program.on_host, at.on_host
    with np.errstate(all="ignore"):
        A, X = _held(program, at)
    if X is None:
        assert A is not None
        return scale * A, None
    X = np.sqrt(scale) * X
    if basis is None:
        return None, X
    inside = basis @ X
    if not program.elsewhere:
        return None, inside
    outside = _complement(basis)
    return None, np.hstack([inside, np.sqrt(scale * program.elsewhere) * outside])


def _held(program: KernelProgram, at: KernelPoint) -> tuple[Array | None, Array | None]:
    """A, or X, moved onto the equalities; ends that this moves it across are held with them."""
    goal, rows = program.level.copy(), program.equal.copy()
    A, X = (at.A, None) if at.X is None else (None, at.X)
    soft = program.priced | (program.softness > 0.0) | (program.share > 0.0)
    hard = program.finite & ~soft
    for _ in range(MAX_HOLDS if rows.any() else 0):
        index = np.flatnonzero(rows)
        E = equalities_of(program.F, index)
        if X is None:
            found = held_dense(E, goal[index], at.A)
            if found is None:
                break
            A, v = found, np.asarray(program.F.forward(found))
        else:
            assert at.X is not None
            found = held_factor(E, goal[index], at.X, None)
            if found is None:
                break
            X, v = found, np.asarray(program.F.factored(found))
        over = (program.signs * v > program.ends + 0.5 * program.margin) & hard
        crossed = np.any(over, axis=0) & ~rows
        if not crossed.any() or np.count_nonzero(rows | crossed) > program.F.unknowns:
            break
        rows = rows | crossed
        goal = np.where(crossed, np.where(over[0], program.ends[0], -program.ends[1]), goal)
    return A, X


def _complement(basis: Array) -> Array:
    """Return an orthonormal basis of what is orthogonal to one."""
    Q, _ = np.linalg.qr(basis, mode="complete")
    return np.asarray(Q[:, basis.shape[1] :])


def dual_of(program: KernelProgram, at: KernelPoint) -> Vector:
    """Return y for all unit rows, in the user's units."""
    question, program, at = program.question, program.on_host, at.on_host
    y = np.zeros(question.m)
    y[program.index] = at.y(program) * (program.cost / program.scale)
    y = question.term.finished(question, y + question.slope, program.homogeneous)
    silent = to_numpy(program.given.nonzero) == 0.0
    if bool(np.any(silent)):
        y = question.term.silenced(question, y, np.flatnonzero(silent))
    # An end that is not there has no multiplier, whatever rounding says.
    box = ~question.term.priced(question)
    y = np.where((y > 0.0) & ~np.isfinite(question.hi) & box, 0.0, y)
    return np.where((y < 0.0) & ~np.isfinite(question.lo) & box, 0.0, y)


def dense_of(program: KernelProgram, at: KernelPoint) -> Array:
    """Return A."""
    A, X = matrix_of(program, at)
    if A is None:
        assert X is not None
        return np.asarray(X @ X.conj().T)
    return A


def _found(program: KernelProgram, at: KernelPoint) -> tuple[Array, Array | None, Vector]:
    """Return A, its factor over the cone, and what it reads, from the factor where there is one."""
    A, X = matrix_of(program, at)
    if A is not None:
        return A, X, np.asarray(program.given.forward(A))
    assert X is not None
    return X @ X.conj().T, X, np.asarray(program.given.factored(X))


# --- how it ended ---------------------------------------------------------------------------------

Ended: TypeAlias = Literal["solved", "close", "stalled", "infeasible", "unbounded"]

ZERO_GAP = 1e-12
"""Gap, in units of the program, of an objective that is 0 to rounding."""

ZERO_GAP_STALLED = 1e-6
"""The same of one that rounding stopped."""

ZERO_GAP_LOGARITHM = 1e-8
"""The same of one with logarithms, in units of these."""

LOGARITHM_SHARE = 1e-6
"""Share of the objective that counts as a logarithm: where squares are far larger than these."""

MAX_EQUALITY_MISS = 1e-7
"""Relative error of equalities from which a last correction brings them to rounding."""

MAX_STALLED_GAP = 1e-2
"""Relative gap up to which a state that rounding stopped is worth keeping."""

MIN_MISS, MIN_RAY = 1e-10, 1e3
"""Miss of the readings, and multipliers, below which nothing is contradicted, in units of the
program: where nothing fits, multipliers grow beyond all bounds."""

MAX_SIZE_RATIO = 1e7
"""Size of A to the readings from which nothing is to be expected."""


def is_inside(program: KernelProgram, state: KernelState) -> bool:
    """Whether A is within all hard intervals, and about at the equalities."""
    at = state.at
    hard = program.finite & (program.softness == 0.0) & (program.share == 0.0) & ~program.priced
    if bool(np.any((program.signs * at.v > program.ends + 0.5 * program.margin) & hard)):
        return False
    size = 1.0 + float(np.max(np.abs(program.level), initial=0.0))
    miss = float(np.max(np.abs(program.level - at.v), where=program.equal, initial=0.0))
    return miss <= MAX_EQUALITY_MISS * size


def ended(program: KernelProgram, state: KernelState, gap: float) -> Ended | None:
    """Return how it ended, if it has."""
    if program.contradiction:
        return "infeasible"
    size = abs(state.value)
    if _logarithms(program):  # the objective has constants that are of no account
        size = max(program.row_unit, program.cone_target, LOGARITHM_SHARE * size)
    if state.apart <= max(gap * size, ZERO_GAP) and is_inside(program, state):
        return "solved"
    if state.relaxed and not is_inside(program, state):
        return None  # next come all ends
    if state.stuck or state.idle >= MAX_IDLE_STEPS:
        near = state.apart <= max(MAX_STALLED_GAP * size, ZERO_GAP_STALLED)
        return "close" if near and is_inside(program, state) else "stalled"
    if program.unseen:
        return "unbounded"
    falls = state.value < -MAX_SIZE_RATIO or _logarithms(program)
    if state.size > MAX_SIZE_RATIO * np.sqrt(program.F.n) and falls:
        return "unbounded"
    return "infeasible" if _contradicts(program, state) else None


def is_answer(
    program: KernelProgram, state: KernelState, gap: float, level: float = -np.inf
) -> bool:
    """Whether the matrix that is handed out is inside, and its objective within the gap.

    It is none while the level, if there is one, lies between the bound and the objective.
    """
    question = program.question
    A, _, v = _found(program, state.at)
    hard = ~(question.soft | question.equal) & (to_numpy(program.given.nonzero) > 0.0)
    if bool(np.any(hard & ((v < question.lo) | (v > question.hi)))):
        return False
    objective = question.matrix_cost(A) + question.row_cost(v)
    y, size = dual_of(program, state.at), float(np.linalg.norm(A))
    trace = ASSUMED_TRACES * float(np.trace(A).real)
    bound = lower_bound(program.given, question, y, trace, size)
    if bound < level < objective:
        return False
    if question.term.unit:  # which has no constants
        return bool(objective - bound <= gap * max(question.term.unit, abs(objective)))
    if _logarithms(program):  # whose size is that of their units: a gap is one of a logarithm
        size = min(abs(objective), max(1.0, LOGARITHM_SHARE * abs(objective)))
        return bool(objective - bound <= max(gap * size, ZERO_GAP_LOGARITHM))
    return bool(objective - bound <= max(gap * abs(objective), ZERO_GAP * program.cost))


def _logarithms(program: KernelProgram) -> bool:
    return program.row_unit > 0.0 or program.cone_target > 0.0


def _contradicts(program: KernelProgram, state: KernelState) -> bool:
    """Whether the multipliers of the hard rows alone prove, as computed, that nothing fits.

    ``F*(y) = S`` to rounding, S positive semidefinite, and ``sum hi y+ - lo y- < 0``.
    """
    at = state.at
    if state.missed < MIN_MISS or float(np.max(at.duals, initial=0.0)) < MIN_RAY:
        return False
    hard = program.finite & (program.softness == 0.0) & (program.share == 0.0) & ~program.priced
    duals = np.where(hard, at.duals, 0.0)
    held = np.where(program.equal, at.held, 0.0)
    below = -float(np.sum(program.ends * duals)) - float(program.level @ held)
    if not below > 0.0:
        return False
    rest = program.F.adjoint(duals[0] - duals[1] + held)
    if at.S is not None:
        rest = rest - at.S
    return float(np.linalg.norm(rest)) * MAX_SIZE_RATIO < below


def lower_bound(F: Sensing, question: Question, y: Vector, trace: float, norm: float) -> float:
    """Return the bound on a question's objective.

    Parameters
    ----------
    F : Sensing
        The rows of the question.
    question : Question
    y : ndarray, shape (m,)
    trace, norm : float
        Of an A, to weigh by how much ``C + F*(y)`` is off what it should be.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        y = permitted(question, y)
        Z = np.asarray(F.adjoint(y))
        n = len(Z)
        Z = Z + (question.C if isinstance(question.C, np.ndarray) else question.C * np.eye(n))
        return -conjugate_above(question, y) + _least(question, Z, trace, norm)


def _least(question: Question, Z: Array, trace: float, norm: float) -> float:
    """Return the least of ``<Z, A> + alpha ||A - P||^2 - log det A``."""
    alpha, n = question.alpha, len(Z)
    if not question.psd and not alpha:
        return -float(np.linalg.norm(Z)) * norm
    P = question.prior if isinstance(question.prior, np.ndarray) else question.prior * np.eye(n)
    if not question.psd:
        return float(np.vdot(Z, P).real) - (0.5 * float(np.linalg.norm(Z))) ** 2 / alpha
    if not question.log_det:
        if not alpha:
            return min(0.0, float(np.linalg.eigvalsh(Z)[0])) * trace
        values = np.maximum(np.linalg.eigvalsh(P - Z / (2.0 * alpha)), 0.0)
        return alpha * (float(np.linalg.norm(P)) ** 2 - float(values @ values))
    if not alpha:
        values = np.linalg.eigvalsh(Z)
        return n + float(np.sum(np.log(values))) if values[0] > 0.0 else -np.inf
    values = np.linalg.eigvalsh(Z - 2.0 * alpha * P)
    a = with_logarithm(values, alpha)
    costs = values * a + alpha * a * a - np.log(a)
    return float(np.sum(costs)) + alpha * float(np.linalg.norm(P)) ** 2


# --- the smallest worst ratio of residuals to tolerances, step by step ---------------------------
#
# The kernel minimizes ``t >= 0`` subject to ``lo + (1 - t) w <= F(A) <= hi - (1 - t) w``, over all
# symmetric A or over ``A >= 0``. The dual is to maximize ``-support(y)`` subject to ``F*(y) = 0``,
# or ``F*(y) >= 0``, and ``sum w_i |y_i| <= 1``. Each step improves both: a t of at most 1 is a fit,
# a y of negative support a proof that there is none.


@dataclass(frozen=True)
class RatioState:
    """A state of the kernel, and what it says in the units of the intervals.

    Attributes
    ----------
    kernel : steps.KernelState
    fit : ndarray
        A, shape (n, n), or over the cone a factor of it, (n, k).
    y : ndarray, shape (m,)
        The dual vector.
    max_ratio : float
        Of A.
    """

    kernel: steps.KernelState
    fit: Array
    y: Real
    max_ratio: float

    @property
    def X(self) -> Array:
        """The factor, over the cone."""
        return self.fit

    @property
    def iteration(self) -> int:
        """Steps taken."""
        return self.kernel.iteration

    @property
    def stalled(self) -> bool:
        """Whether rounding leaves no step to take."""
        kernel = self.kernel
        return kernel.stuck or kernel.idle >= steps.MAX_IDLE_STEPS or kernel.iteration >= MAX_STEPS


def ratio_program(F: Sensing, intervals: Intervals, psd: bool, even: bool = False) -> KernelProgram:
    """Return the program for rows of about unit norm.

    Parameters
    ----------
    F : Sensing
    intervals : Intervals
    psd : bool
    even : bool
        Whether all misses of intervals count alike: of tolerances that differ by many powers of
        ten the ratios do so too, and whether there is a fit is known sooner without them.
    """
    w = intervals.unit
    with LENIENT():
        inner = intervals if even else Intervals.of(intervals.lo + w, intervals.hi - w, w)
        weights = np.ones_like(w) if even else 1.0 / w
        none = np.zeros(len(w), dtype=bool)
        return prepare(
            F, Question("slack_max", inner.lo, inner.hi, weights, 0.0 * w, none, psd=psd)
        )


def start_ratio(program: KernelProgram, intervals: Intervals) -> RatioState:
    """Return a multiple of the identity over the cone, otherwise least squares."""
    with LENIENT():
        return _ratio_state(program, intervals, steps.first(program))


def advance_ratio(program: KernelProgram, intervals: Intervals, state: RatioState) -> RatioState:
    """Return the state after one more step; the caller looks at both bounds between."""
    with LENIENT():
        return _ratio_state(program, intervals, steps.advance(program, state.kernel))


def _ratio_state(
    program: KernelProgram, intervals: Intervals, kernel: steps.KernelState
) -> RatioState:
    A, X = matrix_of(program, kernel.at)
    fit = A if X is None else X
    assert fit is not None
    values = np.zeros(len(intervals.unit))
    values[program.index] = program.scale * to_numpy(kernel.at.v)
    ratio = float(intervals.max_ratio(values))
    y = dual_of(program, kernel.at)
    return RatioState(kernel, fit, y, ratio if np.isfinite(ratio) else np.inf)
