"""Least squares in the cone and within intervals, with both bounds on what it costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import cached_property, changed
from quadsense.methods.balance import UNNOTICED_SHARE, balanced
from quadsense.methods.base import COLD, LENIENT, Problem, Stepped, Warm, nothing, own
from quadsense.methods.consensus.method import Consensus, PreparedConsensus
from quadsense.methods.consensus.program import program_of
from quadsense.methods.consensus.steps import ConsensusState, pulling, start
from quadsense.methods.least_squares import hinge, phases
from quadsense.methods.least_squares.bounds import (
    MAX_ZERO_COST,
    SquaresStage,
    SquaresState,
    SquaresVerdict,
    judge_of,
)
from quadsense.methods.least_squares.program import SquaresProgram, packed, prepare
from quadsense.methods.least_squares.traits import LeastSquaresTraits
from quadsense.methods.traits import GapOptions
from quadsense.vocabulary import Claim, because

MAX_ROUGH_GAP, MAX_ROUGH_UNKNOWNS = 1e-5, 500
"""Relative gap above which, with so few unknowns, another method is to look, unless one is asked
for."""

OVERFLOW_ERRORS = (np.linalg.LinAlgError, ValueError)
"""What NumPy and SciPy raise, each where it meets what is no number any more."""


@dataclass(frozen=True)
class LeastSquaresProgram:
    """The problem, and its question brought to one scale: of either kind, or None of another."""

    problem: Problem
    squares: SquaresProgram | None
    misses: hinge.MissesProgram | None

    @cached_property
    def within(self) -> PreparedConsensus:
        """The same for `consensus`."""
        assert self.squares is not None
        return PreparedConsensus(self.problem, program_of(self.squares, MAX_ROUGH_GAP))


LeastSquaresState: TypeAlias = SquaresState | hinge.MissesState | ConsensusState

WITHIN = Consensus()
"""What goes on where intervals bind over the cone."""


class LeastSquares(LeastSquaresTraits, Stepped):
    """FISTA on the positive semidefinite cone or those of one trace; `consensus` where ends bind.

    The normal matrix is formed once. Without a cone it is factored, and rows are held at the ends
    that bind. See `phases`. Squared misses of intervals, where few of many rows are missed,
    are minimized by `hinge`.
    """

    def prepare(self, problem: Problem) -> LeastSquaresProgram:
        """The question on unit rows, over powers of two, and the normal matrix."""
        with LENIENT():
            return LeastSquaresProgram(problem, prepare(problem), hinge.prepare(problem))

    def start(self, program: LeastSquaresProgram, warm: Warm = COLD) -> LeastSquaresState:
        """Least squares without the cone, brought into it; else A_1, or what came before."""
        with LENIENT():
            inner = program.squares
            if program.misses is not None:
                return hinge.start(program.misses)
            if inner is None:
                return SquaresState(SquaresStage.DIRECT, SquaresVerdict.STALLED)
            cone, prior = inner.cone, inner.question.prior
            near = prior if warm.fit is None or not cone.psd else to_numpy(warm.fit.to_dense())
            try:
                x = packed(cone, near) / inner.scale
                return self._onward(program, phases.start(inner, x))
            except OVERFLOW_ERRORS:
                return SquaresState(SquaresStage.DIRECT, SquaresVerdict.STALLED)

    def stride(self, program: LeastSquaresProgram) -> int:
        """Steps worth some milliseconds."""
        if program.squares is None or not program.squares.cone.psd:
            return 1
        cost = program.squares.cost
        product = 2.0 * cost.cone.size**2 if cost.formed else 2.0 * cost.product_flops
        return max(1, min(20, int(5e7 / (product + cost.cone.flops))))

    def advance(
        self, program: LeastSquaresProgram, state: LeastSquaresState, steps: int
    ) -> LeastSquaresState:
        """Return the state after at most `steps` more steps."""
        end = state.iteration + steps
        with LENIENT():
            try:
                if isinstance(state, hinge.MissesState):
                    assert program.misses is not None
                    return hinge.advance(program.misses, state, steps)
                if program.squares is None:
                    return state
                if isinstance(state, SquaresState):
                    state = phases.advance(program.squares, state, steps)
                    state = self._onward(program, state)
                if (
                    not isinstance(state, ConsensusState)
                    or state.verdict is not SquaresVerdict.OPEN
                ):
                    return state
                return self._polished(
                    program, WITHIN.advance(program.within, state, end - state.iteration)
                )
            except OVERFLOW_ERRORS:
                return changed(state, verdict=SquaresVerdict.STALLED)

    def _onward(
        self, program: LeastSquaresProgram, state: SquaresState
    ) -> SquaresState | ConsensusState:
        """The state, or where intervals bind the first one of `consensus` from there."""
        if state.verdict is not SquaresVerdict.BINDS:
            return state
        asked = program.within.asked
        assert asked is not None and state.point is not None
        return replace(
            start(asked, state.point.x, warm=True, dual=None),
            iteration=state.iteration,
            marked=state.iteration,
        )

    def _polished(
        self, program: LeastSquaresProgram, state: ConsensusState
    ) -> SquaresState | ConsensusState:
        """The state, or where its steps lead no further what Newton's method makes of it."""
        if state.verdict is not SquaresVerdict.STALLED:
            return state
        asked = program.within.asked
        assert asked is not None
        found = phases.polished(asked.inner, state.x, *pulling(asked, state))
        if found is None:
            return state
        return changed(found, iteration=state.iteration)

    def correct(
        self,
        program: LeastSquaresProgram,
        state: LeastSquaresState,
        z: Array,
        goal: float,
    ) -> LeastSquaresState:
        """Further inside the intervals."""
        if isinstance(state, hinge.MissesState):
            return hinge.tightened(state)
        if isinstance(state, ConsensusState):
            return WITHIN.correct(program.within, state, z, goal)
        assert program.squares is not None
        with LENIENT():
            return self._onward(program, phases.tightened(program.squares, state))

    def claim(self, program: LeastSquaresProgram, state: LeastSquaresState) -> Claim | None:
        """Met or optimal to the gap; else another method is to look."""
        if isinstance(state, ConsensusState):
            return WITHIN.claim(program.within, state)
        if state.verdict is SquaresVerdict.OPEN:
            return None
        if state.verdict is SquaresVerdict.STALLED or self._rough(program, state):
            return Claim("stalled", because("gap_open"))
        missed = isinstance(state, hinge.MissesState) and (
            state.cost > 0.0 or state.max_ratio > 1.0
        )
        if program.problem.target and not missed:
            return Claim("met")
        return Claim("optimal", dual=self.dual(program, state))

    def _rough(self, program: LeastSquaresProgram, state: SquaresState | hinge.MissesState) -> bool:
        """Whether the bounds are near enough, but another method would soon have them nearer."""
        small = program.problem.rows.unknowns <= MAX_ROUGH_UNKNOWNS
        asked = program.problem.options.gap
        if isinstance(state, hinge.MissesState) or state.point is None or state.orthogonal:
            return False
        inner = program.squares
        if not small or inner is None:
            return False
        enough = MAX_ROUGH_GAP if asked == GapOptions().gap else asked
        nothing = MAX_ZERO_COST * inner.nothing
        return state.judged.gap > max(enough * abs(state.point.cost), nothing)

    def dual(self, program: LeastSquaresProgram, state: LeastSquaresState) -> Vector | None:
        """y of the last point that was evaluated from the rows."""
        if isinstance(state, ConsensusState):
            return WITHIN.dual(program.within, state)
        with LENIENT():
            if isinstance(state, hinge.MissesState):
                assert program.misses is not None
                return hinge.dual(program.misses, state)
            inner = program.squares
            if inner is None or state.point is None or not np.isfinite(state.judged.gap):
                return None
            judge, judged = judge_of(inner), state.judged
            if state.orthogonal:  # whatever rounding makes of it: that is balanced below
                judged = changed(judged, trivial=False)
            y = judge.dual(state.point.values, state.rows, state.mu, judged)
            question, rows = program.problem.question, program.problem.rows
            assert question is not None
            loss = UNNOTICED_SHARE * program.problem.options.gap * abs(state.point.cost)
            shown = judged.trivial or (judged.shift > 0.0 and judged.gap <= loss)
            if inner.cone.psd and shown:  # the gap counts all that rounding does
                return y
            A = np.asarray(inner.scale * inner.cone.unpack(state.point.x))
            return balanced(rows.on_numpy(), question, y, A, loss * inner.unit)

    def matrix(self, program: LeastSquaresProgram, state: LeastSquaresState) -> SensedMatrix:
        """``X X*``, or A itself where there is no cone."""
        problem = program.problem
        if isinstance(state, ConsensusState):
            return WITHIN.matrix(program.within, state)
        with LENIENT():
            if isinstance(state, hinge.MissesState):
                assert program.misses is not None
                X = np.sqrt(program.misses.scale) * hinge.root_of(state.A)
                return SensedMatrix.from_factor(own(problem, X))
            inner = program.squares
            if inner is None or state.point is None:
                return self.first(problem)
            if not inner.cone.psd:
                A = inner.scale * inner.cone.unpack(state.point.x)
                return SensedMatrix.from_dense(own(problem, A))
            found = state.factor
            if found is None or state.verdict is not SquaresVerdict.OPTIMAL:
                found = phases.factor_of(inner, state.point.x)
            return SensedMatrix.from_factor(own(problem, np.sqrt(inner.scale) * found))

    def first(self, problem: Problem) -> SensedMatrix:
        """A = 0 in the cone, else A_1."""
        question = problem.question
        return nothing(problem) if question is None or question.psd else problem.first()
