"""A positive semidefinite fit of low rank, by descent on its factor."""

from __future__ import annotations

import numpy as np

from quadsense.arrays import Array, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.methods.base import Problem
from quadsense.methods.factor import descent
from quadsense.methods.factor.program import prepare
from quadsense.methods.factor.state import FactoredState, Phase, why_not
from quadsense.methods.steps import Stepped, own
from quadsense.methods.traits.factored import FactoredTraits
from quadsense.vocabulary import Claim

# Tolerances are kept within this factor of the largest reading, so that squares of ratios do not
# overflow: wider ones are met anyway, and narrower ones no float64 can certify.
_WIDEST = 2.0**500
# Entries of X below this share of the largest: in A they are less than the square of rounding.
_NOTHING = 2.0**-120


class Factored(FactoredTraits, Stepped):
    """``A = X X*`` with X of shape (n, r): spectral start, descent, restarts (see `factor`).

    Not finding a fit proves nothing: the problem is not convex in X.
    """

    def start(self, problem: Problem) -> FactoredState:
        """The spectral start, or the factor of an earlier answer.

        Readings are scaled by a power of four, exactly, to at most 1, and X by its root.
        """
        F, b, delta = problem.rows.on_numpy(), to_numpy(problem.b), to_numpy(problem.delta)
        self.exponent = int(np.ceil(np.frexp(np.max(np.abs(b)))[1] / 2))
        with np.errstate(over="ignore", under="ignore"):
            b = np.ldexp(b, -2 * self.exponent)
            delta = np.clip(np.ldexp(delta, -2 * self.exponent), 1.0 / _WIDEST, _WIDEST)
            factor = None
            if problem.factor_start is not None:
                factor = to_numpy(problem.factor_start) * 2.0**-self.exponent
        self.program = prepare(F, b, delta, problem.rank)
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
        """Met, or out of starts; with a candidate proof where no rank seems to fit."""
        if state.phase is Phase.MET:
            return Claim("met")
        if not state.finished:
            return None
        dual = descent.farkas_vector(self.program, state) if state.no_rank_fits else None
        return Claim("stalled", why_not(state), dual=dual)

    def correct(
        self, problem: Problem, state: FactoredState, z: Array, goal: float
    ) -> FactoredState:
        """The same fit with a tighter goal: the loop bounds its rounding in another way."""
        return descent.tightened(self.program, state, goal)

    def matrix(self, problem: Problem, state: FactoredState) -> SensedMatrix:
        """``X X*``."""
        X = np.ldexp(1.0, self.exponent) * descent.factor(state)
        # Ranks that are not needed shrink for ever: what is left of them only underflows.
        X[np.abs(X) < _NOTHING * np.max(np.abs(X))] = 0.0
        return SensedMatrix.from_factor(own(problem, np.ascontiguousarray(X)))
