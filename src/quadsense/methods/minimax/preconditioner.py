"""Approximate inverses of the weighted normal matrix of F."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from quadsense.core.cholesky import factor_upper, solve_upper
from quadsense.core.packed import Array, Vector, pack, unpack
from quadsense.device import scalar
from quadsense.system.watch import look


class Preconditioner(Protocol):
    """An approximate inverse of the normal matrix, applied to arrays shaped like x."""

    def __call__(self, x: Array) -> Array:
        """Apply the approximate inverse."""


@dataclass(frozen=True)
class CholeskyPreconditioner:
    """Cholesky factor of a diagonally scaled normal matrix."""

    triangle: Array
    scale: Vector
    shift: float
    n: int | None  # None: the unknowns are a plain vector
    dtype: npt.DTypeLike

    def smallest_eigenvalue(self) -> float:
        """Estimate, by inverse iteration, of the factored matrix; 0.0 if the shift hides it."""
        x = np.random.default_rng(0).standard_normal(self.scale.size)
        growth = 1.0
        top = float(self.scale.max())
        for _ in range(8):
            right = (self.scale / top * (x / np.linalg.norm(x))).astype(self.triangle.dtype)
            x = self.scale * solve_upper(self.triangle, right)
            growth = float(np.linalg.norm(x)) * top
        hidden = 100.0 * self.shift / top**2
        return 1.0 / growth if growth * hidden < 1.0 else 0.0

    def __call__(self, x: Array) -> Array:
        """Apply the inverse of the factored matrix."""
        flat = x if self.n is None else pack(x)
        # Right sides span many powers of ten over a solve; float32 does not.
        scaled = self.scale * flat
        size = np.abs(scaled).max()
        size = np.where(size > 0.0, size, 1.0)
        solution = solve_upper(self.triangle, (scaled / size).astype(self.triangle.dtype))
        flat = self.scale * solution.astype(np.float64) * size
        return flat if self.n is None else unpack(flat, self.n, self.dtype)


def cholesky(
    M: Array, factor: float, n: int | None, dtype: npt.DTypeLike
) -> CholeskyPreconditioner | None:
    """Factor ``factor * M`` (upper triangle, in place), scaled to unit diagonal and shifted.

    The shift covers rounding and the directions that no measurement sees; None when the matrix
    is still not positive definite, or there is nothing to factor.
    """
    diagonal = M.diagonal().astype(np.float64)
    floor = float(diagonal.max(initial=np.nan if not diagonal.size else 0.0)) * 1e-20
    if not np.isfinite(floor):
        return None
    scale = 1.0 / np.sqrt(np.maximum(diagonal, max(floor, float(np.finfo(M.dtype).tiny))))
    narrow = scale.astype(M.dtype)
    look()
    M *= narrow[:, None]
    M *= narrow[None, :]
    size = M.shape[0]
    shift = float(np.finfo(M.dtype).eps) * (4.0 + np.sqrt(size))
    M[np.diag_indices(size)] = 1.0 + shift
    triangle, info = factor_upper(M)
    if info != 0:
        return None
    return CholeskyPreconditioner(triangle, scale / np.sqrt(factor), shift, n, dtype)


@dataclass(frozen=True)
class MomentPreconditioner:
    """Inverse of the normal matrix that Gaussian rows of the same covariance would have.

    For Gaussian u with covariance C, ``E[u* A u . u u*] = k C A C + tr(C A) C``, k = 2 for real
    and 1 for complex rows, which has a closed inverse.
    """

    whiten: Array
    total: float
    k: float

    def __call__(self, x: Array) -> Array:
        """Apply the inverse."""
        white = self.whiten @ x @ self.whiten
        trace = scalar(np.trace(white).real) / (self.k + x.shape[0])
        white[np.diag_indices(x.shape[0])] -= trace
        return self.whiten @ white @ self.whiten / (self.k * self.total)
