"""Gradient descent on the cosh potential, of residuals and of eigenvalues [QSZ24, Alg. 1, 3]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from quadsense.arrays import Array, namespace
from quadsense.core.matrix import SensedMatrix
from quadsense.core.records import record
from quadsense.measurements.oracle import symmetrised
from quadsense.methods.base import Problem
from quadsense.methods.descent.program import Descent, DescentProgram, DescentState
from quadsense.methods.descent.traits import GradientDescentTraits
from quadsense.methods.steps import own


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


@record(frozen=True)
class SpectralProblem(Problem):
    """Algorithm 3 as Algorithm 1 on eigenvalues.

    Attributes
    ----------
    A_1 : array of shape (n, n)
        The start.
    vectors : array of shape (n, n)
        Eigenvectors of the whitened start.
    color : callable
        ``A*^{1/2} Y A*^{1/2}``.
    """

    A_1: Array = None
    vectors: Array = None
    color: Callable[[Array], Array] = None  # type: ignore[assignment]

    def initial_residual(self) -> Array:
        """Eigenvalues of the whitened start, minus one."""
        return -self.b


class Spectral(GradientDescent):
    r"""Algorithm 3: gradient descent on the eigenvalues of ``A*^{-1/2} A A*^{-1/2} - I``.

    Notes
    -----
    Every iterate of Algorithm 3 has ``X_t`` with the same eigenvectors:
    :math:`X_{t+1} = X_t - \lambda\epsilon \sinh(X_t)/\|\sinh(X_t)\|_F`. So one
    eigendecomposition of ``A*^{-1/2} A_1 A*^{-1/2}`` serves all of them, and what is left is
    Algorithm 1 on n numbers with K = I: the eigenvalues minus one are the residuals. The printed
    algorithm decomposes anew in every iteration; in exact arithmetic the iterates are equal.
    """

    name = "spectral"

    def matrix(self, program: DescentProgram, state: DescentState) -> SensedMatrix:
        """``A_1 - A*^{1/2} Q diag(c) Q* A*^{1/2}``."""
        problem = program.problem
        assert isinstance(problem, SpectralProblem)
        Q = problem.vectors
        xp = namespace(Q)
        complex_ = xp.isdtype(Q.dtype, "complex floating")
        c = xp.astype(own(problem, program.weight * state.d), Q.dtype)
        move = (Q * c) @ (xp.conj(Q.T) if complex_ else Q.T)
        return SensedMatrix.from_dense(problem.A_1 - symmetrised(problem.color(move)))

    def first(self, problem: Problem) -> SensedMatrix:
        """The start."""
        assert isinstance(problem, SpectralProblem)
        return SensedMatrix.from_dense(problem.A_1)
