"""The one-step answer for orthonormal rows."""

from __future__ import annotations

from dataclasses import replace

from quadsense.methods.base import Problem
from quadsense.methods.descent.program import Descent, DescentProgram, DescentState
from quadsense.methods.descent.traits import ClosedFormTraits, DescentOptions


class ClosedForm(ClosedFormTraits, Descent):
    r""":math:`A = \tau I - \sum_i z_i u_i u_i^*`: exact when the rows are orthonormal.

    Notes
    -----
    The paper's footnote has the like, :math:`\sum_i b_i u_i u_i^*` [QSZ24, Section 5]; this one
    is the nearest to ``tau I`` of all matrices that fit.
    """

    def prepare(self, problem: Problem) -> DescentProgram:
        """What follows from the problem."""
        if problem.gram is None or problem.gram.kind != "identity":
            raise ValueError(
                "method 'closed_form' needs orthonormal rows, and these are not: use 'gd' or 'sgd'"
            )
        return super().prepare(replace(problem, options=DescentOptions()))

    def stride(self, program: DescentProgram) -> int:
        """One step is all."""
        return 1

    def advance(self, program: DescentProgram, state: DescentState, steps: int) -> DescentState:
        """Take the whole residual away."""
        return replace(
            state,
            iteration=state.iteration + 1,
            d=state.d + state.y,
            y=0.0 * state.y,
            max_ratio=0.0,
        )
