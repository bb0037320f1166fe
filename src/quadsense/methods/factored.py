"""A positive semidefinite fit of low rank, by descent on its factor."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from quadsense.arrays import to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.methods.base import Claim, Problem
from quadsense.methods.factor import descent
from quadsense.methods.factor.state import FactoredState, Phase, message
from quadsense.methods.steps import Stepped, own


class Factored(Stepped):
    """``A = X X*`` with X of shape (n, r): spectral start, descent, restarts (see `factor`).

    Not finding a fit proves nothing: the problem is not convex in X.
    """

    name: ClassVar[str] = "factored"
    options: ClassVar[frozenset[str]] = frozenset({"max_restarts"})

    def start(self, problem: Problem) -> FactoredState:
        """The spectral start, or the factor of an earlier answer."""
        U, b, delta = problem.rows.as_numpy(), to_numpy(problem.b), to_numpy(problem.delta)
        self.program = descent.prepare(U, b, delta, problem.rank)
        factor = None if problem.factor_start is None else to_numpy(problem.factor_start)
        return descent.start(
            self.program,
            problem.rank,
            seed=int(problem.seed.integers(2**31)),
            max_restarts=problem.options.max_restarts,
            factor=factor,
        )

    def stride(self, problem: Problem) -> int:
        """Steps worth a few milliseconds."""
        work = 8 * problem.m * problem.rows.n * max(problem.rank or 1, 1)
        return max(1, min(20, 100_000_000 // work))

    def advance(self, problem: Problem, state: FactoredState, steps: int) -> FactoredState:
        """At most so many descent steps on."""
        return descent.advance(self.program, state, steps)

    def claim(self, problem: Problem, state: FactoredState) -> Claim | None:
        """Met, or out of starts."""
        if state.phase is Phase.MET:
            return Claim("met")
        return Claim("stalled", message(state)) if state.finished else None

    def matrix(self, problem: Problem, state: FactoredState) -> SensedMatrix:
        """``X X*``."""
        return SensedMatrix.from_factor(own(problem, np.ascontiguousarray(descent.factor(state))))
