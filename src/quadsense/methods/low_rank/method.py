"""A fit of low rank, positive semidefinite or of given signs, by descent on its factor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from quadsense.arrays import Array, is_numpy, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.measurements.dense import Dense
from quadsense.measurements.sensing import Sensing
from quadsense.measurements.sparse import Sparse
from quadsense.methods.base import COLD, Problem, Warm
from quadsense.methods.low_rank import descent
from quadsense.methods.low_rank.asked import Asked, asked
from quadsense.methods.low_rank.balance import balanced
from quadsense.methods.low_rank.choice import LIFT, takes_normal_equations
from quadsense.methods.low_rank.given import in_range, leading_factor
from quadsense.methods.low_rank.program import Program, prepare
from quadsense.methods.low_rank.state import FactoredState, Phase, why_not
from quadsense.methods.low_rank.traits import LowRankTraits
from quadsense.methods.steps import Stepped, nothing, own
from quadsense.vocabulary import Claim, because

# Entries of X below this share of the largest: in A they are less than the square of rounding.
_NOTHING = 2.0**-120

THIN, LONG = 0.05, 50
"""Share of nonzero entries up to which dense rows, from this length on, are held sparse."""


@dataclass(frozen=True)
class FactoredProgram:
    """The problem, what is asked of the factor, and what the descent reads of it."""

    problem: Problem
    asked: Asked
    inner: Program | None


class LowRank(LowRankTraits, Stepped):
    """``A = X S X*`` with X of shape (n, r): spectral start, descent, restarts (see `factor`).

    Not finding a fit proves nothing: the problem is not convex in X. Without a tolerance least
    squares is brought to rest, which proves nothing either.
    """

    def prepare(self, problem: Problem) -> FactoredProgram:
        """What the descent reads.

        Readings are scaled by a power of four, exactly, to at most 1, and X by its root.
        """
        what, inner = asked(problem), None
        if what.b.size:
            F = what.on(problem.rows)
            if takes_normal_equations(F, (problem.rank or 1) + LIFT):  # too small for a device
                F = what.on(problem.rows.on_numpy())
            inner = prepare(
                _thinned(F),
                what.b,
                what.delta,
                problem.rank,
                bounds=what.bounds,
                signs=problem.signs,
                wanted=what.wanted,
                target=problem.target,
            )
        return FactoredProgram(problem, what, inner)

    def start(self, program: FactoredProgram, warm: Warm = COLD) -> FactoredState:
        """The spectral start, or the factor of an earlier answer or of a matrix that was given."""
        problem, inner, exponent = program.problem, program.inner, program.asked.exponent
        if inner is None:
            return descent.at_zero(problem.rows.n, problem.rank or 1)
        factor = None
        with np.errstate(over="ignore", under="ignore"):
            if warm.factor is not None and problem.signs is None:
                factor = in_range(to_numpy(warm.factor), exponent)
            elif warm.fit is not None:
                factor = leading_factor(inner, warm.fit, exponent, problem.rank)
        return descent.start(
            inner,
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
        """Return the state after at most `steps` more descent steps."""
        return state if program.inner is None else descent.advance(program.inner, state, steps)

    def claim(self, program: FactoredProgram, state: FactoredState) -> Claim | None:
        """Met, at rest, or out of starts; with a candidate proof where no rank seems to fit."""
        if state.phase is Phase.MET:
            return Claim("met" if program.problem.target else "local")
        if state.phase is Phase.LOCAL:
            return Claim("local", because("at_rest", starts=state.starts + 1))
        if not state.finished:
            return None
        if not program.problem.target:
            return Claim("stalled", because("restless", starts=state.starts + 1))
        dual = None
        if state.no_rank_fits and program.inner is not None:
            y = descent.farkas_vector(program.inner, state)
            dual = y
            if program.asked.index is not None:
                dual = np.zeros(program.problem.m)
                dual[program.asked.index] = y
        return Claim("stalled", why_not(state), dual=dual)

    def correct(
        self, program: FactoredProgram, state: FactoredState, z: Array, goal: float
    ) -> FactoredState:
        """The same fit with a tighter goal: the loop bounds its rounding in another way."""
        return state if program.inner is None else descent.tightened(program.inner, state, goal)

    def matrix(self, program: FactoredProgram, state: FactoredState) -> SensedMatrix:
        """``X S X*``."""
        X = descent.factor(state)
        if program.inner is not None:
            X = balanced(program.inner, X.T).T
        X = np.ldexp(1.0, program.asked.exponent) * X
        # Ranks that are not needed shrink for ever: what is left of them only underflows.
        X[np.abs(X) < _NOTHING * np.max(np.abs(X), initial=0.0)] = 0.0
        signs = None
        if program.inner is not None:
            signs = program.inner.signs_of(X.shape[1])
        elif program.problem.signs is not None:
            signs = np.repeat([1.0, -1.0], program.problem.signs)
        return SensedMatrix.from_factor(own(program.problem, np.ascontiguousarray(X)), signs)

    def first(self, problem: Problem) -> SensedMatrix:
        """A = 0."""
        return nothing(problem)


def _thinned(F: Sensing) -> Sensing:
    """The rows held sparse where nearly all entries are 0: steps for those are others."""
    kind = F.kind
    if not F.rank_one or not isinstance(kind, Dense) or F.n < LONG:
        return F
    U = kind.U
    if not is_numpy(U) or U.dtype.itemsize < 8:
        return F
    most = THIN * U.size
    some = U[: int(2 * THIN * len(U)) + 1]  # enough to tell of rows that are full
    if np.count_nonzero(some) > most or np.count_nonzero(U) > most:
        return F
    factors = 1.0 if F.factors is None else F.factors
    return Sensing(Sparse(sp.csr_array(U)), F.conjugate, factors)
