"""Row terms of least squares, the solver of the step in Z, and bounds by a dual vector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from quadsense.arrays import Vector
from quadsense.device import numbers
from quadsense.measurements.gram import Diagonal, KnownBasis, known_basis
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import Problem
from quadsense.methods.least_squares import program as squares
from quadsense.methods.least_squares.program import LeastSquaresCone, Rows, SquaresProgram
from quadsense.system.watch import look

END_PENALTY = 20.0
"""Penalty of a reading at an end of its interval, in units of that of one inside. Inside, a penalty
of the weight is best; at an end a larger one is, until the system of a step is ill-conditioned: 5,
20, 50 took 75, 25, 20 steps with 22 readings per unknown, and 35, 35, 35 over the cone."""


class RowTerm(Protocol):
    """A convex function of the readings, one term per row: ``sum_i phi_i(v_i)``."""

    @property
    def unit(self) -> Vector:
        """Half-widths of the intervals."""

    @property
    def lift(self) -> Vector:
        """A vector, not negative, that can be added to every dual vector at a finite price."""

    @property
    def most(self) -> float:
        """The largest value of the sum over all readings that are allowed."""

    @property
    def least(self) -> float:
        """The smallest value in units of which a gap is."""

    def penalty(self, v: Vector, share: float) -> Vector:
        """Penalties for a step, given the readings of the last one; 0 for rows that ask nothing."""

    def value(self, v: Vector) -> float:
        """``sum_i phi_i(v_i)`` for readings that are allowed, unchecked."""

    def slope(self, v: Vector) -> Vector:
        """Derivatives of the terms inside of their intervals."""

    def best_multiple(self, y: Vector, inside: float) -> float:
        """The s for which ``s inside - sum_i phi_i*(s y_i)`` is largest, where that is known."""

    def conjugate(self, y: Vector, share: float = 0.0) -> float:
        """``sum_i phi_i*(y_i)``, with ends moved inwards by `share`."""

    def permitted(self, y: Vector) -> Vector:
        """The dual vector without the entries whose conjugate is infinite."""

    def outside(self, v: Vector) -> float:
        """How far a reading is from what is allowed at most, in half-widths of its interval."""

    def proximal(self, x: Vector, rho: Vector, share: float) -> Vector:
        """The minimizer of ``phi_i(v_i) + rho_i (v_i - x_i)^2``, with ends moved inwards.

        By `share`, in units of half an interval.
        """


@dataclass(frozen=True)
class SquaresWithin:
    """``phi_i(v) = w_i (v - b_i)^2`` for ``lo_i <= v <= hi_i``, and infinite outside.

    Attributes
    ----------
    w, b, lo, hi : arrays of shape (m,)
        b is 0 where w is 0. Intervals may be infinite, and equal.
    unit : array of shape (m,)
        Half the width of an interval; of one with one end what counts as that.
    typical : float
        The penalty of a row without a weight.
    """

    w: Vector
    b: Vector
    lo: Vector
    hi: Vector
    unit: Vector
    typical: float

    @property
    def lift(self) -> Vector:
        """The weights."""
        return self.w

    @property
    def least(self) -> float:
        """Squares may be as small as they are."""
        return 0.0

    @cached_property
    def is_free(self) -> bool:
        """Whether no reading has an interval."""
        return not (np.isfinite(self.lo).any() or np.isfinite(self.hi).any())

    @cached_property
    def _inverse(self) -> Vector:
        """``1 / w``, and 0 where w is 0."""
        return np.where(self.w > 0.0, 1.0 / np.where(self.w > 0.0, self.w, 1.0), 0.0)

    @cached_property
    def _equal(self) -> Any:
        return self.lo == self.hi

    @cached_property
    def _base(self) -> Vector:
        """Penalties of readings inside their intervals."""
        asks = (self.lo > -np.inf) | (self.hi < np.inf)
        return np.where(self.w > 0.0, self.w, np.where(asks, self.typical, 0.0))

    @cached_property
    def most(self) -> float:
        """The sum where every reading is at the end that is farther from b."""
        with np.errstate(invalid="ignore"):
            farthest = np.maximum(np.abs(self.hi - self.b), np.abs(self.b - self.lo))
            terms = np.where(self.w > 0.0, self.w * farthest * farthest, 0.0)
        return float(np.sum(terms))

    def ends(self, share: float) -> tuple[Vector, Vector]:
        """Intervals moved inwards."""
        inside = np.where(self._equal, 0.0, share * self.unit)
        return self.lo + inside, self.hi - inside

    def penalty(self, v: Vector, share: float) -> Vector:
        """The weight, and more than that where the reading is at an end."""
        lo, hi = self.ends(share)
        return self._base * np.where((v <= lo) | (v >= hi), END_PENALTY, 1.0)

    def value(self, v: Vector) -> float:
        """``sum_i w_i (v_i - b_i)^2``."""
        return float(self.w @ (v - self.b) ** 2)

    def slope(self, v: Vector) -> Vector:
        """``2 w (v - b)``."""
        return 2.0 * self.w * (v - self.b)

    def best_multiple(self, y: Vector, inside: float) -> float:
        """Of squares y itself is as good."""
        return 1.0

    def outside(self, v: Vector) -> float:
        """Of rows that are no equalities."""
        if self.is_free:
            return 0.0
        beyond = np.maximum(self.lo - v, v - self.hi)
        beyond = np.where((beyond > 0.0) & (self.unit > 0.0), beyond, 0.0)
        return float(np.max(beyond / np.where(beyond > 0.0, self.unit, 1.0), initial=0.0))

    def permitted(self, y: Vector) -> Vector:
        """0 where there is neither a weight nor the end that it belongs to."""
        if self.is_free:
            return np.where(self.w > 0.0, y, 0.0)
        end = np.where(y > 0.0, self.hi, self.lo)
        return np.where((self.w > 0.0) | np.isfinite(end), y, 0.0)

    def conjugate(self, y: Vector, share: float = 0.0) -> float:
        """``y v - phi(v)`` at the v between the ends where that is largest."""
        if self.is_free:
            return float(y @ self.b + 0.25 * ((y * y) @ self._inverse))
        priced = self.w > 0.0
        lo, hi = self.ends(share)
        v = np.where(y > 0.0, hi, np.where(y < 0.0, lo, self.b))
        v = np.where(priced, self.b + y / np.where(priced, 2.0 * self.w, 1.0), v)
        v = np.clip(v, lo, hi)
        v = np.where(np.isfinite(v), v, 0.0)  # y is 0 there
        away = v - self.b
        return float(np.sum(y * v - self.w * away * away))

    def proximal(self, x: Vector, rho: Vector, share: float) -> Vector:
        """The weighted mean of b and x, clipped; x itself where nothing is asked."""
        total = self.w + rho
        asks = total > 0.0
        mean = np.where(asks, (self.w * self.b + rho * x) / np.where(asks, total, 1.0), x)
        return np.clip(mean, *self.ends(share))


@dataclass(frozen=True)
class Likelihood:
    """``phi_i(v) = t_i (v - b_i) - w_i log((v - lo_i)/(b_i - lo_i))``, as in `Question`.

    Attributes
    ----------
    w, t, b, lo : arrays of shape (m,)
        Of rows that ask for nothing w and t are 0.
    unit : array of shape (m,)
        0: there are no intervals.
    least : float
        A deviance of 1: what is less than the gap of that, no count tells.
    """

    w: Vector
    t: Vector
    b: Vector
    lo: Vector
    unit: Vector
    least: float

    @property
    def lift(self) -> Vector:
        """None, where the trace is given."""
        return 0.0 * self.w

    @property
    def is_free(self) -> bool:
        """There is no interval, but the readings need copies all the same."""
        return False

    @property
    def most(self) -> float:
        """There is none."""
        return np.inf

    @cached_property
    def _counts(self) -> Any:
        return self.w > 0.0

    @cached_property
    def _whole(self) -> Vector:
        """What was counted in units of readings; 1 where nothing was."""
        return np.where(self._counts, self.b - self.lo, 1.0)

    def penalty(self, v: Vector, share: float) -> Vector:
        """Half the second derivative, at what was counted where v is less than that."""
        at = np.maximum(v - self.lo, self._whole)
        return np.where(self._counts, 0.5 * self.w / (at * at), 0.0)

    def value(self, v: Vector) -> float:
        """The terms in sum; infinite where a reading that was counted is none."""
        room = np.where(self._counts, v - self.lo, 1.0)
        if not bool(np.all(room > 0.0)):
            return float(np.inf)
        return float(self.t @ (v - self.b) - self.w @ np.log(room / self._whole))

    def slope(self, v: Vector) -> Vector:
        """``t - w/(v - lo)``."""
        return self.t - over(self.w, v - self.lo)

    def outside(self, v: Vector) -> float:
        """There are no intervals."""
        return 0.0

    def permitted(self, y: Vector) -> Vector:
        """No more than t."""
        return np.minimum(y, self.t)

    def conjugate(self, y: Vector, share: float = 0.0) -> float:
        """``y lo + t (b - lo) - w - w log((t - y) (b - lo)/w)``."""
        counts, left = self._counts, self.t - y
        if not bool(np.all(left[counts] > 0.0)):
            return float(np.inf)
        ratios = np.where(counts, left * self._whole, 1.0) / np.where(counts, self.w, 1.0)
        logs = self.w @ (1.0 + np.log(ratios))
        return float(y @ self.lo + self.t @ np.where(counts, self._whole, 0.0) - logs)

    def best_multiple(self, y: Vector, inside: float) -> float:
        """Known where counts are shares of shots."""
        slope = float(y @ self.lo) - inside
        known = slope > 0.0 and not self.t.any()
        return float(np.sum(self.w)) / slope if known else 1.0

    def proximal(self, x: Vector, rho: Vector, share: float) -> Vector:
        """The positive root of a quadratic equation; x itself where nothing is asked."""
        half = 0.5 * (x - self.lo - over(self.t, 2.0 * rho))
        root = half + np.sqrt(half * half + over(self.w, 2.0 * rho))
        return np.where(rho > 0.0, self.lo + root, x)


def over(a: Vector, b: Vector) -> Vector:
    """``a/b``, and 0 where b is not positive."""
    return np.where(b > 0.0, a / np.where(b > 0.0, b, 1.0), 0.0)


MIN_SEEN_EIGENVALUE = 1e-13
"""Eigenvalue of ``F*(lift)``, as a part of the largest, above which its direction is seen."""


MAX_NORM_RATIO = 10.0
"""Norm of a matrix that is reckoned with where nothing bounds it, in units of that of the best one
known: what proofs take for granted at least."""


class ConsensusBound(NamedTuple):
    """A lower bound, its dual vector, and the multiple of I that the trace adds to T."""

    value: float
    y: Vector
    level: float = 0.0


class ConsensusBounds:
    """Lower bounds for one program."""

    def __init__(self, program: SquaresProgram, term: RowTerm) -> None:
        self.program, self.term = program, term

    @cached_property
    def _even(self) -> tuple[Vector, Any]:
        """``E = F*(lift)``, packed, and Z with ``Z* E Z = I`` on its range."""
        cone = self.program.cone
        E = cone.pack(self.program.F.adjoint(self.term.lift))
        values, V = cone.eigen(E)
        seen = values > MIN_SEEN_EIGENVALUE * values[-1]
        return E, V[:, seen] / np.sqrt(values[seen])

    def lower(self, y: Vector, x: Vector) -> ConsensusBound:
        """The bound that y gives, or y lifted; x is where the cost of A itself is linearized."""
        program, cone, alpha = self.program, self.program.cone, self.program.cost.alpha
        y = self.term.permitted(y)
        T = cone.pack(program.F.adjoint(y))
        if cone.trace is not None:
            level = -float(cone.eigenvalues(T + 2.0 * alpha * (x - program.cost.p))[0])
            inside = -cone.trace * level
            times = 1.0 if alpha else self.term.best_multiple(y, inside)
            y, level, inside = times * y, times * level, times * inside
            if alpha:
                inside += self._linearized(x)
            return ConsensusBound(inside - self.term.conjugate(y), y, level)
        if not cone.psd:
            return ConsensusBound(self._infimum(T, x) - self.term.conjugate(y), y)
        best = ConsensusBound(-np.inf, y)
        if alpha:
            best = ConsensusBound(self._infimum(T, x) - self.term.conjugate(y), y)
        E, Z = self._even
        if Z.shape[1] == cone.n:
            S = cone.unpack(T + 2.0 * alpha * (x - program.cost.p))
            shift = max(0.0, -float(np.linalg.eigvalsh(Z.conj().T @ S @ Z)[0]))
            moved = y + shift * self.term.lift
            inside = self._infimum(T + shift * E, x) if alpha else 0.0
            other = ConsensusBound(inside - self.term.conjugate(moved), moved)
            best = max(best, other, key=lambda each: each.value)
        return best

    def _linearized(self, x: Vector) -> float:
        """Return what is left of ``alpha ||A - P||^2`` without its slope at x, for every A."""
        p = self.program.cost.p
        away, along = numbers((x - p) @ (x - p), (x - p) @ x)
        return self.program.cost.alpha * (away - 2.0 * along)

    def _infimum(self, T: Vector, x: Vector) -> float:
        """``inf_A (<T, A> + alpha ||A - P||^2)``; 0 only where T is, without alpha."""
        cone, alpha, p = self.program.cone, self.program.cost.alpha, self.program.cost.p
        if not alpha:
            pull, size = numbers(np.linalg.norm(T), np.linalg.norm(x))
            return -MAX_NORM_RATIO * pull * size
        linear, square = numbers(T @ p, T @ T)
        found = linear - square / (4.0 * alpha)
        if cone.psd:
            outside = np.minimum(cone.eigenvalues(p - T / (2.0 * alpha)), 0.0)
            found += alpha * float(outside @ outside)
        return found


class ZStep(Protocol):
    """What solves the normal equations of a step, for packed matrices."""

    def solve(self, rho: Vector, shift: float, g: Vector, share: float, most: int) -> Vector:
        """D up to a residual of `share` times g, in at most that many products."""


@dataclass(frozen=True)
class ByGradients:
    """Conjugate gradients with products in single precision [Hestenes & Stiefel 1952].

    A step is a correction of the one before, whose residual was computed in float64: rounding in
    the products costs steps, never digits.
    """

    F: Sensing
    cone: LeastSquaresCone

    def solve(self, rho: Vector, shift: float, g: Vector, share: float, most: int) -> Vector:
        """From D = 0."""
        F, cone, top = self.F.single, self.cone, float(np.max(rho, initial=0.0)) or 1.0
        weights, flops = rho / top, 4.0 * F.raw.m * float(F.n) ** 2
        d, left, direction = np.zeros_like(g), g, g
        (size,) = numbers(g @ g)
        enough = share * share * size
        for _ in range(most):
            if not size > enough:  # NaN too
                break
            look(flops)
            scale = float(np.max(np.abs(direction)))
            image = weights * F.forward(cone.unpack(direction / scale))
            back = cone.pack(F.adjoint(image).astype(cone.dtype, copy=False))
            image = (top * scale) * back + shift * direction
            (bend,) = numbers(direction @ image)
            if not bend > 0.0:
                break
            length = size / bend
            d = d + length * direction
            left = left - length * image
            (after,) = numbers(left @ left)
            direction, size = left + (after / size) * direction, after
        return d


class ByDiagonal:
    """The solution itself, where the normal matrix is diagonal in a basis that the rows know.

    Parameters
    ----------
    basis : KnownBasis
    cone : LeastSquaresCone
    """

    def __init__(self, basis: KnownBasis, cone: LeastSquaresCone) -> None:
        self.basis, self.cone = basis, cone
        self._last: tuple[Vector, Diagonal] | None = None

    def solve(self, rho: Vector, shift: float, g: Vector, share: float, most: int) -> Vector:
        """D, exact to rounding; orthogonally to the basis the normal matrix is 0."""
        if self._last is None or self._last[0] is not rho:
            found = self.basis.normal(rho)
            assert found is not None  # penalties are pooled
            self._last = rho, found
        diagonal, cone = self._last[1], self.cone
        G = cone.unpack(g)
        c = diagonal.into(G)
        D = diagonal.back(c / (diagonal.values + shift))
        if c.size < cone.size:
            D = D + (G - diagonal.back(c)) / shift
        return cone.pack(D)


FIRST_CONE_PENALTY = 0.3
"""First penalty of the copy in the cone, in units of the mean curvature of the rows' penalties."""


@dataclass(frozen=True)
class ConsensusProgram:
    """The question over powers of two, and what its steps are made of.

    Attributes
    ----------
    inner : Program
        Rows, cone, prior and scale.
    term : RowTerm
    normal : ZStep
    bounds : ConsensusBounds
    gap, asked : float
        The relative gap that is aimed at, and the one that was asked for.
    pull : array of shape (N,) or None
        ``F*(w b) + alpha P`` where no reading has an interval and the normal matrix is diagonal:
        then the cost is part of the step in Z, and readings need no copies.
    """

    inner: squares.SquaresProgram
    term: RowTerm
    normal: ZStep
    bounds: ConsensusBounds
    gap: float
    asked: float
    pull: Vector | None = None

    @cached_property
    def equal(self) -> Rows:
        """Numbers of the rows that are equalities."""
        return np.flatnonzero(self.inner.lo == self.inner.hi)

    def penalty(self, v: Vector, share: float) -> Vector:
        """Penalties of the readings, such that the step in Z is as quick as it can be."""
        found = self.term.penalty(v, share)
        return self.normal.basis.pooled(found) if isinstance(self.normal, ByDiagonal) else found

    def curvature(self, rho: Vector) -> float:
        """Mean eigenvalue of ``F* diag(rho) F``."""
        return float(rho @ self.inner.F.sizes**2) / self.inner.cone.size


def prepare(problem: Problem) -> ConsensusProgram | None:
    """The program; None where the question is none of least squares, or asks for nothing."""
    inner = squares.prepare(problem)
    if inner is not None:
        return program_of(inner)
    inner = squares.prepare(problem, "likelihood")
    return None if inner is None else _of_counts(inner)


def _of_counts(inner: SquaresProgram) -> ConsensusProgram | None:
    """The program of a likelihood; None where A is not tied to the counts and a trace alone."""
    question, scale, unit, cone = inner.question, inner.scale, inner.unit, inner.cone
    basis = known_basis(inner.F) if cone.psd else None
    if basis is None or cone.trace is None or np.count_nonzero(question.hard) > 1:
        return None
    rows = ~question.hard
    w, t = (np.where(rows, each, 0.0) for each in (question.weights, question.slope))
    b, lo = (np.where(rows, each, 0.0) / scale for each in (question.reading, question.lo))
    term = Likelihood(w / unit, t * (scale / unit), b, lo, np.zeros_like(w), 1.0 / unit)
    gap = float(inner.problem.options.gap)
    bounds = ConsensusBounds(inner, term)
    return ConsensusProgram(inner, term, ByDiagonal(basis, cone), bounds, gap, gap)


def program_of(inner: SquaresProgram, gap: float = np.inf) -> ConsensusProgram:
    """The same of a question that is prepared, for a gap of that or the smaller one asked for."""
    cost = inner.cost
    lo, hi = inner.lo, inner.hi
    two = np.isfinite(lo) & np.isfinite(hi)
    other = np.asarray(inner.ends.unit) if isinstance(lo, np.ndarray) else inner.ends.unit
    with np.errstate(invalid="ignore"):
        unit = np.where(two, 0.5 * (hi - lo), other / inner.scale)
    count = int(np.count_nonzero(cost.w))
    typical = float(np.sum(cost.w)) / count if count else cost.alpha
    term = SquaresWithin(cost.w, cost.b, lo, hi, unit, typical)
    F, cone, asked = inner.F, inner.cone, float(inner.problem.options.gap)
    bounds, gap = ConsensusBounds(inner, term), min(gap, asked)
    basis = known_basis(F) if cone.psd else None
    if basis is None or term.penalty(cost.b, 0.0)[basis.squares.size :].any():
        return ConsensusProgram(inner, term, ByGradients(F, cone), bounds, gap, asked)
    pull = None
    if term.is_free and basis.normal(cost.w) is not None:
        pull = cone.pack(F.adjoint(cost.w * cost.b)) + cost.alpha * cost.p
    return ConsensusProgram(inner, term, ByDiagonal(basis, cone), bounds, gap, asked, pull)
