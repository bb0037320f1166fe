"""Gradient descent on the cosh potential [QSZ24, Alg. 1]."""

from __future__ import annotations

from dataclasses import replace

from quadsense.methods.descent.program import Descent, DescentProgram, DescentState
from quadsense.methods.descent.traits import GradientDescentTraits


class GradientDescent(GradientDescentTraits, Descent):
    r""":math:`A \leftarrow A - \epsilon \nabla\Phi/\|\nabla\Phi\|_F` in measurement coordinates.

    Notes
    -----
    ``A = tau I - F*(c)`` at every iterate, so only c and the residual are carried:
    :math:`z \leftarrow z - \eta K s`, :math:`c \leftarrow c + \eta s`,
    :math:`\|\nabla\Phi\|_F = \sqrt{s^T K s}`. O(m) per step with orthonormal rows, O(m^2) with K
    formed, where the printed algorithm takes O(m n^2). In exact arithmetic the iterates are equal.

    Departs from [QSZ24] with ``schedule="continuation"``: lam doubles stage by stage, and the step
    is the largest that still descends.
    """

    def stride(self, program: DescentProgram) -> int:
        """Steps worth about a millisecond."""
        m = program.problem.m
        work = m if program.identity else m**2
        if program.compiled:
            return max(1, min(1000, 1_000_000 // work))
        return 10 if not program.on_device else program.device_stride

    def advance(self, program: DescentProgram, state: DescentState, steps: int) -> DescentState:
        """Return the state after at most `steps` more steps."""
        # Here, so that only those who descend wait for Numba.
        if program.on_device:
            from quadsense.methods.descent.on_device import descend as loop
        else:
            from quadsense.methods.descent.kernels import descend, descend_compiled

            loop = descend_compiled if program.compiled else descend
        y, d, sharpness, target, c, value, top, taken = loop(
            program.gram,
            program.scale,
            state.y,
            state.d,
            program.base,
            state.sharpness,
            state.target,
            state.goal,
            state.c,
            program.adapt,
            program.sharpen,
            steps,
        )
        return replace(
            state,
            iteration=state.iteration + taken,
            y=y,
            d=d,
            sharpness=sharpness,
            target=target,
            c=c,
            log_potential=value,
            max_ratio=top,
        )
