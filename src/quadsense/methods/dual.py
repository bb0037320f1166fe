"""A positive semidefinite fit, or a proof that there is none."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from quadsense.arrays import Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.methods.base import Claim, Problem
from quadsense.methods.positive import phases
from quadsense.methods.positive.maps import Intervals
from quadsense.methods.positive.program import prepare
from quadsense.methods.steps import Stepped, own, start_matrix


class Dual(Stepped):
    """``A = X X*`` within the intervals: nearest fit, least misses, interior point.

    See `positive.phases`.
    """

    name: ClassVar[str] = "dual"
    options: ClassVar[frozenset[str]] = frozenset({"gap"})

    def start(self, problem: Problem) -> phases.State:
        """The positive part of A_1."""
        b, delta = to_numpy(problem.b), to_numpy(problem.delta)
        # In a unit of the size of the readings, a power of 4 so that nothing is rounded.
        self.unit = 4.0 ** (np.frexp(float(np.max(np.abs(b) + delta)))[1] // 2)
        b, delta = b / self.unit, delta / self.unit
        lo, hi = b - delta, b + delta
        if problem.sides is not None:
            lo = np.where(problem.sides[1], lo, -np.inf)
            hi = np.where(problem.sides[0], hi, np.inf)
        plain = problem.base is None and problem.c_start is None
        origin = (float(problem.tau) if plain else start_matrix(problem)) / self.unit
        self.used = np.isfinite(lo) | np.isfinite(hi)  # the others ask for nothing
        if not self.used.any():
            self.used[:] = True
        U = problem.rows.as_numpy()
        if not self.used.all():
            U, lo, hi, delta = (values[self.used] for values in (U, lo, hi, delta))
        self.program = prepare(U, Intervals(lo, hi, delta), origin)
        factor = problem.factor_start
        if factor is not None:
            factor = to_numpy(factor) / np.sqrt(self.unit)
        return phases.start(self.program, factor=factor)

    def _dual(self, y: Vector) -> Vector:
        """The dual vector on all rows from that on the rows in use."""
        whole = np.zeros(self.used.size)
        whole[self.used] = y
        return whole

    def stride(self, problem: Problem) -> int:
        """Evaluations worth a few milliseconds."""
        n = problem.rows.n
        return max(1, min(10, 100_000_000 // (3 * problem.m * n**2 + 10 * n**3)))

    def advance(self, problem: Problem, state: phases.State, steps: int) -> phases.State:
        """About so many evaluations on."""
        return phases.advance(self.program, state, steps)

    def claim(self, problem: Problem, state: phases.State) -> Claim | None:
        """Met, infeasible (checked already), or undecided."""
        proof = state.certificate
        if state.verdict is phases.Verdict.MET:
            return Claim("met")
        if state.verdict is phases.Verdict.INFEASIBLE:
            return Claim("infeasible", dual=self._dual(proof.y), lower=max(1.0, proof.lower_bound))
        if state.verdict is phases.Verdict.UNDECIDED:
            reason = (
                f"the best ratio to delta of a positive semidefinite matrix lies between "
                f"{proof.lower_bound:.6g} and {state.max_ratio:.6g}"
            )
            return Claim("undecided", reason, self._dual(proof.y), proof.lower_bound)
        return None

    def matrix(self, problem: Problem, state: phases.State) -> SensedMatrix:
        """``X X*``."""
        return SensedMatrix.from_factor(own(problem, np.sqrt(self.unit) * phases.matrix(state)))
