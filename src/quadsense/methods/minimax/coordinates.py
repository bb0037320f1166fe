"""Coordinates for the unknown A, and the sensing map scaled by the tolerances on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from quadsense.core.cholesky import divided, inner_upper, pivoted
from quadsense.core.packed import Array, Vector
from quadsense.measurements.sensing import Sensing
from quadsense.methods.minimax.preconditioner import MomentPreconditioner, Preconditioner, cholesky
from quadsense.system.watch import look

FACTOR_BYTES = 2**30  # largest normal matrix: 16,000 unknowns in float32
FACTOR_SIDE = 64  # n from which conjugate gradients are tried before factoring
LIMIT = 2000  # conjugate-gradient steps when there is no other way


class Coordinates(Protocol):
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
        if self.F.n < FACTOR_SIDE:
            return (32, 64)
        room = FACTOR_BYTES / self.F.unknowns**2
        return tuple(bits for bits in (0, 32, 64) if bits / 8 <= room)

    def patience(self, precision: int) -> int:
        """Half the price of a factor, as a step solves twice; few steps where there is one."""
        if precision == self.precisions[-1]:
            return LIMIT
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
        return LIMIT

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
