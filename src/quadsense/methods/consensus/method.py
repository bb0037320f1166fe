"""The method: what the loop asks of consensus ADMM."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.intervals import EPS
from quadsense.core.matrix import SensedMatrix
from quadsense.methods.balance import UNNOTICED_SHARE, balanced
from quadsense.methods.base import (
    COLD,
    LENIENT,
    SHORT_STRIDE_FLOPS,
    Problem,
    Stepped,
    Warm,
    nothing,
    own,
)
from quadsense.methods.consensus import ConsensusTraits, steps
from quadsense.methods.consensus.program import ConsensusProgram, prepare
from quadsense.methods.consensus.steps import ConsensusState
from quadsense.methods.least_squares.bounds import SquaresVerdict
from quadsense.methods.least_squares.face import with_trace
from quadsense.vocabulary import Claim, because

LEVEL_SHARE = 1e-8
"""Share of the cost by which the bound is lowered, so that T is definite in spite of rounding."""

PRODUCTS = 5.0
"""Products of a step."""


@dataclass(frozen=True)
class PreparedConsensus:
    """The problem, and its question brought to one scale; None where it is of another kind."""

    problem: Problem
    asked: ConsensusProgram | None


class Consensus(ConsensusTraits, Stepped):
    """Copies of the readings in their intervals and of A in its cone, tied by least squares."""

    def prepare(self, problem: Problem) -> PreparedConsensus:
        """The question on unit rows, over powers of two."""
        with LENIENT():
            return PreparedConsensus(problem, prepare(problem))

    def start(self, program: PreparedConsensus, warm: Warm = COLD) -> ConsensusState:
        """From what was found before, or from least squares about the prior."""
        asked = program.asked
        if asked is None:
            none = np.empty(0)
            return ConsensusState(
                none,
                none,
                none,
                none,
                none,
                none,
                none,
                none,
                0.0,
                0.0,
                verdict=SquaresVerdict.STALLED,
            )
        inner = asked.inner
        with LENIENT():
            prior = inner.question.prior
            near = prior * np.eye(inner.cone.n) if np.ndim(prior) == 0 else prior
            if warm.fit is not None:
                near = to_numpy(warm.fit.to_dense())
            z = inner.cone.pack(inner.cone.placed(np.asarray(near, inner.cone.dtype)))
            dual = None
            if warm.dual is not None and np.shape(warm.dual) == (inner.question.m,):
                dual = inner.F.placed(np.asarray(warm.dual) / (inner.weight * inner.scale))
            return steps.start(asked, z / inner.scale, warm.fit is not None, dual)

    def stride(self, program: PreparedConsensus) -> int:
        """One step, or some short ones."""
        if program.asked is None:
            return 1
        cost = program.asked.inner.cost
        work = PRODUCTS * cost.product_flops + 0.5 * cost.cone.flops
        return max(1, min(steps.STEPS_PER_LOOK, int(SHORT_STRIDE_FLOPS / work)))

    def advance(
        self, program: PreparedConsensus, state: ConsensusState, count: int
    ) -> ConsensusState:
        """Return the state after at most `count` more steps."""
        with LENIENT():
            return state if program.asked is None else steps.advance(program.asked, state, count)

    def correct(
        self, program: PreparedConsensus, state: ConsensusState, z: Array, goal: float
    ) -> ConsensusState:
        """Further inside the intervals."""
        return steps.tightened(state)

    def claim(self, program: PreparedConsensus, state: ConsensusState) -> Claim | None:
        """Met or optimal to the gap; otherwise another method continues."""
        if state.verdict is SquaresVerdict.OPEN:
            return None
        if state.verdict is SquaresVerdict.STALLED:
            return Claim("stalled", because("gap_open"))
        if program.problem.target:
            return Claim("met")
        return Claim("optimal", dual=self.dual(program, state))

    def dual(self, program: PreparedConsensus, state: ConsensusState) -> Vector | None:
        """y of the best bound, for the unit rows."""
        asked, shown = program.asked, state.shown
        if asked is None or shown is None or not np.isfinite(shown.lower):
            return None
        inner, problem = asked.inner, program.problem
        with LENIENT():
            y = to_numpy(shown.y).copy()
            if inner.trace_row is not None:
                square, trace = float(inner.F.squares[inner.trace_row]), inner.cone.trace
                room = LEVEL_SHARE * abs(shown.cost) / trace if trace else 0.0
                room += 2.0 * inner.cone.n * EPS * abs(shown.level)  # rounding of T
                y[inner.trace_row] = (shown.level + room) * inner.cone.n / square
            y *= inner.weight * inner.scale
            if inner.cost.alpha or asked.term.smooth:
                return y  # the distance, or the trace, makes up for what F*(y) misses
            question, rows = inner.question, problem.rows
            A = np.asarray(inner.scale * inner.cone.unpack(shown.x))
            loss = UNNOTICED_SHARE * asked.gap * abs(shown.cost) * inner.unit
            return balanced(rows.on_numpy(), question, y, A, loss)

    def matrix(self, program: PreparedConsensus, state: ConsensusState) -> SensedMatrix:
        """``X X*``, or A itself where there is no cone."""
        asked, shown, problem = program.asked, state.shown, program.problem
        if asked is None or shown is None:
            return self.first(problem)
        inner = asked.inner
        with LENIENT():
            if not inner.cone.psd:
                return SensedMatrix.from_dense(
                    own(problem, inner.scale * inner.cone.unpack(shown.x))
                )
            X = with_trace(inner.cone, inner.cone.factor(shown.x))
            return SensedMatrix.from_factor(own(problem, np.sqrt(inner.scale) * X))

    def first(self, problem: Problem) -> SensedMatrix:
        """A = 0 in the cone, else A_1."""
        question = problem.question
        return nothing(problem) if question is None or question.psd else problem.first()
