"""A fit of low rank, positive semidefinite or of given signs, by descent on its factor."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import Array, compact, is_numpy, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.measurements.arrays import Dense, Sparse
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import COLD, Problem, Stepped, Warm, nothing, own, stride_of
from quadsense.methods.low_rank import descent
from quadsense.methods.low_rank.gauss_newton import balanced
from quadsense.methods.low_rank.phases import LowRankState, Phase, why_not
from quadsense.methods.low_rank.program import (
    FactorBounds,
    LowRankProgram,
    Mask,
    Vector,
    prepare,
    takes_normal_equations,
)
from quadsense.methods.low_rank.starts import in_range, leading_factor
from quadsense.methods.low_rank.traits import LIFT, READINGS_PER_STEP, LowRankTraits
from quadsense.vocabulary import Claim, because

# Tolerances are kept within this factor of the largest reading, so that squares of ratios do not
# overflow: wider ones are met anyway, and narrower ones no float64 can certify.
MAX_TOLERANCE_RATIO = 2.0**500
# The unit of a row with one end whose own is larger than that end, as a share of the end; no unit
# is below such a share of the typical one.
ONE_SIDED_UNIT, MIN_UNIT_SHARE = 0.01, 1e-6
# An equality counts as a tolerance this many times narrower than the narrowest, but not narrower
# than this share of the largest reading, beyond which normal equations lose it.
EQUALITY_SHARE, MIN_EQUALITY_UNIT = 1e-2, 1e-7
# Weight of what must hold, relative to the median one of least squares.
HARD_WEIGHT = 1e6


@dataclass(frozen=True)
class FactorQuestion:
    """What is asked of the rows in `index` (all where None), readings scaled to at most 1.

    Attributes
    ----------
    index : (k,) int or None
    b, delta : (k,) float64
        Readings and tolerances, over ``4**exponent``.
    exponent : int
    bounds : FactorBounds or None
        Where not all intervals are ``b - delta`` to ``b + delta``.
    wanted : (k,) float64 or None
        Weights of least squares by which a fit is chosen.
    """

    index: npt.NDArray[np.intp] | None
    b: Vector
    delta: Vector
    exponent: int
    bounds: FactorBounds | None = None
    wanted: Vector | None = None

    def on(self, rows: Sensing) -> Sensing:
        """Those of the rows that are asked for something, as methods see them."""
        F = rows.at_work().plain()
        return F if self.index is None else F.only(self.index)


def asked(problem: Problem) -> FactorQuestion:
    """Return what a problem asks of a factor."""
    b, delta = to_numpy(problem.b), to_numpy(problem.delta)
    question = problem.question
    if question is not None and question.rows != "squares":
        question = None
    if question is None and (not problem.target or _is_plain(problem)):
        return _scaled(None, b, delta)
    return _general(problem, question, b, delta)


def _is_plain(problem: Problem) -> bool:
    """Whether every interval is a reading and one tolerance to both sides of it."""
    if problem.sides is not None:
        return False
    ends = problem.ends
    if ends.allowance is not None:
        return False
    return ends.even or bool(np.all(ends.lo < ends.hi))


def _general(
    problem: Problem, question: Question | None, b: Vector, delta: Vector
) -> FactorQuestion:
    """Return the same of intervals of all kinds, and of wanted weights."""
    ends = problem.ends
    lo, hi = (ends.lo, ends.hi) if question is None else (question.lo, question.hi)
    told = np.isfinite(lo) & np.isfinite(hi)
    hard = np.zeros(b.size, bool)
    wanted = None
    if question is not None:
        hard = np.asarray(question.hard)
        wanted = question.weights
        told = (wanted > 0.0) & ~hard
        b = np.where(told, question.reading, b)
    equal = lo == hi
    two = np.isfinite(lo) & np.isfinite(hi)
    one = np.isfinite(lo) ^ np.isfinite(hi)
    asks = (told | two | one) & (to_numpy(problem.rows.nonzero) > 0)
    if problem.target:
        asks &= np.any(ends.sides, axis=0)
    index = None if asks.all() else np.flatnonzero(asks)
    b = np.where(told & ~equal, b, np.where(np.isfinite(lo), lo, np.where(np.isfinite(hi), hi, b)))
    if question is None:
        b = np.where(two & ~equal, to_numpy(problem.b), b)
    half = np.where(two & ~equal, 0.5 * (np.where(two, hi, 0.0) - np.where(two, lo, 0.0)), delta)
    unit = _units(np.where(asks, b, 0.0), half, one, equal)
    if wanted is not None:
        wanted = _with_hard(wanted, told)
    plain = bool(
        np.all(told[asks])
        and not np.any((equal | one)[asks])
        and (not problem.target or np.all((b - lo == hi - b)[asks]))
    )
    bounds = None
    if not plain:
        silent = np.all(told[asks])
        bounds = FactorBounds(
            b - lo, hi - b, unit, None if silent else told, equal if equal.any() else None
        )
    return _scaled(index, b, unit, bounds, wanted)


def _units(b: Vector, delta: Vector, one: Mask, equal: Mask) -> Vector:
    """Return what misses are counted in: half-widths, or a similar unit for rows without one."""
    sizes = np.maximum(np.abs(b), float(np.median(np.abs(b))) or 1.0)
    unit = np.where(one & ~((delta > 0.0) & (delta <= sizes)), ONE_SIDED_UNIT * sizes, delta)
    known = unit[~equal & (unit > 0.0)]
    typical = (
        float(np.median(known))
        if known.size
        else ONE_SIDED_UNIT * (float(np.max(np.abs(b))) or 1.0)
    )
    unit = np.where(one, np.maximum(unit, MIN_UNIT_SHARE * typical), unit)
    least = float(np.min(known)) if known.size else typical
    floor = MIN_EQUALITY_UNIT * float(np.max(np.abs(b)))
    return np.where(equal, max(min(EQUALITY_SHARE * least, typical), min(floor, typical)), unit)


def _with_hard(weights: Vector, told: Mask) -> Vector:
    """Return weights of least squares with those of rows that must hold among them.

    Only their ratios count; they are scaled to at most 1.
    """
    with np.errstate(under="ignore"):
        weights = np.ldexp(weights, -np.frexp(np.max(weights, initial=0.0))[1])
    known = weights[told & (weights > 0.0)]
    middle = float(np.median(known)) if known.size else 1.0
    return np.where(told, weights, HARD_WEIGHT * middle)


def _scaled(
    index: npt.NDArray[np.intp] | None,
    b: Vector,
    delta: Vector,
    bounds: FactorBounds | None = None,
    wanted: Vector | None = None,
) -> FactorQuestion:
    """Scale readings by a power of four, exactly, to at most 1."""
    if index is not None:
        b, delta = b[index], delta[index]
        wanted = None if wanted is None else wanted[index]
    largest = float(np.max(np.abs(b), initial=0.0))
    exponent = math.ceil(math.frexp(largest)[1] / 2)
    with np.errstate(over="ignore", under="ignore"):
        b = np.ldexp(b, -2 * exponent)
        delta = compact(
            np.clip(np.ldexp(delta, -2 * exponent), 1.0 / MAX_TOLERANCE_RATIO, MAX_TOLERANCE_RATIO)
        )
        if bounds is not None:
            pick = slice(None) if index is None else index
            below, above = (
                np.ldexp(values[pick], -2 * exponent) for values in (bounds.below, bounds.above)
            )
            told = None if bounds.told is None else bounds.told[pick]
            equal = None if bounds.equal is None else bounds.equal[pick]
            bounds = FactorBounds(below, above, delta, told, equal)
    return FactorQuestion(index, b, delta, exponent, bounds, wanted)


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
    """``A = X S X*`` with X of shape (n, r): spectral start, descent, restarts (see `descent`).

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
            return descent.at_zero(problem.rows.n, problem.rank or 1)
        factor = None
        with np.errstate(over="ignore", under="ignore"):
            if warm.factor is not None and problem.signs is None:
                factor = in_range(to_numpy(warm.factor), exponent)
            elif warm.fit is not None:
                factor = leading_factor(inner, warm.fit, exponent, problem.rank)
        return descent.start(
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
        return state if program.inner is None else descent.advance(program.inner, state, steps)

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
            y = descent.farkas_vector(program.inner, state)
            dual = y
            if program.asked.index is not None:
                dual = np.zeros(program.problem.m)
                dual[program.asked.index] = y
        return Claim("stalled", why_not(state), dual=dual)

    def correct(
        self, program: PreparedLowRank, state: LowRankState, z: Array, goal: float
    ) -> LowRankState:
        """The same fit with a tighter goal: the loop bounds its rounding in another way."""
        return state if program.inner is None else descent.tightened(program.inner, state, goal)

    def matrix(self, program: PreparedLowRank, state: LowRankState) -> SensedMatrix:
        """``X S X*``."""
        X = descent.factor(state)
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
    if not is_numpy(U) or U.dtype.itemsize < 8:
        return F
    most = MAX_THIN_SHARE * U.size
    some = U[: int(2 * MAX_THIN_SHARE * len(U)) + 1]  # enough to tell of rows that are full
    if np.count_nonzero(some) > most or np.count_nonzero(U) > most:
        return F
    factors = 1.0 if F.factors is None else F.factors
    return Sensing(Sparse(sp.csr_array(U)), F.conjugate, factors)
