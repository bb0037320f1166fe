"""The factor of an indefinite matrix in the form in which its two signs cancel least."""

from __future__ import annotations

from typing import Any

import numpy as np

from quadsense.methods.low_rank.passes import conjugate
from quadsense.methods.low_rank.program import Matrix, Program

# Share of ``||X* X||_F`` below which ``||X S X*||_F`` counts as what cancellation left.
_CANCELS = 0.3


def balanced(problem: Program, Y: Matrix) -> Matrix:
    """Return the rows of the eigenvectors of ``A = Y^T S conj(Y)`` where its signs cancel.

    Notes
    -----
    ``X S X*`` stays as it is where ``x+`` and ``x-`` are turned by a hyperbolic angle, and nothing
    keeps a descent from drifting along: both grow without bound, and rounding, which goes by
    ``||X||_F^2``, with them. Of all factors that of the eigenvectors is the smallest:
    ``||X||_F^2`` is then the sum of the moduli of the eigenvalues. No sign is lost: ``X S X*`` has
    no more eigenvalues of a sign than S [Sylvester's law of inertia].
    """
    if problem.signs is None or min(problem.signs) == 0 or len(Y) != sum(problem.signs):
        return Y
    signs: Any = problem.signs_of(len(Y))
    plus, minus = problem.signs
    mass = float(np.vdot(Y, Y).real) or 1.0
    with np.errstate(under="ignore"):
        squares = np.abs((conjugate(Y) @ Y.T) / mass) ** 2
        if float(signs @ squares @ signs) >= _CANCELS**2 * float(squares.sum()):
            return Y
        Q, R = np.linalg.qr(Y.T)
        values, vectors = np.linalg.eigh((R * signs) @ conjugate(R).T)
        index = np.concatenate([np.arange(plus + minus - 1, minus - 1, -1), np.arange(minus)])
        # A row of zeros would stay so: what rounding hides is left to it.
        sizes = np.maximum(signs * values[index], np.finfo(np.float64).eps * mass)
        X: Matrix = Q @ (vectors[:, index] * np.sqrt(sizes))
    return np.ascontiguousarray(X.T)
