"""Least squares by conjugate residuals, stopped on the largest residual."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import record
from quadsense.methods.base import (
    COLD,
    Problem,
    Stepped,
    Trace,
    Warm,
    at_work,
    own,
    start_matrix,
    stride_of,
    weighed_rows,
)
from quadsense.methods.cg import residuals
from quadsense.methods.cg.system import (
    CGSystem,
    NormalOperator,
    given_gram,
    prepare,
    starting_ratio,
)
from quadsense.methods.cg.traits import ConjugateGradientTraits
from quadsense.proofs.rounding import Enclosure, dense_error, frobenius, reading_error
from quadsense.vocabulary import Claim, because


@record(frozen=True)
class CGProgram:
    """The problem, its system on weighed rows, and the squares of their weights."""

    problem: Problem
    system: CGSystem
    squares: Vector

    def aiming(self, state: residuals.CGState) -> CGSystem:
        """The system with the tolerances that the state aims at."""
        return self.system if state.goal == 1.0 else self.system.aiming(state.goal)


class ConjugateGradient(ConjugateGradientTraits, Stepped):
    """The conjugate residual method on ``K y = z_1`` (see `residuals`).

    The rival of descent for consistent data. Where there are more measurements than unknowns it
    goes on to the least-squares fit, the better estimate under noise; where that does not meet the
    tolerance it says so, for `minimax` to decide.

    Least squares weighs every residual by its tolerance (see `weighed_rows`).
    """

    @classmethod
    def suited_to(cls, problem: Problem) -> type[Any]:
        """Damped least squares, or the nearest matrix, where that was asked for."""
        if problem.question is None:
            return cls
        from quadsense.methods.cg.damped import Damped
        from quadsense.methods.cg.nearest import Nearest

        return Nearest if problem.question.rows == "within" else Damped

    def prepare(self, problem: Problem) -> CGProgram:
        """The system ``K y = z_1``."""
        if problem.gram is not None:  # K serves, and no scaled copy of U is made
            delta = to_numpy(problem.delta)
            squares = float(delta.min()) / delta
            z1 = squares * to_numpy(problem.initial_residual())
            b = squares * to_numpy(problem.b)
            apply = given_gram(problem)

            def weighed(y: Vector) -> Vector:
                return np.asarray(squares * to_numpy(apply(squares * y)), dtype=np.float64)

            operator = NormalOperator(problem.rows, formed=False, given=weighed)
            masses = np.asarray(squares * to_numpy(problem.rows.masses))
            widths = squares * delta
            ratio = starting_ratio(problem.rows, b, widths, z1)
            system = CGSystem(problem.rows, b, widths, problem.tau, z1, operator, 0, ratio, masses)
            return CGProgram(problem, system, squares)
        rows, squares = weighed_rows(problem)
        b, delta = squares * at_work(problem, problem.b), squares * at_work(problem, problem.delta)
        plain = problem.base is None and problem.c_start is None
        A1 = float(problem.tau) if plain else start_matrix(problem)
        identity = squares * at_work(problem, problem.rows.squares)
        return CGProgram(problem, prepare(rows, b, delta, A1, squares=identity), squares)

    def start(self, program: CGProgram, warm: Warm = COLD) -> residuals.CGState:
        """State at A_1."""
        return residuals.start(program.system, direct=True)

    def advance(
        self, program: CGProgram, state: residuals.CGState, steps: int
    ) -> residuals.CGState:
        """Return the state after at most `steps` more products with K."""
        state = residuals.advance(program.aiming(state), state, steps)
        if program.system.F.known_rank is not None:  # of the same rows, weighed
            program.problem.rows.known_rank = program.system.F.known_rank
        return state

    def stride(self, program: CGProgram) -> int:
        """Steps worth a few milliseconds; of a device, too, which is waited for once in them."""
        return stride_of(program.problem, program.system.step_cost(True))

    def patience(self, program: CGProgram) -> int:
        """Strides in which the worst residual must have fallen at all."""
        return 40

    def claim(self, program: CGProgram, state: residuals.CGState) -> Claim | None:
        """Met, at least squares without meeting the tolerance, or stuck."""
        if state.met:
            return Claim("met")
        if state.inconsistent:
            return Claim("inconsistent", because("least_squares"))
        if state.stalled:
            return Claim("inconsistent", because("residuals_rounded"))
        return None

    def checked(self, program: CGProgram, state: residuals.CGState) -> Enclosure | None:
        """Residuals that the last step evaluated afresh from the data, where it did."""
        problem = program.problem
        plain = problem.rows.raw is problem.rows  # else their mixing rounds, too
        if not (state.verified and plain) or state.A is None or problem.gram is not None:
            return None
        # Of the unit rows, from those weighed by their tolerances.
        z = own(problem, state.z / program.squares)
        size = frobenius(state.A) if type(state.A) is np.ndarray else np.linalg.norm(state.A)
        inner = 0 if program.system.features is None else program.system.unknowns
        error = dense_error(problem.rows, float(size), inner)
        return Enclosure(z, error + reading_error(problem.b))

    def correct(
        self, program: CGProgram, state: residuals.CGState, z: Array, goal: float
    ) -> residuals.CGState:
        """Go on from the residual recomputed in double precision, and aim lower."""
        state = replace(state, goal=goal)
        return replace(residuals.corrected(program.aiming(state), state), met=False)

    def matrix(self, program: CGProgram, state: residuals.CGState) -> SensedMatrix:
        """``A_1 - F*(y)``."""
        problem, system = program.problem, program.system
        y = None if state.A is not None else residuals.coefficients(system, state)
        if y is None:
            return SensedMatrix.from_dense(own(problem, residuals.matrix(system, state)))
        return problem.matrix(own(problem, program.squares * y))

    def trace(self, program: CGProgram, state: residuals.CGState) -> Trace:
        """The ratios of all residuals."""
        return Trace(lambda: np.abs(state.z) / program.aiming(state).delta)
