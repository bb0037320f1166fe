"""The step in Z: ``(F* diag(rho) F + shift I) D = g``, by conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from quadsense.arrays import Vector
from quadsense.device import numbers
from quadsense.measurements.sensing import Sensing
from quadsense.methods.least_squares.cone import LeastSquaresCone
from quadsense.system.watch import look


class ZStep(Protocol):
    """What solves the normal equations of a step, for packed matrices."""

    def solve(self, rho: Vector, shift: float, g: Vector, share: float, most: int) -> Vector:
        """D up to a residual of `share` times g, in at most that many products."""


@dataclass(frozen=True)
class ByGradients:
    """Conjugate gradients with products in single precision [Hestenes & Stiefel 1952].

    A step is a correction of the one before, whose residual was computed in float64: rounding in
    the products costs steps, never digits.
    """

    F: Sensing
    cone: LeastSquaresCone

    def solve(self, rho: Vector, shift: float, g: Vector, share: float, most: int) -> Vector:
        """From D = 0."""
        F, cone, top = self.F.single, self.cone, float(np.max(rho, initial=0.0)) or 1.0
        weights, flops = rho / top, 4.0 * F.raw.m * float(F.n) ** 2
        d, left, direction = np.zeros_like(g), g, g
        (size,) = numbers(g @ g)
        enough = share * share * size
        for _ in range(most):
            if not size > enough:  # NaN too
                break
            look(flops)
            scale = float(np.max(np.abs(direction)))
            image = weights * F.forward(cone.unpack(direction / scale))
            back = cone.pack(F.adjoint(image).astype(cone.dtype, copy=False))
            image = (top * scale) * back + shift * direction
            (bend,) = numbers(direction @ image)
            if not bend > 0.0:
                break
            length = size / bend
            d = d + length * direction
            left = left - length * image
            (after,) = numbers(left @ left)
            direction, size = left + (after / size) * direction, after
        return d
