"""The error of leaving every row out in turn, for many penalties by one eigendecomposition.

A fit that is linear in y predicts row i, left out, with the error ``(y_i - f_i) / (1 - h_ii)``,
where h is the matrix of the fit and f what it predicts with all rows [Allen 1974]. With c, h is
``sqrt(s) sqrt(s)' / sum(s)`` and the matrix of the ridge about the means; where ``Psi Psi'`` has
eigenvalues l and eigenvectors V, the latter is ``V diag(l / (l + alpha)) V'``.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from quadsense.sklearn.closed_form import FeatureForm, KernelForm
from quadsense.sklearn.model import Coefficients, Matrix, Vector

DECADES = (2.0, -7.0)
"""Penalties tried, as decades of the largest eigenvalue: from nothing but c to next to none."""

A_DECADE = 4
"""Penalties a decade."""

LEAST = 1e-12
"""Share of a row that the others do not determine below which its error cannot be told."""


def default_alphas(largest: float) -> Vector:
    """Penalties to try, the largest first, for that largest eigenvalue."""
    first, last = DECADES
    count = int((first - last) * A_DECADE) + 1
    return (largest if largest > 0.0 else 1.0) * np.logspace(first, last, count)


class KernelPath:
    """By the eigendecomposition of ``Psi Psi'``."""

    def __init__(self, form: KernelForm) -> None:
        self.form = form
        # With c, sqrt(s) is in the kernel of K. As the eigenvector of the largest eigenvalue it is
        # known, and 1 - h is a sum over the others, without cancellation.
        values, self.V = eigh(form.lifted)
        if form.rows.intercept:
            values, self.V = values[:-1], self.V[:, :-1]
        self.values = np.maximum(values, 0.0)
        self.turned = self.V.T @ form.target

    @property
    def largest(self) -> float:
        """Largest eigenvalue."""
        return float(self.values[-1]) if self.values.size else 0.0

    def errors(self, alphas: Vector) -> Matrix:
        """Errors of the rows left out, (m, k)."""
        share = alphas / (self.values[:, None] + alphas)
        free = (self.V * self.V) @ share
        off = self.V @ (share * self.turned[:, None])
        return _divided(off, free) / self.form.roots[:, None]

    def solve(self, alpha: float) -> Coefficients:
        """The fit of that penalty."""
        return self.form.coefficients(
            self.form.roots * (self.V @ (self.turned / (self.values + alpha)))
        )


class FeaturePath:
    """By the eigendecomposition of ``Psi' Psi``."""

    def __init__(self, form: FeatureForm) -> None:
        self.form = form
        G, right = form.normal
        values, self.Q = eigh(G)
        self.values = np.maximum(values, 0.0)
        self.turned = self.Q.T @ right

    @property
    def largest(self) -> float:
        """Largest eigenvalue."""
        return float(self.values[-1])

    def errors(self, alphas: Vector) -> Matrix:
        """Errors of the rows left out, (m, k)."""
        form = self.form
        rows, inverse = form.rows, 1.0 / (self.values[:, None] + alphas)
        found = np.empty((rows.m, alphas.size))
        for part, features in form.blocks():
            images = features @ self.Q
            held = (images * images) @ inverse
            if rows.intercept:
                held = held + (rows.s[part] / rows.total)[:, None]
            off = form.target[part, None] - images @ (inverse * self.turned[:, None])
            found[part] = _divided(off, 1.0 - held) / form.roots[part, None]
        return found

    def solve(self, alpha: float) -> Coefficients:
        """The fit of that penalty."""
        return self.form.unpacked(self.Q @ (self.turned / (self.values + alpha)))


def _divided(off: Matrix, free: Matrix) -> Matrix:
    """``off / free``, infinite for a row that the others say nothing of."""
    told = free > LEAST
    return np.where(told, off / np.where(told, free, 1.0), np.inf)


def make_path(form: KernelForm | FeatureForm) -> KernelPath | FeaturePath:
    """The path over penalties."""
    return KernelPath(form) if isinstance(form, KernelForm) else FeaturePath(form)


def mean_errors(path: KernelPath | FeaturePath, alphas: Vector) -> Vector:
    """Weighted mean of the squared errors of the rows left out, for each penalty."""
    rows = path.form.rows
    errors = path.errors(alphas)
    with np.errstate(over="ignore"):
        return np.asarray((rows.s / rows.total) @ errors**2)
