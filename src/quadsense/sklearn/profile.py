"""A in a cone, or of low rank, with w and c taken out.

For a given A the best w and c are linear in what A leaves over, so that the least cost over them is
``||L (y - F(A))||^2 + alpha ||A||_F^2`` with ``L'L = S^(1/2) (I - H) S^(1/2)``, H the matrix of the
ridge regression on ``(x, 1)`` that penalises w alone. That is a question about A of readings that
are sums over rows, ``L F(A)``, which `quadsense.solve` takes as they are (`mix`): w and c are never
alternated with, and what is proved of it is proved of all three. Where there are more rows than
unknowns of A, an orthonormal basis of the range of ``L F`` reduces the sums to as many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from quadsense.result.result import Result
from quadsense.sklearn.model import Coefficients, Matrix, ModelRows, Vector
from quadsense.sklearn.runs import Solve, plainly

MOST = 3e7
"""Entries of the sums over rows up to which they are formed."""


@dataclass(frozen=True)
class Linear:
    """The part ``w' x + c``: its ridge regression, with the penalty of w and weights."""

    rows: ModelRows
    alpha: float

    def design(self, X: Matrix) -> Matrix:
        """``(x, 1)``, what there is of it, a row."""
        parts = [X] * self.rows.linear + [np.ones((len(X), 1))] * self.rows.intercept
        return np.hstack([np.zeros((len(X), 0)), *parts])

    @property
    def _system(self) -> tuple[Matrix, Matrix]:
        """The design with weights, and the roots of its penalties below."""
        rows = self.rows
        B = np.sqrt(rows.s)[:, None] * self.design(rows.X)
        penalties = np.zeros(B.shape[1])
        penalties[: rows.n * rows.linear] = np.sqrt(self.alpha * rows.lp)
        return B, np.diag(penalties)

    def best(self, left: Vector) -> tuple[Vector, float]:
        """w and c that are best for what A leaves over."""
        rows, (B, below) = self.rows, self._system
        if not B.shape[1]:
            return np.zeros(rows.n), 0.0
        right = np.concatenate([np.sqrt(rows.s) * left, np.zeros(len(below))])
        theta = np.linalg.lstsq(np.vstack([B, below]), right)[0]
        w = theta[: rows.n] if rows.linear else np.zeros(rows.n)
        return w, float(theta[-1]) if rows.intercept else 0.0

    def times(self, V: Matrix) -> Matrix:
        """``L V`` for V of shape (m, k)."""
        B, below = self._system
        V = np.sqrt(self.rows.s)[:, None] * V
        if not B.shape[1]:
            return V
        U, sizes, _ = np.linalg.svd(np.vstack([B, below]), full_matrices=False)
        top = U[: len(B), sizes > 1e-13 * sizes[0]]
        left, cosines, _ = np.linalg.svd(top, full_matrices=False)
        shrink = 1.0 - np.sqrt(np.maximum(1.0 - cosines**2, 0.0))
        return np.asarray(V - left @ (shrink[:, None] * (left.T @ V)))


def with_linear(rows: ModelRows, alpha: float, A: Matrix) -> Coefficients:
    """A with the best w and c for it."""
    plain = Coefficients(A, np.zeros(rows.n), 0.0)
    w, c = Linear(rows, alpha).best(rows.y - plain.predict(rows.X))
    return Coefficients(A, w, c)


def fits_in_memory(rows: ModelRows) -> bool:
    """Whether the sums over rows may be formed."""
    return float(rows.m) * min(rows.m, rows.quadratic) <= MOST


def profiled(
    rows: ModelRows, alpha: float, *, rank: Any = None, run: Solve = plainly, **options: Any
) -> tuple[Coefficients, Result]:
    """The fit with A positive semidefinite, or of a rank, without tolerances.

    Parameters
    ----------
    rows : ModelRows
    alpha : float
    rank : as of `solve`
        None for positive semidefinite.
    run : callable
        See `runs`.
    **options
        Of `solve`, such as ``gap``.
    """
    linear = Linear(rows, alpha)
    plain = not (rows.linear or rows.intercept)
    if plain:
        X, b, mix, weights = rows.X, rows.y, None, rows.s
    else:
        mix = _sums(rows, linear)
        X, b = rows.X, mix @ rows.y
        weights = np.ones(b.size)
    asked: dict[str, Any] = {"psd": True, "ridge": alpha}
    if rank is not None:
        asked = {"rank": rank}
        if alpha > 0.0:  # which `solve` does not take with a rank: as rows that read A itself
            X, b, mix, weights = _with_ridge(X, b, mix, weights, alpha)
    if mix is not None:
        asked["mix"] = mix

    def parted(A: Matrix) -> Coefficients:
        return with_linear(rows, alpha, A)

    result = run(X, b, parted=parted, weights=weights, prefer="least_squares", **asked, **options)
    return parted(np.asarray(result.A, np.float64)), result


def _sums(rows: ModelRows, linear: Linear) -> Matrix:
    """L, or as many combinations of its rows as A has unknowns."""
    if rows.m <= rows.quadratic:
        return linear.times(np.eye(rows.m))
    i, j = np.triu_indices(rows.n)
    features = rows.X[:, i] * rows.X[:, j] * np.where(i == j, 1.0, np.sqrt(2.0))
    basis = np.linalg.qr(linear.times(features))[0]
    # L is symmetric up to the weights: Q'L = (S^(1/2) P^(1/2) Q)'.
    roots = np.sqrt(rows.s)
    return np.ascontiguousarray((roots[:, None] * linear.times(basis / roots[:, None])).T)


def _with_ridge(
    X: Matrix, b: Vector, mix: Matrix | None, weights: Vector, alpha: float
) -> tuple[Matrix, Vector, Any, Vector]:
    """The same with ``alpha ||A||_F^2`` as further readings of 0.

    ``A_ii`` is one, and ``sqrt(2) A_ij`` the reading of ``e_i + e_j`` less those of the two.
    """
    m, n = X.shape
    i, j = np.triu_indices(n, 1)
    eye = np.eye(n)
    probes = np.vstack([X, eye, eye[i] + eye[j]])
    off = sp.csr_array((np.ones(i.size), (np.arange(i.size), i)), shape=(i.size, n))
    off = off + sp.csr_array((np.ones(i.size), (np.arange(i.size), j)), shape=(i.size, n))
    root = np.sqrt(0.5)
    below = sp.block_array(
        [[sp.eye_array(n), None], [-root * off, root * sp.eye_array(i.size)]]
        if i.size
        else [[sp.eye_array(n)]]
    )
    first = sp.eye_array(m) if mix is None else sp.csr_array(mix)
    sums = sp.csr_array(sp.block_diag([first, below]))
    more = n + i.size
    return (
        probes,
        np.concatenate([b, np.zeros(more)]),
        sums,
        np.concatenate([weights, np.full(more, alpha)]),
    )
