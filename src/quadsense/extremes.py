"""Least and largest ``<C, A>`` over the fits, by the interior-point kernel: no proofs yet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quadsense.arrays import Array, Vector
from quadsense.certificate import evaluate
from quadsense.core.matrix import SensedMatrix
from quadsense.core.question import Question
from quadsense.measurements import Measurements
from quadsense.methods.barrier import finish
from quadsense.methods.barrier.program import Program, prepare
from quadsense.methods.barrier.start import start
from quadsense.methods.barrier.steps import State, advance, measured
from quadsense.proofs.exact import user_dual

STEPS = 100
"""Of the kernel at most: it takes ten to twenty, and stops where rounding does."""

IDLE = 4
"""Steps without progress after which it is left."""

NOTHING = 1e-9
"""Gap beside the size of ``<C, A>`` at which an end is as good as it gets."""

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
        self._centre: Array | None = None  # in units of the program, well inside
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

    def runs(self, C: Array) -> list[Run]:
        """The kernel on ``<C, A>`` and on ``<-C, A>``, not yet begun."""
        return [Run(self.program.with_linear(sign * C)) for sign in (1.0, -1.0)]

    def improve(self, runs: list[Run], share: float) -> None:
        """Go on until both ends are within so much of their distance."""
        for _ in range(STEPS):
            width = -(runs[0].value + runs[1].value)
            settled = all(run.feasible for run in runs)
            enough = share * width if settled and width > 0.0 else 0.0
            busy = [run for run in runs if not run.is_done(enough)]
            if not busy:
                lost = [run for run in runs if not run.feasible and not run.again]
                if self._centre is None or not lost:
                    break
                for run in lost:
                    run.restart(self._centre)
                continue
            for run in busy:
                run.advance()
                if self._centre is None and run.state.missed == 0.0:
                    self._centre = run.state.at.A

    def extreme(self, run: Run) -> Extreme:
        """What has been reached."""
        with np.errstate(all="ignore"):
            y = user_dual(self.data, finish.dual(run.program, run.state.at))
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


class Run:
    """The kernel on one C.

    Parameters
    ----------
    program : Program
    """

    def __init__(self, program: Program) -> None:
        self.program, self.again = program, False
        self._begin(None)

    def restart(self, A: Array) -> None:
        """Begin again, inside of the intervals."""
        self.again = True
        self._begin(A)

    def _begin(self, A: Array | None) -> None:
        with np.errstate(over="ignore", under="ignore"):
            self.state: State = measured(self.program, start(self.program, A), 0)

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

    def is_done(self, enough: float) -> bool:
        """Whether the gap is small enough, or nothing changes any more."""
        state = self.state
        if self.stuck:
            return True
        if not self.feasible:
            return False
        size = abs(state.value) + float(np.linalg.norm(self.program.C)) * 1e-3
        return state.apart <= max(enough / self.program.cost, NOTHING * size)
