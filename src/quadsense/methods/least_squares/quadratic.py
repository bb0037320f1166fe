"""What least squares costs on packed matrices: ``sum w (F(A) - b)^2 + alpha ||A - P||^2``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quadsense.arrays import Vector
from quadsense.core.cholesky import symmetric, symmetric_product
from quadsense.core.records import cached_property
from quadsense.device import numbers, waits
from quadsense.measurements.sensing import Sensing
from quadsense.methods.least_squares.cone import LeastSquaresCone
from quadsense.system.watch import look

Array = npt.NDArray[Any]

LARGEST = 16000
"""Unknowns up to which the normal matrix is formed, as `interior.coordinates` has it."""

STEPS = 200.0
"""Steps that a formed normal matrix is to serve: seen 60 to 350."""

LARGE = 1e9
"""Operations of forming the normal matrix from which on single precision saves what it costs."""

LANCZOS = 24
"""Steps of the estimate of the largest eigenvalue; its residual makes a bound of it."""


@dataclass(frozen=True)
class QuadraticPoint:
    """A matrix with what was evaluated there from the rows themselves.

    Attributes
    ----------
    x : ndarray of shape (N,)
    values : ndarray of shape (m,)
        ``F(A)``.
    cost : float
    slope : ndarray of shape (N,)
        Half the gradient.
    """

    x: Vector
    values: Vector
    cost: float
    slope: Vector


@dataclass(frozen=True)
class Quadratic:
    """The cost, by its normal matrix where that is formed, else by products with the rows.

    Attributes
    ----------
    F : Sensing
    cone : LeastSquaresCone
    w, b : ndarray of shape (m,)
    alpha : float
    p : ndarray of shape (N,)
        P.
    """

    F: Sensing
    cone: LeastSquaresCone
    w: Vector
    b: Vector
    alpha: float
    p: Vector

    @property
    def product_flops(self) -> float:
        """Operations of a product with all rows."""
        return (8.0 if self.F.is_complex else 2.0) * self.F.raw.m * float(self.F.n) ** 2

    @cached_property
    def formed(self) -> bool:
        """Whether the normal matrix is formed: where the steps cost more without it."""
        size = float(self.cone.size)
        return size <= LARGEST and self.F.m * size <= 2.0 * STEPS * self.product_flops / size

    @cached_property
    def H(self) -> Array:
        """``F* diag(w) F``, its upper triangle; whole on a device."""
        return self._normal(np.float64)

    @cached_property
    def quick(self) -> Array:
        """The same for steps that are corrected later on: in single precision where that pays.

        On a device it does not (see `Tensors`).
        """
        large = self.F.m * float(self.cone.size) ** 2 >= LARGE
        single = large and not waits(self.w)
        return self._normal(np.float32) if single else self.H

    def _normal(self, dtype: npt.DTypeLike) -> Array:
        kept = np.flatnonzero(self.w)
        rows = self.F if kept.size == self.w.size else self.F.only(kept)
        rows, factors = single_rows(rows)
        weights = self.w if kept.size == self.w.size else self.w[kept]
        return symmetric(rows.normal(weights * factors, dtype))

    def point(self, x: Vector) -> QuadraticPoint:
        """What x costs, and its slope, from the rows."""
        values = self.F.forward(self.cone.unpack(x))
        away = x - self.p
        errors = np.where(self.w == 0.0, 0.0, values - self.b)
        pull = self.w * errors
        missed, distance = numbers(pull @ errors, away @ away)
        slope = self.cone.pack(self.F.adjoint(pull)) + self.alpha * away
        return QuadraticPoint(x, values, missed + self.alpha * distance, slope)

    def apply(self, d: Vector) -> Vector:
        """Half the second derivative times d."""
        if self.formed:
            look(2.0 * d.size * d.size)
            H = self.quick
            if H.dtype == np.float64:
                return symmetric_product(H, d) + self.alpha * d
            size = float(np.abs(d).max(initial=0.0)) or 1.0
            image = symmetric_product(H, (d / size).astype(np.float32))
            return size * image.astype(np.float64) + self.alpha * d
        look(2.0 * self.product_flops)
        image = self.w * self.F.forward(self.cone.unpack(d))
        return self.cone.pack(self.F.adjoint(image)) + self.alpha * d

    def ends(self) -> tuple[float, float]:
        """About the least eigenvalue that matters, and a bound on the largest one.

        Where the trace is fixed, of the part across the identity: no step goes along it.
        """
        flat = self.cone.identity / np.sqrt(self.cone.n) if self.cone.trace is not None else None

        def across(v: Vector) -> Vector:
            return v if flat is None else v - (flat @ v) * flat

        first = np.random.default_rng(0).standard_normal(self.cone.size)
        v = across(self.cone.beside(first))
        if not v.any():
            return 0.0, 0.0
        steps = min(LANCZOS, self.cone.size)
        basis = np.empty_like(v, shape=(steps + 1, v.size))
        basis[0] = v / np.linalg.norm(v)
        diagonal: list[float] = []
        beside: list[float] = []
        for k in range(steps):
            image = across(self.apply(basis[k]))
            diagonal.append(float(basis[k] @ image))
            known = basis[: k + 1]
            for _ in range(2):  # once leaves traces of what was there
                image = image - (known @ image) @ known
            beside.append(float(np.linalg.norm(image)))
            if beside[-1] <= 1e-12 * max(map(abs, diagonal)):
                break
            basis[k + 1] = image / beside[-1]
        T = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
        values, vectors = np.linalg.eigh(T)
        rest = beside[-1] * abs(float(vectors[-1, -1]))
        return float(values[0]), float(values[-1]) + rest


def single_rows(F: Sensing) -> tuple[Sensing, Any]:
    """Where every reading is a multiple of one row's, those rows, and the squares of the multiples.

    Constraints make sums of all readings, most of which have one term: rows are quicker.
    """
    W = getattr(F, "weights", None)
    if W is None or not hasattr(W, "indptr") or not (np.diff(W.indptr) == 1).all():
        return F, 1.0
    return F.raw.only(W.indices.astype(np.int64)), W.data**2
