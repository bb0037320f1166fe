"""What a factored fit reads and never changes: rows, intervals, weights, and choices by cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import compact
from quadsense.core.records import cached_property
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.views import beneath
from quadsense.methods.low_rank.question import FactorBounds, Vector
from quadsense.methods.low_rank.traits import LIFT, READINGS_PER_STEP
from quadsense.system.memory import Scratch

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
# With this many rows per unknown, plain descent mostly finds the fit of the right rank if there
# is one, so a growing rank wastes no restarts below it, and a given one not many.
MIN_AMPLE_ROWS = 4
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


Matrix = npt.NDArray[Any]

# Share of nonzeros up to which rows that are held sparse stay so in normal equations.
MAX_SPARSE_SHARE = 0.1
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
        if beneath(held).U.nnz > MAX_SPARSE_SHARE * raw.m * raw.n:
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
    b, delta = F.beside(b), F.beside(delta)
    wanted = None if wanted is None else F.beside(wanted)
    bounds = None if bounds is None else bounds.each(F.beside)
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
