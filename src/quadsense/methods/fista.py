"""Least squares in the cone and within intervals, with both bounds on what it costs."""

from __future__ import annotations

import numpy as np

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.methods.base import COLD, Problem, Warm
from quadsense.methods.squares import phases
from quadsense.methods.squares.measure import judge_of
from quadsense.methods.squares.program import Program, prepare
from quadsense.methods.squares.state import Stage, State, Verdict
from quadsense.methods.steps import Stepped, nothing, own, start_matrix
from quadsense.methods.traits.fista import FistaTraits
from quadsense.vocabulary import Claim, because


class FistaProgram:
    """The problem, and the question brought to one scale; None where it is not of this kind."""

    def __init__(self, problem: Problem, inner: Program | None) -> None:
        self.problem, self.inner = problem, inner


class Fista(FistaTraits, Stepped):
    """FISTA on the positive semidefinite cone or those of one trace; ADMM where ends bind.

    The normal matrix is formed once. Without a cone it is factored, and rows are held at the ends
    that bind. See `squares.phases`.
    """

    def prepare(self, problem: Problem) -> FistaProgram:
        """The question on unit rows, over powers of two, and the normal matrix."""
        with np.errstate(under="ignore"):
            return FistaProgram(problem, prepare(problem))

    def start(self, program: FistaProgram, warm: Warm = COLD) -> State:
        """Least squares without the cone, brought into it; else A_1, or what came before."""
        inner = program.inner
        if inner is None:
            return State(Stage.DIRECT, Verdict.STALLED)
        with np.errstate(under="ignore"):
            cone, near = inner.cone, start_matrix(program.problem)
            if warm.fit is not None and cone.psd:
                near = to_numpy(warm.fit.to_dense())
            return phases.start(inner, cone.pack(np.asarray(near, cone.dtype)) / inner.scale)

    def stride(self, program: FistaProgram) -> int:
        """Steps worth some milliseconds."""
        if program.inner is None or not program.inner.cone.psd:
            return 1
        cost = program.inner.cost
        product = 2.0 * cost.cone.size**2 if cost.formed else 2.0 * cost.product_flops
        return max(1, min(20, int(5e7 / (product + cost.cone.flops))))

    def advance(self, program: FistaProgram, state: State, steps: int) -> State:
        """At most so many steps on."""
        if program.inner is None:
            return state
        with np.errstate(under="ignore"):
            return phases.advance(program.inner, state, steps)

    def correct(self, program: FistaProgram, state: State, z: Array, goal: float) -> State:
        """Further inside the intervals."""
        assert program.inner is not None
        with np.errstate(under="ignore"):
            return phases.tightened(program.inner, state)

    def claim(self, program: FistaProgram, state: State) -> Claim | None:
        """Met or optimal to the gap; else another method is to look."""
        if state.verdict is Verdict.OPEN:
            return None
        if state.verdict is Verdict.STALLED:
            return Claim("stalled", because("gap_open"))
        if program.problem.target:
            return Claim("met")
        return Claim("optimal", dual=self.dual(program, state))

    def dual(self, program: FistaProgram, state: State) -> Vector | None:
        """y of the last point that was evaluated from the rows."""
        inner = program.inner
        if inner is None or state.point is None or not np.isfinite(state.judged.gap):
            return None
        with np.errstate(under="ignore"):
            judge = judge_of(inner)
            return judge.dual(state.point.values, state.rows, state.mu, state.judged)

    def matrix(self, program: FistaProgram, state: State) -> SensedMatrix:
        """``X X*``, or A itself where there is no cone."""
        problem, inner = program.problem, program.inner
        if inner is None or state.point is None:
            return self.first(problem)
        with np.errstate(under="ignore"):
            if not inner.cone.psd:
                return SensedMatrix.from_dense(
                    own(problem, inner.scale * inner.cone.unpack(state.point.x))
                )
            X = state.factor
            if X is None or state.verdict is not Verdict.OPTIMAL:
                X = phases.factor_of(inner, state.point.x)
            return SensedMatrix.from_factor(own(problem, np.sqrt(inner.scale) * X))

    def first(self, problem: Problem) -> SensedMatrix:
        """A = 0 in the cone, else A_1."""
        question = problem.question
        return nothing(problem) if question is None or question.psd else problem.first()
