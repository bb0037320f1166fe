"""The nearest matrix within intervals, by an active set of the rows: `cg` for ``prefer="nearest"``.

The minimizer of ``||A - P||_F^2`` within ``lo <= F(A) <= hi`` is ``A = P + F*(x)``, and x minimizes

    x . K x + 2 x . F(P) - 2 sum_i (x_i lo_i if x_i > 0, x_i hi_i if x_i < 0),   K = F F*,

a lasso with Gram matrix K. Which rows are held at an end, and at which, is found by the primal-dual
active set method [Hintermueller et al. 2002], all rows exchanged at once; where that goes round, x
moves along Newton's step as far as the objective falls, through changes of sign [Lee et al. 2007].
Held rows are brought to their ends by conjugate gradients on K in single precision, and readings
are recomputed from the rows in float64. The gap is known at every point: ``2 sum_i |x_i|`` times
the distance of reading i from its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import changed
from quadsense.device import numbers
from quadsense.methods.base import COLD, LENIENT, Problem, Stepped, Warm
from quadsense.methods.cg.damped import DampedProgram, matrix_of
from quadsense.methods.cg.traits import ConjugateGradientTraits
from quadsense.system.watch import look
from quadsense.vocabulary import Claim, because

MAX_GAP = 3e-8
"""Relative gap at which to stop."""

INWARD_GAP_SHARE, MAX_INWARDS = 0.3, 1e-3
"""How far ends are moved inwards, so that readings may be off by as much: what costs this share of
that gap, and at most this many half-widths."""

MAX_STEP_RESIDUAL, MAX_PRODUCTS = 1e-3, 400
"""Residual of a step, relative to that before it, and products at most."""

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
    fewest: int = 2**62
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
        self.lo, self.hi = self.F.beside(question.lo), self.F.beside(question.hi)
        two = np.isfinite(question.lo) & np.isfinite(question.hi)
        with np.errstate(invalid="ignore"):
            half = np.where(two, 0.5 * (question.hi - question.lo), problem.ends.unit)
        self.half = self.F.beside(half)

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
                x = program.F.beside(np.asarray(warm.dual) / (-2.0 * program.pull))
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
                state = _step(program, state)
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


def _step(program: NearestProgram, state: ActiveSetState) -> ActiveSetState:
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
    after = program.F.beside(kept) * (x + t * d)
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
    for _ in range(MAX_PRODUCTS):
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
