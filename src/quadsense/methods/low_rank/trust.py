"""The best step of a quadratic model within a radius that is trusted."""

from __future__ import annotations

import numpy as np

from quadsense.methods.low_rank.program import Matrix, Vector

# Halvings of the interval in which the shift is sought: to rounding.
_HALVINGS = 60
# Distance from the least shift, relative to it, at which the least curvature is next to none.
_NEAR = 1e-9


class Trusted:
    """``min -right.x + x.curved x / 2`` over ``||x|| <= radius``, for any radius.

    Notes
    -----
    ``(curved + shift I) x = right`` with the least shift, not negative, for which the matrix is
    positive semidefinite and x within the radius [Nocedal & Wright 2006, Thm. 4.1]. Where no shift
    makes x long enough, what is missing leads along the eigenvector of the least curvature.
    """

    def __init__(self, right: Vector, curved: Matrix) -> None:
        self.values, self.vectors = np.linalg.eigh(curved)
        self.right = self.vectors.T @ right

    def step(self, radius: float) -> tuple[Vector, float]:
        """The step, and what the model says that it gains."""
        values, right = self.values, self.right
        size = float(np.linalg.norm(right))
        tiny = float(np.finfo(np.float64).eps) * float(np.abs(values).max(initial=0.0))
        low = max(0.0, tiny - float(values[0]))
        first = low
        x = right / (values + low) if low > 0.0 or values[0] > 0.0 else right * 0.0
        if float(np.linalg.norm(x)) > radius:
            high = low + size / radius
            for _ in range(_HALVINGS):
                shift = 0.5 * (low + high)
                x = right / (values + shift)
                low, high = (shift, high) if float(np.linalg.norm(x)) > radius else (low, shift)
            low = high
            x = right / (values + low)
        if values[0] < -tiny and low - first < _NEAR * first:  # where digits of the shift run out
            missing = max(radius**2 - float(x[1:] @ x[1:]), 0.0)
            x[0] = np.copysign(np.sqrt(missing), right[0])
        gain = float(right @ x) - 0.5 * float(values @ (x * x))
        return np.asarray(self.vectors @ x), gain
