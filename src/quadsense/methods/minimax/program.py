"""The smallest worst ratio on given rows: which of them ask for something, units, both bounds.

The interior-point kernel of `conic` solves the linear program

    minimize t   subject to   -t <= (F(A)_i - b_i) / delta_i <= t,

started at least squares, whose weighted residual is already dual feasible. It stops at the gap that
was asked. Its multipliers give the vector y of the lower bound ``y.b / sum |y_i| delta_i``,
``F*(y) = 0``, which is computed here and proved in `proofs.symmetric`. An end of an interval may be
missing.

A row with one end has no width of its own, and what a problem calls its delta is only a unit. One
far from the size of the ends is chosen anew; the ends stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError

from quadsense.arrays import to_numpy
from quadsense.core.intervals import UNIT, Intervals
from quadsense.core.products import Array, Vector
from quadsense.core.question import Question
from quadsense.core.records import cached_property
from quadsense.core.sums import SPARE
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import DIAGONAL_SHIFT, LENIENT, Problem
from quadsense.methods.conic import steps
from quadsense.methods.conic.program import SIGNS, KernelProgram, Mask
from quadsense.methods.conic.program import prepare as prepare_kernel
from quadsense.methods.conic.solve import MAX_STEPS, dual_of
from quadsense.methods.conic.system import ROUGH_RESIDUAL, KernelSystem, system_of
from quadsense.methods.least_squares import MAX_FORMED_UNKNOWNS
from quadsense.methods.minimax.coordinates import (
    GradientCoordinates,
    SeenRows,
    SeenRowsCoordinates,
    by_gram,
)
from quadsense.proofs.symmetric import ASSUMED_FACTOR, NORM_FACTOR, allowed, data_scale

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
        kernel, equal = self.kernel, self.F.placed(np.zeros(weights.size, bool))
        E = 1.0 / np.maximum(weights / float(np.max(weights)), MIN_WEIGHT)
        at = kernel.coordinates(self.F, DIAGONAL_SHIFT, kernel.kept)
        try:
            return system_of(at, self.F.placed(E), equal, ROUGH_RESIDUAL, True)
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
        if self.rows.unknowns > MAX_FORMED_UNKNOWNS and not by_gram(self.rows):
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
            step, _, _ = system.solve(np.zeros_like(x), F.placed(program.b - values))
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
    y = F.placed(y)
    with LENIENT():
        return to_numpy(y - system.solve(F.adjoint(y), np.zeros_like(y))[1])


def reading_rounding(rows: Sensing) -> float:
    """How much rounding may add to a reading of a matrix of norm 1.

    ``|fl(u* A u) - u* A u| <= gamma(2 n) ||A||_F`` for a unit u; a complex product doubles it.
    """
    return 4.0 * (rows.n + SPARE) * UNIT * rows.amplification


def worst_ratio(program: MinimaxProgram, x: Array, z: Vector) -> tuple[float, float]:
    """The worst ratio of x, whose residuals are z, and how much rounding may add to it."""
    out = leaning(program.sides, z)
    rows = program.rows
    factor = reading_rounding(rows) * float(np.linalg.norm(x))
    errors = (factor + 2.0 * UNIT * np.abs(program.b)) / program.delta
    ratio, most = float(np.max(out)), float(np.max(out + errors))
    return max(ratio, 0.0), max(most, 0.0) - max(ratio, 0.0)


# --- both bounds ----------------------------------------------------------------------------------

RatioVerdict = Literal["met", "infeasible", "optimal", "stalled"]


@dataclass(frozen=True)
class IterationState:
    """Where the method stands.

    Attributes
    ----------
    kernel : KernelState or None
        The interior-point iterate; None at least squares.
    x : ndarray
        Best unknowns so far; `matrix` turns them into A.
    max_ratio : float
        ``max_i |F(A)_i - b_i| / delta_i`` of `x`: the upper bound.
    rounding : float
        How much rounding may add to `max_ratio`.
    lower : float
        Lower bound on the ratio.
    y : ndarray, shape (m,)
        Vector that gives `lower`: the proof of infeasibility once `lower` exceeds 1.
    """

    kernel: steps.KernelState | None
    x: Array
    max_ratio: float
    rounding: float
    lower: float
    y: Vector

    @property
    def iteration(self) -> int:
        """Steps taken."""
        return 0 if self.kernel is None else self.kernel.iteration

    @property
    def stalled(self) -> bool:
        """Whether rounding stops further progress."""
        kernel = self.kernel
        if kernel is None:
            return self.max_ratio == 0.0
        idle = kernel.idle >= steps.MAX_IDLE_STEPS or kernel.iteration >= MAX_STEPS
        return kernel.stuck or idle


class RatioBounds(Protocol):
    """What a state says of the best ratio, on whichever rows."""

    @property
    def x(self) -> Array:
        """Best unknowns so far."""

    @property
    def max_ratio(self) -> float:
        """Of `x`."""

    @property
    def rounding(self) -> float:
        """How much rounding may add to it."""

    @property
    def lower(self) -> float:
        """Lower bound on the ratio."""

    @property
    def stalled(self) -> bool:
        """Whether nothing more can be gained."""


def matrix(program: MinimaxProgram, state: RatioBounds) -> tuple[Array, bool]:
    """The fit: ``(A, True)``, or ``(c, False)`` with ``A = F*(c)`` where n by n may not fit."""
    if isinstance(program.F, SeenRows):
        return program.F.coefficients(state.x), False
    return 0.5 * (state.x + state.x.conj().T), True


def verdict(state: RatioBounds, *, target: bool, gap: float) -> RatioVerdict | None:
    """What the bounds say; None while they are not close enough.

    With a target the question is whether ratio 1 can be had; without, how small it can be. A
    fit that is exact up to rounding is the smallest.
    """
    upper = state.max_ratio + state.rounding
    if target and upper <= 1.0:
        return "met"
    if target and state.lower > 1.0:
        return "infeasible"
    if not target and (state.max_ratio <= state.rounding or upper - state.lower <= gap * upper):
        return "optimal"
    return "stalled" if state.stalled else None


def start(program: MinimaxProgram) -> IterationState:
    """Least squares, weighted by the tolerances."""
    x, z = least_squares(program)
    state = IterationState(None, x, *worst_ratio(program, x, z), 0.0, np.zeros_like(z))
    if state.max_ratio <= state.rounding:
        return state
    return _bounded(program, state, -z / program.delta)


def _begun(program: MinimaxProgram, state: IterationState) -> steps.KernelState:
    """The first interior-point iterate, about least squares."""
    kernel, F = program.kernel, program.F
    y = (to_numpy(F.forward(state.x)) - program.b) / program.delta**2
    size = float(np.max(np.abs(y), initial=0.0)) or 1.0
    return steps.first(kernel, state.x / kernel.scale, F.placed(y / size))


def advance(
    program: MinimaxProgram,
    state: IterationState,
    count: int,
    *,
    target: bool = False,
    gap: float,
) -> IterationState:
    """Take up to `count` interior-point steps; stop early at a verdict.

    Parameters
    ----------
    program : MinimaxProgram
    state : IterationState
        Not modified.
    count : int
        Steps to spend, one factorization each.
    target : bool
        Stop once ratio 1 is met or proved impossible, instead of at `gap`.
    gap : float
        Relative distance of the two bounds at which to stop.
    """
    for _ in range(count):
        if verdict(state, target=target, gap=gap) is not None:
            break
        with LENIENT():
            kernel = state.kernel or _begun(program, state)
            kernel = steps.advance(program.kernel, kernel)
        state = _with_fit(program, replace(state, kernel=kernel), kernel)
        y = -dual_of(program.kernel, kernel.at)
        state = _bounded(program, state, y)
        # The bound that y would give if F*(y) were zero.
        promise = replace(state, lower=max(_promise(program, y), state.lower))
        if state.stalled or verdict(promise, target=target, gap=gap) is not None:
            state = _bounded(program, state, projected(program, y))
    return state


def _with_fit(
    program: MinimaxProgram, state: IterationState, now: steps.KernelState
) -> IterationState:
    """The state with the fit of its iterate, where that is better than the best so far."""
    kernel, at = program.kernel, now.at
    z = (kernel.scale * to_numpy(at.v) - program.b) / program.delta
    if not np.isfinite(z).all():
        return state
    ratio, rounding = worst_ratio(program, kernel.scale * at.A, z)
    if not ratio < state.max_ratio:
        return state
    return replace(state, x=kernel.scale * at.A, max_ratio=ratio, rounding=rounding)


def _promise(program: MinimaxProgram, y: Vector) -> float:
    mass = float(np.abs(y) @ program.delta)
    return max(float(y @ program.b) / mass, 0.0) if mass > 0.0 else 0.0


def _bounded(program: MinimaxProgram, state: IterationState, y: Vector) -> IterationState:
    """With the bound by a vector, where that is better than the best so far."""
    upper, lower = program.sides
    y = allowed(y, lower, upper)
    if not (np.isfinite(y).all() and y.any()):
        return state
    left = float(np.linalg.norm(to_numpy(program.F.adjoint(program.F.placed(y)))))
    # Computed, not proved: the certificate proves it once, at the end, and the norm of a fit too.
    norm = min(program.max_norm, ASSUMED_FACTOR * float(np.linalg.norm(state.x)))
    bound = float(y @ program.b - left * norm) / float(np.abs(y) @ program.delta)
    return replace(state, lower=bound, y=y) if bound > state.lower else state
