"""The program of consensus ADMM, the solver of its step in Z, and bounds by a dual vector."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core.smooth_terms import ProximalTerm, SquaresWithin
from quadsense.device import numbers, put
from quadsense.measurements.gram import Diagonal, KnownBasis, known_basis
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.stack import Stack
from quadsense.methods.base import Problem
from quadsense.methods.least_squares import program as squares
from quadsense.methods.least_squares.program import LeastSquaresCone, Rows, SquaresProgram
from quadsense.system.watch import look

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

    def __init__(self, program: SquaresProgram, term: ProximalTerm) -> None:
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


class OnDevice:
    """Rows whose kind works on a device: the first readings there, the few others as matrices.

    All else is that of the rows of the host.

    Parameters
    ----------
    rows : Sensing
    basis : KnownBasis
    """

    waits = True

    def __init__(self, rows: Sensing, basis: KnownBasis) -> None:
        self.rows, self.basis = rows, basis
        count, anchor = basis.squares.size, basis.kind.there
        self.multiples = put(np.sqrt(basis.squares), anchor)
        self.squares, self.sizes = (put(to_numpy(v), anchor) for v in (rows.squares, rows.sizes))
        one = np.eye(rows.m - count, rows.m, count)
        self.others = [put(to_numpy(rows.adjoint(each)), anchor) for each in one]

    def __getattr__(self, name: str) -> Any:
        """All else."""
        return getattr(self.rows, name)

    def placed(self, values: Any) -> Any:
        """Return an array on the device."""
        return put(values, self.squares)

    def forward(self, A: Any) -> Any:
        """Return ``F(A)``."""
        own = A.conj() if self.basis.conjugate else A
        others = [np.vdot(each, A).real.reshape(1) for each in self.others]
        return np.concatenate([self.multiples * self.basis.kind.forward(own), *others])

    def adjoint(self, y: Any) -> Any:
        """Return ``F*(y)``."""
        count = self.basis.squares.size
        found = self.basis.kind.adjoint(self.multiples * y[:count])
        found = found.conj() if self.basis.conjugate else found
        for k, each in enumerate(self.others):
            found = found + y[count + k] * each
        return found


MAX_OTHERS = 4
"""Readings of other rows up to which each is a matrix on the device."""


def at_work(rows: Sensing) -> Any:
    """Return the rows for steps: on the device that their kind names, if they can be there."""
    kind: Any = rows.kind.parts[0] if isinstance(rows.kind, Stack) else rows.kind
    if not getattr(kind, "works_there", False) or rows.m > kind.m + MAX_OTHERS:
        return rows.at_work()
    basis = known_basis(rows)
    return rows.at_work() if basis is None else OnDevice(rows.on_numpy(), basis)


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
    term : ProximalTerm
    normal : ZStep
    bounds : ConsensusBounds
    gap, asked : float
        The relative gap that is aimed at, and the one that was asked for.
    pull : array of shape (N,) or None
        ``F*(w b) + alpha P`` where no reading has an interval and the normal matrix is diagonal:
        then the cost is part of the step in Z, and readings need no copies.
    """

    inner: squares.SquaresProgram
    term: ProximalTerm
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
    inner = squares.prepare(problem, work=at_work)
    if inner is not None:
        return program_of(inner)
    inner = squares.prepare(problem, nearest=True, work=at_work)
    return None if inner is None else _of_term(inner)


def _of_term(inner: SquaresProgram) -> ConsensusProgram | None:
    """The program of other terms; None where A is not tied to the readings and a trace alone."""
    question, cone = inner.question, inner.cone
    basis = known_basis(inner.F) if cone.psd else None
    if basis is None or cone.trace is None or np.count_nonzero(question.hard) > 1:
        return None
    term: Any = question.term.split(question, inner.scale, inner.unit)
    if term is None:
        return None
    if inner.F.waits:
        held = {each.name: getattr(term, each.name) for each in fields(term)}
        there = {k: inner.F.placed(v) for k, v in held.items() if isinstance(v, np.ndarray)}
        term = replace(term, **there)
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
