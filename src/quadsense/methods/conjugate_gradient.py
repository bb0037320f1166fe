"""Least squares by conjugate residuals, stopped on the largest residual."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quadsense.arrays import Array, available_memory, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.methods.base import Problem, Trace
from quadsense.methods.krylov import residuals
from quadsense.methods.krylov.operator import OperatorSystem
from quadsense.methods.krylov.system import System, prepare
from quadsense.methods.steps import Stepped, own, start_matrix, weighed_rows
from quadsense.methods.traits.conjugate_gradient import ConjugateGradientTraits
from quadsense.proofs.rounding import Enclosure, dense_error, reading_error
from quadsense.vocabulary import Claim, because


class ConjugateGradient(ConjugateGradientTraits, Stepped):
    """The conjugate residual method on ``K y = z_1`` (see `krylov`).

    The rival of descent for consistent data. Where there are more measurements than unknowns it
    goes on to the least-squares fit, the better estimate under noise; where that does not meet the
    tolerance it says so, for `minimax` to decide.

    Least squares weighs every residual by its tolerance (see `weighed_rows`).
    """

    def start(self, problem: Problem) -> residuals.State:
        """State at A_1."""
        self.system = self._system(problem)
        return residuals.start(self.system, direct=True)

    def _system(self, problem: Problem) -> System:
        memory = available_memory() // 2
        if problem.gram is not None:  # K serves, and no scaled copy of U is made
            delta = to_numpy(problem.delta)
            self.squares = squares = float(delta.min()) / delta
            z1 = squares * to_numpy(problem.initial_residual())
            b = squares * to_numpy(problem.b)
            return OperatorSystem(
                problem.rows, b, squares * delta, problem.tau, z1, True, memory, gram=problem.gram,
                squares=squares,
            )  # fmt: skip
        rows, self.squares = weighed_rows(problem)
        b, delta = self.squares * to_numpy(problem.b), self.squares * to_numpy(problem.delta)
        plain = problem.base is None and problem.c_start is None
        A1 = float(problem.tau) if plain else start_matrix(problem)
        return prepare(rows, b, delta, A1, memory, self.squares * to_numpy(problem.rows.nonzero))

    def advance(self, problem: Problem, state: residuals.State, steps: int) -> residuals.State:
        """At most so many products with K on."""
        return residuals.advance(self.system, state, steps)

    def stride(self, problem: Problem) -> int:
        """Steps worth a few milliseconds."""
        return max(1, min(12, int(1e9 // max(self.system.step_cost(True), 1.0))))

    def patience(self, problem: Problem) -> int:
        """Strides in which the worst residual must have fallen at all."""
        return 40

    def claim(self, problem: Problem, state: residuals.State) -> Claim | None:
        """Met, at least squares without meeting the tolerance, or stuck."""
        if state.met:
            return Claim("met")
        if state.inconsistent:
            return Claim("inconsistent", because("least_squares"))
        if state.stalled:
            return Claim("inconsistent", because("residuals_rounded"))
        return None

    def checked(self, problem: Problem, state: residuals.State) -> Enclosure | None:
        """Residuals that the last step evaluated afresh from the data, where it did."""
        if not state.verified or state.A is None or problem.gram is not None:
            return None
        # Of the unit rows, from those weighed by their tolerances.
        z = own(problem, state.z / self.squares)
        size = float(np.linalg.norm(state.A))
        return Enclosure(z, dense_error(problem.rows.n, size) + reading_error(problem.b))

    def correct(
        self, problem: Problem, state: residuals.State, z: Array, goal: float
    ) -> residuals.State:
        """Go on from the residual recomputed in double precision, and aim lower."""
        self.system = replace(self.system, delta=goal * self.squares * to_numpy(problem.delta))
        return replace(residuals.corrected(self.system, state), met=False)

    def matrix(self, problem: Problem, state: residuals.State) -> SensedMatrix:
        """``A_1 - F*(y)``."""
        y = None if state.A is not None else residuals.coefficients(self.system, state)
        if y is None:
            return SensedMatrix.from_dense(own(problem, residuals.matrix(self.system, state)))
        return problem.matrix(own(problem, self.squares * y))

    def trace(self, problem: Problem, state: residuals.State) -> Trace:
        """The ratios of all residuals."""
        return Trace(np.abs(state.z) / self.system.delta)
