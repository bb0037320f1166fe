"""A positive semidefinite fit, or a proof that there is none."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.arrays import Array, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.methods.base import Problem
from quadsense.methods.interior.asked import Asked, asked
from quadsense.methods.positive import phases
from quadsense.methods.positive.maps import Intervals, forward, forward_error, positive_part
from quadsense.methods.positive.program import Program, prepare
from quadsense.methods.steps import Stepped, own, start_matrix
from quadsense.methods.traits.psd import PsdTraits
from quadsense.vocabulary import Claim, because


class Psd(PsdTraits, Stepped):
    """``A = X X*`` within the intervals: nearest fit, least misses, interior point.

    See `positive.phases`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[Problem, Asked, Program | None] | None = None

    def _prepared(self, problem: Problem) -> tuple[Asked, Program | None]:
        """What follows from the problem, remade where it is another one."""
        if self._last is None or self._last[0] is not problem:
            what = asked(problem)
            largest = what.scale * float(np.max(np.abs(what.b) + what.delta, initial=0.0))
            plain = problem.base is None and problem.c_start is None
            origin: Any = float(problem.tau) if plain else start_matrix(problem)
            if plain and abs(origin) > largest:  # a mean of middles that nobody gave
                origin = 0.0
            program = None  # where nothing is asked
            if what.b.size:
                F = what.on(problem.rows)
                program = prepare(F, Intervals(what.lo, what.hi, what.delta), origin / what.scale)
            self._last = problem, what, program
        return self._last[1:]

    def start(self, problem: Problem) -> phases.State:
        """The positive part of A_1: the answer where it is within all intervals."""
        with np.errstate(under="ignore"):
            what, program = self._prepared(problem)
            factor = problem.factor_start
            if factor is not None:
                factor = to_numpy(factor) / np.sqrt(what.scale)
            given = factor
            plain = problem.base is None and problem.c_start is None
            if given is None and (program is None or not plain):
                given = positive_part(start_matrix(problem) / what.scale)[0]
            if given is not None:
                ratio = 0.0
                if program is not None:
                    error = forward_error(program.F, given)
                    ratio = program.intervals.max_ratio(forward(program.F, given), error)
                if ratio <= 1.0:
                    return phases.settled(given, what.b.size, max(0.0, ratio))
            assert program is not None
            return phases.start(program, factor=factor)

    def stride(self, problem: Problem) -> int:
        """Evaluations worth a few milliseconds."""
        n = problem.rows.n
        return max(1, min(10, 100_000_000 // (3 * problem.m * n**2 + 10 * n**3)))

    def advance(self, problem: Problem, state: phases.State, steps: int) -> phases.State:
        """About so many evaluations on."""
        program = self._prepared(problem)[1]
        if program is None:
            return state
        with np.errstate(under="ignore"):
            return phases.advance(program, state, steps)

    def correct(self, problem: Problem, state: phases.State, z: Array, goal: float) -> phases.State:
        """Aim lower, further inside the intervals."""
        program = self._prepared(problem)[1]
        return state if program is None else phases.refused(program, state, goal)

    def claim(self, problem: Problem, state: phases.State) -> Claim | None:
        """Met, infeasible (checked already), or undecided."""
        proof, what = state.certificate, self._prepared(problem)[0]
        dual = what.spread(proof.y, problem.m)
        if state.verdict is phases.Verdict.MET:
            return Claim("met")
        if state.verdict is phases.Verdict.INFEASIBLE:
            return Claim("infeasible", dual=dual, lower=max(1.0, proof.lower_bound))
        if state.verdict is phases.Verdict.UNDECIDED:
            reason = because("psd_between", lower=proof.lower_bound, upper=state.max_ratio)
            return Claim("undecided", reason, dual, proof.lower_bound)
        return None

    def matrix(self, problem: Problem, state: phases.State) -> SensedMatrix:
        """``X X*``."""
        scale = self._prepared(problem)[0].scale
        return SensedMatrix.from_factor(own(problem, np.sqrt(scale) * phases.matrix(state)))
