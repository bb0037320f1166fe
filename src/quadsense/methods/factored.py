"""A positive semidefinite fit of low rank, by descent on its factor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quadsense.arrays import Array, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.methods.base import COLD, Problem, Warm
from quadsense.methods.factor import descent
from quadsense.methods.factor.given import leading_factor
from quadsense.methods.factor.program import Program, prepare
from quadsense.methods.factor.state import FactoredState, Phase, why_not
from quadsense.methods.steps import Stepped, nothing, own
from quadsense.methods.traits.factored import FactoredTraits
from quadsense.vocabulary import Claim

# Tolerances are kept within this factor of the largest reading, so that squares of ratios do not
# overflow: wider ones are met anyway, and narrower ones no float64 can certify.
_WIDEST = 2.0**500
# Entries of X below this share of the largest: in A they are less than the square of rounding.
_NOTHING = 2.0**-120


@dataclass(frozen=True)
class FactoredProgram:
    """The problem, what the descent reads of it, and the exponent of two that scales X."""

    problem: Problem
    inner: Program
    exponent: int


class Factored(FactoredTraits, Stepped):
    """``A = X X*`` with X of shape (n, r): spectral start, descent, restarts (see `factor`).

    Not finding a fit proves nothing: the problem is not convex in X.
    """

    def prepare(self, problem: Problem) -> FactoredProgram:
        """What the descent reads.

        Readings are scaled by a power of four, exactly, to at most 1, and X by its root.
        """
        F, b, delta = problem.rows.on_numpy(), to_numpy(problem.b), to_numpy(problem.delta)
        exponent = int(np.ceil(np.frexp(np.max(np.abs(b)))[1] / 2))
        with np.errstate(over="ignore", under="ignore"):
            b = np.ldexp(b, -2 * exponent)
            delta = np.clip(np.ldexp(delta, -2 * exponent), 1.0 / _WIDEST, _WIDEST)
        return FactoredProgram(problem, prepare(F, b, delta, problem.rank), exponent)

    def start(self, program: FactoredProgram, warm: Warm = COLD) -> FactoredState:
        """The spectral start, or the factor of an earlier answer or of a matrix that was given."""
        problem, factor = program.problem, None
        with np.errstate(over="ignore", under="ignore"):
            if warm.factor is not None:
                factor = to_numpy(warm.factor) * 2.0**-program.exponent
            elif warm.fit is not None:
                factor = leading_factor(program.inner, warm.fit, program.exponent, problem.rank)
        return descent.start(
            program.inner,
            problem.rank,
            seed=problem.seed,
            max_restarts=problem.options.max_restarts,
            factor=factor,
        )

    def stride(self, program: FactoredProgram) -> int:
        """Steps worth a few milliseconds."""
        problem = program.problem
        work = 8 * problem.m * problem.rows.n * max(problem.rank or 1, 1)
        return max(1, min(20, 100_000_000 // work))

    def advance(self, program: FactoredProgram, state: FactoredState, steps: int) -> FactoredState:
        """At most so many descent steps on."""
        return descent.advance(program.inner, state, steps)

    def claim(self, program: FactoredProgram, state: FactoredState) -> Claim | None:
        """Met, or out of starts; with a candidate proof where no rank seems to fit."""
        if state.phase is Phase.MET:
            return Claim("met")
        if not state.finished:
            return None
        dual = descent.farkas_vector(program.inner, state) if state.no_rank_fits else None
        return Claim("stalled", why_not(state), dual=dual)

    def correct(
        self, program: FactoredProgram, state: FactoredState, z: Array, goal: float
    ) -> FactoredState:
        """The same fit with a tighter goal: the loop bounds its rounding in another way."""
        return descent.tightened(program.inner, state, goal)

    def matrix(self, program: FactoredProgram, state: FactoredState) -> SensedMatrix:
        """``X X*``."""
        X = np.ldexp(1.0, program.exponent) * descent.factor(state)
        # Ranks that are not needed shrink for ever: what is left of them only underflows.
        X[np.abs(X) < _NOTHING * np.max(np.abs(X))] = 0.0
        return SensedMatrix.from_factor(own(program.problem, np.ascontiguousarray(X)))

    def first(self, problem: Problem) -> SensedMatrix:
        """A = 0."""
        return nothing(problem)
