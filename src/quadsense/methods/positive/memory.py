"""The memory of a limited-memory BFGS method, as two plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Real = npt.NDArray[np.float64]
LENGTH = 20  # pairs kept; from 7 to 60 the number of steps hardly changes


@dataclass(frozen=True)
class Memory:
    """The last steps and the changes of gradient they made, oldest first.

    Attributes
    ----------
    steps, changes : ndarray, shape (h, d)
        At most `LENGTH` pairs with ``steps[i] @ changes[i] > 0``.
    """

    steps: Real
    changes: Real

    @classmethod
    def empty(cls, d: int) -> Memory:
        """Return a memory of vectors of length d that holds nothing."""
        return cls(np.empty((0, d)), np.empty((0, d)))

    def remember(self, step: Real, change: Real) -> Memory:
        """Return the memory with one more pair; a pair without positive curvature is left out."""
        curvature = float(step @ change)
        if curvature <= 1e-12 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            return self
        kept = slice(max(0, len(self.steps) - LENGTH + 1), None)
        return Memory(
            np.concatenate([self.steps[kept], step[None]]),
            np.concatenate([self.changes[kept], change[None]]),
        )

    def direction(self, gradient: Real) -> Real:
        """Return ``-H gradient`` by the two-loop recursion [Nocedal & Wright 2006, Alg. 7.4]."""
        q = -gradient
        curvatures = np.vecdot(self.steps, self.changes)
        weights = np.zeros(len(self.steps))
        for i in reversed(range(len(self.steps))):
            weights[i] = self.steps[i] @ q / curvatures[i]
            q = q - weights[i] * self.changes[i]
        if len(self.steps):
            q = q * (curvatures[-1] / (self.changes[-1] @ self.changes[-1]))
        for i in range(len(self.steps)):
            q = q + (weights[i] - self.changes[i] @ q / curvatures[i]) * self.steps[i]
        return np.asarray(q)
