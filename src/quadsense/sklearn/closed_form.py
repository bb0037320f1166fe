r"""Quadratic ridge regression in closed form, by the kernel or by the features.

With ``phi(x)`` the entries of ``x x'`` (those off the diagonal times the root of 2) and
``x / sqrt(lp)``, the fit is ridge regression on ``phi``, whose kernel is
``(x . z)^2 + (x . z) / lp``. c is not penalised: features and values are taken about their
weighted means, and rows are scaled by the roots of their weights; ``psi_i = sqrt(s_i) (phi(x_i) -
mean)``. Whichever is smaller is formed, ``Psi Psi'`` of order m or ``Psi' Psi`` of the number of
unknowns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from quadsense.core.records import cached_property
from quadsense.sklearn.model import Coefficients, Matrix, ModelRows, Vector

BLOCK = 2**21
"""Entries of the features that are held at once."""

CUT = 4.0
"""Eigenvalues below this many rounding errors of the largest, for each of their number, are 0."""


def closed_form(rows: ModelRows) -> KernelForm | FeatureForm:
    """The smaller of the two."""
    return KernelForm(rows) if rows.m <= rows.unknowns else FeatureForm(rows)


@dataclass(frozen=True)
class RidgeForm:
    """What both share: values about their mean, times the roots of the weights."""

    rows: ModelRows

    @cached_property
    def roots(self) -> Vector:
        """Roots of the weights."""
        return np.sqrt(self.rows.s)

    @cached_property
    def mean(self) -> float:
        """What values are taken about; 0 without c."""
        rows = self.rows
        return float(rows.s @ rows.y) / rows.total if rows.intercept else 0.0

    @cached_property
    def target(self) -> Vector:
        """``sqrt(s_i) (y_i - mean)``."""
        return np.asarray(self.roots * (self.rows.y - self.mean))

    def with_intercept(self, A: Matrix, w: Vector) -> Coefficients:
        """The best c for them."""
        rows = self.rows
        if not rows.intercept:
            return Coefficients(A, w, 0.0)
        off = rows.y - Coefficients(A, w, 0.0).predict(rows.X)
        return Coefficients(A, w, float(rows.s @ off) / rows.total)


class KernelForm(RidgeForm):
    """By the kernel, of order m."""

    @cached_property
    def K(self) -> Matrix:
        """``Psi Psi'``."""
        rows = self.rows
        G = rows.X @ rows.X.T
        K = G * (G + 1.0 / rows.lp) if rows.linear else G * G
        if rows.intercept:
            part = K @ rows.s / rows.total
            K = K - part - part[:, None] + float(rows.s @ part) / rows.total
        return np.asarray(self.roots[:, None] * K * self.roots)

    @cached_property
    def lifted(self) -> Matrix:
        """K where roots of the weights, which are in its kernel, have its largest eigenvalue.

        That changes no fit, as what is fitted is orthogonal to them up to rounding, which is
        then not divided by a small penalty.
        """
        rows = self.rows
        if not rows.intercept:
            return self.K
        lift = 2.0 * max(float(np.trace(self.K)), 0.0) or 1.0
        return np.asarray(self.K + (lift / rows.total) * np.outer(self.roots, self.roots))

    def solve(self, alpha: float) -> Coefficients:
        """The fit of this penalty; of the smallest norm where that is 0."""
        c = _solved(self.lifted, self.target, alpha) * self.roots
        return self.coefficients(c)

    def coefficients(self, c: Vector) -> Coefficients:
        """A, w and c of coefficients of the rows."""
        X = self.rows.X
        A = X.T @ (c[:, None] * X)
        w = X.T @ c / self.rows.lp if self.rows.linear else np.zeros(self.rows.n)
        return self.with_intercept(0.5 * (A + A.T), w)


class FeatureForm(RidgeForm):
    """By the features, as many as there are unknowns."""

    @cached_property
    def upper(self) -> tuple[np.ndarray, np.ndarray, Vector]:
        """Where the entries of A stand, and their factors."""
        i, j = np.triu_indices(self.rows.n)
        return i, j, np.where(i == j, 1.0, np.sqrt(2.0))

    @cached_property
    def centre(self) -> Vector:
        """Mean of the features; 0 without c."""
        rows = self.rows
        if not rows.intercept:
            return np.zeros(rows.unknowns)
        i, j, factor = self.upper
        mean = (rows.X.T @ (rows.s[:, None] * rows.X))[i, j] * factor
        if rows.linear:
            mean = np.concatenate([mean, rows.X.T @ rows.s / np.sqrt(rows.lp)])
        return np.asarray(mean / rows.total)

    def blocks(self) -> Iterator[tuple[slice, Matrix]]:
        """Psi, some rows at a time."""
        rows, (i, j, factor) = self.rows, self.upper
        step = max(1, BLOCK // rows.unknowns)
        for begin in range(0, rows.m, step):
            part = slice(begin, min(begin + step, rows.m))
            X = rows.X[part]
            features = X[:, i] * X[:, j] * factor
            if rows.linear:
                features = np.hstack([features, X / np.sqrt(rows.lp)])
            yield part, self.roots[part, None] * (features - self.centre)

    @cached_property
    def normal(self) -> tuple[Matrix, Vector]:
        """``Psi' Psi``, and Psi' times the target."""
        p = self.rows.unknowns
        G, right = np.zeros((p, p)), np.zeros(p)
        for part, features in self.blocks():
            G += features.T @ features
            right += features.T @ self.target[part]
        return G, right

    def solve(self, alpha: float) -> Coefficients:
        """The fit of this penalty; of the smallest norm where that is 0."""
        G, right = self.normal
        return self.unpacked(_solved(G, right, alpha))

    def unpacked(self, theta: Vector) -> Coefficients:
        """A, w and c of coefficients of the features."""
        rows, (i, j, factor) = self.rows, self.upper
        A = np.zeros((rows.n, rows.n))
        A[i, j] = A[j, i] = theta[: rows.quadratic] / factor
        w = theta[rows.quadratic :] / np.sqrt(rows.lp) if rows.linear else np.zeros(rows.n)
        return self.with_intercept(A, w)


def _solved(M: Matrix, right: Vector, alpha: float) -> Vector:
    """``(M + alpha I)^-1 right``, or of the smallest norm where that is singular."""
    if alpha > 0.0:
        moved = M.copy()
        moved.flat[:: len(M) + 1] += alpha
        diagonal = moved.diagonal()
        try:
            factor = cho_factor(moved, overwrite_a=True)
        except np.linalg.LinAlgError:
            pass
        else:
            least = float(np.min(np.abs(factor[0].diagonal()))) ** 2
            if least > CUT * len(M) * np.finfo(np.float64).eps * float(diagonal.max()):
                return np.asarray(cho_solve(factor, right))
    values, vectors = eigh(M)
    least = CUT * len(M) * np.finfo(np.float64).eps * max(float(values[-1]), 0.0)
    kept = values > least
    return np.asarray(vectors[:, kept] @ ((vectors[:, kept].T @ right) / (values[kept] + alpha)))
