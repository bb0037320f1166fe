"""The interior-point kernel on rows of few measurements, and on matrices too large to factor.

Of few measurements A is a short vector, in coordinates of what they see. Where there are more
unknowns than a normal matrix may have, systems are solved by conjugate gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from quadsense.arrays import Array, Vector
from quadsense.core.cholesky import inner_upper, pivoted
from quadsense.core.intervals import EPS, ZERO_SHARE
from quadsense.device import numbers, scalar
from quadsense.measurements.sensing import Sensing
from quadsense.methods.base import MIN_RESIDUAL
from quadsense.methods.conic.coordinates import PlainCoordinates
from quadsense.methods.conic.program import Mask
from quadsense.methods.conic.system import ROUGH_RESIDUAL, KernelSystem
from quadsense.system.watch import look

MAX_GRAM_ROWS = 6000
"""Rows up to which their Gram matrix costs less than products with the rows."""

MAX_GRADIENTS, MAX_GROWTH = 2000, 1e3
"""Conjugate gradients at most; growth of the residual that is rounding which F cannot see."""


def by_gram(F: Sensing) -> bool:
    """Return whether the unknowns are the span of few measurements."""
    return F.m <= min(F.unknowns, MAX_GRAM_ROWS) or F.m < F.n


class SeenRows:
    """The sensing map on vectors x with ``F(A) = L x``, ``K = L L^T``.

    No n by n matrix is formed: ``A = F*(c)`` with the coefficients of `coefficients`. The norm of x
    is that of A.

    Parameters
    ----------
    F : Sensing
        Rows, on NumPy's arrays.

    Notes
    -----
    K is factored for rows of unit norm, with pivots and down to rounding, and scaled afterwards:
    small rows would be rounded away.
    """

    waits = False
    is_complex = False
    dtype = np.dtype(np.float64)

    def __init__(self, F: Sensing) -> None:
        K = F.gram()
        norms = np.sqrt(np.maximum(K.diagonal(), 0.0))  # of sums that cancel, rounding alone
        norms = np.where(norms > 0.0, norms, 1.0)
        for scales in (norms[:, None], norms):
            look()
            K /= scales
        L, order = pivoted(K, len(K) * EPS)
        L = L * norms[:, None] if L.shape[1] else np.zeros((len(L), 1))
        self.L: Vector = L
        self.pivots: npt.NDArray[np.intp] = order[: L.shape[1]]
        self.m, self.unknowns = L.shape
        self.n = self.unknowns

    def placed(self, values: Any) -> Any:
        """The values as they are."""
        return values

    def forward(self, x: Array) -> Vector:
        """``F(A)``."""
        return np.asarray(self.L @ x)

    def adjoint(self, y: Vector) -> Array:
        """The transpose of `forward`."""
        return np.asarray(self.L.T @ y)

    def coefficients(self, x: Vector) -> Vector:
        """c with ``A = F*(c)``, which is 0 but at the pivots."""
        c = np.zeros(self.m)
        if not x.any():
            return c
        triangle = self.L[self.pivots]
        c[self.pivots] = solve_triangular(triangle, x, lower=True, trans="T")
        return c


class SeenRowsCoordinates(PlainCoordinates):
    """Those of `SeenRows`: x itself."""

    F: Any
    rowwise = False

    def __init__(self, F: Any, hessian: float, kept: dict[str, Any]) -> None:
        super().__init__(F, hessian, kept, hessian)

    def pack(self, x: Array) -> Vector:
        """All of it."""
        return x

    def unpack(self, x: Vector) -> Array:
        """All of it."""
        return x

    def features(self, index: npt.NDArray[np.intp]) -> Vector:
        """Rows of L."""
        return np.asarray(self.F.L[index])

    def squared(self) -> Vector:
        """Squared norms."""
        return np.vecdot(self.F.L, self.F.L)

    def normal(self, weights: Vector, single: bool) -> Vector:
        """``L^T diag(weights) L``."""
        look()
        L = self.F.L * np.sqrt(weights)[:, None]
        return inner_upper(L.astype(np.float32 if single else np.float64, copy=False))


class GradientSystem(KernelSystem):
    """The normal equations by conjugate gradients.

    Preconditioned by the normal matrix that Gaussian rows of the same covariance C would have:
    ``E[u* A u . u u*] = k C A C + tr(C A) C``, k = 2 for real and 1 for complex rows, which has a
    closed inverse.
    """

    def __init__(
        self,
        coordinates: GradientCoordinates,
        E: Any,
        equal: Mask,
        enough: float = MIN_RESIDUAL,
        single: bool = False,
    ) -> None:
        weights = 1.0 / E
        self.at, self.E, self.weights = coordinates, E, weights
        self.eye = coordinates.F.placed(np.eye(coordinates.n, dtype=coordinates.dtype))
        self.enough, self.single = max(enough, ROUGH_RESIDUAL), single
        total = scalar(weights.sum())
        values, vectors = np.linalg.eigh(coordinates.adjoint(weights) / total)
        values = np.maximum(values, ZERO_SHARE * values[-1])
        self.whiten = (vectors / np.sqrt(values)) @ vectors.conj().T
        self.k = 1.0 if coordinates.F.is_complex else 2.0
        self.total = self.k * total

    def solve(self, R: Array, h: Any) -> tuple[Array, Any, Any]:
        """Return x, (n, n), y, (m,), and ``F(x)``."""
        at, weights = self.at, self.weights
        rest = R + at.adjoint(weights * h)
        x, direction = np.zeros_like(rest), np.zeros_like(rest)
        best, before = x, 1.0
        size = smallest = float(np.linalg.norm(rest))
        goal, count = self.enough * size, 0
        while count < MAX_GRADIENTS and goal < size < MAX_GROWTH * smallest:
            look()
            ahead = self._model(rest)
            after = scalar(np.vdot(ahead, rest).real)
            direction = ahead + (after / before) * direction
            image = at.adjoint(weights * at.forward(direction))
            step = after / scalar(np.vdot(direction, image).real)
            x, rest, before = x + step * direction, rest - step * image, after
            size, slope = numbers(np.linalg.norm(rest), after)
            if not (np.isfinite(size) and slope > 0.0):
                break
            if size < smallest:
                best, smallest = x, size
            count += 1
        image = at.forward(best)
        return best, weights * (image - h), image

    def _model(self, x: Array) -> Array:
        """The inverse of that model."""
        white = self.whiten @ x @ self.whiten
        shift = scalar(np.trace(white).real) / (self.k + len(x))
        white = white - shift * self.eye
        return self.whiten @ white @ self.whiten / self.total


class GradientCoordinates(PlainCoordinates):
    """All symmetric or Hermitian matrices, as they are."""

    rowwise = False
    system = GradientSystem

    def __init__(self, F: Sensing, hessian: float, kept: dict[str, Any]) -> None:
        super().__init__(F, hessian, kept, hessian)
