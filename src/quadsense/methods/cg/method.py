"""`cg`: any fit by conjugate residuals, the nearest by an active set, damped least squares.

The nearest: the minimizer of ``||A - P||_F^2`` within ``lo <= F(A) <= hi`` is ``A = P + F*(x)``,
and x minimizes

    x . K x + 2 x . F(P) - 2 sum_i (x_i lo_i if x_i > 0, x_i hi_i if x_i < 0),   K = F F*,

a lasso with Gram matrix K. Which rows are held at an end, and at which, is found by the primal-dual
active set method [Hintermueller et al. 2002], all rows exchanged at once; where that goes round, x
moves along Newton's step as far as the objective falls, through changes of sign [Lee et al. 2007].
Held rows are brought to their ends by conjugate gradients on K in single precision, and readings
are recomputed from the rows in float64. The gap is known at every point: ``2 sum_i |x_i|`` times
the distance of reading i from its end.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.products import Inexact, pack, unpack
from quadsense.core.records import changed, record
from quadsense.device import numbers
from quadsense.methods.base import (
    COLD,
    LENIENT,
    MAX_REFINEMENTS,
    Problem,
    Stepped,
    Trace,
    Warm,
    at_work,
    own,
    start_matrix,
    stride_of,
    weighed_rows,
)
from quadsense.methods.cg import ConjugateGradientTraits, plain_steps, residuals
from quadsense.methods.cg.damped import (
    MAX_INWARDS,
    MAX_STRETCH_STEPS,
    Damped,
    DampedProgram,
    matrix_of,
)
from quadsense.methods.cg.system import (
    CGSystem,
    NormalOperator,
    given_gram,
    prepare,
    starting_ratio,
)
from quadsense.proofs.rounding import Enclosure, dense_error, frobenius, reading_error
from quadsense.system.watch import look
from quadsense.vocabulary import Claim, because


@record(frozen=True)
class CGProgram:
    """The problem, its system on weighed rows, and the squares of their weights."""

    problem: Problem
    system: CGSystem
    squares: Vector

    def aiming(self, state: residuals.CGState) -> CGSystem:
        """The system with the tolerances that the state aims at."""
        return self.system if state.goal == 1.0 else self.system.aiming(state.goal)


class ConjugateGradient(ConjugateGradientTraits, Stepped):
    """The conjugate residual method on ``K y = z_1`` (see `residuals`).

    The rival of descent for consistent data. Where there are more measurements than unknowns it
    goes on to the least-squares fit, the better estimate under noise; where that does not meet the
    tolerance it says so, for `minimax` to decide.

    Least squares weighs every residual by its tolerance (see `weighed_rows`).
    """

    @classmethod
    def suited_to(cls, problem: Problem) -> type[Any]:
        """Damped least squares, or the nearest matrix, where that was asked for."""
        if problem.question is None:
            return cls
        return Damped if problem.question.term.squares else Nearest

    def prepare(self, problem: Problem) -> CGProgram:
        """The system ``K y = z_1``."""
        if problem.gram is not None:  # K serves, and no scaled copy of U is made
            delta = to_numpy(problem.delta)
            squares = float(delta.min()) / delta
            z1 = squares * to_numpy(problem.initial_residual())
            b = squares * to_numpy(problem.b)
            apply = given_gram(problem)

            def weighed(y: Vector) -> Vector:
                return np.asarray(squares * to_numpy(apply(squares * y)), dtype=np.float64)

            operator = NormalOperator(problem.rows, formed=False, given=weighed)
            masses = np.asarray(squares * to_numpy(problem.rows.masses))
            widths = squares * delta
            ratio = starting_ratio(problem.rows, b, widths, z1)
            steps = plain_steps(problem.rows.m, problem.rows.unknowns, ratio)
            system = CGSystem(
                problem.rows, b, widths, problem.tau, z1, operator, 0, ratio, steps, masses
            )
            return CGProgram(problem, system, squares)
        rows, squares = weighed_rows(problem)
        b, delta, identity = problem.b, problem.delta, problem.rows.squares
        if type(b) is not np.ndarray:
            b, delta, identity = (at_work(problem, each) for each in (b, delta, identity))
        b, delta, identity = squares * b, squares * delta, squares * identity
        plain = problem.base is None and problem.c_start is None
        A1 = float(problem.tau) if plain else start_matrix(problem)
        return CGProgram(problem, prepare(rows, b, delta, A1, squares=identity), squares)

    def start(self, program: CGProgram, warm: Warm = COLD) -> residuals.CGState:
        """State at A_1."""
        return residuals.start(program.system, factored=_factors_first(program.system))

    def advance(
        self, program: CGProgram, state: residuals.CGState, steps: int
    ) -> residuals.CGState:
        """Return the state after at most `steps` more products with K."""
        system, found = program.aiming(state), None
        if state.plain == 0 and not state.iteration and not state.finished and steps:
            found = _solved_directly(system, state)
        state = residuals.advance(system, state, steps) if found is None else found
        if program.system.F.known_rank is not None:  # of the same rows, weighed
            program.problem.rows.known_rank = program.system.F.known_rank
        return state

    def stride(self, program: CGProgram) -> int:
        """Steps worth a few milliseconds; of a device, too, which is waited for once in them."""
        return stride_of(program.problem, program.system.step_cost(True))

    def patience(self, program: CGProgram) -> int:
        """Strides in which the worst residual must have fallen at all."""
        return 40

    def claim(self, program: CGProgram, state: residuals.CGState) -> Claim | None:
        """Met, at least squares without meeting the tolerance, or stuck."""
        if state.met:
            return Claim("met")
        if state.inconsistent:
            return Claim("inconsistent", because("least_squares"))
        if state.stalled:
            return Claim("inconsistent", because("residuals_rounded"))
        return None

    def checked(self, program: CGProgram, state: residuals.CGState) -> Enclosure | None:
        """Residuals that the last step evaluated afresh from the data, where it did."""
        problem = program.problem
        plain = problem.rows.raw is problem.rows  # else their mixing rounds, too
        if not (state.verified and plain) or state.A is None or problem.gram is not None:
            return None
        # Of the unit rows, from those weighed by their tolerances.
        z = own(problem, state.z / program.squares)
        size = frobenius(state.A) if type(state.A) is np.ndarray else np.linalg.norm(state.A)
        inner = 0 if program.system.features is None else program.system.unknowns
        error = dense_error(problem.rows, float(size), inner)
        return Enclosure(z, error + reading_error(problem.b))

    def correct(
        self, program: CGProgram, state: residuals.CGState, z: Array, goal: float
    ) -> residuals.CGState:
        """Go on from the residual recomputed in double precision, and aim lower."""
        state = replace(state, goal=goal)
        return replace(residuals.corrected(program.aiming(state), state), met=False)

    def matrix(self, program: CGProgram, state: residuals.CGState) -> SensedMatrix:
        """``A_1 - F*(y)``."""
        problem, system = program.problem, program.system
        y = None if state.A is not None else residuals.coefficients(system, state)
        if y is None:
            return SensedMatrix.from_dense(own(problem, residuals.matrix(system, state)))
        return problem.matrix(own(problem, program.squares * y))

    def trace(self, program: CGProgram, state: residuals.CGState) -> Trace:
        """The ratios of all residuals."""
        return Trace(lambda: np.abs(state.z) / program.aiming(state).delta)


# Float64 flops of a factorisation that takes less than a millisecond.
MAX_SMALL_FACTOR_FLOPS = 3e7


def _factors_first(system: CGSystem) -> bool:
    """Whether the system is so small that a factorisation is quicker than a few plain steps."""
    cost = system.factor_cost
    if not system.factor_fits or cost > MAX_SMALL_FACTOR_FLOPS or system.start_ratio <= 1.0:
        return False
    return system.step_cost(False) * system.steps > cost


def _solved_directly(system: CGSystem, state: residuals.CGState) -> residuals.CGState | None:
    """The solution by the factor alone, where that meets delta: no image, no span."""
    if system.in_matrix_coordinates:
        return _fitted_directly(system, state)
    if system.overdetermined:
        return None
    scale = float(np.abs(state.z).max()) or 1.0
    y = scale * system.factor.solve(state.z / scale)
    A: Inexact | None
    if system.explicit:
        z, A, ratio = residuals.recomputed(system, changed(state, base=y))
    else:
        z, A, ratio = system.measured(system.from_coefficients(y, state.double))
    if not ratio <= 1.0:
        return None
    return changed(
        state, base=y, iteration=1, z=z, A=A, max_ratio=ratio, verified=True, met=True,
        ratios=np.array([state.max_ratio, ratio]),
        decreases=np.array([float(state.z @ state.z - z @ z)]),
    )  # fmt: skip


def _fitted_directly(system: CGSystem, state: residuals.CGState) -> residuals.CGState | None:
    """The least-squares fit by the factor alone, refined until it is settled; else None.

    With N the normal matrix and ``g = F*(z)``, ``g.N^-1 g`` is the squared distance of z to the
    least-squares residual.
    """
    F, Psi, x, A = system.F, system.features, state.base, state.A
    z, ratio, ratios, decreases = state.z, state.max_ratio, [state.max_ratio], []
    enough = residuals.MAX_DISTANCE * system.narrowest
    distance = size = math.sqrt(float(z @ z))
    for iteration in range(MAX_REFINEMENTS + 1):
        if iteration and size <= enough:  # the distance is no more
            distance = size
            break
        scale = float(np.maximum.reduce(np.abs(z))) or 1.0
        gradient = pack(F.adjoint(z / scale)) if Psi is None else (z / scale) @ Psi
        w = system.factor.solve(gradient)
        distance = scale * math.sqrt(max(float(gradient @ w), 0.0))
        if iteration and distance <= enough:
            break
        x = x + scale * w
        z, A, ratio = system.measured(system.from_start(unpack(-x, F.n, F.dtype)))
        before, size = size, math.sqrt(float(z @ z))
        ratios.append(ratio)
        decreases.append(before * before - size * size)
    else:
        return None
    if not ratio <= 1.0:
        return None
    return changed(
        state, base=x, iteration=iteration, z=z, A=A, max_ratio=ratio, verified=True, met=True,
        distance=distance, ratios=np.array(ratios), decreases=np.array(decreases),
    )  # fmt: skip


# --- the nearest matrix within intervals --------------------------------------------------------

MAX_GAP = 3e-8
"""Relative gap at which to stop."""

INWARD_GAP_SHARE = 0.3
"""How far ends are moved inwards, so that readings may be off by as much: what costs this share of
that gap, and at most `MAX_INWARDS` half-widths."""

MAX_STEP_RESIDUAL = 1e-3
"""Residual of a step, relative to that before it; it takes `MAX_STRETCH_STEPS` products at most."""

MAX_EXCHANGES = 3
"""Exchanges of all rows at once after the fewest that were wrong: then x moves along a line."""

MIN_STEP_LENGTH, MAX_HELD_DISTANCE = 0.1, 1e-2
"""Length of a step, to 1 for Newton's, below which rows enter one at a time; and how far held rows
may be from their ends then, to how far the one that enters is outside."""

MAX_SOLVES = 4
"""Solves of a step, each without the rows that the one before has shown not to be held."""

MIN_CURVATURE = 1e-6
"""Curvature, for a unit diagonal, below which a direction is left: rows that are alike."""

MAX_STEPS = 30
"""Steps at most: seen 3 to 9 where all rows are exchanged at once; along lines, where some dozens
may be needed, the interior-point method takes less time."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ActiveSetState:
    """Where the active set stands.

    Attributes
    ----------
    x : array of shape (m,)
        ``A = P + F*(x)``.
    values : array of shape (m,)
        ``F(A)``, from the rows in float64.
    max_ratio, gap : float
    fewest, rounds : int
        The fewest rows that were wrong, and the exchanges since then.
    alone : bool
        Whether one row is to enter at a time, once those that are held are at their ends: a step
        of several led nowhere.
    done, stalled : bool
    """

    x: Vector
    values: Vector
    max_ratio: float = np.inf
    gap: float = np.inf
    fewest: int = sys.maxsize
    rounds: int = 0
    alone: bool = False
    iteration: int = 0
    done: bool = False
    stalled: bool = False


class NearestProgram(DampedProgram):
    """All rows with weight 1 and no damping, and the intervals."""

    def __init__(self, problem: Problem) -> None:
        question = problem.question
        assert question is not None
        ones, zeros = np.ones(question.m), np.zeros(question.m)
        super().__init__(problem, changed(question, weights=ones, reading=zeros, alpha=0.0))
        self.pull = float(question.alpha)
        self.lo, self.hi = self.F.placed(question.lo), self.F.placed(question.hi)
        two = np.isfinite(question.lo) & np.isfinite(question.hi)
        with np.errstate(invalid="ignore"):
            half = np.where(two, 0.5 * (question.hi - question.lo), problem.ends.unit)
        self.half = self.F.placed(half)

    def read(self, x: Vector) -> Vector:
        """``F(P + F*(x))``, in float64."""
        look(2.0 * self.product_flops)
        if self.F.prefers_gram or self.problem.gram is not None:
            return self.shift + self.read_by_gram(x)
        return self._read(self.F, self.matrix(x))

    def inwards(self, state: ActiveSetState) -> float:
        """How far ends are moved inwards, in half-widths."""
        (square, price) = numbers(
            state.x @ (state.values - self.shift), np.abs(state.x) @ self.half
        )
        if not price > 0.0:
            return MAX_INWARDS
        return min(MAX_INWARDS, INWARD_GAP_SHARE * MAX_GAP * square / (2.0 * price))


class Nearest(ConjugateGradientTraits, Stepped):
    """What `cg` does for the nearest matrix."""

    def prepare(self, problem: Problem) -> NearestProgram:
        """The rows and their intervals."""
        with LENIENT():
            return NearestProgram(problem)

    def start(self, program: NearestProgram, warm: Warm = COLD) -> ActiveSetState:
        """A = P, or the multipliers of an earlier result."""
        with LENIENT():
            zero = np.zeros_like(program.lo)
            x = zero
            if warm.dual is not None and np.shape(warm.dual) == (program.question.m,):
                x = program.F.placed(np.asarray(warm.dual) / (-2.0 * program.pull))
            x = np.where(np.isfinite(np.where(x > 0.0, program.lo, program.hi)), x, 0.0)
            values = program.read(x) if bool(np.any(x != 0.0)) else program.shift
            return _judged(program, ActiveSetState(x, values))

    def stride(self, program: NearestProgram) -> int:
        """One exchange of the set."""
        return 1

    def advance(self, program: NearestProgram, state: ActiveSetState, steps: int) -> ActiveSetState:
        """Return the state after at most `steps` more exchanges."""
        with LENIENT():
            for _ in range(steps):
                if state.done or state.stalled:
                    break
                state = _exchange(program, state)
            return state

    def claim(self, program: NearestProgram, state: ActiveSetState) -> Claim | None:
        """Within all intervals and optimal to the gap; otherwise another method continues."""
        if state.stalled:
            return Claim("stalled", because("gap_open"))
        return Claim("met") if state.done else None

    def matrix(self, program: NearestProgram, state: ActiveSetState) -> SensedMatrix:
        """``P + F*(x)``."""
        return matrix_of(program, state.x)

    def dual(self, program: NearestProgram, state: ActiveSetState) -> Vector | None:
        """``-2 alpha x``."""
        y = to_numpy(-2.0 * program.pull * state.x)
        return y if np.isfinite(y).all() else None


def _exchange(program: NearestProgram, state: ActiveSetState) -> ActiveSetState:
    """Newton's step on the rows that are held, as far along it as the objective falls."""
    share = program.inwards(state)
    inside = np.where(program.lo < program.hi, share * program.half, 0.0)
    lo, hi = program.lo + inside, program.hi - inside
    if state.rounds <= MAX_EXCHANGES:
        return _exchanged(program, state, lo, hi)
    x, values = state.x, state.values
    beyond = np.maximum(np.maximum(lo - values, values - hi), 0.0)
    enters = (x == 0.0) & (beyond > 0.0)
    if state.alone:
        off = np.where(x == 0.0, 0.0, np.abs(np.where(x > 0.0, lo, hi) - values))
        most, left = numbers(np.max(np.where(enters, beyond, 0.0)), np.max(off))
        enters = enters & (beyond >= most) & (left <= MAX_HELD_DISTANCE * most)
    lower = np.where(x == 0.0, values < lo, x > 0.0)
    held = (x != 0.0) | enters
    for _ in range(MAX_SOLVES):
        missing = np.where(held, np.where(lower, lo, hi) - values, 0.0)
        d = _solved(program, 1.0 * held, missing)
        # A row that would be at an end that is not there cannot be held.
        drops = (x == 0.0) & ~np.isfinite(np.where(d > 0.0, lo, np.where(d < 0.0, hi, 0.0)))
        if not bool(np.any(drops)):
            break
        held = held & ~drops
    d = np.where(drops, 0.0, d)
    image = program.read(d) - program.shift
    t, blocked = _length(x, d, values, image, lo, hi)
    kept = np.ones(program.question.m)
    kept[blocked] = 0.0
    after = program.F.placed(kept) * (x + t * d)
    alone = t < MIN_STEP_LENGTH
    state = changed(
        state, x=after, values=program.read(after), alone=alone, iteration=state.iteration + 1,
        stalled=t == 0.0 and state.alone,
    )  # fmt: skip
    return _judged(program, state)


def _exchanged(
    program: NearestProgram, state: ActiveSetState, lo: Vector, hi: Vector
) -> ActiveSetState:
    """All rows that are to be held at their ends, at once, and how many are wrong then."""
    x, values = state.x, state.values
    side = _sides(x, values, lo, hi)
    held = side != 0.0
    kept = np.where(held, x, 0.0)
    if bool(np.any(kept != x)):  # rows that leave the set take their part along
        values = values - program.apply(x - kept, False)
    missing = np.where(held, np.where(side > 0.0, lo, hi) - values, 0.0)
    x = kept + _solved(program, 1.0 * held, missing)
    values = program.read(x)
    wrong = int(np.count_nonzero(_sides(x, values, lo, hi) != side))
    fewer = wrong < state.fewest
    leans = np.where(x > 0.0, program.lo, np.where(x < 0.0, program.hi, 0.0))
    rounds = 0 if fewer else state.rounds + 1
    if rounds > MAX_EXCHANGES:  # a point with a finite objective
        x = np.where(np.isfinite(leans), x, 0.0)
        values = program.read(x)
    state = changed(
        state, x=x, values=values, fewest=min(wrong, state.fewest), rounds=rounds,
        iteration=state.iteration + 1,
    )  # fmt: skip
    return _judged(program, state)


def _sides(x: Vector, values: Vector, lo: Vector, hi: Vector) -> Vector:
    """1 where a row is to be held at its lower end, -1 at its upper end.

    Where x, in units of a reading as K has unit diagonal, reaches beyond the end from there.
    """
    return 1.0 * (x - (values - lo) > 0.0) - 1.0 * (x - (values - hi) < 0.0)


def _length(
    x: Vector, d: Vector, values: Vector, image: Vector, lo: Vector, hi: Vector
) -> tuple[float, Rows]:
    """Where the objective is least on ``x + t d``, t >= 0, and the rows that are 0 there.

    Its slope is ``2 d . (F(A) - ends)``, which grows with t, and by ``2 |d_i| (hi_i - lo_i)`` where
    row i goes from one end to the other.
    """
    x, d, values, image, lo, hi = (to_numpy(each) for each in (x, d, values, image, lo, hi))
    upwards = np.where(x == 0.0, d > 0.0, x > 0.0)
    ends = np.where(upwards, lo, hi)
    moves = d != 0.0
    slope = float(d[moves] @ (values - ends)[moves])
    bend = float(d @ image)
    if not (slope < 0.0 and bend > 0.0):
        return 0.0, np.empty(0, np.int64)
    turning = np.flatnonzero(x * d < 0.0)
    at = -x[turning] / d[turning]
    order = np.argsort(at, kind="stable")
    at, turning = at[order], turning[order]
    jumps = np.abs(d[turning]) * (hi - lo)[turning]
    before = slope + bend * at + np.concatenate([[0.0], np.cumsum(jumps)])[:-1]
    first = int(np.searchsorted(before + jumps >= 0.0, True))  # the slope grows
    if first < at.size and before[first] < 0.0:
        return float(at[first]), turning[first : first + 1]
    crossed = float(np.sum(jumps[:first]))
    return -(slope + crossed) / bend, np.empty(0, np.int64)


def _solved(program: NearestProgram, held: Vector, right: Vector) -> Vector:
    """d with ``K d = right`` on the rows that are held, and 0 on the others."""
    d, left, direction = np.zeros_like(right), right, right
    (size,) = numbers(right @ right)
    enough = MAX_STEP_RESIDUAL**2 * size
    for _ in range(MAX_STRETCH_STEPS):
        if not size > enough:  # NaN too
            break
        look(2.0 * program.step_flops)
        image = held * program.apply(direction, False)
        along, square = numbers(direction @ image, direction @ direction)
        if not along > MIN_CURVATURE * square:
            break
        length = size / along
        d, left = d + length * direction, left - length * image
        (after,) = numbers(left @ left)
        direction, size = left + (after / size) * direction, after
    return d


def _judged(program: NearestProgram, state: ActiveSetState) -> ActiveSetState:
    """The state with its gap, its worst ratio, and whether it is the last."""
    x, values, lo, hi = state.x, state.values, program.lo, program.hi
    beyond = np.where(x > 0.0, values - lo, np.where(x < 0.0, hi - values, 0.0))
    terms = np.where(x == 0.0, 0.0, np.abs(x) * beyond)
    gap, square = numbers(2.0 * np.sum(terms), x @ (values - program.shift))
    ends = program.problem.ends
    ratio = float(np.max(ends.ratios(to_numpy(values) - ends.reading), initial=0.0))
    fits = not bool(np.any((values < lo) | (values > hi)))
    done = fits and gap <= MAX_GAP * square
    lost = not np.isfinite(square) or state.iteration >= MAX_STEPS
    return changed(
        state, gap=gap, max_ratio=ratio if np.isfinite(ratio) else np.inf, done=done,
        stalled=not done and (state.stalled or lost),
    )  # fmt: skip
