"""A positive semidefinite fit, or a proof that there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from quadsense.arrays import Array, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.methods.base import COLD, Method, Problem, Warm
from quadsense.methods.minimax.asked import Asked, asked
from quadsense.methods.psd import phases
from quadsense.methods.psd.maps import Intervals, forward, forward_error, positive_part
from quadsense.methods.psd.program import Program, prepare
from quadsense.methods.psd.traits import PsdTraits
from quadsense.methods.steps import Stepped, nothing, own, start_matrix
from quadsense.vocabulary import Claim, because


@dataclass(frozen=True)
class PsdProgram:
    """The problem, the rows that ask for something, and these in coordinates of their span."""

    problem: Problem
    asked: Asked
    inner: Program | None


class Psd(PsdTraits, Stepped):
    """``A = X X*`` within the intervals: nearest fit, least misses, interior point.

    See `positive.phases`.
    """

    @staticmethod
    def without_target(problem: Problem) -> Method:
        """What runs where there is no tolerance: both bounds on the smallest worst error."""
        from quadsense.methods.psd.smallest_error import without_tolerance  # when needed

        return without_tolerance(problem)

    def prepare(self, problem: Problem) -> PsdProgram:
        """The rows that ask for something, in coordinates of their span."""
        with np.errstate(under="ignore"):
            what = asked(problem)
            largest = what.scale * float(np.max(np.abs(what.b) + what.delta, initial=0.0))
            plain = problem.base is None and problem.c_start is None
            origin: Any = float(problem.tau) if plain else start_matrix(problem)
            if plain and abs(origin) > largest:  # a mean of middles, not given by the user
                origin = 0.0
            program = None  # where nothing is asked
            if what.b.size:
                F, works = what.on(problem.rows.on_numpy()), what.on(problem.rows, problem.tf32)
                intervals = Intervals.of(what.lo, what.hi, what.delta)
                program = prepare(F, intervals, origin / what.scale, works=works)
            return PsdProgram(problem, what, program)

    def start(self, program: PsdProgram, warm: Warm = COLD) -> phases.State:
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
                    error = forward_error(inner.F, given)
                    ratio = inner.intervals.max_ratio(forward(inner.F, given), error)
                if ratio <= 1.0:
                    return phases.settled(given, what.b.size, max(0.0, ratio))
            assert inner is not None
            return phases.start(inner, factor=factor)

    def stride(self, program: PsdProgram) -> int:
        """Evaluations worth a few milliseconds."""
        m, n = program.problem.m, program.problem.rows.n
        return max(1, min(10, 100_000_000 // (3 * m * n**2 + 10 * n**3)))

    def advance(self, program: PsdProgram, state: phases.State, steps: int) -> phases.State:
        """Return the state after about `steps` more evaluations."""
        if program.inner is None:
            return state
        with np.errstate(under="ignore"):
            return phases.advance(program.inner, state, steps)

    def correct(
        self, program: PsdProgram, state: phases.State, z: Array, goal: float
    ) -> phases.State:
        """Aim lower, further inside the intervals."""
        return state if program.inner is None else phases.refused(program.inner, state, goal)

    def claim(self, program: PsdProgram, state: phases.State) -> Claim | None:
        """Met, infeasible (checked already), or undecided."""
        proof, problem = state.certificate, program.problem
        dual = program.asked.spread(proof.y, problem.m)
        if state.verdict is phases.Verdict.MET:
            return Claim("met")
        if state.verdict is phases.Verdict.INFEASIBLE:
            return Claim("infeasible", dual=dual, lower=max(1.0, proof.lower_bound))
        if state.verdict is phases.Verdict.UNDECIDED:
            reason = because("psd_between", lower=proof.lower_bound, upper=state.max_ratio)
            return Claim("undecided", reason, dual, proof.lower_bound)
        return None

    def matrix(self, program: PsdProgram, state: phases.State) -> SensedMatrix:
        """``X X*``."""
        X = np.sqrt(program.asked.scale) * phases.matrix(state)
        return SensedMatrix.from_factor(own(program.problem, X))

    def first(self, problem: Problem) -> SensedMatrix:
        """A = 0."""
        return nothing(problem)
