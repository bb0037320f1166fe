"""A fit ``A = X S X*`` within an interval for every row, X of few columns, S a diagonal of signs.

One attempt is a descent on the factor, by damped Gauss-Newton steps where the normal equations are
small and by quasi-Newton steps elsewhere, through these phases:

* ``squares``: least squares on ``z_i / delta_i`` from a start of the asked rank; where tolerances
  differ by much, with weights of limited spread first (see `LowRankProgram.levels`);
* ``hinge``: once least squares ends with a root mean square ratio of at most one (no point that
  fits can have more), least squares on what exceeds the tolerances;
* ``lift``: every attempt but the first starts at random with a few ranks too many and an
  increasing penalty on the energy outside the leading ``rank`` axes. The extra room lets a row
  pass from one sign of ``u_i* x`` to the other, where a factor of the asked rank is walled in.
  Plain random starts almost never succeed at m = 1.5 n, r = 1.

``rank=None`` grows the rank by the steepest new direction until the tolerances are met. Where least
squares is what is wanted, with a tolerance or without, it is settled before anything else is looked
at. The fit ends as ``rounded`` where every residual is within its tolerance up to its rounding
bound, and that leaves no room: no other factor could be shown to be better.

Where the images of a factor are too many to be held, rows that have few entries are taken in turn
instead, each brought within its tolerance, and nothing is held but the factor. Least squares is
left out, for a fit is all that is wanted, and so is the spectral start, which is for rows of all
directions alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from quadsense.arrays import Array, is_numpy, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import changed
from quadsense.core.secants import Memory
from quadsense.measurements.arrays import Dense, Sparse
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import COLD, Problem, Stepped, Warm, nothing, own, stride_of
from quadsense.methods.low_rank import LEAN_BYTES, LIFT, READINGS_PER_STEP, LowRankTraits
from quadsense.methods.low_rank.passes import FactorPoint, evaluate, rounding_unit
from quadsense.methods.low_rank.phases import (
    FIRST_DAMPING,
    HINGE_SHARES,
    LowRankState,
    Phase,
    begin,
    level_of,
    next_phase,
    noted,
    settles,
    upper_ends,
    why_not,
)
from quadsense.methods.low_rank.program import (
    FactorQuestion,
    LowRankProgram,
    Matrix,
    Vector,
    asked,
    default_restarts,
    prepare,
    rows_are_ample,
    takes_normal_equations,
)
from quadsense.methods.low_rank.rest import fits_exactly
from quadsense.methods.low_rank.starts import (
    Draw,
    in_range,
    leading_factor,
    random_start,
    spectral_start,
)
from quadsense.methods.low_rank.steps import (
    MIN_SCALE_SHARE,
    axes_of,
    balanced,
    line_minimum,
    normal_equations,
    principal_axes,
    quasi_newton_step,
    turned,
)
from quadsense.system.machine import FLOAT64_BYTES
from quadsense.system.watch import look
from quadsense.vocabulary import Claim, because

# Entries of X below this share of the largest: in A they are less than the square of rounding.
MIN_ENTRY_SHARE = 2.0**-120

MAX_THIN_SHARE, MIN_THIN_LENGTH = 0.05, 50
"""Share of nonzero entries up to which dense rows, from this length on, are held sparse."""


@dataclass(frozen=True)
class PreparedLowRank:
    """The problem, what is asked of the factor, and what the descent reads of it."""

    problem: Problem
    asked: FactorQuestion
    inner: LowRankProgram | None


class LowRank(LowRankTraits, Stepped):
    """``A = X S X*`` with X of shape (n, r): spectral start, descent, restarts (see above).

    Not finding a fit proves nothing: the problem is not convex in X. Without a tolerance least
    squares is brought to rest, which proves nothing either.
    """

    def prepare(self, problem: Problem) -> PreparedLowRank:
        """What the descent reads.

        Readings are scaled by a power of four, exactly, to at most 1, and X by its root.
        """
        what, inner = asked(problem), None
        if what.b.size:
            F = what.on(problem.rows)
            if takes_normal_equations(F, (problem.rank or 1) + LIFT):  # too small for a device
                F = what.on(problem.rows.on_numpy())
            inner = prepare(
                _thinned(F),
                what.b,
                what.delta,
                problem.rank,
                bounds=what.bounds,
                signs=problem.signs,
                wanted=what.wanted,
                target=problem.target,
            )
        return PreparedLowRank(problem, what, inner)

    def start(self, program: PreparedLowRank, warm: Warm = COLD) -> LowRankState:
        """The spectral start, or the factor of an earlier answer or of a matrix that was given."""
        problem, inner, exponent = program.problem, program.inner, program.asked.exponent
        if inner is None:
            return at_zero(problem.rows.n, problem.rank or 1)
        factor = None
        with np.errstate(over="ignore", under="ignore"):
            if warm.factor is not None and problem.signs is None:
                factor = in_range(to_numpy(warm.factor), exponent)
            elif warm.fit is not None:
                factor = leading_factor(inner, warm.fit, exponent, problem.rank)
        return first_state(
            inner,
            problem.rank,
            seed=problem.seed,
            max_restarts=problem.options.max_restarts,
            factor=factor,
        )

    def stride(self, program: PreparedLowRank) -> int:
        """Steps worth a few milliseconds."""
        problem = program.problem
        flops = READINGS_PER_STEP * problem.m * problem.rows.n * max(problem.rank or 1, 1)
        return stride_of(problem, flops)

    def advance(self, program: PreparedLowRank, state: LowRankState, steps: int) -> LowRankState:
        """Return the state after at most `steps` more descent steps."""
        return state if program.inner is None else advanced(program.inner, state, steps)

    def claim(self, program: PreparedLowRank, state: LowRankState) -> Claim | None:
        """Met, at rest, or out of starts; with a candidate proof where no rank seems to fit."""
        if state.phase is Phase.MET:
            return Claim("met" if program.problem.target else "local")
        if state.phase is Phase.LOCAL:
            return Claim("local", because("at_rest", starts=state.starts + 1))
        if not state.finished:
            return None
        if not program.problem.target:
            return Claim("stalled", because("restless", starts=state.starts + 1))
        dual = None
        if state.no_rank_fits and program.inner is not None:
            y = farkas_vector(program.inner, state)
            dual = y
            if program.asked.index is not None:
                dual = np.zeros(program.problem.m)
                dual[program.asked.index] = y
        return Claim("stalled", why_not(state), dual=dual)

    def correct(
        self, program: PreparedLowRank, state: LowRankState, z: Array, goal: float
    ) -> LowRankState:
        """The same fit with a tighter goal: the loop bounds its rounding in another way."""
        return state if program.inner is None else tightened(program.inner, state, goal)

    def matrix(self, program: PreparedLowRank, state: LowRankState) -> SensedMatrix:
        """``X S X*``."""
        X = factor(state)
        if program.inner is not None:
            X = balanced(program.inner, X.T).T
        X = np.ldexp(1.0, program.asked.exponent) * X
        # Ranks that are not needed shrink for ever: what is left of them only underflows.
        X[np.abs(X) < MIN_ENTRY_SHARE * np.max(np.abs(X), initial=0.0)] = 0.0
        signs = None
        if program.inner is not None:
            signs = program.inner.signs_of(X.shape[1])
        elif program.problem.signs is not None:
            signs = np.repeat([1.0, -1.0], program.problem.signs)
        return SensedMatrix.from_factor(own(program.problem, np.ascontiguousarray(X)), signs)

    def first(self, problem: Problem) -> SensedMatrix:
        """A = 0."""
        return nothing(problem)


def _thinned(F: Sensing) -> Sensing:
    """The rows held sparse where nearly all entries are 0: steps for those are others."""
    kind = F.kind
    if not F.rank_one or not isinstance(kind, Dense) or F.n < MIN_THIN_LENGTH:
        return F
    U = kind.U
    if not is_numpy(U) or U.dtype.itemsize < FLOAT64_BYTES:
        return F
    most = MAX_THIN_SHARE * U.size
    some = U[: int(2 * MAX_THIN_SHARE * len(U)) + 1]  # enough to tell of rows that are full
    if np.count_nonzero(some) > most or np.count_nonzero(U) > most:
        return F
    factors = 1.0 if F.factors is None else F.factors
    return Sensing(Sparse(sp.csr_array(U)), F.conjugate, factors)


# --- the descent ---------------------------------------------------------------------------------

# Steps per stage, and penalties, of a lift.
MAX_LIFT_STEPS = 20
LIFT_PENALTY, LIFT_GROWTH = 1e-3, 3.0
# The same where rows are sparse: few of them carry most of what zero misses, and any penalty
# larger than that folds the rest up before it has spread out.
LIFT_PENALTY_SPARSE, LIFT_GROWTH_SPARSE = 1e-7, 10.0
MIN_DAMPING, MAX_DAMPING = 1e-12, 1e8
DAMPING_FACTOR = 5.0
# Where less than this of a step is taken, it was damped too little.
MIN_LENGTH_UNDAMPED = 0.3
# A stage ends when this many steps in a row gain less than this share of the loss.
SLOW_GAIN, SLOW_GAIN_LIFT = 1e-4, 1e-3
# The same where least squares is to be settled, and no Newton steps are to follow.
SLOW_GAIN_AT_REST = 1e-10
# Taking rows in turn ends after this many turns of all in a row that gain less than this share.
SLOW_TURN_GAIN, MAX_SLOW_TURNS = 0.02, 8
MAX_SLOW_STEPS_LIFT, MAX_SLOW_STEPS_DENSE, MAX_SLOW_STEPS = 1, 3, 5
# Restarts without a tolerance, where rows are few.
RESTARTS_WITHOUT_TOLERANCE = 5
# Most steps of a phase; fewer of Gauss-Newton after a restart, which converges soon if at all.
MAX_PHASE_STEPS, MAX_STEPS_AFTER_RESTART = 2000, 200


def first_state(
    problem: LowRankProgram,
    rank: int | None,
    *,
    seed: int = 0,
    max_restarts: int | None = None,
    factor: Matrix | None = None,
) -> LowRankState:
    """Return the first state: the spectral start, or ``factor`` (a warm start).

    Parameters
    ----------
    problem : LowRankProgram
    rank : int or None
        None grows the rank from that of ``factor``, or from 1.
    seed : int
    max_restarts : int, optional
        By default 20 to 200, as many as take some seconds; 3 at each rank when it grows; without
        a tolerance 5, and none where rows are ample.
    factor : (n, k) array, optional
        X of an earlier ``A = X S X*``, one column a sign asked for or fewer (without signs).
    """
    first_rank = rank if rank is not None else 1 if factor is None else factor.shape[1]
    if max_restarts is None:
        max_restarts = 3 if rank is None else default_restarts(problem.F, rank, rank + LIFT)
        if not problem.target:  # nothing says when a least is low enough
            max_restarts = (
                0 if rows_are_ample(problem.F, first_rank) else RESTARTS_WITHOUT_TOLERANCE
            )
    lean = is_lean(problem, first_rank)
    with np.errstate(under="ignore"):
        if factor is None and lean:
            Y = random_start(problem, first_rank, (seed, 0))
        elif factor is None:
            Y = spectral_start(problem, first_rank, (seed, 0))
        else:
            Y = _padded(problem, factor, first_rank, (seed, 0))
        theta = HINGE_SHARES[0] if lean else 0.0
        if lean:
            point = lean_start(problem, Y, theta)
        else:
            point = evaluate(problem.levels[0], turned(problem, Y), 0.0)
        state = LowRankState(
            rank=first_rank,
            growing=rank is None,
            max_restarts=max_restarts,
            seed=seed,
            phase=Phase.HINGE if lean else Phase.SQUARES,
            theta=theta,
            point=point,
            best=point.Y,
            anchor=np.empty((first_rank, 0)) if lean else point.Y,
            max_ratio=np.inf,
            damping=FIRST_DAMPING,
            passes=1,
        )
        state = noted(problem, state)
        exact = None if factor is None or lean else _exact(problem, factor, first_rank)
        return state if exact is None else _with_fit(problem, state, exact)


def _exact(problem: LowRankProgram, factor: Matrix, rank: int) -> FactorPoint | None:
    """Return that factor where it reads what was read, up to rounding; None otherwise."""
    columns = factor.shape[1]
    if columns > rank or (columns < rank and problem.signs is not None):
        return None
    Y = np.zeros((rank, len(factor)), factor.dtype)
    Y[:columns] = factor.T
    point = evaluate(problem.levels[-1], Y, 0.0)
    return point if fits_exactly(problem.levels[-1], point) else None


def _with_fit(problem: LowRankProgram, state: LowRankState, point: FactorPoint) -> LowRankState:
    """Return the state at the end: no sum of squares is less than that of an exact fit."""
    phase = Phase.MET if problem.target else Phase.LOCAL
    if problem.target and not point.ratio <= state.goal:
        return state
    return changed(
        state, phase=phase, point=point, best=point.Y, anchor=point.Y, max_ratio=point.ratio,
        least=point.value,
    )  # fmt: skip


def at_zero(n: int, rank: int) -> LowRankState:
    """Return the state of ``A = 0``, the answer where nothing is asked."""
    Y = np.zeros((rank, n))
    nothing = np.empty(0)
    point = FactorPoint(Y, np.zeros((rank, 0)), nothing, nothing, 0.0, Y, 0.0)
    return LowRankState(
        rank=rank, growing=False, max_restarts=0, seed=0, phase=Phase.MET, point=point, best=Y,
        anchor=Y, max_ratio=0.0, damping=FIRST_DAMPING,
    )  # fmt: skip


def _padded(problem: LowRankProgram, factor: Matrix, rank: int, rng: Draw) -> Matrix:
    """Return a given factor as one of ``rank`` rows."""
    Y = np.asarray(factor.T, dtype=problem.F.dtype)
    if problem.signs is not None:
        return Y
    Y = (principal_axes(Y) @ Y)[:rank]
    missing = rank - len(Y)
    # Rows of zeros would stay so: the loss has no slope in them.
    return Y if missing <= 0 else np.concatenate([Y, 0.1 * random_start(problem, missing, rng)])


def advanced(problem: LowRankProgram, state: LowRankState, steps: int) -> LowRankState:
    """Take at most ``steps`` descent steps; fewer when the fit is finished."""
    # What underflows where numbers have the size of b is nothing.
    with np.errstate(under="ignore"):
        for _ in range(steps):
            if state.finished:
                break
            look()
            state = _step(problem, state)
    return state


def tightened(problem: LowRankProgram, state: LowRankState, goal: float) -> LowRankState:
    """Take up again a fit whose ratio, by another bound on the rounding, was not yet met."""
    phase = Phase.HINGE if state.theta > 0.0 else Phase.SQUARES
    with np.errstate(under="ignore"):
        if is_lean(problem, state.rank):
            theta = HINGE_SHARES[0] * goal
            point = lean_start(problem, state.best, theta)
            state = replace(state, goal=goal, phase=phase, max_ratio=np.inf)
            changes = {"theta": theta, "memory": (), "slow_steps": 0, "least": np.inf}
            return noted(problem, state, point=point, **changes)
        return begin(problem, replace(state, goal=goal), state.best, phase)


def factor(state: LowRankState) -> Matrix:
    """Return X (n, k) of the best ``A = X S X*`` so far."""
    X: Matrix = state.best.T
    return X


def farkas_vector(problem: LowRankProgram, state: LowRankState) -> Vector:
    """Return y with, nearly, ``F*(y) >= 0`` and ``y.b < -sum |y_i| delta_i``.

    Meaningful when ``no_rank_fits``: one row whose interval holds negative numbers only, or
    the slope of least squares at its minimum over all PSD matrices, which a certificate checks
    and repairs.
    """
    upper = upper_ends(problem)
    worst = int(np.argmin(upper))
    if upper[worst] < 0.0 and problem.F.raw is problem.F:
        y = np.zeros_like(problem.b)
        y[worst] = 1.0
        return y
    with np.errstate(under="ignore"):
        slope: Vector = problem.weight * evaluate(problem, state.anchor, 0.0).excess
    return slope


def _step(whole: LowRankProgram, state: LowRankState) -> LowRankState:
    """Take one step; on a stall go to the next stage, phase, attempt or rank."""
    if is_lean(whole, state.rank):
        return _turn(whole, state)
    problem = level_of(whole, state)
    point, lifted = state.point, state.phase is Phase.LIFT
    penalty = _penalty(problem, state) if lifted else None
    dense, length = takes_normal_equations(problem.F, len(point.Y)), 1.0
    before = _loss(point, penalty)
    if dense:
        trial, length = _gauss_newton(problem, state, penalty, before)
        memory, passes = state.memory, 2
    else:
        trial, memory, passes = quasi_newton_step(
            problem, point, penalty, state.theta, state.memory
        )
        if lifted:
            trial, memory = _rotated(problem, trial, memory)
    after = _loss(trial, penalty)
    gained = after < before
    slow_gain = SLOW_GAIN_LIFT if lifted else SLOW_GAIN
    if settles(whole, state) and not dense:
        slow_gain = SLOW_GAIN_AT_REST
    # A Gauss-Newton step that was rejected, or cut short, only asks for more damping.
    slow = before - after < slow_gain * before and ((length == 1.0 and gained) or not dense)
    damping = state.damping
    if length == 1.0 and gained:
        damping /= DAMPING_FACTOR
    elif length < MIN_LENGTH_UNDAMPED or not gained:
        damping *= DAMPING_FACTOR
    state = noted(
        whole,
        state,
        iteration=state.iteration + 1,
        stage_steps=state.stage_steps + 1,
        passes=state.passes + passes,
        point=trial if gained else point,
        memory=memory,
        damping=max(damping, MIN_DAMPING),
        slow_steps=state.slow_steps + 1 if slow else 0 if length == 1.0 else state.slow_steps,
    )
    patience, most = MAX_SLOW_STEPS, MAX_PHASE_STEPS
    if dense:
        patience = MAX_SLOW_STEPS_LIFT if lifted else MAX_SLOW_STEPS_DENSE
        if state.starts > 0:
            most = MAX_LIFT_STEPS if lifted else MAX_STEPS_AFTER_RESTART
    if state.phase is Phase.SQUARES and state.level + 1 < len(whole.levels):
        # On the way to the weights that count: where it creeps, the next ones may not.
        most = min(most, MAX_PHASE_STEPS // len(whole.levels))
    stalled = (
        state.slow_steps >= patience
        or state.damping > MAX_DAMPING
        or state.stage_steps >= most
        or not before > 0.0
    )
    return next_phase(whole, state) if stalled and not state.finished else state


def _turn(problem: LowRankProgram, state: LowRankState) -> LowRankState:
    """Take the rows in turn; where that gains little any more, begin again elsewhere, or end."""
    trial = lean_turn(problem, state.point, state.theta, state.goal)
    slow = trial.value > (1.0 - SLOW_TURN_GAIN) * state.least
    state = noted(
        problem,
        state,
        point=trial,
        iteration=state.iteration + 1,
        stage_steps=state.stage_steps + 1,
        slow_steps=state.slow_steps + 1 if slow else 0,
        passes=state.passes + 1,
        least=min(state.least, trial.value),
    )
    stalled = state.slow_steps >= MAX_SLOW_TURNS or state.stage_steps >= MAX_PHASE_STEPS
    if state.finished or not stalled:
        return state
    if state.restarts >= state.max_restarts:
        return replace(state, phase=Phase.EXHAUSTED)
    starts = state.starts + 1
    Y = random_start(problem, state.rank, (state.seed, starts))
    return noted(
        problem,
        replace(state, restarts=state.restarts + 1, starts=starts),
        point=lean_start(problem, Y, state.theta),
        stage_steps=0,
        slow_steps=0,
        least=np.inf,
    )


def _gauss_newton(
    problem: LowRankProgram, state: LowRankState, penalty: Vector | None, before: float
) -> tuple[FactorPoint, float]:
    """Return the point after a Gauss-Newton step, and how much of the step was taken."""
    point, damping, theta = state.point, state.damping, state.theta
    floor = MIN_SCALE_SHARE if penalty is None else 1.0  # a lift damps all rows alike
    slope = point.gradient if penalty is None else point.gradient + penalty[:, None] * point.Y
    D = normal_equations(problem, point, penalty, damping, floor)(slope)
    trial = evaluate(problem, turned(problem, point.Y + D), theta)
    if _loss(trial, penalty) < before:
        return trial, 1.0
    # Around a bend the whole step may lead up the other side, the direction being as good.
    length = line_minimum(problem, point, D, penalty, theta)
    if length == 0.0:
        return trial, 0.0
    return evaluate(problem, turned(problem, point.Y + length * D), theta), length


def _loss(point: FactorPoint, penalty: Vector | None) -> float:
    if penalty is None:
        return point.value
    return point.value + 0.5 * float(np.dot(penalty, np.sum(np.abs(point.Y) ** 2, axis=1)))


def _rotated(
    problem: LowRankProgram, point: FactorPoint, memory: Memory
) -> tuple[FactorPoint, Memory]:
    """Turn a point and the memory to principal axes, which the penalty of a lift needs."""
    axes = axes_of(problem, point.Y)
    turned = replace(point, Y=axes @ point.Y, P=axes @ point.P, gradient=axes @ point.gradient)
    return turned, tuple((axes @ move, axes @ change, inner) for move, change, inner in memory)


def _penalty(problem: LowRankProgram, state: LowRankState) -> Vector:
    """Return the penalty of each row of a lifted factor: zero except for the extra ones."""
    penalty = np.zeros(len(state.point.Y))
    trace = problem.F.n * float(np.mean(np.abs(problem.b))) or 1.0
    # In this unit the penalty of a whole A weighs as much as the misfit of zero.
    unit = float(np.dot(problem.weight, problem.b**2)) / trace
    sparse = problem.shared.sparse is not None
    least = LIFT_PENALTY_SPARSE if sparse else LIFT_PENALTY
    growth = LIFT_GROWTH_SPARSE if sparse else LIFT_GROWTH
    penalty[state.rank :] = least * growth**state.stage * unit
    return penalty


# --- rows in turn --------------------------------------------------------------------------------

# How far a row is moved, relative to what would just suffice: seen 30 to 45 turns of all rows of a
# network of 10^5 to 10^6 nodes, and 240 with 1.
OVERSHOOT = 1.9


def is_lean(problem: LowRankProgram, rank: int) -> bool:
    """Whether images of a factor of this rank are not to be held."""
    F = problem.F
    plain = problem.bounds is None and problem.signs is None and F.rank_one
    wanted = problem.target and not problem.chooses
    return plain and wanted and F.in_turn is not None and FLOAT64_BYTES * F.m * rank > LEAN_BYTES


def lean_start(problem: LowRankProgram, Y: Matrix, theta: float) -> FactorPoint:
    """Return what there is to know of a factor before the first step."""
    return _in_turn(problem, np.array(Y.T, order="C"), theta)


def lean_turn(
    problem: LowRankProgram, point: FactorPoint, theta: float, goal: float
) -> FactorPoint:
    """Bring one row after the other within its tolerance.

    Rows that have few entries, of few nodes in common, hardly disturb each other: no step of all
    together, whose length the worst of them sets, comes as far. Ratio and loss are those that rows
    had in their turn; what fits by them is looked at again.
    """
    X = np.array(point.Y.T, order="C")
    moved = _in_turn(problem, X, theta, OVERSHOOT)
    return _in_turn(problem, X, theta) if moved.ratio <= goal else moved


def _in_turn(problem: LowRankProgram, X: Matrix, theta: float, beyond: float = 0.0) -> FactorPoint:
    """Return the point of X, which is moved unless `beyond` is 0."""
    unit = rounding_unit(problem, X.shape[1])
    move = problem.F.in_turn
    assert move is not None
    value, ratio = move(X, problem.b, problem.delta, theta, beyond, unit)
    none, nothing = np.empty((X.shape[1], 0)), np.empty(0)
    return FactorPoint(X.T, none, nothing, nothing, value, none, ratio)
