"""The smallest worst-case error, with both bounds, or a proof that a tolerance cannot be met."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from quadsense.arrays import Array, Vector, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.methods.base import Claim, Problem
from quadsense.methods.interior import iteration
from quadsense.methods.interior.infeasible import verify_infeasible
from quadsense.methods.interior.program import Program, prepare
from quadsense.methods.steps import (
    Stepped,
    own,
    shifted_readings,
    start_matrix,
    weighed_rows,
)

RETRIES = 4


def equal_tolerances(problem: Problem) -> tuple[Program, Vector]:
    """The linear program on the rows of `weighed_rows`, and their squared norms."""
    rows, squares = weighed_rows(problem)
    delta = to_numpy(problem.delta)
    program = prepare(rows, squares * shifted_readings(problem), squares * delta, problem.sides)
    return program, squares


class Minimax(Stepped):
    """``min_A max_i |z_i|/delta_i`` by a primal-dual interior-point method (see `interior`).

    With a tolerance it stops once that is met or proved impossible; proved, it goes on to the gap,
    so that both bounds on the best achievable error are known. Without one it stops at the gap.
    """

    name: ClassVar[str] = "minimax"
    options: ClassVar[frozenset[str]] = frozenset({"gap"})

    def __init__(self) -> None:
        super().__init__()
        self.goal = 1.0

    def start(self, problem: Problem) -> iteration.State:
        """Least squares on the difference from A_1."""
        self.program, self.squares = equal_tolerances(problem)
        return iteration.start(self.program)

    def _deciding(self, problem: Problem, state: iteration.State) -> bool:
        """Whether the question still is if the tolerance can be met."""
        return problem.target and state.lower <= 1.0 and self.goal == 1.0

    def advance(self, problem: Problem, state: iteration.State, steps: int) -> iteration.State:
        """At most so many factorisations on."""
        gap = problem.options.gap if self.goal == 1.0 else 1e-9
        target = self._deciding(problem, state)
        before = state.iteration
        for _ in range(RETRIES):
            state = iteration.advance(self.program, state, steps, target=target, gap=gap)
            if state.iteration > before or state.stalled:
                break  # else a factorisation failed, and a more precise one is next
        return state

    def claim(self, problem: Problem, state: iteration.State) -> Claim | None:
        """Met, optimal to the gap, or infeasible, the last only with a checked proof."""
        if problem.target and state.max_ratio + state.rounding <= self.goal:
            return Claim("met")
        target = self._deciding(problem, state)
        verdict = iteration.verdict(state, target=target, gap=problem.options.gap)
        if verdict is None:
            return None
        if problem.target and state.lower > 1.0:
            return self._infeasible(problem, state)
        if verdict == "optimal" and not problem.target:
            return Claim("optimal", dual=self.squares * state.y, lower=state.lower)
        reason = (
            f"rounding stops the interior-point method between the bounds {state.lower:.6g} and "
            f"{state.max_ratio:.6g} on the best ratio to delta"
        )
        return Claim("undecided", reason, self.squares * state.y, state.lower)

    def _infeasible(self, problem: Problem, state: iteration.State) -> Claim:
        upper, lower = (None, None) if problem.sides is None else problem.sides
        check = verify_infeasible(
            self.program.U,
            self.squares * to_numpy(problem.b),
            self.program.delta,
            state.y,
            upper=upper,
            lower=lower,
        )
        dual = self.squares * state.y
        if check.proved:
            return Claim("infeasible", dual=dual, lower=max(check.ratio, 1.0))
        reason = (
            "rounding keeps both a fit and a proof that there is none from closing: raise delta"
        )
        return Claim("undecided", reason, dual)

    def correct(
        self, problem: Problem, state: iteration.State, z: Array, goal: float
    ) -> iteration.State:
        """Aim lower: the state stays, and is no longer good enough."""
        self.goal = goal
        return state

    def matrix(self, problem: Problem, state: iteration.State) -> SensedMatrix:
        """A_1 plus the fit to what it leaves."""
        fit, formed = iteration.matrix(self.program, state)
        if formed:
            return SensedMatrix.from_dense(own(problem, np.asarray(fit) + start_matrix(problem)))
        return problem.matrix(own(problem, -self.squares * np.asarray(fit)))
