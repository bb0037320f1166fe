"""What gradient descent and its stochastic form share: everything but the step."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from quadsense.arrays import Array, to_numpy
from quadsense.core.matrix import SensedMatrix
from quadsense.core.potential import log_potential
from quadsense.core.theory import sharpness as final_sharpness
from quadsense.methods.base import Problem, State, first_state


class Descent:
    """Descent on the cosh potential in measurement coordinates."""

    name: ClassVar[str]
    options: ClassVar[frozenset[str]]

    def _batch_size(self, problem: Problem) -> int | None:
        return None

    def start(self, problem: Problem) -> State:
        """State at the start, with its log potential."""
        state = first_state(problem, self._batch_size(problem))
        return replace(state, log_potential=log_potential(state.sharpness * state.y))

    def patience(self, problem: Problem) -> int:
        """Strides without progress that count as stalled."""
        return 200

    def correct(self, problem: Problem, state: State, z: Array, goal: float) -> State:
        """Put the recomputed residual in the place of the maintained one."""
        y = z / problem.delta
        return replace(state, y=y, goal=goal, top=float(abs(to_numpy(y)).max()))

    def coefficients(self, problem: Problem, state: State) -> Array:
        """``c`` of ``A = tau I - F*(c)``."""
        return problem.weight * state.d

    def matrix(self, problem: Problem, state: State) -> SensedMatrix:
        """``tau I - F*(c)``."""
        return problem.matrix(self.coefficients(problem, state))

    @staticmethod
    def _base(problem: Problem) -> float:
        return final_sharpness(problem.m)

    @staticmethod
    def _adapt(problem: Problem) -> bool:
        """Whether c may change: not where the paper or the user fixed it."""
        options = problem.options
        return options.schedule == "continuation" and options.c is None and options.step is None

    @staticmethod
    def _sharpen(problem: Problem) -> bool:
        """Whether lam may grow."""
        return problem.options.schedule == "continuation" and problem.options.lam is None
