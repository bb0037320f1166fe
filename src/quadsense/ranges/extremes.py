"""Least and largest ``<C, A>`` over the fits, by the interior-point kernel: no proofs yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.core.records import cached_property
from quadsense.measurements import Measurements
from quadsense.methods.conic import finish
from quadsense.methods.conic.finish import asking, of_equalities, polished
from quadsense.methods.conic.many import Many
from quadsense.methods.conic.program import KernelProgram, prepare
from quadsense.methods.conic.solve import is_inside
from quadsense.methods.conic.start import Inside, balanced, start
from quadsense.methods.conic.steps import KernelState, advance, measured
from quadsense.proofs.exact import user_dual
from quadsense.proofs.lift import directions, flattest
from quadsense.result.values import evaluate

STEPS = 100
"""Of the kernel at most: it takes ten to twenty, and stops where rounding does."""

IDLE = 8
"""Steps without progress after which it is left."""

NOTHING = 1e-9
"""Gap relative to the size of ``<C, A>`` at which an end is as good as it gets."""

DEFINITE = 1e-10
"""Least eigenvalue relative to the largest of a matrix that is positive definite beyond doubt."""

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
    kept : dict
        Bounds on A, from proof to proof.
    """

    def __init__(self, data: Measurements, psd: bool, fit: SensedMatrix | None) -> None:
        assert data.ends is not None
        self.data = data
        self.fit = fit if fit is not None and self._fits(fit) else None
        self.suspicions: list[Vector] = []
        self.kept: dict[bytes, float] = {}
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
        rows, question = self.program.F, asking(self.program)
        if not Many.suits(rows, question):
            return [None] * len(matrices)
        index, found = self.program.index, []
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            goals = [sign * C for C in matrices for sign in (1.0, -1.0)]
            for C, end in zip(goals, Many(rows, question).solve(matrices, share), strict=True):
                y, alone = np.zeros(self.data.m), of_equalities(rows, question, C)
                y[index] = end.y if alone is None else alone
                fits = end.settled and self._fits(SensedMatrix.from_dense(end.A))
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
        for d in self._directions(program):
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

    @staticmethod
    def _directions(program: KernelProgram) -> Iterator[Vector]:
        question = asking(program)
        yield from directions(program.F, question)
        if not program.F.rank_one:
            yield flattest(program.F, question)

    def extreme(self, run: Run) -> Extreme:
        """What has been reached."""
        with np.errstate(all="ignore"):
            y = finish.dual(run.program, run.state.at)
            if not run.program.psd:
                y = self._alone(run.program, polished(run.program, y))
            y = user_dual(self.data, y)
            A, X = finish.matrix(run.program, run.state.at)
            if A is None:
                assert X is not None
                A = X @ X.conj().T
        dual = y if np.isfinite(y).all() else None
        if not np.isfinite(A).all():
            return Extreme(dual, None, None)
        if self._fits(SensedMatrix.from_dense(A)):
            self.fit = SensedMatrix.from_dense(A)
            return Extreme(dual, A, A)
        if dual is not None:
            self.suspicions.append(dual)
        return Extreme(dual, None, A)

    @staticmethod
    def _alone(program: KernelProgram, y: Vector) -> Vector:
        """The vector on equalities alone, where they say what ``<C, A>`` is; else y."""
        C = np.asarray(program.question.C)
        alone = of_equalities(program.F, asking(program), C)
        if alone is None:
            return y
        whole = np.zeros_like(y)
        whole[program.index] = alone
        return whole

    def _fits(self, matrix: SensedMatrix) -> bool:
        return bool(evaluate(self.data, matrix).met.all())


class Run:
    """The kernel on one C.

    Parameters
    ----------
    program : KernelProgram
    begin : Inside or None
        Where to begin, if that is known.
    """

    def __init__(self, program: KernelProgram, begin: Inside | None) -> None:
        self.program = program
        with np.errstate(over="ignore", under="ignore"):
            at = start(program, None if begin is None else begin.A)
            at = at if begin is None else balanced(program, at, begin)
            self.state: KernelState = measured(program, at, 0)

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
        if not is_inside(self.program, state):
            return False
        size = abs(state.value) + float(np.linalg.norm(self.program.C)) * 1e-3
        enough = share * min(width / self.program.cost, size)
        return state.apart <= max(enough, NOTHING * size)
