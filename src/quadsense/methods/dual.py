"""A positive semidefinite fit, or a proof that there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from quadsense.arrays import Array, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.methods.base import COLD, Claim, Problem, Warm
from quadsense.methods.interior.asked import Asked, asked
from quadsense.methods.positive import phases
from quadsense.methods.positive.maps import Intervals, forward, forward_error, positive_part
from quadsense.methods.positive.program import Program, prepare
from quadsense.methods.steps import Stepped, nothing, own, start_matrix


@dataclass(frozen=True)
class DualProgram:
    """The problem, the rows that ask for something, and these in coordinates of their span."""

    problem: Problem
    asked: Asked
    inner: Program | None


class Dual(Stepped):
    """``A = X X*`` within the intervals: nearest fit, least misses, interior point.

    See `positive.phases`.
    """

    name: ClassVar[str] = "dual"
    options: ClassVar[frozenset[str]] = frozenset({"gap"})

    def prepare(self, problem: Problem) -> DualProgram:
        """The rows that ask for something, in coordinates of their span."""
        with np.errstate(under="ignore"):
            what = asked(problem)
            largest = what.scale * float(np.max(np.abs(what.b) + what.delta, initial=0.0))
            plain = problem.base is None and problem.c_start is None
            origin: Any = float(problem.tau) if plain else start_matrix(problem)
            if plain and abs(origin) > largest:  # a mean of middles that nobody gave
                origin = 0.0
            program = None  # where nothing is asked
            if what.b.size:
                U = what.of(problem.rows.as_numpy())
                program = prepare(U, Intervals(what.lo, what.hi, what.delta), origin / what.scale)
            return DualProgram(problem, what, program)

    def start(self, program: DualProgram, warm: Warm = COLD) -> phases.State:
        """The positive part of A_1: the answer where it is within all intervals."""
        with np.errstate(under="ignore"):
            problem, what, inner = program.problem, program.asked, program.inner
            factor = warm.factor
            if factor is not None:
                factor = to_numpy(factor) / np.sqrt(what.scale)
            given = factor
            plain = problem.base is None and problem.c_start is None
            if given is None and (inner is None or not plain):
                given = positive_part(start_matrix(problem) / what.scale)[0]
            if given is not None:
                ratio = 0.0
                if inner is not None:
                    error = forward_error(inner.U, given)
                    ratio = inner.intervals.max_ratio(forward(inner.U, given), error)
                if ratio <= 1.0:
                    return phases.settled(given, what.b.size, max(0.0, ratio))
            assert inner is not None
            return phases.start(inner, factor=factor)

    def stride(self, program: DualProgram) -> int:
        """Evaluations worth a few milliseconds."""
        m, n = program.problem.m, program.problem.rows.n
        return max(1, min(10, 100_000_000 // (3 * m * n**2 + 10 * n**3)))

    def advance(self, program: DualProgram, state: phases.State, steps: int) -> phases.State:
        """About so many evaluations on."""
        if program.inner is None:
            return state
        with np.errstate(under="ignore"):
            return phases.advance(program.inner, state, steps)

    def correct(
        self, program: DualProgram, state: phases.State, z: Array, goal: float
    ) -> phases.State:
        """Aim lower, further inside the intervals."""
        return state if program.inner is None else phases.refused(program.inner, state, goal)

    def claim(self, program: DualProgram, state: phases.State) -> Claim | None:
        """Met, infeasible (checked already), or undecided."""
        proof, problem = state.certificate, program.problem
        dual = program.asked.spread(proof.y, problem.m)
        if state.verdict is phases.Verdict.MET:
            return Claim("met")
        if state.verdict is phases.Verdict.INFEASIBLE:
            return Claim("infeasible", dual=dual, lower=max(1.0, proof.lower_bound))
        if state.verdict is phases.Verdict.UNDECIDED:
            reason = (
                f"the best ratio to delta of a positive semidefinite matrix lies between "
                f"{proof.lower_bound:.6g} and {state.max_ratio:.6g}"
            )
            return Claim("undecided", reason, dual, proof.lower_bound)
        return None

    def matrix(self, program: DualProgram, state: phases.State) -> SensedMatrix:
        """``X X*``."""
        X = np.sqrt(program.asked.scale) * phases.matrix(state)
        return SensedMatrix.from_factor(own(program.problem, X))

    def first(self, problem: Problem) -> SensedMatrix:
        """A = 0."""
        return nothing(problem)
