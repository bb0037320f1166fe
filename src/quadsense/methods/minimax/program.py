"""The smallest worst ratio on given rows: which of them ask for something, their units, the fit.

A row with one end has no width of its own, and what a problem calls its delta is only a unit. One
far from the size of the ends is chosen anew; the ends stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError

from quadsense.arrays import to_numpy
from quadsense.core.intervals import UNIT, Intervals
from quadsense.core.packed import Array, Vector
from quadsense.core.question import Question
from quadsense.core.records import cached_property
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import LENIENT, Problem
from quadsense.methods.conic.direction import REGULARIZATION
from quadsense.methods.conic.program import SIGNS, KernelProgram, Mask
from quadsense.methods.conic.program import prepare as prepare_kernel
from quadsense.methods.conic.system import ROUGH_RESIDUAL, KernelSystem, system_of
from quadsense.methods.minimax.coordinates import (
    GradientCoordinates,
    SeenRows,
    SeenRowsCoordinates,
    by_gram,
)
from quadsense.methods.minimax.traits import FACTORED
from quadsense.proofs.symmetric import NORM_FACTOR, data_scale

UNIT_SHARE = 0.01
"""Of the size of the ends: the unit of a row with one end whose own is beyond that."""

MIN_UNIT = 1e-6
"""Share of the typical unit below which none is."""

MAX_CERTAIN_SIZE = 2.0**50
"""Size in half-widths of a fit that is lost in its own rounding error."""

MAX_EXPONENT_SPREAD = 400
"""Powers of two between the smallest unit and the largest end, at most."""


MIN_WEIGHT = 1e-30
"""Share of the largest weight that each row has at least."""

MIN_EVEN_WEIGHT = 0.01
"""The same of rows that are weighed about alike."""

MAX_FITS = 8
"""Rounds of least squares at most."""


@dataclass(frozen=True)
class AskedRows:
    """The rows that ask for something, and what they ask for.

    Attributes
    ----------
    index : ndarray of int or None
        The rows that ask for something; None where all do.
    b : ndarray, shape (k,)
        Middles of their intervals, divided by `scale`.
    intervals : Intervals
        Theirs, divided by `scale`, in units of error that make sense for unit rows.
    scale : float
        Size of the largest end, a power of 4 so that nothing, nor a root of it, is rounded.
    """

    index: npt.NDArray[np.intp] | None
    b: Vector
    intervals: Intervals
    scale: float

    @property
    def delta(self) -> Vector:
        """Units of error."""
        return self.intervals.unit

    @property
    def sides(self) -> Mask:
        """Which upper and which lower ends exist, (2, k)."""
        return self.intervals.sides

    def of(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Those of the given rows (or entries) that ask for something."""
        return rows if self.index is None else rows[self.index]

    def on(self, rows: Sensing, tf32: bool = False) -> Sensing:
        """Those of the rows that ask for something, as methods see them."""
        F = rows.at_work(tf32)
        return F if self.index is None else F.only(self.index)

    def spread(self, y: Vector, m: int) -> Vector:
        """A vector of all m rows, 0 where nothing is asked."""
        if self.index is None:
            return y
        whole = np.zeros(m)
        whole[self.index] = y
        return whole


def asked(problem: Problem) -> AskedRows:
    """The rows of a problem that ask for something, in units that make sense for unit rows."""
    b, delta, ends = to_numpy(problem.b), to_numpy(problem.delta), problem.ends.opened()
    asks: Mask = to_numpy(problem.rows.nonzero) > 0
    sides: Mask = ends.sides
    lo, hi = ends.lo, ends.hi
    if not sides.all():
        asks = asks & np.any(sides, axis=0)
        b, delta = _own_units(b, delta, np.where(sides[0], hi, lo), sides, asks)
    both = asks & np.all(sides, axis=0)
    if problem.target and bool(np.any(both)):
        # Rows that no fit of a size that can be certified misses.
        largest = MAX_CERTAIN_SIZE * float(np.min(delta[both]))
        asks = asks & ~((hi >= largest) & (lo <= -largest))
    index = None if bool(np.all(asks)) else np.flatnonzero(asks)
    if index is not None:
        b, delta, lo, hi = b[index], delta[index], lo[index], hi[index]
    return _scaled(index, b, Intervals.of(lo, hi, delta))


def _own_units(
    b: Vector, delta: Vector, ends: Vector, sides: Mask, asks: Mask
) -> tuple[Vector, Vector]:
    """Middles and units such that every end stays where it is."""
    one = asks & ~np.all(sides, axis=0)
    if not bool(np.any(one)):
        return b, delta
    ends = np.where(one, ends, b)
    sizes = np.maximum(np.abs(ends), float(np.median(np.abs(ends[asks]))))
    units = np.where(one & (delta > sizes), UNIT_SHARE * sizes, delta)
    known = units[asks & (units > 0.0)]
    typical = float(np.median(known)) if known.size else 1.0
    units = np.where(one & (units < MIN_UNIT * typical), MIN_UNIT * typical, units)
    middles = np.where(sides[0], ends - units, ends + units)
    return np.where(one, middles, b), np.where(one, units, delta)


def _scaled(index: npt.NDArray[np.intp] | None, b: Vector, intervals: Intervals) -> AskedRows:
    if b.size == 0:
        return AskedRows(index, b, intervals, 1.0)
    delta = intervals.unit
    top = int(np.frexp(float(np.max(np.abs(b))) + float(np.max(delta)))[1])
    bottom = int(np.frexp(float(np.min(delta)))[1])
    exponent = 2 * (min(top, bottom + MAX_EXPONENT_SPREAD) // 2)
    with np.errstate(under="ignore"):
        b, intervals = np.ldexp(b, -exponent), intervals.each(lambda x: np.ldexp(x, -exponent))
    if top > bottom + MAX_EXPONENT_SPREAD:  # beyond what fits can reach that narrow rows allow
        beyond, (upper, lower) = 2.0**MAX_EXPONENT_SPREAD, intervals.sides
        b, delta = np.clip(b, -beyond, beyond), np.minimum(intervals.unit, beyond)
        lo, hi = np.where(lower, b - delta, -np.inf), np.where(upper, b + delta, np.inf)
        intervals = Intervals.of(lo, hi, delta)
    return AskedRows(index, b, intervals, 2.0**exponent)


@dataclass(frozen=True)
class MinimaxProgram:
    """Measurements, and which ends of their intervals exist.

    Attributes
    ----------
    rows : Sensing
    F : Sensing or SeenRows
        The same, in the coordinates of the unknowns.
    b, delta : ndarray, shape (m,)
    sides : ndarray of bool, shape (2, m)
        Whether there is an upper end, and a lower end.
    max_norm : float
        A larger fit is not believed.
    even : bool
        Whether the kernel counts all misses of intervals alike: of tolerances that differ by many
        powers of ten it then knows sooner whether there is a fit.
    """

    rows: Sensing
    F: Any
    b: Vector
    delta: Vector
    sides: Mask
    max_norm: float
    even: bool = False

    @property
    def weights(self) -> Vector:
        """Of squares of residuals, where these count in units of the tolerances."""
        return self.sides.any(axis=0) / self.delta**2

    @cached_property
    def system(self) -> KernelSystem | None:
        """The normal equations of least squares of these weights; None where there is none."""
        return self.system_of(self.weights)

    def system_of(self, weights: Vector) -> KernelSystem | None:
        """The same of other weights."""
        kernel, equal = self.kernel, self.F.beside(np.zeros(weights.size, bool))
        E = 1.0 / np.maximum(weights / float(np.max(weights)), MIN_WEIGHT)
        at = kernel.coordinates(self.F, REGULARIZATION, kernel.kept)
        try:
            return system_of(at, self.F.beside(E), equal, ROUGH_RESIDUAL, True)
        except LinAlgError:
            return None

    @cached_property
    def kernel(self) -> KernelProgram:
        """That of the interior-point kernel."""
        upper, lower = self.sides
        wide = self.delta if self.even else 0.0 * self.delta
        lo, hi = np.where(lower, self.b - wide, -np.inf), np.where(upper, self.b + wide, np.inf)
        weights = np.ones_like(wide) if self.even else 1.0 / self.delta
        with LENIENT():
            question = Question("slack_max", lo, hi, weights, 0.0 * wide, np.zeros(wide.size, bool))
            found = prepare_kernel(self.rows, question)
        first = self.weights / float(np.max(self.weights))
        if float(np.min(first)) > MIN_EVEN_WEIGHT:  # then rows see as much with these weights
            found.kept["weights"] = 1.0 / (1.0 / first)
        if self.rows.unknowns > FACTORED and not by_gram(self.rows):
            return replace(found, coordinates=GradientCoordinates)
        if isinstance(self.F, SeenRows):
            zero = np.zeros(self.F.n)
            F: Any = self.F
            return replace(found, F=F, C=zero, P=zero, coordinates=SeenRowsCoordinates)
        return found


def prepare(
    U: Array | Sensing, b: Vector, delta: Vector, sides: Mask | None = None
) -> MinimaxProgram:
    """Choose the coordinates: A itself, or the span of few measurements.

    Parameters
    ----------
    U : Sensing, or ndarray of shape (m, n)
        Rows of norm at most 1.
    b, delta : ndarray, shape (m,)
        Readings and tolerances (1 where only the worst error matters).
    sides : ndarray of bool, shape (2, m), optional
        Which upper and which lower ends exist; all of them, if omitted.
    """
    if sides is None:
        sides = np.ones((2, b.size), dtype=bool)
    rows = Sensing.of(U)
    F = SeenRows(rows) if by_gram(rows) else rows
    return MinimaxProgram(rows, F, b, delta, sides, NORM_FACTOR * data_scale(b, delta))


def leaning(sides: Mask, z: Vector) -> Vector:
    """By how many tolerances rows with these ends are missed; at most 1 where they are met."""
    return np.max(np.where(sides, SIGNS * z, 0.0), axis=0)


def least_squares(
    program: MinimaxProgram, weights: Vector | None = None, rounds: int = MAX_FITS
) -> tuple[Array, Vector]:
    """Minimize ``sum_i weights_i (F(A)_i - b_i)^2 / delta_i^2``.

    Returns the unknowns, and the residuals in units of the tolerances. Each round starts from the
    residuals of the data, so that a consistent fit ends at rounding.
    """
    F = program.F
    x: Any = np.zeros_like(program.kernel.C)
    values, cost = np.zeros_like(program.b), np.inf
    heavy = program.weights if weights is None else weights / program.delta**2
    with LENIENT():
        system = program.system if weights is None else program.system_of(heavy)
        for _ in range(rounds):
            if system is None:
                break
            step, _, _ = system.solve(np.zeros_like(x), F.beside(program.b - values))
            trial = to_numpy(F.forward(x + step))
            after = float(heavy @ (trial - program.b) ** 2)
            if after < cost:
                x, values = x + step, trial
            # An inconsistent fit is done once; a consistent one shrinks until rounding.
            if not after < 0.25 * cost:
                break
            cost = after
    return x, (values - program.b) / program.delta


def projected(program: MinimaxProgram, y: Vector) -> Vector:
    """Return the vector without what keeps ``F*(y)`` from 0."""
    F, system = program.F, program.system
    if system is None:
        return y
    y = F.beside(y)
    with LENIENT():
        return to_numpy(y - system.solve(F.adjoint(y), np.zeros_like(y))[1])


def worst_ratio(program: MinimaxProgram, x: Array, z: Vector) -> tuple[float, float]:
    """The worst ratio of x, whose residuals are z, and how much rounding may add to it."""
    out = leaning(program.sides, z)
    # |fl(u* A u) - u* A u| <= gamma(2 n) ||A||_F for a unit u; a complex product doubles it.
    rows = program.rows
    factor = 4.0 * (rows.n + 4) * UNIT * rows.amplification * float(np.linalg.norm(x))
    errors = (factor + 2.0 * UNIT * np.abs(program.b)) / program.delta
    ratio, most = float(np.max(out)), float(np.max(out + errors))
    return max(ratio, 0.0), max(most, 0.0) - max(ratio, 0.0)
