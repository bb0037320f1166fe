r"""Spectral approximation with an oracle of A* [QSZ24, Alg. 3].

Every iterate of Algorithm 3 has ``X_t`` with the same eigenvectors:
:math:`X_{t+1} = X_t - \lambda\epsilon \sinh(X_t)/\|\sinh(X_t)\|_F`. So one eigendecomposition of
``A*^{-1/2} A_1 A*^{-1/2}`` serves all of them, and what is left is Algorithm 1 on n numbers with
K = I: the eigenvalues less one are the residuals. The printed algorithm decomposes anew in every
iteration; in exact arithmetic the iterates are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quadsense.arrays import Array, namespace
from quadsense.core.matrix import SensedMatrix
from quadsense.measurements.oracle import symmetrised
from quadsense.methods.base import Problem
from quadsense.methods.descent.gd import GradientDescent
from quadsense.methods.descent.program import DescentProgram, DescentState
from quadsense.methods.steps import own


@dataclass(frozen=True)
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
        """Eigenvalues of the whitened start, less one."""
        return -self.b


class Spectral(GradientDescent):
    """Algorithm 3: gradient descent on the eigenvalues of ``A*^{-1/2} A A*^{-1/2} - I``."""

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
