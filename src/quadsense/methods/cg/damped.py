"""Damped least squares without a cone: conjugate gradients in the smaller of two coordinates.

The objective is ``f(A) = sum_i w_i (F(A)_i - b_i)^2 + alpha ||A - P||_F^2`` with alpha > 0. Its
minimizer is ``A = P + F*(c)``. With fewer rows than unknowns c is computed from

    (D K D + alpha I) y = D (b - F(P)),   c = D y,   D = diag(sqrt(w)),   K = F F*,

and with more rows A is computed from ``(F* W F + alpha I) (A - P) = F* W (b - F(P))``. Both systems
are positive definite; their products are formed in single precision, and the residuals of the rows
are recomputed in float64 [Hestenes & Stiefel 1952]. Where the system is so ill-conditioned that a
Cholesky factorization costs less than the steps taken so far, the factor becomes the
preconditioner.

The duality gap is known at every point: with z = b - F(A), it is ``||D z - alpha y||^2`` in the
first case and at most ``||F*(W z) - alpha (A - P)||_F^2/alpha`` in the second.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import solve_triangular

from quadsense.arrays import Array, Vector, require_memory, to_numpy
from quadsense.core.cholesky import ScaledFactor, add_to_diagonal, scaled_factor
from quadsense.core.matrix import SensedMatrix
from quadsense.core.products import pack, unpack
from quadsense.core.question import Question
from quadsense.core.records import cached_property, changed, record
from quadsense.measurements.sensing import Sensing
from quadsense.methods.active_set import nearest_within
from quadsense.methods.base import (
    COLD,
    LENIENT,
    Problem,
    Stepped,
    Warm,
    own,
    product_flops,
    stride_of,
)
from quadsense.methods.cg import ConjugateGradientTraits, plain_steps
from quadsense.methods.cg.system import (
    MAX_DOUBLE_ORDER,
    STEP_FLOPS,
    NormalOperator,
    given_gram,
    pays_to_form,
)
from quadsense.methods.least_squares import ENTRY_FLOPS
from quadsense.methods.traits import GapOptions, factor_flops
from quadsense.proofs.rounding import Enclosure, dense_error, frobenius, reading_error
from quadsense.system.machine import FLOAT64_BYTES, MAX_FORMED_BYTES
from quadsense.vocabulary import Claim, because

GAP_SHARE_REACHED = 1e-2
"""Share of the gap that was asked for which is good enough where digits do not allow more."""

MAX_DISTANCE, MAX_PLAIN_DISTANCE = 1e-4, 1e-9
"""Relative distance of A from the minimizer, both seen from P, at which to stop, with a tolerance
and without one, where nothing else says how exact the minimizer is to be. It is bounded by the
root of the gap over ``alpha ||A - P||_F^2``."""

MAX_FEATURES = 2**21
"""Entries of the sensing map up to which active intervals are found by an active set: a step reads
all of them once (measured; the other methods take less time for larger problems)."""

INWARD_SHARE, ROUNDING_SHARE, MAX_INWARDS = 1e-9, 1e-13, 1e-3
"""How far bounds are moved inwards there, so that rounding may use as much: in half-widths, in
units of the reading, and at most in half-widths."""

MIN_PROGRESS = 0.25
"""Reduction of the gap between two evaluations in float64 below which steps in single precision
have reached their limit, and those in float64 theirs."""

EXPECTED_STEPS = 40.0
"""Steps that a formed K is to serve."""

MIN_STEPS = 15.0
"""Steps that a system takes without a preconditioner, at least."""

MAX_RANK_DAMPING = 1e-4
"""Damping, for a unit diagonal, below which the factor shows whether F is of full rank: pivots that
stand clear of 0 (see `Sensing.learn_rank`) do so without it."""

SUM_ERRORS = 2.0
"""Bound on the error of the readings of ``P + A``, in units of that of a matrix of the norm of both
together: each is read by itself, and their sum is rounded."""

MAX_STRETCH_STEPS = 300
"""Steps after which the residual is recomputed at the latest."""


@record(frozen=True)
class DampedState:
    """Where the iteration stands.

    Attributes
    ----------
    x : ndarray
        y of shape (m,), or ``A - P`` of shape (n, n).
    residual, direction : ndarray, shaped as x
    size : float
        Squared norm of the residual in the metric of the preconditioner.
    gap : float
        Duality gap, as far as the recurrence knows it.
    first : float
        The gap at the start.
    recomputed : float
        The gap when it was last recomputed from the rows in float64.
    z : ndarray of shape (m,) or None
        ``F(A) - b`` where it was just recomputed.
    iteration : int
    max_ratio : float
    double, factored, done, stalled : bool
    since : int
        Steps since the residual was recomputed.
    multipliers : ndarray of shape (m,) or None
        Of the intervals that are active at x, of all rows; see `active_set`.
    """

    x: Array
    residual: Array
    direction: Array
    size: float
    gap: float
    first: float
    recomputed: float
    z: Vector | None
    iteration: int = 0
    max_ratio: float = np.inf
    double: bool = False
    factored: bool = False
    done: bool = False
    stalled: bool = False
    since: int = 0
    multipliers: Vector | None = None


class DampedProgram:
    """The problem on the rows that have a weight, and the products of its normal equations."""

    def __init__(self, problem: Problem, question: Question) -> None:
        self.problem, self.question = problem, question
        rows = problem.rows.at_work(problem.tf32)
        counts = question.weights > 0.0
        self.whole = bool(counts.all())
        self.index = np.arange(question.lo.size) if self.whole else np.flatnonzero(counts)
        self.all_rows = rows
        self.F = rows if self.whole else rows.only(self.index)
        self.w = rows.placed(question.weights if self.whole else question.weights[self.index])
        self.root = np.sqrt(self.w)
        self.alpha = float(question.alpha)
        prior = question.prior
        self.tau = float(prior) if np.ndim(prior) == 0 else 0.0
        self.base = None if np.ndim(prior) == 0 else rows.placed(np.asarray(prior, rows.dtype))
        self.shift = self._read(self.F, None)
        b = question.reading if self.whole else question.reading[self.index]
        self.r0 = rows.placed(b) - self.shift
        self._last: tuple[Array, Array] | None = None  # a vector, and its matrix
        self.gap = float(getattr(problem.options, "gap", GapOptions.gap))
        distance = MAX_DISTANCE if problem.target else MAX_PLAIN_DISTANCE
        self.goal = min(distance**2, self.gap)

    def _read(self, F: Sensing, A: Array | None) -> Vector:
        """``F(P + A)``."""
        values = self.tau * F.squares
        if self.base is not None:
            A = self.base if A is None else A + self.base
        return values if A is None else values + F.forward(A)

    @cached_property
    def by_rows(self) -> bool:
        """Whether the coordinates are those of the rows: the shorter vector."""
        return self.F.m < self.F.unknowns or self.problem.gram is not None

    @cached_property
    def product_flops(self) -> float:
        """Work of a product through the rows."""
        return 2.0 * product_flops(self.F)

    @cached_property
    def explicit(self) -> bool:
        """Whether K is formed: where some dozens of products cost more without it."""
        if not self.by_rows or self.problem.gram is not None:
            return False
        if FLOAT64_BYTES * self.F.m**2 // 2 > MAX_FORMED_BYTES:
            return False
        return pays_to_form(self.F, EXPECTED_STEPS, ENTRY_FLOPS, 1.0)

    @cached_property
    def operator(self) -> NormalOperator:
        """K of the rows that have a weight."""
        given = None if self.problem.gram is None or not self.whole else self._applied
        by_gram = not self.explicit and self.F.prefers_gram
        return NormalOperator(self.F, self.explicit, not self.is_direct, given, by_gram)

    @cached_property
    def top(self) -> float:
        """Largest root of a weight, the unit of K."""
        return float(self.root.max())

    @property
    def side(self) -> int:
        """Order of the system."""
        return self.F.m if self.by_rows else self.F.unknowns

    @property
    def step_flops(self) -> float:
        """Work of a step."""
        product = ENTRY_FLOPS * float(self.F.m) ** 2 if self.explicit else 0.5 * self.product_flops
        return product + STEP_FLOPS

    @cached_property
    def is_small(self) -> bool:
        """Whether a factorization costs less than the steps that the system is expected to take."""
        if self.problem.gram is not None:
            return False
        if self.factor_flops <= MIN_STEPS * self.step_flops:
            return True
        if not (self.explicit and self.alpha > 0.0 and self.may_factor):
            return False
        gain = self.top / math.sqrt(self.goal * self.alpha)
        steps = plain_steps(self.F.m, self.F.unknowns, gain)
        return self.factor_flops <= steps * self.step_flops

    @cached_property
    def is_direct(self) -> bool:
        """Whether the system is factored in float64."""
        return self.is_small and self.side <= MAX_DOUBLE_ORDER

    @property
    def factor_flops(self) -> float:
        """Work of forming and factoring the system in single precision."""
        side, m = float(self.side), float(self.F.m)
        build = 0.0 if self.explicit else m * side if not self.by_rows else m * self.F.n
        return factor_flops(side, build)

    def apply(self, p: Array, double: bool) -> Array:
        """The matrix of the system times p."""
        if not self.by_rows:
            F = self.F if double else self.F.single
            size = float(np.abs(p).max()) or 1.0
            image = F.forward(p if double else p / size)
            image = F.adjoint(self.w / self.top**2 * image)
            scale = self.top**2 * (1.0 if double else size)
            return scale * image.astype(p.dtype, copy=False) + self.alpha * p
        image, _ = self.operator.times(self.root * p, double)
        return self.root * image + self.alpha * p

    @property
    def may_factor(self) -> bool:
        """Whether the system is of a size that is factored."""
        formed = self.by_rows or not self.F.is_sparse
        return formed and FLOAT64_BYTES * self.side**2 <= MAX_FORMED_BYTES

    @cached_property
    def factor(self) -> ScaledFactor:
        """Cholesky factor of the system, in single precision unless `is_direct`."""
        require_memory("method cg: the factored normal equations", FLOAT64_BYTES * self.side**2)
        if self.by_rows:
            M = self.operator.triangle(single=not self.is_direct)
            if float(self.w.min()) < float(self.w.max()):
                root = (self.root / self.top).astype(M.dtype)
                M *= root
                M *= root[:, None]
        else:
            dtype = np.float64 if self.is_direct else np.float32
            M = self.F.normal(self.w / self.top**2, dtype)
        add_to_diagonal(M, self.alpha / self.top**2)
        found = scaled_factor(M)
        known = self.whole and isinstance(found.upper, np.ndarray)
        if known and self.alpha < MAX_RANK_DAMPING * self.top**2:
            self.problem.rows.learn_rank(found.upper.diagonal(), self.side)
        return found

    @cached_property
    def takes_active_set(self) -> bool:
        """Whether active intervals are found by an active set: few unknowns, no equalities."""
        if self.by_rows or not self.is_direct or not self.problem.target:
            return False
        rows, question = self.all_rows, self.question
        small = rows.m * rows.unknowns <= MAX_FEATURES and rows.kind.at_hand
        plain = isinstance(self.root, np.ndarray)
        return small and plain and not bool(question.equal.any())

    def precondition(self, g: Array, factored: bool) -> Array:
        """The preconditioner times the residual."""
        if not factored:
            return g
        g = g / self.top**2
        if self.by_rows:
            return self.factor.solve(g)
        return unpack(self.factor.solve(pack(g)), self.F.n, g.dtype)

    def read_by_gram(self, x: Vector) -> Vector:
        """``F(A - P)`` of all rows, through inner products of rows."""
        c = self.root * x
        if not self.whole:
            whole = np.zeros_like(self.all_rows.squares)
            whole[self.index] = c
            c = whole
        return self.all_rows.gram_times(c) if self.problem.gram is None else self._applied(c)

    def _applied(self, y: Vector) -> Vector:
        """``K y`` by the K of the problem, which may be of another array type than steps are."""
        return self.all_rows.placed(to_numpy(given_gram(self.problem)(y)))

    def matrix(self, x: Array) -> Array:
        """``A - P``, (n, n); of the last x it is kept."""
        if not self.by_rows:
            return x
        if self._last is None or self._last[0] is not x:
            self._last = x, self.F.adjoint(self.root * x)
        return self._last[1]


class Damped(ConjugateGradientTraits, Stepped):
    """What `cg` does for damped least squares."""

    def prepare(self, problem: Problem) -> DampedProgram:
        """The rows that have a weight, and their readings about the prior."""
        assert problem.question is not None
        with LENIENT():
            return DampedProgram(problem, problem.question)

    def start(self, program: DampedProgram, warm: Warm = COLD) -> DampedState:
        """A = P."""
        with LENIENT():
            z = program.root * program.r0
            if not z.size:  # nothing but intervals: for other methods
                return DampedState(z, z, z, 0.0, 0.0, 0.0, np.inf, None, stalled=True)
            if program.by_rows:
                x, g = np.zeros_like(z), z
            else:
                g = program.F.adjoint(program.root * z)
                x = np.zeros_like(g)
            size = _inner(g, g)
            gap = size if program.by_rows else float(np.divide(size, program.alpha))
            state = DampedState(x, g, g, size, gap, gap, np.inf, None)
            if program.is_small:
                ahead = program.precondition(g, True)
                state = changed(state, direction=ahead, size=_inner(g, ahead), factored=True)
            return state if np.isfinite(size) else changed(state, stalled=True)

    def stride(self, program: DampedProgram) -> int:
        """Some steps."""
        return stride_of(program.problem, program.step_flops)

    def advance(self, program: DampedProgram, state: DampedState, steps: int) -> DampedState:
        """Advance by at most that many steps."""
        with LENIENT():
            for _ in range(steps):
                if state.done or state.stalled:
                    break
                state = _step(program, state)
            if state.done and state.max_ratio > 1.0 and program.takes_active_set:
                state = _within(program, state)
            return state

    def claim(self, program: DampedProgram, state: DampedState) -> Claim | None:
        """Optimal within the gap and within all intervals; otherwise another method continues."""
        if state.stalled:
            return Claim("stalled", because("gap_open"))
        if not state.done:
            return None
        if not program.problem.target:
            return Claim("optimal", dual=self.dual(program, state))
        if state.max_ratio > 1.0:
            return Claim("stalled", because("least_squares"))
        return Claim("met")

    def checked(self, program: DampedProgram, state: DampedState) -> Enclosure | None:
        """Residuals that the last step evaluated afresh from the data, where it did."""
        problem, rows = program.problem, program.problem.rows
        long = program.by_rows and program.F.prefers_gram
        if state.z is None or long or problem.gram is not None or not rows.rank_one:
            return None
        reading, b = program.question.reading, to_numpy(problem.b)
        if not (reading is b or np.array_equal(reading, b)):
            return None
        # Of ``P + A``: of A, of what P reads, and of their sum, whose norm is no more.
        A = program.matrix(state.x)
        norm = frobenius if isinstance(A, np.ndarray) else np.linalg.norm
        size = float(norm(A)) + abs(program.tau) * math.sqrt(rows.n)
        size += 0.0 if program.base is None else float(norm(program.base))
        error = dense_error(rows, SUM_ERRORS * size) + reading_error(problem.b)
        return Enclosure(own(problem, state.z), error)

    def dual(self, program: DampedProgram, state: DampedState) -> Vector | None:
        """The multipliers of the readings: ``-2 alpha c``, or twice the weighted residuals."""
        if state.z is None:
            return None
        with LENIENT():
            if program.by_rows:
                found = -2.0 * program.alpha * program.root * state.x
            else:
                z = state.z if program.whole else state.z[program.index]
                found = 2.0 * program.w * z
            y = np.zeros(program.question.lo.size)
            y[program.index] = to_numpy(found)
            if state.multipliers is not None:
                y += state.multipliers
        return y if np.isfinite(y).all() else None

    def matrix(self, program: DampedProgram, state: DampedState) -> SensedMatrix:
        """``P + F*(c)``."""
        return matrix_of(program, state.x)


def matrix_of(program: DampedProgram, x: Array) -> SensedMatrix:
    """A of x: by its coefficients with n > m, else dense."""
    problem = program.problem
    with LENIENT():
        if program.by_rows and problem.rows.prefers_gram:
            c = np.zeros(program.question.lo.size)
            c[program.index] = -to_numpy(program.root * x)
            base = None if program.base is None else own(problem, program.base)
            start = changed(problem, tau=program.tau, base=base, c_start=None)
            return start.matrix(own(problem, c))
        A = program.matrix(x)
        A = A + (program.tau * np.eye(len(A)) if program.base is None else program.base)
        return SensedMatrix.from_dense(own(problem, A))


def _within(program: DampedProgram, state: DampedState) -> DampedState:
    """The minimizer within the intervals, seen from the one without them; see `active_set`."""
    factor, question, rows = program.factor, program.question, program.all_rows
    # In coordinates v = R A, packed, the objective is |v|^2 and a constant.
    scale = factor.scale / program.top
    G = rows.features() * scale
    G = solve_triangular(factor.upper, G.T, trans=1, overwrite_b=True, check_finite=False).T
    values = rows.placed(question.reading) + state.z
    with np.errstate(invalid="ignore"):
        half = 0.5 * (question.hi - question.lo)
    half = np.where(np.isfinite(half), half, program.problem.ends.unit)
    inside = np.minimum(INWARD_SHARE * half + ROUNDING_SHARE * np.abs(values), MAX_INWARDS * half)
    lo, hi = question.lo + inside - values, question.hi - inside - values
    found = nearest_within(G, lo, hi, np.zeros(rows.unknowns), 0.5 * inside)
    if found is None:
        return state
    moved = scale * solve_triangular(factor.upper, found[0], check_finite=False)
    x = state.x + unpack(moved, rows.n, state.x.dtype)
    z = program._read(rows, x) - rows.placed(question.reading)
    ratios = program.problem.ends.ratios(z + question.reading - program.problem.ends.reading)
    return changed(
        state, x=x, z=z, multipliers=-2.0 * found[1], iteration=state.iteration + 1,
        max_ratio=float(ratios.max(initial=0.0)),
    )  # fmt: skip


def _inner(a: Array, b: Array) -> float:
    return float(np.vdot(a, b).real)


def _squared(program: DampedProgram, x: Array, residual: Array) -> float:
    """``||A - P||_F^2``; of y ``y . D K D y``, as the residual is D r_0 - (D K D + alpha) y."""
    if not program.by_rows:
        return _inner(x, x)
    square = _inner(x, program.root * program.r0 - residual) - program.alpha * _inner(x, x)
    return max(square, 0.0)


def _goal(program: DampedProgram, x: Array, residual: Array) -> float:
    """Duality gap at which to stop; the cost is not below ``alpha ||A - P||_F^2``."""
    return program.goal * program.alpha * _squared(program, x, residual)


def _step(program: DampedProgram, state: DampedState) -> DampedState:
    """One step of conjugate gradients, or of refinement by a factor in float64.

    The end is checked in float64 from the rows.
    """
    if program.is_direct and not state.double:  # where that does not converge, steps in float64
        x = state.x + state.direction
        return _recomputed(program, changed(state, x=x, iteration=state.iteration + 1))
    image = program.apply(state.direction, state.double)
    bend = _inner(state.direction, image)
    if not (bend > 0.0 and state.size > 0.0):
        return _recomputed(program, state)
    share = state.size / bend
    x = state.x + share * state.direction
    residual = state.residual - share * image
    plain = _inner(residual, residual)
    gap = plain if program.by_rows else plain / program.alpha
    state = changed(
        state, x=x, residual=residual, gap=gap, z=None, iteration=state.iteration + 1,
        since=state.since + 1,
    )  # fmt: skip
    if gap <= MIN_PROGRESS * _goal(program, x, residual) or state.since >= MAX_STRETCH_STEPS:
        return _recomputed(program, state)
    ahead = program.precondition(residual, state.factored)
    size = plain if ahead is residual else _inner(residual, ahead)
    direction = ahead + (size / state.size) * state.direction
    state = changed(state, direction=direction, size=size)
    if not state.factored and _worth_factoring(program, state):
        return _recomputed(program, changed(state, factored=True))
    return state


def _worth_factoring(program: DampedProgram, state: DampedState) -> bool:
    """Whether as much was spent as a factorization takes, and as much is expected to follow."""
    spent = state.iteration * program.step_flops
    if spent < program.factor_flops or not program.may_factor:
        return False
    gained = math.log(max(state.first / state.gap, 1.0))
    goal = _goal(program, state.x, state.residual)
    left = math.log(max(state.gap / goal, 1.0)) if goal > 0.0 else math.inf
    return left > gained


def _recomputed(program: DampedProgram, state: DampedState) -> DampedState:
    """The state with its residual recomputed from the rows in float64."""
    long = program.by_rows and program.F.prefers_gram
    A = None if long else program.matrix(state.x)
    F = program.all_rows
    if A is None:  # no n-by-n matrix is formed
        values = program.tau * F.squares + program.read_by_gram(state.x)
        if program.base is not None:
            values = values + F.forward(program.base)
    else:
        values = program._read(F, A)
    z = values - F.placed(program.question.reading)
    mine = -(z if program.whole else z[program.index])
    if program.by_rows:
        residual = program.root * mine - program.alpha * state.x
        gap = _inner(residual, residual)
    else:
        residual = program.F.adjoint(program.w * mine) - program.alpha * state.x
        gap = _inner(residual, residual) / program.alpha
    ends = program.problem.ends
    ratio = float(ends.ratios(to_numpy(values) - ends.reading).max(initial=0.0))
    cost = _inner(mine * program.w, mine)
    cost += program.alpha * (_squared(program, state.x, residual) if A is None else _inner(A, A))
    done = gap <= _goal(program, state.x, residual)
    ahead = residual if done else program.precondition(residual, state.factored)
    stuck = not gap < MIN_PROGRESS * state.recomputed
    state = changed(
        state, residual=residual, direction=ahead, size=_inner(residual, ahead), gap=gap,
        recomputed=gap, z=z, max_ratio=ratio if np.isfinite(ratio) else np.inf, done=done, since=0,
    )  # fmt: skip
    if done or not stuck:
        return state
    if gap <= program.gap * GAP_SHARE_REACHED * cost:
        return changed(state, done=True)
    if not state.factored and program.may_factor:
        ahead = program.precondition(residual, True)
        return changed(state, direction=ahead, size=_inner(residual, ahead), factored=True)
    return changed(state, stalled=True) if state.double else changed(state, double=True)
