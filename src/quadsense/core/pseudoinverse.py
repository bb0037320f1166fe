"""Solves with positive semidefinite matrices that may be singular, and their rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.linalg.lapack import dpotrf, dpotrs

INDEPENDENT = 1e-6
"""Distance of a unit column from those before it above which it is told from rounding: a Gram
matrix of order N errs by about N 1e-16, and the distance by the root of that."""

Solve: TypeAlias = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


class Pseudoinverse(NamedTuple):
    """What `pseudoinverse` finds.

    `solve` takes (N,) or (N, k) to the same; `basis`, (N, rank), is an orthonormal one of the
    range, None where that is everything.
    """

    solve: Solve
    rank: int
    basis: npt.NDArray[Any] | None


def pseudoinverse(H: npt.NDArray[Any]) -> Pseudoinverse:
    """Products with the pseudoinverse of H, its rank and its range.

    Parameters
    ----------
    H : ndarray of shape (N, N)
        Positive semidefinite to rounding; its upper triangle counts.
    """
    diagonal = H.diagonal().copy()
    if np.all(diagonal > 0.0):
        inverse = 1.0 / np.sqrt(diagonal)
        R, info = dpotrf(H * np.outer(inverse, inverse), lower=0, clean=0, overwrite_a=1)
        if info == 0 and float(np.min(R.diagonal())) > INDEPENDENT:
            return Pseudoinverse(
                lambda y: (inverse * dpotrs(R, (inverse * y.T).T, lower=0)[0].T).T, len(H), None
            )
    values, vectors = eigh(H, lower=False)
    kept = values > 10.0 * len(H) * float(np.finfo(np.float64).eps) * np.max(np.abs(values))
    basis, weights = vectors[:, kept], 1.0 / values[kept]
    return Pseudoinverse(
        lambda y: basis @ (weights * (basis.T @ y).T).T, int(np.count_nonzero(kept)), basis
    )
