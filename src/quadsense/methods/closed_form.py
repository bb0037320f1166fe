"""The one-step answer for orthonormal rows."""

from __future__ import annotations

from dataclasses import replace

from quadsense.methods.base import Problem
from quadsense.methods.descent import Descent, DescentState
from quadsense.methods.traits.closed_form import ClosedFormTraits
from quadsense.methods.traits.descent import DescentOptions


class ClosedForm(ClosedFormTraits, Descent):
    r""":math:`A = \tau I - \sum_i z_i u_i u_i^*`: exact when the rows are orthonormal.

    Notes
    -----
    The paper's footnote has the like, :math:`\sum_i b_i u_i u_i^*` [QSZ24, Section 5]; this one
    is the nearest to ``tau I`` of all matrices that fit.
    """

    def start(self, problem: Problem) -> DescentState:
        """State at the start."""
        if not self._identity(problem):
            raise ValueError(
                "method 'closed_form' needs orthonormal rows, and these are not: use 'gd' or 'sgd'"
            )
        return super().start(replace(problem, options=DescentOptions()))

    def stride(self, problem: Problem) -> int:
        """One step is all."""
        return 1

    def advance(self, problem: Problem, state: DescentState, steps: int) -> DescentState:
        """Take the whole residual away."""
        return replace(
            state,
            iteration=state.iteration + 1,
            d=state.d + state.y,
            y=0.0 * state.y,
            max_ratio=0.0,
        )
