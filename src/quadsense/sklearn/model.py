"""What is fitted, ``x' A x + w' x + c``, and the rows it is fitted to, in units of about 1."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]

LARGEST = 1e250
"""Penalties beyond this are as good as infinite."""


@dataclass(frozen=True)
class Coefficients:
    """A, w and c of ``x' A x + w' x + c``."""

    A: Matrix
    w: Vector
    c: float

    def predict(self, X: Matrix) -> Vector:
        """The value for every row of X."""
        return np.asarray(np.einsum("ij,ij->i", X @ self.A, X) + X @ self.w + self.c)

    def scaled(self, length: float, size: float) -> Coefficients:
        """The same where rows are `length` times and values `size` times as large."""
        per = size / length
        return Coefficients(self.A * (per / length), self.w * per, self.c * size)


@dataclass(frozen=True)
class ModelRows:
    """The rows of a fit.

    The fit minimises ``sum_i s_i (y_i - f(x_i))^2 + alpha (||A||_F^2 + lp ||w||^2)``.

    Attributes
    ----------
    X : ndarray of shape (m, n)
    y : ndarray of shape (m,)
    s : ndarray of shape (m,)
        Weights, all positive.
    linear, intercept : bool
        Whether there is a w, and a c.
    lp : float
        What a square of w costs relative to one of A; positive.
    """

    X: Matrix
    y: Vector
    s: Vector
    linear: bool
    intercept: bool
    lp: float

    @property
    def m(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.s.sum())

    @property
    def quadratic(self) -> int:
        """Number of unknowns of A."""
        return self.n * (self.n + 1) // 2

    @property
    def unknowns(self) -> int:
        """Number of unknowns that are penalised."""
        return self.quadratic + self.n * self.linear

    @property
    def mean_square(self) -> float:
        """Mean of ``||x||^2``."""
        return float(self.s @ np.einsum("ij,ij->i", self.X, self.X)) / self.total

    def objective(self, found: Coefficients, alpha: float) -> float:
        """What is minimised, at these coefficients."""
        off = self.y - found.predict(self.X)
        penalty = float(np.vdot(found.A, found.A)) + self.lp * float(found.w @ found.w)
        return float(self.s @ off**2) + alpha * penalty

    def merged(self) -> ModelRows:
        """Rows that are equal in X and y as one with the sum of their weights."""
        whole = np.column_stack([self.X, self.y])
        unique, inverse = np.unique(whole, axis=0, return_inverse=True)
        if len(unique) == self.m:
            return self
        s = np.asarray(np.bincount(inverse.ravel(), weights=self.s), np.float64)
        return replace(self, X=unique[:, :-1], y=unique[:, -1], s=s)


@dataclass(frozen=True)
class Units:
    """Powers of two that rows and values were divided by: no digit changes."""

    length: float
    size: float

    def alpha(self, alpha: float) -> float:
        """The penalty that means the same in these units."""
        with np.errstate(over="ignore", under="ignore"):
            return min(float(np.float64(alpha) / self.length**2 / self.length**2), LARGEST)

    def penalty(self, alpha: float) -> float:
        """The penalty in the user's units."""
        with np.errstate(over="ignore", under="ignore"):
            return float(np.float64(alpha) * self.length**2 * self.length**2)


def in_units(rows: ModelRows) -> tuple[ModelRows, Units]:
    """The rows with entries and values of about 1."""
    length = _power(float(np.max(np.abs(rows.X), initial=0.0)))
    size = _power(float(np.max(np.abs(rows.y), initial=0.0)))
    scaled = replace(rows, X=rows.X / length, y=rows.y / size, lp=rows.lp * length * length)
    return scaled, Units(length, size)


def _power(value: float) -> float:
    """The power of two next to a number, 1 for 0."""
    return math.ldexp(1.0, math.frexp(value)[1] - 1) if value > 0.0 else 1.0
