"""Coordinates for the unknown A, the scaled sensing map on them, inverses of normal matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from quadsense.core.cholesky import divided, factor_upper, inner_upper, pivoted, solve_upper
from quadsense.core.packed import Array, Vector, pack, unpack
from quadsense.device import scalar
from quadsense.measurements.sensing import Sensing
from quadsense.system.watch import look

MAX_FACTOR_BYTES = 2**30
"""Bytes of the largest normal matrix: 16,000 unknowns in float32."""

MIN_GRADIENT_ORDER = 64
"""Order of A from which conjugate gradients are tried before factoring."""

MAX_GRADIENTS = 2000
"""Conjugate-gradient steps when there is no other way."""


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


class MinimaxCoordinates(Protocol):
    """Unknowns of a fit, and the scaled sensing map ``x -> F(A(x)) / delta`` on them."""

    @property
    def precisions(self) -> tuple[int, ...]:
        """Preconditioners worth trying, cheapest first: bits of the factor, 0 for none."""

    def patience(self, precision: int) -> int:
        """Conjugate-gradient steps after which the next preconditioner is the cheaper way."""

    def forward(self, x: Array) -> Vector:
        """Return ``F(A(x)) / delta``, shape (m,)."""

    def adjoint(self, y: Vector) -> Array:
        """Return the transpose of `forward` applied to y."""

    def product(self, x: Array, d: Vector, shift: Vector) -> tuple[Array, Vector]:
        """Return ``adjoint(d * forward(x) + shift)`` and ``forward(x)`` in one pass."""

    def preconditioner(self, d: Vector, precision: int) -> Preconditioner | None:
        """Return an approximate inverse of ``adjoint(d * forward(.))``; None if it failed."""


@dataclass(frozen=True)
class MatrixCoordinates:
    """The unknown is A itself, an n-by-n array; for m above the number of unknowns."""

    F: Sensing
    delta: Vector

    @property
    def precisions(self) -> tuple[int, ...]:
        """A factor costs about n^2 / 40 products: small problems begin with it."""
        if self.F.n < MIN_GRADIENT_ORDER:
            return (32, 64)
        room = MAX_FACTOR_BYTES / self.F.unknowns**2
        return tuple(bits for bits in (0, 32, 64) if bits / 8 <= room)

    def patience(self, precision: int) -> int:
        """Half the price of a factor, as a step solves twice; few steps where there is one."""
        if precision == self.precisions[-1]:
            return MAX_GRADIENTS
        return 20 if precision else self.F.n**2 // 80

    def forward(self, x: Array) -> Vector:
        """Return ``F(x) / delta``."""
        return self.F.forward(x) / self.delta

    def adjoint(self, y: Vector) -> Array:
        """Return ``F*(y / delta)``."""
        return self.F.adjoint(y / self.delta)

    def product(self, x: Array, d: Vector, shift: Vector) -> tuple[Array, Vector]:
        """Return ``adjoint(d * forward(x) + shift)`` and ``forward(x)``."""
        z = self.forward(x)
        return self.adjoint(d * z + shift), z

    def preconditioner(self, d: Vector, precision: int) -> Preconditioner | None:
        """Return the Cholesky factor, or the moment model for precision 0."""
        weight = d / self.delta**2
        if precision > 0:
            dtype = np.float32 if precision == 32 else np.float64
            # Weights far from 1 would leave the range of float32.
            top = float(weight.max())
            if not (0.0 < top < np.inf):
                return None
            M = self.F.normal(weight / top, dtype)
            return cholesky(M, top, self.F.n, self.F.dtype)
        total = float(weight.sum())
        covariance = self.adjoint(weight * self.delta / total)
        values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, 1e-12 * values[-1])
        whiten = (vectors / np.sqrt(values)) @ vectors.conj().T
        return MomentPreconditioner(whiten, total, 1.0 if self.F.is_complex else 2.0)


@dataclass(frozen=True)
class GramCoordinates:
    """The unknown is a vector x with ``F(A) = L x``, ``K = L L^T``; for few measurements.

    Nothing n by n is formed: ``A = F*(c)`` with the coefficients of `coefficients`.
    """

    L: Vector
    pivots: npt.NDArray[np.intp]
    delta: Vector

    @property
    def precisions(self) -> tuple[int, ...]:
        """Always a factor in float64."""
        return (64,)

    def patience(self, precision: int) -> int:
        """There is nothing to change to."""
        return MAX_GRADIENTS

    def forward(self, x: Array) -> Vector:
        """Return ``F(A(x)) / delta``."""
        return np.asarray(self.L @ x) / self.delta

    def adjoint(self, y: Vector) -> Array:
        """Return the transpose of `forward` applied to y."""
        return np.asarray(self.L.T @ (y / self.delta))

    def product(self, x: Array, d: Vector, shift: Vector) -> tuple[Array, Vector]:
        """Return ``adjoint(d * forward(x) + shift)`` and ``forward(x)``."""
        z = self.forward(x)
        return self.adjoint(d * z + shift), z

    def preconditioner(self, d: Vector, precision: int) -> Preconditioner | None:
        """Return the Cholesky factor of ``L^T diag(d / delta^2) L``."""
        look()
        rows = self.L * (np.sqrt(d) / self.delta)[:, None]
        return cholesky(_inner(rows), 1.0, None, np.float64)

    def unknowns(self, values: Vector) -> Vector:
        """Return the x whose ``F(A(x))`` has these values at the pivot rows."""
        kept = self.pivots[: self.L.shape[1]]
        return np.asarray(solve_triangular(self.L[kept], values[kept], lower=True))

    def coefficients(self, x: Array) -> Vector:
        """Return c with ``A(x) = F*(c)``, supported on the pivot rows."""
        c = np.zeros(self.L.shape[0])
        kept = self.pivots[: self.L.shape[1]]
        c[kept] = solve_triangular(self.L[kept], x, lower=True, trans="T")
        return c


def _inner(rows: Vector) -> Array:
    """Return ``rows^T rows``, at least its upper triangle, in Fortran order."""
    if not divided(len(rows) * float(rows.shape[1]) ** 2):
        return np.asfortranarray(rows.T @ rows)
    return inner_upper(rows)


def gram_coordinates(F: Sensing, delta: Vector) -> GramCoordinates:
    """Pivoted Cholesky of ``K_ij = |<u_i, u_j>|^2`` down to rounding.

    It is that of rows of unit norm, scaled afterwards: the small rows would be rounded away.
    """
    K = F.gram()
    m = K.shape[0]
    squares = np.sqrt(np.maximum(K.diagonal(), 0.0))  # of sums that cancel, rounding alone
    even = bool(np.all(np.abs(squares - 1.0) <= 1e-12))
    if not even:
        squares = np.where(squares > 0.0, squares, 1.0)
        look()
        K /= squares[:, None]
        look()
        K /= squares
        look()
    L, order = pivoted(K, m * float(np.finfo(float).eps))
    if not even:
        L *= squares[:, None]
    return GramCoordinates(L, order, delta)
