"""What a factored fit reads and never changes: rows, intervals, weights, and choices by cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import compact, to_numpy
from quadsense.core.intervals import BEYOND
from quadsense.core.question import Question
from quadsense.core.records import cached_property
from quadsense.measurements.arrays import SPARSE_SHARE
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.views import beneath
from quadsense.methods.base import MIN_AMPLE_ROWS, Problem
from quadsense.methods.low_rank import LIFT, READINGS_PER_STEP
from quadsense.system.machine import Scratch

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

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
class FactorBounds:
    """Intervals around readings b: residuals z are values minus b.

    Attributes
    ----------
    below, above : (m,) float64
        ``b - lo`` and ``hi - b``; infinite where there is no such end.
    unit : (m,) float64
        Half the width of an interval of two ends; what a crossing is counted in elsewhere.
    told : (m,) bool or None
        Rows with a reading, of which least squares counts the whole residual; of the others only
        what is beyond their ends. None: all.
    equal : (m,) bool or None
        Rows whose two ends are one: they are met to rounding. None: none.
    """

    below: Vector
    above: Vector
    unit: Vector
    told: Mask | None = None
    equal: Mask | None = None

    def each(self, place: Callable[[Any], Any]) -> FactorBounds:
        """The same with every array as that makes it."""
        told = None if self.told is None else place(self.told)
        equal = None if self.equal is None else place(self.equal)
        return FactorBounds(place(self.below), place(self.above), place(self.unit), told, equal)

    @cached_property
    def margin(self) -> Vector:
        """Room within a row to aim at: its unit, but none in an equality."""
        return self.unit if self.equal is None else np.where(self.equal, 0.0, self.unit)

    def excess(self, z: Vector, theta: float, part: slice = slice(None)) -> Vector:
        """By how much residuals are more than they may be: see `LowRankProgram.excess`."""
        if theta == 0.0 and self.told is None:
            return z
        # A row aims as far inside its interval as the others do.
        inside = 0.0 if theta == 0.0 else (1.0 - theta) * self.margin[part]
        excess: Vector = z - np.clip(z, inside - self.below[part], self.above[part] - inside)
        if theta == 0.0 and self.told is not None:
            excess = np.where(self.told[part], z, excess)
        return excess

    def ratios(self, z: Vector, bound: Vector, part: slice = slice(None)) -> Vector:
        """How far residuals lean out of their intervals, rounding included: 1 is an end.

        0 within the end of a row that has but one; an equality is at 1 where all of its residual
        may be rounding.
        """
        below, above = self.below[part], self.above[part]
        two = np.isfinite(below) & np.isfinite(above)
        over = np.maximum(z - above, -below - z) + bound
        ratios = 1.0 + over / self.unit[part]
        ratios = np.where(two, ratios, np.where(over > 0.0, np.maximum(ratios, BEYOND), 0.0))
        if self.equal is not None:
            ratios = np.where(self.equal[part], np.abs(z) / bound, ratios)
        return ratios

    def support(self, y: Vector, b: Vector) -> float:
        """The largest ``y.v`` over values v in the intervals."""
        rows = np.flatnonzero(y)
        reach = np.where(y[rows] > 0.0, self.above[rows], -self.below[rows])
        return float(np.dot(y[rows], b[rows] + reach))


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
    if question is not None and not question.term.squares:
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


# Weights this far above the middle one are walls to a descent; each level raises the cap by so
# much, or by more where that would take more levels than this.
MAX_WEIGHT_SPREAD, LEVEL_GROWTH, MAX_LEVELS = 1e3, 1e4, 12


def weights_by_level(weights: Vector) -> list[Vector]:
    """Weights of least squares whose spread is limited, less and less; the last are those given."""
    most = float(weights.max())
    if most <= float(weights.min()) * MAX_WEIGHT_SPREAD or not most > 0.0:
        return [weights]
    middle = float(np.median(weights[weights > 0.0]))
    if most <= middle * MAX_WEIGHT_SPREAD:
        return [weights]
    levels, cap = [], middle
    share = 1.0 / MAX_LEVELS
    growth = max(LEVEL_GROWTH, most**share / middle**share)
    while cap * MAX_WEIGHT_SPREAD < most:
        levels.append(np.minimum(weights, cap))
        cap *= growth
    return [*levels, weights]


# Normal equations are formed up to this many unknowns and entries of J, and up to this many flops
# where rows are ample and a dozen quasi-Newton steps serve as well.
MAX_DENSE_UNKNOWNS, MAX_DENSE_ENTRIES, MAX_DENSE_FLOPS = 1000, 500_000, 5e7
# Those of sparse rows up to this many unknowns, and as many flops.
MAX_SPARSE_UNKNOWNS = 4000
# Restarts unless the caller says how many: few where rows are ample and a step takes more flops
# than this, or the rank is so large that a descent hardly ends anywhere but at a fit; otherwise
# `RESTART_FLOPS` over the flops of a step, between few and many.
MIN_RESTARTS, MAX_RESTARTS = 20, 200
MAX_CHEAP_FLOPS, RESTART_FLOPS = 1e6, 1e9


def unknowns(F: Sensing, rank: int) -> int:
    """Return the number of real unknowns of a factor."""
    return F.n * rank * (2 if F.is_complex else 1)


def rows_are_ample(F: Sensing, rank: int) -> bool:
    """Whether plain descent mostly finds a fit of this rank."""
    return F.m >= MIN_AMPLE_ROWS * unknowns(F, rank)


def takes_normal_equations(F: Sensing, rank: int) -> bool:
    """Whether Gauss-Newton steps are the quicker way, or the only sure one."""
    m, size = max(F.m, F.raw.m), unknowns(F, rank)
    if F.raw.is_sparse and size <= MAX_SPARSE_UNKNOWNS:
        # Sparse rows are rarely isotropic, which quasi-Newton steps rely on.
        return m * _row_length(F) ** 2 * rank**2 <= MAX_DENSE_FLOPS
    quick = m * size * size <= MAX_DENSE_FLOPS or not rows_are_ample(F, rank)
    return size <= MAX_DENSE_UNKNOWNS and m * size <= MAX_DENSE_ENTRIES and quick


def _row_length(F: Sensing) -> float:
    """Return the nonzeros of a sparse row, on average."""
    kind: Any = beneath(F.raw.kind)
    return float(kind.U.nnz) / max(F.raw.m, 1)


def default_restarts(F: Sensing, rank: int, lifted: int) -> int:
    """Return how many restarts are worth their while; ``lifted`` is the rank of a lift."""
    m, size = float(F.m), float(unknowns(F, lifted))
    if F.raw.is_sparse:
        return MAX_RESTARTS if size <= MAX_DENSE_UNKNOWNS else MIN_RESTARTS
    if rows_are_ample(F, rank) and m * size**2 > MAX_CHEAP_FLOPS:
        return MIN_RESTARTS
    of_rank = rank**2 if F.is_complex else rank * (rank + 1) // 2
    if rank >= F.n or of_rank > m:
        return MIN_RESTARTS
    flops = m * size * (size if takes_normal_equations(F, lifted) else READINGS_PER_STEP)
    return int(min(MAX_RESTARTS, max(MIN_RESTARTS, RESTART_FLOPS / flops)))


# Roundings of |p|^2 - b in single precision: of p, which counts twice, of its square and of b.
SINGLE_ROUNDINGS = 2.0 * float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class FactorRows:
    """All rows at once, for normal equations: made when needed, shared by all levels.

    So is memory for what is as long as the rows.
    """

    F: Sensing
    scratch: Scratch = field(default_factory=Scratch, repr=False)

    @cached_property
    def dense(self) -> Matrix:
        """All rows, dense: for small problems."""
        return self.F.raw.rows()

    @cached_property
    def sparse(self) -> sp.csr_array | None:
        """All rows, sparse, where they are held so and are so indeed."""
        raw = self.F.raw
        if not raw.is_sparse:
            return None
        held: Any = raw.kind
        if beneath(held).U.nnz > SPARSE_SHARE * raw.m * raw.n:
            return None
        U = held.sparse_rows()
        U = sp.csr_array(U if raw.factors is None else sp.diags_array(raw.factors) @ U)
        return sp.csr_array(U.conj()) if raw.conjugate else U


class FactorReadings(NamedTuple):
    """What residuals are made of and weighed by, (m,) each, in single or double precision."""

    b: npt.NDArray[Any]
    weight: npt.NDArray[Any]
    inverse: npt.NDArray[Any]


@dataclass(frozen=True)
class LowRankProgram:
    """What a factored fit reads and never changes.

    Attributes
    ----------
    F : Sensing
        Rows of unit norm.
    b, delta : (m,) float64
        Readings and tolerances (> 0).
    weight : (m,) float64
        The weight of a row in the loss, at most 1: ``(min(delta) / delta)**2``, except for levels.
    low : Sensing or None
        The rows in single precision, for the inner products of the iterative step.
    shared : FactorRows
    bounds : FactorBounds or None
        The intervals, where they are not all ``b - delta`` to ``b + delta``.
    signs : (int, int) or None
        How many plus and minus signs S of ``A = X S X*`` has; None: ``A = X X*``.
    wanted : (m,) float64 or None
        Weights of least squares by which the fit is chosen; None: any fit will do.
    target : bool
        Whether there are tolerances to meet; without, least squares is all.
    """

    F: Sensing
    b: Vector
    delta: Vector
    weight: Vector
    low: Sensing | None
    shared: FactorRows
    bounds: FactorBounds | None = None
    signs: tuple[int, int] | None = None
    wanted: Vector | None = field(default=None, repr=False)
    target: bool = True

    @cached_property
    def level(self) -> float:
        """The mean reading."""
        return float(np.mean(self.b))

    @cached_property
    def inverse(self) -> Vector:
        """``1 / delta``."""
        with np.errstate(under="ignore"):
            return compact(1.0 / self.delta)

    @cached_property
    def total(self) -> float:
        """``sum weight``."""
        return float(self.weight.sum())

    @cached_property
    def sharpest(self) -> float:
        """``max 1/delta``."""
        return float(self.inverse.max())

    @cached_property
    def steepest(self) -> float:
        """``max sqrt(|b|)/delta``."""
        with np.errstate(under="ignore"):
            return float(np.max(np.sqrt(np.abs(self.b)) * self.inverse))

    @cached_property
    def root(self) -> Vector:
        """``2 sqrt(weight)``."""
        with np.errstate(under="ignore"):
            return 2.0 * np.sqrt(self.weight)

    @cached_property
    def blur(self) -> float:
        """What single precision does to a residual at most, in units of its tolerance."""
        return SINGLE_ROUNDINGS * float(np.max(np.abs(self.b) * self.inverse))

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """An array of any contents, where the readings are; memory that was given back, if any."""
        if isinstance(self.b, np.ndarray):
            return self.shared.scratch.empty(shape, dtype)
        return np.empty_like(self.b, dtype=dtype, shape=shape)

    def readings(self, dtype: npt.DTypeLike) -> FactorReadings:
        """Readings, weights and inverse tolerances in that precision."""
        return (
            self._single
            if dtype == np.float32
            else FactorReadings(self.b, self.weight, self.inverse)
        )

    @cached_property
    def _single(self) -> FactorReadings:
        with np.errstate(under="ignore"):
            return FactorReadings(
                *(each.astype(np.float32) for each in (self.b, self.weight, self.inverse))
            )

    @property
    def rows(self) -> Matrix:
        """All rows, dense: for normal equations, which are for small problems."""
        return self.shared.dense

    @cached_property
    def levels(self) -> tuple[LowRankProgram, ...]:
        """The same problem with weights of least squares of limited spread, less and less so.

        Rows of far narrower tolerances than most are walls to a descent: it begins where they
        weigh as much as the others, and goes on from there.
        """
        weights = self.weight if self.wanted is None else self.wanted
        found = weights_by_level(weights)
        return tuple(self if each is self.weight else self.weighed(each) for each in found)

    @cached_property
    def uneven(self) -> bool:
        """Whether unknowns differ by much in what the loss makes of them."""
        if self.shared.sparse is not None:
            return True
        # At most 1 each; those of a level are of limited spread, the problem's own are not.
        return (
            MAX_WEIGHT_SPREAD * float(np.min(self.weight)) < 1.0
            and len(weights_by_level(self.delta**-2)) > 1
        )

    @property
    def chooses(self) -> bool:
        """Whether least squares is to be settled rather than to be left at the first fit."""
        return self.wanted is not None or not self.target

    def weighed(self, weight: Vector) -> LowRankProgram:
        """The same with these weights in the loss."""
        return replace(self, weight=weight / float(weight.max()))

    def signs_of(self, count: int) -> Vector | None:
        """Return the signs of the rows of a factor of that many rows; None: all plus.

        Those of the answer come first, plus before minus; then those that a lift adds, in turn.
        """
        if self.signs is None:
            return None
        plus, minus = self.signs
        signs = np.ones(count)
        signs[plus : plus + minus] = -1.0
        extra = np.arange(count - plus - minus)
        signs[plus + minus :] = np.where((plus == 0) | (extra % 2 == 1) & (minus > 0), -1.0, 1.0)
        return signs

    def excess(self, z: Vector, theta: float, part: slice = slice(None)) -> Vector:
        """By how much residuals are more than they may be, with its sign.

        Parameters
        ----------
        z : (m,) float64, or a part of it
        theta : float
            Share of a tolerance within which a residual costs nothing. 0 is least squares: all of
            a residual counts, except for rows that have no reading.
        part : slice
            Which rows these are.
        """
        if self.bounds is not None:
            return self.bounds.excess(z, theta, part)
        if theta == 0.0:
            return z
        allowed = theta * self.delta[part]
        excess: Vector = z - np.clip(z, -allowed, allowed)
        return excess

    def is_whole(self, theta: float) -> bool:
        """Whether all of every residual counts."""
        return theta == 0.0 and (self.bounds is None or self.bounds.told is None)

    def ratios(self, z: Vector, bound: Vector, part: slice = slice(None)) -> Vector:
        """How far residuals lean out of their intervals, rounding included: 1 is an end."""
        if self.bounds is not None:
            return self.bounds.ratios(z, bound, part)
        bound = bound + np.abs(z)
        bound /= self.delta[part]
        return bound


def prepare(
    U: Matrix | Sensing,
    b: Vector,
    delta: Vector,
    rank: int | None,
    *,
    low_precision: bool = True,
    bounds: FactorBounds | None = None,
    signs: tuple[int, int] | None = None,
    wanted: Vector | None = None,
    target: bool = True,
) -> LowRankProgram:
    """Collect what the fit reads.

    Parameters
    ----------
    U : Sensing, or (m, n) array
        Rows of unit norm.
    b, delta : (m,) float64
        Readings and tolerances (> 0), of moderate size: their squares are formed.
    rank : int or None
        Asked rank; None when it is to grow.
    low_precision : bool
        Whether a single-precision copy of U, half its size, may be made for the products
        of quasi-Newton steps; claims and refinement use double precision either way.
    bounds, signs, wanted, target
        See `LowRankProgram`.
    """
    F = Sensing.of(U)
    b, delta = F.placed(b), F.placed(delta)
    wanted = None if wanted is None else F.placed(wanted)
    bounds = None if bounds is None else bounds.each(F.placed)
    with np.errstate(under="ignore"):
        weight = compact((float(delta.min()) / delta) ** 2)
    low: Sensing | None = None
    single = low_precision and F.rank_one  # sums of rows may cancel
    if single and _takes_single_steps(F, rank or 1) and F.single is not F:
        low = F.single
    return LowRankProgram(F, b, delta, weight, low, FactorRows(F), bounds, signs, wanted, target)


def _takes_single_steps(F: Sensing, rank: int) -> bool:
    """Whether quasi-Newton steps, or Gauss-Newton steps on ample rows, are to come."""
    return rows_are_ample(F, rank) or not takes_normal_equations(F, rank + LIFT)
