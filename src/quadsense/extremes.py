"""Least and largest ``<C, A>`` over the fits, by the interior-point kernel: no proofs yet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.certificate import evaluate
from quadsense.core import packed
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.measurements import Measurements
from quadsense.methods.barrier import finish
from quadsense.methods.barrier.many import Many
from quadsense.methods.barrier.point import Point
from quadsense.methods.barrier.program import Program, prepare
from quadsense.methods.barrier.start import start
from quadsense.methods.barrier.steps import State, advance, measured
from quadsense.methods.barrier.verdict import inside
from quadsense.proofs.definite import cholesky, solve
from quadsense.proofs.exact import user_dual
from quadsense.proofs.lift import directions
from quadsense.watch import look

STEPS = 100
"""Of the kernel at most: it takes ten to twenty, and stops where rounding does."""

IDLE = 8
"""Steps without progress after which it is left."""

NOTHING = 1e-9
"""Gap beside the size of ``<C, A>`` at which an end is as good as it gets."""

DEFINITE = 1e-10
"""Least eigenvalue beside the largest of a matrix that is positive definite beyond doubt."""

MOST_UNKNOWNS = 2000
"""Up to which a vector is polished: its cost is that of a step."""

ROUNDED, POLISHINGS = 1e-15, 4
"""Residual beside its parts at which that is of no use, and how often."""

MISSED = 1e-7
"""Residuals, in units of the readings, with which a fit may be tried."""


@dataclass(frozen=True)
class Extreme:
    """What the kernel has of one end.

    Attributes
    ----------
    dual : ndarray of shape (m,) or None
        For the user's rows.
    fit : ndarray of shape (n, n) or None
        A that fits, surely, with the least value found.
    ray : ndarray of shape (n, n) or None
        Where the kernel went, if that is far.
    """

    dual: Vector | None
    fit: Array | None
    ray: Array | None


class Extremes:
    """Both ends for many C: rows, and what is found out of them, are shared.

    Parameters
    ----------
    data : Measurements
    psd : bool
    fit : SensedMatrix or None
        A fit that is known.

    Attributes
    ----------
    fit : SensedMatrix or None
        The last fit found.
    suspicions : list of ndarray
        Vectors, for the user's rows, of runs that found no fit.
    """

    def __init__(self, data: Measurements, psd: bool, fit: SensedMatrix | None) -> None:
        assert data.ends is not None
        self.data, self.fit = data, fit
        self.suspicions: list[Vector] = []
        nothing = np.zeros(data.m)
        ends = data.unit_ends
        question = Question(
            "within", ends.lo, ends.hi, np.ones(data.m), nothing, np.zeros(data.m, bool),
            np.zeros((data.n, data.n)), psd=psd,
        )  # fmt: skip
        self.program = prepare(data.unit_rows.on_numpy(), question)

    @property
    def nothing_asks(self) -> bool:
        """Whether no row asks for anything."""
        return self.program.index.size == 0

    def at_once(self, matrices: list[Array], share: float) -> list[list[Extreme] | None]:
        """Both extremes of every ``<C, A>`` where these are small: None what is left to `runs`."""
        rows, question = self.program.F, _of(self.program)
        if not Many.suits(rows, question):
            return [None] * len(matrices)
        index, found = self.program.index, []
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            for end in Many(rows, question).solve(matrices, share):
                y = np.zeros(self.data.m)
                y[index] = end.y
                fits = end.settled and self._fits(end.A)
                fit = end.A if fits else None
                found.append(Extreme(user_dual(self.data, y), fit, None) if fits else None)
                if fits:
                    self.fit = SensedMatrix.from_dense(end.A)
        pairs = zip(found[0::2], found[1::2], strict=True)
        return [[low, high] if low and high else None for low, high in pairs]

    def runs(self, C: Array) -> list[Run]:
        """The kernel on ``<C, A>`` and on ``<-C, A>``, not yet begun."""
        programs = [self.program.with_linear(sign * C) for sign in (1.0, -1.0)]
        return [Run(program, self._inside if program.psd else None) for program in programs]

    def improve(self, runs: list[Run], share: float) -> None:
        """Go on until both ends are within so much of their distance."""
        for _ in range(STEPS):
            width = -(runs[0].value + runs[1].value)
            settled = all(run.feasible for run in runs)
            enough = width if settled and width > 0.0 else 0.0
            busy = [run for run in runs if not run.is_done(share, enough)]
            if not busy:
                break
            for run in busy:
                run.advance()

    @cached_property
    def _inside(self) -> Inside | None:
        """Where to begin: without C the kernel goes to the middle."""
        program = self.program.with_linear(0.0 * self.program.C)
        for d in directions(program.F, _of(program)):
            W = to_numpy(program.F.adjoint(d))
            values = np.linalg.eigvalsh(W)
            if values[0] > DEFINITE * values[-1]:
                break
        else:
            return None
        run = Run(program, None)
        while not run.stuck and run.state.iteration < STEPS:
            run.advance()
            if run.state.missed == 0.0:
                return Inside(run.state.at.A, d, W)
        return None

    def extreme(self, run: Run) -> Extreme:
        """What has been reached."""
        with np.errstate(all="ignore"):
            y = finish.dual(run.program, run.state.at)
            if not run.program.psd:
                y = polished(run.program, y)
            y = user_dual(self.data, y)
            A, X = finish.matrix(run.program, run.state.at)
            if A is None:
                assert X is not None
                A = X @ X.conj().T
        dual = y if np.isfinite(y).all() else None
        if not np.isfinite(A).all():
            return Extreme(dual, None, None)
        if self._fits(A):
            self.fit = SensedMatrix.from_dense(A)
            return Extreme(dual, A, A)
        if dual is not None:
            self.suspicions.append(dual)
        return Extreme(dual, None, A)

    def _fits(self, A: Array) -> bool:
        return bool(evaluate(self.data, SensedMatrix.from_dense(A)).met.all())


@dataclass(frozen=True)
class Inside:
    """A in the middle, and d with ``W = F*(d)`` positive definite, in units of the program."""

    A: Array
    d: Vector
    W: Array


class Run:
    """The kernel on one C.

    Parameters
    ----------
    program : Program
    begin : Inside or None
        Where to begin, if that is known.
    """

    def __init__(self, program: Program, begin: Inside | None) -> None:
        self.program = program
        with np.errstate(over="ignore", under="ignore"):
            at = start(program, None if begin is None else begin.A)
            at = at if begin is None else balanced(program, at, begin)
            self.state: State = measured(program, at, 0)

    def advance(self) -> None:
        """Take a step."""
        self.state = advance(self.program, self.state)

    @property
    def stuck(self) -> bool:
        """Whether nothing changes any more."""
        return self.state.stuck or self.state.idle >= IDLE

    @property
    def value(self) -> float:
        """``<C, A>``, in the user's units."""
        return self.state.value * self.program.cost

    @property
    def feasible(self) -> bool:
        """Whether A nearly fits."""
        return self.state.missed <= MISSED

    def is_done(self, share: float, width: float) -> bool:
        """Whether the gap is that share of the width, or of the size of ``<C, A>`` if less."""
        state = self.state
        if self.stuck:
            return True
        if not inside(self.program, state):
            return False
        size = abs(state.value) + float(np.linalg.norm(self.program.C)) * 1e-3
        enough = share * min(width / self.program.cost, size)
        return state.apart <= max(enough, NOTHING * size)


def balanced(program: Program, at: Point, begin: Inside) -> Point:
    """The point with multipliers that satisfy ``C + F*(y) = S``, S positive definite.

    Along d, far enough that S is well inside; without, the kernel may never come to such a y where
    some of what the rows see is seen weakly.
    """
    root = np.linalg.inv(np.linalg.cholesky(begin.W))
    values = np.linalg.eigvalsh(root @ program.C @ root.conj().T)
    t = 2.0 * max(0.0, -float(values[0])) + 0.1 * float(np.max(np.abs(values)))
    y, S = t * begin.d, program.C + t * begin.W
    mean = float(np.vdot(S, at.A).real) / len(S)
    upper, lower = program.finite
    both = np.minimum(mean / np.minimum(at.slacks[0], at.slacks[1]), t) * (upper & lower)
    duals = np.stack([np.maximum(y, 0.0) + both, np.maximum(-y, 0.0) + both]) * program.finite
    # Rows of one end that d does not press on: a share of S for all of them.
    idle = program.finite & (duals == 0.0)
    if idle.any():
        signs = idle[0].astype(np.float64) - idle[1]
        spread = np.linalg.eigvalsh(root @ to_numpy(program.F.adjoint(signs)) @ root.conj().T)
        least = float(np.linalg.eigvalsh(root @ S @ root.conj().T)[0])
        each = 0.25 * least / max(float(np.max(np.abs(spread))), 1e-300)
        duals = duals + each * idle
    held = np.where(program.equal, y, 0.0)
    rest = np.where(program.equal, 0.0, duals[0] - duals[1])
    S = program.C + to_numpy(program.F.adjoint(rest + held))
    return replace(at, S=0.5 * (S + S.conj().T), duals=duals, held=held)


def polished(program: Program, y: Vector) -> Vector:
    """The vector moved a little until ``C + F*(y)`` vanishes to rounding.

    Each entry in proportion to itself, so that none leans on an end that is not there.
    """
    question, F, index = _of(program), program.F, program.index
    z, C = y[index], np.asarray(program.question.C)
    if not np.isfinite(z).all() or F.unknowns > MOST_UNKNOWNS:
        return y
    sizes = np.abs(z)
    typical = float(np.mean(sizes)) or 1.0
    freedom = sizes + 1e-3 * typical * (np.isfinite(question.lo) & np.isfinite(question.hi))
    freedom[question.equal] = typical + float(np.max(sizes, initial=0.0))
    rest = C + to_numpy(F.adjoint(z))
    least = ROUNDED * (float(np.linalg.norm(C)) + float(np.sum(sizes)))
    if float(np.linalg.norm(rest)) <= least:
        return y
    M = F.normal(freedom)
    look(len(M) ** 3 / 3.0)
    M[np.diag_indices(len(M))] += 1e-14 * float(np.trace(M)) / len(M)
    factor = cholesky(M, overwrite=True)
    if factor is None:
        return y
    for _ in range(POLISHINGS):
        X = packed.unpack(solve(factor, packed.pack(rest)), F.n, rest.dtype)
        moved = z - freedom * to_numpy(F.forward(X))
        after = C + to_numpy(F.adjoint(moved))
        if not float(np.linalg.norm(after)) < 0.5 * float(np.linalg.norm(rest)):
            break
        z, rest = moved, after
    better = y.copy()
    better[index] = z
    return better


def _of(program: Program) -> Question:
    """The question on the rows that ask."""
    question, index = program.question, program.index
    return replace(
        question, lo=question.lo[index], hi=question.hi[index], weights=question.weights[index],
        reading=question.reading[index], hard=question.hard[index],
    )  # fmt: skip
