"""What a factored fit reads and never changes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from quadsense.arrays import compact
from quadsense.core.records import cached_property
from quadsense.core.scratch import Scratch
from quadsense.measurements.framed import beneath
from quadsense.measurements.sensing import Sensing
from quadsense.methods.low_rank.choice import LIFT, rows_are_ample, takes_normal_equations
from quadsense.methods.low_rank.ends import Bounds, weights_by_level

Matrix = npt.NDArray[Any]
Vector = npt.NDArray[np.float64]

# Share of nonzeros up to which rows that are held sparse stay so in normal equations.
_SPARSE_SHARE = 0.1
# Large readings are those beyond this share of the mean one, where they are to weigh less.
_LARGE_READING = 0.3
# Roundings of |p|^2 - b in single precision: of p, which counts twice, of its square and of b.
_SINGLE_ROUNDINGS = 4.0 * float(np.finfo(np.float32).eps) / 2.0
# Entries are seen alike where one is seen at most this many times as much as another; those that
# are seen less than this share of the mean count as if they were not.
_ALIKE, _DIM = 4.0, 1e-4
# Spread of weights up to which none of them is a wall.
_UNEVEN = 1e3


@dataclass(frozen=True)
class Rows:
    """All rows at once, for normal equations: made when needed, shared by all levels.

    So is memory for what is as long as the rows.
    """

    F: Sensing
    low: Sensing | None
    scratch: Scratch = field(default_factory=Scratch, repr=False)

    @cached_property
    def dense(self) -> Matrix:
        """All rows, dense: for small problems."""
        return self.F.raw.rows()

    @cached_property
    def single(self) -> Matrix:
        """The same in single precision."""
        return self.dense if self.low is None else self.low.rows()

    @cached_property
    def sparse(self) -> sp.csr_array | None:
        """All rows, sparse, where they are held so and are so indeed."""
        raw = self.F.raw
        if not raw.is_sparse:
            return None
        held: Any = raw.kind
        if beneath(held).U.nnz > _SPARSE_SHARE * raw.m * raw.n:
            return None
        U = held.sparse_rows()
        U = sp.csr_array(U if raw.factors is None else sp.diags_array(raw.factors) @ U)
        return sp.csr_array(U.conj()) if raw.conjugate else U


class Readings(NamedTuple):
    """What residuals are made of and weighed by, (m,) each, in single or double precision."""

    b: npt.NDArray[Any]
    weight: npt.NDArray[Any]
    inverse: npt.NDArray[Any]


@dataclass(frozen=True)
class Program:
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
    shared : Rows
    bounds : Bounds or None
        The intervals, where they are not all ``b - delta`` to ``b + delta``.
    signs : (int, int) or None
        How many plus and minus signs S of ``A = X S X*`` has; None: ``A = X X*``.
    wanted : (m,) float64 or None
        Weights of least squares by which the fit is chosen; None: any fit will do.
    target : bool
        Whether there are tolerances to meet; without, least squares is all.
    evens_out : bool
        Whether large readings are to weigh less at first: see `levels`.
    """

    F: Sensing
    b: Vector
    delta: Vector
    weight: Vector
    low: Sensing | None
    shared: Rows
    bounds: Bounds | None = None
    signs: tuple[int, int] | None = None
    wanted: Vector | None = field(default=None, repr=False)
    target: bool = True
    evens_out: bool = False

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
        return _SINGLE_ROUNDINGS * float(np.max(np.abs(self.b) * self.inverse))

    @cached_property
    def sight(self) -> Vector | None:
        """How much the rows see of each entry, (n,), 1 in the mean square; None where alike.

        Only where products cost by the column, as transforms do: it costs less than a step.
        """
        raw = self.F.raw
        if not raw.kind.by_column:
            return None
        seen = raw.squared_columns(np.ones(raw.m))
        seen /= float(seen.mean())
        if float(seen.max()) <= _ALIKE * float(seen.min()):
            return None
        return np.sqrt(np.maximum(seen, _DIM))

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """An array of any contents, where the readings are; memory that was given back, if any."""
        if isinstance(self.b, np.ndarray):
            return self.shared.scratch.empty(shape, dtype)
        return np.empty_like(self.b, dtype=dtype, shape=shape)

    def readings(self, dtype: npt.DTypeLike) -> Readings:
        """Readings, weights and inverse tolerances in that precision."""
        return self._single if dtype == np.float32 else Readings(self.b, self.weight, self.inverse)

    @cached_property
    def _single(self) -> Readings:
        with np.errstate(under="ignore"):
            return Readings(
                *(each.astype(np.float32) for each in (self.b, self.weight, self.inverse))
            )

    @property
    def rows(self) -> Matrix:
        """All rows, dense: for normal equations, which are for small problems."""
        return self.shared.dense

    @property
    def low_rows(self) -> Matrix:
        """The same in single precision."""
        return self.shared.single

    @cached_property
    def levels(self) -> tuple[Program, ...]:
        """The same problem with weights of least squares of limited spread, less and less so.

        Rows of far narrower tolerances than most are walls to a descent: it begins where they
        weigh as much as the others, and goes on from there.

        Where A has rank one, steps are many and any fit will do, large readings weigh less at
        first. A residual
        ``|p|^2 - b`` is about ``2 sqrt(b)`` times that of the amplitude, ``|p| - sqrt(b)``, so that
        weights of about 1/b are least squares of amplitudes, which take a third fewer steps: the
        largest readings no longer set the curvature [Wang, Giannakis, Eldar 2018].
        """
        weights = self.weight if self.wanted is None else self.wanted
        found = weights_by_level(weights)
        if self.evens_out and len(found) == 1:
            found = [weights / (np.maximum(self.b, 0.0) + _LARGE_READING * self.level), weights]
        return tuple(self if each is self.weight else self.weighed(each) for each in found)

    @cached_property
    def uneven(self) -> bool:
        """Whether unknowns differ by much in what the loss makes of them."""
        if self.shared.sparse is not None:
            return True
        # At most 1 each; those of a level are of limited spread, the problem's own are not.
        return (
            _UNEVEN * float(np.min(self.weight)) < 1.0 and len(weights_by_level(self.delta**-2)) > 1
        )

    @property
    def chooses(self) -> bool:
        """Whether least squares is to be settled rather than to be left at the first fit."""
        return self.wanted is not None or not self.target

    def weighed(self, weight: Vector) -> Program:
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
    bounds: Bounds | None = None,
    signs: tuple[int, int] | None = None,
    wanted: Vector | None = None,
    target: bool = True,
) -> Program:
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
        See `Program`.
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
    # Of rank one alone: other readings are more even, and weights spoil the expected Hessian.
    quasi_newton = rank == 1 and not takes_normal_equations(F, 1)
    simple = bounds is None and signs is None and wanted is None and F.rank_one
    evens_out = quasi_newton and simple and target and float(np.mean(b)) > 0.0
    return Program(F, b, delta, weight, low, Rows(F, low), bounds, signs, wanted, target, evens_out)


def _takes_single_steps(F: Sensing, rank: int) -> bool:
    """Whether quasi-Newton steps, or Gauss-Newton steps on ample rows, are to come."""
    return rows_are_ample(F, rank) or not takes_normal_equations(F, rank + LIFT)
